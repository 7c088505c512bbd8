"""False claims, made on purpose: every one is found by twin runs."""

import random
from fractions import Fraction

import pytest

import semidp
from semidp.promise.sensitivity import costs
from semidp.promise.sensitivity import described_moves as exchange_moves
from semidp.promise.sensitivity.outcome_spaces import OutcomeSpace
from semidp.publish import pipeline
from tests.twins import plans
from tests.twins.homes import Homes
from tests.twins.people import World
from tests.twins.plans import FLAT, build_case, draw_records
from tests.twins.town_plans import AGES, TownCase, build_town_case, draw_town
from tests.twins.twin_runs import Seen, Violation, draw, run_twins

PLACES = (("state", "county"), (("A", "a1"), ("A", "a2"), ("B", "b1"), ("B", "b2")))
SEX = (("sex",), FLAT["sex"])
WARD = (("ward",), FLAT["ward"])
TENURE = (("tenure",), (("o",), ("r",)))
OPTIONS = {"mu": 1, "share": {"tables": 1000, "units:tables": 1}}


def draw_members(own, features, blocks, tables, units=7):
    """A release of members under exchange, with units by size."""
    homes = Homes(
        tuple(names for names, _ in own),
        tuple(leaves for _, leaves in own),
        tuple(names for names, _ in features),
        tuple(leaves for _, leaves in features),
        (),
        blocks,
        1,
        3,
        "member",
    )
    town = draw_town(random.Random(1), homes, units)
    return build_town_case(
        homes, town, "exchange", [*tables, ("units:size",)], OPTIONS, "linked member"
    )


# what issue 43 found, as it was claimed: the exact totals, and the tables
CLAIMS = {
    "1a": lambda: draw_members([TENURE], [SEX, AGES], (((1, 1), (2, 1)),), [("sex", "age")]),
    "1b": lambda: draw_members([PLACES], [SEX, WARD], (((0, 1), (1, 1)),), [("county", "ward")]),
    "1c": lambda: draw_members(
        [PLACES, TENURE], [SEX], (((0, 1), (1, 1)), ((2, 1),)), [("county", "sex")], 9
    ),
}


def hand_over_whole_blocks(right):
    """1a: a carrier takes x's leaf of every feature of its block, also where the published nodes
    agree.
    """

    def describe(blocks, seen, inherited=(), constant=()):
        moves = []
        for move in right(blocks, seen, inherited, constant):
            person, *others = move.records
            records = [person]
            for record in others:
                after = list(record.after)
                for block in blocks:
                    places = [p for p, axis in enumerate(move.axes) if axis in block]
                    if any(after[p] == "x" for p in places):
                        for place in places:
                            after[place] = "x"
                records.append(exchange_moves.MovedRecord(record.before, tuple(after)))
            moves.append(exchange_moves.ExchangeMove(move.axes, tuple(records), move.rules))
        return moves

    return describe


def forget_joint_places(right):
    """1b: a joint total of place and own features counts only if the table has the own feature."""

    def describe(blocks, seen, inherited=(), constant=()):
        kept = []
        for block in blocks:
            own = {*block} - {*inherited}
            if own == {*block} or not own or own & {*seen}:
                kept.append(block)
        return right(kept, seen, inherited, constant)

    return describe


def forget_second_places(right):
    """1c: of a total with two inherited features only the first one counts."""

    def describe(blocks, seen, inherited=(), constant=()):
        kept = []
        for block in blocks:
            first = next((axis for axis in block if axis in inherited), None)
            kept.append({a: d for a, d in block.items() if a == first or a not in inherited})
        return right(kept, seen, inherited, constant)

    return describe


WRONG = {"1a": hand_over_whole_blocks, "1b": forget_joint_places, "1c": forget_second_places}


def run_all(cases, near, effort):
    rng, seen = random.Random(1), Seen()
    for case in cases:
        run_twins(case, rng, seen, near, effort)
    return seen


def run_many(case, rounds=4):
    return run_all([case] * rounds, 0, (6, 300))


@pytest.mark.few(1)
@pytest.mark.parametrize("item", CLAIMS)
def test_costs_of_linked_members_of_issue_43_are_caught(item, monkeypatch):
    case = CLAIMS[item]()
    assert run_many(case, 1).total == 1
    right = exchange_moves.list_exchanges
    monkeypatch.setattr(costs, "list_exchanges", WRONG[item](right))
    monkeypatch.setattr(pipeline, "refuse_false_claim", lambda _: None)  # see test_guard
    with pytest.raises(Violation, match="times as far as stated"):
        run_many(case)


def test_units_of_issue_43_are_caught(monkeypatch):
    """Item 3: the number of units that change in anything was stated of their own features too."""
    leaves = ((("o",), ("r",)),)
    names, own = (("sex",),), (FLAT["sex"],)
    homes = Homes((("tenure",),), leaves, names, own, (), (), 1, 3, "unit")
    town = draw_town(random.Random(1), homes, 9)
    tables = [("sex",), ("units:tenure",)]
    options = {"mu": 1, "share": {"tables": 1, "units:tables": 1000}}
    case = build_town_case(homes, town, "ball", tables, options, "linked unit")
    assert run_many(case, 1).total == 1
    right = TownCase.run

    def run(case, town, seed, apart=0):
        outcome = right(case, town, seed, apart)
        units = outcome.document["a"]["units"]
        units["own"] = units["derived"]
        return outcome

    monkeypatch.setattr(TownCase, "run", run)
    with pytest.raises(Violation, match="times as far as stated"):
        run_many(case)


AGES_IN_BANDS = (("band", "y"), tuple((str(age // 5), str(age)) for age in range(10)))
STATISTICS_OF_AGES = {
    "sums": semidp.mean("y", by="sex", bounds=(0, 9), steps=9),
    "ranks": semidp.median("y", by="sex", bounds=(0, 9), steps=9, mechanism="selection"),
    "distributions": semidp.distribution("y", by="sex", bounds=(0, 9), steps=9),
    "regressions": semidp.regression("y", on="sex", bounds=(0, 9), steps=9),
}


@pytest.mark.parametrize("column", STATISTICS_OF_AGES)
def test_outcomes_with_exact_bands_of_issue_43_are_caught(column, monkeypatch):
    """Item 2: whoever hands over a band has another age afterwards."""
    names, leaves = zip(SEX, AGES_IN_BANDS, strict=True)
    world = World(names, leaves, (((0, 1),), ((1, 1),)))
    records = draw_records(random.Random(1), world, 14)
    request = STATISTICS_OF_AGES[column]
    texts = frozenset({"sex", "band", "y"})
    case = build_case(world, records, "exchange", [request], {"mu": 1}, (column,), texts)
    assert run_many(case, 1).total == 1
    monkeypatch.setattr(OutcomeSpace, "exact_moves", None)
    with pytest.raises(Violation, match="times as far as stated"):
        run_many(case)


@pytest.mark.parametrize("column", ["tables", "residuals", "sums", "distributions", "missing"])
@pytest.mark.parametrize("relation", ["ball", "exchange"])
def test_noise_that_is_too_small_by_a_fifth_is_caught(column, relation, monkeypatch):
    right = plans.Case.run

    def run(case, records, seed, apart=0):
        outcome = right(case, records, seed, apart)
        for key in ("tables", "products", "groups", "answers", "distributions"):
            for entry in (outcome.document or {}).get(key, ()):
                for each in (entry["noise"], *entry.get("residuals", ())):
                    if "sigma2" in each:
                        each["sigma2"] = str(Fraction(each["sigma2"]) * Fraction(16, 25))
                    if isinstance(each.get("scale"), str):
                        each["scale"] = str(Fraction(each["scale"]) * Fraction(4, 5))
        return outcome

    monkeypatch.setattr(plans.Case, "run", run)
    rng = random.Random(1)
    cases = [draw(rng, ("flat", column, relation)) for _ in range(20)]
    with pytest.raises(Violation, match="times as far as stated"):
        run_all(cases, near=0, effort=(4, 100))


def test_a_condition_that_looks_at_other_records_is_caught(monkeypatch):
    """Item 4: whether years are whole numbers was read from all records, those that are left out
    among them; a division was then another one.
    """
    right = semidp.release

    def release(data, *requests, where=None, **options):
        if where is not None:
            whole = all("." not in (years or "") for years in data["years"])
            kept = []
            for place, years in enumerate(data["years"]):
                decade = None if years is None else float(years) / 10
                if decade is not None and (decade // 1 if whole else decade) >= 4.1 - whole * 0.1:
                    kept.append(place)
            data = {name: [values[place] for place in kept] for name, values in data.items()}
        return right(data, *requests, **options)

    rng, cases = random.Random(1), []
    while len(cases) < 3:
        case = draw(rng, ("flat", "sums", "ball"))
        if "where" in case.options:
            cases.append(case)
    assert run_all(cases, near=10, effort=(1, 10)).counts["where"] > 20
    monkeypatch.setattr(semidp, "release", release)
    with pytest.raises(Violation, match="what is public differs"):
        run_all(cases, near=10, effort=(1, 10))


def test_noise_that_depends_on_the_data_is_caught(monkeypatch):
    right = semidp.release

    def release(data, *requests, **options):
        for name in ("mu", "rho", "epsilon"):
            if name in options:
                odd = sum(value > 2 for value in map(float, data["y"])) % 2
                options[name] = Fraction(options[name]) / (1 + odd)
        return right(data, *requests, **options)

    monkeypatch.setattr(semidp, "release", release)
    rng = random.Random(1)
    cases = [draw(rng, ("flat", "distributions", "ball")) for _ in range(10)]
    with pytest.raises(Violation, match="what is public differs"):
        run_all(cases, near=5, effort=(2, 20))

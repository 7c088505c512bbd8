"""What a release guarantees under other exact statistics, against brute force over all datasets
that agree with it.
"""

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp import Budget, Dataspace, Feature, Plan, Release, Schema, Table, run
from semidp.assess.adjacent_datasets import datasets, is_adjacent, list_neighbors
from semidp.cli import run as command
from semidp.errors import DataError, InputError, Refused
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency, Ball
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency, semi_adjacency_bound
from semidp.promise.spaces.structure import widest_space
from semidp.promise.tradeoff.budget import approximate, gaussian, zcdp
from semidp.promise.tradeoff.function import Order
from semidp.publish import GroupRequest, TableRequest
from semidp.publish.side_information import change

PEOPLE = {"sex": list("ffmm"), "ill": list("nyny"), "region": list("nsss")}
SEX, ILL, REGION = Feature("sex", "fm"), Feature("ill", "ny"), Feature("region", "ns")
RHO = Fraction(1, 2)


def released(names: list[str], invariants: list[Any], **options: Any) -> Release:
    request = TableRequest(
        names, options.pop("budget", Budget.zcdp(RHO)), options.pop("mechanism", "auto")
    )
    features = [SEX, ILL, REGION]
    return run(Plan([request], invariants, features=features, **options), PEOPLE)


def everybody(margins: list[Margin]) -> Dataspace:
    """Return the dataspace of the people, with the values that the margins have."""
    counts = np.zeros((2, 2, 2), dtype=np.int64)
    for person in zip(*PEOPLE.values(), strict=True):
        counts[
            tuple(
                feature.levels.index(level)
                for feature, level in zip((SEX, ILL, REGION), person, strict=True)
            )
        ] += 1
    return Dataspace.from_table(Table(Schema([SEX, ILL, REGION]), counts), margins)


def largest_square(space: Dataspace, adjacency: Adjacency, names: list[str]) -> int:
    """Return Δ2² of a table from its definition: all pairs of adjacent datasets."""
    axes = [space.schema.names.index(name) for name in names]

    def counts(dataset: Any) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for record in dataset:
            key = tuple(record[axis] for axis in axes)
            found[key] = found.get(key, 0) + 1
        return found

    # the order of records changes no count: one dataset of each table, and all its neighbours
    every = [(dataset, counts(dataset)) for dataset in datasets(space)]
    best = 0
    for mine in {tuple(sorted(dataset)) for dataset, _ in every}:
        found = counts(mine)
        near = None if adjacency.protects_groups else {*list_neighbors(adjacency, mine, space)}
        for dataset, other in every:
            square = sum((found.get(key, 0) - other.get(key, 0)) ** 2 for key in {*found, *other})
            if square > best and (
                dataset in near if near is not None else is_adjacent(adjacency, mine, dataset)
            ):
                best = square
    return best


CASES = [
    (["sex", "ill"], ["sex"], ["sex", "ill"]),
    (["sex", "ill"], ["sex"], ["sex", "region"]),
    (["sex", "ill"], ["sex", "ill"], ["sex"]),
    (["ill"], [], ["region"]),
    (["ill"], [], ["ill"]),
    (["sex", "ill"], ["sex"], [["sex", "region"]]),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("table", "own", "others"), CASES)
@pytest.mark.parametrize("kind", ["worst-case", "exchange"])
def test_the_number_is_that_of_the_worst_pair(
    table: list[str], own: list[Any], others: list[Any], kind: str
) -> None:
    release = released(table, own)
    # the σ² that was drawn with
    square = Fraction(release.mechanisms[0].space.l2_squared) / (2 * RHO)
    public = everybody([Margin.from_names(margin) for margin in others])
    found = release.under(public, kind)
    truth = largest_square(public, found.adjacency, table)
    assert found.dataspace == public
    assert found.tradeoff.implied_rho() == Fraction(truth) / (2 * square)
    known = everybody([Margin.from_names(margin) for margin in own])
    # values that nobody gave may be any: never less than for these
    by_name = release.under(others, kind, known)
    rho, at_least = by_name.tradeoff.implied_rho(), found.tradeoff.implied_rho()
    assert rho is not None
    assert at_least is not None
    assert rho >= at_least


def test_a_guarantee_gets_stronger_and_another_one_weaker() -> None:
    both = released(["sex", "ill"], ["sex"])
    swaps = both.under(["sex", "ill"])  # two records that swap: Δ2² 8 → 4
    assert (both.guarantee.tradeoff.implied_rho(), swaps.tradeoff.implied_rho()) == (RHO, RHO / 2)
    assert (both.guarantee.adjacency.a, swaps.adjacency.a) == (2, 3)
    alone = released(["ill"], [])
    regions = alone.under(everybody([Margin("region")]))  # two records instead of one: Δ2² 2 → 8
    assert regions.tradeoff.implied_rho() == 4 * RHO
    assert regions.adjacency.a == 2
    assert regions.tradeoff.compare(alone.guarantee.tradeoff) is Order.WEAKER
    # the old number would claim too much: some adjacent pair lies four times as far apart as it
    # allows
    assert largest_square(everybody([Margin("region")]), Ball(2), ["ill"]) == 8


def test_what_everything_fixes_is_published_exactly() -> None:
    release = released(["sex", "ill"], ["sex"])
    found = release.under([["sex", "ill"]])
    assert found.tradeoff.is_trivial
    assert "published exactly" in str(found.explain())


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "margins",
    [
        [("a",), ("b",)],
        [("a", "b"), ("b", "c")],
        [("a", "b"), ("c",)],
        [("a", "b"), ("b", "c"), ("a", "c")],
    ],
)
def test_the_widest_values_bound_all_others(margins: list[tuple[str, ...]]) -> None:
    schema = Schema([Feature(name, "01") for name in "abc"])
    wanted = [Margin(*names) for names in margins]
    nothing = Dataspace.from_totals(schema, {}, 3)
    a = min(semi_adjacency_bound(schema, wanted).bound, 3)
    widest = sensitivity_space(widest_space(schema, wanted, nothing, a), Ball(a), ["a", "b"])
    seen = [0, 0, 0]
    for cells in itertools.combinations_with_replacement(range(8), 3):
        counts = np.bincount(cells, minlength=8).reshape(2, 2, 2)
        space = Dataspace.from_table(Table(schema, counts), wanted)
        assert semi_adjacency(space).bound <= a
        try:
            norms = sensitivity_space(space, Ball(a), ["a", "b"]).norms
        except Refused:  # nothing can change at this a, and the totals do not fix it
            continue
        seen = [
            max(pair) for pair in zip(seen, (norms.l1, norms.l2_squared, norms.linf), strict=True)
        ]
        assert norms.l1 <= widest.l1
        assert norms.l2_squared <= widest.l2_squared
        assert norms.linf <= widest.linf
    if widest.exact and len(margins) < 3 and not widest.is_zero:
        # some values attain it, so that nothing smaller would do
        assert seen[1] == widest.l2_squared


def test_levels_that_nobody_has_stay_empty() -> None:
    schema = Schema([Feature("sex", "fmx"), REGION])
    known = Dataspace.from_totals(
        schema, {Margin("sex"): Table(schema.restrict(["sex"]), [4, 0, 0])}
    )
    wide = widest_space(schema, [Margin("sex"), Margin("region")], known, 3)
    assert [total.counts.tolist() for total in wide.totals] == [[6, 0, 0], [3, 3]]
    joint = widest_space(schema, [Margin("sex", "region")], known, 3)
    assert joint.totals[0].counts.tolist() == [[3, 3], [0, 0], [0, 0]]


def test_noise_with_zero_margins_needs_them(tmp_path: Path) -> None:
    release = released(["sex", "ill"], ["sex"], mechanism="l2", budget=Budget.pure(1))
    assert release.under(["sex", "ill"]).tradeoff.implied_epsilon() is not None
    with pytest.raises(Refused, match="name all that the release publishes"):
        release.under([])


def test_k_norm_noise_keeps_its_number_for_fewer_pairs() -> None:
    release = released(["sex", "ill"], ["sex", "ill"], mechanism="knorm", budget=Budget.pure(1))
    assert release.scope.adjacency.a == 2
    # safe: no better one is known for K-norms
    assert release.under([["sex", "ill"]]).tradeoff.implied_epsilon() == 1
    known, more = everybody([Margin("sex"), Margin("ill")]), [["sex", "region"], "ill"]
    assert release.under(more, 2, known).tradeoff.implied_epsilon() == 1
    with pytest.raises(Refused, match="cannot be accounted for under further exact totals"):
        release.under(more, 3, known)


def test_sums_by_group() -> None:
    request = GroupRequest("mean", Outcome("score", 0, 1, steps=10), [["sex"]], Budget.zcdp(RHO))
    data = {**PEOPLE, "score": [0.1, 0.5, 1.0, 0.0]}
    release = run(Plan([request], invariants=["sex"], features=[SEX]), data)
    assert release.guarantee.adjacency.a == 2
    known = Dataspace.from_totals(
        Schema([SEX, REGION]),
        {Margin(f.name): Table(Schema([f]), c) for f, c in ((SEX, [2, 2]), (REGION, [1, 3]))},
    )
    found = release.under(known)
    assert found.adjacency.a == 3
    assert found.tradeoff.implied_rho() == RHO * Fraction(
        5, 4
    )  # three records, two of them in a group of two: 4 → 2² + 1²
    with pytest.raises(Refused, match="not published"):
        release.under([])


def test_statistics_about_other_records_are_refused() -> None:
    release = released(["sex", "ill"], ["sex"])
    with pytest.raises(InputError, match="only described"):
        release.under(Dataspace.from_description("state totals"))
    with pytest.raises(InputError, match="feature 'ill'"):
        release.under(Dataspace.from_totals(Schema([SEX]), {}, 4))
    schema = Schema([SEX, ILL])
    with pytest.raises(DataError, match="another number of records"):
        release.under(Dataspace.from_totals(schema, {}, 5))
    with pytest.raises(DataError, match="contradict"):
        release.under(Dataspace.from_totals(schema, {Margin("sex"): Table(Schema([SEX]), [3, 1])}))
    with pytest.raises(InputError, match="literal reading"):
        release.under(["sex", "ill"], "definition")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "release"
    released(["sex", "ill"], ["sex"]).save(place)
    return place


def test_the_command_says_both_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["guarantee", str(folder), "--also-known", "ill"]) == 0
    said = capsys.readouterr().out
    assert "0.5-zCDP" in said
    assert "0.25-zCDP" in said
    assert "gets stronger" in said
    (folder.parent / "regions.csv").write_text("region,count\nn,1\ns,3\n")
    totals = ["--totals", str(folder.parent / "regions.csv")]
    assert command(["guarantee", str(folder), *totals, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["change"] == "weaker"
    assert (document["as_released"]["rho"], document["under"]["rho"]) == (0.5, 0.625)
    assert document["under"]["adjacency"] == {"kind": "ball", "a": 3}
    assert command(["guarantee", str(folder), "--without", "sex"]) == 0
    shown = capsys.readouterr()
    assert "0.125-zCDP" in shown.out
    assert "noisy values alone" in shown.err
    assert command(["guarantee", str(folder), "--also-known", "ill", "--a", "2"]) == 0
    assert "lies below 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--also-known", "age"], "no feature 'age'"),
        (["--without", "ill"], "names no margin of the release"),
        (["--rho", "1"], "states its own guarantee"),
    ],
)
def test_bad_questions_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert command(["guarantee", str(folder), *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_also_known_is_about_a_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["guarantee", "--rho", "1", "--also-known", "sex"]) == 2
    assert "give its folder" in capsys.readouterr().err


def test_the_report_lists_what_an_attacker_may_also_know() -> None:
    page = released(["sex", "ill"], ["sex"]).report_html()
    assert "If an attacker also knew …" in page
    assert "0.25-zCDP" in page
    everything = run(
        Plan([TableRequest(["sex"], Budget.gdp(1))], ["sex"]), {"sex": ["f", "m"]}
    ).report_html()
    assert "also knew" not in everything


def test_a_product_computed_anew_is_not_called_stronger_for_its_rounding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """σ² is rounded up, so that μ² computed anew is 0.99999997 of the budget: printed alike, and
    said to be alike.
    """
    rng = np.random.default_rng(1)
    levels = {"sex": "fm", "age": "abc", "region": "nswe"}
    people = {
        name: [str(each) for each in rng.choice([*given], size=400)]
        for name, given in levels.items()
    }
    tables = [TableRequest(["sex", "age"]), TableRequest(["age", "region"])]
    features = [Feature(name, given) for name, given in levels.items()]
    plan = Plan(tables, ["sex"], features=features).with_budget(Budget.gdp(1))
    release = run(plan, people)
    anew = release.under(["sex"]).tradeoff
    assert anew.compare(release.guarantee.tradeoff) is Order.STRONGER, (
        "the curves themselves are told apart"
    )
    release.save(tmp_path / "release")
    place = str(tmp_path / "release")
    assert command(["guarantee", place]) == 0
    said = capsys.readouterr().out
    assert "stays as strong. The noise is the same, and so are the datasets" in said
    assert command(["guarantee", place, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["change"] == "equal"
    assert command(["guarantee", place, "--a", "3"]) == 0
    assert "gets weaker. The noise is the same, but the datasets" in capsys.readouterr().out
    assert command(["guarantee", place, "--a", "1"]) == 0
    assert "gets stronger" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("share", "said"),
    [("99999997/100000000", "EQUAL"), ("99999/100000", "EQUAL"), ("0.999", "STRONGER")],
)
def test_numbers_that_are_printed_alike_are_called_as_strong(share: str, said: str) -> None:
    delta = Fraction(1, 10**9)
    for of in (gaussian, zcdp, approximate):
        now, before = of(Fraction(share)), of(Fraction(1))
        assert now.compare(before) is Order.STRONGER
        assert change(now, before, delta).name == said
        assert change(before, now, delta).name == {"STRONGER": "WEAKER"}.get(said, said)

"""A promise about whole units states how many members and units it covers, wherever it is stated;
files, ledgers and combinations compare all of these numbers.
"""

import html
import json
import re
import shlex
from fractions import Fraction

import pytest

from semidp import Budget, Ledger, combine
from semidp.assess.adjacent_datasets import is_adjacent
from semidp.cli import run
from semidp.errors import InputError, Refused
from semidp.promise.guarantee import Guarantee
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.linked import linked_adjacency
from semidp.promise.spaces.protection import ChangedUnits, Protection
from tests.linked.test_command import files  # noqa: F401
from tests.linked.test_release import plan_of, released

ASKED = (
    "release persons.csv --units homes.csv --link home --protect unit --most-members 6 --table sex,tenure"
    " --table units:state,size,tenure --exact units:state --levels sex=f,m --levels"
    " tenure=own,rent --mu 1"
)
# m = 6, least 1, one exact total of units, none of members
NUMBERS = {"own": 2, "size": 7, "derived": 8}
SHORT = "at most 7 of these homes in their own features or size, 2 in their own features"
LONG = (
    "at most 12 members and 8 homes, at most 7 of these homes in their own features or their size,"
    " and at most 2 in their own features"
)


def said(words, capsys):
    code = run(shlex.split(words))
    printed = capsys.readouterr()
    assert code in (0, 3), printed.err  # an audit of few samples is inconclusive
    return printed.out


def plain_text(path):
    page = re.sub(r"<[^>]+>", " ", path.read_text())
    return re.sub(r"\s+", " ", html.unescape(page))


@pytest.mark.few(1)
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_every_place_that_states_the_promise_states_its_numbers(files, capsys, adjacency):  # noqa: F811
    said("ledger book.json --mu 9", capsys)
    asked = f"{ASKED} --adjacency {adjacency}"
    places = {
        "dry run": said(f"{asked} --dry-run", capsys),
        "release": said(f"{asked} --out made --ledger book.json", capsys),
        "show": said("show made", capsys),
        "ledger": said("ledger book.json", capsys),
        "guarantee": said("guarantee made", capsys),
    }
    assert said(f"{asked} --out again", capsys)
    places["combine"] = said("combine made again --out both", capsys)
    for place, text in places.items():
        assert "12 members and 8 homes" in text, place
        assert SHORT in text, place
    assert LONG in re.sub(r"\s+", " ", places["guarantee"]).replace(" in all", "")
    for folder in ("made", "both"):
        report = plain_text(files / folder / "report.html").replace(" in all", "")
        assert LONG in report
        assert "at most 7 may differ in their own features or their size, and at most 2" in report
        assert SHORT in report
    document = json.loads((files / "made" / "release.json").read_text())
    assert document["a"]["units"] == NUMBERS
    counted = json.loads(said("ledger book.json --format json", capsys))
    assert counted["adjacency"]["units"] == NUMBERS
    assert counted["charges"][0]["adjacency"]["units"] == NUMBERS
    rehearsed = json.loads(said(f"{asked} --dry-run --format json", capsys))
    assert rehearsed["a"]["units"] == NUMBERS


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_an_audit_states_which_pairs_it_attacks(files, capsys, adjacency):  # noqa: F811
    said(f"{ASKED} --adjacency {adjacency} --out made", capsys)
    text = said("audit made --samples 1000 --seed 1", capsys)
    (pairs,) = [line for line in text.splitlines() if line.startswith("pairs")]
    assert "12 members and 8 homes" in pairs
    assert SHORT in pairs


def test_another_number_of_units_is_another_promise(files, capsys):  # noqa: F811
    """A forged number is found, and so is one that was left out."""
    said(f"{ASKED} --out made", capsys)
    stated = json.loads((files / "made" / "release.json").read_text())
    for key, number in (("own", 3), ("size", 8), ("derived", 300), ("own", 1)):
        forged = {**stated, "a": {**stated["a"], "units": {**NUMBERS, key: number}}}
        (files / "made" / "release.json").write_text(json.dumps(forged))
        assert run(["show", "made"]) == 2
        assert "for no other number of members or units" in capsys.readouterr().err
    for units in ({"own": 3, "size": 2, "derived": 8}, {"own": 2}, {**NUMBERS, "own": True}):
        forged = {**stated, "a": {**stated["a"], "units": units}}
        (files / "made" / "release.json").write_text(json.dumps(forged))
        assert run(["show", "made"]) == 2
    without = {key: value for key, value in stated["a"].items() if key != "units"}
    (files / "made" / "release.json").write_text(json.dumps({**stated, "a": without}))
    assert run(["show", "made"]) == 2
    capsys.readouterr()


HOMES = Protection("home", 3, "members")
NUMBERS_OF = {"fewer": ChangedUnits(1, 3, 4), "more": ChangedUnits(2, 4, 5)}


@pytest.mark.parametrize("relation", [Ball, Exchange])
def test_promises_compare_by_all_their_numbers(relation):
    public = released(plan_of([["zone", "sex"], ["units:zone", "size"]], protect="unit"))
    space, curve = public.scope.dataspace, public.guarantee.tradeoff

    def promise(a, units):
        return Guarantee(space, relation(a, HOMES, units), curve)

    fewer, more = promise(6, NUMBERS_OF["fewer"]), promise(6, NUMBERS_OF["more"])
    assert more.covers(fewer)
    assert not fewer.covers(more)
    assert fewer < more
    assert fewer != more
    # one number that is larger is enough
    for units in (ChangedUnits(2, 3, 4), ChangedUnits(1, 4, 4), ChangedUnits(1, 3, 5)):
        assert promise(6, units).covers(fewer)
        assert not fewer.covers(promise(6, units))
    # without numbers of units nothing is known of them, in either direction
    silent = promise(6, None)
    assert not silent.covers(more)
    assert not more.covers(silent)
    for guarantee in (fewer, more):
        adjacency = guarantee.adjacency
        assert Adjacency.from_json(adjacency.to_json()) == adjacency
        assert str(adjacency.units.own) in str(adjacency)
    with pytest.raises(Refused, match="do not compose"):
        fewer.compose(more)


def test_linked_exchanges_do_not_become_any_records():
    for protect in ("unit", "member"):
        release = released(
            plan_of(
                [["zone", "sex"], ["units:zone", "size"]], protect=protect, adjacency="exchange"
            )
        )
        with pytest.raises(Refused, match="do not join all datasets"):
            release.guarantee.for_any_records(2)
        other = release.other_adjacency_guarantee
        assert other.adjacency == linked_adjacency(release.scope.dataspace, "ball")


def test_records_alone_do_not_say_which_units_differ():
    with pytest.raises(InputError, match="which units differ"):
        is_adjacent(Ball(2, HOMES, NUMBERS_OF["more"]), [("f",)], [("m",)])


@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_releases_are_combined_under_the_numbers_of_all_totals(adjacency):
    """Each total alone gives smaller numbers than both together, and less is spent under them."""
    tables = [["tenure", "sex"], ["units:tenure", "size"]]
    options = {"protect": "unit", "adjacency": adjacency}
    by_tenure = released(plan_of(tables, ["units:tenure"], **options), seed=1)
    by_sex = released(plan_of(tables, ["sex"], **options), seed=2)
    both = combine(by_tenure, by_sex)
    most = by_tenure.scope.dataspace.link.most
    least = by_tenure.scope.dataspace.link.least
    numbers = []
    for release in (by_tenure, by_sex, both):
        promise = release.guarantee.adjacency
        numbers.append((promise.a, promise.units.own, promise.units.size, promise.units.derived))
    sizes = most - least
    assert numbers == [
        (2 * most, 2, 2 + sizes, 2 + most),
        (2 * most, 1, 1 + sizes, 1 + 2 * most),
        (3 * most, 2, 2 + sizes, 2 + 2 * most),
    ]
    spent = both.guarantee.tradeoff.implied_rho()
    alone = [release.guarantee.tradeoff.implied_rho() for release in (by_tenure, by_sex)]
    assert spent > sum(alone, Fraction(0))


def test_a_ledger_adds_up_one_promise_and_refuses_others(tmp_path):
    tables = [["tenure", "sex"], ["units:tenure", "size"]]
    first = released(plan_of(tables, ["units:tenure"], protect="unit"), seed=1)
    second = released(plan_of(tables, ["sex"], protect="unit"), seed=2)

    def charge(release):
        records = [part.record() for part in release.mechanisms]
        book.charge(release.guarantee, "linked", records)

    book = Ledger.create(tmp_path / "book.json", Budget.zcdp(9))
    charge(first)
    assert book.account().charges[0].adjacency == first.guarantee.adjacency
    charge(first)
    account = book.account()
    assert account.adjacency == first.guarantee.adjacency
    assert book.total().tradeoff.implied_rho() == 2
    # a release with other bounds publishes other totals: it is refused, not added
    with pytest.raises(Refused, match="use another ledger"):
        charge(second)

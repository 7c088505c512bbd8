"""A ledger under further exact statistics: charges are computed anew under the union, by appending,
in any order.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp
from semidp import Budget, Feature, Schema, Table
from semidp.assess.adjacent_datasets import ListedExchanges, datasets, is_adjacent
from semidp.cli import run as command
from semidp.errors import BudgetExceeded, InputError, Refused
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.additive import DiscreteGaussianMechanism, LaplaceMechanism
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import approximate, zcdp

SCHEMA = Schema([Feature("sex", "fm"), Feature("ill", "ny"), Feature("region", "ns")])
PEOPLE = [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)]
COUNTS = np.zeros((2, 2, 2), dtype=np.int64)
for person in PEOPLE:
    COUNTS[person] += 1
TABLE = Table(SCHEMA, COUNTS)


def mechanism(
    table: list[str], margins: list[Any], rho: str, schema: Schema = SCHEMA
) -> DiscreteGaussianMechanism:
    """Return a mechanism calibrated where the margins are exact, at a(t)."""
    space = Dataspace.from_table(
        TABLE.margin(schema.names), [Margin.from_names(margin) for margin in margins]
    )
    adjacency = Ball(semi_adjacency(space).bound)
    return DiscreteGaussianMechanism.calibrate(
        sensitivity_space(space, adjacency, table), Budget.zcdp(rho)
    )


def charge(book: Ledger, made: Mechanism, label: str = "a table") -> None:
    book.charge(made.guarantee, label, [made.record()])


def total_rho(book: Ledger) -> Fraction:
    total = book.total()
    assert total is not None
    rho = total.tradeoff.implied_rho()
    assert rho is not None
    return rho


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.json"


def test_by_hand(path: Path) -> None:
    """Δ2² = 8 under {sex} becomes 4 under {sex, ill}: ρ = 1/2 becomes 1/4, and the second release
    adds its own.
    """
    book = Ledger.create(path, Budget.zcdp("0.6"))
    charge(book, mechanism(["sex", "ill"], ["sex"], "1/2"), "first")
    before = json.loads(path.read_text())
    charge(book, mechanism(["sex", "ill"], ["sex", "ill"], "1/3"), "second")
    assert total_rho(book) == Fraction(1, 4) + Fraction(1, 3)
    total = book.total()
    assert total is not None
    assert (total.dataspace.summary(), total.adjacency) == ("sex, ill", Ball(2))
    first, second = book.account().charges
    assert (first.tradeoff, first.spent, second.spent) == (zcdp("1/2"), zcdp("1/4"), zcdp("1/3"))
    after = json.loads(path.read_text())
    assert after["charges"][:1] == before["charges"], "what was charged stays as it was written"
    assert after["charges"][1]["rebased"] == [zcdp("1/4").to_json()]
    with pytest.raises(BudgetExceeded):  # 0.25 + 0.333 + 0.02 is above 0.6
        charge(book, mechanism(["sex", "ill"], ["sex", "ill"], "0.02"))


RELEASES = [
    (["sex", "ill"], ["sex"], "1/2"),
    (["ill", "region"], ["region"], "1/3"),
    (["ill"], [], "1/5"),
    (["sex", "ill", "region"], [["sex", "region"]], "1/7"),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_the_order_of_releases_does_not_change_the_sum(path: Path, order: tuple[int, ...]) -> None:
    book = Ledger.create(path, Budget.zcdp(100))
    made = [mechanism(*RELEASES[number]) for number in order]
    for one in made:
        charge(book, one)
    union = Dataspace.from_table(TABLE, [Margin("sex", "region")])
    adjacency = Ball(semi_adjacency(union).bound)
    by_hand = [
        mechanism_from_record(one.record(), union, adjacency).tradeoff.implied_rho() for one in made
    ]
    assert total_rho(book) == sum(rho for rho in by_hand if rho is not None)
    total = book.total()
    assert total is not None
    assert total.dataspace == union
    assert total.adjacency == adjacency
    assert Ledger(path).account().semi_first() == book.account().semi_first()


@pytest.mark.parametrize("numbers", [(2, 5), (5, 2), (3, 5), (5, 3), (5, 5)])
def test_a_larger_promise_than_needed_is_kept_where_every_release_makes_it(
    path: Path, numbers: tuple[int, int]
) -> None:
    """Releases for any 5 records stay a promise for 5; where one protects fewer, it is for those,
    in either order.
    """
    book = Ledger.create(path, Budget.zcdp(100))
    for a, margins in zip(numbers, (["sex"], ["sex", "region"]), strict=True):
        space = Dataspace.from_table(TABLE, [Margin(name) for name in margins])
        charge(
            book,
            DiscreteGaussianMechanism.calibrate(
                sensitivity_space(space, Ball(a)), Budget.zcdp("1/2")
            ),
        )
    total = book.total()
    assert total is not None
    assert total.adjacency == Ball(max(min(numbers), 3))  # a(t) of the union is 3
    assert total_rho(book) == by_hand(book)


def test_the_same_statistics_and_other_numbers_of_records(path: Path) -> None:
    sums = []
    for number, order in enumerate(((3, 5), (5, 3))):
        book = Ledger.create(path.with_name(f"{number}.json"), Budget.zcdp(100))
        space = Dataspace.from_table(TABLE, [Margin("sex"), Margin("region")])
        for a in order:
            kind = DiscreteGaussianMechanism.calibrate(
                sensitivity_space(space, Ball(a)), Budget.zcdp("1/2")
            )
            charge(book, kind)
        total = book.total()
        assert total is not None
        assert total.adjacency == Ball(3)
        sums.append(total_rho(book))
    assert sums[0] == sums[1]


def test_features_of_all_releases_are_those_of_the_union(path: Path) -> None:
    """Two releases that share no feature: the records have both, and further statistics make
    records move together.
    """
    sums = []
    for number, order in enumerate(itertools.permutations([("ill", []), ("region", ["region"])])):
        book = Ledger.create(path.with_name(f"{number}.json"), Budget.zcdp(100))
        for name, margins in order:
            table = [name] if not margins else ["sex", name]
            charge(book, mechanism(table, margins, "1/2", SCHEMA.restrict(table)))
        total = book.total()
        assert total is not None
        assert total.adjacency == Ball(2)
        sums.append(total_rho(book))
    # one record alone became two: Δ2² 2 → 8
    assert sums == [Fraction(1, 2) * 4 + Fraction(1, 2)] * 2


def test_the_sum_covers_the_worst_pair_of_the_union(path: Path) -> None:
    """Brute force: no two adjacent datasets of the union are further apart, over both measurements,
    than the sum.
    """
    made = [mechanism(*RELEASES[0]), mechanism(*RELEASES[1])]
    book = Ledger.create(path, Budget.zcdp(100))
    for one in made:
        charge(book, one)
    total = book.total()
    assert total is not None
    union, adjacency = total.dataspace, total.adjacency
    names = union.schema.names

    def counts(dataset: Any) -> list[np.ndarray]:
        found = []
        for axes in (
            (names.index("sex"), names.index("ill")),
            (names.index("ill"), names.index("region")),
        ):
            table = np.zeros((2, 2))
            for record in dataset:
                table[
                    tuple(union.schema.features[axis].levels.index(record[axis]) for axis in axes)
                ] += 1  # type: ignore[union-attr]
            found.append(table)
        return found

    every = [(dataset, counts(dataset)) for dataset in datasets(union)]
    worst = 0.0
    for mine in {tuple(sorted(dataset)) for dataset, _ in every}:
        here = counts(mine)
        for dataset, there in every:
            squares = [((x - y) ** 2).sum() for x, y in zip(here, there, strict=True)]
            loss = sum(
                square / (2 * float(one.sigma2)) for square, one in zip(squares, made, strict=True)
            )
            if loss > worst and is_adjacent(adjacency, mine, dataset):
                worst = loss
    assert worst <= float(total_rho(book)) + 1e-12
    assert worst > 0.5 * float(total_rho(book)), (
        "the sum is not far from it: half of it would be wrong"
    )


def test_a_union_that_costs_too_much_is_refused_and_changes_nothing(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    charge(book, mechanism(["ill"], [], "1/2"))
    before = path.read_bytes()
    # 1/2 becomes 2: two records move together
    with pytest.raises(BudgetExceeded, match="nothing was released"):
        charge(book, mechanism(["ill", "region"], ["region"], "1/100"))
    assert path.read_bytes() == before


def test_what_cannot_be_recomputed_blocks_with_a_sentence(path: Path) -> None:
    sexes = Dataspace.from_table(TABLE, [Margin("sex")])
    both = mechanism(["sex", "ill"], ["sex", "region"], "1/10")
    knorm = KNormMechanism.calibrate(
        sensitivity_space(sexes, Ball(2), ["sex", "ill"]), Budget.pure(1)
    )
    for number, (old, why) in enumerate(
        [
            ((Guarantee(sexes, Ball(2), zcdp("1/10")), ()), "its query was not recorded"),
            (
                (knorm.guarantee, (knorm.record(),)),
                "cannot be accounted for under further exact totals",
            ),
            ((knorm.guarantee, ({**knorm.record(), "query": None},)), "its query was not recorded"),
        ]
    ):
        book = Ledger.create(path.with_name(f"{number}.json"), Budget.approximate(50, "1e-6"))
        book.charge(old[0], "the first", old[1])
        with pytest.raises(Refused, match=rf"charge 1 \('the first'\) does not add up .*: .*{why}"):
            charge(book, both)
        assert len(book.account().charges) == 1


def test_a_foreign_charge_for_all_of_these_pairs_stays_as_it_is(path: Path) -> None:
    """Any three records with the sexes exact include any three with the regions exact besides."""
    book = Ledger.create(path, Budget.zcdp(10))
    book.charge(
        Guarantee(Dataspace.from_table(TABLE, [Margin("sex")]), Ball(3), zcdp("1/10")), "foreign"
    )
    charge(book, mechanism(["sex", "ill"], ["sex", "region"], "1/5"))
    assert total_rho(book) == Fraction(3, 10)
    ordinary = Guarantee(Dataspace.from_table(TABLE, []), Ball(1), zcdp("1/100"))
    book.charge(ordinary, "ordinary")  # nothing is known but the group: 3² times
    assert total_rho(book) == Fraction(3, 10) + Fraction(9, 100)


def test_other_laws_are_recomputed_too(path: Path) -> None:
    sexes = Dataspace.from_table(TABLE, [Margin("sex")])
    laplace = LaplaceMechanism.calibrate(
        sensitivity_space(sexes, Ball(2), ["sex", "ill"]), Budget.pure(1)
    )
    book = Ledger.create(path, Budget.pure(10))
    charge(book, laplace)
    book.charge(
        Guarantee(Dataspace.from_table(TABLE, [Margin("sex", "ill")]), Ball(2), approximate("1/3")),
        "foreign",
    )
    total = book.total()
    assert total is not None
    # the joint counts fix the first table
    assert total.tradeoff.implied_epsilon() == Fraction(1, 3)


def test_values_that_contradict_are_other_data(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(10))
    charge(book, mechanism(["sex", "ill"], ["sex"], "1/10"))
    other = Table(SCHEMA, [[[2, 0], [1, 0]], [[1, 0], [0, 0]]])
    for space in (
        Dataspace.from_table(other, [Margin("sex"), Margin("ill")]),
        Dataspace.from_table(other, [Margin("sex", "ill")]),
        Dataspace.from_table(Table(SCHEMA, COUNTS * 2), [Margin("ill")]),
    ):
        with pytest.raises(Refused, match="use another ledger"):
            book.charge(Guarantee(space, Ball(3), zcdp("1/10")), "elsewhere")


def test_changed_curves_show(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    charge(book, mechanism(["sex", "ill"], ["sex"], "1/2"))
    charge(book, mechanism(["sex", "ill"], ["sex", "ill"], "1/3"))
    document = json.loads(path.read_text())
    document["charges"][1]["rebased"] = [zcdp("1/100").to_json()]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="charge 2 does not follow"):
        book.account()


CHARGER = """
import sys
from semidp.promise.accounting.ledger import Ledger
from tests.test_ledger_rebasing import RELEASES, charge, mechanism

book, mine = Ledger(sys.argv[1]), [mechanism(*RELEASES[int(number)][:2], "1/1000") for number in sys.argv[2]]
print("ready", flush=True)
sys.stdin.readline()
for turn in range(int(sys.argv[3])):
    charge(book, mine[turn % len(mine)], f"{sys.argv[2]} {turn}")
    print(turn + 1, flush=True)
"""


def charger(path: Path, releases: str, turns: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHARGER, str(path), releases, str(turns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    reported = len(process.stdout.read().split())
    process.wait(timeout=60)
    process.stdin.close()
    process.stdout.close()
    return reported


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def by_hand(book: Ledger) -> Fraction:
    """Return the sum of all charges of a ledger under what it holds exact now, each from its own
    record.
    """
    account = book.account()
    assert account.dataspace is not None
    assert account.adjacency is not None
    every = [
        mechanism_from_record(c.measured[0], account.dataspace, account.adjacency).tradeoff
        for c in account.charges
    ]
    return sum((curve.implied_rho() or Fraction(0) for curve in every), Fraction(0))


def test_two_processes_with_other_statistics_add_up(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(100))
    processes = [charger(path, "02", 6), charger(path, "13", 6)]
    for process in processes:
        go(process)
    assert [finish(process) for process in processes] == [6, 6]
    assert len(book.account().charges) == 12
    assert total_rho(book) == by_hand(book)


def test_a_kill_in_the_middle_leaves_a_whole_ledger(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(100))
    process = charger(path, "0213", 10_000)
    go(process)
    assert process.stdout is not None
    reported = 0
    until = time.monotonic() + 0.3
    while time.monotonic() < until or reported < 5:
        reported += bool(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    reported += finish(process)
    assert reported <= len(book.account().charges) <= reported + 1
    assert total_rho(book) == by_hand(book)
    charge(book, mechanism(*RELEASES[1]), "after the kill")
    assert total_rho(book) == by_hand(book)


def test_releases_through_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "people.csv").write_text("sex,ill,region\n" + "f,n,n\nf,y,s\nm,n,s\nm,y,s\n" * 4)
    book = str(tmp_path / "book.json")
    assert command(["ledger", book, "--rho", "1", "--quiet"]) == 0
    words = ["--levels", "ill=n,y", "--ledger", book, "--quiet", str(tmp_path / "people.csv")]
    one = [
        "release",
        *words,
        "--table",
        "sex,ill",
        "--invariant",
        "sex",
        "--rho",
        "0.5",
        "--out",
        str(tmp_path / "one"),
    ]
    assert command(one) == 0
    more = [
        "--invariant",
        "sex",
        "--invariant",
        "ill",
        "--rho",
        "0.25",
        "--out",
        str(tmp_path / "two"),
    ]
    assert command(["release", *words, "--table", "sex,ill", *more]) == 0
    capsys.readouterr()
    assert command(["ledger", book]) == 0
    said = capsys.readouterr().out
    assert "exact      sex, ill" in said
    assert "spent      0.5-zCDP" in said
    assert "0.25-zCDP, as charged 0.5-zCDP" in said
    assert command(["ledger", book, "--check", str(tmp_path / "one"), str(tmp_path / "two")]) == 0


# --- exchanges ------------------------------------------------------------------------------------


def exchange_mechanism(table: list[str], margins: list[str], rho: str) -> DiscreteGaussianMechanism:
    """Return a mechanism calibrated for exchanges where the margins are exact."""
    space = Dataspace.from_table(TABLE, [Margin(margin) for margin in margins])
    return DiscreteGaussianMechanism.calibrate(
        sensitivity_space(space, Exchange.from_dataspace(space), table), Budget.zcdp(rho)
    )


def test_exchanges_under_further_exact_statistics_are_those_of_the_union(path: Path) -> None:
    """The first charge is computed anew for exchanges of the union, and these are listed: none of
    them costs more.
    """
    book = Ledger.create(path, Budget.zcdp(3))
    first = exchange_mechanism(["sex", "ill", "region"], ["sex"], "1/2")
    charge(book, first, "first")
    charge(book, exchange_mechanism(["sex", "ill"], ["sex", "ill"], "1/3"), "second")
    total = book.total()
    assert total is not None
    assert total.adjacency == Exchange.from_dataspace(total.dataspace) == Exchange(3)
    spent = book.account().charges[0].spent.implied_rho()
    blocks, worst = ListedExchanges.from_dataspace(total.dataspace), 0
    position = {record: flat for flat, record in enumerate(np.ndindex(*SCHEMA.shape))}
    for dataset in itertools.islice(datasets(total.dataspace), 200):
        X = blocks.encode_records(dataset)
        for Y in blocks.neighbours(X):
            move = np.bincount([position[y] for y in Y], minlength=8) - np.bincount(
                [position[x] for x in X], minlength=8
            )
            worst = max(worst, int((move**2).sum()))
    assert spent == Fraction(worst, 2) / first.sigma2
    assert first.space.l2_squared < worst, "exchanges of more exact statistics move more records"


def test_an_exchange_charge_without_its_query_holds_for_its_own_exact_statistics_only(
    path: Path,
) -> None:
    book = Ledger.create(path, Budget.zcdp(3))
    first = exchange_mechanism(["sex", "ill"], ["sex"], "1/2")
    book.charge(first.guarantee, "no query")
    with pytest.raises(Refused, match="does not add up with the others"):
        charge(book, exchange_mechanism(["sex", "ill"], ["sex", "ill"], "1/3"))
    assert len(book.account().charges) == 1


def test_totals_of_one_ward_do_not_lower_the_charge_of_another(tmp_path: Path) -> None:
    """Two wards of four people each. Among the people of one, with the counts of a exact, two may
    change a table of a and b by 8; that b is exact in the other ward forbids none of it.
    """
    people = {"ward": [*"11112222"], "a": [*"xxyyxxyy"], "b": [*"pqpqpqpq"]}
    cells = list(itertools.product("xy", "pq"))
    fours = list(itertools.combinations_with_replacement(cells, 4))
    same_totals = [four for four in fours if sum(a == "x" for a, _ in four) == 2]
    moves = []
    for one, other in itertools.product(same_totals, repeat=2):
        differences = [one.count(cell) - other.count(cell) for cell in cells]
        if sum(map(abs, differences)) <= 2 * 2:
            moves.append(sum(difference**2 for difference in differences))
    settings: dict[str, Any] = {"levels": {"a": [*"xy"], "b": [*"pq"]}, "read_as": {"ward": "text"}}
    book = Ledger.create(tmp_path / "ledger.json", Budget.zcdp(9))
    settings |= {"ledger": book, "rho": 1}
    request = semidp.table("a", "b")
    done = semidp.release(people, request, where="ward = '1'", exact="a", **settings)
    assert max(moves) / (2 * float(done.results[0].noise.scale) ** 2) == total_rho(book) == 1
    for condition in ("ward = '2'", "ward <> '3'"):
        with pytest.raises(Refused, match="chosen by another condition"):
            semidp.release(people, request, where=condition, exact=["a", "b"], **settings)
    semidp.release(people, request, where="ward = '1'", exact="a", **settings)
    assert total_rho(book) == 2
    del settings["ledger"]
    other = semidp.release(people, request, where="ward = '2'", exact=["a", "b"], **settings)
    with pytest.raises(Refused, match="chose their records by different conditions"):
        semidp.combine(done, other)

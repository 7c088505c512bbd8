"""The ledger: sums in both orders, refusals, two processes at once, and a kill in the middle."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.accounting import fits
from semidp.accounting.ledger import Ledger
from semidp.errors import BudgetExceeded, InputError, Refused
from semidp.guarantees import Guarantee
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.spaces.listing import datasets
from semidp.tables import Feature, Schema, Table
from semidp.tradeoff import Budget, Order, Tradeoff, approximate, compose, gaussian, laplace, zcdp

SCHEMA = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
TABLE = Table(SCHEMA, [[1, 2, 3], [4, 5, 6]])
EVERYTHING = Dataspace.of(TABLE, [])
FIXED = Dataspace.of(TABLE, [Margin("sex"), Margin("region")])
STATES = Dataspace.described("state totals")


def semi(tradeoff: Tradeoff, a: int = 3) -> Guarantee:
    return Guarantee(FIXED, Adjacency(a), tradeoff)


def ordinary(tradeoff: Tradeoff) -> Guarantee:
    return Guarantee(EVERYTHING, Adjacency(1), tradeoff)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.json"


def test_charges_add_up_exactly(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    for number in range(1, 11):
        assert book.charge(semi(zcdp("0.1")), f"table {number}")["number"] == number
    total = book.total()
    assert total is not None
    assert total.tradeoff == zcdp(1)
    with pytest.raises(BudgetExceeded, match="nothing was released"):
        book.charge(semi(zcdp("1e-30")), "one too many")
    assert len(book.account().charges) == 10


def test_a_ledger_is_read_back_from_its_file(path: Path) -> None:
    Ledger.create(path, Budget.approximate(3, "1e-6")).charge(semi(gaussian("1/2")), "means")
    book = Ledger(path)
    assert book.account().budget == Budget.approximate(3, "1e-6")
    assert book.total() == semi(gaussian("1/2"))
    assert book.account().charges[0].label == "means"


def test_an_empty_ledger_has_no_total(path: Path) -> None:
    book = Ledger.create(path, Budget.pure(1))
    assert book.total() is None
    assert book.composition_first() is None


def test_another_dataspace_or_adjacency_is_refused(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(semi(zcdp("0.1")), "first")
    for other in (
        Guarantee(Dataspace.of(TABLE, [Margin("sex", "region")]), Adjacency(3), zcdp("0.1")),
        Guarantee(STATES, Adjacency(3), zcdp("0.1")),
        semi(zcdp("0.1"), a=2),
    ):
        with pytest.raises(Refused, match="under one dataspace only"):
            book.charge(other, "elsewhere")
    assert len(book.account().charges) == 1


def test_what_protects_more_pairs_is_accepted_as_it_is(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(semi(zcdp("0.1")), "first")
    book.charge(semi(zcdp("0.1"), a=5), "a larger a")
    book.charge(Guarantee(Dataspace.of(TABLE, [Margin("sex")]), Adjacency(3), zcdp("0.1")), "a larger space")
    total = book.total()
    assert total is not None
    assert total.tradeoff == zcdp("0.3")


def test_ordinary_guarantees_are_grouped_semi_dp_first(path: Path) -> None:
    book = Ledger.create(path, Budget.pure(10), FIXED, Adjacency(3))
    book.charge(ordinary(approximate("0.5")), "Laplace")
    book.charge(ordinary(approximate("0.25")), "Laplace again")
    book.charge(semi(approximate("0.5")), "calibrated under the invariant")
    used, shown = book.total(), book.composition_first()
    assert used is not None
    assert shown is not None
    assert used.tradeoff == compose(approximate("0.5").group(3), approximate("0.25").group(3), approximate("0.5"))
    assert used.tradeoff.implied_epsilon() == shown.tradeoff.implied_epsilon() == Fraction("2.75")
    assert shown.tradeoff.compare(used.tradeoff) in (Order.WEAKER, Order.EQUAL)
    assert shown.tradeoff.delta(1) > used.tradeoff.delta(1)


def test_each_kind_of_budget(path: Path) -> None:
    assert fits(gaussian(1), Budget.gdp(1))
    assert not fits(gaussian("1.0001"), Budget.gdp(1))
    assert fits(compose(gaussian("0.6"), approximate("0.5")), Budget.gdp(1))
    assert not fits(compose(gaussian("0.6"), approximate(2)), Budget.gdp(1))
    assert fits(approximate(1, "1e-6"), Budget.approximate(1, "1e-6"))
    assert fits(compose(approximate("0.5", "5e-7"), approximate("0.5", "5e-7")), Budget.approximate(1, "1e-6"))
    assert not fits(approximate(1, "1.1e-6"), Budget.approximate(1, "1e-6"))
    assert fits(zcdp("0.02"), Budget.approximate(1, "1e-6"))
    assert not fits(zcdp("0.1"), Budget.approximate(1, "1e-6"))
    assert fits(compose(*(approximate("0.1") for _ in range(10))), Budget.pure(1))
    assert fits(laplace(1), Budget.pure(1))
    assert fits(approximate(1), Budget.zcdp("0.5"))
    with pytest.raises(Refused, match="another kind of budget"):
        fits(approximate(1, "1e-6"), Budget.zcdp(1))


@given(st.lists(st.fractions(Fraction(1, 100), 1, max_denominator=100), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_what_fits_is_the_sum(rhos: list[Fraction]) -> None:
    total = compose(*map(zcdp, rhos))
    assert fits(total, Budget.zcdp(sum(rhos)))
    assert not fits(total, Budget.zcdp(sum(rhos) - Fraction(1, 10**9)))


def test_a_ledger_is_created_once(path: Path) -> None:
    with pytest.raises(InputError, match="create it once"):
        Ledger(path)
    Ledger.create(path, Budget.zcdp(1))
    with pytest.raises(InputError, match="never overwritten"):
        Ledger.create(path, Budget.zcdp(2))
    with pytest.raises(InputError, match="both a dataspace and an adjacency"):
        Ledger.create(path.with_name("other.json"), Budget.zcdp(1), FIXED)


def test_what_is_no_ledger_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("{}")
    with pytest.raises(InputError, match="does not hold a ledger"):
        Ledger(path).charge(semi(zcdp("0.1")), "first")
    assert path.read_text() == "{}"
    with pytest.raises(InputError, match="cannot lock"):
        Ledger.create(path.parent / "no such folder" / "ledger.json", Budget.zcdp(1))


def test_a_large_t_lives_beside_the_ledger(path: Path) -> None:
    schema = Schema([Feature("block", [str(i) for i in range(5000)])])
    space = Dataspace.of(Table(schema, [7] * 5000), [Margin("block")])
    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(Guarantee(space, Adjacency(2), zcdp("0.1")), "first")
    book.charge(Guarantee(space, Adjacency(2), zcdp("0.1")), "second")
    assert path.stat().st_size < 3000
    assert len(list(path.parent.glob("ledger.t-*.json"))) == 1


CHARGER = """
import sys
from pathlib import Path
from semidp.accounting.ledger import Ledger
from semidp.errors import BudgetExceeded
from semidp.guarantees import Guarantee
from semidp.spaces import Adjacency, Dataspace
from semidp.tradeoff import zcdp

book = Ledger(sys.argv[1])
guarantee = Guarantee(Dataspace.described("state totals"), Adjacency(2), zcdp("0.01"))
print("ready", flush=True)
sys.stdin.readline()
done = 0
try:
    while True:
        book.charge(guarantee, f"{sys.argv[2]} {done}")
        done += 1
        print(done, flush=True)
except BudgetExceeded:
    pass
"""


def charger(path: Path, name: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHARGER, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def start(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def counted(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    out = process.stdout.read()  # `communicate` would miss what `readline` has read ahead
    process.wait(timeout=60)
    process.stdin.close()
    process.stdout.close()
    return len(out.split())


def test_two_processes_at_once_never_overspend(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp("0.6"))
    processes = [charger(path, name) for name in ("one", "two")]
    for process in processes:
        start(process)
    done = [counted(process) for process in processes]
    charges = book.account().charges
    assert sum(done) == len(charges) == 60
    assert len({charge.label for charge in charges}) == 60
    total = book.total()
    assert total is not None
    assert total.tradeoff == zcdp("0.6")


def test_a_kill_in_the_middle_leaves_a_whole_ledger_and_no_lock(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1000))
    seen = 0
    for attempt in range(4):
        process = charger(path, f"run {attempt}")
        start(process)
        assert process.stdout is not None
        reported = 0
        until = time.monotonic() + 0.15 + 0.05 * attempt
        while time.monotonic() < until or not reported:
            reported += bool(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        reported += counted(process)
        recorded = len(book.account().charges) - seen
        assert reported <= recorded <= reported + 1, "what was acknowledged is on disk, and at most one more"
        seen += recorded
    assert seen > 0
    for scrap in path.parent.glob(".semidp-*"):
        os.utime(scrap, (time.time() - 86400,) * 2)
    book.charge(Guarantee(STATES, Adjacency(2), zcdp("0.01")), "after the kills")
    json.loads(path.read_text())
    assert not [file for file in path.parent.iterdir() if file.name.startswith(".semidp-")]


def test_other_features_of_the_same_records_are_joined(path: Path) -> None:
    """Two tables with the same public totals add up in one ledger; another total, or other levels, do not."""

    def public(name: str, levels: str = "ab", totals: tuple[int, int] = (6, 15)) -> Dataspace:
        schema = Schema((Feature("sex", ("f", "m")), Feature(name, tuple(levels))))
        return Dataspace.known(schema, {Margin("sex"): Table(schema.restrict(["sex"]), totals)})

    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(Guarantee(public("region"), Adjacency(2), zcdp("1/4")), "regions")
    book.charge(Guarantee(public("age"), Adjacency(2), zcdp("1/4")), "ages")
    total = book.total()
    assert total is not None
    assert total.tradeoff == zcdp("1/2")
    assert total.dataspace.schema is not None
    assert set(total.dataspace.schema.names) == {"sex", "region", "age"}
    for other in (public("job", totals=(7, 14)), public("region", levels="abc")):
        with pytest.raises(Refused):
            book.charge(Guarantee(other, Adjacency(2), zcdp("1/4")), "another")


def test_joining_is_sound_on_every_pair_of_a_small_space() -> None:
    """Records of the joined space lose features: the rest agrees with the totals, and is no further apart."""
    both = Schema((Feature("sex", ("f", "m")), Feature("region", ("a", "b")), Feature("age", ("c", "d"))))
    part = both.restrict(["sex", "region"])
    space = Dataspace.known(both, {Margin("sex"): Table(both.restrict(["sex"]), [1, 1])})
    alone = Dataspace.known(part, {Margin("sex"): Table(part.restrict(["sex"]), [1, 1])})
    listed = list(datasets(space))
    for one, other in itertools.product(listed, repeat=2):
        dropped = [tuple(record[:2] for record in dataset) for dataset in (one, other)]
        assert all(dataset in set(datasets(alone)) for dataset in dropped)
        assert sum(x != y for x, y in zip(*dropped, strict=True)) <= sum(
            x != y for x, y in zip(one, other, strict=True)
        )

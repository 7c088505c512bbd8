"""The ledger: sums in both orders, refusals, two processes at once, a kill in the middle, hashes
and what they show.
"""

import contextlib
import errno
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.assess.adjacent_datasets import datasets
from semidp.cli.release import explain_unclaimed
from semidp.errors import BudgetExceeded, InputError, Refused
from semidp.promise.accounting import ledger as ledger_module
from semidp.promise.accounting.account import find_disagreement, fits
from semidp.promise.accounting.ledger import Ledger, Session
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.files import hold_lock, replace_file
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    L2Mechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.moments import PublicDesign, moment_space
from semidp.promise.sensitivity.outcome_spaces import sum_space
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget, approximate, gaussian, laplace, zcdp
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.publish.statistics.regression.designs import Design

SCHEMA = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
TABLE = Table(SCHEMA, [[1, 2, 3], [4, 5, 6]])
EVERYTHING = Dataspace.from_table(TABLE, [])
FIXED = Dataspace.from_table(TABLE, [Margin("sex"), Margin("region")])
STATES = Dataspace.from_description("state totals")


def semi(tradeoff: Tradeoff, a: int = 3) -> Guarantee:
    return Guarantee(FIXED, Ball(a), tradeoff)


def ordinary(tradeoff: Tradeoff) -> Guarantee:
    return Guarantee(EVERYTHING, Ball(1), tradeoff)


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
    for other, sentence in (
        (
            Guarantee(STATES, Ball(3), zcdp("0.1")),
            "not about the same kind of records",
        ),
        (semi(zcdp("0.1"), a=2), "the new guarantee does not add up .* its query was not recorded"),
    ):
        with pytest.raises(Refused, match=sentence):
            book.charge(other, "elsewhere")
    assert len(book.account().charges) == 1


def test_what_protects_more_pairs_is_accepted_as_it_is(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(semi(zcdp("0.1")), "first")
    book.charge(semi(zcdp("0.1"), a=5), "a larger a")
    book.charge(
        Guarantee(Dataspace.from_table(TABLE, [Margin("sex")]), Ball(3), zcdp("0.1")),
        "a larger space",
    )
    total = book.total()
    assert total is not None
    assert total.tradeoff == zcdp("0.3")


def test_ordinary_guarantees_are_grouped_semi_dp_first(path: Path) -> None:
    book = Ledger.create(path, Budget.pure(10), FIXED, Ball(3))
    book.charge(ordinary(approximate("0.5")), "Laplace")
    book.charge(ordinary(approximate("0.25")), "Laplace again")
    book.charge(semi(approximate("0.5")), "calibrated under the invariant")
    used, shown = book.total(), book.composition_first()
    assert used is not None
    assert shown is not None
    assert used.tradeoff == compose(
        approximate("0.5").group(3), approximate("0.25").group(3), approximate("0.5")
    )
    assert used.tradeoff.implied_epsilon() == shown.tradeoff.implied_epsilon() == Fraction("2.75")
    assert shown.tradeoff.compare(used.tradeoff) in (Order.WEAKER, Order.EQUAL)
    assert shown.tradeoff.delta(1) > used.tradeoff.delta(1)


def test_each_kind_of_budget(path: Path) -> None:
    assert fits([gaussian(1)], Budget.gdp(1))
    assert not fits([gaussian("1.0001")], Budget.gdp(1))
    assert fits([compose(gaussian("0.6"), approximate("0.5"))], Budget.gdp(1))
    assert not fits([compose(gaussian("0.6"), approximate(2))], Budget.gdp(1))
    assert fits([approximate(1, "1e-6")], Budget.approximate(1, "1e-6"))
    assert fits(
        [compose(approximate("0.5", "5e-7"), approximate("0.5", "5e-7"))],
        Budget.approximate(1, "1e-6"),
    )
    assert not fits([approximate(1, "1.1e-6")], Budget.approximate(1, "1e-6"))
    assert fits([zcdp("0.02")], Budget.approximate(1, "1e-6"))
    assert not fits([zcdp("0.1")], Budget.approximate(1, "1e-6"))
    assert fits([compose(*(approximate("0.1") for _ in range(10)))], Budget.pure(1))
    assert fits([laplace(1)], Budget.pure(1))
    assert fits([approximate(1)], Budget.zcdp("0.5"))
    with pytest.raises(Refused, match="another kind of budget"):
        fits([approximate(1, "1e-6")], Budget.zcdp(1))


@given(st.lists(st.fractions(Fraction(1, 100), 1, max_denominator=100), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_what_fits_is_the_sum(rhos: list[Fraction]) -> None:
    total = compose(*map(zcdp, rhos))
    assert fits([total], Budget.zcdp(sum(rhos)))
    assert not fits([total], Budget.zcdp(sum(rhos) - Fraction(1, 10**9)))


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
    space = Dataspace.from_table(Table(schema, [7] * 5000), [Margin("block")])
    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(Guarantee(space, Ball(2), zcdp("0.1")), "first")
    book.charge(Guarantee(space, Ball(2), zcdp("0.1")), "second")
    assert path.stat().st_size < 3000
    assert len(list(path.parent.glob("ledger.t-*.json"))) == 1


CHARGER = """
import sys
from pathlib import Path
from semidp.promise.accounting.ledger import Ledger
from semidp.errors import BudgetExceeded
from semidp.promise.guarantee import Guarantee
from semidp import Ball, Dataspace, Exchange
from semidp.promise import zcdp

book = Ledger(sys.argv[1])
guarantee = Guarantee(Dataspace.from_description("state totals"), Ball(2), zcdp("0.01"))
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
        [sys.executable, "-c", CHARGER, str(path), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
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


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.long)])
def test_a_kill_in_the_middle_leaves_a_whole_ledger_and_no_lock(path: Path, kills: int) -> None:
    book = Ledger.create(path, Budget.zcdp(1000))
    seen = 0
    for attempt in range(kills):
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
        assert reported <= recorded <= reported + 1, (
            "what was acknowledged is on disk, and at most one more"
        )
        seen += recorded
    assert seen > 0
    for scrap in path.parent.glob(".semidp-*"):
        os.utime(scrap, (time.time() - 86400,) * 2)
    book.charge(Guarantee(STATES, Ball(2), zcdp("0.01")), "after the kills")
    json.loads(path.read_text())
    assert not [file for file in path.parent.iterdir() if file.name.startswith(".semidp-")]


def test_other_features_of_the_same_records_are_joined(path: Path) -> None:
    """Two tables with the same public totals add up in one ledger; another total, or other levels,
    do not.
    """

    def public(name: str, levels: str = "ab", totals: tuple[int, int] = (6, 15)) -> Dataspace:
        schema = Schema((Feature("sex", ("f", "m")), Feature(name, tuple(levels))))
        return Dataspace.from_totals(
            schema, {Margin("sex"): Table(schema.restrict(["sex"]), totals)}
        )

    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(Guarantee(public("region"), Ball(2), zcdp("1/4")), "regions")
    book.charge(Guarantee(public("age"), Ball(2), zcdp("1/4")), "ages")
    total = book.total()
    assert total is not None
    assert total.tradeoff == zcdp("1/2")
    assert set(total.dataspace.schema.names) == {"sex", "region", "age"}
    for other in (public("job", totals=(7, 14)), public("region", levels="abc")):
        with pytest.raises(Refused):
            book.charge(Guarantee(other, Ball(2), zcdp("1/4")), "another")


def test_exchange_guarantees_about_other_features_are_joined(path: Path) -> None:
    """Proved and listed in tests/laws/test_exchange.py; structural zeros, and any number of
    records, are refused.
    """

    def public(name: str, *zeros: StructuralZero) -> Dataspace:
        schema = Schema((Feature("sex", ("f", "m")), Feature(name, ("a", "b"))), zeros)
        return Dataspace.from_totals(
            schema, {Margin("sex"): Table(schema.restrict(["sex"]), (6, 15))}
        )

    book = Ledger.create(path, Budget.zcdp(1))
    for name in ("region", "age"):
        book.charge(
            Guarantee(public(name), Exchange.from_dataspace(public(name)), zcdp("1/4")), name
        )
    total = book.total()
    assert total is not None
    assert (total.tradeoff, total.adjacency) == (zcdp("1/2"), Exchange(2))
    assert total.adjacency == Exchange.from_dataspace(total.dataspace)
    with pytest.raises(Refused, match="two promises"):
        book.charge(Guarantee(public("job"), Ball(2), zcdp("1/4")), "another kind")
    zero = StructuralZero.from_pattern({"sex": "f", "job": "a"})
    with pytest.raises(Refused, match="use another ledger"):
        book.charge(Guarantee(public("job", zero), Exchange(2), zcdp("1/4")), "zeros")


def test_joining_is_sound_on_every_pair_of_a_small_space() -> None:
    """Records of the joined space lose features: the rest agrees with the totals, and is no further
    apart.
    """
    both = Schema(
        (Feature("sex", ("f", "m")), Feature("region", ("a", "b")), Feature("age", ("c", "d")))
    )
    part = both.restrict(["sex", "region"])
    space = Dataspace.from_totals(both, {Margin("sex"): Table(both.restrict(["sex"]), [1, 1])})
    alone = Dataspace.from_totals(part, {Margin("sex"): Table(part.restrict(["sex"]), [1, 1])})
    listed = list(datasets(space))
    for one, other in itertools.product(listed, repeat=2):
        dropped = [tuple(record[:2] for record in dataset) for dataset in (one, other)]
        assert all(dataset in set(datasets(alone)) for dataset in dropped)
        assert sum(x != y for x, y in zip(*dropped, strict=True)) <= sum(
            x != y for x, y in zip(one, other, strict=True)
        )


# --- format 2: hashes, records, the lock and permissions ------------------------------------------

ALL_LAWS = {
    "rounded gaussian": (RoundedGaussianMechanism, Budget.gdp("1/2")),
    "discrete gaussian": (DiscreteGaussianMechanism, Budget.zcdp("1/7")),
    "lattice gaussian": (LatticeGaussianMechanism, Budget.zcdp("1/7")),
    "laplace": (LaplaceMechanism, Budget.pure("1/3")),
    "l2": (L2Mechanism, Budget.pure("1/3")),
}


@pytest.mark.parametrize("law", ALL_LAWS)
def test_a_charge_is_recomputed_from_what_it_records(path: Path, law: str) -> None:
    kind, budget = ALL_LAWS[law]
    mechanism = kind.calibrate(sensitivity_space(FIXED, Ball(3)), budget)
    Ledger.create(path, Budget.approximate(50, "1e-6")).charge(
        mechanism.guarantee, law, [mechanism.record()]
    )
    charge = Ledger(path).account().charges[0]
    assert charge.fixed_reason is None
    assert charge.dataspace is not None
    assert charge.adjacency is not None
    again = mechanism_from_record(charge.measured[0], charge.dataspace, charge.adjacency)
    assert type(again) is kind
    assert again.tradeoff == charge.tradeoff
    half = {**charge.measured[0], "noise": {**charge.measured[0]["noise"]}}
    name = next(key for key in half["noise"] if key != "law")
    half["noise"][name] = str(Fraction(half["noise"][name]) / 4)
    assert (
        mechanism_from_record(half, charge.dataspace, charge.adjacency).tradeoff != charge.tradeoff
    )


def test_a_charge_is_recomputed_under_more_exact_statistics(path: Path) -> None:
    """By hand: with sex exact, two records can move between four cells of the table, Δ2² = 8, so σ²
    = 8 at ρ = 1/2.

    With region exact too, the moves that are left have Δ2² = 4: the same noise gives ρ = 1/4.
    """
    schema = Schema([Feature("sex", "fm"), Feature("region", "ns")])
    table = Table(schema, [[5, 3], [4, 9]])
    first, union = (
        Dataspace.from_table(table, [Margin("sex")]),
        Dataspace.from_table(table, [Margin("sex"), Margin("region")]),
    )
    mechanism = DiscreteGaussianMechanism.calibrate(
        sensitivity_space(first, Ball(2)), Budget.zcdp("1/2")
    )
    assert mechanism.sigma2 == 8
    Ledger.create(path, Budget.zcdp(1)).charge(mechanism.guarantee, "first", [mechanism.record()])
    charge = Ledger(path).account().charges[0]
    assert charge.dataspace == first
    assert mechanism_from_record(charge.measured[0], union, Ball(2)).tradeoff == zcdp("1/4")


def test_sums_and_moments_are_recomputed(path: Path) -> None:
    score = Outcome("score", 0, "1/3", steps=7)
    public = Dataspace.from_table(TABLE, [Margin("sex", "region")])
    # A ledger records the columns alone, and reads them without the model that they are for.
    design = PublicDesign(SCHEMA, Design.from_schema(SCHEMA, ["sex", "region"]).columns)
    book = Ledger.create(path, Budget.gdp(5))
    for space in (
        sum_space(public, Ball(3), score, [Margin("sex"), Margin("region")]),
        moment_space(public, Ball(3), score, design),
    ):
        mechanism = RoundedGaussianMechanism.calibrate(space, Budget.gdp("1/2"))
        book.charge(mechanism.guarantee, "an outcome", [mechanism.record()])
        charge = Ledger(path).account().charges[-1]
        again = mechanism_from_record(charge.measured[0], public, Ball(3))
        assert again.space == space
        assert again.tradeoff == charge.tradeoff


def test_what_cannot_be_recomputed_says_so(path: Path) -> None:
    book = Ledger.create(path, Budget.approximate(50, "1e-6"))
    book.charge(semi(zcdp("0.1")), "foreign")
    charge = book.account().charges[0]
    assert charge.fixed_reason == "its query was not recorded"
    ball = KNormMechanism.calibrate(sensitivity_space(FIXED, Ball(3)), Budget.pure(1))
    for record in (
        ball.record(),
        {"query": None, "noise": {"law": "laplace", "b": "1"}},
        {"query": {}, "noise": {}},
    ):
        with pytest.raises(Refused):
            mechanism_from_record(record, FIXED, Ball(3))
    with pytest.raises(InputError):
        mechanism_from_record(
            {"query": {"kind": "table"}, "noise": {"law": "laplace", "b": "1"}}, FIXED, Ball(3)
        )


@pytest.fixture
def three(path: Path) -> list[dict[str, Any]]:
    book = Ledger.create(path, Budget.zcdp(1))
    return [book.charge(semi(zcdp("0.1")), label) for label in ("one", "two", "three")]


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a label": lambda d: d["charges"][1].update(label="another"),
    "a cost": lambda d: d["charges"][0].update(tradeoff=zcdp("0.001").to_json()),
    "a group": lambda d: d["charges"][2].update(group=2),
    "a middle charge gone": lambda d: d["charges"].pop(1),
    "the order": lambda d: d["charges"].reverse(),
    "the budget": lambda d: d.update(budget=Budget.zcdp(100).to_json()),
    "the dataspace": lambda d: next(iter(d["dataspaces"].values())).update(n=22),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_ledger_is_refused(path: Path, three: list[dict[str, Any]], change: str) -> None:
    before = Ledger(path).account()
    rewritten(path, CHANGES[change])
    with pytest.raises(InputError):
        Ledger(path).account()
    with pytest.raises(InputError):
        Ledger(path).charge(semi(zcdp("0.1")), "four")
    assert len(before.charges) == 3


def rechained(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a ledger the way somebody does who knows how the hashes are made."""

    def redo(document: dict[str, Any]) -> None:
        change(document)
        head = ledger_module._genesis(document)
        for entry in document["charges"]:
            head = entry["head"] = ledger_module._head(head, entry)

    rewritten(path, redo)


def test_removed_charges_show_in_the_releases(path: Path, three: list[dict[str, Any]]) -> None:
    assert [find_disagreement(Ledger(path).account(), entry) for entry in three] == [None] * 3
    whole = path.read_text()
    for number in range(3):
        path.write_text(whole)
        rechained(path, lambda document, number=number: document["charges"].pop(number))
        found = [find_disagreement(Ledger(path).account(), entry) for entry in three]
        assert found[:number] == [None] * number
        assert all(found[number:]), (
            "every release from the removed charge on notices, the last one too"
        )
    path.write_text(whole)
    rewritten(path, lambda document: document["charges"].pop())  # needs no new hash
    assert (
        find_disagreement(Ledger(path).account(), three[2])
        == "its charge is number 3, and the ledger holds 2"
    )
    Ledger(path).charge(semi(zcdp("0.1")), "three")
    assert "is not the one that was made" in (
        find_disagreement(Ledger(path).account(), three[2]) or ""
    )


def test_a_release_of_another_ledger_or_of_none_shows(
    path: Path, three: list[dict[str, Any]]
) -> None:
    other = Ledger.create(path.with_name("other.json"), Budget.zcdp(1))
    account = Ledger(path).account()
    assert (
        find_disagreement(account, other.charge(semi(zcdp("0.1")), "one"))
        == "it was charged to another ledger"
    )
    assert find_disagreement(account, None) == "it was charged to no ledger"
    for number in (0, -1, "1", True, None, 1.0):
        assert find_disagreement(account, {**three[0], "number": number})


@pytest.mark.parametrize("version", [1, 2, 4, "3", None])
def test_a_ledger_of_another_version_is_refused_and_stays(path: Path, version: object) -> None:
    Ledger.create(path, Budget.zcdp(1)).charge(semi(zcdp("0.1")), "first")
    document = {**json.loads(path.read_text()), "schema_version": version}
    path.write_text(json.dumps(document))
    for ask in (Ledger.account, lambda book: book.charge(semi(zcdp("0.1")), "second")):
        with pytest.raises(InputError, match="was written by another version of semidp: use it"):
            ask(Ledger(path))
    assert json.loads(path.read_text()) == document


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_ledger_keeps_its_permissions(path: Path, mode: int) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    path.chmod(mode)
    book.charge(semi(zcdp("0.1")), "first")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_the_lock_has_the_permissions_of_the_ledger(path: Path) -> None:
    lock = path.with_name(f".{path.name}.lock")
    before = os.umask(0o002)
    try:
        book = Ledger.create(path, Budget.zcdp(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o664
    for mode in (0o660, 0o600, 0o664, 0o444):
        path.chmod(mode)
        book.charge(semi(zcdp("0.1")), "first")
        assert stat.S_IMODE(lock.stat().st_mode) == mode | 0o600


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fcntl = pytest.importorskip("fcntl")
    book = Ledger.create(path, Budget.zcdp(1))

    def refuse(handle: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InputError, match=r"cannot lock .*: its file system has no file locks"):
        book.charge(semi(zcdp("0.1")), "first")
    with pytest.raises(InputError, match=r"cannot write .*: its file system has no file locks"):
        replace_file(path.with_name("page.html"), "page")
    monkeypatch.undo()
    assert not book.account().charges


def test_who_waits_for_a_ledger_is_told_and_gives_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "PATIENCE", 0.2)
    monkeypatch.setattr(ledger_module, "_AT_ONCE", 0.01)
    said: list[str] = []
    book = Ledger(Ledger.create(path, Budget.zcdp(1)).path, waiting=said.append)
    with (
        hold_lock(path.with_name(f".{path.name}.lock")),
        pytest.raises(InputError, match=r"for 0\.2 seconds: nothing"),
    ):
        book.charge(semi(zcdp("0.1")), "first")
    assert len(said) == 1
    assert "waiting for up to 0.2 seconds" in said[0]
    book.charge(semi(zcdp("0.1")), "first")
    assert len(said) == 1, "nobody is told where there is nothing to wait for"


DAMAGE: list[Any] = [None, [], "text", 0, -1, 1e400, True, {}, {"a": []}, "9" * 5000, [[[]]]]


def test_a_damaged_ledger_is_a_sentence(path: Path) -> None:
    """Every value of the file, replaced by others of every type: an InputError, or a ledger that
    can be read.
    """
    Ledger.create(path, Budget.zcdp(1)).charge(
        semi(zcdp("0.1")),
        "one",
        [{"query": {"kind": "table", "features": ["sex"]}, "noise": {"law": "laplace", "b": "1"}}],
    )
    whole = json.loads(path.read_text())
    refused = 0
    for place, wrong in itertools.product(places(whole), DAMAGE):
        document = json.loads(json.dumps(whole))
        *parents, last = place
        inner = document
        for key in parents:
            inner = inner[key]
        inner[last] = wrong
        path.write_text(json.dumps(document))
        try:
            Ledger(path).account()
        except (InputError, Refused):
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("key", ["session", "measured", "place", None])
@pytest.mark.parametrize("wrong", [[], {}, 1, True, "", "/", "a\0b", None])
def test_a_damaged_run_of_a_ledger_is_a_sentence(path: Path, key: str | None, wrong: Any) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(semi(zcdp("0.1")), "one", (), Session(place=str(path.with_name("out"))))
    document = json.loads(path.read_text())
    (run,) = document["runs"].values()
    if key is None:
        document["runs"]["another"] = wrong
    else:
        run[key] = wrong
    path.write_text(json.dumps(document))
    for ask in (explain_unclaimed, Ledger.account, lambda book: book.write_off("out")):
        with contextlib.suppress(InputError):
            ask(Ledger(path))


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path to everything inside a JSON value."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inside:
        yield (key,)
        yield from ((key, *rest) for rest in places(item))


def test_a_charge_pays_for_one_session_of_a_run_at_a_time(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    first = Session()
    entry = book.charge(semi(zcdp("0.1")), "a table", (), first)
    second = Session(first.run, (first.name,))
    assert book.charge(semi(zcdp("0.1")), "a table", (), second) == entry
    left_behind = [
        Session(first.run),
        Session(first.run, (first.name,)),
        Session(first.run, (first.name, "00")),
        Session(first.run, (first.name,), 64 * "d"),
    ]
    whole = path.read_text()
    for session in left_behind:
        with pytest.raises(InputError, match="another copy of this run"):
            book.charge(semi(zcdp("0.1")), "a table", (), session)
    with pytest.raises(InputError, match="another copy of this run"):
        book.finish(first, 64 * "d")
    assert path.read_text() == whole
    for _ in range(2):
        book.finish(second, 64 * "d")
    with pytest.raises(InputError, match="another copy of this run"):
        book.finish(second, 64 * "a")
    # What is complete goes on, with the measurement that is recorded and no other.
    for measured, allowed in ((None, False), (64 * "a", False), (64 * "d", True)):
        third = Session(first.run, (first.name, second.name), measured)
        with contextlib.nullcontext() if allowed else pytest.raises(InputError):
            assert book.charge(semi(zcdp("0.1")), "a table", (), third) == entry
    assert len(book.account().charges) == 1
    rewritten(path, lambda document: document["runs"].update({first.run: {"session": 1}}))
    with pytest.raises(InputError, match="does not hold a ledger"):
        book.account()


def test_a_finished_run_is_written_off_by_its_name_alone(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    session = Session(place="out")
    book.charge(semi(zcdp("0.1")), "a table", (), session)
    book.finish(session, 64 * "d")
    assert book.write_off(place="out") == []
    assert book.write_off(run="another") == []
    assert book.write_off(run=session.run) == [1]


def test_a_charge_is_about_the_same_leaves_in_other_groups(path: Path) -> None:
    """Bins that follow from the noise group the levels after the charge, and change no pair."""
    book = Ledger.create(path, Budget.zcdp(1))
    book.charge(semi(zcdp("0.1")), "a table", ())
    (charge,) = book.own_account().charges
    region = Feature.from_paths(["part", "region"], [("x", "s"), ("x", "n"), ("y", "w")])
    grouped = FIXED.with_bins(Schema([SCHEMA.features[0], region]))
    others = Dataspace.from_table(Table(SCHEMA, [[3, 2, 1], [4, 5, 6]]), FIXED.margins)
    told = [
        charge.is_for(Guarantee(dataspace, Ball(3), zcdp("0.1")))
        for dataspace in (FIXED, grouped, others, EVERYTHING, STATES)
    ]
    assert told == [True, True, False, False, False]


def test_a_ledger_with_a_second_name_is_not_forked(path: Path) -> None:
    book = Ledger.create(path, Budget.zcdp(1))
    session = Session()
    book.charge(semi(zcdp("0.1")), "first", (), session)
    other = path.with_name("other.json")
    os.link(path, other)
    whole = path.read_text()
    for name in (path, other):
        with pytest.raises(InputError, match="hard link"):
            Ledger(name).charge(semi(zcdp("0.1")), "second")
        with pytest.raises(InputError, match="hard link"):
            Ledger(name).finish(session, 64 * "d")
    assert path.read_text() == other.read_text() == whole
    other.unlink()
    other.symlink_to(path)
    Ledger(other).charge(semi(zcdp("0.1")), "second")
    assert other.is_symlink()
    assert len(book.account().charges) == 2

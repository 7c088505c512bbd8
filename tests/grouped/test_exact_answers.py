"""Who answered is exact, and promises are about exchanges: norms by brute force.

A record is (features…, answered, value), and whoever did not answer has no value. An exchange hands
over answers: a carrier who had no value has any value afterwards, and one who had a value has none.
"""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import semidp
from semidp.assess.adjacent_datasets import ListedExchanges, Records, enumerate_tables
from semidp.errors import Refused
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.exponential import PermuteAndFlip, rank_space
from semidp.promise.schema.features import ANSWERED_SUFFIX, Feature
from semidp.promise.schema.outcome import Outcome, answered_column
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.answered_space import answered_space
from semidp.promise.sensitivity.distribution_space import distribution_space, value_tree
from semidp.promise.sensitivity.outcome_spaces import outcome_exchange, sum_space
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.plan_changes import with_missing

STEPS = 2
NONE = STEPS + 1  # the code of no value, after those of 0, 1 and 2
ANSWERED = "pay answered"
PAY = Outcome("pay", 0, STEPS, steps=STEPS)
SPACES = {"sums": sum_space, "ranks": rank_space, "distributions": distribution_space}


def public_of(counts, names, exact) -> Dataspace:
    """Features of two levels each, the last of which says who answered."""
    features = [Feature(name, ["0", "1"]) for name in names]
    schema = Schema([*features, Feature(ANSWERED, ["no", "yes"])])
    return Dataspace.from_table(
        Table(schema, np.array(counts)), [Margin(*margin) for margin in exact]
    )


def with_values(public: Dataspace) -> ListedExchanges:
    """The exchanges of records that also have a value, or none, which nothing publishes."""
    values = Feature("value", [*map(str, range(STEPS + 1)), "none"])
    whole = Schema((*public.schema.features, values))
    totals = dict(zip(public.margins, public.totals, strict=True))
    return ListedExchanges.from_dataspace(Dataspace.from_totals(whole, totals, public.n))


def filled(records: Records) -> Iterator[Records]:
    """Iterate over what records can be: those who answered without a value have any, others none."""
    choices = []
    for *features, answered, value in records:
        if not answered:
            values = [NONE]
        else:
            values = [value] if value != NONE else list(range(STEPS + 1))
        choices.append([(*features, answered, one) for one in values])
    return itertools.product(*choices)


def datasets(public: Dataspace) -> Iterator[Records]:
    """Iterate over all datasets with the exact counts, one order of the records for each."""
    for table in enumerate_tables(public):
        cells = []
        for cell in np.argwhere(table.counts).tolist():
            cells += [(*cell, NONE)] * int(table.counts[tuple(cell)])
        yield from {tuple(sorted(records)) for records in filled(tuple(cells))}


def histograms(records: Records, axes_of_sets) -> np.ndarray:
    """The numbers of 0, 1 and 2 in each measured group: groups of those who answered."""
    rows = []
    for axes in axes_of_sets:
        for cell in itertools.product((0, 1), repeat=len(axes)):
            row = [0] * (STEPS + 1)
            for record in records:
                if record[-2] and tuple(record[axis] for axis in axes) == cell:
                    row[record[-1]] += 1
            rows.append(row)
    return np.array(rows)


def moves_of(public: Dataspace, sets) -> tuple[np.ndarray, int]:
    """The different changes of the histograms by exchanges, and how many exchanges were tried."""
    names = public.schema.names
    axes = [[names.index(name) for name in groups] for groups in sets]
    blocks = with_values(public)
    measured = cache(lambda records: histograms(records, axes))
    moves, tried = set(), 0
    for records in datasets(public):
        before = measured(records)
        for after in blocks.neighbours(records):
            for possible in filled(after):
                tried += 1
                moves.add((measured(tuple(sorted(possible))) - before).tobytes())
    flat = [np.frombuffer(move, dtype=np.int64) for move in moves]
    return np.array(flat).reshape(len(flat), -1, STEPS + 1), tried


def farthest(moves: np.ndarray, kind: str) -> tuple[int, int]:
    """The largest Δ1 and Δ2² of what a statistic measures, by its definition."""
    if kind == "sums":
        changes = moves @ np.arange(STEPS + 1)
    elif kind == "ranks":
        # as many values of a group are replaced as leave it
        changes = np.abs(moves).sum(axis=2) // 2
    else:
        changes = np.array([value_tree(STEPS + 1).differences(move).ravel() for move in moves])
    return int(np.abs(changes).sum(axis=1).max()), int((changes**2).sum(axis=1).max())


def claimed(public: Dataspace, sets, kind: str) -> tuple[int, int]:
    by = [Margin(*groups, ANSWERED) for groups in sets]
    space = SPACES[kind](public, outcome_exchange(public), PAY, by, answered=ANSWERED)
    return space.norms.l1, space.norms.l2_squared


def sizes(cells: int, most: int) -> Iterator[tuple[int, ...]]:
    """Iterate over the counts of all worlds up to a number of records."""
    for counts in itertools.product(range(most + 1), repeat=cells):
        if 0 < sum(counts) <= most:
            yield counts


WORLDS = {
    "one set": (["g"], [["g", ANSWERED]], [["g"]], (2, 2), 5),
    "a set and its parts": (["g", "h"], [["g", "h", ANSWERED]], [["g"], ["g", "h"]], (2, 2, 2), 3),
    "two sets": (["g", "h"], [["g", "h", ANSWERED]], [["g"], ["h"]], (2, 2, 2), 3),
    "another margin": (["g", "h"], [["g", ANSWERED], ["h"]], [["g"]], (2, 2, 2), 3),
}


@cache
def compared(name: str) -> tuple[int, int, dict[str, list[tuple]]]:
    """The worlds, the exchanges, and for each statistic what is farthest beside what is claimed."""
    names, exact, sets, shape, most = WORLDS[name]
    worlds, exchanges, looked_at = 0, 0, set()
    results: dict[str, list[tuple]] = {kind: [] for kind in SPACES}
    for counts in sizes(int(np.prod(shape)), most):
        table = np.array(counts).reshape(shape)
        # levels have names only: one of the worlds that differ by these is enough
        turned = [table[::-1], table[:, ::-1], table[::-1, ::-1]][: 1 if table.ndim == 2 else 3]
        is_twin = any(table.tolist() < other.tolist() for other in turned)
        if is_twin or not table[..., 1].any():
            continue
        public = public_of(table, names, exact)
        if public.digest in looked_at:
            continue
        looked_at.add(public.digest)
        moves, tried = moves_of(public, sets)
        worlds, exchanges = worlds + 1, exchanges + tried
        for kind, pairs in results.items():
            pairs.append((farthest(moves, kind), claimed(public, sets, kind)))
    return worlds, exchanges, results


def held(pairs: list[tuple], less: int = 0) -> bool:
    """Whether no exchange moves a statistic farther than the norms, or than something smaller."""
    return all(most[0] <= norms[0] - less and most[1] <= norms[1] - less for most, norms in pairs)


TRIED = {
    # worlds, and the exchanges in them
    "one set": (54, 55_210),
    "a set and its parts": (34, 9_666),
    "two sets": (34, 9_666),
    "another margin": (29, 25_767),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WORLDS)
def test_no_exchange_moves_those_who_answered_farther_than_the_norms(name: str) -> None:
    worlds, exchanges, results = compared(name)
    assert (worlds, exchanges) == TRIED[name]
    for kind, pairs in results.items():
        assert held(pairs), kind
        # Every norm is attained, so that nothing smaller would do in any world.
        assert not any(held([pair], less=1) for pair in pairs), kind
        assert all(most == norms for most, norms in pairs), kind


def test_a_plan_is_calibrated_to_these_norms() -> None:
    people = {"g": ["0", "0", "1", "1"], "pay": np.array([0, None, 2, 1], dtype=object)}
    public = public_of([[1, 1], [0, 2]], ["g"], [["g", ANSWERED]])
    moves, _ = moves_of(public, [["g"]])
    bounds = {"bounds": (0, STEPS), "steps": STEPS}
    asked = {
        "sums": semidp.mean("pay", by="g", **bounds),
        "ranks": semidp.median("pay", by="g", mechanism="selection", **bounds),
        "distributions": semidp.distribution("pay", by="g", **bounds),
    }
    for kind, request in asked.items():
        plan = semidp.Plan([request.with_budget(semidp.Budget.gdp(1))])
        plan = evolve(with_missing(plan, {"pay": "exact"}), adjacency="exchange")
        plan = evolve(plan, invariants=[["g", ANSWERED]])
        (mechanism,) = semidp.prepare(plan, people).mechanisms
        norms = mechanism.space.norms
        assert (norms.l1, norms.l2_squared) == farthest(moves, kind), kind


# Two of group 0 and two of group 1, one of each who answered; h is exact by itself.
TIED = public_of([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], ["g", "h"], [["g", ANSWERED], ["h"]])


def moves_of_all_records(public: Dataspace, axes: list[int]) -> np.ndarray:
    """The changes by exchanges of a table of all records: levels, and the value or that it is
    missing.
    """
    blocks = with_values(public)
    moves = set()

    def table(records: Records) -> np.ndarray:
        counts = np.zeros((2,) * len(axes) + (NONE + 1,), dtype=np.int64)
        for record in records:
            counts[(*(record[axis] for axis in axes), record[-1])] += 1
        return counts.reshape(-1, NONE + 1)

    for records in datasets(public):
        before = table(records)
        for after in blocks.neighbours(records):
            for possible in filled(after):
                moves.add((table(possible) - before).tobytes())
    flat = [np.frombuffer(move, dtype=np.int64) for move in moves]
    return np.array(flat).reshape(len(flat), -1, NONE + 1)


def test_all_records_by_another_margin_move_farther_and_are_refused() -> None:
    # missing values are read as the lower bound
    sums = moves_of_all_records(TIED, [1]) @ np.array([*range(STEPS + 1), 0])
    exchange, by = outcome_exchange(TIED), [Margin("h")]
    elsewhere = sum_space(TIED, exchange, Outcome("age", 0, STEPS, steps=STEPS), by)
    assert np.abs(sums).sum(axis=1).max() == 3 * STEPS > elsewhere.l1 == 2 * STEPS
    for space in (*SPACES.values(), answered_space):
        for column in ("pay", "pay=2"):
            pay = Outcome(column, 0, STEPS, steps=STEPS)
            with pytest.raises(Refused, match="give or take values"):
                space(TIED, exchange, pay, by)
            with pytest.raises(Refused, match="give or take values"):
                space(TIED, Ball(3), pay, by).under(exchange)


def test_a_table_of_the_values_moves_farther_and_is_refused() -> None:
    # nothing of h is exact here
    public = public_of([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], ["g", "h"], [["g", ANSWERED]])
    moves = moves_of_all_records(public, [1])
    whole = with_values(public).dataspace
    # One record alone would move what is charged. The carrier gains or loses a value besides.
    charged = sensitivity_space(whole, Exchange.from_dataspace(whole), ["h", "value"]).l2_squared
    assert (moves**2).sum(axis=(1, 2)).max() == 4 > charged == 2
    schema = Schema((*TIED.schema.features, Feature("pay", ["0", "1"], null_level="none")))
    whole = Dataspace.from_totals(schema, dict(zip(TIED.margins, TIED.totals, strict=True)), TIED.n)
    assert ANSWERED == answered_column("pay") == f"pay{ANSWERED_SUFFIX}"
    with pytest.raises(Refused, match="the 'pay' of others"):
        Exchange.from_dataspace(whole)
    people = {
        "g": ["0", "0", "1", "1"],
        "ok": np.array(["Y", None, "Y", "N"], dtype=object),
    }
    features = [Feature("ok", ["Y", "N"], null_level="-")]
    budget = semidp.Budget.gdp(1)
    asked = semidp.proportion("ok=Y", by="g").with_budget(budget)
    table = semidp.publish.TableRequest(["ok"], budget=budget)
    plan = semidp.Plan([asked, table], features=features)
    plan = evolve(with_missing(plan, {"ok": "exact"}), invariants=[["g", "ok answered"]])
    semidp.run(plan, people)
    with pytest.raises(Refused, match="the 'ok' of others"):
        semidp.run(evolve(plan, adjacency="exchange"), people)


def test_a_ledger_refuses_exact_answers_beside_a_charge_for_all_records(tmp_path: Path) -> None:
    alone = public_of([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], ["g", "h"], [["h"]])
    budget = semidp.Budget.pure(1)
    exact_answers = Guarantee(TIED, outcome_exchange(TIED), budget.tradeoff())
    books = {}
    for column in ("pay", "age"):
        outcome = Outcome(column, 0, STEPS, steps=STEPS)
        space = rank_space(alone, outcome_exchange(alone), outcome, [Margin("h")])
        drawn = PermuteAndFlip.calibrate(space, budget)
        books[column] = Ledger.create(tmp_path / f"{column}.json", semidp.Budget.pure(3))
        books[column].charge(drawn.guarantee, "answers are private", [drawn.record()])
    with pytest.raises(Refused, match="give or take values of 'pay' of others"):
        books["pay"].charge(exact_answers, "who answered is exact")
    books["age"].charge(exact_answers, "nothing is exact about age")
    assert [len(book.account().charges) for book in books.values()] == [1, 2]

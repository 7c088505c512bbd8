"""The ledger's record of a product: its charge is computed again, there and under other exact statistics."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from semidp import Budget, Feature, InputError, Ledger, Plan, Refused, TableRequest, TablesRequest, run
from semidp.core.spaces.adjacency import Ball
from semidp.core.spaces.dataspace import Dataspace, Margin
from semidp.core.tables.counts import Table
from semidp.core.tables.schema import Schema
from semidp.core.tradeoff.base import Order
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.queries.products import product_space
from semidp.statistics.registry import recorded

SCHEMA = Schema([Feature("sex", "fm"), Feature("age", "yo"), Feature("ill", "nj")])
TABLES = [["sex", "age"], ["age", "ill"]]
COUNTS = np.array([[[1, 0], [1, 1]], [[1, 1], [0, 1]]])


def public(*margins: Margin, counts: np.ndarray = COUNTS) -> Dataspace:
    return Dataspace.of(Table(SCHEMA, counts), list(margins))


@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.zcdp("1/3")], ids=str)
def test_a_product_is_recomputed_from_what_the_ledger_keeps(tmp_path, budget):
    people = {"sex": [*"ffmmfm"], "age": [*"yoyoyo"], "ill": [*"nnjnjn"]}
    asked = TablesRequest([TableRequest(names) for names in TABLES], budget)
    plan = Plan([asked], invariants=["sex"], features=SCHEMA.features)
    book = Ledger.create(tmp_path / "book.json", Budget.approximate(50, "1e-6"))
    done = run(plan, people, ledger=book)
    charge = book.account().charges[0]
    assert charge.fixed is None
    again = recorded(charge.measured[0], charge.dataspace, charge.adjacency)
    assert isinstance(again, ResidualMechanism)
    assert again.sigma2 == done.product.mechanism.sigma2
    assert again.tradeoff.compare(charge.tradeoff) in (Order.EQUAL, Order.STRONGER)
    assert again.precision >= Fraction(99, 100) * done.product.mechanism.precision
    less = [{**part, "sigma2": str(Fraction(part["sigma2"]) / 2)} for part in charge.measured[0]["noise"]["residuals"]]
    weaker = {**charge.measured[0], "noise": {**charge.measured[0]["noise"], "residuals": less}}
    assert recorded(weaker, charge.dataspace, charge.adjacency).precision >= Fraction(19, 10) * again.precision


def moves(space: Dataspace, a: int):
    """Every difference of two datasets of a dataspace in at most a records, by brute force over tables of n records."""
    n, cells = space.n, SCHEMA.size
    tables = []
    for chosen in itertools.combinations_with_replacement(range(cells), n):
        counts = np.bincount(chosen, minlength=cells).reshape(SCHEMA.shape)
        if space.contains(Table(SCHEMA, counts)):
            tables.append(counts)
    for one, other in itertools.permutations(tables, 2):
        if np.abs(one - other).sum() <= 2 * a:
            yield one - other


def squared(residual: tuple[int, ...], move: np.ndarray) -> float:
    table = move
    for axis, depth in enumerate(residual):
        table = table - table.mean(axis=axis, keepdims=True) if depth else table.sum(axis=axis, keepdims=True)
    return float((table**2).sum())


def test_under_more_exact_statistics_the_charge_is_that_of_the_moves_that_are_left():
    """Brute force over all tables of four records: the recomputed cost bounds every move, and is attained here."""
    few = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    first = public(Margin("sex"), counts=few)
    mechanism = ResidualMechanism.calibrate(product_space(first, Ball(2), TABLES), Budget.gdp(1))
    record = mechanism.record()
    for margins in ([Margin("sex")], [Margin("sex"), Margin("age")], [Margin("sex", "age")]):
        more = public(*margins, counts=few)
        again = recorded(record, more, Ball(2))
        worst = max(
            sum(squared(view, move) / float(square) for view, square in mechanism.sigma2.items())
            for move in moves(more, 2)
        )
        assert float(again.precision) >= worst * (1 - 1e-9)
        assert float(again.precision) <= worst * (1 + 1e-6), "and a tenth less noise would show"
        assert set(again.sigma2) <= set(mechanism.sigma2)


def test_what_cannot_be_recomputed_is_refused():
    space = product_space(public(Margin("sex")), Ball(2), TABLES)
    record = ResidualMechanism.calibrate(space, Budget.gdp(1)).record()
    with pytest.raises(Refused, match="published exactly because others"):
        recorded(record, public(), Ball(2))
    nobody = COUNTS.copy()
    nobody[:, :, 1] = 0
    with pytest.raises(Refused, match="other levels"):
        recorded(record, public(Margin("sex"), Margin("ill"), counts=nobody), Ball(2))
    for damaged in ({"law": "residuals"}, {**record["noise"], "draw": "loud"}, {**record["noise"], "residuals": [3]}):
        with pytest.raises(InputError, match=r"damaged|discrete or rounded"):
            recorded({**record, "noise": damaged}, public(Margin("sex")), Ball(2))

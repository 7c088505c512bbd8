"""The ledger's record of a product: its charge is computed again, there and under other exact
statistics.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, Feature, InputError, Ledger, Plan, Refused, run
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.mechanisms.residual_noise import ResidualNoise
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.function import Order
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.pipeline import RunOptions
from semidp.publish.residual_mechanism import ResidualMechanism

SCHEMA = Schema([Feature("sex", "fm"), Feature("age", "yo"), Feature("ill", "nj")])
TABLES = [["sex", "age"], ["age", "ill"]]
COUNTS = np.array([[[1, 0], [1, 1]], [[1, 1], [0, 1]]])


def public(*margins: Margin, counts: np.ndarray = COUNTS) -> Dataspace:
    return Dataspace.from_table(Table(SCHEMA, counts), list(margins))


@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.zcdp("1/3")], ids=str)
def test_a_product_is_recomputed_from_what_the_ledger_keeps(tmp_path, budget):
    people = {"sex": [*"ffmmfm"], "age": [*"yoyoyo"], "ill": [*"nnjnjn"]}
    asked = TablesRequest([TableRequest(names) for names in TABLES], budget)
    plan = Plan([asked], invariants=["sex"], features=SCHEMA.features)
    book = Ledger.create(tmp_path / "book.json", Budget.approximate(50, "1e-6"))
    done = run(plan, people, RunOptions(ledger=book))
    charge = book.account().charges[0]
    assert charge.fixed_reason is None
    again = mechanism_from_record(charge.measured[0], charge.dataspace, charge.adjacency)
    assert isinstance(again, ResidualNoise)
    assert again.sigma2 == done.results[0].residuals.sigma2
    assert again.tradeoff.compare(charge.tradeoff) in (Order.EQUAL, Order.STRONGER)
    assert again.precision >= Fraction(99, 100) * done.results[0].residuals.precision
    less = [
        {**part, "sigma2": str(Fraction(part["sigma2"]) / 2)}
        for part in charge.measured[0]["noise"]["residuals"]
    ]
    weaker = {**charge.measured[0], "noise": {**charge.measured[0]["noise"], "residuals": less}}
    assert (
        mechanism_from_record(weaker, charge.dataspace, charge.adjacency).precision
        >= Fraction(19, 10) * again.precision
    )


def moves(space: Dataspace, a: int):
    """Every difference of two datasets of a dataspace in at most a records, by brute force over
    tables of n records.
    """
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
        table = (
            table - table.mean(axis=axis, keepdims=True)
            if depth
            else table.sum(axis=axis, keepdims=True)
        )
    return float((table**2).sum())


def test_under_more_exact_statistics_the_charge_is_that_of_the_moves_that_are_left():
    """Brute force over all tables of four records: the recomputed cost bounds every move, and is
    attained here.
    """
    few = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    first = public(Margin("sex"), counts=few)
    mechanism = ResidualMechanism.calibrate(product_space(first, Ball(2), TABLES), Budget.gdp(1))
    record = mechanism.record()
    for margins in ([Margin("sex")], [Margin("sex"), Margin("age")], [Margin("sex", "age")]):
        more = public(*margins, counts=few)
        again = mechanism_from_record(record, more, Ball(2))
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
    with pytest.raises(Refused, match="without these totals nothing protects it"):
        mechanism_from_record(record, public(), Ball(2))
    nobody = COUNTS.copy()
    nobody[:, :, 1] = 0
    with pytest.raises(Refused, match="other levels"):
        mechanism_from_record(record, public(Margin("sex"), Margin("ill"), counts=nobody), Ball(2))
    for damaged in (
        {"law": "residuals"},
        {**record["noise"], "draw": "loud"},
        {**record["noise"], "residuals": [3]},
    ):
        with pytest.raises(InputError, match=r"damaged|discrete or rounded"):
            mechanism_from_record({**record, "noise": damaged}, public(Margin("sex")), Ball(2))


@pytest.mark.parametrize("a", [2, 3])
def test_a_product_is_recomputed_where_others_publish_a_feature_that_it_does_not_use(a):
    """Recorded for sex and age; then the illness is exact as well: brute force over the datasets of
    all three.
    """
    few = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    known = Dataspace.from_table(
        Table(Schema(SCHEMA.features[:2]), few.sum(axis=2)), [Margin("sex")]
    )
    space = product_space(known, Ball(2), [["sex", "age"], ["age"]])
    mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
    union = public(Margin("sex"), Margin("ill"), counts=few)
    again = mechanism_from_record(mechanism.record(), union, Ball(a))
    worst = max(
        sum(squared((*view, 0), move) / float(square) for view, square in mechanism.sigma2.items())
        for move in moves(union, a)
    )
    assert worst * (1 - 1e-9) <= float(again.precision) <= worst * (1 + 1e-6)
    assert again.precision >= mechanism.precision * Fraction(999_999, 10**6)


@pytest.mark.long
def test_one_ledger_holds_a_product_and_a_table_of_other_features(tmp_path):
    people = {"sex": [*"ffmmfm"], "age": [*"yoyoyo"], "ill": [*"nnjnjn"], "ward": [*"aabbab"]}
    book = Ledger.create(tmp_path / "book.json", Budget.zcdp(50))
    pair = TablesRequest([TableRequest(["sex", "age"]), TableRequest(["age"])], Budget.gdp(1))
    run(
        Plan([pair], invariants=["sex"], features=SCHEMA.features[:2]),
        people,
        RunOptions(ledger=book),
    )
    ward = Feature("ward", "ab")
    other = TablesRequest([TableRequest(["ill", "ward"])], Budget.gdp(1))
    run(
        Plan([other], invariants=["ill"], features=[SCHEMA.features[2], ward]),
        people,
        RunOptions(ledger=book),
    )
    charges = book.account().charges
    assert len(charges) == 2
    assert all(charge.fixed_reason is None for charge in charges)


def test_a_guarantee_elsewhere_is_that_of_the_noise_that_was_drawn(tmp_path):
    """Not of the noise that would be placed today: noise by the closed form stays what it was."""
    people = {"sex": [*"ffmmfm"], "age": [*"yoyoyo"], "ill": [*"nnjnjn"]}
    asked = TablesRequest([TableRequest(names) for names in TABLES], Budget.gdp(1))
    done = run(Plan([asked], invariants=["sex"], features=SCHEMA.features), people)
    space = done.results[0].residuals.space
    earlier = ResidualMechanism.calibrate(space, Budget.gdp(1), joint=False)
    assert earlier.sigma2 != done.results[0].residuals.sigma2
    old = evolve(done, published=lambda: (evolve(done.results[0], residuals=earlier),))
    assert old.mechanisms[0].sigma2 == earlier.sigma2
    short = evolve(earlier, sigma2={view: square / 2 for view, square in earlier.sigma2.items()})
    with pytest.raises(Refused, match="less noise than its budget needs"):
        _ = evolve(done, published=lambda: (evolve(done.results[0], residuals=short),)).mechanisms

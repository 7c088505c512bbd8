"""Every mechanism keeps every invariant: exactly where it publishes whole numbers, else to 1e-9 of
n.
"""

import numpy as np
import pytest

from semidp.applications.study import NaiveGaussian, NaiveL1, NaiveL2, NaiveLinf
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.mechanisms.additive import ContinuousGaussianMechanism
from semidp.promise.noise.randomness import SeededRandomness, SystemRandomness
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import available

FOR_STUDIES = (ContinuousGaussianMechanism, NaiveL1, NaiveL2, NaiveLinf, NaiveGaussian)

BUDGETS = {
    "zcdp": Budget.zcdp("0.05"),
    "gdp": Budget.gdp("0.5"),
    "pure": Budget.pure("0.5"),
    "approximate": Budget.approximate("0.5", "1e-6"),
}


def public_margins(space, table):
    """The totals of the released table that are public, with the axes to sum an array over."""
    yield tuple(range(table.counts.ndim)), table.counts.sum()
    for margin in space.dataspace.margins:
        names = [name for name in margin.names if name in table.schema.names]
        if names:
            kept = table.schema.axes(names)
            away = tuple(axis for axis in range(table.counts.ndim) if axis not in kept)
            yield away, table.counts.sum(axis=away)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [*FOR_RELEASES, *FOR_STUDIES], ids=lambda kind: kind.name)
def test_margins_are_kept(setting, kind):
    space, table = setting
    if kind in FOR_STUDIES:
        calibrated = kind.calibrate(space, BUDGETS[kind.budget_kinds[0]])
    else:
        there = {
            type(mechanism): mechanism
            for mechanism in available(space, BUDGETS[kind.budget_kinds[0]])
        }
        if kind not in there:
            assert kind.name in ("lattice gaussian", "k-norm")
            return
        calibrated = there[kind]
    measured = calibrated.apply(table, SeededRandomness(1))
    assert measured.projected.shape == measured.noisy.shape == table.counts.shape
    for away, total in public_margins(space, table):
        assert np.allclose(measured.projected.sum(axis=away), total, rtol=0, atol=1e-9 * table.n)
        if kind.name == "lattice gaussian":
            assert measured.noisy.dtype == np.int64
            assert np.array_equal(measured.noisy.sum(axis=away), total)
    impossible = space.variances() < 1e-12
    assert np.allclose(
        measured.projected[impossible], table.counts[impossible], atol=1e-9 * table.n
    )


@pytest.mark.few(5)
def test_lattice_serves_one_and_two_margins(setting, request):
    space, _ = setting
    names = [mechanism.name for mechanism in available(space, BUDGETS["zcdp"])]
    refused = {"chain", "one-way", "no three-way", "impossible cell"}
    expected = not any(name in request.node.name for name in refused)
    assert ("lattice gaussian" in names) == expected


def test_projection_depends_on_the_data_through_the_noisy_table_only(setting):
    space, table = setting
    mechanism = available(space, BUDGETS["gdp"])[0]
    measured = mechanism.apply(table, SeededRandomness(3))
    assert np.array_equal(measured.projected, mechanism.publish(measured.noisy))


def test_the_operating_systems_randomness_marks_the_output_private(build):
    space, table = build((3, 3), ["A", "B"], a=3)
    for budget in BUDGETS.values():
        for mechanism in available(space, budget):
            assert mechanism.apply(table).private
            assert mechanism.apply(table, SystemRandomness()).private
            assert not mechanism.apply(table, SeededRandomness(1)).private
    for kind in FOR_STUDIES:
        assert not kind.calibrate(space, BUDGETS[kind.budget_kinds[0]]).apply(table).private

"""Laws of every fit, over random shapes, margins, noise and structural zeros."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semidp.promise.schema.margins import Totals
from semidp.promise.schema.schema import StructuralZero
from semidp.publish.fitting.real import pose, project
from semidp.publish.fitting.tables import fit_table
from tests.fit.cases import margins_exact, space_of

MARGINS = {
    1: ["", "A"],
    2: ["", "A", "A B", "AB"],
    3: ["", "B", "A C", "AB", "AB BC", "A B C", "AB C", "AB BC AC"],
    4: ["AC BD", "A B C D", "AB BC CD", "AB AC AD", "A B", "AB BC AC", "AB BC AC AD"],
}
LAWS = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def cases(draw: st.DrawFn):  # type: ignore[no-untyped-def]
    """A dataspace, noisy values and the hidden table."""
    dimensions = draw(st.integers(1, 4))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=dimensions, max_size=dimensions)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    hidden = rng.poisson(draw(st.sampled_from([0.1, 1.0, 50.0])), shape).astype(np.int64)
    zeros = []
    if draw(st.booleans()):
        zeros = [StructuralZero.from_pattern({"A": "0"} | ({"B": "0"} if dimensions > 1 else {}))]
        hidden[(0,) * min(dimensions, 2)] = 0
    noise = rng.normal(0.0, draw(st.sampled_from([0.0, 0.3, 3.0, 1e3, 1e9])), shape)
    noisy = hidden + (np.rint(noise) if draw(st.booleans()) else noise)
    return space_of(hidden, draw(st.sampled_from(MARGINS[dimensions])), zeros), noisy, hidden


@LAWS
@given(cases())
def test_a_fit_is_a_table_of_the_dataspace(case) -> None:  # type: ignore[no-untyped-def]
    space, noisy, hidden = case
    fit = fit_table(noisy, space)
    assert fit.counts is not None
    assert margins_exact(fit.counts, space)
    assert fit.bound <= fit.loss
    assert fit.gap >= 0
    assert fit.loss <= float(((hidden - noisy) ** 2).sum()) * (1 + 1e-9) + 1e-9 or not fit.optimal


@LAWS
@given(cases())
def test_a_fit_is_its_own_fit(case) -> None:  # type: ignore[no-untyped-def]
    space, noisy, _ = case
    once = fit_table(noisy, space).counts
    assert once is not None
    again = fit_table(once, space)
    assert np.array_equal(again.counts, once)
    assert (again.loss, again.gap) == (0.0, 0.0)


@pytest.mark.long
@LAWS
@given(cases())
def test_a_real_fit_has_the_margins_and_is_the_bound(case) -> None:  # type: ignore[no-untyped-def]
    space, noisy, _ = case
    totals = space.published_totals or (Totals(space.schema.grid.nothing, np.array(space.n)),)
    problem = pose(space.schema.grid, noisy, totals, space.schema.possible)
    fit = project(problem)
    assert (fit.table >= 0).all()
    scale = 1e-8 * max(1.0, space.n) + 1e-12 * float(np.abs(noisy).max())
    for margin, total in zip(space.margins, space.totals, strict=True):
        kept = space.schema.axes(margin.names)
        others = tuple(axis for axis in range(noisy.ndim) if axis not in kept)
        assert np.abs(fit.table.sum(axis=others) - total.counts).max() <= scale
    assert abs(fit.table.sum() - space.n) <= scale * noisy.size
    if space.schema.possible is not None:
        assert not fit.table[~space.schema.possible].any()
    assert problem.loss(fit.table) == pytest.approx(fit.bound, rel=1e-6, abs=1e-6)
    assert fit.bound <= fit_table(noisy, space).loss * (1 + 1e-9) + 1e-6


@LAWS
@given(cases())
def test_what_the_totals_fix_does_not_move_the_fit(case) -> None:  # type: ignore[no-untyped-def]
    """Adding a constant along a total changes every table's loss alike, so the optimum keeps its
    rank.
    """
    space, noisy, _ = case
    shifted = noisy + 7.0
    one, other = fit_table(noisy, space), fit_table(shifted, space)
    if one.optimal and other.optimal:
        assert one.counts is not None
        assert float(((one.counts - shifted) ** 2).sum()) == pytest.approx(
            other.loss, rel=1e-9, abs=1e-3
        )

"""Whole numbers of linked tables: both totals, nothing negative, and members that are sizes times
units.
"""

import itertools

import numpy as np
import pytest

from semidp.errors import Refused
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.promise.schema.margins import list_axes
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.fitting.tables import balance_members, fit_sizes
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.results.published_table import FitKind
from semidp.publish.statistics.tables import linked_fitting
from semidp.publish.statistics.tables.linked_fitting import fitted_kinds, refuse_unfitted
from tests.linked.test_agreement import CASES, linked


def every_count(levels, units, sizes, members):
    """All whole numbers of units by size with both totals."""
    for counts in itertools.product(range(units + 1), repeat=levels):
        if sum(counts) == units and int(np.dot(counts, sizes)) == members:
            yield np.array(counts)


def test_units_by_size_are_nearly_the_closest_with_both_totals():
    random = np.random.default_rng(1)
    exact, cases = 0, 0
    for _ in range(300):
        levels, least, units = (
            int(random.integers(2, 5)),
            int(random.integers(0, 2)),
            int(random.integers(1, 7)),
        )
        sizes = np.arange(least, least + levels)
        members = int(random.integers(sizes[0] * units, sizes[-1] * units + 1))
        estimate = random.normal(units / levels, 2, levels)
        found = fit_sizes(estimate, least, units, members)
        assert found.min() >= 0
        assert (found.sum(), found @ sizes) == (units, members)
        best = min(
            float(((counts - estimate) ** 2).sum())
            for counts in every_count(levels, units, sizes, members)
        )
        loss = float(((found - estimate) ** 2).sum())
        assert loss <= best + 8
        exact += loss <= best + 1e-9
        cases += 1
    assert cases == 300
    assert exact >= 285  # the search is local


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rho", ["1/50", "5"])
def test_whole_numbers_agree_in_every_place(name, rho):
    for seed in range(3):
        space, values = linked(name, seed=seed)
        mechanism = LinkedMechanism.calibrate(space, Budget.zcdp(rho))
        refuse_unfitted(mechanism)
        noisy = values + mechanism.noise(SeededRandomness(seed))
        residuals = mechanism.agreement.residuals(*space.split(noisy))
        kinds = tuple([FitKind.integer] * len(kind.views) for kind in space.kinds)
        members, units = fitted_kinds(mechanism, residuals, kinds, silent)
        for kind, fits in ((space.members, members), (space.units, units)):
            for view, (counts, how) in zip(kind.views, fits, strict=True):
                assert how.kind == "integer"
                assert counts.dtype.kind == "i"
                assert counts.min() >= 0
                for margin in kind.dataspace.published_totals:
                    shared = tuple(map(min, view, margin.view))
                    summed = kind.schema.grid.sum(counts, shared, view)
                    assert np.array_equal(
                        summed, kind.schema.grid.sum(margin.counts, shared, margin.view)
                    )
        agreed = 0
        for equation in mechanism.agreement.equations:
            persons = _rolled(space.members, members, equation.members)
            homes = _rolled(space.units, units, equation.sizes)
            place = list_axes(equation.sizes).index(space.dataspace.size_axis)
            sizes = mechanism.agreement.sizes.astype(int)
            assert np.array_equal(persons, np.moveaxis(homes, place, -1) @ sizes)
            agreed += persons.size
        assert agreed > 1


def _rolled(kind, fits, view):
    for whole, (counts, _) in zip(kind.views, fits, strict=True):
        if all(depth <= deeper for depth, deeper in zip(view, whole, strict=True)):
            return kind.schema.grid.sum(counts, view, whole)
    raise AssertionError("no table has the view")


def _in_tenure(seed, monkeypatch=None):
    """How the tables of units by size and tenure at three depths are fitted."""
    space, values = linked("tenure at three depths", seed=seed)
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp("1/50"))
    noisy = values + mechanism.noise(SeededRandomness(seed))
    residuals = mechanism.agreement.residuals(*space.split(noisy))
    kinds = tuple([FitKind.integer] * len(kind.views) for kind in space.kinds)
    if monkeypatch is not None:
        nothing = tuple(0 for _ in space.units.schema.features)
        monkeypatch.setattr(linked_fitting, "_beside_sizes", lambda *_: nothing)
    _, units = fitted_kinds(mechanism, residuals, kinds, silent)
    return [how for _, how in units]


def test_sizes_by_tenure_go_down_the_places_together(monkeypatch):
    methods = [how.method for seed in range(2) for how in _in_tenure(seed)]
    assert methods == ["sizes first"] * 6
    # the twin: sizes of tracts that are fitted before tenure close a circle with the states
    alone = [how.note for seed in range(2) for how in _in_tenure(seed, monkeypatch)]
    assert any("no whole numbers agreed with all" in note for note in alone)


def test_a_whole_unit_is_protected_with_noisy_units_by_place():
    own = CASES["tracts"]
    CASES["noisy units"] = (own[0], [], [], own[3], own[4])
    try:
        space, values = linked("noisy units", protect="unit")
    finally:
        del CASES["noisy units"]
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp("1/5"))
    residuals = mechanism.agreement.residuals(
        *space.split(values + mechanism.noise(SeededRandomness(1)))
    )
    members, units = fitted_kinds(
        mechanism, residuals, ([FitKind.integer], [FitKind.integer]), silent
    )
    sizes = mechanism.agreement.sizes.astype(int)
    assert np.array_equal(units[0][0] @ sizes, members[0][0].sum(axis=1))
    assert units[0][0].sum() == space.units.dataspace.n


def test_members_that_do_not_fit_are_refused():
    with pytest.raises(Refused, match="do not fit"):
        fit_sizes(np.ones(3), 1, 4, 13)


def test_exchanges_of_units_bring_members_near_and_keep_all_totals():
    random = np.random.default_rng(7)
    nearer = 0
    for _ in range(60):
        places, levels = int(random.integers(2, 6)), int(random.integers(2, 6))
        counts = random.integers(0, 9, (places, levels))
        estimate = counts + random.normal(0, 2, counts.shape)
        sizes = np.arange(1, levels + 1)
        targets = estimate @ sizes + (counts @ sizes - estimate @ sizes).sum() / places
        balanced = balance_members(counts, estimate, 1, targets)
        assert balanced.min() >= 0
        assert np.array_equal(balanced.sum(axis=0), counts.sum(axis=0))
        assert np.array_equal(balanced.sum(axis=1), counts.sum(axis=1))
        before, after = (
            float(np.square(table @ sizes - targets).sum()) for table in (counts, balanced)
        )
        assert after <= before + 1e-9
        nearer += after < before / 2
    assert nearer > 30


def test_units_of_the_same_tenure_are_exchanged():
    random = np.random.default_rng(8)
    nearer = 0
    for _ in range(60):
        places, tenures, levels = (int(random.integers(2, 5)) for _ in range(3))
        counts = random.integers(0, 9, (places, tenures, levels))
        estimate = counts + random.normal(0, 2, counts.shape)
        sizes = np.arange(1, levels + 1)
        targets = random.permutation((counts @ sizes).sum(axis=1)).astype(float)
        balanced = balance_members(counts, estimate, 1, targets)
        assert balanced.min() >= 0
        assert np.array_equal(balanced.sum(axis=0), counts.sum(axis=0))
        assert np.array_equal(balanced.sum(axis=2), counts.sum(axis=2))
        before, after = (
            float(np.square((table @ sizes).sum(axis=1) - targets).sum())
            for table in (counts, balanced)
        )
        assert after <= before + 1e-9
        nearer += after < before / 2
    assert nearer > 20

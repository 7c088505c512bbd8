"""Estimates of members and units that agree: dense least squares, exact totals, standard errors."""

import math

import numpy as np
import pytest

from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import list_axes
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.linked_products import linked_space
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.linked import Link, LinkedDataspace, linked_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.product_estimates import assemble_tables, spread_residual, sum_residuals

PLACES = Feature.from_paths(
    ["state", "county", "tract"],
    [
        ("A", "a", "a1"),
        ("A", "a", "a2"),
        ("A", "b", "b1"),
        ("B", "c", "c1"),
        ("B", "c", "c2"),
        ("B", "c", "c3"),
    ],
)
TENURE = Feature("tenure", ["own", "rent"])
SEX = Feature("sex", ["f", "m"])
KIND = Feature("type", ["0", "1", "2"])


def population(seed, least, most, own, households=60):
    """Tables of households and of their persons, both over all features."""
    random = np.random.default_rng(seed)
    sizes = Feature("size", [str(size) for size in range(least, most + 1)])
    units = np.zeros((*(len(part.levels) for part in own), len(sizes.levels), 3), dtype=np.int64)
    members = np.zeros((*(len(part.levels) for part in own), 2), dtype=np.int64)
    for number in range(households):
        # every place has a household
        place = tuple(
            number % len(part.levels) if number < 6 else random.integers(len(part.levels))
            for part in own
        )
        size = int(random.integers(least, most + 1))
        women = int(random.integers(0, size + 1))
        units[(*place, size - least, min(women, 2))] += 1
        members[(*place, 0)] += women
        members[(*place, 1)] += size - women
    return Table(Schema([*own, sizes, KIND]), units), Table(Schema([*own, SEX]), members)


CASES = {
    "tracts": ((PLACES,), [], [["tract"]], [["tract", "sex"]], [["tract", "size"]]),
    "states exact": (
        (PLACES,),
        [["state"]],
        [["tract"]],
        [["tract", "sex"]],
        [["tract", "size", "type"]],
    ),
    "coarser units": (
        (PLACES,),
        [["sex"]],
        [["county"]],
        [["tract", "sex"]],
        [["county", "size"], ["state", "type"]],
    ),
    "tenure": (
        (PLACES, TENURE),
        [["state"]],
        [["county", "tenure"]],
        [["county", "tenure", "sex"]],
        [["county", "tenure", "size"]],
    ),
    "tenure at three depths": (
        (PLACES, TENURE),
        [["state"]],
        [["tract", "tenure"]],
        [["county", "sex"], ["tract", "sex"]],
        [["state", "size", "tenure"], ["county", "size", "tenure"], ["tract", "size", "tenure"]],
    ),
    "apart": (
        (PLACES, TENURE),
        [],
        [["county"], ["tenure"]],
        [["county", "sex"], ["tenure"]],
        [["county", "size"], ["tenure", "size"]],
    ),
}


def linked(name, protect="member", seed=5, least=1, most=4):
    own, exact, exact_units, tables, unit_tables = CASES[name]
    units, members = population(seed, least, most, own)
    public = LinkedDataspace.joining(
        Dataspace.from_table(members, [Margin(*names) for names in exact]),
        Dataspace.from_table(units, [Margin(*names) for names in exact_units]),
        Link(protect, least, most, ("size", "type")),
    )
    space = linked_space(public, linked_adjacency(public, "exchange"), tables, unit_tables)
    values = space.measure(
        [members.margin(names) for names in tables], [units.margin(names) for names in unit_tables]
    )
    return space, values


def centring(residuals, view):
    """H_d as a matrix."""
    size = math.prod(residuals.shape(view))
    units = np.eye(size).reshape(-1, *residuals.shape(view))
    return np.stack([residuals.center(view, unit).ravel() for unit in units], axis=1)


class Dense:
    """All residuals of both kinds in one vector, their covariance, and what must agree, as
    matrices.
    """

    def __init__(self, mechanism):
        self.mechanism, self.agreement = mechanism, mechanism.agreement
        self.slices, start, blocks = {}, 0, []
        for part in mechanism.parts:
            for view in part.space.needed_residuals:
                centred = centring(part.space.residuals, view)
                size = len(centred)
                self.slices[part.space.counted, view] = slice(start, start + size)
                start += size
                blocks.append(float(part.sigma2.get(view, 0)) * centred)
        self.size = start
        self.covariance = np.zeros((start, start))
        place = 0
        for block in blocks:
            self.covariance[place : place + len(block), place : place + len(block)] = block
            place += len(block)
        rows = []
        for equation in self.agreement.equations:
            own = mechanism.units.space.residuals.shape(equation.units)
            for entry in np.ndindex(own):
                rows.append(self._row(equation, entry))
        self.constraint = np.array(rows)

    def _row(self, equation, entry):
        """Members less sizes times units, at one entry."""
        row = np.zeros(self.size)
        residuals = self.mechanism.units.space.residuals
        sizes, mean = self.agreement.sizes, self.agreement.sizes.mean()
        row[self._at("member", equation.members, entry, self.mechanism.members.space.residuals)] = 1
        row[self._at("unit", equation.units, entry, residuals)] = -mean
        place = list_axes(equation.sizes).index(self.agreement.public.size_axis)
        for level, size in enumerate(sizes):
            whole = (*entry[:place], level, *entry[place:])
            row[self._at("unit", equation.sizes, whole, residuals)] = -(size - mean)
        return row

    def _at(self, kind, view, entry, residuals):
        shape = residuals.shape(view)
        flat = int(np.ravel_multi_index(entry, shape)) if shape else 0
        return self.slices[kind, view].start + flat

    @property
    def gain(self):
        crossed = self.constraint @ self.covariance @ self.constraint.T
        return self.covariance @ self.constraint.T @ np.linalg.pinv(crossed, rcond=1e-10)

    def vector(self, members, units):
        result = np.zeros(self.size)
        for (kind, view), place in self.slices.items():
            result[place] = (members if kind == "member" else units)[view].ravel()
        return result


@pytest.mark.parametrize("name", CASES)
def test_the_correction_is_constrained_least_squares(name):
    space, values = linked(name)
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp("1/50"))
    noisy = values + mechanism.noise(SeededRandomness(3))
    members, units = space.split(noisy)
    dense = Dense(mechanism)
    before = dense.vector(
        {**space.members.exact_residuals, **space.members.split_residuals(members)},
        {**space.units.exact_residuals, **space.units.split_residuals(units)},
    )
    after = dense.vector(*mechanism.agreement.residuals(members, units))
    expected = before - dense.gain @ (dense.constraint @ before)
    assert np.abs(dense.constraint @ before).max() > 0.5
    assert np.abs(dense.constraint @ after).max() < 1e-8
    assert np.abs(after - expected).max() < 1e-7


@pytest.mark.parametrize("name", CASES)
def test_standard_errors_are_those_of_least_squares(name):
    space, _ = linked(name)
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp("1/50"))
    dense, agreement = Dense(mechanism), mechanism.agreement
    covariance = dense.covariance - dense.gain @ dense.constraint @ dense.covariance
    smaller = 0
    for which, part in enumerate(mechanism.parts):
        kind = part.space
        for number, view in enumerate(kind.views):
            rows = np.zeros((math.prod(kind.residuals.shape(view)), dense.size))
            for small in kind.needed_residuals:
                place = dense.slices[kind.counted, small]
                if all(depth <= whole for depth, whole in zip(small, view, strict=True)):
                    for entry in range(place.stop - place.start):
                        unit = np.zeros(place.stop - place.start)
                        unit[entry] = 1
                        spread = spread_residual(
                            kind.residuals, unit.reshape(kind.residuals.shape(small)), small, view
                        )
                        rows[:, place.start + entry] = spread.ravel()
            expected = np.diag(rows @ covariance @ rows.T)
            found = kind.trim(agreement.variances(which, number), view).ravel()
            assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
            smaller += int(
                (found < kind.trim(part.cell_variances(number), view).ravel() - 1e-9).any()
            )
    assert smaller


@pytest.mark.parametrize("name", CASES)
def test_estimates_agree_in_every_place_and_keep_exact_totals(name):
    space, values = linked(name)
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp("1/50"))
    noisy = values + mechanism.noise(SeededRandomness(8))
    members, units = mechanism.agreement.residuals(*space.split(noisy))
    assert mechanism.agreement.deepest
    for equation in mechanism.agreement.deepest:
        persons = sum_residuals(space.members.residuals, members, equation.members)
        homes = sum_residuals(space.units.residuals, units, equation.sizes)
        place = list_axes(equation.sizes).index(space.dataspace.size_axis)
        counted = np.moveaxis(homes, place, -1) @ mechanism.agreement.sizes
        assert np.allclose(persons, counted, atol=1e-7)
    for kind, residuals in ((space.members, members), (space.units, units)):
        for view, table in zip(kind.views, assemble_tables(kind, residuals), strict=True):
            for margin in kind.dataspace.published_totals:
                shared = tuple(map(min, view, margin.view))
                if any(shared):
                    summed = kind.schema.grid.sum(table, shared, view)
                    exact = kind.schema.grid.sum(margin.counts, shared, margin.view)
                    assert np.allclose(summed, exact, atol=1e-7)


def test_the_whole_budget_is_spent_on_both_kinds():
    space, _ = linked("tenure")
    for budget in (Budget.zcdp("1/2"), Budget.gdp(1)):
        mechanism = LinkedMechanism.calibrate(space, budget)
        assert mechanism.precision == 1
        assert 0.99 < float(mechanism.spent) <= 1
        assert mechanism.members.precision > 0 < mechanism.units.precision

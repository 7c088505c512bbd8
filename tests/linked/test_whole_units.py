"""The promise about a whole unit against every small world: any unit may be any other possible
one.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from attrs import frozen

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.linked_products import MemberCosts, UnitCosts
from semidp.promise.sensitivity.orthogonal_parts import Residuals, list_coarser_views
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.linked import Link, LinkedDataspace

REGION = Feature("region", ["n", "s"])
WARD = Feature("ward", ["a", "b"])


@frozen
class Hospital:
    """Patients with a region and some stays, each in a ward; what of it is exact."""

    patients: int
    stays: int
    least: int
    most: int
    exact_stays: tuple[str, ...]
    exact_patients: tuple[str, ...]

    @property
    def kinds(self):
        fills = []
        for size in range(self.least, self.most + 1):
            fills += itertools.combinations_with_replacement(range(2), size)
        return list(itertools.product(range(2), fills))

    def datasets(self):
        """Every dataset of labelled patients with so many stays."""
        for patients in itertools.product(self.kinds, repeat=self.patients):
            if sum(len(fill) for _, fill in patients) == self.stays:
                yield patients

    def member_table(self, patients):
        table = np.zeros((2, 2), dtype=np.int64)
        for region, fill in patients:
            for ward in fill:
                table[region, ward] += 1
        return table

    def unit_table(self, patients):
        table = np.zeros((2, self.most - self.least + 1, 2), dtype=np.int64)
        for region, fill in patients:
            table[region, len(fill) - self.least, int(len(set(fill)) > 1)] += 1
        return table

    def totals(self, patients):
        stays = self.member_table(patients).sum(axis=0) if self.exact_stays else ()
        regions = [region for region, _ in patients]
        return tuple(stays), regions.count(0) if self.exact_patients else 0

    def public(self, patients):
        sizes = Feature("size", [str(size) for size in range(self.least, self.most + 1)])
        members = Table(Schema([REGION, WARD]), self.member_table(patients))
        units = Table(
            Schema([REGION, sizes, Feature("type", ["0", "1"])]), self.unit_table(patients)
        )
        link = Link("unit", self.least, self.most, ("size", "type"))
        return LinkedDataspace.joining(
            Dataspace.from_table(members, [Margin(name) for name in self.exact_stays]),
            Dataspace.from_table(units, [Margin(name) for name in self.exact_patients]),
            link,
        )

    def possible(self, kind, patients):
        """Whether a patient may be so: no more of a value than is published, and the others hold
        the rest.
        """
        region, fill = kind
        if self.exact_patients and region not in {where for where, _ in patients}:
            return False
        counts = Counter(fill)
        there = self.member_table(patients).sum(axis=0)
        if self.exact_stays and any(counts[ward] > there[ward] for ward in range(2)):
            return False
        left, others = self.stays - len(fill), self.patients - 1
        return self.least * others <= left <= self.most * others


def squares(schema, move):
    residuals = Residuals(schema.grid)
    found = {}
    for view in list_coarser_views(schema.grid.full):
        if any(view) and residuals.varies(view):
            part = residuals.center(view, residuals.table(move, schema.grid.full, view))
            found[view] = float((part**2).sum())
    return found


HOSPITALS = [
    Hospital(3, 3, 0, 2, (), ()),
    Hospital(3, 4, 1, 2, (), ("region",)),
    Hospital(3, 3, 0, 2, ("ward",), ("region",)),
    Hospital(3, 4, 1, 2, ("ward",), ()),
    Hospital(2, 2, 0, 2, (), ()),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("hospital", HOSPITALS)
def test_every_patient_may_be_every_possible_other_one(hospital):
    by_totals = {}
    for patients in hospital.datasets():
        by_totals.setdefault(hospital.totals(patients), []).append(patients)
    asked = 0
    for datasets in by_totals.values():
        public = hospital.public(datasets[0])
        reach = public.reach
        member_costs = MemberCosts(public, Residuals(public.schema.grid), True)
        unit_costs = UnitCosts(public, Residuals(public.units.schema.grid), True)
        members = np.array([hospital.member_table(patients) for patients in datasets])
        units = np.array([hospital.unit_table(patients) for patients in datasets])
        regions = np.array([[region for region, _ in patients] for patients in datasets])
        sizes = np.array([[len(fill) for _, fill in patients] for patients in datasets])
        codes = np.array(
            [[hospital.kinds.index(kind) for kind in patients] for patients in datasets]
        )
        seen = set()
        for place, patients in enumerate(datasets):
            if tuple(sorted(patients)) in seen:
                continue
            seen.add(tuple(sorted(patients)))
            moved = np.abs(members - members[place]).sum(axis=(1, 2)) // 2
            near = moved <= reach.members
            near &= (regions != regions[place]).sum(axis=1) <= reach.own_units
            other_size = (regions != regions[place]) | (sizes != sizes[place])
            near &= other_size.sum(axis=1) <= reach.size_units
            near &= (codes != codes[place]).sum(axis=1) <= reach.derived_units
            for patient in range(hospital.patients):
                for code, kind in enumerate(hospital.kinds):
                    if not hospital.possible(kind, patients):
                        continue
                    asked += 1
                    reached = np.flatnonzero(near & (codes[:, patient] == code))
                    assert len(reached), (patients, patient, kind)
                    assert any(
                        _within(
                            member_costs, squares(public.schema, members[other] - members[place])
                        )
                        and _within(
                            unit_costs, squares(public.units.schema, units[other] - units[place])
                        )
                        for other in reached
                    )
    assert asked > 50


def _within(costs, found):
    excess = [
        square
        for view, square in found.items()
        if square > 1e-12 and square > float(costs.cost(view)) + 1e-9
    ]
    return not excess


@pytest.mark.few(2)
@pytest.mark.parametrize("hospital", HOSPITALS)
def test_no_pair_within_the_numbers_costs_more_than_the_ball(hospital):
    by_totals = {}
    for patients in hospital.datasets():
        by_totals.setdefault(hospital.totals(patients), []).append(patients)
    pairs, attained = 0, 0
    for datasets in by_totals.values():
        public = hospital.public(datasets[0])
        reach = public.reach
        member_costs = MemberCosts(public, Residuals(public.schema.grid), False)
        unit_costs = UnitCosts(public, Residuals(public.units.schema.grid), False)
        member_moves, unit_moves = set(), set()
        for one, other in itertools.product(datasets[:: max(1, len(datasets) // 30)], datasets):
            own = sum(a[0] != b[0] for a, b in zip(one, other, strict=True))
            size = sum(
                (a[0], len(a[1])) != (b[0], len(b[1])) for a, b in zip(one, other, strict=True)
            )
            any_unit = sum(a != b for a, b in zip(one, other, strict=True))
            if own > reach.own_units or size > reach.size_units or any_unit > reach.derived_units:
                continue
            move = hospital.member_table(other) - hospital.member_table(one)
            if np.abs(move).sum() // 2 > reach.members:
                continue
            pairs += 1
            member_moves.add(tuple(move.ravel().tolist()))
            unit_moves.add(
                tuple((hospital.unit_table(other) - hospital.unit_table(one)).ravel().tolist())
            )
        for costs, schema, moves in (
            (member_costs, public.schema, member_moves),
            (unit_costs, public.units.schema, unit_moves),
        ):
            largest: dict = {}
            for move in moves:
                for view, square in squares(schema, np.array(move).reshape(schema.shape)).items():
                    largest[view] = max(largest.get(view, 0.0), square)
            for view, square in largest.items():
                if square > 1e-12:
                    claimed = float(costs.cost(view))
                    assert square <= claimed + 1e-9, (view, square, claimed)
                    attained += abs(square - claimed) < 1e-9
    assert pairs > 100
    assert attained > 0

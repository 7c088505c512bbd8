"""Releases of linked persons and households, combined: dense least squares, the guarantee, the
folder, and what is refused.
"""

import json
from functools import cache

import numpy as np
import pytest
from attrs import evolve

import semidp
from semidp import Budget, Plan, combine
from semidp.cli import run
from semidp.errors import InputError, Refused
from semidp.inference.combined.releases_together import find_combination
from semidp.inference.combined.residual_combination import LinkedCombination
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.spaces.adjacency import Exchange
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.recheck import recheck
from tests.combining.dense import null_space
from tests.linked.test_release import AGES, SEX, homes_and_persons, plan_of, released

ZONES = semidp.Nest(["state", "zone"])
FIRST = [["zone", "sex"], ["units:zone", "size"]]
SECOND = [["zone", "sex", "age"], ["units:zone", "size", "type"]]
WIDE = Budget.zcdp("1/50")


@cache
def linked(tables: str, exact: str, seed: int, **more: str) -> semidp.Release:
    """A release of linked tables; wide noise, so that its variance is σ² to nine digits."""
    asked = {"first": FIRST, "second": SECOND}[tables]
    options = {"adjacency": "exchange", "protect": "member", **more}
    plan = plan_of(asked, exact.split(), budget=WIDE, derived=["type"], **options)
    return released(plan, seed=seed)


@cache
def top_coded(seed: int) -> semidp.Release:
    """A release that shows units of three members and more as one level."""
    plan = plan_of(SECOND, adjacency="exchange", budget=WIDE, derived=["type"])
    (request,) = plan.requests
    return released(evolve(plan, requests=[evolve(request, top_code={"size": 3})]), seed=seed)


@cache
def persons() -> dict[str, list[str]]:
    """The persons by themselves, with the zones of their homes."""
    members, homes = homes_and_persons()
    place = dict(zip(homes["home"].tolist(), range(len(homes["home"])), strict=True))
    at = [place[home] for home in members["home"].tolist()]
    return {
        "state": homes["state"][at].tolist(),
        "zone": homes["zone"][at].tolist(),
        "sex": members["sex"].tolist(),
        "age": members["age"].tolist(),
    }


@cache
def alone(kind: str, seed: int) -> semidp.Release:
    """A release of persons alone: one table with noise on its cells, or a product."""
    features, nests = [AGES, SEX], []
    if kind == "cells":
        requests = [TableRequest(["sex", "age"], WIDE, mechanism="gaussian")]
    else:
        tables = [TableRequest(["zone", "sex"]), TableRequest(["sex", "age"])]
        requests, nests = [TablesRequest(tables, WIDE)], [ZONES]
    plan = Plan(
        requests,
        [],
        features=features,
        nests=nests,
        adjacency="exchange",
        levels_from_data=True,
    )
    return semidp.run(plan, persons(), SeededRandomness(seed))


class Dense:
    """Least squares over all cells of persons and homes at once, from what releases state alone."""

    def __init__(self, combination: LinkedCombination) -> None:
        self.public = combination.dataspace
        self.kinds = combination.space.kinds
        self.sizes = [kind.schema.size for kind in self.kinds]
        noisy, values, weights = [], [], []
        for one in combination.pool.measured:
            finest = max(one.residuals, key=sum)
            # The cells of a table measure all its residuals, by the same numbers.
            whole = one.residuals[finest].numbers == slice(0, one.noisy.size)
            is_table = whole and len(one.residuals) > 1
            for view in [finest] if is_table else one.residuals:
                design = self.rows(one.kind, view)
                measured = one.residuals[view]
                value = measured.values.ravel()
                if not is_table:
                    centring = self.centring(one.kind, view)
                    design, value = centring @ design, centring @ value
                noisy.append(design)
                values.append(value)
                weights.append(np.full(len(value), 1 / measured.variances.mean()))
        exact, targets = [], []
        for which, public in enumerate((self.public.members, self.public.units)):
            exact.append(self.rows(which, public.schema.grid.nothing))
            targets.append(np.array([public.n]))
            for total in public.published_totals:
                exact.append(self.rows(which, total.view))
                targets.append(np.asarray(total.counts).ravel())
        for equation in combination.mechanism.agreement.equations:
            units = self.rows(1, equation.sizes).reshape(-1, len(self.public.link.sizes), self.n)
            sizes = np.array([int(size) for size in self.public.link.sizes])
            living = np.einsum("psn,s->pn", units, sizes)
            exact.append(self.rows(0, equation.members) - living)
            targets.append(np.zeros(len(living)))
        restriction, target = np.concatenate(exact), np.concatenate(targets)
        free = null_space(restriction)
        start = np.linalg.lstsq(restriction, target, rcond=None)[0]
        assert np.abs(restriction @ start - target).max() < 1e-6
        scale = np.sqrt(np.concatenate(weights))[:, None]
        design = np.concatenate(noisy)
        reduced = scale * (design @ free)
        gap = scale[:, 0] * (np.concatenate(values) - design @ start)
        inverse = np.linalg.pinv(reduced, rcond=1e-9)
        self.mean = start + free @ (inverse @ gap)
        self.root = free @ inverse

    @property
    def n(self) -> int:
        return sum(self.sizes)

    def rows(self, which: int, view: tuple[int, ...]) -> np.ndarray:
        """Sums of cells at a view, on the cells of both kinds."""
        grid = self.kinds[which].schema.grid
        units = np.eye(self.sizes[which]).reshape(-1, *self.kinds[which].schema.shape)
        columns = [np.asarray(grid.sum(unit, view, grid.full)).ravel() for unit in units]
        part = np.stack(columns, axis=1)
        before = np.zeros((len(part), self.sizes[0] if which else 0))
        after = np.zeros((len(part), 0 if which else self.sizes[1]))
        return np.concatenate([before, part, after], axis=1)

    def centring(self, which: int, view: tuple[int, ...]) -> np.ndarray:
        residuals = self.kinds[which].residuals
        shape = residuals.shape(view)
        units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
        return np.stack([residuals.center(view, unit).ravel() for unit in units], axis=1)


SETS = {
    "two": lambda: [linked("first", "units:zone", 3), linked("second", "units:zone", 4)],
    "other totals": lambda: [
        linked("first", "units:zone sex", 5),
        linked("second", "units:zone state", 6),
    ],
    "three": lambda: [linked("second", "units:zone", seed) for seed in (7, 8, 9)],
    "top coded": lambda: [linked("first", "units:zone", 3), top_coded(13)],
    "with cells": lambda: [linked("first", "units:zone", 3), alone("cells", 10)],
    "with a product": lambda: [alone("product", 11), linked("second", "units:zone sex", 12)],
    "with both": lambda: [
        linked("second", "units:zone", 4),
        alone("cells", 10),
        alone("product", 11),
    ],
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SETS)
def test_values_and_variances_are_those_of_dense_least_squares(name: str) -> None:
    releases = SETS[name]()
    both = combine(*releases)
    combination = find_combination(both)
    assert isinstance(combination, LinkedCombination)
    dense = Dense(combination)
    compared = 0
    for table in both.tables:
        which = int(table.counted == "unit")
        schema = dense.kinds[which].schema
        rows = dense.rows(which, schema.view(table.schema.names))
        assert np.abs(rows @ dense.mean - table.estimate.ravel()).max() < 1e-6
        variances = np.square(rows @ dense.root).sum(axis=1)
        # Discrete noise of this width has the variance σ² to nine digits.
        np.testing.assert_allclose(table.standard_errors.ravel() ** 2, variances, 1e-7, 1e-7)
        # Weights on every drawn number give the same variance.
        unit = np.zeros(table.estimate.shape)
        unit.flat[0] = 1.0
        assert both.estimate({table.name: unit})[1] == pytest.approx(
            table.standard_errors.flat[0], rel=1e-6, abs=1e-9
        )
        compared += table.estimate.size
    assert compared >= 40
    agree(both)
    better(both, releases)


def agree(both: semidp.Release) -> None:
    """Sizes times homes are persons, in whole numbers, in every zone."""
    persons_by_zone = next(table for table in both.tables if table.counted == "member")
    homes = next(table for table in both.tables if table.counted == "unit")
    living = np.moveaxis(homes.counts, 1, -1).reshape(len(homes.counts), -1, 6).sum(axis=1)
    members = persons_by_zone.counts.reshape(len(homes.counts), -1).sum(axis=1)
    assert np.array_equal(living @ np.arange(1, 7), members)
    assert all(table.keeps(both.scope.dataspace) for table in both.tables)


def better(both: semidp.Release, releases: list[semidp.Release]) -> None:
    """No cell is worse than in the better release."""
    compared = 0
    for table in both.tables:
        for release in releases:
            for one in release.tables:
                names = {feature.name for feature in one.schema.features}
                same = names == {feature.name for feature in table.schema.features}
                if not same or (one.counted == "unit") != (table.counted == "unit"):
                    continue
                order = [one.schema.axis(part.name) for part in table.schema.features]
                errors = np.transpose(one.standard_errors, order)
                # Sizes that a release shows as one level are shown one by one here.
                if errors.shape != table.standard_errors.shape:
                    continue
                assert (table.standard_errors <= errors + 1e-6).all()
                compared += 1
    assert compared >= 1


def test_the_guarantee_is_that_of_all_under_all_exact_totals() -> None:
    """Costs anew: persons by sex cost more once the other release publishes the sexes."""
    first, second = linked("first", "units:zone sex", 5), linked("second", "units:zone", 4)
    both = combine(first, second)
    assert isinstance(both.guarantee.adjacency, Exchange)
    stated = [release.guarantee.tradeoff.rho for release in (first, second)]
    assert both.guarantee.tradeoff.implied_rho() > sum(stated)
    alike = combine(linked("second", "units:zone", 7), linked("second", "units:zone", 8))
    assert alike.guarantee.tradeoff.implied_rho() == pytest.approx(2 * float(stated[1]))
    units = [linked("second", "units:zone", seed, protect="unit") for seed in (1, 2)]
    assert combine(*units).guarantee.adjacency.protection is not None


def test_a_release_of_persons_alone_leaves_no_guarantee() -> None:
    both = combine(linked("first", "units:zone", 3), alone("cells", 10))
    assert both.stated is None
    assert any("makes another promise" in warning for warning in both.scope.warnings)
    ball = linked("second", "units:zone", 4, adjacency="worst-case")
    assert combine(linked("first", "units:zone", 3), ball).stated is None


def test_several_promises_and_the_same_measurement_are_refused() -> None:
    member = linked("first", "units:zone", 3)
    with pytest.raises(Refused, match="all make one promise"):
        combine(member, linked("second", "units:zone", 4, protect="unit"))
    with pytest.raises(InputError, match="the same measurement"):
        combine(member, member)
    fewer = released(
        plan_of(FIRST, adjacency="exchange", derived=["type"]), homes_and_persons(180), seed=3
    )
    with pytest.raises(InputError, match="not of the same records"):
        combine(member, fewer)
    knorm = Plan(
        [TableRequest(["sex", "age"], Budget.pure(1), mechanism="l2")],
        ["sex"],
        features=[AGES, SEX],
    )
    with pytest.raises(Refused, match="noise on cells is, and noise"):
        combine(member, semidp.run(knorm, persons(), SeededRandomness(1)))
    nested = Plan(
        [TableRequest(["zone"], Budget.zcdp(1), mechanism="gaussian")],
        nests=[ZONES],
        levels_from_data=True,
    )
    with pytest.raises(Refused, match="siblings have more or fewer cells"):
        combine(member, semidp.run(nested, persons(), SeededRandomness(1)))


def test_half_widths_hold_by_the_law_of_everything_that_was_drawn() -> None:
    """Draws of the noise of one cell of each table: 20,000 each, so that a standard error of the
    rate is 0.0015.
    """
    both = combine(*SETS["with both"]())
    combination = find_combination(both)
    assert isinstance(combination, LinkedCombination)
    random = SeededRandomness(5)
    held, narrow = [], []
    for number, table in enumerate(both.tables):
        unit = np.zeros(table.estimate.shape)
        unit.flat[0] = 1.0
        errors = combination.weigh_noise({number: unit[None]}).draw(20_000, random)[:, 0]
        assert table.half_widths is not None
        half = table.half_widths.flat[0]
        held.append(np.mean(np.abs(errors) <= half))
        narrow.append(np.mean(np.abs(errors) <= 0.9 * half))
        assert np.std(errors) == pytest.approx(table.standard_errors.flat[0], rel=0.03)
    assert len(held) == 4
    assert 0.943 < min(held) <= max(held) < 0.96
    assert max(narrow) < 0.943


@pytest.mark.long
def test_intervals_of_combined_linked_releases_hold_as_often_as_they_say() -> None:
    """40 pairs of releases: every cell of every table, against the true counts."""
    truth = released(plan_of(SECOND, derived=["type"], budget=Budget.zcdp(10**6)), seed=1)
    counts = {table.name: table.counts for table in truth.tables}
    held, narrow, squares = [], [], []
    for seed in range(40):
        both = combine(
            linked.__wrapped__("second", "units:zone", 1000 + seed),
            alone.__wrapped__("cells", seed),
        )
        for table in both.tables:
            if table.name not in counts:
                continue
            errors = np.abs(table.estimate - counts[table.name])
            held.append((errors <= table.half_widths).mean())
            narrow.append((errors <= 0.85 * table.half_widths).mean())
            squares.append(np.square(errors / table.standard_errors).mean())
    assert len(held) == 80
    # Cells of one release are correlated; the mean of 80 shares has an error of about 0.005.
    assert 0.93 < np.mean(held) < 0.97
    assert np.mean(narrow) < 0.93
    assert 0.9 < np.mean(squares) < 1.1


@pytest.mark.long
def test_the_folder_is_a_release_like_any_other(tmp_path, capsys) -> None:
    releases = [linked("first", "units:zone sex", 5), linked("second", "units:zone", 4)]
    for number, release in enumerate(releases):
        release.save(tmp_path / str(number))
    both = str(tmp_path / "both")
    assert run(["combine", str(tmp_path / "0"), str(tmp_path / "1"), "--out", both]) == 0
    assert "units-zone-size" in capsys.readouterr().out
    assert run(["show", both]) == 0
    release = semidp.Release.load(both)
    document = json.loads((tmp_path / "both" / "release.json").read_text())
    assert recheck(release, document, tmp_path / "both").disagreements == ()
    assert run(["intervals", both, "--of", "sex=f", "--of", "zone=A1"]) == 0
    words = ["intervals", both, "--sum", "gap: zone-sex[sex=f] - 2 * zone-sex-age[sex=m]"]
    assert run(words) == 0
    # members of one unit may be alike: the exact test is refused, and the model allows for it
    assert run(["test", both, "--rows", "sex", "--columns", "age", "--seed", "1"]) == 2
    assert run(["model", both, "sex ~ age"]) == 0
    homes = ["--units-out", str(tmp_path / "homes.csv")]
    assert run(["synthesize", both, "--out", str(tmp_path / "records.csv"), *homes]) == 0
    page = (tmp_path / "both" / "report.html").read_text()
    assert "releases of the same records are combined" in page
    assert "sizes times units is the number of members" in page
    # A changed number is noticed.
    document["combined"][0]["tables"][0]["largest_standard_error"] = 0.1
    (tmp_path / "both" / "release.json").write_text(json.dumps(document))
    assert run(["show", both]) == 1


@pytest.mark.long
def test_a_linked_release_by_parts_is_combined_like_one_in_one_piece(tmp_path) -> None:
    from tests.linked.test_parts import case
    from tests.partitions.conftest import run_partitioned

    plan, data = case("tracts", rho="1/50")
    run_partitioned(plan, data, tmp_path / "parts", "state", randomness=SeededRandomness(4))
    parts = semidp.Release.load(tmp_path / "parts")
    whole = semidp.run(plan, data, SeededRandomness(5))
    both = combine(parts, whole)
    combination = find_combination(both)
    assert isinstance(combination, LinkedCombination)
    dense = Dense(combination)
    compared = 0
    for table in both.tables:
        which = int(table.counted == "unit")
        rows = dense.rows(which, dense.kinds[which].schema.view(table.schema.names))
        assert np.abs(rows @ dense.mean - table.estimate.ravel()).max() < 1e-6
        np.testing.assert_allclose(
            table.standard_errors.ravel() ** 2, np.square(rows @ dense.root).sum(axis=1), 1e-6, 1e-6
        )
        compared += table.estimate.size
    assert compared > 40
    both.save(tmp_path / "both")
    again = semidp.Release.load(tmp_path / "both")
    assert np.allclose(again.tables[0].estimate, both.tables[0].estimate)

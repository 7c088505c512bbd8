"""Part by part against one piece: the same estimates, fitted both ways, for random plans.

Whatever one piece fits, parts fit: nonnegative whole numbers that add up at every depth and have
every exact total, as close to the estimates. Plans are drawn at random, with tables and exact
totals at several depths.
"""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from attrs import frozen

from semidp import Budget, Feature, Plan, Release, SemidpError, Table
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.documents import read_document
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.promise.schema.margins import (
    Chain,
    Grid,
    Totals,
    View,
    is_within_view,
    junction_order,
    meet,
)
from semidp.promise.sensitivity.products import ProductSpace
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.product_estimates import estimate_tables
from semidp.publish.recheck import disagreements
from semidp.publish.results.published_table import FitKind
from semidp.publish.sources.opening import open_source
from semidp.publish.statistics.parts import STATE
from semidp.publish.statistics.tables import part_steps
from semidp.publish.statistics.tables.fitting import (
    SettledViews,
    by_size,
    exact_totals,
    fit_at_cut,
    fit_order,
    fit_product,
    fit_views,
    nearest_whole,
    needs_joint_fit,
    shares,
    whole_totals,
)
from semidp.publish.survey import survey
from tests.partitions.conftest import FEATURES, plan, run_partitioned, unfinished

DEPTHS = ("state", "county", "tract")


@frozen
class Asked:
    """A random plan, records for it, and where it is cut."""

    plan: Plan
    data: dict[str, list[str]]
    depth: str


def random_tree(g: random.Random, names: tuple[str, ...]) -> Feature:
    paths = [(f"s{place}",) for place in range(g.choice([2, 3, 4]))]
    for _ in names[1:]:
        paths = [
            (*path, f"{path[-1]}.{child}")
            for path in paths
            for child in range(g.choice([1, 2, 3, 4]))
        ]
    return Feature.from_paths(list(names), paths)


def random_plan(seed: int) -> Asked:
    """Return tables at and below a cut and exact totals, some table_steps, at any depth."""
    g = random.Random(seed)
    names = DEPTHS[: g.choice([2, 3])]
    tree = random_tree(g, names)
    others = [
        Feature(name, [f"{name}{level}" for level in range(g.choice([2, 2, 3, 5]))])
        for name in "abc"
    ]
    others = others[: g.choice([1, 2, 3])]
    cut = g.choice(names[:-1])
    finer = names[names.index(cut) + 1 :]

    def some(depths: tuple[str, ...], least: int) -> list[str]:
        flat = g.sample([feature.name for feature in others], g.randint(least, len(others)))
        return [g.choice(depths), *flat] if depths else flat

    tables = [some(finer, 0), some(names, 0)]
    tables += [some(g.choice([finer, names, ()]), 1) for _ in range(g.choice([0, 1, 2, 3]))]
    tables = list({frozenset(table): table for table in tables}.values())
    exact = [
        some(g.choice([names, names, ()]), 0 if g.random() < 0.5 else 1)
        for _ in range(g.choice([0, 1, 2, 2, 3]))
    ]
    exact = [margin[:2] for margin in exact if margin]
    adjacency = g.choice(["exchange", "worst-case"])
    if adjacency == "exchange":  # needs totals that share no feature
        exact = [margin for number, margin in enumerate(exact) if apart(margin, exact[:number])]
    budget = Budget.gdp(g.choice(["1/2", 1, 3]))
    wanted = {"invariants": exact, "features": [tree, *others], "adjacency": adjacency}
    if len(tables) == 1:
        plan = Plan([TableRequest(tables[0], budget)], **wanted)
    else:
        plan = Plan([TablesRequest([TableRequest(table) for table in tables], budget)], **wanted)
    joint = any(len(margin) > 1 for margin in exact)
    n = g.choice([2000, 5000] if joint else [60, 300, 2000])
    weights = np.random.default_rng(seed).gamma(2.0, size=len(tree.levels))
    generator = np.random.default_rng(seed + 1)
    chosen = generator.choice(len(tree.levels), n, p=weights / weights.sum())
    data = {name: [tree.path(leaf)[depth] for leaf in chosen] for depth, name in enumerate(names)}
    for feature in others:
        shares = generator.gamma(2.0, size=len(feature.levels))
        data[feature.name] = generator.choice(
            list(feature.levels), n, p=shares / shares.sum()
        ).tolist()
    return Asked(plan, data, cut)


def apart(margin: list[str], others: list[list[str]]) -> bool:
    named = [DEPTHS[0] if name in DEPTHS else name for name in margin]
    return not any(
        (DEPTHS[0] if name in DEPTHS else name) in named for other in others for name in other
    )


@frozen
class Compared:
    """How far the whole numbers of one release lie from the estimates, part by part and in one
    piece.
    """

    apart: float
    together: float
    circle: bool


def compare(asked: Asked, folder: Path) -> Compared | None:
    """Release part by part, check everything, and fit the same estimates in one piece; None where
    it is refused.
    """
    try:
        release = run_partitioned(
            asked.plan, asked.data, folder, asked.depth, randomness=SeededRandomness(1)
        )
    except SemidpError:
        return None
    (result,) = release.results
    space = result.residuals.space
    grid, schema = space.schema.grid, space.schema
    cut = Cut.from_name(schema, asked.depth)
    tables = assembled(release)
    estimates = [tables[view][1] for view in space.views]
    kinds = [FitKind.integer] * len(space.views)
    whole = fit_product(grid, space.views, exact_totals(space), estimates, kinds, silent)
    in_turn = [space.views[number] for number in by_size(grid, space.views)]
    circle = any_circle(in_turn, [total.view for total in exact_totals(space)])
    kinds_of_parts = {
        table.fitted.kind for part in release.partition.parts for table in part.tables
    }
    if not circle:
        assert (
            fit_order(grid, space.views, [total.view for total in exact_totals(space)], cut).circles
            == ()
        )
        assert kinds_of_parts == {"integer"}
        truth = Table.from_frame(asked.data, schema)
        settled = [Totals(view, counts) for view, (counts, _) in tables.items()]
        for total in space.dataspace.published_totals:
            expected = truth.margin(schema.list_view_names(total.view)).counts
            assert np.array_equal(total.counts, expected.reshape(total.counts.shape))
        for one, other in itertools.combinations([*settled, *space.dataspace.published_totals], 2):
            shared = meet(one.view, other.view)
            assert np.array_equal(
                one.sum_to_view(grid, shared).counts, other.sum_to_view(grid, shared).counts
            )
    for counts, _ in tables.values():
        assert counts.dtype == np.int64
        assert counts.min() >= 0
    assert disagreements(release, read_document(folder / "release.json")) == ()
    return Compared(
        distance([tables[view][0] for view in space.views], estimates),
        distance([counts for counts, _ in whole], estimates),
        circle,
    )


def distance(tables: list[np.ndarray], estimates: list[np.ndarray]) -> float:
    squares = [
        np.square(counts - estimate).sum()
        for counts, estimate in zip(tables, estimates, strict=True)
    ]
    return float(np.sqrt(np.sum(squares)))


def any_circle(in_turn, exact) -> bool:
    settled = SettledViews(*exact)
    for view in in_turn:
        if junction_order(list(settled.largest_margins(view))) is None:
            return True
        settled.add(view)
    return False


def assembled(release: Release) -> dict:
    """Return the counts and estimates of every table, of those below the cut from all parts, by
    their views.
    """
    (result,) = release.results
    schema = result.residuals.space.schema
    grid, found = schema.grid, {}
    if result.blocks is not None:
        # All parts were fitted together, so that every table is there in one piece.
        (request,) = release.plan.requests
        for asked, table in zip(request.tables, release.tables, strict=True):
            view = schema.view(asked.features)
            shape = grid.compute_margin_shape(view)
            found[view] = (table.counts.reshape(shape), table.estimate.reshape(shape))
        return found
    cut = result.cut
    for view, table in zip(result.mechanism_above_cut.space.views, result.overview, strict=True):
        shape = grid.compute_margin_shape(view)
        found[view] = (table.counts.reshape(shape), table.estimate.reshape(shape))
    parts = [release.part(*part.path) for part in release.partition.parts]
    for asked in result.tables_below_cut:
        view = schema.view(asked.features)
        axis = [place for place, depth in enumerate(view) if depth].index(cut.axis)
        shapes = [
            cut.branch(schema, node).grid.compute_margin_shape(view) for node in range(len(parts))
        ]
        every = [part[asked.name] for part in parts]
        found[view] = tuple(
            np.concatenate(
                [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)],
                axis=axis,
            )
            for arrays in ([table.counts for table in every], [table.estimate for table in every])
        )
    return found


# --- the order of fits ----------------------------------------------------------------------------


def random_chain(g: random.Random, depth: int) -> Chain:
    """Return a tree of ranges of leaves, with one to nine children a node."""
    children = [[g.choice([1, 2, 3, 9]) for _ in range(g.choice([2, 3, 5]))]]
    for _ in range(depth - 2):
        children.append([g.choice([1, 2, 3]) for _ in range(sum(children[-1]))])
    leaves = sum(children[-1])
    starts = [tuple(range(leaves))]
    for counts in reversed(children):
        firsts = itertools.accumulate(counts[:-1], initial=0)
        starts.insert(0, tuple(starts[0][first] for first in firsts))
    return Chain(leaves, tuple(starts))


def circles_at_the_cut(below, exact, cut: Cut) -> bool:
    """Whether a part would meet a circle if every table were fitted at the cut before it: what was
    wrong once.
    """
    settled = SettledViews(*exact, *(cut.coarsen_view(view) for view in below))
    for view in below:
        if junction_order(list(settled.largest_margins(view))) is None:
            return True
        settled.add(view)
    return False


def test_parts_meet_no_circle_of_totals_that_one_piece_does_not_have() -> None:
    """Over random tables, exact totals and cuts: every share and every table of a part has
    decomposable totals.

    And a part is given all that is settled of its tables: nothing that crosses parts is lost.
    """
    structures, shared, fits, twins = 0, 0, 0, 0
    for seed in range(1500):
        g = random.Random(seed)
        depth, flat = g.choice([2, 3, 4]), g.choice([1, 2, 3, 4])
        grid = Grid(
            (random_chain(g, depth), *(Chain.flat(g.choice([2, 3, 10, 50])) for _ in range(flat)))
        )
        cut = Cut(0, g.randint(1, depth - 1))

        def view(
            least: int = 0, depth: int = depth, flat: int = flat, g: random.Random = g
        ) -> View:
            return (g.randint(least, depth), *(g.randint(0, 1) for _ in range(flat)))

        views = list(
            dict.fromkeys(
                [view(cut.depth + 1), *(view() for _ in range(g.choice([0, 1, 2, 4, 6])))]
            )
        )
        views = [table for table in views if any(table)]
        exact = [grid.nothing, *(view() for _ in range(g.choice([0, 1, 2, 3])))]
        if any_circle([views[number] for number in by_size(grid, views)], exact):
            continue
        order = fit_order(grid, views, exact, cut)
        assert order.circles == ()
        assert sorted([*order.early, *order.below, *order.late]) == sorted(views)
        structures += 1
        at_cut, in_turn = SettledViews(*exact, *order.early), SettledViews(*exact, *order.early)
        settled = [*exact, *order.early]
        for table in order.below:
            for share in shares(table, in_turn.largest_margins(table), cut):
                assert junction_order(list(at_cut.largest_margins(share))) is not None
                at_cut.add(share)
                settled.append(share)
                shared += 1
            in_turn.add(table)
        part = SettledViews(*(margin for margin in settled if margin[cut.axis] >= cut.depth))
        for table in order.below:
            margins = list(part.largest_margins(table))
            assert junction_order(margins) is not None
            for margin in (*exact, *order.early):
                assert any(is_within_view(meet(margin, table), known) for known in margins)
            part.add(table)
            fits += 1
        twins += circles_at_the_cut(order.below, exact, cut)
    assert structures > 1000
    assert shared > 500
    assert fits > 1500
    assert twins > 50  # tables fitted at the cut first would have closed so many circles


# --- whole releases -------------------------------------------------------------------------------


def issue_plan(depths=(2, 2, 6), n: int = 20_000) -> Asked:
    """Return the plan that once came out as real numbers: exact counties and sexes by state, three
    tables by tract.
    """
    states, counties, tracts = depths
    paths = [
        (f"s{state}", f"s{state}c{county}", f"s{state}c{county}t{tract}")
        for state in range(states)
        for county in range(counties)
        for tract in range(tracts)
    ]
    places = Feature.from_paths(list(DEPTHS), paths)
    others = [Feature("sex", "fm"), Feature("age", "uvwxyz"), Feature("race", "pqrs")]
    asked = [["tract", "sex", "age", "race"], ["tract", "race"], ["tract", "sex"]]
    product = TablesRequest([TableRequest(table) for table in asked], Budget.gdp(1))
    plan = Plan([product], invariants=["county", ["state", "sex"]], features=[places, *others])
    generator = np.random.default_rng(4)
    chosen = generator.choice(len(paths), n)
    data = {name: [paths[leaf][depth] for leaf in chosen] for depth, name in enumerate(DEPTHS)}
    for feature in others:
        shares_of_levels = generator.dirichlet(np.full(len(feature.levels), 0.8))
        data[feature.name] = generator.choice(list(feature.levels), n, p=shares_of_levels).tolist()
    return Asked(plan, data, "state")


@pytest.mark.long
def test_three_tables_by_tract_are_as_close_to_their_estimates_as_in_one_piece(
    tmp_path: Path,
) -> None:
    """Exact counties, and sexes by state: tables of states that were fitted first closed a
    circle.
    """
    found = compare(issue_plan(), tmp_path / "release")
    assert found is not None
    assert not found.circle
    # nothing crosses parts: the same fits but for ties
    assert found.apart == pytest.approx(found.together, rel=1e-3)


WORST = (9, 42, 52, 15, 58, 27)
"""Random plans whose parts, fitted one by one, are 10 to 21% farther from their estimates; three
have a circle."""
FEW = (8, 12, 18, 39, 54, 61)
"""Random plans that are quick and of several kinds; the others are compared by the long test."""


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", WORST)
def test_totals_that_cross_parts_are_divided_as_in_one_piece(seed: int, tmp_path: Path) -> None:
    found = compare(random_plan(seed), tmp_path / "release")
    assert found is not None
    assert found.apart == pytest.approx(found.together, rel=1e-9)


@pytest.mark.long
def test_shares_by_the_estimates_at_the_cut_alone_are_worse(apart, tmp_path: Path) -> None:
    """The twin: parts one by one are what large tables still have."""
    found = compare(random_plan(52), tmp_path / "release")
    assert found is not None
    assert 1.05 * found.together < found.apart <= 1.25 * found.together


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", FEW)
def test_random_plans_are_fitted_as_in_one_piece(seed: int, tmp_path: Path) -> None:
    found = compare(random_plan(seed), tmp_path / "release")
    assert found is not None
    assert found.apart <= 1.1 * found.together + 1e-9


@pytest.mark.long
@pytest.mark.parametrize(("first", "circles"), [(0, 4), (23, 2), (46, 2), (69, 0)])
def test_many_random_plans_are_fitted_as_in_one_piece(
    first: int, circles: int, tmp_path: Path
) -> None:
    """Distances within 10% of one piece in every plan, with a circle of totals or without."""
    seeds = range(first, first + 23)
    results = [compare(random_plan(seed), tmp_path / str(seed)) for seed in seeds]
    compared = [found for found in results if found is not None]
    assert len(compared) >= 21
    assert sum(found.circle for found in compared) >= circles
    for found in compared:
        assert found.apart <= 1.1 * found.together + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_several_hundred_random_plans_are_fitted_as_in_one_piece(first: int) -> None:
    """The fits alone, of estimates that need no release: what is fitted in one piece, and what part
    by part.
    """
    together, one_by_one = 0, 0
    for seed in range(first, first + 50):
        measurable = measurable_plan(random_plan(seed))
        if measurable is None:
            continue
        space, cut = measurable.space, measurable.cut
        grid, views, exact = space.schema.grid, space.views, exact_totals(space)
        if needs_joint_fit(grid, views, [total.view for total in exact], cut):
            together += 1  # by the same function as one piece, whatever the noise is
            continue
        one_by_one += 1
        estimates = seeded_estimates(measurable)
        kinds = [FitKind.integer] * len(views)
        whole = fit_product(grid, views, exact, [estimates[view] for view in views], kinds, silent)
        parts = fitted_parts(grid, views, exact, cut, estimates)
        whole_distance = distance(
            [counts for counts, _ in whole], [estimates[view] for view in views]
        )
        parts_distance = distance(
            [parts[view] for view in views], [estimates[view] for view in views]
        )
        assert parts_distance <= 1.1 * whole_distance + 1e-9
    assert together >= 19
    assert one_by_one >= 22


@frozen
class Measurable:
    """A plan with the residuals that its parts measure, before any noise is calibrated."""

    asked: Asked
    request: TablesRequest
    space: ProductSpace
    cut: Cut


def measurable_plan(asked: Asked) -> Measurable | None:
    """Return what a plan measures part by part; None where it is refused."""
    try:
        with open_source(asked.data) as source:
            scope, _ = survey(asked.plan, source, partition=asked.depth)
        (request,) = asked.plan.requests
        space = request.parts_space(scope)
    except SemidpError:
        return None
    return Measurable(asked, request, space, Cut.from_name(space.schema, asked.depth))


def seeded_estimates(plan: Measurable) -> dict[View, np.ndarray]:
    """Calibrate the noise, which takes longer than the fits, draw it, and return the estimates."""
    space = plan.space
    mechanism = plan.request.parts_calibrate(space)
    truth = Table.from_frame(plan.asked.data, space.schema)
    values = space.measure(
        [truth.margin(space.schema.list_view_names(view)) for view in space.views]
    )
    noisy = values + mechanism.noise_by_residual(SeededRandomness(1))
    estimates = {}
    for view, estimate in zip(
        space.views, estimate_tables(space, mechanism.publish(noisy)), strict=True
    ):
        estimates[view] = np.reshape(estimate, space.schema.grid.compute_margin_shape(view))
    return estimates


def fitted_parts(grid: Grid, views, exact, cut: Cut, estimates) -> dict[View, np.ndarray]:
    """Return the tables fitted part by part, and those at the cut, from estimates alone."""
    at_cut = {
        cut.coarsen_view(view): grid.sum(estimate, cut.coarsen_view(view), view)
        for view, estimate in estimates.items()
    }
    fit = fit_at_cut(grid, views, exact, cut, at_cut, silent)
    below = [view for view in views if cut.reaches(view)]
    counts = {view: np.zeros(grid.compute_margin_shape(view), dtype=np.int64) for view in below}
    chain = grid.chains[cut.axis]
    for node in range(chain.size(cut.depth)):
        chains = [
            chain.branch(cut.depth, node) if axis == cut.axis else own
            for axis, own in enumerate(grid.chains)
        ]
        part = fit.part(grid, cut, node, below)
        finer = [total for total in exact if cut.reaches(total.view)]
        own_totals = [
            Totals(total.view, cut.row(grid, total.view, total.counts, node)) for total in finer
        ]
        own_estimates = [cut.row(grid, view, estimates[view], node) for view in below]
        kinds = [FitKind.integer] * len(below)
        totals = [*part.totals, *own_totals]
        made = fit_product(
            Grid(tuple(chains)), below, totals, own_estimates, kinds, silent, order=part.order
        )
        for view, (own, _) in zip(below, made, strict=True):
            cut.row(grid, view, counts[view], node)[...] = own
    sums = [
        Totals(cut.coarsen_view(view), grid.sum(counts[view], cut.coarsen_view(view), view))
        for view in below
    ]
    early = whole_totals(fit.fits)
    late = fit_views(grid, fit.order.late, [*exact, *sums, *early], at_cut, silent)
    counts |= {view: own for view, (own, _) in {**fit.fits, **late}.items()}
    return counts


# --- fitted together: unfinished, damaged, changed ------------------------------------------------


@pytest.mark.long
def test_a_release_that_is_resumed_publishes_what_was_measured(
    people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is published before all parts are measured, so that there is one fit, and the same
    numbers as without an interruption.
    """
    whole = run_partitioned(
        plan(), people, tmp_path / "whole", "state", randomness=SeededRandomness(3)
    )
    real = part_steps.JointSteps.settle
    fits: list[int] = []

    def settle(steps, *words):
        real(steps, *words)
        fits.append(1)
        if len(fits) == 1:
            raise SemidpError("no space left")

    monkeypatch.setattr(part_steps.JointSteps, "settle", settle)
    place, seeded = tmp_path / "release", SeededRandomness(3)
    with pytest.raises(SemidpError, match="no space left"):
        run_partitioned(plan(), people, place, "state", randomness=seeded)
    assert not list(unfinished(place).glob("state=*/*"))
    release = run_partitioned(plan(), people, place, "state", randomness=seeded, resume=True)
    assert len(fits) == 2
    assert not (place / STATE).exists()
    for one, other in zip(whole.tables, release.tables, strict=True):
        assert np.array_equal(one.counts, other.counts)
    assert disagreements(release, read_document(place / "release.json")) == ()


# --- what is said ---------------------------------------------------------------------------------


@pytest.mark.long
def test_a_circle_of_totals_is_told_before_anything_is_charged(people, tmp_path: Path) -> None:
    """The ledger holds too little, so that the release is refused: what was told was told
    before.
    """
    tables = [
        ["county", "sex"],
        ["county", "age"],
        ["state", "sex", "age"],
        ["county", "sex", "age"],
    ]
    product = TablesRequest([TableRequest(table) for table in tables], Budget.gdp(1))
    asked = Plan([product], invariants=["state"], features=FEATURES)
    Ledger.create(tmp_path / "ledger.json", Budget.gdp("1/10"))
    told: list[str] = []
    with pytest.raises(SemidpError, match="budget"):
        run_partitioned(
            asked,
            people,
            tmp_path / "x",
            "state",
            ledger=Ledger(tmp_path / "ledger.json"),
            tell=told.extend,
        )
    assert len(told) == 1
    assert "'county-sex-age'" in told[0]
    assert "circle" in told[0]
    release = run_partitioned(asked, people, tmp_path / "release", "state")
    assert told[0] in release.scope.warnings


@pytest.mark.long
def test_a_part_without_whole_numbers_is_named_and_has_the_same_columns(
    apart, people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = part_steps.fit_product

    def in_vain(grid, views, totals, estimates, *args, **more):
        made = fit(grid, views, totals, estimates, *args, **more)
        if grid.chains[0].leaves == 6:  # state 02: no search finds anything for its first table
            made[0] = nearest_whole(estimates[0])
        return made

    monkeypatch.setattr(part_steps, "fit_product", in_vain)
    release = run_partitioned(plan(), people, tmp_path / "release", "state")
    said = [warning for warning in release.scope.warnings if "No whole numbers" in warning]
    assert len(said) == 1
    assert "'tract-sex' in 02:" in said[0]
    assert {
        release.part(*part.path)["tract-sex"].counts.dtype for part in release.partition.parts
    } == {np.dtype("i8")}
    (result,) = release.results
    kinds = {table.name: table.fitted.kind for table in result.overview}
    assert kinds == {"state-sex": "none", "state-age": "integer", "sex-age": "integer"}
    read = Release.load(tmp_path / "release")
    assert read.scope.warnings == release.scope.warnings
    assert disagreements(read, read_document(tmp_path / "release" / "release.json")) == ()

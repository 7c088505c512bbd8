"""The branches of a cut product are the product: the same residuals, the same noise, the same
estimates and errors.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from semidp import Ball, Budget, Dataspace, Feature, Margin, Schema, Table
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut, branch_space, mechanism_above
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.margins import list_axes
from semidp.promise.sensitivity.products import product_space
from semidp.publish.product_estimates import estimate_tables
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.statistics.tables.separate import estimate_branch_tables

PATHS = [
    *(
        ("a", county, tract)
        for county, tracts in {"a1": "xyz", "a2": "u"}.items()
        for tract in tracts
    ),
    *(("b", "b1", tract) for tract in "pqrst"),
    ("c", "c1", "only"),
    *(
        ("d", county, tract)
        for county in ("d1", "d2", "d3")
        for tract in (f"{county}-1", f"{county}-2")
    ),
]
PLACES = Feature.from_paths(["state", "county", "tract"], PATHS)
SCHEMAS = {
    "first": Schema([PLACES, Feature("sex", "fm"), Feature("age", "yom")]),
    "last": Schema([Feature("age", "yom"), Feature("sex", "fm"), PLACES]),
}
WORKLOADS = [
    [["tract", "sex", "age"]],
    [["tract", "sex"], ["county", "age"], ["state", "sex", "age"], ["sex"]],
    [["county", "sex"], ["tract"]],
]
INVARIANTS = [
    [],
    ["state"],
    ["sex"],
    ["county"],
    ["state", "age"],
    [["county", "sex"]],
    ["tract", "sex"],
]


def people(schema: Schema, empty: bool) -> Table:
    counts = np.random.default_rng(7).integers(1, 9, schema.shape)
    if empty:  # nobody lives in county d2, nor anywhere in state c
        axis = schema.axis("tract")
        leaves = [leaf for leaf, path in enumerate(PLACES.paths()) if path[1] in ("d2", "c1")]
        counts[(slice(None),) * axis + (leaves,)] = 0
    return Table(schema, counts)


def vector_of(parts: dict[int, dict], space, cut: Cut) -> np.ndarray:
    """Put what branches measured where the whole product has it."""
    vector = np.zeros(space.shape, dtype=np.int64)
    for view, where in space.parts.items():
        if not cut.reaches(view):
            continue
        shape = space.residuals.shape(view)
        place = list_axes(view).index(cut.axis)
        pieces = []
        kept = space.residuals.grid.chains[cut.axis]
        for node in range(cut.chain(space.schema).size(cut.depth)):
            branch = branch_space(space, cut, node)
            if branch is None:
                continue
            measured = parts[node].get(view)
            if (
                measured is None
                # nothing varies in this branch, and the whole product draws noise that it centres
                # away
            ):
                measured = np.zeros(branch.residuals.shape(view), dtype=np.int64)
            pieces.append(measured)
        assert kept.size(view[cut.axis]) == sum(piece.shape[place] for piece in pieces)
        vector[where] = np.concatenate(pieces, axis=place).reshape(shape).ravel()
    return vector


CASES = list(itertools.product(SCHEMAS, WORKLOADS, INVARIANTS, ["state", "county"], [False, True]))


@pytest.mark.few(1)
@pytest.mark.parametrize("law", ["zcdp", "gdp"])
@pytest.mark.parametrize("part", range(3))
def test_branches_put_together_are_the_whole_product(law: str, part: int) -> None:
    checked = 0
    for order, tables, exact, depth, empty in CASES[part::3]:
        schema = SCHEMAS[order]
        names = {name for table in tables for name in table}
        if depth == "county" and "tract" not in names:
            continue
        table = people(schema, empty)
        public = Dataspace.from_table(table, [Margin.from_names(part) for part in exact])
        if any(
            len(total.view) - total.view.count(0) > 1 and not total.counts.all()
            for total in public.published_totals
        ):
            continue  # a joint margin with empty cells is not measured together
        space = product_space(public, Ball(2), tables)
        budget = Budget.zcdp(1) if law == "zcdp" else Budget.gdp(1)
        mechanism = ResidualMechanism.calibrate(space, budget, joint=False)
        cut, source = Cut.from_name(schema, depth), SeededRandomness(3)
        above = mechanism_above(mechanism, cut)
        upper = above.space.measure(
            [table.margin(schema.list_view_names(view)) for view in above.space.views]
        )
        upper = upper + above.noise_by_residual(source)
        rows = dict(zip(above.space.views, estimate_tables(above.space, upper), strict=True))
        squares = {
            view: above.cell_variances(number) for number, view in enumerate(above.space.views)
        }
        parts: dict[int, dict] = {}
        found: dict[int, list] = {}
        for node in range(cut.chain(schema).size(cut.depth)):
            noise = BranchNoise.from_mechanism(mechanism, cut, node)
            if noise is None:
                assert not cut.row(schema.grid, schema.grid.full, table.counts, node).any()
                continue
            part = cut.branch(schema, node)
            own = Table(part, cut.row(schema.grid, schema.grid.full, table.counts, node))
            asked = [own.margin(part.list_view_names(view)) for view in noise.space.views]
            parts[node] = noise.measure(asked, source.part(str(node)))
            found[node] = estimate_branch_tables(
                noise,
                parts[node],
                [
                    tuple(
                        cut.row(
                            schema.grid, cut.coarsen_view(view), known[cut.coarsen_view(view)], node
                        )
                        for known in (rows, squares)
                    )
                    for view in noise.space.views
                ],
            )
        whole = vector_of(parts, space, cut)
        for view, where in above.space.parts.items():
            whole[space.parts[view]] = upper[where]
        estimates = estimate_tables(space, whole)
        lower = [number for number, view in enumerate(space.views) if cut.reaches(view)]
        for number in lower:
            view, place = space.views[number], lower.index(number)
            errors = mechanism.cell_variances(number)
            for node, pieces in found.items():
                estimate, variance = pieces[place]
                assert np.allclose(
                    estimate, cut.row(schema.grid, view, estimates[number], node), atol=1e-8
                )
                assert np.allclose(variance, cut.row(schema.grid, view, errors, node), rtol=1e-9)
                checked += 1
    assert checked > 130


def test_a_branch_measures_what_the_whole_product_measures_of_its_records() -> None:
    """With noise that is nearly nothing, the branch's entries are the whole product's, times the
    same scales.
    """
    schema = SCHEMAS["first"]
    table = people(schema, False)
    space = product_space(Dataspace.from_table(table, [Margin("sex")]), Ball(2), [["tract", "sex"]])
    mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1), joint=False)
    quiet = ResidualMechanism(
        space, dict.fromkeys(mechanism.sigma2, Fraction(1, 10**6)), Fraction(1), "rounded"
    )
    cut, whole = Cut.from_name(schema, "state"), space.measure([table.margin(["tract", "sex"])])
    checked = 0
    for node in range(4):
        noise = BranchNoise.from_mechanism(quiet, cut, node)
        assert noise is not None
        part = cut.branch(schema, node)
        own = Table(part, cut.row(schema.grid, schema.grid.full, table.counts, node)).margin(
            ["tract", "sex"]
        )
        for view, values in noise.measure([own], SeededRandomness(1)).items():
            expected = whole[space.parts[view]].reshape(space.residuals.shape(view))
            assert (values == cut.row(space.residuals.grid, view, expected, node)).all()
            checked += values.size
    assert checked > 20


def test_a_cut_has_something_below_it() -> None:
    from semidp.errors import InputError

    for name in ("tract", "sex", "nowhere"):
        with pytest.raises(InputError, match="not a depth of a nested feature"):
            Cut.from_name(SCHEMAS["first"], name)
    with pytest.raises(InputError, match="no feature of these tables is nested"):
        Cut.from_name(Schema([Feature("sex", "fm")]), "sex")

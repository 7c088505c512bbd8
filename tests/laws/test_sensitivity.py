"""Sensitivity spaces: the norms the errata cite, order of the naive spaces, moves, explicit spaces,
refusals.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.assess.adjacent_datasets import enumerate_tables
from semidp.assess.worst_moves import worst_move
from semidp.errors import InputError, Refused, SchemaError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.patterns import certified_norms, edge_cover
from semidp.promise.sensitivity.query_space import ExplicitSpace
from semidp.promise.sensitivity.table_spaces import TableSpace, sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency


def schema_of(*shape: int, zeros: tuple = ()) -> Schema:
    features = [
        Feature("ABCDEFGH"[i], [str(level) for level in range(size)])
        for i, size in enumerate(shape)
    ]
    return Schema(features, [StructuralZero.from_pattern(zero) for zero in zeros])


def space_of(counts: object, *margins: str, zeros: tuple = ()) -> Dataspace:
    array = np.asarray(counts)
    return Dataspace.from_table(
        Table(schema_of(*array.shape, zeros=zeros), array), [Margin(*names) for names in margins]
    )


def norms(space: TableSpace) -> tuple[int, int, int]:
    return space.l1, space.l2_squared, space.linf


# --- the table of exact values --------------------------------------------------------------------

EXACT = [
    # shape, margins, Δ2² for a = 2, 3, 4, 5, 6
    ((2, 2), ("A", "B"), (4, 4, 16, 16, 36)),
    ((2, 2, 2), ("AB", "BC"), (4, 4, 16, 16, 36)),
    ((3, 3), ("A", "B"), (4, 6, 16, 16, 36)),
    ((3, 2, 3), ("AB", "BC"), (4, 6, 16, 16, 36)),
    ((2, 2, 2), ("A", "B", "C"), (4, 8, 16, 20, 36)),
    ((2, 2, 2, 2), ("A", "B", "C", "D"), (4, 8, 16, 20, 36)),
    ((2, 2, 2, 2), ("AB", "AC", "AD"), (4, 8, 16, 20, 36)),
]


@pytest.mark.parametrize(("shape", "margins", "squares"), EXACT, ids=str)
def test_exact_values_for_large_counts(
    shape: tuple[int, ...], margins: tuple[str, ...], squares: tuple
) -> None:
    public = space_of(np.full(shape, 1000), *margins)
    found = [sensitivity_space(public, Ball(a)) for a in range(2, 7)]
    assert tuple(space.l2_squared for space in found) == squares
    assert all(space.exact for space in found)
    for space in found:
        check_move(space)


def check_move(space: TableSpace) -> None:
    """The worst move has zero margins, at most a records, and attains Δ2 where the norms are
    exact.
    """
    move = worst_move(space)
    assert move is not None
    for margin in space._released_table.visible:
        assert not space.schema.grid.sum(move, margin.view).any()
    assert np.maximum(move, 0).sum() <= space.adjacency.a
    assert (move**2).sum() == space.l2_squared


@pytest.mark.parametrize(
    ("shape", "margins", "squares"), [case for case in EXACT if len(case[0]) < 4], ids=str
)
def test_exact_values_against_all_integer_tables(
    shape: tuple[int, ...], margins: tuple[str, ...], squares: tuple
) -> None:
    """Every integer table with zero margins and small entries, from a lattice basis, knows the same
    maxima.
    """
    axes = [tuple("ABCD".index(name) for name in margin) for margin in margins]
    for a, square in zip(range(2, 7), squares, strict=True):
        basis = lattice_basis(shape, axes)
        k = a // 2 if len(margins) == 2 else math.floor(a * (1 - 1 / len(margins)))
        if (2 * k + 1) ** len(basis) > 1_000_000:
            continue
        best = 0
        for start in itertools.product(range(-k, k + 1), repeat=max(0, len(basis) - 4)):
            rest = np.array(list(itertools.product(range(-k, k + 1), repeat=min(4, len(basis)))))
            tables = np.asarray(start, dtype=int) @ basis[: len(start)] + rest @ basis[len(start) :]
            small = tables[np.maximum(tables, 0).sum(axis=1) <= a]
            best = max(best, int((small**2).sum(axis=1).max(initial=0)))
        assert best == square


def lattice_basis(shape: tuple[int, ...], margins: list[tuple[int, ...]]) -> np.ndarray:
    """Tables with zero margins, one for each cell whose nonzero levels lie inside no margin; they
    span the lattice.
    """
    found = []
    for cell in itertools.product(*map(range, shape)):
        support = {axis for axis, level in enumerate(cell) if level}
        if not any(support <= {*margin} for margin in margins):
            table = np.zeros(shape, dtype=int)
            for corner in itertools.product(*((0, level) if level else (0,) for level in cell)):
                table[corner] += (-1) ** sum(a != b for a, b in zip(cell, corner, strict=True))
            found.append(table.ravel())
    basis = np.array(found)
    return basis if len(margins) > 1 and not {*margins[0]} & {*margins[1]} else chain_basis(shape)


def chain_basis(shape: tuple[int, ...]) -> np.ndarray:
    """AB, BC: a two-way basis in each slice of B."""
    found = []
    for b, a, c in itertools.product(range(shape[1]), range(1, shape[0]), range(1, shape[2])):
        table = np.zeros(shape, dtype=int)
        table[0, b, 0] = table[a, b, c] = 1
        table[0, b, c] = table[a, b, 0] = -1
        found.append(table.ravel())
    return np.array(found)


def test_the_chain_and_the_triangle_on_binary_features() -> None:
    chain = space_of(np.full((2, 2, 2, 2), 1000), "AB", "BC", "CD")
    at_four = sensitivity_space(chain, Ball(4))
    assert norms(at_four) == (8, 16, 2)
    assert at_four.exact
    assert sensitivity_space(chain, Ball(3)).l2_squared == 6
    triangle = space_of(np.full((2, 2, 2), 2), "AB", "BC", "AC")
    assert [sensitivity_space(triangle, Ball(a)).l2_squared for a in (4, 5, 6)] == [8, 8, 8]


# --- the three-cycles that the paper leaves out ---------------------------------------------------


@pytest.mark.parametrize(("a", "elements", "expected"), [(2, 19, (4, 4, 1)), (3, 31, (6, 6, 1))])
def test_three_by_three_has_three_cycles(
    a: int, elements: int, expected: tuple[int, int, int]
) -> None:
    space = sensitivity_space(space_of(np.full((3, 3), 5), "A", "B"), Ball(a))
    listed = list(space.moves())
    assert len(listed) + 1 == elements  # zero is an element too
    assert norms(space) == expected
    six = [move for move in listed if np.abs(move).sum() == 6]
    assert len(six) == (12 if a == 3 else 0)


def test_the_smallest_three_cycle_keeps_both_margins() -> None:
    """Three records (1,1), (2,2), (3,3) become (1,2), (2,3), (3,1): n = 3, all margins (1,1,1)."""
    before, after = np.eye(3, dtype=int), np.roll(np.eye(3, dtype=int), 1, axis=1)
    public = space_of(before, "A", "B")
    assert public.contains(Table(public.schema, after))
    assert norms(sensitivity_space(public, Ball(3))) == (6, 6, 1)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_two_rows_have_no_three_cycles(columns: int) -> None:
    public = space_of(np.full((2, columns), 9), "A", "B")
    two, three = (sensitivity_space(public, Ball(a)) for a in (2, 3))
    assert norms(two) == norms(three) == (4, 4, 1)
    assert {m.tobytes() for m in two.moves()} == {m.tobytes() for m in three.moves()}


# --- rows only, total only, fewer features --------------------------------------------------------


def test_rows_only_and_total_only() -> None:
    counts = np.full((3, 4), 9)
    assert norms(sensitivity_space(space_of(counts, "A"), Ball(2))) == (4, 8, 2)
    assert norms(sensitivity_space(space_of(counts), Ball(1))) == (2, 2, 1)


def test_a_comes_from_all_invariants_and_the_shape_from_the_released_features() -> None:
    """A, B, C one-way public, 3 and 7 each: releasing AB alone, x11 can still move by two."""
    counts = np.zeros((2, 2, 2), dtype=int)
    counts[0, 0, 0], counts[1, 1, 1] = 3, 7
    public = space_of(counts, "A", "B", "C")
    a = semi_adjacency(public).bound
    assert a == 4
    space = sensitivity_space(public, Ball(a), released=["A", "B"])
    assert norms(space) == (8, 16, 2)
    assert space.exact
    assert space.schema.names == ("A", "B")
    assert space.dimension == 1


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_released_margin_is_the_projection_of_the_whole(data: st.DataObject) -> None:
    """Releasing fewer features: norms against all pairs of datasets, from the moves of the whole
    table.
    """
    margins = data.draw(
        st.sampled_from(
            [("A", "B", "C"), ("AB", "C"), ("AB", "BC"), ("A", "B"), ("AC",), ("AB", "BC", "AC")]
        )
    )
    released = data.draw(st.sampled_from(["A", "AB", "AC", "BC", "C"]))
    chosen = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=5))
    a = data.draw(st.integers(1, 5))
    public = space_of(np.bincount(chosen, minlength=8).reshape(2, 2, 2), *margins)
    kept = tuple("ABC".index(name) for name in released)
    dropped = tuple(axis for axis in range(3) if axis not in kept)
    listed = [table.counts for table in enumerate_tables(public)]
    moves = [x - y for x in listed for y in listed if np.abs(x - y).sum() <= 2 * a]
    small = [np.abs(move.sum(axis=dropped)) for move in moves]
    expected = (
        max(m.sum() for m in small),
        max((m**2).sum() for m in small),
        max(m.max() for m in small),
    )
    try:
        space = sensitivity_space(public, Ball(a), released=list(released))
    except Refused:
        assert expected == (0, 0, 0)
        return
    assert space.exact
    assert norms(space) == expected


# --- order: S_Semi ⊆ S_Group, hull(S_Group) ⊆ a hull(S_DP) ----------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_semi_is_never_worse_than_group_and_naive(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(2, 2), (3, 3), (2, 4), (2, 2, 2), (3, 2, 2)]))
    margins = data.draw(
        st.sampled_from(
            [("A", "B"), ("A",), ("AB",), (), ("A", "C"), ("AB", "BC"), ("A", "B", "C")]
        )
    )
    if max(map(ord, "".join(margins) or "A")) - ord("A") >= len(shape):
        return
    counts = data.draw(
        st.lists(st.integers(0, 4), min_size=math.prod(shape), max_size=math.prod(shape))
    )
    public = space_of(np.reshape(counts, shape), *margins)
    a = semi_adjacency(public).bound
    space = sensitivity_space(public, Ball(a))
    semi, one = space.norms, space.naive
    group = one.multiply(a)
    assert semi.l1 <= group.l1 == a * one.l1
    assert semi.l2_squared <= group.l2_squared == a * a * one.l2_squared
    assert semi.linf <= group.linf == a * one.linf
    for move in itertools.islice(space.moves(), 200):
        assert np.maximum(move, 0).sum() == np.maximum(-move, 0).sum() <= a  # an element of S_Group
        assert np.allclose(space.project(move), move, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_moves_are_symmetric_realisable_and_reach_the_norms(data: st.DataObject) -> None:
    margins = data.draw(
        st.sampled_from([("A", "B"), ("AB", "BC"), ("A",), ("AB", "BC", "CD"), ("AC", "B")])
    )
    size = 4 if "CD" in margins else 3 if any("C" in margin for margin in margins) else 2
    counts = data.draw(st.lists(st.integers(0, 2), min_size=2**size, max_size=2**size))
    public = space_of(np.reshape(counts, (2,) * size), *margins)
    if public.n == 0 or public.n > 8:
        return
    a = data.draw(st.integers(2, 4))
    try:
        space = sensitivity_space(public, Ball(a))
    except Refused:
        return
    listed = {move.tobytes(): move for move in space.moves()}
    assert all((-move).tobytes() in listed for move in listed.values())
    sizes = [np.abs(move) for move in listed.values()] or [np.zeros(1, dtype=int)]
    assert norms(space) == (
        max(s.sum() for s in sizes),
        max((s**2).sum() for s in sizes),
        max(s.max() for s in sizes),
    )


# --- certified bounds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("margins", "rho"),
    [("A B", 2), ("AB BC", 2), ("AB BC CD", 2), ("AB AC AD", 3), ("AB BC AC", 1.5), ("A B C", 3)],
)
def test_fractional_edge_covers(margins: str, rho: float) -> None:
    sets = [frozenset(margin) for margin in margins.split()]
    assert edge_cover(frozenset().union(*sets), sets) == pytest.approx(rho)


def test_an_unpublished_feature_moves_freely() -> None:
    assert certified_norms(3, "AB", [frozenset("A")]).l2_squared == 18


@pytest.mark.parametrize("a", [7, 8, 20, 5000])
def test_a_large_given_a_has_certified_bounds(a: int) -> None:
    space = sensitivity_space(space_of(np.full((4, 5), 10_000), "A", "B"), Ball(a))
    assert space.l1 == 2 * a
    assert space.l2_squared <= a * a
    assert space.linf == a // 2
    assert space.exact == (a % 2 == 0)
    move = worst_move(space)
    assert move is not None
    assert (move**2).sum() <= space.l2_squared


SOME = Dataspace.from_description("some datasets")

# --- explicit spaces ------------------------------------------------------------------------------


def test_an_explicit_space_is_rank_deficient_like_the_papers() -> None:
    """The paper's 2x2 example as a list: dimension one, and the norms of the table."""
    move = [[1, -1], [-1, 1]]
    space = ExplicitSpace([move], SOME, Ball(3))
    table = sensitivity_space(space_of([[4, 3], [2, 5]], "A", "B"), Ball(3))
    assert (space.l1, space.l2_squared, space.linf, space.dimension) == (
        *norms(table),
        table.dimension,
    )
    assert np.allclose(
        space.project(np.arange(4).reshape(2, 2)), table.project(np.arange(4).reshape(2, 2))
    )
    assert np.allclose(space.variances(), table.variances())
    assert space.compute_weighted_variance(move) == pytest.approx(
        table.compute_weighted_variance(move)
    )
    assert [m.tolist() for m in space.moves()] == [move, [[-1, 1], [1, -1]]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(-5, 5), min_size=4, max_size=4), min_size=1, max_size=6))
def test_an_explicit_space_projects_onto_its_span(vectors: list[list[int]]) -> None:
    space = ExplicitSpace(vectors, SOME, Ball(1))
    assert space.dimension == np.linalg.matrix_rank(np.array(vectors))
    for vector in vectors:
        assert np.allclose(space.project(vector), vector, atol=1e-9)
    assert space.variances().sum() == pytest.approx(space.dimension, abs=1e-9)
    assert space.is_zero == (not np.any(vectors))


@pytest.mark.parametrize("vectors", [[], [[1, 2], [1, 2, 3]], [[math.nan]], [1.0]])
def test_an_illegal_list_is_refused(vectors: list) -> None:
    with pytest.raises(InputError):
        ExplicitSpace(vectors, SOME, Ball(1))


# --- what is refused, what is fixed ---------------------------------------------------------------


def test_an_a_too_small_to_move_anything_is_refused() -> None:
    with pytest.raises(Refused, match="larger a"):
        sensitivity_space(space_of(np.full((2, 2, 2), 5), "AB", "BC", "AC"), Ball(2))
    with pytest.raises(Refused, match="larger a"):
        sensitivity_space(space_of(np.full((2, 2), 5), "A", "B"), Ball(1))
    with pytest.raises(Refused, match="larger a"):
        sensitivity_space(space_of(np.full((2, 2), 5)), Ball(0))


@pytest.mark.parametrize("margins", [("AB",), ("A", "B")])
def test_a_fixed_table_is_published_exactly(margins: tuple[str, ...]) -> None:
    counts = np.array([[3, 4], [0, 0]])
    public = space_of(counts, *margins)
    space = sensitivity_space(public, Ball(semi_adjacency(public).bound))
    assert space.is_zero
    assert space.exact
    assert norms(space) == (0, 0, 0)
    assert space.dimension == 0
    assert np.allclose(space.fixed_part(), counts)
    assert not space.project(counts).any()
    assert worst_move(space) is None


@pytest.mark.parametrize("margins", [(), ("A",), ("A", "B"), ("AB",)])
def test_an_empty_table_is_published_exactly(margins: tuple[str, ...]) -> None:
    space = sensitivity_space(space_of(np.zeros((2, 3), dtype=int), *margins), Ball(0))
    assert space.is_zero
    assert space.dimension == 0
    assert not space.fixed_part().any()


def test_one_record_with_a_free_feature_moves_alone() -> None:
    space = sensitivity_space(space_of([[1, 0, 0], [0, 0, 0]], "A"), Ball(1))
    assert norms(space) == (2, 2, 1)
    assert space.dimension == 2


def test_a_triangle_that_allows_one_table_is_published_exactly() -> None:
    counts = np.zeros((2, 2, 2), dtype=int)
    counts[0, 0, 0] = counts[0, 1, 1] = counts[1, 0, 1] = 2
    counts[1, 1, 1] = 1
    public = space_of(counts, "AB", "BC", "AC")
    space = sensitivity_space(public, Ball(semi_adjacency(public).bound))
    assert space.is_zero
    assert np.array_equal(space.fixed_part(), counts)
    assert not space.variances().any()


def test_errors_name_what_there_is() -> None:
    public = space_of(np.full((2, 2), 5), "A", "B")
    with pytest.raises(SchemaError, match="the features are A, B"):
        sensitivity_space(public, Ball(3), released=["C"])
    with pytest.raises(InputError, match="at least one feature"):
        sensitivity_space(public, Ball(3), released=[])
    with pytest.raises(InputError, match="only described"):
        sensitivity_space(Dataspace.from_description("state totals"), Ball(2))
    with pytest.raises(InputError, match="shape"):
        sensitivity_space(public, Ball(3)).project(np.zeros(3))


# --- zero levels, structural zeros, layouts -------------------------------------------------------


def test_zero_levels_are_left_out() -> None:
    counts = np.array([[3, 0, 4], [0, 0, 0], [5, 0, 6]])
    space = sensitivity_space(space_of(counts, "A", "B"), Ball(3))
    assert norms(space) == (4, 4, 1)
    assert space.dimension == 1
    form = space.matrix()
    assert form is not None
    assert form.columns_published
    assert counts.ravel()[form.cells].tolist() == [[3, 4], [5, 6]]


@pytest.mark.parametrize("k", [4, 5])
def test_a_cycle_of_structural_zeros_has_one_move(k: int) -> None:
    allowed = {(i, j) for i in range(k) for j in (i, (i + 1) % k)}
    zeros = tuple(
        {"A": str(i), "B": [str(j) for j in range(k) if (i, j) not in allowed]} for i in range(k)
    )
    counts = np.zeros((k, k), dtype=int)
    for cell in allowed:
        counts[cell] = 1
    public = space_of(counts, "A", "B", zeros=zeros)
    space = sensitivity_space(public, Ball(k))
    assert norms(space) == (2 * k, 2 * k, 1)
    assert space.exact
    assert space.dimension == 1
    assert len(list(space.moves())) == 2
    with pytest.raises(Refused, match="larger a"):
        sensitivity_space(public, Ball(k - 1))


def test_an_unpublished_county_follows_its_state() -> None:
    zeros = ({"A": "0", "B": ["2", "3"]}, {"A": "1", "B": ["0", "1"]})
    counts = np.array([[900, 800, 0, 0], [0, 0, 700, 600]])
    space = sensitivity_space(space_of(counts, "A", zeros=zeros), Ball(2))
    assert norms(space) == (4, 8, 2)
    assert space.exact
    assert space.dimension == 2


def test_layouts() -> None:
    counts = np.full((2, 3, 4), 9)
    for margins, shape in ((("A", "BC"), (2, 12)), (("AC", "B"), (8, 3))):
        two_sided = sensitivity_space(space_of(counts, *margins), Ball(3)).matrix()
        assert two_sided is not None
        assert two_sided.columns_published
        assert two_sided.cells.shape == shape
    assert sensitivity_space(space_of(counts, "A", "B", "C"), Ball(4)).matrix() is None
    one_sided = sensitivity_space(space_of(counts, "AC"), Ball(2))
    form = one_sided.matrix()
    assert form is not None
    assert not form.columns_published
    assert form.cells.shape == (8, 3)
    assert np.array_equal(counts.ravel()[form.cells].sum(axis=1), counts.sum(axis=1).ravel())
    total = sensitivity_space(space_of(counts), Ball(1)).matrix()
    assert total is not None
    assert total.cells.shape == (1, 24)
    assert sensitivity_space(space_of(counts, "AB", "BC"), Ball(3)).matrix() is None

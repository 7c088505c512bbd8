"""a(t), dataspaces and adjacency beyond brute force: closed forms, structural zeros, witnesses,
errors.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.assess.adjacent_datasets import datasets, enumerate_tables, is_adjacent
from semidp.errors import AdjacencyUnknown, InputError, SchemaError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.listed_tables import fiber
from semidp.promise.spaces.semi_adjacency import graver_degree, list_semi_adjacency, semi_adjacency
from semidp.promise.spaces.structure import Structure, worst_cover
from semidp.publish.witness import find_witness


def schema_of(*shape: int, zeros: tuple = ()) -> Schema:
    names = "ABCDEFGH"
    features = [
        Feature(names[i], [str(level) for level in range(size)]) for i, size in enumerate(shape)
    ]
    return Schema(features, [StructuralZero.from_pattern(zero) for zero in zeros])


def space_of(counts: object, *margins: str, zeros: tuple = ()) -> Dataspace:
    array = np.asarray(counts)
    return Dataspace.from_table(
        Table(schema_of(*array.shape, zeros=zeros), array), [Margin(*names) for names in margins]
    )


def records(*rows: str) -> np.ndarray:
    counts = np.zeros([2] * len(rows[0]), dtype=int)
    for row in rows:
        counts[tuple(int(level) for level in row)] += 1
    return counts


def one_way(*blocks: list[int]) -> Dataspace:
    """The dataspace with these one-way margins."""
    schema = schema_of(*map(len, blocks))
    names = schema.names
    values = {
        Margin(name): Table(schema.restrict([name]), block)
        for name, block in zip(names, blocks, strict=True)
    }
    return Dataspace.from_totals(schema, values)


# --- the values that the errata cite --------------------------------------------------------------


def test_definition_and_examples_disagree() -> None:
    """The smallest counterexample: 2x2 with margins (2,1) and (2,1). Literally 2, in the paper's
    own example 3.
    """
    found = semi_adjacency(one_way([2, 1], [2, 1]))
    assert (found.worst_case, found.definition) == (3, 2)


@pytest.mark.parametrize(
    ("blocks", "a"),
    [
        ([[2, 2], [2, 2]], 2),
        ([[2, 1], [2, 1]], 3),
        ([[1, 2], [1, 2], [1, 2]], 3),
        ([[3, 7], [3, 7], [3, 7]], 4),
        ([[50, 50], [50, 50]], 2),
        ([[50, 50], [49, 51]], 3),
        ([[5, 5, 0]], 2),
        ([[7]], 0),
        ([[1, 0], [0, 1]], 0),
    ],
)
def test_disjoint_blocks(blocks: list[list[int]], a: int) -> None:
    assert semi_adjacency(one_way(*blocks)).worst_case == a


def test_overlapping_margins_can_have_a_larger_definition() -> None:
    found = semi_adjacency(space_of(records("0010", "1001", "1100"), "AB", "BC", "CD"))
    assert found.definition == 3
    assert found.method == "listing of all tables"


@pytest.mark.parametrize(
    ("margins", "reached"), [(("AB", "BC"), 3), (("AB", "BC", "CD"), 4), (("AB", "AC", "AD"), 4)]
)
def test_the_junction_tree_bound_holds_and_is_reached(
    margins: tuple[str, ...], reached: int
) -> None:
    size = 1 + max("ABCD".index(name) for margin in margins for name in margin)
    cells = list(itertools.product("01", repeat=size))
    worst = 0
    for rows in itertools.combinations(["".join(cell) for cell in cells], 4):
        found = list_semi_adjacency(space_of(records(*rows), *margins))
        assert found is not None
        assert found.worst_case is not None
        assert found.worst_case <= len(margins) + 1
        worst = max(worst, found.worst_case)
        if worst == reached:
            break
    assert worst == reached


def test_a_large_chain_has_the_junction_tree_bound() -> None:
    found = semi_adjacency(space_of(np.full((3, 3, 3, 3), 50), "AB", "BC", "CD"))
    assert (found.worst_case, found.definition, found.bound) == (None, None, 4)
    assert "junction tree" in found.method


def test_the_triangle_is_listed_when_small_and_needs_a_otherwise() -> None:
    values = {
        semi_adjacency(space_of(records(*rows), "AB", "BC", "AC")).worst_case
        for rows in itertools.combinations_with_replacement([f"{i:03b}" for i in range(8)], 4)
    }
    assert 4 in values
    with pytest.raises(AdjacencyUnknown, match="give the number a"):
        semi_adjacency(space_of(np.full((4, 4, 4), 9), "AB", "BC", "AC"))


def test_the_triangle_can_need_five_records() -> None:
    found = {
        semi_adjacency(space_of(records(*rows), "AB", "BC", "AC")).worst_case
        for rows in itertools.combinations_with_replacement([f"{i:03b}" for i in range(8)], 5)
    }
    assert max(filter(None, found)) == 5


# --- structural zeros -----------------------------------------------------------------------------


def cycle(k: int) -> Dataspace:
    """k x k with only the cells (i, i) and (i, i+1) possible, one record in each."""
    allowed = {(i, j) for i in range(k) for j in (i, (i + 1) % k)}
    zeros = tuple(
        {"A": str(i), "B": [str(j) for j in range(k) if (i, j) not in allowed]}
        for i in range(k)
        if k > 2
    )
    counts = np.zeros((k, k), dtype=int)
    for cell in allowed:
        counts[cell] = 1
    return space_of(counts, "A", "B", zeros=zeros)


@pytest.mark.parametrize("k", [4, 5, 6])
def test_a_cycle_of_structural_zeros_needs_k_records(k: int) -> None:
    found = semi_adjacency(cycle(k))
    assert found.worst_case == k
    assert find_witness(found) is not None
    assert len(find_witness(found).others) == k - 1


def nested(*margins: str, sizes: tuple[int, ...] = (5, 6, 7)) -> Dataspace:
    """Counties a, b in state s and c in state t, by sex."""
    places = Feature.from_paths(["state", "county"], [("s", "a"), ("s", "b"), ("t", "c")])
    schema = Schema([places, Feature("sex", "fm")])
    counts = np.repeat(np.array(sizes)[:, None], 2, axis=1)
    return Dataspace.from_table(
        Table(schema, counts), [Margin(*margin.split(",")) for margin in margins]
    )


@pytest.mark.parametrize(
    ("margins", "a"),
    [
        (("county", "state", "sex"), 3),  # a county says its state: two blocks, not three
        (("county", "sex"), 3),
        (("state", "sex"), 3),  # an unpublished county follows its state
        (("state",), 2),
        (("county,sex", "state"), 2),
    ],
)
def test_a_nested_feature_is_one_block_at_its_finest_published_depth(
    margins: tuple[str, ...], a: int
) -> None:
    public = nested(*margins)
    found = semi_adjacency(public)
    assert found.worst_case == a
    assert "closed form" in found.method
    listed = list_semi_adjacency(nested(*margins, sizes=(1, 1, 1)))
    closed = semi_adjacency(nested(*margins, sizes=(1, 1, 1)))
    assert listed is not None
    assert (listed.worst_case, listed.definition) == (closed.worst_case, closed.definition)


def test_a_zero_inside_a_published_margin_changes_nothing() -> None:
    counts = np.array([[[5, 2], [0, 0]], [[3, 3], [4, 1]]])
    with_zero = space_of(counts, "AB", "C", zeros=({"A": "0", "B": "1"},))
    assert not Structure.from_dataspace(with_zero).zeros_matter
    assert (
        semi_adjacency(with_zero).worst_case
        == semi_adjacency(space_of(counts, "AB", "C")).worst_case
    )


def test_large_spaces_with_structural_zeros_have_a_bound_or_need_a() -> None:
    counts = np.full((6, 5), 100)
    counts[0, 0] = 0
    found = semi_adjacency(space_of(counts, "A", "B", zeros=({"A": "0", "B": "0"},)))
    assert (found.worst_case, found.bound, found.method) == (None, 6, "bound by Graver elements")
    cube = np.full((6, 5, 4), 100)
    cube[0, 0] = 0
    with pytest.raises(AdjacencyUnknown, match="structural zeros"):
        semi_adjacency(space_of(cube, "A", "B", "C", zeros=({"A": "0", "B": "0"},)))


def test_graver_bounds_hold_and_are_attained() -> None:
    """Two-way tables with any structural zeros, also beside a free bit, and 2 x J x K by pairs: all
    small fibers.
    """
    rng = np.random.default_rng(7)
    checked, attained = 0, set()
    for shape, margins in (
        ((3, 3), "A B"),
        ((2, 3), "A B"),
        ((2, 2, 2), "A B"),
        ((2, 2, 2), "AB BC AC"),
        ((3, 3), "A"),
    ):
        for _ in range(60):
            possible = rng.random(shape) < 0.7
            table = np.where(possible, rng.integers(0, 2, shape), 0)
            if not 2 <= table.sum() <= 6:
                continue
            zeros = tuple(
                {"ABC"[axis]: str(level) for axis, level in enumerate(cell)}
                for cell in np.argwhere(~possible).tolist()
            )
            space = space_of(table, *margins.split(), zeros=zeros)
            listed, degree = (
                list_semi_adjacency(space),
                graver_degree(Structure.from_dataspace(space)),
            )
            if listed is not None and degree is not None:
                assert listed.worst_case <= max(2, 1 + degree)
                checked += 1
                attained |= {(shape, margins)} if listed.worst_case == 1 + degree else set()
    assert checked > 150
    assert {((2, 3), "A B"), ((2, 2, 2), "A B")} <= attained
    assert list_semi_adjacency(cycle(4)).worst_case <= 1 + graver_degree(
        Structure.from_dataspace(cycle(4))
    )


# --- closed form = listing, on random margins -----------------------------------------------------


@st.composite
def small_spaces(
    draw: st.DrawFn, margins: tuple[str, ...], shape: tuple[int, ...], most: int
) -> Dataspace:
    cells = int(np.prod(shape))
    chosen = draw(st.lists(st.integers(0, cells - 1), min_size=1, max_size=most))
    return space_of(np.bincount(chosen, minlength=cells).reshape(shape), *margins)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_closed_form_equals_the_listing(data: st.DataObject) -> None:
    margins, shape, most = data.draw(
        st.sampled_from(
            [
                (("A", "B", "C", "D"), (2, 2, 2, 2), 4),
                (("AB", "AC", "AD"), (2, 2, 2, 2), 6),
                (("AB", "BC"), (2, 3, 2), 6),
                (("AB", "CD"), (2, 2, 2, 2), 5),
                (("A", "BC"), (3, 2, 2), 6),
                (("AB", "AC"), (2, 2, 2, 2), 4),
                (("ABC", "ABD"), (2, 2, 2, 2), 6),
            ]
        )
    )
    public = data.draw(small_spaces(margins, shape, most))
    listed = list_semi_adjacency(public)
    if listed is not None:
        found = semi_adjacency(public)
        assert found.method != "listing of all tables"
        assert (found.worst_case, found.definition) == (listed.worst_case, listed.definition)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 14))
def test_the_integer_program_equals_a_search_over_all_placements(
    rarest: list[int], spare: int
) -> None:
    others = max(rarest) + spare
    found = worst_cover(tuple(sorted(rarest)), others)
    assert found.least == found.most == search(tuple(sorted(rarest)), others)


def search(rarest: tuple[int, ...], others: int) -> int:
    """Try every family of patterns that is closed under subsets: is there one that carries all and
    is hard to cover?
    """
    blocks = len(rarest)
    patterns = [p for k in range(1, blocks + 1) for p in itertools.combinations(range(blocks), k)]

    def cover(family: tuple[tuple[int, ...], ...]) -> int:
        for size in range(1, blocks + 1):
            for chosen in itertools.combinations(family, size):
                if len({b for pattern in chosen for b in pattern}) == blocks:
                    return size
        return blocks + 1

    def carries(
        left: tuple[int, ...], family: tuple[tuple[int, ...], ...], records_left: int
    ) -> bool:
        if not any(left):
            return True
        if records_left * max(map(len, family)) < sum(left) or max(left) > records_left:
            return False
        first, rest = family[0], family[1:]
        for count in range(min(min(left[b] for b in first), records_left) + 1):
            now = tuple(have - count * (b in first) for b, have in enumerate(left))
            if not any(now):
                return True
            if rest and carries(now, rest, records_left - count):
                return True
        return False

    best = 1
    for size in range(1, len(patterns) + 1):
        if size > 5:
            break
        for facets in itertools.combinations(patterns, size):
            family = tuple(
                {
                    p
                    for f in facets
                    for k in range(1, len(f) + 1)
                    for p in itertools.combinations(f, k)
                }
            )
            number = cover(family)
            if best < number <= blocks and carries(
                rarest, tuple(sorted(family, key=len, reverse=True)), others
            ):
                best = number
    return best


def test_the_integer_program_is_exact_for_billions_of_records() -> None:
    big = worst_cover((5 * 10**8,) * 4, 10**9 - 1)
    small = worst_cover((500,) * 4, 999)
    assert big.least == big.most == small.least == small.most == 2


def test_more_than_six_blocks_are_bounded() -> None:
    found = semi_adjacency(one_way(*[[5, 5]] * 7))
    assert (found.worst_case, found.bound) == (None, 7)
    assert semi_adjacency(one_way(*[[1, 9]] * 7)).worst_case == 8


# --- definitions that execute ---------------------------------------------------------------------


def test_a_dataspace_lists_its_tables_and_datasets() -> None:
    public = one_way([2, 1], [2, 1])
    listed = [table.counts for table in enumerate_tables(public)]
    assert len(listed) == 2
    assert all(public.contains(Table(public.schema, table)) for table in listed)
    found = list(datasets(public))
    assert len(found) == len(set(found)) == 9
    assert all(len(dataset) == 3 for dataset in found)


def test_a_large_dataspace_is_not_listed() -> None:
    public = one_way([500, 500, 500], [500, 500, 500])
    assert fiber(public) is None
    with pytest.raises(InputError, match="too many tables"):
        list(enumerate_tables(public))


@settings(max_examples=30, deadline=None)
@given(small_spaces(("A", "B"), (2, 2), 4))
def test_the_definition_of_a_executes(public: Dataspace) -> None:
    """The paper's Definition and the worst case, spelled out over labelled datasets."""
    found = list(datasets(public))
    values = {dataset[0] for dataset in found}

    def distance(one: tuple, other: tuple) -> int:
        return next(a for a in range(len(one) + 1) if is_adjacent(Ball(a), one, other))

    literal = worst = 0
    for x, y in itertools.product(values, repeat=2):
        costs = [min(distance(X, Y) for Y in found if Y[0] == y) for X in found if X[0] == x]
        literal, worst = max(literal, min(costs)), max(worst, *costs)
    a = semi_adjacency(public)
    assert (a.definition, a.worst_case) == (literal, worst)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_adjacency_is_a_metric_ball(one: list[int], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.integers(0, 3), min_size=len(one), max_size=len(one)))
    for a in range(len(one) + 1):
        assert is_adjacent(Ball(a), one, other) == is_adjacent(Ball(a), other, one)
        assert is_adjacent(Ball(a), one, other) == (
            sum(x != y for x, y in zip(one, other, strict=True)) <= a
        )


@pytest.mark.parametrize("a", [-1, True, 1.5, "2"])
def test_an_illegal_a_is_refused(a: object) -> None:
    with pytest.raises(InputError, match="whole number"):
        Ball(a)  # type: ignore[arg-type]


# --- margins and dataspaces -----------------------------------------------------------------------


def test_nested_margins_are_dropped_and_unknown_names_listed() -> None:
    public = space_of(np.ones((2, 2, 2), dtype=int), "A", "AB", "BA", "C")
    assert public.margins == (Margin("A", "B"), Margin("C"))
    with pytest.raises(SchemaError, match="the features are A, B, C"):
        space_of(np.ones((2, 2, 2), dtype=int), "D")


def test_a_described_space_has_no_a() -> None:
    with pytest.raises(InputError, match="only described"):
        semi_adjacency(Dataspace.from_description("state totals"))


@pytest.mark.parametrize(
    ("counts", "margins", "a"),
    [
        (np.zeros((2, 2), dtype=int), "AB", 0),  # no records
        ([[1, 0], [0, 0]], "AB", 0),  # one record
        ([[1, 0], [0, 0]], "A", 1),  # one record, one feature free
        ([[3, 4]], "AB", 2),  # a feature with one level
        ([[3, 4]], "A", 1),
    ],
)
def test_degenerate_spaces(counts: object, margins: str, a: int) -> None:
    found = semi_adjacency(space_of(counts, *margins))
    assert (found.worst_case, found.definition, found.bound) == (a, a, a)


def test_a_fixed_table_still_lets_two_records_swap() -> None:
    found = semi_adjacency(space_of([[3, 4], [5, 6]], "AB"))
    assert (found.worst_case, found.definition) == (2, 2)


def test_the_witness_depends_on_t_only() -> None:
    one = space_of([[5, 3], [4, 9]], "A", "B")
    other = space_of([[4, 4], [5, 8]], "A", "B")
    assert one == other
    assert semi_adjacency(one) == semi_adjacency(other)


def test_a_dataspace_does_not_depend_on_the_order_of_its_features() -> None:
    counts = np.arange(12).reshape(2, 3, 2)
    one = Schema(
        (Feature("x", ("a", "b")), Feature("y", ("c", "d", "e")), Feature("z", ("f", "g")))
    )
    other = Schema((one.features[2], one.features[0], one.features[1]))
    margins = [Margin("x", "y"), Margin("z")]
    space = Dataspace.from_table(Table(one, counts), margins)
    assert space == Dataspace.from_table(Table(other, counts.transpose(2, 0, 1)), margins[::-1])
    assert space != Dataspace.from_table(
        Table(other, counts[:, ::-1].transpose(2, 0, 1)), margins[::-1]
    )

"""Schemas and tables: what is declared, what is counted, what is refused, and that no count reaches
a message.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.errors import DataError, InputError, SchemaError, SemidpError
from semidp.promise.schema.features import Feature, bin_edges, level_text
from semidp.promise.schema.schema import MAX_CELLS, Schema, StructuralZero, Table

names = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=6)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Any schema: unicode names, bins, null levels and structural zeros."""
    features = []
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        null = draw(st.none() | st.just("?"))
        if draw(st.booleans()):
            inner = draw(st.lists(st.integers(-50, 50), min_size=2, max_size=4, unique=True))
            edges = [*draw(st.sampled_from([[], ["-inf"]])), *sorted(inner)]
            edges += draw(st.sampled_from([[], ["inf"]]))
            features.append(Feature(name, bins=edges, null_level=null))
        else:
            levels = draw(
                st.lists(
                    names.filter(lambda text: text != "?"), min_size=1, max_size=4, unique=True
                )
            )
            features.append(Feature(name, levels, null_level=null))
    zeros = []
    for feature in features[: draw(st.integers(0, len(features)))]:
        zeros.append(
            StructuralZero.from_pattern({feature.name: draw(st.sampled_from(feature.levels))})
        )
    return Schema(features, zeros)


@settings(max_examples=100, deadline=None)
@given(schemas())
def test_a_schema_survives_toml_and_json(schema: Schema) -> None:
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_json(schema.to_json()) == schema


@st.composite
def tables(draw: st.DrawFn) -> Table:
    shape = draw(st.tuples(*[st.integers(1, 3)] * 3))
    schema = Schema(
        [
            Feature(name, [str(i) for i in range(size)])
            for name, size in zip("ABC", shape, strict=True)
        ]
    )
    counts = draw(st.lists(st.integers(0, 10**12), min_size=schema.size, max_size=schema.size))
    return Table(schema, np.reshape(counts, shape))


@settings(max_examples=50, deadline=None)
@given(tables(), st.sets(st.sampled_from("ABC")), st.sets(st.sampled_from("ABC")))
def test_margins_commute_and_keep_the_total(table: Table, one: set[str], other: set[str]) -> None:
    assert table.margin(one).n == table.n
    if one & other:
        assert table.margin(one | other).margin(one & other) == table.margin(one & other)
    assert table.margin("ABC") == table


@settings(max_examples=50, deadline=None)
@given(tables())
def test_addition_and_equality(table: Table) -> None:
    double = table + table
    assert double.n == 2 * table.n
    assert (double == table) == (table.n == 0)
    assert hash(Table(table.schema, table.counts)) == hash(table)
    assert table != "a table"


def test_margins_follow_the_schema_order() -> None:
    schema = Schema([Feature("a", "xy"), Feature("b", "uvw")])
    table = Table(schema, [[1, 2, 3], [4, 5, 6]])
    assert table.margin(["b", "a"]) == table
    assert table.margin([]).n == 21


def test_counts_from_a_frame_of_records_or_of_counts() -> None:
    schema = Schema([Feature("sex", "fm"), Feature("age", bins=[0, 18, 65, "inf"], null_level="?")])
    frame = pd.DataFrame({"sex": ["f", "m", "f", "f"], "age": [3, 70.5, None, 18], "other": 1})
    assert Table.from_frame(frame, schema).counts.tolist() == [[1, 1, 0, 1], [0, 0, 1, 0]]
    frame["people"] = [10, 20, 30, 40]
    assert Table.from_frame(frame, schema, count="people").counts.tolist() == [
        [10, 40, 0, 30],
        [0, 0, 20, 0],
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("fm"), st.sampled_from("nsw")), max_size=30))
def test_the_records_of_a_frame_are_all_counted(rows: list[tuple[str, str]]) -> None:
    schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    table = Table.from_frame(
        {"sex": [row[0] for row in rows], "region": [row[1] for row in rows]}, schema
    )
    assert table.n == len(rows)
    for (i, sex), (j, region) in ((x, y) for x in enumerate("fm") for y in enumerate("nsw")):
        assert table.counts[i, j] == rows.count((sex, region))


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (True, "true"), (np.int64(3), "3"), (2.5, "2.5"), ("x", "x")]
)
def test_levels_are_text(value: object, text: str) -> None:
    assert level_text(value) == text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Feature("", "ab"), "needs a name"),
        (lambda: Feature("a"), "no levels"),
        (lambda: Feature("a", ["x", "x"]), "twice"),
        (lambda: Feature("a", bins=[3, 1]), "increasing"),
        (lambda: Schema([]), "at least one feature"),
        (lambda: Schema([Feature("a", "x"), Feature("a", "y")]), "listed twice"),
        (
            lambda: Schema([Feature("a", "x")], [StructuralZero.from_pattern({"b": "x"})]),
            "the features are a",
        ),
        (
            lambda: Schema([Feature("a", "x")], [StructuralZero.from_pattern({"a": "y"})]),
            "does not have",
        ),
        (lambda: StructuralZero.from_pattern({}), "at least one feature"),
        (lambda: Schema.from_toml("= 3"), "not valid TOML"),
        (lambda: Schema.from_json({"tables": []}), "feature and structural_zero"),
        (lambda: Schema([Feature("a", "xy")]).axis("b"), "the features are a"),
    ],
)
def test_a_wrong_schema_says_what_is_legal(make: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make()  # type: ignore[operator]


SCHEMA = Schema(
    [Feature("a", "xy"), Feature("b", "uv")], [StructuralZero.from_pattern({"a": "x", "b": "v"})]
)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1, 0], [2, -5]], "negative"),
        ([[1, 0], [2, 0.5]], "whole numbers"),
        ([[1, 31337], [2, 3]], "impossible"),
        ([[1, 0], [2, np.nan]], "whole numbers"),
        (np.array([[0, 0], [0, 2**64 - 1]], dtype=np.uint64), "63 bits"),
        ([[2**61, 0], [2**61, 2**61]], "2\\^62"),
    ],
)
def test_illegal_counts_are_refused_without_a_value(counts: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        Table(SCHEMA, counts)  # type: ignore[arg-type]
    assert "31337" not in str(caught.value)


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        Table(SCHEMA, np.zeros(3, dtype=int))
    with pytest.raises(InputError, match="same schema"):
        Table(SCHEMA, np.zeros((2, 2), dtype=int)) + Table(
            SCHEMA.restrict("a"), np.zeros(2, dtype=int)
        )


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"a": ["x", "secret"], "b": ["u", "v"]}, "not among its declared levels"),
        ({"a": ["x", None], "b": ["u", "v"]}, "missing values"),
        ({"a": ["x"]}, "the columns are a"),
    ],
)
def test_wrong_data_are_refused_without_quoting_them(frame: dict, message: str) -> None:
    with pytest.raises((DataError, SchemaError), match=message) as caught:
        Table.from_frame(frame, SCHEMA)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("counts", [[1.5, 2], [-1, 2], [None, 2], ["x", 2]])
def test_a_wrong_count_column_is_refused(counts: list) -> None:
    with pytest.raises(DataError, match="whole numbers"):
        Table.from_frame({"a": ["y", "y"], "b": ["u", "v"], "n": counts}, SCHEMA, count="n")


def test_a_repr_never_shows_a_count() -> None:
    table = Table(SCHEMA, [[31337, 0], [2, 3]])
    assert "31337" not in repr(table)
    assert repr(table) == "Table(a: 2 levels, b: 2 levels)"


def test_values_are_frozen() -> None:
    table = Table(SCHEMA, [[1, 0], [2, 3]])
    with pytest.raises(ValueError, match="read-only"):
        table.counts[0, 0] = 5
    with pytest.raises(AttributeError):
        table.schema = SCHEMA  # type: ignore[misc]


def test_a_table_that_would_not_fit_in_memory_is_refused() -> None:
    features = [Feature(f"f{i}", [str(k) for k in range(50)]) for i in range(6)]
    schema = Schema(features)
    assert schema.size > MAX_CELLS
    with pytest.raises(SchemaError, match="fewer features"):
        Table(schema, np.zeros(1, dtype=int))


def test_restricting_keeps_the_zeros_that_still_make_sense() -> None:
    assert SCHEMA.restrict(["a", "b"]) == SCHEMA
    assert SCHEMA.restrict(["a"]).structural_zeros == ()
    assert SCHEMA.possible is not None
    assert SCHEMA.possible.tolist() == [[True, False], [True, True]]
    assert SCHEMA.restrict(["a"]).possible is None


def test_bins_are_closed_unless_an_end_is_left_open() -> None:
    """Labels, and the edges of a text: nothing before the first comma or after the last one."""
    for text, labels in (
        ("0,18,65,120", ("0 to <18", "18 to <65", "65 to 120")),
        ("0,18,65,", ("0 to <18", "18 to <65", "65 and over")),
        (",18,65", ("below 18", "18 to 65")),
        (",18,", ("below 18", "18 and over")),
        (",18", ("at most 18",)),
        (",", ("any",)),
        ("0,18", ("0 to 18",)),
    ):
        feature = Feature("age", bins=bin_edges(text))
        assert feature.levels == labels
        assert Feature.from_json(feature.to_json()) == feature
    for text in ("18", "", "0,,18", "18,0"):
        with pytest.raises(SemidpError, match="bin"):
            Feature("age", bins=bin_edges(text))

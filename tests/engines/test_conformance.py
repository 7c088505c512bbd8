"""The same cases through every engine: CSV, Parquet, pandas, Arrow; Ibis on DuckDB, PostgreSQL and
Spark.
"""

import datetime
import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from semidp.errors import DataError, InputError, SchemaError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.publish.sources.opening import Source, open_source

SECRET = 7654321
REGIONS = ("01", "1", 'O\'Brien, "west"', "naïve")
Engine = Callable[..., Source]
Records = dict[str, list[Any]]
Refused = Callable[[BaseException, str], None]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "features",
    [
        [Feature("sex", ("f", "m"))],
        [Feature("sex", ("m", "f", "x")), Feature("region", REGIONS, null_level="unknown")],
        [Feature("age", bins=(0, 18, 65, "inf"), null_level="unknown"), Feature("sex", ("f", "m"))],
        [Feature("age", bins=("-inf", "17.5", 18, "1e2", "inf"), null_level="unknown")],
        [Feature("dose", bins=("1/2", 1, "1.5", "inf"), null_level="none")],
        [Feature("dose", ("0.5", "1", "2"), null_level="none"), Feature("paid", ("false", "true"))],
        [Feature("day", ("2020-01-01", "2020-01-02", "2020-01-03")), Feature("people", range(9))],
    ],
    ids=lambda features: "-".join(feature.name for feature in features),
)
def test_counts_are_those_of_the_reference(
    engine: Engine, records: Records, features: list[Feature]
) -> None:
    schema = Schema(tuple(features))
    assert engine(records).counts(schema) == Table.from_frame(_objects(records), schema)


MANY = [
    Feature("sex", ("m", "f", "x")),
    Feature("region", REGIONS, null_level="unknown"),
    Feature("age", bins=("-inf", "17.5", 18, "1e2", "inf"), null_level="unknown"),
    Feature("dose", ("0.5", "1", "2"), null_level="none"),
    Feature("paid", ("false", "true")),
    Feature("day", ("2020-01-01", "2020-01-02", "2020-01-03")),
    Feature("id", range(400)),
]


@pytest.mark.parametrize("count", [None, "people"])
def test_tables_that_are_read_together_are_those_that_are_read_alone(
    engine: Engine, records: Records, count: str | None
) -> None:
    sets = [
        *itertools.combinations(MANY, 2),
        (MANY[3],),
        tuple(MANY[:4]),
        (MANY[1], MANY[0]),
        (MANY[6], *MANY[:5]),
    ]
    schemas = [Schema(chosen) for chosen in sets]
    tables = engine(records, count=count).tables(schemas)
    assert tables == [
        Table.from_frame(_objects(records), schema, count=count) for schema in schemas
    ]


def test_paths_of_nested_features_are_read_together_at_every_depth(
    engine: Engine, refused: Refused
) -> None:
    county = Feature.from_paths(
        ["state", "county"], [("a", "01"), ("a", "1"), ("b", "2")], null_level="?"
    )
    sex = Feature("sex", ("f", "m"))
    records = {
        "state": ["a", "a", "b", "a", None],
        "county": ["1", "01", "2", None, None],
        "sex": [*"fmfmf"],
    }
    schemas = [Schema([county]), Schema([county.cut_to_depth(1), sex]), Schema([county, sex])]
    source = engine(records)
    assert source.tables(schemas) == [source.counts(schema) for schema in schemas]
    with pytest.raises(DataError) as caught:
        engine({"state": ["b", "a"], "county": ["01", "1"], "sex": [*"fm"]}).tables(schemas)
    refused(caught.value, "another parent")


def test_paths_are_told_apart_where_their_columns_have_more_combinations_than_an_integer() -> None:
    names, leaves = "abcde", range(7_000)  # 7,000^5 > 2^63
    nested = Feature.from_paths(
        names, [tuple(f"{name}{leaf}" for name in names) for leaf in leaves]
    )
    records = {name: [f"{name}{leaf}" for leaf in leaves] for name in names} | {
        "sex": ["f", "m"] * 3_500
    }
    with open_source(records) as source:
        alone, by_sex = source.tables([Schema([nested]), Schema([nested, Feature("sex", "fm")])])
    assert (alone.counts == 1).all()
    assert by_sex.margin(names) == alone


def test_undeclared_and_missing_values_are_refused_in_tables_read_together(
    engine: Engine, refused: Refused
) -> None:
    sex, town, name = (
        Feature("sex", ("f", "m")),
        Feature("town", ("3", "4")),
        Feature("name", ("a", "b")),
    )
    schemas = [Schema([sex]), Schema([sex, town]), Schema([town])]
    with pytest.raises(DataError) as caught:
        engine({"sex": ["f", "m"], "town": [3, SECRET]}).tables(schemas)
    refused(caught.value, "feature 'town' has values not among its declared levels")
    with pytest.raises(DataError) as caught:
        engine({"sex": ["f", "m"], "town": [3, None]}).tables(schemas)
    refused(caught.value, "feature 'town' has missing values")
    people = {"sex": ["f"] * 500, "name": [f"person {SECRET} {number}" for number in range(500)]}
    with pytest.raises(DataError) as caught:
        engine(people).tables([Schema([sex]), Schema([sex, name])])
    refused(caught.value, "feature 'name' has values not among")


def test_truth_in_any_capitals_is_counted_whole(engine: Engine) -> None:
    words = ["true", "True", "TRUE", "tRUE", "trUE", "false", "False", "FALSE", "fALSE"]
    paid, sex = Schema([Feature("paid", ("true", "false"))]), Schema([Feature("sex", ("f",))])
    source = engine({"paid": words, "sex": ["f"] * 9})
    assert source.counts(paid).counts.tolist() == [5, 4]
    assert [table.counts.tolist() for table in source.tables([paid, sex])] == [[5, 4], [9]]


def test_levels_are_those_that_occur_in_order(engine: Engine, records: Records) -> None:
    source = engine(records)
    assert source.levels("sex") == ("f", "m")
    assert source.levels("region") == REGIONS
    assert source.levels("people") == tuple(str(value) for value in range(9))
    assert source.levels("dose") == ("0.5", "1", "2")
    assert source.levels("paid") == ("false", "true")
    assert source.levels("day") == ("2020-01-01", "2020-01-02", "2020-01-03")


def test_numbers_that_are_levels_come_in_numeric_order(engine: Engine) -> None:
    assert engine({"grade": [10, 9, 100, 9]}).levels("grade") == ("9", "10", "100")


def test_columns_are_listed_and_a_wrong_one_names_them(
    engine: Engine, records: Records, refused: Refused
) -> None:
    source = engine(records)
    assert source.columns() == tuple(records)
    assert "sex" in repr(source)
    for ask in (
        lambda: source.counts(Schema((Feature("town", ("a",)),))),
        lambda: source.levels("town"),
        lambda: engine(records, count="town"),
        lambda: engine(records, id="town"),
        lambda: source.sums(Schema((Feature("sex", ("f", "m")),)), Outcome("town", 0, 1, 1)),
    ):
        with pytest.raises(SchemaError) as caught:
            ask()
        refused(caught.value, "there is no column 'town'; the columns are id, sex, region, age")


def test_a_missing_value_is_refused_without_a_null_level(
    engine: Engine, records: Records, refused: Refused
) -> None:
    source = engine(records)
    for feature in (
        Feature("region", REGIONS),
        Feature("age", bins=(0, 50, "inf")),
        Feature("dose", bins=(0, 1, "inf")),
    ):
        with pytest.raises(DataError) as caught:
            source.counts(Schema((feature,)))
        refused(caught.value, f"feature '{feature.name}' has missing values: declare a null level")


@pytest.mark.parametrize("value", [SECRET, str(SECRET), SECRET + 0.5])
def test_an_undeclared_level_is_refused_and_never_quoted(
    engine: Engine, refused: Refused, value: Any
) -> None:
    source = engine({"town": [value, value, type(value)(3)]})
    with pytest.raises(DataError) as caught:
        source.counts(Schema((Feature("town", ("3", "4")),)))
    refused(caught.value, "feature 'town' has values not among its declared levels")


def test_many_undeclared_levels_are_refused_before_they_fill_memory(
    engine: Engine, refused: Refused
) -> None:
    source = engine(
        {"sex": ["f"] * 500, "name": [f"person {SECRET} {number}" for number in range(500)]}
    )
    with pytest.raises(DataError) as caught:
        source.counts(Schema((Feature("sex", ("f", "m")), Feature("name", ("a", "b")))))
    refused(caught.value, "feature 'name' has values not among")


def test_a_value_outside_the_bins_is_refused(engine: Engine, refused: Refused) -> None:
    source = engine({"age": [30, -SECRET], "pay": [30, SECRET]})
    for name in ("age", "pay"):
        with pytest.raises(DataError) as caught:
            source.counts(Schema((Feature(name, bins=(0, 18, 65)),)))
        refused(caught.value, f"feature '{name}' has values outside its bins")


def test_the_last_edge_belongs_to_the_last_bin(engine: Engine) -> None:
    """As in numpy.histogram, for whole and other numbers; an open end takes what lies above."""
    values = [0.0, 17.5, 18.0, 64.0, 65.0, 65.0]
    source = engine({"age": values, "years": [0, 17, 18, 64, 65, 65]})
    for edges in ((0, 18, 65), (0, "17.5", 65)):
        expected = np.histogram(values, [float(edge) for edge in edges])[0].tolist()
        assert source.counts(Schema((Feature("age", bins=edges),))).counts.tolist() == expected
    assert source.counts(Schema((Feature("years", bins=(0, 18, 65)),))).counts.tolist() == [2, 4]
    for edges, expected in (((0, 18, 65, "inf"), [2, 2, 2]), (("-inf", 18, "inf"), [2, 4])):
        assert source.counts(Schema((Feature("years", bins=edges),))).counts.tolist() == expected


def test_bins_of_words_are_refused(engine: Engine, refused: Refused) -> None:
    source = engine({"age": ["30", f"about {SECRET}"]})
    with pytest.raises((DataError, SchemaError)) as caught:
        source.counts(Schema((Feature("age", bins=(0, 18, 65)),)))
    refused(
        caught.value,
        "the values of 'age' are not all numbers|column 'age' does not hold numbers",
    )


def test_bins_of_dates_are_refused(engine: Engine, records: Records, refused: Refused) -> None:
    with pytest.raises((DataError, SchemaError)) as caught:
        engine(records).counts(Schema((Feature("day", bins=(0, 18, 65)),)))
    refused(
        caught.value,
        "the values of 'day' are not all numbers|column 'day' does not hold numbers",
    )


def test_infinite_values_fall_in_the_outer_bins(engine: Engine) -> None:
    source = engine({"x": [math.inf, -math.inf, 3.0]})
    schema = Schema((Feature("x", bins=("-inf", 0, 5, "inf")),))
    assert source.counts(schema).counts.tolist() == [1, 1, 1]


def test_counts_are_added_up(engine: Engine, records: Records) -> None:
    schema = Schema((Feature("sex", ("f", "m")), Feature("region", REGIONS, null_level="unknown")))
    expected = Table.from_frame(_objects(records), schema, count="people")
    assert engine(records, count="people").counts(schema) == expected


@pytest.mark.parametrize(
    "bad", [[1.0, -SECRET], [1.0, SECRET + 0.5], [1.0, None], [1.0, math.nan], [1.0, 1e17]]
)
def test_counts_must_be_whole_present_and_not_negative(
    engine: Engine, refused: Refused, bad: list[Any]
) -> None:
    bad = [None if value is None else float(value) for value in bad]
    source = engine({"sex": ["f", "m"], "people": bad}, count="people")
    with pytest.raises(DataError) as caught:
        source.counts(Schema((Feature("sex", ("f", "m")),)))
    refused(caught.value, "the count column 'people' must hold whole numbers from 0")


def test_a_count_column_of_words_is_refused(engine: Engine, refused: Refused) -> None:
    with pytest.raises((DataError, SchemaError)) as caught:
        engine({"sex": ["f", "m"], "people": ["3", f"{SECRET} or so"]}, count="people").counts(
            Schema((Feature("sex", ("f", "m")),))
        )
    refused(
        caught.value,
        "count column 'people' must hold whole|column 'people' does not hold numbers, which a"
        " count",
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("age >= 18", lambda row: row["age"] is not None and row["age"] >= 18),
        ("region = '01'", lambda row: row["region"] == "01"),
        (
            "sex = 'f' OR score < 20.5 -- the weak",
            lambda row: row["sex"] == "f" or row["score"] < 20.5,
        ),
        ("region IS NULL", lambda row: row["region"] is None),
        ("1 = 0", lambda row: False),
        ("paid", lambda row: row["paid"]),
        ("day BETWEEN '2020-01-02' AND '2020-01-03'", lambda row: row["day"].day > 1),
    ],
)
def test_where_keeps_what_it_says(
    engine: Engine, records: Records, where: str, keep: Callable[[dict[str, Any]], bool]
) -> None:
    rows = [dict(zip(records, row, strict=True)) for row in zip(*records.values(), strict=True)]
    kept = [row for row in rows if keep(row)]
    schema = Schema((Feature("sex", ("f", "m")), Feature("region", REGIONS, null_level="unknown")))
    columns = {name: np.array([row[name] for row in kept], dtype=object) for name in records}
    assert engine(records, where=where).counts(schema) == Table.from_frame(columns, schema)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "where",
    [
        "",
        "age >",
        "town = 'x'",
        "age > 1; DROP TABLE records",
        "age > 1) UNION SELECT * FROM records WHERE (1 = 1",
        "age > 1) ORDER BY (age",
        "age > (SELECT avg(age) FROM records)",
        "EXISTS (SELECT 1)",
        "age > 1 OVER ()",
    ],
)
def test_a_where_that_is_not_one_condition_is_refused(
    engine: Engine, records: Records, refused: Refused, where: str
) -> None:
    with pytest.raises(InputError) as caught:
        engine(records, where=where).counts(Schema((Feature("sex", ("f", "m")),)))
    refused(caught.value, "the WHERE must be one condition on the columns of a record")


def test_a_where_that_fails_on_the_data_quotes_none(engine: Engine, refused: Refused) -> None:
    with pytest.raises(DataError) as caught:
        engine(
            {"sex": ["f", "m"], "code": ["1", f"x{SECRET}"]},
            where="CAST(code AS INTEGER) > 0",
            read_as={"code": "text"},
        )
    refused(caught.value, "the WHERE casts text to integer, and some of it is none")


def test_one_record_per_person_is_checked_on_what_is_read(
    engine: Engine, records: Records, refused: Refused
) -> None:
    engine(records, id="id")
    twice = {**records, "id": [records["id"][1], *records["id"][1:]]}
    with pytest.raises(DataError) as caught:
        engine(twice, id="id")
    refused(caught.value, "the id column 'id' names someone twice")
    engine({"id": [SECRET, SECRET], "wave": [1, 2]}, id="id", where="wave = 2")
    assert engine({"id": [SECRET, SECRET, 1], "wave": [1, 2, 2]}, id="id", most=2).persons == 2
    with pytest.raises(DataError, match="more than once,"):
        engine({"id": [SECRET, SECRET, 1], "wave": [1, 2, 2]}, id="id", most=1)


def test_every_record_needs_an_id(engine: Engine, refused: Refused) -> None:
    with pytest.raises(DataError) as caught:
        engine({"id": [SECRET, None], "sex": ["f", "m"]}, id="id")
    refused(caught.value, "the id column 'id' has missing values")
    with pytest.raises(InputError) as caught_input:
        engine({"id": [SECRET, 2], "people": [1, 2]}, id="id", count="people")
    refused(caught_input.value, "count and id cannot both be given")


@pytest.mark.parametrize(
    "outcome", [Outcome("score", 0, 100, 1000), Outcome("score", "1/3", "99.9", 7)]
)
@pytest.mark.parametrize("count", [None, "people"])
def test_sums_are_integers_of_clipped_and_rounded_records(
    engine: Engine, records: Records, outcome: Outcome, count: str | None
) -> None:
    schema = Schema(
        (Feature("sex", ("f", "m")), Feature("age", bins=(0, 50, "inf"), null_level="unknown"))
    )
    low, high = float(outcome.lower), float(outcome.upper)
    steps = np.floor(
        (np.clip(records["score"], low, high) - low) / (high - low) * outcome.steps + 0.5
    ).astype(int)
    assert steps.min() == 0
    assert steps.max() == outcome.steps
    weighed = {**records, "steps": [int(step) for step in steps * (records[count] if count else 1)]}
    sums = engine(records, count=count).sums(schema, outcome)
    assert sums.dtype == np.int64
    assert (
        sums.tolist() == Table.from_frame(_objects(weighed), schema, count="steps").counts.tolist()
    )


def test_true_and_false_count_as_one_and_zero(engine: Engine, records: Records) -> None:
    source = engine(records)
    paid = sum(records["paid"])
    assert (
        int(source.sums(Schema((Feature("sex", ("f", "m")),)), Outcome("paid", 0, 1, 1)).sum())
        == paid
    )
    if engine.store != "csv":  # type: ignore[attr-defined]  # where true is a word, which is in no bin
        binned = source.counts(Schema((Feature("paid", bins=(0, 1, "inf")),)))
        assert binned.counts.tolist() == [len(records["sex"]) - paid, paid]


def test_truth_values_are_one_pair_of_levels(engine: Engine) -> None:
    for values in ([True, False, True], [True, True, True], [True, None, True]):
        source = engine({"paid": values, "sex": ["f"] * 3})
        assert source.levels("paid") == ("false", "true")
        table = source.counts(Schema((Feature("paid", ("true", "false"), null_level="?"),)))
        assert table.counts.tolist() == [
            values.count(True),
            values.count(False),
            values.count(None),
        ]


def test_words_for_truth_are_levels_in_capitals_or_not(engine: Engine, refused: Refused) -> None:
    words = ["True", "TRUE", "true", "False", "FALSE"]
    source = engine({"paid": words, "word": [*words[:4], "Yes"]})
    assert source.levels("paid") == ("false", "true")
    assert source.counts(Schema((Feature("paid", ("true", "false")),))).counts.tolist() == [3, 2]
    assert set(source.levels("word")) == {*words[:4], "Yes"}
    other = Schema((Feature("paid", ("true", "false", "maybe")),))
    for schema in (other, Schema((Feature("word", ("true", "false")),))):
        with pytest.raises(DataError) as caught:
            source.counts(schema)
        refused(caught.value, "has values not among its declared levels")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "where",
    [
        "random() < 0.5",
        "rand() < 0.5",
        "day < now()",
        "day < current_date",
        "day < current_timestamp",
        "no_such_function(age) > 1",
        "lower(sex) = 'f' AND random() < 2",
        "current_user = sex",
    ],
)
def test_a_where_depends_on_the_record_alone(
    engine: Engine, records: Records, refused: Refused, where: str
) -> None:
    with pytest.raises(InputError) as caught:
        engine(records, where=where)
    refused(
        caught.value,
        "the WHERE must (depend on the record alone, and |be one condition on the columns)",
    )


def test_a_source_that_is_held_answers_the_same(
    engine: Engine, records: Records, refused: Refused
) -> None:
    source = engine(records, id="id", count=None, where="score > 10")
    before = source.counts(Schema((Feature("sex", ("f", "m")),)))
    with pytest.raises(SchemaError) as caught:
        source.hold(["sex", "town"])
    refused(caught.value, "there is no column 'town'; the columns are id, sex, region, age")
    source.hold(["sex", "id"])
    source.hold()
    assert source.counts(Schema((Feature("sex", ("f", "m")),))) == before


@pytest.mark.parametrize("bad", [None, math.nan])
def test_a_missing_outcome_is_refused(engine: Engine, refused: Refused, bad: Any) -> None:
    source = engine({"sex": ["f", "m"], "score": [float(SECRET), bad]})
    with pytest.raises(DataError) as caught:
        source.sums(Schema((Feature("sex", ("f", "m")),)), Outcome("score", 0, 100, 10))
    refused(caught.value, "the outcome 'score' has missing values")


def test_an_outcome_of_words_is_refused(engine: Engine, refused: Refused) -> None:
    source = engine({"sex": ["f", "m"], "score": ["7", f"{SECRET}?"]})
    with pytest.raises((DataError, SchemaError)) as caught:
        source.sums(Schema((Feature("sex", ("f", "m")),)), Outcome("score", 0, 100, 10))
    refused(
        caught.value,
        "the outcome 'score' has values that are not numbers|does not hold numbers, which an"
        " outcome",
    )


def test_awkward_names_are_only_names(engine: Engine) -> None:
    names = ['sex"; DROP TABLE records; --', "group by", "k0", "total", "Été (%)", "a'b"]
    columns = {name: ["x", "y", "x"] for name in names}
    source = engine(columns)
    for name in names:
        assert source.counts(Schema((Feature(name, ("x", "y")),))).counts.tolist() == [2, 1]
    everything = Schema(tuple(Feature(name, ("x", "y")) for name in names))
    assert source.counts(everything).n == 3


def test_a_column_of_nothing_has_no_levels(engine: Engine, refused: Refused) -> None:
    source = engine({"sex": ["f", "m"], "town": ["a", None]}, where="sex = 'm'")
    with pytest.raises(DataError) as caught:
        source.levels("town")
    refused(caught.value, "column 'town' holds no value")


def test_structural_zeros_are_checked(engine: Engine, records: Records, refused: Refused) -> None:
    from semidp.promise.schema.schema import StructuralZero

    zero = StructuralZero.from_pattern({"sex": "f", "paid": "true"})
    schema = Schema((Feature("sex", ("f", "m")), Feature("paid", ("false", "true"))), (zero,))
    with pytest.raises(DataError) as caught:
        engine(records).counts(schema)
    refused(caught.value, "declared impossible")


def test_nested_features_are_grouped_by_the_columns_that_are_there(
    engine: Engine, refused: Refused
) -> None:
    county = Feature.from_paths(
        ["state", "county"], [("a", "01"), ("a", "1"), ("b", "2")], null_level="?"
    )
    records = {"state": ["a", "a", "b", "a", None], "county": ["1", "01", "2", None, None]}
    assert engine(records).counts(Schema([county])).counts.tolist() == [1, 1, 1, 1, 0, 1]
    alone = {"county": records["county"]}
    assert engine(alone).counts(Schema([county])).counts.tolist() == [1, 1, 0, 1, 0, 2]
    assert engine(records).paths(["state", "county"], "?") == [
        ("?", "?"),
        ("a", "01"),
        ("a", "1"),
        ("a", "?"),
        ("b", "2"),
    ]
    with pytest.raises(DataError) as caught:
        engine({"state": ["b"], "county": ["01"]}).counts(Schema([county]))
    refused(caught.value, "another parent")
    with pytest.raises(DataError) as caught:
        engine(records).paths(["state", "county"])
    refused(caught.value, "missing values")


def _objects(records: Records) -> dict[str, Any]:
    return {name: np.array(values, dtype=object) for name, values in records.items()}


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([Decimal("1.50"), Decimal("2.00"), Decimal("1.5")], ["1.5", "2"]),
        (pd.to_datetime(["2020-01-02", "2021-03-04", None]), ["2020-01-02", "2021-03-04"]),
        (
            pd.to_datetime(["2020-01-02 03:04", "2021-03-04 00:00"]),
            ["2020-01-02 03:04:00", "2021-03-04"],
        ),
        (
            [datetime.date(2020, 1, 2), datetime.date(2021, 3, 4), None],
            ["2020-01-02", "2021-03-04"],
        ),
        (pd.Categorical(["a", "b", None, "a"], categories=["b", "a", "z"]), ["b", "a", "z"]),
        (pd.Categorical([2, 1, 2], categories=[1, 2, 3]), ["1", "2", "3"]),
        (pd.Categorical([1.0, 2.5, 1.0]), ["1", "2.5"]),
        (pd.array(["f", None, "m"], dtype="string"), ["f", "m"]),
        (pd.array([1, None, 2], dtype="Int64"), ["1", "2"]),
        (pd.array([True, None, False], dtype="boolean"), ["false", "true"]),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")) or None,
)
def test_a_frame_is_read_alike_in_memory_and_by_the_engine(values: Any, levels: list[str]) -> None:
    frame, schema = pd.DataFrame({"x": values}), Schema([Feature("x", levels, null_level="?")])
    with open_source(frame) as source:
        by_engine = source.counts(schema)
    assert by_engine == Table.from_frame(frame, schema)
    assert by_engine.n == len(frame)
    assert by_engine.counts[-1] == frame["x"].isna().sum()

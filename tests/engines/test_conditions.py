"""What a condition means: the same for a record in every engine, whatever other records hold."""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.conftest import ENGINES, STORES, open_engine, write_csv

from semidp.errors import DataError, InputError
from semidp.promise.schema.features import value_text
from semidp.publish.sources.opening import Source, open_source

Engine = Callable[..., Source]
Refused = Callable[[BaseException, str], None]
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "<>": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


def _cell(value: Any) -> Any:
    if value_text(value) is None:
        return None
    # workbooks hold numbers of 15 digits
    return str(value) if isinstance(value, int) and abs(value) >= 2**53 else value


def _excel(request: pytest.FixtureRequest, folder: Path) -> Callable[..., Any]:
    from openpyxl import Workbook

    def put(columns: Mapping[str, Sequence[Any]]) -> tuple[Any, dict[str, str]]:
        book = Workbook()
        book.active.append([*columns])
        for row in zip(*columns.values(), strict=True):
            book.active.append([_cell(value) for value in row])
        book.save(folder / "records.xlsx")
        return folder / "records.xlsx", {}

    return put


@pytest.fixture(params=[*ENGINES, "excel"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """As the fixture of the conformance suite, and workbooks."""
    put = {**STORES, "excel": _excel}[request.param](request, tmp_path)
    yield from open_engine(request.param, put)


def kept(source: Source) -> str:
    """The rows that are left."""
    records, _, _ = source._records.occurrences("row")
    return "".join(source.levels("row")) if records else ""


def all_kept(
    engine: Engine, columns: Mapping[str, list[Any]], wheres: Sequence[str], **options: Any
) -> list[list[str]]:
    """The rows that each of several conditions keeps, from one reading: of a copy of the records
    each.
    """
    copies = {name: values * len(wheres) for name, values in columns.items()}
    copies["copy"] = [str(copy) for copy in range(len(wheres)) for _ in columns["row"]]
    every = " OR ".join(f"copy = '{copy}' AND ({where})" for copy, where in enumerate(wheres))
    rows = engine(copies, where=every, **options).paths(["copy", "row"])
    return [sorted(row for copy, row in rows if copy == str(n)) for n in range(len(wheres))]


TEXTS: dict[str, list[Any]] = {
    "row": ["a", "b", "c", "d", "e", "f"],
    "age": ["30", "9", "30.0", "+52", None, "-7"],
    "zip": ["01", "1", "10", "02", None, "001"],
    "dose": ["1.50", "1e3", ".5", "-0", None, "0.3"],
    "word": ["x", "Ä", "x y", " x", None, "xX"],
    "day": ["2026-01-31", "2026-01-31 00:00:00", "2026-01-31 12:30:00", "2025-12-31", None, "1999-01-01"],
    "paid": ["true", "False", "TRUE", "false", None, "true"],
    "big": ["9007199254740992", "9007199254740993", "9007199254740994", "18446744073709551617", "0", "-9007199254740993"],
}  # fmt: skip
TYPED: dict[str, list[Any]] = {
    "row": ["a", "b", "c", "d", "e", "f"],
    "age": [30, 9, 30, 52, None, -7],
    "dose": [1.5, 1000.0, 0.5, 0.0, None, 0.3],
    "paid": [True, False, True, False, None, True],
    "big": [2**53, 2**53 + 1, 2**53 + 2, 2**62, 0, -(2**53) - 1],
    "whole": [1.0, 2.0, 10.0, float("nan"), None, -3.0],
}
WHOLE = {"age": "integer"}
IN_BOTH = [
    ("age = 30", {}, "ac"),
    ("age >= 9 AND NOT age > 51.5", {}, "abc"),
    ("age IN (9, 52.0)", {}, "bd"),
    ("age BETWEEN -7 AND 9", {}, "bf"),
    ("age IS NULL", {}, "e"),
    ("age IS DISTINCT FROM 30", {}, "bdef"),
    ("age <> 30", {}, "bdf"),
    ("age // 10 = 3", WHOLE, "ac"),
    ("age // 10 = -1", WHOLE, "f"),
    ("age % 4 = 1", WHOLE, "bf"),
    ("age % -4 = -3", WHOLE, "bf"),
    ("age / 4 = 7.5", WHOLE, "ac"),
    ("age // 4 = 7", {"age": "decimal"}, "ac"),
    ("age % 4 = 1", {"age": "decimal"}, "bf"),
    ("age / 0 IS NULL AND age % 0 IS NULL AND age // (age - age) IS NULL", WHOLE, "abcdef"),
    ("age * age > 2000 OR -age = 7", WHOLE, "df"),
    ("age + 1 = 31 AND age - 1 = 29", WHOLE, "ac"),
    ("abs(age) = 7 AND floor(age / 2) = -4 AND ceil(age / 2) = -3", WHOLE, "f"),
    ("coalesce(age, 0) = 0", WHOLE, "e"),
    ("greatest(age, 20) = 20 AND least(age, 20) < 0", WHOLE, "f"),
    ("CASE WHEN age > 9 THEN 'old' ELSE 'young' END = 'young'", {}, "bef"),
    ("CAST(age AS TEXT) LIKE '3%'", WHOLE, "ac"),
    ("age > dose", {"age": "integer", "dose": "decimal"}, "acd"),
    ("dose = 0.3", {}, "f"),
    ("dose >= .3 AND dose < 1", {}, "cf"),
    ("dose = 1000", {}, "b"),
    ("dose < 0 OR dose = 0", {}, "d"),
    ("dose // 0.25 = 6", {"dose": "decimal"}, "a"),
    ("dose / 3 = 0.5", {"dose": "decimal"}, "a"),
    ("dose // 1e-17 > 1e16 AND floor(dose * 1e17) > 0", {"dose": "decimal"}, "abcf"),
    ("paid", {}, "acf"),
    ("NOT paid", {}, "bd"),
    ("paid = false OR paid IS NULL", {}, "bde"),
    ("paid IS NOT TRUE", {}, "bde"),
    ("big = 9007199254740993", {}, "b"),
    ("big > 9007199254740993", {}, "cd"),
    ("big <= -9007199254740993", {}, "f"),
    ("big = 9007199254740992.5 OR big < 9007199254740992.5", {}, "aef"),
    ("big < 1" + 40 * "0", {}, "abcdef"),
]
IN_TEXT = [
    ("zip = '01'", {}, "a"),
    ("zip < '02'", {}, "af"),
    ("zip < '1'", {"zip": "text"}, "adf"),
    ("zip = 1", {"zip": "integer"}, "abf"),
    ("zip LIKE '0%'", {}, "adf"),
    ("dose = '1.50'", {}, "a"),
    ("dose = '1.5'", {}, ""),
    ("word = 'x'", {}, "a"),
    ("word < 'y'", {}, "acdf"),
    ("word > 'z'", {}, "b"),
    ("trim(word) = 'x'", {"word": "text"}, "ad"),
    ("length(word) = 1", {"word": "text"}, "ab"),
    ("upper(word) = 'XX'", {"word": "text"}, "f"),
    ("lower(word) = 'ä'", {"word": "text"}, ""),
    ("substr(word, 2, 1) = 'X' OR word || '!' = 'x!'", {"word": "text"}, "af"),
    ("word LIKE 'x_y' OR word LIKE '%X'", {}, "cf"),
    ("day >= DATE '2026-01-31'", {}, "abc"),
    ("day = DATE '2026-01-31'", {}, "ab"),
    ("day > TIMESTAMP '2026-01-31 12:00:00'", {}, "c"),
    ("day >= '2026'", {"day": "text"}, "abc"),
    ("CAST(substr(zip, 1, 1) AS INTEGER) = 1", {"zip": "text"}, "bc"),
    ("big = 18446744073709551617", {}, "d"),
]
IN_TYPED = [
    ("age = '30'", {}, "ac"),
    ("age = '30.0'", {}, ""),
    ("age LIKE '3_'", {}, "ac"),
    ("whole = '10'", {}, "c"),
    ("whole IS NULL", {}, "de"),
    ("whole // 2 = 5", {"whole": "integer"}, "c"),
    ("length(whole) = 2", {"whole": "text"}, "cf"),
]


@pytest.mark.parametrize("texts", [True, False])
def test_a_condition_keeps_the_same_records_in_every_engine(engine: Engine, texts: bool) -> None:
    cases = [*IN_BOTH, *(IN_TEXT if texts else IN_TYPED)]
    checked = 0
    for read_as in {tuple(sorted(read_as.items())) for _, read_as, _ in cases}:
        chosen = {where: rows for where, how, rows in cases if how == dict(read_as)}
        columns = TEXTS if texts else TYPED
        found = all_kept(engine, columns, list(chosen), read_as=dict(read_as))
        assert dict(zip(chosen, map("".join, found), strict=True)) == chosen
        checked += len(chosen)
    assert checked == len(cases)


REFUSED = [
    ("age // 10 = 3", {}, "does not say whether 'age' holds numbers or text"),
    ("age / 2 > 1", {}, "does not say"),
    ("abs(age) > 1", {}, "does not say"),
    ("CAST(age AS INTEGER) = 1", {}, "does not say"),
    ("age = dose", {}, "does not say"),
    ("age < dose", {}, "does not say"),
    ("coalesce(age, 0) = 0", {}, "does not say"),
]
ALWAYS_REFUSED = [
    ("typeof(age) = 'BIGINT'", {}, r"does not know that of typeof\(\)"),
    ("to_json(age) = '1'", {}, r"does not know that of to_json\(\)"),
    ("hash(age) > 1", {}, r"does not know that of hash\(\)"),
    ("regexp_matches(age, '1')", {}, "does not know that of"),
    ("try_cast(age AS INTEGER) = 1", {}, "does not know that of"),
    ("length(repeat(row, 1000000000)) > 3", {}, r"does not know that of repeat\(\)"),  # a gigabyte
    ("age < '9'", {}, "orders 'age' by a number in quotes"),
    ("paid = 'true'", {}, "true or false in quotes"),
    ("age = 1 OR age = 'x' || 2", {}, "needs text where a number stands"),
    ("age = lower('X') OR age BETWEEN 1 AND 'x'", {}, "compares a number with text"),
    ("age = '1'", WHOLE, "compares a number with text"),
    ("age = 1", {"age": "text"}, "compares a number with text"),
    ("abs(age) = 1", {"age": "text"}, "calculates with text"),
    ("age LIKE '1'", WHOLE, "declared as integer"),
    ("age", {}, "a condition where|reads 'age' as true or false"),
    ("age = NULL", {}, "one condition"),
    ("age IS 5", {}, "one condition"),
    ("CAST(age / 2 AS INTEGER) = 1", WHOLE, "casts a number to integer"),
    ("age * age * age * age > 1", WHOLE, "more than 37 digits"),
    ("age + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 > 1", {"age": "decimal"}, "more than 8 operations"),
    ("substr(row, age) = 'x'", {"row": "text", **WHOLE}, "no fixed place"),
    ("row LIKE '%a%b%c%d%'", {}, "more than 3 signs"),
    ("paid < true", {}, "truth values in an order"),
    ("age = 1e999", {}, "more than 200 digits"),
]


def test_what_has_no_single_meaning_is_refused(engine: Engine, refused: Refused) -> None:
    untyped = engine.store in ("csv", "excel")  # type: ignore[attr-defined]
    for where, read_as, words in [*ALWAYS_REFUSED, *(REFUSED if untyped else [])]:
        with pytest.raises((InputError, DataError)) as caught:
            engine(TYPED, where=where, read_as=read_as)
        refused(caught.value, words)
    if untyped:
        assert "read_as={'age': 'integer'}, decimal or text" in str(caught.value)


@pytest.mark.parametrize(
    "value", ["n/a", "1,5", "0x10", "nan", "inf", "1_000", "", " ", "1e400", "5%", "--1", "1e"]
)
def test_a_value_that_is_no_number_stops_the_run(
    engine: Engine, refused: Refused, value: str
) -> None:
    # an empty text is a value, but to files that have no other sign for a missing one
    missing = value == "" and engine.store in ("csv", "excel")  # type: ignore[attr-defined]
    columns = {"row": ["a", "b"], "x": ["1", value]}
    for where, read_as in (
        ("x > 0", {}),
        ("row = 'a' AND x = 1", {}),
        ("x + 1 > 1", {"x": "decimal"}),
    ):
        if missing:
            assert kept(engine(columns, where=where, read_as=read_as)) == "a"
            continue
        with pytest.raises(DataError) as caught:
            engine(columns, where=where, read_as=read_as)
        refused(caught.value, "not all its values are numbers")
    # where no number is compared, any text will do
    assert kept(engine(columns, where="x <> '1'")) == ("" if missing else "b")


NUMERALS = [
    *("0", "-0", "+5", "5.", ".5", " 5 ", "0.1", "0.10", "0.1000000000000000055", "1e-1", "1E+2"),
    *("9007199254740992", "9007199254740993", "9007199254740992.5", "1e16", "10000000000000001"),
    *("-9007199254740993", "-9007199254740992", "99999999999999999999", "100000000000000000000"),
    *("1" + 40 * "0", "1" + 39 * "0" + "1", "0." + 30 * "0" + "1", "-0." + 30 * "0" + "1"),
    *("1.7976931348623157e299", "5e-299", "123456789.123456789", "-123456789.1234567891"),
]
LITERALS = [
    *("0", "5", "0.1", "-9007199254740993", "9007199254740993", "9007199254740992.25", "100"),
    *("99999999999999999999", "1" + 39 * "0" + "1", "-0." + 30 * "0" + "1", "1e16"),
    *("123456789.123456789", "-123456789.123456789"),
]


def exactly(text: str) -> Decimal:
    """The number that a text names; with an exponent, that of the nearest floating-point number."""
    return Decimal(repr(float(text))) if "e" in text.lower() else Decimal(text.strip())


def test_numbers_are_compared_digit_by_digit(engine: Engine) -> None:
    names = [f"{place:02d}" for place in range(len(NUMERALS))]
    for sign, holds in OPERATORS.items():
        wheres = [f"x {sign} {literal}" for literal in LITERALS]
        found = all_kept(engine, {"row": names, "x": NUMERALS}, wheres)
        assert len(found) == len(LITERALS)
        for literal, rows in zip(LITERALS, found, strict=True):
            pairs = zip(names, NUMERALS, strict=True)
            expected = [name for name, text in pairs if holds(exactly(text), Decimal(literal))]
            assert rows == expected, (sign, literal)


FLOATS = [0.1 + 0.2, 0.3, 0.1, 2.0**53, 2.0**53 + 2, 1e300, 5e-300, -1e16, 123456.789, 1e22]


def test_a_floating_point_number_counts_as_its_shortest_decimal(engine: Engine) -> None:
    if engine.store in ("csv", "excel"):  # type: ignore[attr-defined]
        return  # which hold text, and at most 15 digits
    literals = [*map(repr, FLOATS), "9007199254740993", "0.30000000000000001", "9007199254740992.5"]
    names = [f"{place:02d}" for place in range(len(FLOATS))]
    for sign, holds in OPERATORS.items():
        wheres = [
            f"x {sign} {literal}"
            for literal in literals
            if "e+300" not in literal and "e-300" not in literal
        ]
        found = all_kept(engine, {"row": names, "x": FLOATS}, wheres)
        for where, rows in zip(wheres, found, strict=True):
            constant = Decimal(where.split()[-1])
            pairs = zip(names, FLOATS, strict=True)
            assert rows == [n for n, x in pairs if holds(Decimal(repr(x)), constant)], where


def test_two_columns_are_compared_digit_by_digit(engine: Engine) -> None:
    pairs = [
        (one, other)
        for one, other in itertools.product(NUMERALS, NUMERALS)
        if ("e" in one.lower()) == ("e" in other.lower()) and abs(float(one)) < 2**100
    ]
    names = [f"{place:03d}" for place in range(len(pairs))]
    columns = {"row": names, "x": [one for one, _ in pairs], "y": [other for _, other in pairs]}
    signs = ["<", "=", ">="]
    read_as = {"x": "decimal", "y": "decimal"}
    found = all_kept(engine, columns, [f"x {sign} y" for sign in signs], read_as=read_as)
    for sign, rows in zip(signs, found, strict=True):
        numbers = [(name, *map(exactly, pair)) for name, pair in zip(names, pairs, strict=True)]
        assert rows == [name for name, x, y in numbers if OPERATORS[sign](x, y)]


# One record must not decide how another is read.

VALUES = st.sampled_from(
    [
        *("52", "52.5", "30", "3e1", "030", "9007199254740993", "9007199254740992", "n/a", "true"),
        *("2026-01-31", "", "x", " 30", "-7", "1" + 30 * "0", "0.30000000000000004", "1.0"),
    ]
)
CONDITIONS = [
    *("x // 10 = 3", "x = 9007199254740993", "x < 40", "x = '30'", "x > 'a'", "x / 4 > 7", "x"),
    *("x = 30.0", "x <> 52", "x BETWEEN 1 AND 35", "x IN (30, 52)", "x IS NULL", "length(x) = 2"),
    *("x >= DATE '2026-01-01'", "x % 2 = 0", "x LIKE '3%'", "CASE WHEN x > 5 THEN true END"),
]
Keeping = Callable[[Path, str, str | None], set[str] | None]


def records_kept(file: Path, where: str, declared: str | None) -> set[str] | None:
    """The records that a condition keeps; None where it is refused."""
    try:
        with open_source(file, where=where, read_as={"x": declared} if declared else {}) as source:
            return {*kept(source)}
    except (InputError, DataError):
        return None


def guessed_and_kept(file: Path, where: str, declared: str | None) -> set[str] | None:
    """The same as it was: a column has the type that all its values have in common."""
    with duckdb.connect() as connection:
        rows = f"read_csv('{file}', header = true, types = {{'row': 'VARCHAR'}})"
        try:
            found = connection.execute(f"SELECT row FROM {rows} WHERE {where}").fetchall()
        except duckdb.Error:
            return None
    return {row for (row,) in found}


def differs(
    folder: Path, keeping: Keeping, where: str, declared: str | None, values: list[str], other: str
) -> bool:
    """Whether a change of the first record changes what is kept of the others."""
    kept_before_and_after = []
    for first in (values[0], other):
        file = folder / "records.csv"
        write_csv(file, {"row": list("abcdef")[: len(values)], "x": [first or None, *values[1:]]})
        kept_before_and_after.append(keeping(file, where, declared))
    before, after = kept_before_and_after
    return before is not None and after is not None and before - {"a"} != after - {"a"}


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    where=st.sampled_from(CONDITIONS),
    declared=st.sampled_from([None, "integer", "decimal", "text"]),
    values=st.lists(VALUES, min_size=2, max_size=6),
    other=VALUES,
)
def test_no_record_decides_how_another_is_read(
    tmp_path: Path, where: str, declared: str | None, values: list[str], other: str
) -> None:
    assert not differs(tmp_path, records_kept, where, declared, values, other)


@pytest.mark.parametrize(
    ("where", "first", "other", "others"),
    [
        ("x // 10 = 3", "52", "52.5", ["30", "31", "35"]),
        ("x = 9007199254740993", "1", "1.5", ["9007199254740993", "9007199254740992"]),
        ("x = '030'", "1", "x", ["30"]),
        ("typeof(x) = 'BIGINT'", "1", "1.5", ["30"]),
    ],
)
def test_the_law_catches_types_that_are_guessed(
    tmp_path: Path, where: str, first: str, other: str, others: list[str]
) -> None:
    assert differs(tmp_path, guessed_and_kept, where, None, [first, *others], other)
    for declared in (None, "integer", "decimal", "text"):
        assert not differs(tmp_path, records_kept, where, declared, [first, *others], other)


@pytest.mark.parametrize("where", ["x // 10 = 3", "x = 52.5", "x > 30", "x % 2 = 1", "x / 2 = 15"])
def test_a_missing_value_of_a_data_frame_changes_no_other(where: str) -> None:
    """It makes floating-point numbers of whole ones in pandas."""
    import pandas

    rows = ["a", "b", "c", "d"]
    answers = []
    for last in (7, None):
        frame = pandas.DataFrame({"row": rows, "x": [30, 35, 2**53 - 1, last]})
        with open_source(frame, where=where) as source:
            answers.append({*kept(source)} - {"d"})
    assert answers[0] == answers[1]

"""Values of columns in data frames and Parquet: what they print as, bins, and limits."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.engines.small_files import SECRET, SEX, Refused

from semidp.errors import DataError, InputError, SchemaError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.publish.sources.opening import open_source


def test_pandas_columns_of_every_kind() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(["a", None, "b"]),
            "grade": pd.Categorical([1, 2, None]),
            "when": pd.to_datetime(["2020-01-01 00:00", None, "2020-01-02 03:04"]),
            "whole": pd.array([1, None, 2], dtype="Int64"),
            "mixed": [1, "z", None],
            "flag": [True, None, False],
        }
    )
    expected = {
        "kind": ("a", "b"),
        "grade": ("1", "2"),
        "when": ("2020-01-01", "2020-01-02 03:04:00"),
        "whole": ("1", "2"),
        "mixed": ("1", "z"),
        "flag": ("false", "true"),
    }
    with open_source(frame) as source:
        assert {name: source.levels(name) for name in frame.columns} == expected
        for name, levels in expected.items():
            assert source.counts(
                Schema((Feature(name, levels, null_level="none"),))
            ).counts.tolist() == [1, 1, 1]


@pytest.mark.few(10)
@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.string()]
)
@pytest.mark.parametrize(
    "bins", [(0, 3, 8), ("-inf", "2.5", 5, "inf"), ("0.5", 3, "1e300"), ("-3", "6.999", "inf")]
)
def test_bins_are_the_same_whatever_the_column_is_stored_as(
    kind: Any, bins: tuple[Any, ...]
) -> None:
    values = [1, 2, 3, 4, 5, 6, 7, 8, None, 3]
    schema = Schema((Feature("x", bins=bins, null_level="?"),))
    column = pa.array([None if value is None else str(value) for value in values]).cast(kind)
    expected = Table.from_frame({"x": np.array(values, dtype=object)}, schema)
    with open_source(pa.table({"x": column})) as source:
        assert source.counts(schema) == expected


def test_decimals_of_parquet_print_as_the_numbers_they_are(tmp_path: Path) -> None:
    from decimal import Decimal

    values = pa.array([Decimal("1.00"), Decimal("2.50"), None], pa.decimal128(5, 2))
    pyarrow.parquet.write_table(
        pa.table({"x": values, "list": [[1], [2], [3]]}), tmp_path / "a.parquet"
    )
    with open_source(tmp_path / "a.parquet") as source:
        assert source.levels("x") == ("1", "2.5")
        assert source.counts(
            Schema((Feature("x", bins=(0, 2, "inf"), null_level="?"),))
        ).counts.tolist() == [1, 1, 1]
        with pytest.raises(
            SchemaError, match="column 'list' does not hold numbers, which bins need"
        ):
            source.counts(Schema((Feature("list", bins=(0, 2)),)))


def test_a_column_with_too_many_values_is_no_feature(refused: Refused) -> None:
    with (
        open_source({"name": np.arange(SECRET, SECRET + 10_001)}) as source,
        pytest.raises(DataError) as caught,
    ):
        source.levels("name")
    refused(caught.value, "column 'name' has more than 10,000 distinct values")


def test_totals_beyond_exact_arithmetic_are_refused(refused: Refused) -> None:
    counts = np.full(600, 2**53 - 1)
    with open_source({"sex": np.array(["f"] * 600), "people": counts}, count="people") as source:
        with pytest.raises(DataError) as caught:
            source.counts(SEX)
        refused(caught.value, "sum to more than 2")
        with pytest.raises(DataError) as caught:
            source.sums(SEX, Outcome("people", 0, 1, 2**32))
        refused(caught.value, "sum to more than 2")


def test_a_grid_has_at_least_one_step() -> None:
    for steps in (0, -1, True, 2**33, 1.5):
        with pytest.raises(InputError, match="must have from 1 to"):
            Outcome("score", 0, 1, steps)  # type: ignore[arg-type]


def test_a_command_that_wrote_parquet_ends_in_silence(tmp_path: Path) -> None:
    """A DuckDB that is open when Python ends prints pages on leaks."""
    people = tmp_path / "people.csv"
    people.write_text("sex,region\n" + "f,n\nf,s\nm,n\nm,s\n" * 50)
    asked = ["--table", "sex,region", "--exact", "sex", "--levels", "region=n,s", "--mu", "1"]
    written = ["--write", "parquet", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "semidp", "release", str(people), *asked, *written]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "out" / "table.parquet").exists()
    assert done.stderr == ""


def test_a_value_that_numpy_hides_is_missing(refused: Refused) -> None:
    hidden = np.ma.array(["f", "m", "m"], mask=[False, True, False])
    with open_source({"sex": hidden}) as source:
        assert source.counts(Schema((Feature("sex", "fm", null_level="?"),))).counts.tolist() == [
            1,
            1,
            1,
        ]
        with pytest.raises(DataError) as caught:
            source.counts(SEX)
    refused(caught.value, "feature 'sex' has missing values")


def test_columns_and_series_of_other_libraries_end_in_no_traceback(refused: Refused) -> None:
    import pandas as pd
    import polars as pl

    with open_source({"sex": pl.Series([*"fm"]), "x": [10**400, 0.5]}) as source:
        assert source.levels("sex") == ("f", "m")
        assert source.levels("x") == ("0.5", str(10**400))
    for series in (pd.Series([*"fm"]), pl.Series([*"fm"])):
        with pytest.raises(InputError) as caught:
            open_source(series)
        refused(caught.value, "a Series cannot be read: give")


def test_a_date_of_a_workbook_that_is_none_is_not_quoted(
    tmp_path: Path, refused: Refused, recwarn: pytest.WarningsRecorder
) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for row in (["sex", "day"], ["f", SECRET]):
        book.active.append(row)
    book.active["B2"].number_format = "yyyy-mm-dd"
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(DataError) as caught:
        open_source(tmp_path / "a.xlsx")
    refused(caught.value, "a cell of the sheet holds the error #VALUE!")
    assert not recwarn.list

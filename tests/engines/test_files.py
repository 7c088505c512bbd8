"""Files through DuckDB: what is read as it stands, what is refused, and what is left behind."""

import gzip
import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.small_files import SECRET, SEX, Refused, written_csv

from semidp.errors import DataError, InputError
from semidp.promise.schema.features import Feature, value_text
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.publish.sources.duck_files import records_of_files
from semidp.publish.sources.opening import open_source

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1, max_size=8)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=20), st.sampled_from(",;\t|"))
def test_any_text_survives_a_csv_file(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], comma: str
) -> None:
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    lines = [comma.join(["town", "sex"]), *(comma.join([text, "f"]) for text in quoted)]
    file = written_csv(tmp_path_factory.mktemp("csv"), "\n".join(lines) + "\n")
    levels = tuple(dict.fromkeys(texts))
    schema = Schema((Feature("town", levels), Feature("sex", ("f", "m"))))
    with open_source(file) as source:
        expected = Table.from_frame(
            {"town": np.array(texts, dtype=object), "sex": ["f"] * len(texts)}, schema
        )
        assert source.counts(schema) == expected
        assert set(source.levels("town")) == set(levels)


def test_csv_values_stay_the_text_they_are(tmp_path: Path) -> None:
    file = written_csv(tmp_path, "code\n01\n1\n1.0\nTrue\n# 3\n 4\nNULL\nnan\n")
    with open_source(file) as source:
        assert set(source.levels("code")) == {"01", "1", "1.0", "True", "# 3", " 4", "NULL", "nan"}


def test_an_empty_csv_value_is_missing_quoted_or_not(tmp_path: Path, refused: Refused) -> None:
    file = written_csv(tmp_path, 'sex,age\nf,1\n,2\n"",\n')
    with open_source(file) as source:
        schema = Schema(
            (
                Feature("sex", ("f", "m"), null_level="?"),
                Feature("age", bins=(0, 2, "inf"), null_level="?"),
            )
        )
        assert source.counts(schema).counts.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
        with pytest.raises(DataError) as caught:
            source.counts(SEX)
        refused(caught.value, "feature 'sex' has missing values")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"sex,age\nf,1\nm,2\nm,3"),
        ("b.tsv", b"sex\tage\nf\t1\nm\t2\nm\t3\n"),
        ("c.txt", b"sex|age\r\nf|1\r\nm|2\r\nm|3\r\n"),
        ("d.CSV", b"\xef\xbb\xbfsex;age\nf;1\nm;2\nm;3\n"),
        ("e.csv.gz", gzip.compress(b"sex,age\nf,1\nm,2\nm,3\n", mtime=0)),
        ("f.v2.csv", b'"sex","age, in years; or | so"\nf,1\nm,2\nm,3\n'),
        ("it's [1].csv", b"sex\nf\nm\nm\n"),
    ],
)
def test_ways_to_write_a_csv_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with open_source(tmp_path / name) as source:
        assert source.columns()[0] == "sex"
        assert source.counts(SEX).counts.tolist() == [1, 2]


def test_a_glob_reads_every_file_and_a_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(3):
        written_csv(tmp_path, f"sex,age\nf,{part}\n", f"part-{part}.csv")
    (tmp_path / "link.csv").symlink_to("part-1.csv")
    monkeypatch.chdir(tmp_path)
    with open_source("part-*.csv") as source:
        assert source.counts(SEX).counts.tolist() == [3, 0]
    with open_source("link.csv") as source:
        assert source.counts(SEX).counts.tolist() == [1, 0]


def test_a_file_without_records_is_refused_unless_it_is_expected(
    tmp_path: Path, refused: Refused
) -> None:
    written_csv(tmp_path, "sex,age\n", "a.csv")
    written_csv(tmp_path, "sex,age\nf,1\n", "b.csv")
    pyarrow.parquet.write_table(
        pa.table({"sex": pa.array([], pa.string())}), tmp_path / "a.parquet"
    )
    for data in (tmp_path / "a.csv", str(tmp_path / "*.csv"), tmp_path / "a.parquet"):
        with pytest.raises(DataError) as caught:
            open_source(data)
        refused(
            caught.value,
            r"a\.(csv|parquet) holds no record: check that it is whole, or allow empty files$",
        )
    with open_source(tmp_path / "a.csv", allow_empty=True) as source:
        assert source.counts(SEX).n == 0
        assert source.sums(SEX, Outcome("age", 0, 1, 5)).tolist() == [0, 0]
    with open_source(str(tmp_path / "*.csv"), allow_empty=True) as source:
        assert source.counts(SEX).counts.tolist() == [1, 0]
    # it is the file that must not be empty
    with open_source(tmp_path / "b.csv", where="age > 1") as source:
        assert source.counts(SEX).n == 0


def _parquet(path: Path, names: Sequence[str]) -> Path:
    pyarrow.parquet.write_table(
        pa.table([[{"x": 1, "X": 2}], *([["f"]] * len(names))], names=["s", *names]), path
    )
    return path


@pytest.mark.parametrize("names", [("sex", "sex"), ("sex", "Sex"), ("a", "a_1", "a")])
def test_two_columns_of_one_name_are_refused(
    tmp_path: Path, refused: Refused, names: tuple[str, ...]
) -> None:
    """DuckDB would name the second one anew, and a plan that means it would read the first."""
    import pandas as pd

    for data in (
        written_csv(tmp_path, ",".join(names) + "\n" + ",".join(["f"] * len(names)) + "\n"),
        _parquet(tmp_path / "people.parquet", names),
        pa.table([["f"]] * len(names), names=list(names)),
        pd.DataFrame([["f"] * len(names)], columns=list(names)),
    ):
        with pytest.raises(DataError) as caught:
            open_source(data)
        refused(
            caught.value,
            "names two columns alike, capitals aside: give every column a name of its own",
        )
    with pytest.raises(DataError, match="names two columns alike"):
        open_source({"sex": ["f"], "SEX": ["m"]})


def test_columns_of_their_own_names_are_read(tmp_path: Path) -> None:
    names = ("sex", "sex_1", "É", "é", 'a "b"', "c,d")
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    for data, found in (
        (written_csv(tmp_path, header + "\n" + ",".join("abcdef") + "\n"), names),
        (written_csv(tmp_path, "sex, age \nf,1\n", "space.csv"), ("sex", "age")),
        (_parquet(tmp_path / "people.parquet", names), ("s", *names)),
        # what R and pandas write for row names
        (written_csv(tmp_path, ",sex\n1,f\n", "index.csv"), ("column0", "sex")),
    ):
        with open_source(data) as source:
            assert source.columns() == found


def test_files_of_a_glob_have_one_header(tmp_path: Path, refused: Refused) -> None:
    written_csv(tmp_path, "sex,age\nf,1\n", "a.csv")
    for other in ("age,sex\n1,f\n", "sex,age,town\nf,1,x\n", "sex;age\nf;1\n", "sex\nf\n"):
        written_csv(tmp_path, other, "b.csv")
        with pytest.raises(DataError) as caught:
            open_source(str(tmp_path / "*.csv"))
        refused(
            caught.value, "have different headers: name files with the same columns in one order"
        )


def test_a_table_of_too_many_columns_is_refused(tmp_path: Path, refused: Refused) -> None:
    names = [f"c{number}" for number in range(100_000)]
    file = written_csv(tmp_path, ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    for data in (file, {name: np.zeros(1) for name in names[:10_001]}):
        with pytest.raises(DataError) as caught:
            open_source(data)
        refused(caught.value, "has more than 10,000 columns: keep those that are needed")


def _partitioned(folder: Path) -> Path:
    for sex, region, other in (
        ("f", "n", "m"),
        ("m", "s%20w", "f"),
        ("m", "__HIVE_DEFAULT_PARTITION__", "m"),
    ):
        place = folder / f"Sex={sex}" / f"region={region}"
        place.mkdir(parents=True)
        written_csv(place, f"sex,age\n{other},30\n")
        pyarrow.parquet.write_table(
            pa.table({"sex": [other], "age": [30]}), place / "people.parquet"
        )
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_folder_names_are_data_only_where_asked_and_only_for_columns_that_files_lack(
    tmp_path: Path, kind: str, refused: Refused
) -> None:
    pattern = str(_partitioned(tmp_path / "year=2020") / "**" / f"*.{kind}")
    with open_source(pattern) as source:
        assert source.columns() == ("sex", "age")
        assert source.counts(SEX).counts.tolist() == [1, 2]
    with open_source(
        pattern, hive_partitions=True, where="region IS NULL OR region <> 'n' AND age > 20"
    ) as source:
        assert source.columns() == ("sex", "age", "year", "region")
        region = Feature("region", ("n", "s w"), null_level="?")
        assert source.counts(Schema((*SEX.features, region))).counts.tolist() == [
            [0, 1, 0],
            [0, 0, 1],
        ]
        assert source.levels("year") == ("2020",)
    written_csv(tmp_path, "sex,age\nf,1\n")
    with pytest.raises(InputError) as caught:
        open_source(str(tmp_path / "**" / "*.csv"), hive_partitions=True)
    refused(caught.value, "folders of different partitions")


def test_a_file_that_exists_is_that_file_whatever_its_name(tmp_path: Path) -> None:
    for name, other in (
        ("a[1].csv", "a1.csv"),
        ("b*.csv", "bb.csv"),
        ("c?.csv", "cc.csv"),
        ("[d].csv", "d.csv"),
    ):
        written_csv(tmp_path, "sex\nf\n", name)
        written_csv(tmp_path, "sex\nm\n", other)
        with open_source(tmp_path / name) as source:
            assert source.counts(SEX).counts.tolist() == [1, 0]
    (tmp_path / "of [1]").mkdir()
    pyarrow.parquet.write_table(pa.table({"sex": ["f"]}), tmp_path / "of [1]" / "*.parquet")
    pyarrow.parquet.write_table(pa.table({"sex": ["f"]}), tmp_path / "of [1]" / "a.parquet")
    with open_source(tmp_path / "of [1]") as source:
        assert source.counts(SEX).counts.tolist() == [2, 0]


def test_a_folder_of_parquet_files_is_a_source(tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / "people"
    for part, sex in (
        ("a.parquet", "f"),
        ("x=1/b.pq", "m"),
        ("_delta/c.parquet", "m"),
        (".d.parquet", "m"),
    ):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.table({"sex": [sex]}), folder / part)
    (folder / "_SUCCESS").touch()
    (folder / "notes.md").touch()
    for data in (folder, f"{folder}/"):
        with open_source(data) as source:
            assert source.columns() == ("sex",)
            assert source.counts(SEX).counts.tolist() == [1, 1]
    written_csv(folder, "sex\nf\n")
    with pytest.raises(InputError) as caught:
        open_source(folder)
    refused(caught.value, "matches both CSV and Parquet files: name one kind")
    (folder / "release.json").touch()
    with pytest.raises(InputError) as caught:
        open_source(folder)
    refused(caught.value, "is a release, not data: name the records that it was made from")


def test_a_pipe_is_no_file(tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / "people.csv")
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / "people.csv")
    refused(
        caught.value, "is not a regular file, and data are read more than once: copy them to a file"
    )


@pytest.mark.parametrize("change", ["rewritten", "replaced", "removed"])
def test_a_file_that_changes_between_two_questions_is_refused(
    tmp_path: Path, refused: Refused, change: str
) -> None:
    file = written_csv(tmp_path, "sex,age\nf,1\n")
    with open_source(file) as source:
        assert source.counts(SEX).n == 1
        if change == "removed":
            file.unlink()
        else:
            other = file if change == "rewritten" else tmp_path / "new.csv"
            other.write_text("sex,age\nf,2\n", encoding="utf-8")
            os.utime(other, ns=(1, 1))  # a stamp that no clock gave the first one
            os.replace(other, file)
        with pytest.raises(DataError) as caught:
            source.sums(SEX, Outcome("age", 0, 10, 10))
        refused(caught.value, "changed while it was read|could not be tabulated")


@pytest.mark.parametrize(
    ("encoding", "text", "message"),
    [
        ("latin-1", "sé,age\nf,1\nm\n", "records with more or fewer values"),
        ("utf-16", "sé,age\nf,1\nm\n", "records with more or fewer values"),
        ("utf-16", "sé,age\n\U0001f600,1\n", "could not be read in utf-16: save it as UTF-8"),
    ],
)
def test_an_encoding_that_was_said_is_not_asked_for(
    tmp_path: Path, refused: Refused, encoding: str, text: str, message: str
) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    with (
        pytest.raises(DataError) as caught,
        open_source(tmp_path / "a.csv", encoding=encoding) as source,
    ):
        source.levels("age")
    refused(caught.value, message)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "ragged.csv",
            f"sex,age\nf,1\nm,2,{SECRET}\n".encode(),
            "ragged.csv has records with more or fewer values",
        ),
        (
            "open.csv",
            f'sex,age\nf,1\n"m,{SECRET}\n'.encode(),
            "open.csv has a quote that is not closed",
        ),
        (
            "latin.csv",
            f"sex,age\nf,1\nm\xe9,{SECRET}\n".encode("latin-1"),
            "latin.csv holds text that is not UTF-8",
        ),
        (
            "ends.csv",
            f"sex,age\nf,1\r\nm,{SECRET}\n".encode(),
            "ends.csv ends its lines in several ways: save it again",
        ),
        ("empty.csv", b"", "empty.csv is empty: it needs a header"),
        ("half.parquet", b"PAR1" + str(SECRET).encode(), "could not be read as Parquet: check"),
    ],
)
def test_broken_files_are_refused_in_a_sentence(
    tmp_path: Path, refused: Refused, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught, open_source(tmp_path / name) as source:
        source.counts(SEX)
    refused(caught.value, message)


def test_files_that_are_not_there_or_not_data(tmp_path: Path, refused: Refused) -> None:
    written_csv(tmp_path, "sex\nf\n", "a.csv")
    written_csv(tmp_path, "sex\nf\n", "a.data")
    (tmp_path / "empty").mkdir()
    pyarrow.parquet.write_table(pa.table({"sex": ["f"]}), tmp_path / "a.parquet")
    for data, message in (
        (tmp_path / "none.csv", r"there is no file .*none\.csv$"),
        (str(tmp_path / "none-*.csv"), r"there is no file .*none-\*\.csv$"),
        (tmp_path / "a.csv" / "below.csv", "there is no file"),
        (
            tmp_path / "empty",
            r"the folder .* holds no Parquet file: name its files, as in '.*\*\.csv'",
        ),
        (f"{tmp_path}/e*", "matches the folder .*: name files, or one folder of Parquet files"),
        (tmp_path / "a.data", r"does not say what it holds: end it in \.csv"),
        (str(tmp_path / "a.[cp]*"), "matches both CSV and Parquet files"),
        ([1, 2], "a list cannot be read: give a path, a database address, a data frame"),
        (None, "a NoneType cannot be read"),
    ):
        with pytest.raises(InputError) as caught:
            open_source(data)
        refused(caught.value, message)
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / "a.csv", table="people")
    refused(caught.value, "the table 'people' can be chosen only at a database address")


def test_the_database_can_reach_nothing_else(tmp_path: Path) -> None:
    import duckdb

    file = written_csv(tmp_path, "sex\nf\n")
    other = written_csv(tmp_path, "sex\nm\n", "other.csv")
    records = records_of_files(str(file), None)
    settings = "current_setting('temp_directory'), current_setting('enable_external_access')"
    assert records._rows(f"SELECT {settings}") == [("", False)]
    for sql in (
        f"SELECT * FROM read_csv('{other}')",
        f"COPY records TO '{tmp_path / 'copy.csv'}'",
        f"ATTACH '{tmp_path / 'new.db'}'",
        "INSTALL httpfs",
        "SET temp_directory = '/tmp'",
        "SET enable_external_access = true",
        "SELECT * FROM other",
    ):
        with pytest.raises(duckdb.Error):
            records._connection.execute(sql)
    records.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "people.csv"]


def test_nothing_is_written_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.arange(300_000)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with open_source(
        {"id": numbers, "sex": np.array(["f", "m", "f"])[numbers % 3]}, id="id"
    ) as source:
        assert source.counts(SEX).counts.tolist() == [200_000, 100_000]
    assert list(tmp_path.rglob("*")) == [tmp_path / "work"]


def test_a_file_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    file = written_csv(tmp_path, "sex\nf\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as root, every file may be read
    with pytest.raises(InputError) as caught:
        open_source(file)
    refused(caught.value, "may not be read: check its permissions")


def test_parquet_files_of_different_types_round_nothing(tmp_path: Path, refused: Refused) -> None:
    """DuckDB reads every file with the types of the first: 2.5 was 2 beside a file of whole
    numbers.
    """
    kinds = {"whole": [1, 2], "real": [2.5, None], "text": ["01", "n/a"], "truth": [True, False]}
    for first, second, levels in (
        ("whole", "real", ("1", "2", "2.5")),
        ("real", "whole", ("1", "2", "2.5")),
        ("text", "text", ("01", "n/a")),
        ("whole", "text", None),
        ("truth", "whole", None),
        ("truth", "text", None),
    ):
        for place, name in enumerate((first, second)):
            table = pa.table({"x": kinds[name]})
            pa.parquet.write_table(table, tmp_path / f"{place}.parquet")
        if levels is None:
            with pytest.raises(DataError) as caught:
                open_source(f"{tmp_path}/*.parquet")
            refused(
                caught.value, "hold the column 'x' in different types: write them with the same"
            )
            continue
        with open_source(f"{tmp_path}/*.parquet") as source:
            assert source.levels("x") == levels


@pytest.mark.parametrize("other", [2.5, "x", True, None, Decimal("2.125")])
def test_no_value_of_a_data_frame_decides_how_another_is_read(other: object) -> None:
    """DuckDB looks at a thousand values of a column of objects: 2.5 was 2 among whole numbers."""
    import pandas

    for one, text in (
        (1, "1"),
        (1.0, "1"),
        ("1.0", "1.0"),
        (Decimal("1.5"), "1.5"),
        (False, "false"),
    ):
        values = [one] * 6000
        values[3001] = other
        levels = sorted({text} | ({value_text(other)} - {None}))
        schema = Schema((Feature("x", levels, null_level="?"),))
        for data in ({"x": values}, pandas.DataFrame({"x": pandas.Series(values, dtype=object)})):
            with open_source(data) as source:
                assert source.counts(schema).counts[levels.index(text)] >= 5999

"""Attacks on releases part by part: what failed once, and what held."""

import json
import os
from pathlib import Path

import pytest

from semidp import Budget, Feature, InputError, Ledger, Margin, Plan, Refused, Release
from semidp.promise.documents import read_document
from semidp.promise.schema.schema import Schema
from semidp.publish import TableRequest, TablesRequest, runners
from semidp.publish import folders as unfinished_folders
from semidp.publish.folders import Unfinished
from semidp.publish.recheck import disagreements
from semidp.publish.sources.opening import open_source
from tests.partitions.conftest import FEATURES, records, run_partitioned, unfinished


def plan() -> Plan:
    """Return a plan that takes little time."""
    return Plan(
        [TableRequest(["county", "sex"], Budget.gdp(2), name="people")], ["state"], FEATURES[:2]
    )


def sound(place: Path) -> bool:
    return disagreements(Release.load(place), read_document(place / "release.json")) == ()


@pytest.mark.long
def test_two_tables_that_are_alike_at_the_cut_have_files_of_their_own(
    people, tmp_path: Path
) -> None:
    tables = [
        TableRequest(["county", "sex"], Budget.gdp(1), name="a"),
        TableRequest(["tract", "sex"], Budget.gdp(1), name="state-sex-overview"),
    ]
    release = run_partitioned(
        Plan(tables, ["state"], FEATURES), people, tmp_path / "release", "state"
    )
    names = [table.name for result in release.results for table in result.overview]
    assert names == ["state-sex", "state-sex-overview-overview"]
    assert sound(tmp_path / "release")


def test_a_table_that_exact_totals_fix_is_shown(people, tmp_path: Path) -> None:
    tables = [TableRequest(["tract", "sex"], Budget.gdp(1))]
    run_partitioned(
        Plan(tables, [Margin("tract", "sex")], FEATURES[:2]), people, tmp_path / "release", "state"
    )
    assert sound(tmp_path / "release")


def broken(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["report", "sign", "move"])
def test_what_fails_at_the_very_end_is_resumed_too(
    where, people, tmp_path: Path, monkeypatch
) -> None:
    """All parts are there, and the release was charged: a full disk for the report must not lose
    it.
    """
    Ledger.create(tmp_path / "ledger.json", Budget.gdp(10))
    place, how = tmp_path / "release", {"ledger": Ledger(tmp_path / "ledger.json")}
    last = {"report": (Release, "report_html"), "move": (unfinished_folders, "put_in_place")}
    with monkeypatch.context() as patched:
        if where != "sign":
            patched.setattr(*last[where], broken)
        more = {"finish": broken} if where == "sign" else {}
        with pytest.raises(InputError, match="no space left"):
            run_partitioned(plan(), people, place, "state", **how, **more)
    assert not place.exists()
    drawn = {path.name: path.read_bytes() for path in unfinished(place).glob("*.parquet")}
    assert drawn
    release = run_partitioned(plan(), people, place, "state", resume=True, **how)
    assert {name: (place / name).read_bytes() for name in drawn} == drawn
    assert release.part("01")
    assert len(how["ledger"].account().charges) == 1
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".lock"} == {
        "ledger.json",
        "release",
    }
    assert not {path.name for path in place.rglob("*")} & {"part.json", "unfinished.json", ".state"}
    assert sound(place)


def test_a_part_that_was_changed_meanwhile_is_not_published(
    people, tmp_path: Path, monkeypatch
) -> None:
    place = tmp_path / "release"
    with monkeypatch.context() as patched:
        patched.setattr(Release, "report_html", broken)
        with pytest.raises(InputError):
            run_partitioned(plan(), people, place, "state", form="csv")
    victim = unfinished(place) / "state=01" / "people.csv"
    victim.write_text(victim.read_text() + "\n")
    with pytest.raises(
        InputError, match=r"state=01/people.csv of the unfinished release was changed"
    ):
        run_partitioned(plan(), people, place, "state", form="csv", resume=True)
    assert not place.exists()


@pytest.mark.long
def test_a_copy_of_a_release_has_its_parts(people, tmp_path: Path) -> None:
    release = run_partitioned(plan(), people, tmp_path / "release", "state")
    release.save(tmp_path / "copy")
    assert sound(tmp_path / "copy")
    with pytest.raises(InputError, match="copied as they are"):
        release.save(tmp_path / "other", form="csv")
    (tmp_path / "copy" / "state=01" / "people.parquet").unlink()
    with pytest.raises(InputError, match="cannot read"):
        Release.load(tmp_path / "copy").part("01")


def test_file_names_and_file_systems_are_tried_before_anything_is_charged(
    people, tmp_path: Path, monkeypatch
) -> None:
    long = {**people, "x" * 245: people["sex"]}
    features = (*FEATURES[:1], Feature("x" * 245, "fm"), FEATURES[2])
    Ledger.create(tmp_path / "ledger.json", Budget.gdp(10))
    ledger = Ledger(tmp_path / "ledger.json")
    asked = Plan([TableRequest(["tract", "x" * 245], Budget.gdp(1), name="short")], [], features)
    with pytest.raises(InputError, match="no file can be called 'state-x"):
        run_partitioned(asked, long, tmp_path / "release", "state", ledger=ledger)
    alike = Plan(
        [TableRequest(["tract", "Count"], Budget.gdp(1))], [], (FEATURES[0], Feature("Count", "fm"))
    )
    with pytest.raises(InputError, match="two columns of a Parquet file would be called 'count'"):
        run_partitioned(
            alike, {**people, "Count": people["sex"]}, tmp_path / "release", "state", ledger=ledger
        )
    with (
        open_source(people, where="sex = 'f'") as source,
        pytest.raises(InputError, match="open it as the plan says"),
    ):
        run_partitioned(plan(), source, tmp_path / "release", "state", ledger=ledger)
    monkeypatch.setattr(os, "link", broken)
    with pytest.raises(InputError, match="second name"):
        run_partitioned(plan(), people, tmp_path / "release", "state", ledger=ledger)
    assert not ledger.account().charges
    assert {path.name for path in tmp_path.iterdir()} <= {"ledger.json", ".ledger.json.lock"}


def test_what_only_whole_tables_have_is_refused_in_a_sentence(people, tmp_path: Path) -> None:
    release = run_partitioned(plan(), people, tmp_path / "release", "state")
    with pytest.raises(Refused, match="made part by part"):
        release.several_records(2)
    with pytest.raises(Refused, match="made part by part"):
        release.save(tmp_path / "book", form="xlsx")


@pytest.mark.long
def test_damaged_measurements_are_told_and_abandoned_draws_removed(
    people, tmp_path: Path, monkeypatch
) -> None:
    """What a killed attempt drew and never stored would be a second measurement beside the one that
    is published.
    """
    place = tmp_path / "release"
    with monkeypatch.context() as patched:
        patched.setattr(runners, "carry_out", broken)
        with pytest.raises(InputError):
            run_partitioned(plan(), people, place, "state")
    state = unfinished(place) / ".state"
    (state / "attempt-0").mkdir()
    (state / "attempt-0" / "drawn.parquet").touch()
    kept = (state / "above-0.npy").read_bytes()
    for damage in (b"NUMPY", None):
        if damage is None:
            (state / "above-0.npy").unlink()
        else:
            (state / "above-0.npy").write_bytes(damage)
        with pytest.raises(InputError, match="damaged: discard it"):
            run_partitioned(plan(), people, place, "state", resume=True)
        assert not (state / "attempt-0").exists()
    (state / "above-0.npy").write_bytes(kept)
    run_partitioned(plan(), people, place, "state", resume=True)
    assert sound(place)


def test_a_single_table_is_the_same_request_however_it_is_asked_for() -> None:
    """As a product of one it was written, charged and then not read: now it is the table itself."""
    asked = Plan([TablesRequest([TableRequest(["sex"])], Budget.gdp(1))])
    assert asked == Plan([TableRequest(["sex"], Budget.gdp(1))])
    assert Plan.from_toml(asked.to_toml()) == asked


def test_columns_of_every_type_tell_the_parts_apart(tmp_path: Path) -> None:
    import duckdb

    kinds = {
        "whole": "n",
        "real": "CAST(n / 10.0 AS FLOAT)",
        "decimal": "CAST(n / 10.0 AS DECIMAL(5, 3))",
        "truth": "n > 1",
        "date": "DATE '2020-01-01' + n::INTEGER",
        "moment": "TIMESTAMP '2020-01-01 01:02:03.123456' + INTERVAL (n) DAY",
        "bytes": "('x''' || n)::BLOB",
        "text": "'a''b\"; -- ' || n",
    }
    with duckdb.connect() as database:
        columns = ", ".join(f"{kind} AS {name}" for name, kind in kinds.items())
        file = tmp_path / "people.parquet"
        rows = "SELECT 1 + i % 3 AS n, i % 6 AS county, i % 2 AS sex FROM range(60) AS t(i)"
        database.execute(
            f"COPY (SELECT {columns}, county, sex FROM ({rows})) TO '{file}' (FORMAT parquet)"
        )
    with open_source(file) as source:
        for name in kinds:
            labels = source.levels(name)
            places = Feature(name, labels)
            found = source.branches(places, 1)
            counts = [
                source.only(found[node]).counts(Schema([places])).counts.tolist() for node in found
            ]
            assert len(found) == len(labels) > 1
            assert [sum(row) == max(row) > 0 for row in counts] == [True] * len(found)
            assert sum(map(sum, counts)) == 60


@pytest.mark.long
def test_what_is_not_drawn_is_the_same_for_other_records_with_the_same_totals(
    tmp_path: Path, monkeypatch
) -> None:
    """Messages, names of files, what an unfinished release keeps, and all that is stated but for
    noisy numbers.
    """
    one = records(100)
    two = {**one, "sex": [*one["sex"][7:], *one["sex"][:7]]}
    said = []
    for number, data in enumerate((one, two)):
        place, left, real = tmp_path / str(number) / "release", [2], runners.carry_out

        def until_full(task, source, left=left, real=real):
            left[0] -= 1
            return broken() if left[0] < 0 else real(task, source)

        with monkeypatch.context() as patched:
            patched.setattr(runners, "carry_out", until_full)
            with pytest.raises(InputError) as caught:
                run_partitioned(plan(), data, place, "state")
        kept = unfinished(place)
        names = sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*"))
        left = Unfinished.from_notes(place)
        assert left is not None
        note = json.loads(left.notes.read_text().replace(left.run_name, "RUN"))
        del note["created"]  # the moment
        seen = [str(caught.value).replace(str(place), ""), names, note]
        run_partitioned(plan(), data, place, "state", resume=True)
        document, parts = (
            json.loads((place / name).read_text()) for name in ("release.json", "parts.json")
        )
        for table in [table for part in parts for table in part["tables"]] + document[
            "partitioned"
        ][0]["overview"]:
            # how far the fit is from noisy numbers, and how many noisy numbers are small
            del table["fitted" if "fitted" in table else "fit"]
            table.pop("cells", None)
        seen += [[(part["path"], [*part["files"]], part["tables"]) for part in parts]]
        said.append(
            [*seen, {key: document[key] for key in document if key not in ("created", "files")}]
        )
    assert said[0] == said[1]

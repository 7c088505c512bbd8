"""Linked records in databases, joined there; data frames; and plans that name the source of
units.
"""

import json

import numpy as np
import pytest

import semidp
from semidp.errors import DataError, InputError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.plan import Plan
from semidp.publish.product_estimates import sum_residuals
from semidp.publish.sources import linked_records
from semidp.publish.sources.linked_records import LinkedData
from tests.engines.conftest import _postgres, postgres_address  # noqa: F401 - a fixture
from tests.linked.test_command import command, files  # noqa: F401 - a fixture
from tests.linked.test_quarters import plan_of as quarters_plan
from tests.linked.test_quarters import town
from tests.linked.test_release import BAD, TABLES, homes_and_persons, plan_of

SERVICES = pytest.mark.services
JOINED_HERE = linked_records._joined_here
ARROW = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


def _listed(columns):
    listed = {}
    for name, column in columns.items():
        listed[name] = [value.item() if hasattr(value, "item") else value for value in column]
    return listed


def _duckdb(request, folder, persons, homes):
    import ibis
    import pyarrow

    connection = ibis.duckdb.connect(folder / "town.duckdb")
    for name, columns in (("persons", persons), ("homes", homes)):
        connection.create_table(name, pyarrow.table(_listed(columns)))
    connection.disconnect()
    address = f"duckdb://{folder / 'town.duckdb'}"
    return LinkedData(address, address, "persons", "homes")


def _tables(request, folder, persons, homes):
    import ibis
    import pyarrow

    connection = ibis.duckdb.connect()
    request.addfinalizer(connection.disconnect)
    tables = [
        connection.create_table(name, pyarrow.table(_listed(columns)))
        for name, columns in (("persons", persons), ("homes", homes))
    ]
    return LinkedData(*tables)


def _postgresql(request, folder, persons, homes):
    put = _postgres(request, folder)
    (address, first), (_, second) = (put(_listed(columns)) for columns in (persons, homes))
    return LinkedData(address, address, first["table"], second["table"])


DATABASES = [
    pytest.param(_duckdb, marks=[SERVICES, ARROW]),
    pytest.param(_tables, marks=[SERVICES, ARROW]),
    pytest.param(_postgresql, marks=SERVICES),
]


@pytest.fixture(params=DATABASES)
def stored(request, tmp_path, monkeypatch):
    """Store two tables, and refuse to bring records here."""

    def refused(*_):
        raise AssertionError("the records were brought into this process")

    monkeypatch.setattr(linked_records, "_joined_here", refused)
    return lambda persons, homes: request.param(request, tmp_path, persons, homes)


def units_by_size(plan, data):
    """The confidential table of units that a plan reads, from its residuals."""
    prepared = semidp.prepare(plan, data)
    (mechanism,), values = prepared.mechanisms, reveal(prepared.values[0])
    tables = []
    residuals = mechanism.agreement.residuals(*mechanism.space.split(values.astype(float)))
    for kind, of_kind in zip(mechanism.space.kinds, residuals, strict=True):
        tables.append(
            kind.restore_full_table(
                sum_residuals(kind.residuals, of_kind, kind.views[0]), kind.views[0]
            )
        )
    return tables


def test_a_database_joins_its_tables_itself(stored):
    persons, homes = homes_and_persons()
    plan = plan_of(TABLES, derived=["type"], adjacency="exchange")
    data = stored(persons, homes)
    members, units = units_by_size(plan, data)
    zones, sexes = ["A1", "A2", "A3", "B1", "B2"], ["f", "m"]
    counted, lived = np.zeros((5, 6), dtype=int), np.zeros((5, 2), dtype=int)
    for home, zone in zip(homes["home"], homes["zone"], strict=True):
        inside = persons["home"] == home
        counted[zones.index(zone), int(inside.sum()) - 1] += 1
        for sex in persons["sex"][inside]:
            lived[zones.index(zone), sexes.index(sex)] += 1
    assert np.allclose(units.sum(axis=2), counted)
    assert np.allclose(members.sum(axis=2), lived)
    release = semidp.run(plan, data, SeededRandomness(3))
    assert release.results[0].agreeing == (5, 5)


def test_parts_are_read_from_the_database(stored, tmp_path):
    persons, homes = homes_and_persons()
    plan = plan_of(TABLES, derived=["type"], adjacency="exchange")
    released = []
    for place, data in (("here", LinkedData(persons, homes)), ("there", stored(persons, homes))):
        with pytest.MonkeyPatch.context() as patch:
            if place == "here":
                patch.setattr(linked_records, "_joined_here", JOINED_HERE)
            options = semidp.RunOptions(out=tmp_path / place, randomness=SeededRandomness(3))
            released.append(semidp.run(plan, data, options, partition="state"))
    one, other = released
    for first, second in zip(one.tables, other.tables, strict=True):
        assert np.array_equal(first.counts, second.counts)
    assert other.results[0].agreeing == (5, 5)


def test_quarters_are_told_apart_in_the_database(stored):
    persons, homes = town()
    members, units = units_by_size(quarters_plan(), stored(persons, homes))
    assert units.sum() == pytest.approx(100)
    assert members[:, 1:].sum() == pytest.approx(42)
    assert np.allclose(units @ np.arange(5), members[:, 0].sum(axis=1))


@pytest.mark.parametrize("said", [said for said in BAD if "level" not in said])
def test_records_that_contradict_the_link_are_found_there(stored, said, tmp_path):
    tables, exact, derived = TABLES, ["units:zone"], ["type"]
    if "tenure" in said:
        tables, exact, derived = (
            [["zone", "sex"], ["units:zone", "size", "tenure"]],
            [("units:zone", "tenure")],
            [],
        )
    ledger = Ledger.create(tmp_path / "ledger.json", semidp.Budget.zcdp(2))
    least = int("no member" in said or "twice" in said or "tenure" in said)
    plan = plan_of(tables, exact, derived=derived, least=least, most=9 if least else 6)
    with pytest.raises(DataError, match=said):
        semidp.run(plan, stored(*BAD[said]), semidp.RunOptions(ledger=ledger))
    assert not ledger.own_charges


@ARROW
@SERVICES
def test_a_table_that_is_not_there_is_one_sentence(tmp_path):
    data = _duckdb(None, tmp_path, *homes_and_persons())
    plan = plan_of(TABLES, derived=["type"])
    with pytest.raises(InputError, match="no table 'castles'"):
        semidp.run(plan, LinkedData(data.members, data.units, "persons", "castles"))
    with pytest.raises(InputError, match="name of a table of units"):
        semidp.run(plan, LinkedData(data.members, data.units, "persons", None))


@ARROW
@SERVICES
def test_aggregates_and_other_sources_are_joined_here(tmp_path):
    persons, homes = homes_and_persons()
    plan = plan_of(TABLES, derived=["type"])
    stored = _duckdb(None, tmp_path, persons, homes)
    mixed = units_by_size(plan, LinkedData(stored.members, homes, "persons"))
    assert all(
        np.allclose(*pair)
        for pair in zip(mixed, units_by_size(plan, LinkedData(persons, homes)), strict=True)
    )


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_data_frames_of_any_kind(library):
    frames = pytest.importorskip(library)
    persons, homes = homes_and_persons()
    build = frames.table if library == "pyarrow" else frames.DataFrame
    plan = plan_of(TABLES, derived=["type"])
    framed = units_by_size(plan, LinkedData(build(persons), build(homes)))
    assert all(
        np.allclose(*pair)
        for pair in zip(framed, units_by_size(plan, LinkedData(persons, homes)), strict=True)
    )


def test_a_plan_names_the_source_of_units(files, capsys):  # noqa: F811
    plan = plan_of(TABLES, derived=["type"])
    document = plan.to_json()
    document["units"]["source"] = "homes.csv"
    (files / "plans").mkdir()
    (files / "plans" / "plan.json").write_text(json.dumps(document))
    (files / "homes.csv").rename(files / "plans" / "homes.csv")
    code, _, err = command("--plan plans/plan.json --out release", capsys)
    assert code == 0, err
    written = (files / "release" / "release.json").read_text()
    assert "homes.csv" not in written  # an address is no part of a release
    read = Plan.from_json(document, files / "plans")
    assert read == plan
    assert semidp.run(read, files / "persons.csv").results[0].agreeing == (5, 5)
    document["units"]["source"] = "castles.csv"
    (files / "plans" / "plan.json").write_text(json.dumps(document))
    code, _, err = command("--plan plans/plan.json --out other", capsys)
    assert code == 2
    assert "there is no file" in err


@ARROW
@SERVICES
def test_the_command_reads_two_tables_of_a_database(tmp_path, monkeypatch, capsys):
    from semidp.cli import run

    monkeypatch.chdir(tmp_path)
    data = _duckdb(None, tmp_path, *homes_and_persons())
    words = [
        *(
            "release",
            data.members,
            "--from",
            "persons",
            "--set",
            "units_from=homes",
            "--link",
            "home",
            "--protect",
        ),
        *(
            "member",
            "--most-members",
            "6",
            "--table",
            "zone,sex",
            "--table",
            "units:zone,size",
            "--exact",
            "units:zone",
        ),
        *("--levels", "sex=f,m", "--rho", "1", "--out", "release"),
    ]
    assert run(words) == 0, capsys.readouterr().err
    assert "sizes times units is the number of members in 5 of 5 places" in capsys.readouterr().out


def test_options_about_files_are_those_of_both_sources(files, capsys):  # noqa: F811
    asked = (
        "--link home --protect member --most-members 6 --table zone,sex --table units:zone,size --exact"
        " units:zone --levels sex=f,m --rho 1"
    )
    homes = (files / "homes.csv").read_text().replace("A1", "Köln")
    (files / "homes.csv").write_bytes(homes.encode("latin-1"))
    code, _, err = command(f"--units homes.csv {asked} --out first", capsys)
    assert code == 2
    assert "not UTF-8" in err
    code, _, err = command(f"--units homes.csv {asked} --set encoding=latin-1 --out second", capsys)
    assert code == 0, err
    assert "Köln" in (files / "second" / "units-zone-size.csv").read_text(encoding="utf-8")
    (files / "persons.csv").write_text("home,sex,age\n")
    empty = f"--units homes.csv {asked} --set least=0 --set encoding=latin-1"
    assert "allow_empty=true" in command(f"{empty} --out third", capsys)[2]
    code, _, err = command(f"{empty} --set allow_empty=true --out third", capsys)
    assert code == 2
    assert "there are no members" in err

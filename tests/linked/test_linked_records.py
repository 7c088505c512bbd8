"""Synthetic records of two linked files: every table of both kinds, and as many members in a unit
as it has.
"""

import csv
from collections import Counter

import numpy as np
import pytest

from semidp.cli import run
from semidp.errors import InputError
from semidp.inference.records.record_writing import linked_records
from semidp.promise.noise.randomness import SeededRandomness
from tests.linked.test_release import TABLES, plan_of, released


@pytest.mark.parametrize("protect", ["member", "unit"])
def test_both_files_have_every_table_and_every_size(protect):
    release = released(plan_of(TABLES, protect=protect, derived=["type"], adjacency="exchange"))
    members, units = linked_records(release, SeededRandomness(5))
    for records, table in (
        (members, release["zone-sex-age"]),
        (units, release["units:zone-size-type"]),
    ):
        columns = records.to_dict()
        names = [name for name in table.schema.names if name != "state"]
        counts = Counter(zip(*(columns[name] for name in names), strict=True))
        levels = [feature.levels for feature in table.schema.features]
        for cell in np.ndindex(table.counts.shape):
            labels = tuple(levels[axis][place] for axis, place in enumerate(cell))
            assert counts[labels] == table.counts[cell]
    homes = units.to_dict()
    sizes = dict(zip(homes["home"], map(int, homes["size"]), strict=True))
    zones = dict(zip(homes["home"], homes["zone"], strict=True))
    persons = members.to_dict()
    inside = Counter(persons["home"])
    assert all(inside[home] == size for home, size in sizes.items())
    assert all(
        zones[home] == zone for home, zone in zip(persons["home"], persons["zone"], strict=True)
    )
    assert len(set(homes["home"])) == len(units) == 200


def test_the_command_writes_two_files(tmp_path, capsys):
    released(plan_of(TABLES, derived=["type"])).save(tmp_path / "release")
    words = ["synthesize", str(tmp_path / "release"), "--out", str(tmp_path / "persons.csv")]
    assert run(words) == 2
    assert "--units-out" in capsys.readouterr().err
    assert run([*words, "--units-out", str(tmp_path / "homes.csv"), "--seed", "1"]) == 0, (
        capsys.readouterr().err
    )
    with (tmp_path / "homes.csv").open() as file:
        homes = list(csv.DictReader(file))
    with (tmp_path / "persons.csv").open() as file:
        persons = list(csv.DictReader(file))
    assert sum(int(home["size"]) for home in homes) == len(persons)
    assert {person["home"] for person in persons} == {home["home"] for home in homes}
    assert (tmp_path / "homes.about.json").exists()


def test_records_of_one_kind_have_no_units():
    import semidp

    plan = semidp.Plan([semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
    with pytest.raises(InputError, match="one kind"):
        linked_records(semidp.run(plan, {"sex": ["f", "m"]}), SeededRandomness(1))

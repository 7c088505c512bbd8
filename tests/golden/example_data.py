"""Small files for golden outputs, the same on every machine."""

import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

STATES = {"north": ("n1", "n2", "n3"), "south": ("s1", "s2")}


def write_files(folder: Path) -> None:
    """Write every file that the scenarios name."""
    rng = random.Random(20261118)
    write_rows(folder / "people.csv", *draw_people(rng, 240))
    write_rows(folder / "counts.csv", ("sex", "ward", "n"), draw_counts(rng))
    write_rows(folder / "stays.csv", *draw_stays(rng, 90))
    persons, homes = draw_homes(rng, 60)
    write_rows(folder / "persons.csv", ("home", "sex", "age", "group"), persons)
    write_rows(folder / "homes.csv", ("home", "state", "county", "tenure"), homes)
    (folder / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def draw_people(rng: random.Random, count: int) -> tuple[Sequence[str], list[list[object]]]:
    header = ("id", "sex", "ward", "state", "county", "age", "band", "score", "days", "ill", "pay")
    rows: list[list[object]] = []
    for number in range(count):
        state = rng.choice([*STATES])
        age = rng.randrange(80)
        pay = "" if rng.random() < 0.2 else rng.randrange(1000, 5000)
        rows.append(
            [
                number,
                rng.choice("fm"),
                rng.choice("abc"),
                state,
                rng.choice(STATES[state]),
                age,
                f"{age // 20 * 20}+",
                round(rng.gauss(60, 15), 1),
                min(rng.randrange(1, 30), rng.randrange(1, 60)),
                int(rng.random() < 0.2 + age / 200),
                pay,
            ]
        )
    return header, rows


def draw_counts(rng: random.Random) -> list[list[object]]:
    return [[sex, ward, rng.randrange(3, 60)] for sex in "fm" for ward in "abc"]


def draw_stays(rng: random.Random, patients: int) -> tuple[Sequence[str], list[list[object]]]:
    rows: list[list[object]] = []
    for patient in range(patients):
        for _ in range(rng.choice([1, 1, 2, 3])):
            rows.append([patient, rng.choice("fm"), rng.choice("abc"), rng.randrange(1, 20)])
    return ("patient", "sex", "ward", "days"), rows


def draw_homes(rng: random.Random, count: int) -> tuple[list[list[object]], list[list[object]]]:
    persons: list[list[object]] = []
    homes: list[list[object]] = []
    for home in range(count):
        state = rng.choice([*STATES])
        homes.append([home, state, rng.choice(STATES[state]), rng.choice(["own", "rent"])])
        for _ in range(rng.choice([1, 2, 2, 3, 4])):
            age = rng.randrange(90)
            persons.append([home, rng.choice("fm"), "old" if age > 64 else "young", age // 30])
    return persons, homes


SCHEMA = """\
[[feature]]
name = "sex"
levels = ["f", "m"]

[[feature]]
name = "ward"
levels = ["a", "b", "c"]
"""

PLAN = """\
invariants = [["sex"], ["ward"]]
adjacency = "worst-case"

[[table]]
features = ["sex", "ward", "ill"]
mu = 1

[[feature]]
name = "ill"
levels = ["0", "1"]
"""

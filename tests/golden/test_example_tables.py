"""The tables that ship with the package: what publishing their margins means, number by number."""

import json
import math
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.publish.witness import find_witness

GOLDEN = json.loads((Path(__file__).parent / "example_tables.json").read_text(encoding="utf-8"))


def example(name: str) -> Table:
    frame = pd.read_csv(str(files("semidp") / "data" / f"{name}.csv"), dtype=str)
    columns = [column for column in frame.columns if column != "count"]
    schema = Schema([Feature(column, list(dict.fromkeys(frame[column]))) for column in columns])
    frame["count"] = frame["count"].astype(int)
    return Table.from_frame(frame, schema, count="count")


def analysed(entry: dict) -> dict:
    public = Dataspace.from_table(
        example(entry["table"]), [Margin(*names) for names in entry["margins"]]
    )
    found = semi_adjacency(public)
    space = sensitivity_space(public, Ball(found.bound), released=entry.get("released"))
    return {
        "n": public.n,
        "a": found.to_json(),
        "l1": space.l1,
        "l2_squared": space.l2_squared,
        "linf": space.linf,
        "dimension": space.dimension,
        "exact": space.exact,
        "witness": str(find_witness(found)) if find_witness(found) else None,
    }


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: f"{entry['table']}:{entry['margins']}")
def test_golden_values(entry: dict) -> None:
    assert analysed(entry) == entry["expected"]


def test_occupational_status_with_both_margins() -> None:
    public = Dataspace.from_table(
        example("occupational_status"), [Margin("origin"), Margin("destination")]
    )
    found = semi_adjacency(public)
    assert (found.worst_case, found.definition) == (3, 2)
    space = sensitivity_space(public, Ball(3))
    assert (space.l1, space.l2, space.linf, space.dimension) == (6, math.sqrt(6), 1, 49)
    assert space.exact


def test_admissions() -> None:
    table = example("ucb_admissions")
    one_way = Dataspace.from_table(table, [Margin("admit"), Margin("gender"), Margin("dept")])
    assert semi_adjacency(one_way).worst_case == 4
    joint = Dataspace.from_table(table, [Margin("admit", "gender"), Margin("dept")])
    assert semi_adjacency(joint).worst_case == 3
    pairs = Dataspace.from_table(
        table, [Margin("admit", "gender"), Margin("gender", "dept"), Margin("admit", "dept")]
    )
    assert semi_adjacency(pairs).bound == 5  # 1 + 2 min(2, 6), by Graver elements
    given = sensitivity_space(pairs, Ball(4))
    assert (given.l1, given.l2_squared, given.linf, given.dimension) == (8, 8, 1, 5)
    # a cube of signs attains them, and an integer program finds a table that holds its records
    assert given.exact

"""Tables that are proposed: from public numbers alone, the same for all data with the same exact
totals.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from semidp import Ball, Budget, Dataspace, Feature, InputError, Margin, Schema, Table
from semidp.cli import run as command
from semidp.inference.records.record_knowledge import propose_tables
from semidp.promise.guarantee import Scope

SCHEMA = Schema(
    [Feature("sex", "fm"), Feature("age", "abc"), Feature("job", [str(job) for job in range(60)])]
)


def scope(n: int, *exact: str) -> Scope:
    values = {}
    for name in exact:
        counts = np.full(SCHEMA.restrict([name]).shape, 0)
        counts[0] = n
        values[Margin(name)] = Table(SCHEMA.restrict([name]), counts)
    return Scope(Dataspace.from_totals(SCHEMA, values, n), None, Ball(2))


def test_all_pairs_where_records_are_many() -> None:
    proposal = propose_tables(scope(100_000), SCHEMA.names, Budget.gdp(1))
    assert {table.features for table in proposal.tables} == {
        ("sex", "age"),
        ("sex", "job"),
        ("age", "job"),
    }
    assert not proposal.left_out
    assert not any(table.is_dominated for table in proposal.tables)


def test_fewer_where_noise_would_dominate() -> None:
    proposal = propose_tables(scope(300), SCHEMA.names, Budget.gdp(1))
    assert ("age", "job") in {table.features for table in proposal.left_out}
    assert all(table.is_dominated for table in proposal.left_out)
    kept = [table for table in proposal.tables if len(table.features) > 1]
    assert kept
    assert not any(table.is_dominated for table in kept)


def test_a_feature_without_a_pair_keeps_a_table_of_its_own_unless_it_is_exact() -> None:
    little = Budget.gdp("1/10")
    alone = {table.features for table in propose_tables(scope(500), SCHEMA.names, little).tables}
    assert ("job",) in alone
    exact = {
        table.features for table in propose_tables(scope(500, "job"), SCHEMA.names, little).tables
    }
    assert ("job",) not in exact


def test_pairs_that_exact_totals_give_are_not_asked_for() -> None:
    values = {Margin("sex", "age"): Table(SCHEMA.restrict(["sex", "age"]), np.full((2, 3), 1000))}
    proposal = propose_tables(
        Scope(Dataspace.from_totals(SCHEMA, values), None, Ball(2)), SCHEMA.names, Budget.gdp(1)
    )
    assert proposal.exact == (("sex", "age"),)
    assert ("sex", "age") not in {table.features for table in proposal.tables}


def test_one_feature_has_no_pair() -> None:
    with pytest.raises(InputError, match="two features or more"):
        propose_tables(scope(100), ["sex"], Budget.gdp(1))


def written(folder: Path, name: str, seed: int) -> Path:
    """People with the same counts of sex, age and job, matched in another way."""
    rng = np.random.default_rng(seed)
    columns = {
        "sex": np.tile(["f", "m"], 300),
        "age": np.tile(["a", "b", "c"], 200),
        "job": np.tile(["p", "q"], 300),
    }
    rows = zip(*(rng.permutation(column) for column in columns.values()), strict=True)
    path = folder / name
    path.write_text("sex,age,job\n" + "\n".join(",".join(row) for row in rows) + "\n")
    return path


def test_the_command_says_the_same_of_all_data_with_the_same_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--propose-tables",
        "--table",
        "sex,age,job",
        "--exact",
        "sex",
        "--exact",
        "age",
        "--exact",
        "job",
    ]
    printed = []
    for seed in (1, 2):
        data = written(tmp_path, f"{seed}.csv", seed)
        assert command(["analyze", str(data), *options, "--mu", "1", "--format", "json"]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert [table["features"] for table in printed[0]["proposed"]] == [
        ["sex", "age"],
        ["sex", "job"],
        ["age", "job"],
    ]
    assert command(["analyze", str(data), *options]) == 0
    text = capsys.readouterr().out
    assert "ask for    sex × age: 6 cells, standard error" in text
    assert "would spend budget, and is not made" in text
    assert "next       semidp release DATA --table sex,age --table sex,job --table age,job" in text


def test_a_proposal_needs_records_and_features(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        command(["analyze", "--propose-tables", "--levels", "sex=f,m", "--levels", "age=a,b"]) == 2
    )
    assert "give DATA, or --totals" in capsys.readouterr().err
    data = written(tmp_path, "people.csv", 1)
    assert command(["analyze", str(data), "--propose-tables"]) == 2
    assert "which features records shall have" in capsys.readouterr().err

"""Weighted sums of cells of any tables and depths: their text, their values, and dense
covariances.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp
from semidp import Budget, Plan, Release
from semidp.cli import run
from semidp.errors import InputError
from semidp.inference import sum_intervals, sum_rows
from semidp.inference.area_sums import AreaRow
from semidp.inference.combined.combination import Combination
from semidp.inference.combined.releases_together import find_combination
from semidp.inference.measured import linear_estimates, measured_table
from semidp.promise import SeededRandomness
from semidp.publish import TableRequest, TablesRequest
from tests.combining.dense import solve
from tests.combining.test_releases import nested


def several(seed: int = 1, exact: tuple[str, ...] = ("age",)) -> Release:
    """Three tables that share a budget, of two depths and ages, and one with cell noise."""
    rng = np.random.default_rng(5)
    nest = {"x": "a", "y": "a", "z": "b", "u": "b", "v": "b", "w": "c"}
    counties = rng.choice([*nest], 300).tolist()
    people = {"county": counties, "state": [nest[county] for county in counties]}
    people["age"] = rng.choice([*"pqr"], 300).tolist()
    people["sex"] = rng.choice([*"fm"], 300).tolist()
    together = [
        TableRequest(["county"]),
        TableRequest(["state", "age"]),
        TableRequest(["state", "sex"]),
    ]
    alone = TableRequest(["age", "sex"], Budget.zcdp("0.3"), mechanism="gaussian")
    plan = Plan(
        [TablesRequest(together, Budget.zcdp("0.5")), alone],
        list(exact),
        levels_from_data=True,
        nests=[semidp.Nest(["state", "county"])],
    )
    return semidp.run(plan, people, SeededRandomness(seed))


def dense_covariance(release: Release) -> tuple[list[str], np.ndarray]:
    """Covariance of all cells of all tables, from what every measured number moves by one does to
    the estimates.
    """
    names, columns, variances = [], [], []
    offsets = np.cumsum([0, *(table.schema.size for table in release.tables)])
    for result, mechanism in zip(release.results, release.mechanisms, strict=True):
        first = len(names)
        names += [table.name for table in result.every_table()]
        moved = np.zeros(
            (len(mechanism.space.scales) if result.residual_noise() else offsets[-1], offsets[-1])
        )
        noise = result.residual_noise()
        if noise is None:
            # Cells that keep the exact ages: the noise is projected.
            own = slice(offsets[first], offsets[first + 1])
            shape = release.tables[first].schema.shape
            units = np.eye(math.prod(shape)).reshape(-1, *shape)
            moved[own, own] = np.stack([mechanism.space.project(unit).ravel() for unit in units])
            variances += [mechanism.variance] * offsets[-1]
        else:
            blank = np.concatenate(
                [table.ravel() for table in noise.estimates(np.zeros(noise.space.shape))]
            )
            for entry in range(len(moved)):
                unit = np.zeros(noise.space.shape)
                unit[entry] = 1
                cells = np.concatenate([table.ravel() for table in noise.estimates(unit)]) - blank
                moved[entry, offsets[first] : offsets[len(names)]] = cells
            variances += noise.variances.tolist()
        columns.append(moved)
    every = np.concatenate(columns)
    return names, every.T @ (np.array(variances)[:, None] * every)


def test_errors_across_tables_are_those_of_the_dense_covariance() -> None:
    release = several()
    names, covariance = dense_covariance(release)
    assert names == [table.name for table in release.tables]
    rng = np.random.default_rng(0)
    shapes = [table.schema.shape for table in release.tables]
    weights = [rng.normal(size=(20, *shape)) for shape in shapes]
    flat = np.concatenate([part.reshape(20, -1) for part in weights], axis=1)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", flat, covariance, flat))
    measured = [measured_table(release, (), name) for name in names]
    errors = linear_estimates(release).weigh_noise(dict(enumerate(weights))).standard_errors
    np.testing.assert_allclose(errors, expected, rtol=1e-9)
    # Tables that share a budget are not independent: that would be seen.
    apart = np.sqrt(sum(one.errors(part) ** 2 for one, part in zip(measured, weights, strict=True)))
    assert (np.abs(apart / expected - 1) > 1e-3).mean() > 0.5
    for number in range(20):
        asked = {name: part[number] for name, part in zip(names, weights, strict=True)}
        assert release.estimate(asked)[1] == pytest.approx(expected[number], rel=1e-9)


@pytest.mark.long
def test_errors_across_tables_of_a_combination_are_those_of_dense_least_squares() -> None:
    both = semidp.combine(several(1), several(2, ("sex",)))
    combination = find_combination(both)
    assert isinstance(combination, Combination)
    observed = [part.observed for part in combination.evidence]
    layout = combination.layout
    dense = solve(
        semidp.inference.Measurements(layout.places, layout.sizes, observed, layout.possible)
    )
    rng = np.random.default_rng(0)
    weights = {table.name: rng.normal(size=(10, *table.schema.shape)) for table in both.tables}
    by_number = dict(enumerate(weights.values()))
    noise = combination.weigh_noise(by_number)
    errors = noise.standard_errors
    drawn = noise.draw(4000, SeededRandomness(2))
    for number in range(10):
        stacked = {table: part[number][None] for table, part in by_number.items()}
        on_cells = {depth: array[0] for depth, array in combination.weights(stacked).items()}
        value, variance = dense.sum_of(on_cells)
        assert errors[number] == pytest.approx(math.sqrt(variance), rel=1e-9)
        stated = both.estimate({name: part[number] for name, part in weights.items()})
        assert stated == pytest.approx((value, math.sqrt(variance)), rel=1e-8)
        # 4,000 draws know a standard deviation to 1.1%.
        assert np.std(drawn[:, number]) == pytest.approx(math.sqrt(variance), rel=0.06)
        assert np.std(drawn[:, number]) != pytest.approx(1.2 * math.sqrt(variance), rel=0.06)


def test_a_written_sum_is_what_its_terms_say() -> None:
    release = several()
    text = "gap: state=a & age=p,q - 0.5 * county[county=x] + 2 * age-sex[sex=f] - sex=m & state=b"
    answer = sum_intervals(release, sum_rows(text), draws=199, randomness=SeededRandomness(1))[
        "gap"
    ]
    tables = {table.name: table for table in release.tables}
    weights: dict[str, Any] = {name: np.zeros(tables[name].schema.shape) for name in tables}
    weights["state-age"][:2, 0] = 1  # ages, then states, as in the schema
    weights["county"][0] = -0.5
    weights["table"][:, 0] = 2
    weights["state-sex"][1, 1] = -1
    value, error = release.estimate(weights)
    assert answer.value == pytest.approx(value)
    assert answer.standard_error == pytest.approx(error)
    assert answer.low < value < answer.high
    whole = sum_intervals(release, sum_rows("all: county[]"), draws=99)["all"]
    assert (whole.value, whole.low, whole.high) == (pytest.approx(300), 300, 300)
    # The same number twice from tables with common noise has no error; once more from another table
    # it has.
    rows = sum_rows("none: state-age[state=a] - state-sex[state=a]")
    assert sum_intervals(release, rows, draws=99)["none"].standard_error == pytest.approx(
        0, abs=1e-9
    )
    rows = sum_rows("some: age-sex[sex=f] - state-sex[sex=f]")
    assert sum_intervals(release, rows, draws=99)["some"].standard_error > 0.5


def test_the_text_of_sums() -> None:
    assert sum_rows("sex=f") == [AreaRow("sex=f", {"sex": ("f",)})]
    assert sum_rows("x: - 2*a=b") == [AreaRow("x", {"a": ("b",)}, -2.0)]
    assert sum_rows("x: + a=b") == [AreaRow("x", {"a": ("b",)})]
    quoted = sum_rows('x: age="[0, 18)",65+ & pay="a + b" - 1e2 * t[age="q & r"]')
    assert quoted[0] == AreaRow("x", {"age": ("[0, 18)", "65+"), "pay": ("a + b",)})
    assert quoted[1] == AreaRow("x", {"age": ("q & r",)}, -100.0, "t")
    assert sum_rows("x: age=18-24 - age=[0]")[1] == AreaRow("x", {"age": ("[0]",)}, -1.0)
    for text, sentence in (
        ("x: sex", "'sex' in the sum 'x: sex' names no cells"),
        ("x: sex=", "names no cells"),
        ("x: y * sex=f", "'y' in the sum"),
        ("x: inf * sex=f", "is no weight"),
        ("x: sex=f + ", "names no cells"),
        ("", "names no cells"),
    ):
        with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
            sum_rows(text)


def test_the_command_prints_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nested(TableRequest(["county", "age"], Budget.zcdp("0.5"), mechanism="gaussian"), ["age"]).save(
        tmp_path / "r"
    )
    words = ["intervals", str(tmp_path / "r"), "--draws", "99"]
    sums = ["--sum", "gap: county=x,y - 0.5 * state=b & age=p", "--sum", "table[age=p]"]
    assert run([*words, *sums]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split()[0] == "sum"
    assert "table[age=p]" in printed
    assert run([*words, *sums, "--format", "json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["sums"]] == [
        "gap",
        "table[age=p]",
    ]
    file = tmp_path / "sums.csv"
    file.write_text("name,table,county,age,weight\ngap,table,x,,\ngap,,,p,-0.5\n")
    assert run([*words, "--areas", str(file)]) == 0
    capsys.readouterr()
    for wrong, sentence in (
        (["--sum", "a: county=x", "--of", "age=p"], "--sum names the cells itself"),
        (["--sum", "a: county=q"], "county has no level 'q'"),
        (["--sum", "a: other[county=x]"], "no table 'other' with county"),
        (["--sum", "a: zone=x"], "no table with zone"),
        (["--sum", "a: county=x", "--posterior"], "--posterior is of all cells"),
    ):
        assert run([*words[:2], *wrong]) == 2
        assert sentence in capsys.readouterr().err

"""Areas of a release, from a file: weighted sums of cells at any depth, their intervals, and
mistakes.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp import Budget, Plan, Release
from semidp.cli import run
from semidp.errors import InputError
from semidp.inference import area_intervals
from semidp.inference.area_sums import AreaRow
from semidp.promise import SeededRandomness
from semidp.publish import TableRequest
from tests.combining.test_releases import NEST, nested

DISTRICTS = [
    AreaRow("mine", {"county": "x"}),
    AreaRow("mine", {"state": "b"}),
    AreaRow("part", {"county": "w"}, 0.25),
]


def release() -> Release:
    return nested(
        TableRequest(["county", "age"], Budget.zcdp("0.5"), mechanism="gaussian"), ["age"]
    )


def test_an_area_is_the_sum_of_its_cells() -> None:
    published = release()
    answers = area_intervals(published, DISTRICTS, draws=999)
    estimate = published.tables[0].estimate
    leaves = [path[-1] for path in published.tables[0].schema.features[0].paths()]
    mine = [leaves.index(county) for county, state in NEST.items() if county == "x" or state == "b"]
    assert answers["mine"].value == pytest.approx(estimate[mine].sum())
    weights = np.zeros(estimate.shape)
    weights[mine] = 1
    assert answers["mine"].standard_error == pytest.approx(
        published.estimate({"table": weights})[1]
    )
    assert answers["part"].value == pytest.approx(estimate[leaves.index("w")].sum() / 4)
    assert answers["mine"].low == int(answers["mine"].low)  # a count is whole


@pytest.mark.long
def test_intervals_hold_as_often_as_they_say_and_narrower_ones_do_not() -> None:
    """40 releases: fewer than 31 of 40 at a true rate of 0.95 has probability below 1e-4."""
    people = {"sex": [*"fmmf"] * 50, "vote": [*"yynnn"] * 40}
    request = TableRequest(["sex", "vote"], Budget.zcdp("0.5"), mechanism="gaussian")
    plan = Plan([request], ["sex"], levels_from_data=True)
    pairs = list(zip(people["sex"], people["vote"], strict=True))
    truth = pairs.count(("f", "y")) + 0.5 * pairs.count(("m", "n"))
    rows = [AreaRow("a", {"sex": "f", "vote": "y"}), AreaRow("a", {"sex": "m", "vote": "n"}, 0.5)]
    held = narrow = 0
    for seed in range(40):
        published = semidp.run(plan, people, SeededRandomness(seed))
        answer = area_intervals(
            published, rows, draws=199, randomness=SeededRandomness(1000 + seed)
        )["a"]
        held += answer.low <= truth <= answer.high
        narrow += abs(truth - answer.value) <= (answer.high - answer.low) / 5
    assert held >= 31
    assert narrow < 31


def test_the_command_prints_areas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release().save(tmp_path / "release")
    file = tmp_path / "areas.csv"
    file.write_text("name,state,county,weight\nmine,,x,\nmine,b,,\npart,,w,0.25\n")
    words = ["intervals", str(tmp_path / "release"), "--areas", str(file), "--draws", "999"]
    assert run(words) == 0
    printed = capsys.readouterr().out
    assert "mine" in printed
    assert "Each interval holds by itself" in printed
    assert run([*words, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["areas"]] == ["mine", "part"]
    for text, sentence in (
        ("name,state\nmine,q\n", "state has no level 'q'"),
        ("name,zone\nmine,q\n", "no table with zone"),
        ("state\nb\n", "has no column name"),
        ("name,state,weight\nmine,b,x\n", "the weight in line 2"),
        ("name,state,county\nmine,b,\nmine,,z\n", "names a cell twice"),
        ("name,state\nmine\n", "not as many values"),
        ("name,state\n", "names no area"),
    ):
        file.write_text(text)
        assert run(words) == 2
        assert sentence in capsys.readouterr().err
    assert run([*words, "--of", "age=p"]) == 2
    with pytest.raises(InputError, match="confidence level"):
        area_intervals(release(), DISTRICTS, level=2)


def test_areas_over_tables_that_share_noise() -> None:
    """No table has both features with sex: each row is counted in its own, and the noise in common
    is counted once.
    """
    rng = np.random.default_rng(1)
    people = {
        name: rng.choice([*levels], 200).tolist()
        for name, levels in (("sex", "fm"), ("a", "pq"), ("b", "xyz"))
    }
    tables = [semidp.publish.TableRequest(["sex", "a"]), semidp.publish.TableRequest(["sex", "b"])]
    plan = semidp.Plan(
        [semidp.publish.TablesRequest(tables, semidp.Budget.gdp(1))], levels_from_data=True
    )
    release = semidp.run(plan, people, SeededRandomness(3))
    rows = [
        AreaRow("none", {"sex": "f", "a": "p"}),
        AreaRow("none", {"sex": "f", "a": "q"}),
        *(AreaRow("none", {"sex": "f", "b": level}, -1.0) for level in "xyz"),
        AreaRow("both", {"sex": "f", "a": "p"}),
        AreaRow("both", {"sex": "m", "b": "x"}),
    ]
    both = semidp.combine(release, semidp.run(plan, people, SeededRandomness(4)))
    compared = 0
    for one in (release, both):
        answers = area_intervals(one, rows, randomness=SeededRandomness(5), draws=999)
        # Women by a less women by b: the same number twice, without an error.
        assert answers["none"].value == pytest.approx(0, abs=1e-9)
        assert answers["none"].high - answers["none"].low < 1e-9
        weights = {"sex-a": [[1, 0], [0, 0]], "sex-b": [[0, 0, 0], [1, 0, 0]]}
        value, error = one.estimate(weights)
        assert answers["both"].value == pytest.approx(value)
        assert answers["both"].standard_error == pytest.approx(error)
        assert 1.5 * error < answers["both"].high - value < 2.5 * error
        compared += 1
    assert compared == 2

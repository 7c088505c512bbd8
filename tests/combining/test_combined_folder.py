"""A combination is a release: every command reads its folder, and computes it again from the
releases inside.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, Release, combine
from semidp.cli import run
from semidp.errors import Refused
from semidp.promise import SeededRandomness
from semidp.publish import TableRequest
from tests.combining.test_releases import nested, people, product, table

# The folder is shared: its reports are drawn for all tests, or one would find another's changed.
pytestmark = pytest.mark.pictures


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    first = table(["sex", "region"], ["sex", "region"], Budget.gdp(1), 1)
    second = product(["sex"], [["sex", "region"], ["sex", "age"]], Budget.gdp(1), 2)
    place = tmp_path_factory.mktemp("combined") / "both"
    combine(first, second).save(place)
    return place


@pytest.mark.long
def test_a_combination_is_read_back_as_it_was(folder: Path) -> None:
    release = Release.load(folder)
    again = combine(*release.sources)
    assert len(again.tables) == 2
    for one, other in zip(release.tables, again.tables, strict=True):
        np.testing.assert_allclose(one.estimate, other.estimate, rtol=1e-12)
        assert (one.counts == other.counts).all()
    assert release.guarantee == again.guarantee
    assert not release.private
    assert "releases that are combined" in (folder / "report.html").read_text()
    # Releases stand in the place of their combination.
    assert len(combine(release, table(["age"], ["age", "sex"], Budget.gdp(1), 3)).sources) == 3


@pytest.mark.long
def test_every_command_reads_the_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", str(folder), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["disagreements"] == []
    assert any(
        "releases/1" in field for trust in shown["taken_on_trust"] for field in trust["fields"]
    )
    assert run(["show", str(folder)]) == 0
    assert "2 releases of the same records" in capsys.readouterr().out
    assert run(["intervals", str(folder), "--of", "sex=f", "--of", "region=n", "--seed", "1"]) == 0
    assert run(["test", str(folder), "--rows", "sex", "--columns", "region", "--seed", "1"]) == 0
    people_file = tmp_path / "people.csv"
    assert run(["synthesize", str(folder), "--out", str(people_file)]) == 0
    assert len(people_file.read_text().splitlines()) == 401
    assert run(["model", str(folder), "sex ~ region"]) == 0
    capsys.readouterr()
    assert run(["audit", str(folder)]) == 2
    assert "combination of several" in capsys.readouterr().err
    assert run(["guarantee", str(folder), "--also-known", "age"]) == 2


@pytest.mark.long
def test_numbers_that_were_changed_are_found(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = Release.load(folder)
    copy = tmp_path / "copy"
    release.save(copy)
    cells = (copy / "sex-age.csv").read_text().splitlines()
    changed = []
    for name, cell in zip(cells[0].split(","), cells[1].split(","), strict=True):
        changed.append(repr(float(cell) + 5) if name.startswith("estimate") else cell)
    content = "\n".join([cells[0], ",".join(changed), *cells[2:]]) + "\n"
    (copy / "sex-age.csv").write_text(content)
    document = json.loads((copy / "release.json").read_text())
    document["files"]["sex-age.csv"] = hashlib.sha256(content.encode()).hexdigest()
    (copy / "release.json").write_text(json.dumps(document))
    assert run(["show", str(copy)]) == 1
    assert "estimates of sex-age that do not follow from its releases" in capsys.readouterr().out
    assert run(["intervals", str(copy), "--of", "sex=f"]) == 2
    assert "no questions are answered from it" in capsys.readouterr().err
    source = copy / "releases" / "1" / "release.json"
    source.write_text(source.read_text().replace('"created": "2', '"created": "3'))
    assert run(["show", str(copy)]) == 2
    assert "changed after the releases were combined" in capsys.readouterr().err


def test_a_combination_may_state_no_guarantee(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ball and exchange are two promises, and are not added up."""
    from semidp import Plan
    from semidp import run as released

    first = table(["sex"], ["sex", "region"], Budget.gdp(1), 1)
    plan = Plan(
        [TableRequest(["sex", "region"], Budget.gdp(1))],
        ["sex"],
        adjacency="exchange",
        levels_from_data=True,
    )
    both = combine(first, released(plan, people(), SeededRandomness(2)))
    assert both.stated is None
    with pytest.raises(Refused, match="states no guarantee"):
        _ = both.guarantee
    both.save(tmp_path / "both")
    assert run(["show", str(tmp_path / "both")]) == 0
    captured = capsys.readouterr()
    assert "No guarantee of all releases together is stated" in captured.out + captured.err
    page = (tmp_path / "both" / "report.html").read_text()
    assert "No guarantee of all releases together is stated" in page
    assert "Error curve of the best attacker" not in page
    assert json.loads((tmp_path / "both" / "release.json").read_text())["guarantee"] is None


def test_weighted_sums_over_tables_and_depths() -> None:
    fine = nested(TableRequest(["county", "age"], Budget.zcdp(1), mechanism="gaussian"), ["age"])
    coarse = nested(TableRequest(["state", "age"], Budget.zcdp(1), mechanism="gaussian"), ["age"])
    both = combine(fine, coarse)
    by_county, by_state = both.tables
    one, other = np.zeros(by_county.schema.shape), np.zeros(by_state.schema.shape)
    one[0, 0] = one[1, 0] = 1
    other[0, 0] = -1
    # The two counties of the first state less the state itself.
    value, error = both.estimate({by_county.name: one, by_state.name: other})
    assert value == pytest.approx(0, abs=1e-9)
    assert error == pytest.approx(0, abs=1e-9)
    value, error = both.estimate({by_county.name: one})
    assert error == pytest.approx(by_state.standard_errors[0, 0])

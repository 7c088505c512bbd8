"""docs/tumult.md, run in Tumult's own environment, beside what Tumult states where it protects
several rows.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from semidp.cli import run

pytestmark = pytest.mark.services
PAGE = (Path(__file__).parent.parent.parent / "docs" / "tumult.md").read_text(encoding="utf-8")
CHECK = """
from tmlt.analytics import AddMaxRows

noises = {}
for rows in (1, 2, 4):
    stated = RhoZCDPBudget(0.5 * rows**2)
    other = Session.from_dataframe(stated, "people", people, protected_change=AddMaxRows(rows))
    _, _, noise = other._compile_and_get_info(sums._query_expr, stated)
    noises[rows] = repr(list(noise))
print("NOISES", json.dumps(noises))
"""
"""What Tumult itself states for several rows: with which noise it would spend what the recipe
writes for them."""


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_recipe_writes_what_tumult_guarantees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    python = os.environ["SEMIDP_TUMULT_PYTHON"]
    environment = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, "-c", _block("python") + CHECK],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = re.search(r"^NOISES (.*)$", done.stdout, flags=re.MULTILINE)
    assert said
    noises = json.loads(said[1])
    assert "'noise_parameter': 100" in noises["1"]  # σ² = 10² / 2ρ
    assert len({*noises.values()}) == 1, (
        "Tumult draws the same noise where it protects several rows at these losses"
    )
    values = json.loads((tmp_path / "session.json").read_text())["privacy_function"]["values"]
    assert [values[rows] for rows in noises] == [0.5, 2.0, 8.0]
    words = _block("sh").split()
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run([*words[1:], "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["rho"]) == (2, 8)
    assert document["stated"]["tradeoff"] == {"kind": "zcdp", "rho": "0.5"}

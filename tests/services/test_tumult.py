"""docs/tumult.md, run in Tumult's own environment, and what Tumult's own measurement says at the same distances."""

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
measurement, _, _ = session._compile_and_get_info(sums._query_expr, budget)
(table,) = session._accountant.d_in
print("MAP", json.dumps({d: str(measurement.privacy_function({table: d})) for d in (1, 2, 4)}))
"""


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
    said = re.search(r"^MAP (.*)$", done.stdout, flags=re.MULTILINE)
    assert said
    values = json.loads((tmp_path / "session.json").read_text())["privacy_function"]["values"]
    for distance, loss in json.loads(said[1]).items():
        top, _, bottom = loss.partition("/")
        assert values[distance] == pytest.approx(float(top) / float(bottom or 1)), "the recipe is Tumult's own function"
    words = _block("sh").split()
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run([*words[1:], "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["a"], document["rho"]) == (2, 8)
    assert document["stated"]["tradeoff"] == {"kind": "zcdp", "rho": "0.5"}

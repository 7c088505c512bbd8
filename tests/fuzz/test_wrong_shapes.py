"""Every key of a plan, its features among them, and of a release.json replaced by values of every
shape: a sentence, never exit code 70.

``make test`` reads every such plan; ``make test-long`` rehearses each of them, and shows every such
release.
"""

import copy
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semidp.errors import SemidpError
from semidp.publish.plan import Plan
from tests.fuzz.test_fuzz import RELEASES, check, place, places

__all__ = ["place"]

pytestmark = pytest.mark.no_schema

VALUES: tuple[Any, ...] = (None, False, "", [], {}, -1, "1e400", "x" * 100_000)
BY_SEX = {"column": "age", "by": [["sex"]], "bounds": [0, 100], "level": "0.95", "mu": 1}
LEVELS = [{"name": "sex", "levels": ["f", "m"]}, {"name": "region", "levels": ["n", "s"]}]
TREE = {"n": ["n0", "n1", "n2"], "s": ["s0", "s1", "s2"]}
PLANS: dict[str, dict[str, Any]] = {
    "table": {
        "invariants": [["sex"], ["region"]],
        "adjacency": "worst-case",
        "where": "age < 90",
        "levels_from_data": True,
        "report_delta": "1e-9",
        "claim": "exact",
        "read_as": {"age": "integer"},
        "table": [
            {
                "features": ["sex", "region"],
                "name": "t",
                "mechanism": "auto",
                "fit": "none",
                "mu": 1,
            }
        ],
    },
    "tables": {
        "invariants": [["sex"]],
        "objective": "total",
        "mu": 1,
        "table": [{"features": ["sex", "region"], "weight": 2}, {"features": ["region"]}],
        "feature": [{**LEVELS[0], "null_level": "u"}, LEVELS[1]],
        "structural_zero": [{"sex": "u", "region": ["n"]}],
    },
    "several records": {
        "invariants": ["sex"],
        "id": "town",
        "most": 90,
        "records": "stays",
        "table": [{"features": ["sex"], "target_error": 50}],
    },
    "bins": {
        "table": [{"features": ["age", "town"], "rho": "1/2"}],
        "feature": [
            {"name": "age", "bins": [0, 18, 65], "null_level": "u"},
            {"name": "town", "nest": ["region", "town"], "tree": TREE, "names": "unique"},
        ],
    },
    "group": {
        "invariants": [["sex"], ["region"]],
        "group": [
            {
                **BY_SEX,
                "statistic": "mean",
                "grid": 100,
                "sampling": True,
                "simultaneous": True,
                "differences": True,
            }
        ],
    },
    "regression": {
        "invariants": [["sex", "region"]],
        "regression": [
            {
                "column": "age",
                "factors": ["sex", "region"],
                "model": "linear",
                "interactions": [["sex", "region"]],
                "coding": "effects",
                "bounds": [0, 100],
                "mu": 1,
            }
        ],
    },
    "quantile": {
        "invariants": [["sex"]],
        "quantile": [
            {
                **BY_SEX,
                "probabilities": ["1/4", "1/2"],
                "step": 1,
                "mechanism": "auto",
                "epsilon": 1,
            }
        ],
    },
    "distribution": {
        "invariants": [["sex"]],
        "distribution": [{**BY_SEX, "step": 1, "probabilities": ["0.5"], "lines": [10]}],
    },
    "odds ratio": {
        "invariants": [["sex"], ["region"]],
        "odds_ratio": [
            {
                "rows": "sex",
                "columns": "region",
                "alternative": "greater",
                "epsilon": 1,
                "level": "0.05",
            }
        ],
        "feature": LEVELS,
    },
}
del PLANS["quantile"]["quantile"][0]["mu"]


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def inputs(document: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each place of a document with each value; of the entries of a list only the last."""
    alike = {
        tuple(0 if isinstance(key, int) else key for key in path): path for path in places(document)
    }
    for path in alike.values():
        yield from ((path, value) for value in VALUES)


@pytest.mark.parametrize("name", PLANS)
def test_every_key_of_a_plan_is_read_or_refused(name: str) -> None:
    codes: Counter[str] = Counter()
    Plan.from_json(PLANS[name])
    for path, value in inputs(PLANS[name]):
        try:
            Plan.from_json(replaced(PLANS[name], path, value))
            codes["read"] += 1
        except SemidpError:
            codes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{path}: {str(value)[:40]!r}") from error
    assert codes["refused"] > codes["read"]


@pytest.mark.long
@pytest.mark.parametrize("name", PLANS)
def test_every_key_of_a_plan_is_rehearsed(place: Path, name: str) -> None:
    words = ["release", "people.csv", "--plan", "shape.json", "--dry-run"]
    (place / "shape.json").write_text(json.dumps(PLANS[name]))
    assert check(words) == 0, "what is damaged was whole"
    for path, value in inputs(PLANS[name]):
        (place / "shape.json").write_text(json.dumps(replaced(PLANS[name], path, value)))
        assert check(words) in (0, 2), path


@pytest.mark.long
@pytest.mark.parametrize("name", RELEASES)
def test_every_key_of_a_release_json(place: Path, name: str) -> None:
    folder = place / "shape"
    shutil.copytree(place / name, folder, dirs_exist_ok=True)
    document = json.loads((folder / "release.json").read_text())
    for path, value in inputs(document):
        if path[0] not in ("files", "versions"):
            (folder / "release.json").write_text(json.dumps(replaced(document, path, value)))
            assert check(["show", "shape"]) in (0, 1, 2), path
    shutil.rmtree(folder)

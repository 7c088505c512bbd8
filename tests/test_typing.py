"""Every Python example of the pages that teach passes mypy --strict in a user's file, and so do the
short forms.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/tutorial.md", "docs/groups.md", "docs/nested.md"]
SHORT_FORMS = """
import semidp
from semidp import Budget, Feature, Margin, Outcome, Plan, Schema, Table
from semidp.publish import GroupRequest, RegressionRequest, TableRequest

score = Outcome("score", 0, 100, steps=100)
sex, age = Feature("sex", ["f", "m"]), Feature("age", bins=[0, 18, "65", 120.0], null_level="unknown")
schema = Schema([sex, Feature("region", ["n", "s"])], [semidp.StructuralZero.from_pattern({"sex": "f", "region": ["n"]})])
table = Table(schema, [[0, 2], [3, 4]])
plan = Plan(requests=[TableRequest(["sex", "region"], Budget.gdp(1))], invariants=["sex"], features=[sex])
other = Plan([TableRequest(["sex"], Budget.zcdp("1/2"))], [Margin("sex"), ["sex", "region"]])
means = Plan([GroupRequest("mean", score, ["sex"], Budget.gdp(1))], invariants=["sex"])
homes = semidp.release(
    {"home": ["1", "2"], "sex": ["f", "m"], "age": [3, 70]},
    semidp.table("unittype", "sex"),
    semidp.table("units:size", "old"),
    units={"home": ["1", "2"], "unittype": ["0", "1"]},
    link="home",
    protect="member",
    least=0,
    most_members=3,
    aggregate={"old": "count_if(age >= 65)"},
    quarters={"unittype": ["1"]},
    levels={"sex": ["f", "m"], "unittype": ["0", "1"], "old": ["0", "1", "2", "3"]},
    share={"units:tables": 2},
    rho=1,
)
persons = homes["unittype-sex"]
lines = Plan([RegressionRequest(score, ["sex"], Budget.gdp(1)), TableRequest(["sex"])], invariants=["sex"])
"""
TWINS = {
    "TableRequest(1, Budget.gdp(1))": "arg-type",
    "Schema([1])": "list-item",
    'Outcome("score", [0], 100, steps=10)': "arg-type",
    "Plan(invariants=1)": "arg-type",
}


def _examples(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def _mypy(folder: Path, files: dict[str, str]) -> str:
    """What mypy prints; the package was checked by ``make lint``, with the same cache."""
    for name, code in files.items():
        (folder / name).write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"),
         "--cache-dir", str(ROOT / ".mypy_cache"), *files],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


def test_examples_and_short_forms_type_check_and_wrong_types_do_not(tmp_path: Path) -> None:
    pages = {page: _examples(page) for page in PAGES}
    assert all(pages.values())
    files = {
        f"{Path(page).stem.lower()}_{number}.py": code
        for page, blocks in pages.items()
        for number, code in enumerate(blocks)
    }
    names = "from semidp import Budget, Outcome, Plan, Schema; from semidp.publish import TableRequest\n"
    wrong = names + "\n".join(TWINS) + "\n"
    printed = _mypy(tmp_path, {**files, "short_forms.py": SHORT_FORMS, "wrong.py": wrong})
    lines = [line for line in printed.splitlines() if ": error:" in line]
    assert not [line for line in lines if not line.startswith("wrong.py")], printed
    for number, (code, kind) in enumerate(TWINS.items(), start=2):
        assert any(
            line.startswith(f"wrong.py:{number}:") and f"[{kind}]" in line for line in lines
        ), code


def test_the_short_forms_run() -> None:
    names: dict[str, object] = {}
    exec(SHORT_FORMS, names)
    assert repr(names["table"]) == "Table(sex: 2 levels, region: 2 levels)"


@pytest.mark.parametrize("code", TWINS)
def test_a_wrong_type_is_refused_at_once_with_a_sentence(code: str) -> None:
    import semidp

    with pytest.raises(semidp.SemidpError, match=r"\w+ \w+ \w+"):
        eval(code, {**vars(semidp), **vars(semidp.publish)})

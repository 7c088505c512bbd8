"""The machine-checked proofs and what is said of them: theorems.txt lists what the files state,
docs/proofs.md names every theorem, and every rule rests on theorems that exist.

Coq is not needed here; `make proofs` runs it.
"""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PROOFS = ROOT / "proofs"
PAGE = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
RULES = ("Reach", "Ball norms", "Exchange norms", "Sums", "Residuals", "Noise", "Small spaces")


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proofs_check", PROOFS / "check.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _theorems() -> dict[str, str]:
    """The file of every listed theorem."""
    lines = (PROOFS / "theorems.txt").read_text(encoding="utf-8").splitlines()
    return {name: file for name, file, _ in (line.split(" | ", 2) for line in lines)}


def _table(header: str) -> list[list[str]]:
    """The rows of the table of docs/proofs.md with this header."""
    rows = PAGE.split(header + "\n", 1)[1].splitlines()[1:]
    table = rows[: next(place for place, row in enumerate(rows) if not row.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def _names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_the_list_of_theorems_is_what_the_files_state(check: ModuleType) -> None:
    lines = (PROOFS / "theorems.txt").read_text(encoding="utf-8").splitlines()
    assert lines == check.list_theorems(PROOFS)
    assert len(lines) > 50


def test_nothing_is_left_unproved(check: ModuleType) -> None:
    assert check.find_gaps(PROOFS) == []


@pytest.mark.parametrize(
    "gap",
    [
        "Admitted.",
        "admit.",
        "Axiom choice : forall x, x = x.",
        "Parameter n : nat.",
        "Unset Guard Checking.",
        "#[bypass_check(guard)] Fixpoint f x := f x.",
    ],
)
def test_a_gap_is_found(check: ModuleType, tmp_path: Path, gap: str) -> None:
    (tmp_path / "Gap.v").write_text(f"(* Words. *)\nTheorem one : True.\n{gap}\n", encoding="utf-8")
    assert [place.split(":")[0] for place in check.find_gaps(tmp_path)] == ["Gap.v, line 3"]


def test_a_theorem_without_words_is_refused(check: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "One.v"
    file.write_text("(* In words. *)\nTheorem one : True.\n", encoding="utf-8")
    assert check.list_theorems(tmp_path) == ["one | One.v | In words."]
    file.write_text("(* In words. *)\n\nTheorem one : True.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="say in words above one what it states"):
        check.list_theorems(tmp_path)


def test_every_rule_names_theorems_that_exist() -> None:
    rows = _table("| rule | what it says | theorems |")
    assert tuple(row[0] for row in rows) == RULES
    for rule, _, cell in rows:
        names = _names(cell)
        assert set(names) <= set(_theorems()), rule
        assert bool(names) != (cell == "no theorem"), rule
    assert [rule for rule, _, cell in rows if cell == "no theorem"] == ["Noise"]


def test_the_page_lists_every_theorem_under_its_file() -> None:
    listed = {
        name: _[1:-1]
        for _, _about, cell in _table("| file | about | theorems |")
        for name in _names(cell)
    }
    assert listed == _theorems()


def test_every_theorem_that_the_page_names_exists() -> None:
    named = {name for name in _names(PAGE) if "_" in name}
    checker = (ROOT / "src/semidp/checker/semidp_check.py").read_text(encoding="utf-8")
    functions = set(re.findall(r"^def (\w+)", checker, re.MULTILINE))
    assert named - functions <= set(_theorems())
    assert len(named) > 50


def test_continuous_integration_checks_the_proofs() -> None:
    assert "make proofs\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(
        r"^proofs: .*##.*\n\t\$\(PYTHON\) proofs/check\.py$", makefile, flags=re.MULTILINE
    )

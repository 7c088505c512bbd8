"""Every rule of the checker names its theorems: those of `proofs`, as docs/proofs.md has them."""

import ast
import re
from pathlib import Path

from tests.checker.the_checker import FILE, check

ROOT = Path(__file__).parents[2]
PROVED_ELSEWHERE = {"pen"}


def rules() -> dict[str, tuple[str, list[str]]]:
    found = {}
    for name, text in check.list_rules().items():
        sentence, theorems = text.split(" | ")
        found[name] = (sentence, theorems.split(", "))
    return found


def test_theorems_of_rules_are_proved() -> None:
    statements = "\n".join(path.read_text("utf-8") for path in (ROOT / "proofs").glob("*.v"))
    proved = set(re.findall(r"^(?:Theorem|Lemma|Corollary) (\w+)", statements, re.MULTILINE))
    named = {theorem for _, theorems in rules().values() for theorem in theorems}
    assert named - proved <= PROVED_ELSEWHERE
    assert len(named & proved) >= 15


def test_the_page_has_every_rule_with_its_theorems() -> None:
    page = (ROOT / "docs" / "proofs.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    for name, (_, theorems) in rules().items():
        (row,) = [row for row in rows if row.startswith(f"| {name} |")]
        for theorem in theorems:
            assert theorem in row, (name, theorem)


def test_rules_that_findings_name_exist() -> None:
    used = set()
    for node in ast.walk(ast.parse(FILE.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and node.value in rules():
            used.add(node.value)
    assert used == set(rules())

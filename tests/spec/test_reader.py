"""The readers that were written from the specification: they find the guarantee that releases state."""

import ast
import contextlib
import io
import json
import re
import shlex
import tokenize
from fractions import Fraction
from pathlib import Path

import pytest

from semidp.cli import run
from tests.golden.example_data import write_files
from tests.golden.golden_outputs import inside
from tests.golden.scenarios import SCENARIOS
from tests.spec.further_reader import prove_further_release
from tests.spec.reader import NotCovered, prove_release

READER = Path(__file__).parent / "reader.py"

FURTHER = {
    "linked files": (
        *(f"linked-{name}/r" for name in ("joint", "member", "top-code", "unit")),
        "parts-linked/r",
    ),
    "distributions": ("distribution/r", "distribution-exchange/r", "quantile-level/r"),
    "others": (
        *("mean-of-exact-bands/r", "missing-private/r", "odds-ratio/r", "regress-two/r"),
        "table-circle/r",
    ),
}
"""The golden releases that 150 lines do not cover: the further reader does."""
QUICK = ("table-mu", "nested-exchange", "several-requests", "linked-member", "odds-ratio")
LONG = [name for name in SCENARIOS if name not in QUICK]
CASES = [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]


COSTS = (
    *(
        "combine-products",
        "linked-joint",
        "linked-top-code",
        "linked-unit",
        "nested",
        "parts-linked",
    ),
    *("parts-product", "product", "product-exchange", "product-nested", "product-pairs"),
    *("table-exchange", "table-plan"),
)
"""Releases of residuals whose cost is found."""


def make_releases(name: str, folder: Path) -> list[Path]:
    """Run a scenario; return the folders of its releases."""
    with inside(folder):
        write_files(Path())
        for line in SCENARIOS[name].split(" ; "):
            arguments = shlex.split(line)
            if arguments[0] == "release" and "--seed" not in arguments:
                arguments += ["--seed", "1"]
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                run(arguments)
    return sorted(path.parent for path in folder.glob("*/release.json"))


def prove(folder: Path, name: str) -> tuple[str, Fraction, Fraction]:
    """What the reader of a release says, and that no other reader is needed where 150 lines do."""
    if any(f"{name}/{folder.name}" in several for several in FURTHER.values()):
        with pytest.raises(NotCovered):
            prove_release(folder)
        return prove_further_release(folder)
    return prove_release(folder)


@pytest.mark.parametrize("name", CASES)
def test_the_readers_get_the_stated_guarantee(name: str, tmp_path: Path) -> None:
    for folder in make_releases(name, tmp_path):
        _, stated, proved = prove(folder, name)
        assert proved == stated


@pytest.mark.parametrize(
    "name",
    ["nested-exchange", *(pytest.param(x, marks=pytest.mark.long) for x in COSTS)],
)
def test_residuals_cost_what_their_precision_allows(name: str, tmp_path: Path) -> None:
    """Rule 6.9: without the stated precision, what is left is the cost itself."""
    folder = next(each for each in make_releases(name, tmp_path) if each.name in "ar")
    path = folder / "release.json"
    text, found = re.subn(r'"precision": "[^"]*"', '"precision": "0"', path.read_text("utf-8"))
    assert found
    path.write_text(text, encoding="utf-8")
    _, stated, cost = prove(folder, name)
    assert (
        stated * (1 - Fraction(1, 2**13 if name == "product-nested" else 2**19)) <= cost <= stated
    )


@pytest.mark.parametrize("name", ["nested-exchange", "linked-member"])
def test_the_readers_notice_less_noise_than_stated(name: str, tmp_path: Path) -> None:
    """The twin: the stated guarantee stays, and the noise becomes a little smaller."""
    (folder,) = make_releases(name, tmp_path)
    document = json.loads((folder / "release.json").read_text("utf-8"))
    entry = (document.get("tables") or document["linked"])[0]
    for part in (entry, entry.get("members", {}), entry.get("units", {})):
        for residual in part.get("residuals", ()):
            residual["sigma2"] = str(Fraction(residual["sigma2"]) * Fraction(999, 1000))
    (folder / "release.json").write_text(json.dumps(document), encoding="utf-8")
    _, stated, proved = prove(folder, name)
    assert proved > stated


def test_the_reader_is_short_and_alone() -> None:
    text = READER.read_text("utf-8")
    tree = ast.parse(text)
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported | modules == {
        "functools",
        "itertools",
        "json",
        "math",
        "collections",
        "fractions",
    }
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            documented |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    passed_over = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
    )
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*passed_over, tokenize.ENDMARKER):
            lines |= set(range(token.start[0], token.end[0] + 1))
    assert len(lines - documented) <= 150

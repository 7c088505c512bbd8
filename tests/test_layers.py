"""A module imports only from rows below its own: the picture in docs/how_it_works.md, executed."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "semidp"
ROWS = [
    {"errors", "progress", "exact", "files"},
    {"geometry"},
    {"tradeoff", "tables"},
    {"noise", "spaces", "engines"},
    {"guarantees", "queries", "fit"},
    {"knorm"},
    {"mechanisms", "accounting"},
    {"grouped", "inference", "plots"},
    {"release"},
    {"report", "audit", "reproduction"},
    {"cli"},
]
ABOVE_ALLOWED = {("release/release.py", "report")}
"""A release draws its own report: imported by the method that does."""
BELOW_ALL = {"_startup", "_version", "data"}
ERRORS_AND_HELPERS = ROWS[0]
PUBLIC = {"accounting", "audit", "grouped", "mechanisms", "noise"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def row(name: str) -> int:
    return next(number for number, names in enumerate(ROWS) if name in names)


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"semidp.{alias.name}" for alias in node.names] if node.module == "semidp" else [node.module]
            found |= set(names)
            assert node.level == 0, f"{path.name}: write imports in full"
    return {name.split(".")[1] for name in found if name.startswith("semidp.")}


MODULES = [path for path in PACKAGE.rglob("*.py") if room(path) not in {"__init__", "__main__", *BELOW_ALL}]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_rows_below_its_own(path: Path) -> None:
    mine = room(path)
    for other in imported_rooms(path) - {mine} - BELOW_ALL:
        if mine in ERRORS_AND_HELPERS and other == "errors":
            continue
        if row(mine) == row("reproduction") and mine == "reproduction":
            continue  # studies use the façade, checked below
        if (path.relative_to(PACKAGE).as_posix(), other) not in ABOVE_ALLOWED:
            assert row(other) < row(mine), f"{path.name} ({mine}) imports {other}"


@pytest.mark.parametrize(("file", "other"), sorted(ABOVE_ALLOWED))
def test_what_is_allowed_above_is_imported_once_inside_a_function(file: str, other: str) -> None:
    tree = ast.parse((PACKAGE / file).read_text())

    def imports(node: ast.AST) -> int:
        found = (part for part in ast.walk(node) if isinstance(part, ast.ImportFrom))
        return sum((part.module or "").startswith(f"semidp.{other}") for part in found)

    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert imports(tree) == 1 == sum(map(imports, functions))


def test_studies_use_public_names_and_draw_with_the_plots() -> None:
    allowed = {"reproduction", "plots", "progress", "errors", "files", *PUBLIC}
    own = {"naive.py", "baselines.py", "__init__.py"}  # what studies compare with is defined here
    for path in (PACKAGE / "reproduction").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.name not in own else ():
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("semidp."):
                assert node.module.split(".")[1] in allowed, f"{path.name} imports {node.module}"


def test_every_room_has_a_row() -> None:
    assert {room(path) for path in MODULES} <= set().union(*ROWS)

"""A module imports only from rows below its own: the picture in docs/how_it_works.md, executed."""

import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import get_origin

import attrs
import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from semidp.cli import run
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.accounting.recorded_queries import QUERIES
from semidp.promise.schema.schema import Table
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.statistics.protocol.statistic import kinds, result_keys

PACKAGE = Path(__file__).parent.parent / "src" / "semidp"
PAGE = (Path(__file__).parent.parent / "docs" / "how_it_works.md").read_text(encoding="utf-8")
FLOORS = re.findall(r"^\| `(\w+)/` \|", PAGE, flags=re.MULTILINE)
"""From the ground up, as the page lists them."""
STATISTICS = PACKAGE / "publish" / "statistics"
KIND_FOLDERS = {path.parent.name for path in STATISTICS.glob("*/kind.py")}
KIND_MODULES = {path.stem for path in STATISTICS.glob("*.py") if "\nKIND = " in path.read_text()}
KIND_PLACES = KIND_FOLDERS | KIND_MODULES
"""Folders and modules of `publish/statistics` that are a statistic."""
BELOW_ALL = {"_startup", "_version", "data", "errors"}
ALONE = {"checker"}
"""The checker shares no code with the rest: `test_the_checker_shares_no_code`."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module, which most tests here walk."""
    return ast.parse(path.read_text())


@pytest.fixture(autouse=True, scope="module")
def _forgets_trees() -> Iterator[None]:
    """Free the trees of all modules after the tests of this file."""
    yield
    parsed.cache_clear()


def floor(path: Path) -> str:
    """The floor of a file: the first folder below the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, without `semidp.`."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path.name}: write imports in full"
            whole = node.module == "semidp"
            found |= {f"semidp.{alias.name}" for alias in node.names} if whole else {node.module}
    return {name.removeprefix("semidp.") for name in found if name.startswith("semidp.")}


def imported_statistics(path: Path) -> set[str]:
    """Folders and modules of `publish/statistics` that a file imports from."""
    parts = [name.split(".") for name in imported(path)]
    return {part[2] for part in parts if part[:2] == ["publish", "statistics"] and len(part) > 2}


MODULES = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if floor(path) not in {"__init__", "__main__", "front", *BELOW_ALL, *ALONE}
]


def test_the_page_lists_every_floor() -> None:
    assert [*FLOORS] == [
        "promise",
        "publish",
        "inference",
        "assess",
        "present",
        "applications",
        "cli",
    ]
    assert {floor(path) for path in MODULES} == set(FLOORS)


def test_nothing_imports_upward() -> None:
    height = {name: number for number, name in enumerate(FLOORS)}
    upward = set()
    for path in MODULES:
        mine = floor(path)
        for module in imported(path):
            other = module.split(".")[0]
            if height.get(other, -1) > height[mine]:
                upward.add((path.relative_to(PACKAGE).as_posix(), other))
    assert upward == set()


def import_cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import each other in a circle, in functions and for types alone included."""
    names = sorted(imports)
    place = {name: number for number, name in enumerate(names)}
    edges = [(place[one], place[two]) for one in names for two in imports[one] if two in place]
    matrix = np.zeros((len(names), len(names)), dtype=bool)
    for one, two in edges:
        matrix[one, two] = one != two
    count, labels = connected_components(matrix, directed=True, connection="strong")
    circles = [[names[at] for at in np.flatnonzero(labels == label)] for label in range(count)]
    return [circle for circle in circles if len(circle) > 1]


def test_no_import_cycle_is_large() -> None:
    imports = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found = imported(path)
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("semidp."):
                room = str(node.module).removeprefix("semidp.")
                found |= {f"{room}.{alias.name}" for alias in node.names}
        imports[name] = found
    assert len(imports) > 200
    assert [circle for circle in import_cycles(imports) if len(circle) > 4] == []


def test_an_import_cycle_would_be_seen() -> None:
    assert import_cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


KNOW_NO_KIND = (
    "promise/accounting",
    "assess",
    "publish/block_run.py",
    "publish/runners.py",
    "publish/recheck.py",
    "publish/recheck_results.py",
    "cli/audit.py",
    "cli/ledger.py",
)
"""What goes through the protocol and the registry, and never by the classes of one statistic."""


@pytest.mark.parametrize("place", [*KNOW_NO_KIND, "publish/statistics/protocol"])
def test_what_serves_every_statistic_imports_none(place: str) -> None:
    assert len(KIND_FOLDERS) >= 4
    assert len(KIND_PLACES) >= 7
    files = [PACKAGE / place] if place.endswith(".py") else sorted((PACKAGE / place).glob("*.py"))
    assert files
    for path in files:
        assert not imported_statistics(path) & KIND_PLACES, f"{path.name} imports a statistic"


def test_a_statistic_imports_no_other() -> None:
    checked = 0
    for place in KIND_PLACES:
        alone = STATISTICS / f"{place}.py"
        for path in [alone] if alone.exists() else (STATISTICS / place).rglob("*.py"):
            assert not imported_statistics(path) & (KIND_PLACES - {place}), (
                f"{place}/{path.name} imports another statistic"
            )
            checked += 1
    assert checked > 20


def test_where_a_docstring_says_something_is_there_is_a_module() -> None:
    rooms = {
        part.removesuffix(".py") for path in MODULES for part in path.relative_to(PACKAGE).parts
    }
    checked = 0
    for path in MODULES:
        said = ast.get_docstring(parsed(path)) or ""
        for place in re.findall(r"\bin `([a-z_][\w.]*)`", said):
            assert set(place.removeprefix("semidp").split(".")) <= {
                "",
                *rooms,
            }, f"{path.name} points at {place}"
            checked += 1
    assert checked > 40


NAMES_BESIDE_MODULES = {"run", "estimate", "open_source", "linked"}
"""Functions, and the beginning of file names, that docstrings of packages name."""


def test_the_docstring_of_a_package_names_modules_that_there_are() -> None:
    top = {path.stem for path in PACKAGE.iterdir()}
    checked = 0
    for path in PACKAGE.rglob("__init__.py"):
        text = ast.get_docstring(parsed(path)) or ""
        modules = {each.stem for each in path.parent.iterdir()} | top | NAMES_BESIDE_MODULES
        named = set(re.findall(r"(?<!`)`([a-z_]+)`(?!`)", text))
        assert named <= modules, f"{path.parent.name} has no {sorted(named - modules)}"
        checked += len(named)
    assert checked > 60


PATTERN = {"forecast", "kind", "published", "recheck", "request", "words"}
"""Files that every folder of a statistic may have."""
FRONTED = {"guarantee", "ledger", "release"}
"""Commands that have the name of the value that they front."""


def same_names(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Modules that share a file name, by that name; files of the pattern and commands left out."""
    homes: dict[str, list[str]] = {}
    for path in paths:
        folder, name = path.parent, path.stem
        in_pattern = folder.parent.name == "statistics" and name in PATTERN
        is_command = folder.name == "cli" and name in FRONTED
        if name != "__init__" and not in_pattern and not is_command:
            homes.setdefault(name, []).append(str(path))
    return {name: files for name, files in homes.items() if len(files) > 1}


def test_no_module_has_the_name_of_another() -> None:
    assert same_names(MODULES) == {}


def test_two_modules_of_one_name_would_be_seen() -> None:
    files = ["cli/release.py", "present/release.py", "inference/areas.py", "present/areas.py"]
    assert set(same_names(map(Path, files))) == {"areas"}


KNOW_NO_STATISTIC = [
    *(PACKAGE / "present" / "report").glob("*.py"),
    *(PACKAGE / "publish" / "results").rglob("*.py"),
    *(PACKAGE / "present" / "explore" / name for name in ("controls.py", "explorer_page.py")),
    *(PACKAGE / "cli" / name for name in ("release.py", "_output.py", "analyze.py", "ledger.py")),
    *(
        PACKAGE / "cli" / name
        for name in ("_command.py", "_options.py", "_program.py", "assess.py")
    ),
    PACKAGE / "present" / "forecasts.py",
    *(PACKAGE / "publish" / name for name in ("pipeline.py", "plan_changes.py", "plotting.py")),
]
"""What goes through requests, forecasts and results, and knows no kind of them."""


@pytest.mark.parametrize("path", KNOW_NO_STATISTIC, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pages_and_commands_know_no_statistic(path: Path) -> None:
    places = KIND_PLACES | {"odds_ratio", "outcomes"}
    assert len(places) == 8
    assert not imported_statistics(path) & places


FOLDERS = {f"semidp.publish.statistics.{place}" for place in KIND_PLACES}


def imported_from_statistics(tree: ast.AST) -> set[str]:
    """Return the names that a module imports from folders of statistics."""
    names = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and ".".join(node.module.split(".")[:4]) in FOLDERS
        ):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def tells_classes(tree: ast.AST) -> set[str]:
    """Return the names in the second argument of every `isinstance`, apart from those that only
    narrow a type.
    """
    narrowing = {id(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert)}
    names = set()
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "isinstance" and id(node) not in narrowing:
            assert isinstance(node, ast.Call)
            names |= {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
    return names


def test_nothing_outside_a_statistic_tells_it_by_its_classes() -> None:
    told = set()
    looked_at = 0
    for path in MODULES:
        file = path.relative_to(PACKAGE).as_posix()
        if file.startswith("publish/statistics/"):
            continue
        tree = parsed(path)
        imported = imported_from_statistics(tree)
        if imported:
            told |= {(file, name) for name in imported & tells_classes(tree)}
            looked_at += 1
    assert told == set()
    assert looked_at >= 5


def test_a_module_that_told_classes_would_be_seen() -> None:
    source = (
        "from semidp.publish.statistics.sums import PublishedGroups as P\nassert isinstance(a, P)\n"
    )
    tree = ast.parse(source)
    assert imported_from_statistics(tree) == {"P"}
    assert tells_classes(tree) == set()
    assert tells_classes(ast.parse(source + "b = isinstance(a, (int, P))")) == {"int", "P"}


RELATIONS = {"Ball", "Exchange", "AdjacencyKind"}


def test_nothing_tells_the_two_adjacencies_by_their_classes() -> None:
    """Both answer what is asked of them, or a caller names an answer for each (`by_kind`)."""
    told = set()
    for path in MODULES:
        names = tells_classes(parsed(path)) & RELATIONS
        told |= {(path.relative_to(PACKAGE).as_posix(), name) for name in names}
    assert told == set()
    assert len(MODULES) > 200


KIND_WORDS = {kind.key for kind in kinds()} | {*result_keys()} | {*QUERIES} | KIND_PLACES
"""What kinds of statistics are called in plans, releases, records and folders."""


def compared_kinds(tree: ast.AST) -> set[str]:
    """Return the words for kinds, and the constants from their folders, that a module compares
    with.
    """
    constants = {name for name in imported_from_statistics(tree) if name.isupper()}
    constants |= named_kinds(tree)
    parts: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts += [node.left, *node.comparators]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.Sub):
            parts += [node.left, node.right]  # sets are compared with & and -
        elif isinstance(node, ast.MatchValue):
            parts.append(node.value)
    words = set()
    for node in (inner for part in parts for inner in ast.walk(part)):
        if isinstance(node, ast.Constant) and node.value in KIND_WORDS:
            words.add(node.value)
        if isinstance(node, ast.Name) and node.id in constants:
            words.add(node.id)
    return words


def named_kinds(tree: ast.AST) -> set[str]:
    """Return the constants of a module that hold words for kinds, and nothing else."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            words = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            if words and KIND_WORDS.issuperset(words):
                names.add(node.targets[0].id)
    return names


def is_a_kinds_own(path: Path) -> bool:
    """Whether a module is one kind of statistic, or in its folder."""
    alone = path.parent == STATISTICS and path.stem in KIND_MODULES
    return alone or any((folder / "kind.py").exists() for folder in path.parents)


HOMONYMS = {
    "promise/mechanisms/canonical_cell.py": {"group"},
    "publish/results/published_table.py": {"UNNAMED"},
    "publish/sources/readings.py": {"ANSWERED"},
}
"""Words that are spelled like a kind and mean no kind: by how much a curve is grouped, the name of a
file, and how a column is read."""


def test_nothing_outside_a_statistic_compares_with_its_kind() -> None:
    modules = [path for path in MODULES if not is_a_kinds_own(path)]
    told = {str(path.relative_to(PACKAGE)): compared_kinds(parsed(path)) for path in modules}
    assert {file: words for file, words in told.items() if words} == HOMONYMS
    assert len(modules) > 150
    assert {"linked", "table", "groups", "quantiles", "sums", "odds_ratio"} <= KIND_WORDS


def test_a_module_that_compared_kinds_would_be_seen() -> None:
    for source in (
        'if request.key != "linked": pass',
        'found = [each for each in results if each.listed_in in ("groups", "answers")]',
        'match request.key:\n    case "quantile":\n        pass',
        "from semidp.publish.statistics.tables.published import ALONE\nalone = key == ALONE",
        'CORRECTED = frozenset({"quantiles", "table"})\nold = bool(names & CORRECTED)',
        'LINKED = "linked"\nif request.key == LINKED: pass',
    ):
        assert compared_kinds(ast.parse(source)), source
    assert not compared_kinds(ast.parse('kept = request.key == request.answered_by or a == "sex"'))


def charges(tree: ast.AST) -> int:
    """Return how often a module calls `charge` of something."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sum(isinstance(call, ast.Attribute) and call.attr == "charge" for call in calls)


def test_the_pipeline_alone_charges_a_ledger() -> None:
    charging = {str(path.relative_to(PACKAGE)): charges(parsed(path)) for path in MODULES}
    assert {file: count for file, count in charging.items() if count} == {"publish/pipeline.py": 1}
    assert charges(ast.parse("def test():\n    ledger.charge(guarantee, label)\n")) == 1


def test_applications_use_the_doors_of_floors() -> None:
    """A name of `semidp` itself, of a floor, or an error; or another study."""
    studies = sorted((PACKAGE / "applications").glob("*.py"))
    assert len(studies) > 6
    for path in studies:
        inside = {name for name in imported(path) if "." in name}
        deep = {name for name in inside if not name.startswith("applications.")}
        assert not deep, f"{path.name} imports {deep}"


def test_benchmarks_import_what_there_is() -> None:
    """Benchmarks run seldom, and nothing else notices a name that was changed."""
    checked = 0
    for path in (PACKAGE.parent.parent / "benchmarks").rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("semidp"):
                continue
            assert node.module is not None
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            # A module of a package is imported by its name, too.
            for name in missing:
                importlib.import_module(f"{node.module}.{name}")
            checked += len(node.names)
    assert checked > 50


def test_no_class_has_the_name_of_another() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(PACKAGE)))
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_values_that_hold_arrays_are_not_compared_by_their_fields() -> None:
    """Arrays have no one truth: such an == is an error, from attrs 24.1 on also with itself."""
    checked = 0
    for path in MODULES:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] in ("__init__", "__main__"):
            continue
        module = importlib.import_module(".".join(parts))
        for value in vars(module).values():
            if not isinstance(value, type) or value.__module__ != module.__name__:
                continue
            fields = attrs.fields(value) if attrs.has(value) else ()
            if any(field.eq and get_origin(field.type) is np.ndarray for field in fields):
                # A table compares its counts as a whole.
                assert value.__eq__ in (object.__eq__, Table.__eq__), value
                checked += 1
    assert checked > 100


def asserted_there(tree: ast.AST) -> list[ast.Assert]:
    """Return every assertion that something is not None."""
    asserted = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
            continue
        against = node.test.comparators[0]
        if isinstance(against, ast.Constant) and against.value is None:
            asserted.append(node)
    return asserted


def test_whatever_is_asserted_to_be_there_says_why() -> None:
    """Types say what is there; what they cannot say has a reason, and is seldom."""
    every = []
    for path in MODULES:
        asserted = asserted_there(parsed(path))
        unexplained = [node.lineno for node in asserted if node.msg is None]
        assert not unexplained, f"{path.name}: lines {unexplained}"
        every += asserted
    assert len(every) <= 40


def test_an_assertion_that_says_nothing_would_be_seen() -> None:
    tree = ast.parse("assert a is not None\nassert b is not None, 'why'\nassert c == 1\n")
    assert [node.msg is None for node in asserted_there(tree)] == [True, False]


NOUNS = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| `([\w/]+)` \|$", PAGE, flags=re.MULTILINE)


def test_the_page_is_one_page() -> None:
    assert len(PAGE.splitlines()) <= 90


def test_a_visitor_needs_at_most_twenty_nouns() -> None:
    assert 10 <= sum(names.count(",") + 1 for names, _ in NOUNS) <= 20


@pytest.mark.parametrize(("names", "home"), NOUNS, ids=lambda part: part)
def test_every_noun_is_in_its_folder(names: str, home: str) -> None:
    files = [PACKAGE / f"{home}.py"] if (PACKAGE / f"{home}.py").exists() else []
    source = "".join(path.read_text() for path in files or (PACKAGE / home).rglob("*.py"))
    for name in re.findall(r"\w+", names):
        assert re.search(rf"^class {name}\b", source, flags=re.MULTILINE), (
            f"{name} is not defined in {home}"
        )


WALK = re.findall(r"^\d+\. `([\w.]+)`", PAGE, flags=re.MULTILINE)


def function_at(address: str) -> CodeType:
    """Return the code of a function by its address below `semidp`, through whatever wraps it."""
    *path, last = address.split(".")
    modules = [".".join(["semidp", *path[:length]]) for length in range(len(path), 0, -1)]
    name = next(name for name in modules if name in sys.modules)
    inside = [*path[name.count(".") :], last]
    found = functools.reduce(getattr, inside, sys.modules[name])
    code: CodeType = getattr(found, "__wrapped__", found).__code__
    assert Path(code.co_filename).is_relative_to(PACKAGE / path[0]) or path[0] == "files"
    return code


def test_the_walk_is_what_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("sex,region\n" + "f,n\nm,s\nm,n\n" * 4)
    Ledger.create("privacy.json", Budget.gdp(2))
    command = re.search(r"^`semidp (release [^`]+)`", PAGE, flags=re.MULTILINE)
    assert command
    assert 10 <= len(WALK) <= 15
    hops = {function_at(address): address for address in WALK}
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in hops:
            seen.setdefault(hops[frame.f_code])

    sys.setprofile(note)
    try:
        assert run(command[1].split()) == 0
    finally:
        sys.setprofile(None)
    assert list(seen) == WALK


def test_the_checker_shares_no_code() -> None:
    """It imports the standard library alone, and nothing imports it."""
    (checker,) = (PACKAGE / "checker").glob("*.py")
    assert imported_modules(checker) <= set(sys.stdlib_module_names)
    for path in PACKAGE.rglob("*.py"):
        assert not imported_modules(path) & {"semidp.checker", "semidp_check"}, path


def imported_modules(path: Path) -> set[str]:
    """The first name of foreign modules, and the room of our own."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "semidp":
            found |= {f"semidp.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {".".join(name.split(".")[: 1 + name.startswith("semidp.")]) for name in found}


def test_options_are_named_by_the_command_line_alone() -> None:
    """A message marks its settings, as ⟨most⟩; a whole command may stand anywhere. The table of
    settings says how they are spelled.
    """
    read = 0
    for path in PACKAGE.rglob("*.py"):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] in ("cli", "checker") or relative == Path("publish/settings.py"):
            continue
        for text in written_texts(parsed(path)):
            options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
            assert not options or "semidp " in text, f"{path.name} names {options}: {text}"
            read += 1
    assert read > 5_000


def written_texts(tree: ast.Module) -> Iterator[str]:
    """Yield every text of a module, docstrings left out; the parts of an f-string are one."""
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            inside.add(node.value)  # a docstring
        if isinstance(node, ast.JoinedStr):
            inside |= {*node.values}
            texts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            yield "…".join(map(str, texts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.value


CLAIMED = {"norms", "naive", "calibrate", "tradeoff", "guarantee", "scale", "noise", "measure"}
"""What of a query space or a mechanism a claim follows from."""


def list_claiming_classes() -> dict[str, set[str]]:
    """Query spaces and mechanisms outside `promise`, with what each says of a claim itself."""
    bases: dict[str, set[str]] = {}
    classes: dict[str, tuple[Path, ast.ClassDef]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
                classes[node.name] = path, node
    below = {"QuerySpace", "Mechanism"}
    for _ in range(10):
        below |= {name for name, parents in bases.items() if parents & below}
    assert len(below) > 30
    claiming = {}
    for name in below:
        path, node = classes[name]
        defined = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        if floor(path) != "promise":
            claiming[f"{floor(path)}.{name}"] = defined & CLAIMED
    return claiming


def test_norms_scales_and_curves_of_claims_are_computed_in_promise() -> None:
    claiming = list_claiming_classes()
    said = {name: words for name, words in claiming.items() if words}
    # The studies of the paper state the noise that ignores the exact totals, to compare with.
    studies = {name for name in said if name.startswith("applications.Naive")}
    assert len(studies) >= 4, "a class that states a claim of its own is seen"
    assert {name: words for name, words in said.items() if name not in studies} == {}

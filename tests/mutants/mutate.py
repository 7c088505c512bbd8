"""Mutation testing of the numbers that a promise depends on: ``make mutants``.

Each arithmetic or comparison operator inside the classes and functions of `SUBJECTS` is replaced by
another one, alone, and the tests that execute its line are run, the quickest first. A mutant is
killed if one fails. Survivors must be listed in ``survivors.json`` with a reason: that the change
makes no difference, or none that is unsafe.

``python -m tests.mutants.mutate [SUBJECT ...] [--every N]`` tries some. Tests are collected once. A
mutant lives in a fork of this process, in which the code of one function is replaced.
"""

import argparse
import ast
import gc
import itertools
import json
import os
import pickle
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROMISE = ROOT / "src" / "semidp" / "promise"
REASONS = Path(__file__).with_name("survivors.json")
SECONDS = 60  # a mutant that runs longer is stuck, which a test notices as well
MOST_TESTS = 80  # for one mutant
LONGEST_TEST = 10  # seconds; longer ones are not used

# Classes and functions, wherever they are defined.
SUBJECTS: dict[str, tuple[str, ...]] = {
    "conversions": ("Budget", "Gaussian", "ZCDP", "Laplace", "pure_to_gdp", "approximate_group"),
    "scales": (
        *("NormalNoise", "ConcentratedNoise", "GaussianNoise", "DiscreteGaussianMechanism"),
        *("RoundedGaussianMechanism", "LatticeGaussianMechanism", "PureMechanism", "L2Mechanism"),
        *("LaplaceMechanism", "ExponentialMechanism", "rho_within", "mu_within", "law_within"),
        *("ResidualMechanism", "LinkedNoise", "CanonicalMechanism", "precision_shares"),
    ),
    "norms": (
        *("SemiAdjacency", "semi_adjacency", "semi_adjacency_bound", "exchange_bound", "Reach"),
        *("TableNorms", "find_norms", "Norms", "certified_norms", "ExchangeTable", "SumSpace"),
        *("AnsweredSpace", "DistributionSpace", "RankSpace", "MomentSpace"),
    ),
    "costs": ("BallCosts", "ExchangeCosts", "SumOfCosts", "JointBound", "MemberCosts", "UnitCosts"),
    "charges": (
        *("Ledger", "Charge", "Account", "fits", "compose_releases", "Series", "PeriodCost"),
        *("SeriesTotal", "SeriesAccount"),
    ),
}
# Where tests are looked for; those that execute a line are chosen among them.
TESTS: dict[str, tuple[str, ...]] = {
    "conversions": (
        *("src/semidp/promise/tradeoff", "tests/laws/test_budgets.py", "tests/laws/test_claims.py"),
        *("tests/laws/test_tradeoff.py", "tests/test_accounting.py"),
        "tests/laws/test_exact_curves.py",
    ),
    "scales": (
        *("src/semidp/promise/mechanisms", "tests/mechanisms", "tests/twins/test_guard.py"),
        *("tests/products/test_charges.py", "tests/products/test_guarantee.py"),
        *("tests/products/test_one_table.py", "tests/grouped/test_quantile_choice.py"),
    ),
    "norms": ("src/semidp/promise/sensitivity", "src/semidp/promise/spaces", "tests/laws"),
    "costs": (
        *("src/semidp/promise/sensitivity", "tests/laws/test_exchange_costs.py", "tests/products"),
        *("tests/laws/test_closed_forms.py", "tests/linked", "tests/twins/test_guard.py"),
    ),
    "charges": (
        *("src/semidp/promise/accounting", "tests/test_ledger.py", "tests/test_accounting.py"),
        *("tests/test_ledger_rebasing.py", "tests/series", "tests/test_adaptive_budgets.py"),
        *("tests/laws/test_charged_numbers.py", "tests/partitions/test_lifecycle.py"),
    ),
}
SWAPS: dict[type[ast.AST], tuple[str, type[ast.AST], str]] = {
    ast.Add: ("+", ast.Sub, "-"),
    ast.Sub: ("-", ast.Add, "+"),
    ast.Mult: ("*", ast.Div, "/"),
    ast.Div: ("/", ast.Mult, "*"),
    ast.FloorDiv: ("//", ast.Mult, "*"),
    ast.Pow: ("**", ast.Mult, "*"),
    ast.Lt: ("<", ast.LtE, "<="),
    ast.LtE: ("<=", ast.Lt, "<"),
    ast.Gt: (">", ast.GtE, ">="),
    ast.GtE: (">=", ast.Gt, ">"),
    ast.Eq: ("==", ast.NotEq, "!="),
    ast.NotEq: ("!=", ast.Eq, "=="),
}
Line = tuple[str, int]


@dataclass(frozen=True)
class Mutant:
    """One operator that is replaced."""

    definition: str
    file: Path
    number: int  # among the operators of the file
    function: tuple[str, int]  # its name and first line
    lines: range
    text: str
    change: str

    @property
    def key(self) -> str:
        """What it is listed by: files and lines may move, the text and the change may not."""
        return f"{self.definition}: {self.text}  [{self.change}]"


def list_mutants(names: Sequence[str]) -> list[Mutant]:
    """Return every mutant inside some definitions, in the order of the files."""
    mutants, defined = [], set()
    for file in sorted(PROMISE.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        tree, lines = ast.parse(source), source.splitlines()
        owners: dict[int, str] = {}
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in names:
                defined.add(node.name)
                owners |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), node.name)
        functions = list(_list_functions(tree)) if owners else []
        for number, (node, operator) in enumerate(_operators(tree) if owners else ()):
            place = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            inside = [each for each in functions if place[0] in each[1]]
            if node.lineno in owners and inside:
                name, _, first = inside[0]
                old, _, new = SWAPS[type(operator)]
                text, change = lines[node.lineno - 1].strip(), f"{old} to {new}"
                owner = owners[node.lineno]
                mutants.append(Mutant(owner, file, number, (name, first), place, text, change))
    if missing := set(names) - defined:
        raise SystemExit(f"nothing in promise/ defines {', '.join(sorted(missing))}")
    return mutants


def _list_functions(tree: ast.Module) -> Iterator[tuple[str, range, int]]:
    """Yield the functions of a module and the methods of its classes: name, lines of the body, and
    the first line of their code.
    """
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    scopes: list[ast.Module | ast.ClassDef] = [tree, *classes]
    for scope in scopes:
        for node in scope.body:
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                prefix = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
                body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
                yield prefix + node.name, body, first


def mutate_source(source: str, number: int) -> ast.Module:
    """Return a module with one operator replaced."""
    tree = ast.parse(source)
    node, operator = [*_operators(tree)][number]
    other = SWAPS[type(operator)][1]()
    if isinstance(node, ast.Compare):
        node.ops = [other if each is operator else each for each in node.ops]  # type: ignore[misc]
    else:
        node.op = other
    return ast.fix_missing_locations(tree)


def _operators(tree: ast.Module) -> Iterator[tuple[Any, ast.AST]]:
    """Yield the expressions with an operator that is replaced, and the operator; types have none."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
            yield node, node.op
        elif isinstance(node, ast.Compare):
            yield from ((node, each) for each in node.ops if type(each) in SWAPS)


def replace_code(mutant: Mutant) -> None:
    """Give the function of a mutant its mutated code, in this process."""
    tree = mutate_source(mutant.file.read_text(encoding="utf-8"), mutant.number)
    pending = [compile(tree, str(mutant.file), "exec")]
    codes: dict[tuple[str, int], CodeType] = {}
    while pending:
        code = pending.pop()
        codes[code.co_qualname, code.co_firstlineno] = code
        pending += [each for each in code.co_consts if isinstance(each, CodeType)]
    replaced = 0
    gc.unfreeze()  # the tests may have frozen what is loaded, which is not listed then
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            old = each.__code__
            name = (old.co_qualname, old.co_firstlineno)
            if old.co_filename == str(mutant.file) and name == mutant.function:
                each.__code__ = codes[mutant.function]
                replaced += 1
    if not replaced:
        raise LookupError(f"no function {mutant.function[0]} is loaded")


class Session:
    """A plugin of pytest that runs the collected tests for each mutant instead of once."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.mutants = mutants
        self.ends: list[tuple[Mutant, str]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        files = {str(mutant.file) for mutant in self.mutants}
        print(f"{len(session.items)} tests, {len(self.mutants)} mutants", flush=True)
        tests = record_tests(session.items, files)
        for mutant in self.mutants:
            numbers: set[int] = set()
            for line in mutant.lines:
                numbers |= set(tests.get((str(mutant.file), line), {}))
            seconds = {k: tests[str(mutant.file), 0][k] for k in numbers}
            quickest = sorted(numbers, key=lambda k: seconds[k])[:MOST_TESTS]
            end = run_mutant(mutant, [session.items[k] for k in quickest])
            self.ends.append((mutant, end))
            if end != "killed":
                print(f"{end} ({len(quickest)} tests): {mutant.key}", flush=True)
        return True


def record_tests(items: Sequence[Any], files: set[str]) -> dict[Line, dict[int, float]]:
    """Run all tests once, in a fork. Return for every line of the files the numbers of the tests
    that pass and execute it; for line 0 how long each test took.
    """
    with tempfile.NamedTemporaryFile() as place:
        child = os.fork()
        if child == 0:
            found: dict[Line, dict[int, float]] = defaultdict(dict)
            signal.signal(signal.SIGALRM, _stop)
            for number, item in enumerate(items):
                lines, started = set[Line](), time.monotonic()
                sys.settrace(lambda frame, *_, lines=lines: _trace(frame, files, lines))
                signal.alarm(LONGEST_TEST)
                is_passed = run_test(item)
                signal.alarm(0)
                sys.settrace(None)
                seconds = time.monotonic() - started
                for line in lines if is_passed else ():
                    found[line][number] = seconds
                    found[line[0], 0][number] = seconds
            Path(place.name).write_bytes(pickle.dumps(dict(found)))
            os._exit(0)
        os.waitpid(child, 0)
        recorded: dict[Line, dict[int, float]] = pickle.loads(Path(place.name).read_bytes())
    return recorded


def _stop(*_: Any) -> None:
    raise TimeoutError("the test takes too long to be run for mutants")


def _trace(frame: FrameType, files: set[str], lines: set[Line]) -> Any:
    """Note the lines of a frame, if its file is one of ours."""
    file = frame.f_code.co_filename
    if file not in files:
        return None

    def note(frame: FrameType, *_: Any) -> Any:
        lines.add((file, frame.f_lineno))
        return note

    return note


def run_test(item: Any) -> bool:
    """Run one test with its fixtures; return whether it passed."""
    from _pytest.runner import runtestprotocol

    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
    except KeyboardInterrupt:  # what DuckDB makes of the alarm of a test that takes too long
        return False
    return not any(report.failed for report in reports)


def run_mutant(mutant: Mutant, items: Sequence[Any]) -> str:
    """Run tests against a mutant in a fork; return how it ended."""
    if not items:
        return "executed by no test"
    child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            replace_code(mutant)
            code = 0 if all(map(run_test, items)) else 1
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 2:
        return "not tried"
    return "survived" if status == 0 else "killed"


def main() -> int:
    """Try the mutants of some subjects, and print the survivors without a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subjects", nargs="*", help=f"default: all of {', '.join(SUBJECTS)}")
    parser.add_argument("--every", type=int, default=1, help="try one mutant in so many")
    options = parser.parse_args()
    subjects = options.subjects or [*SUBJECTS]
    names = itertools.chain(*(SUBJECTS[subject] for subject in subjects))
    session = Session(list_mutants([*names])[:: options.every])
    tests = dict.fromkeys(itertools.chain(*(TESTS[subject] for subject in subjects)))
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "(not services and not long) or mutants",
    ]
    pytest.main([*words, "--doctest-modules", *(str(ROOT / each) for each in tests)], [session])
    reasons: dict[str, str] = json.loads(REASONS.read_text(encoding="utf-8"))
    unexplained = [m for m, end in session.ends if end != "killed" and m.key not in reasons]
    ended = Counter(end for _, end in session.ends)
    print(f"{ended.total()} mutants: {dict(ended)}; without a reason: {len(unexplained)}")
    return 1 if unexplained or not session.ends else 0


if __name__ == "__main__":
    sys.exit(main())

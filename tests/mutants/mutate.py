"""Mutation testing of the numbers that a promise depends on: ``make mutants``.

Each arithmetic or comparison operator of the modules in `TARGETS` is replaced by another one, alone,
and the quickest tests that should notice are run. A mutant is killed if they fail. Survivors must be
listed in ``survivors.json`` with a reason: that the change makes no difference, or none that is
unsafe.

``python -m tests.mutants.mutate [MODULE ...]`` tries some modules. A mutant lives only in the memory
of the process that tests it.
"""

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
REASONS = Path(__file__).with_name("survivors.json")
SECONDS = 120  # a mutant that runs longer is stuck, which a test notices as well

TARGETS: dict[str, tuple[str, ...]] = {
    "semidp.promise.tradeoff.budget": (
        "src/semidp/promise/tradeoff/budget.py",
        "tests/test_accounting.py",
        "tests/laws/test_tradeoff.py",
        "tests/laws/test_budgets.py",
        "tests/laws/test_claims.py",
        "tests/release/test_plan.py",
        "tests/mechanisms/test_edges.py",
    ),
    "semidp.promise.mechanisms.additive": (
        "src/semidp/promise/mechanisms/additive.py",
        "tests/mechanisms/test_edges.py",
        "tests/mechanisms/test_privacy_loss.py",
        "tests/mechanisms/test_errors.py",
        "tests/mechanisms/test_half_widths.py",
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


@dataclass(frozen=True)
class Mutant:
    """One operator of a module that is replaced."""

    module: str
    number: int  # among the operators of the module
    line: int
    text: str
    change: str

    @property
    def key(self) -> str:
        """What it is listed by: lines may move, their text and the change may not."""
        return f"{self.module}: {self.text}  [{self.change}]"


def list_mutants(module: str) -> list[Mutant]:
    """Return every mutant of a module."""
    source = find_source(module).read_text(encoding="utf-8")
    lines = source.splitlines()
    found = []
    for number, (node, operator) in enumerate(_operators(ast.parse(source))):
        old, _, new = SWAPS[type(operator)]
        line = node.lineno
        found.append(Mutant(module, number, line, lines[line - 1].strip(), f"{old} to {new}"))
    return found


def find_source(module: str) -> Path:
    return SOURCES / Path(*module.split(".")).with_suffix(".py")


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


class MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import of one module in its mutated form."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.mutant.module:
            return None
        return importlib.util.spec_from_file_location(name, find_source(name), loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        place = find_source(self.mutant.module)
        tree = mutate_source(place.read_text(encoding="utf-8"), self.mutant.number)
        exec(compile(tree, str(place), "exec"), module.__dict__)


def run_tests(tests: Sequence[str], mutant: Mutant | None) -> str:
    """Run tests in a fork of this process, which has imported nothing of semidp; return how they
    ended.
    """
    child = os.fork()
    if child == 0:
        code = 3
        try:
            signal.alarm(SECONDS)
            if mutant is not None:
                sys.meta_path.insert(0, MutantFinder(mutant))
            code = _run_pytest(tests)
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return "survived"
    return "stuck" if status == -signal.SIGALRM else "killed"


def _run_pytest(tests: Sequence[str]) -> int:
    import pytest

    words = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not services and not long"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(
            pytest.main([*words, "--doctest-modules", *(str(ROOT / each) for each in tests)])
        )


def main() -> int:
    """Try the mutants of some modules, and print the survivors without a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="default: all targets")
    wanted = parser.parse_args().modules or [*TARGETS]
    import scipy.optimize
    import scipy.stats  # noqa: F401

    reasons: dict[str, str] = json.loads(REASONS.read_text(encoding="utf-8"))
    unexplained = []
    for module in wanted:
        tests = TARGETS[module]
        if run_tests(tests, None) != "survived":
            print(f"{module}: its tests fail without any mutant")
            return 2
        ended: Counter[str] = Counter()
        started = time.monotonic()
        for mutant in list_mutants(module):
            end = run_tests(tests, mutant)
            if end == "survived" and mutant.key in reasons:
                end = "survived for a reason"
            elif end == "survived":
                unexplained.append(mutant)
            ended[end] += 1
        seconds = time.monotonic() - started
        print(f"{module}: {ended.total()} mutants, {dict(ended)}, {seconds:.0f} s", flush=True)
    for mutant in unexplained:
        print(f"SURVIVED line {mutant.line} of {mutant.key}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())

"""Mutation testing of the numbers that a promise depends on: ``make mutants``.

Each arithmetic or comparison operator inside the classes and functions of `SUBJECTS` is replaced by
another one, alone, and the tests that execute its line are run, the quickest first. A mutant is
killed if one fails. Survivors must be listed in ``survivors.json`` with a reason: that the change
makes no difference, or none that is unsafe.

``python -m tests.mutants.mutate [SUBJECT ...]`` tries some. Tests are collected once. A mutant lives
in a fork of this process, in which the code of one function is replaced.

With ``--keep FOLDER`` a long run can be cut into pieces (``--minutes 14``): the folder remembers
which tests execute which lines, and how each mutant ended. ``--again`` tries those anew that were
not killed, with ``--tests PATH`` on other tests than usual. What is remembered is dropped where the
source of a function has changed since.
"""

import argparse
import ast
import functools
import gc
import hashlib
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
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
PROMISE = ROOT / "src" / "semidp" / "promise"
REASONS = Path(__file__).with_name("survivors.json")
# All seconds are of the processor, so that a busy machine changes nothing.
MOST_TESTS = 100  # for one mutant
MOST_SECONDS = 30  # of its tests, together
LONGEST_TEST = 8  # longer ones are not used
SLOWER = 5  # a mutant whose tests run so many times as long, and 20 seconds more, is stuck

# Classes and functions, wherever they are defined.
SUBJECTS: dict[str, tuple[str, ...]] = {
    "conversions": ("Budget", "Gaussian", "ZCDP", "Laplace", "pure_to_gdp", "approximate_group"),
    "scales": (
        *("NormalNoise", "ConcentratedNoise", "GaussianNoise", "DiscreteGaussianMechanism"),
        *("RoundedGaussianMechanism", "LatticeGaussianMechanism", "PureMechanism", "L2Mechanism"),
        *("LaplaceMechanism", "ExponentialMechanism", "rho_within", "mu_within", "law_within"),
        *("ResidualNoise", "LinkedNoise", "CanonicalMechanism"),
        *("_scale_to_precision", "_spent", "_bound_joint_cost", "_cost", "_coarse"),
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
        *("tests/products", "tests/noise", "tests/grouped/test_quantile_choice.py"),
        *("tests/grouped/test_quantiles.py", "tests/grouped/test_missing_outcomes.py"),
        *("tests/grouped/test_rank_norms.py", "tests/grouped/test_distribution_norms.py"),
        *("tests/audit/test_rank_pairs.py", "tests/audit/test_energy.py", "tests/test_ledger.py"),
        *("tests/inference/test_odds_ratio_request.py", "tests/inference/test_canonical.py"),
        *("tests/linked/test_promises.py", "tests/linked/test_whole_numbers.py"),
        *("tests/linked/test_parts.py", "tests/linked/test_unit_promise.py"),
    ),
    "norms": (
        *("src/semidp/promise/sensitivity", "src/semidp/promise/spaces", "tests/laws"),
        *("tests/grouped/test_answered.py", "tests/grouped/test_missing_outcomes.py"),
        *("tests/grouped/test_routes.py", "tests/grouped/test_rank_norms.py"),
        *("tests/grouped/test_distribution_norms.py", "tests/grouped/test_sensitivity.py"),
        *("tests/grouped/test_exchange.py", "tests/grouped/test_published_outcomes.py"),
        *("tests/grouped/test_exact_answers.py", "tests/linked/test_unit_promise.py"),
        *("tests/grouped/test_quantiles.py", "tests/grouped/test_intervals.py"),
        *("tests/test_several_records.py", "tests/linked/test_unit_statistics.py"),
        *("tests/spec/test_vectors.py", "tests/grouped/test_regression.py"),
    ),
    "costs": (
        *("src/semidp/promise/sensitivity", "tests/laws/test_exchange_costs.py", "tests/products"),
        *("tests/laws/test_closed_forms.py", "tests/linked", "tests/twins/test_guard.py"),
        *("tests/laws/test_exchange_at_mixed_depths.py", "tests/test_several_records.py"),
    ),
    "charges": (
        *("src/semidp/promise/accounting", "tests/test_ledger.py", "tests/test_accounting.py"),
        *("tests/test_ledger_rebasing.py", "tests/series", "tests/test_adaptive_budgets.py"),
        *("tests/laws/test_charged_numbers.py", "tests/partitions/test_lifecycle.py"),
        *("tests/grouped/test_ledger.py", "tests/test_accounting_events.py"),
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


@frozen
class Mutant:
    """One operator that is replaced."""

    definition: str
    file: Path
    number: int  # among the operators of the file
    function: tuple[str, int]  # its name and first line
    body: range
    lines: range
    text: str
    change: str
    mark: str  # a hash of the function, and the number of the mutant in it

    @property
    def key(self) -> str:
        """What it is listed by: files and lines may move, the text and the change may not."""
        return f"{self.definition}: {self.text}  [{self.change}]"


def list_mutants(names: Sequence[str]) -> list[Mutant]:
    """Return every mutant inside some definitions, in the order of the files."""
    mutants, defined = [], set()
    counts = Counter[str]()
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
                name, body, first = inside[0]
                source_of_function = "\n".join(lines[first - 1 : body[-1]])
                digest = hashlib.sha256(f"{name} {source_of_function}".encode()).hexdigest()[:16]
                counts[digest] += 1
                old, _, new = SWAPS[type(operator)]
                text, change = lines[node.lineno - 1].strip(), f"{old} to {new}"
                owner, mark = owners[node.lineno], f"{digest}-{counts[digest]}"
                mutant = Mutant(owner, file, number, (name, first), body, place, text, change, mark)
                mutants.append(mutant)
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

    def __init__(
        self, mutants: Sequence[Mutant], folder: Path, minutes: float, seconds: float
    ) -> None:
        self.mutants = mutants
        self.pending = mutants
        self.folder = folder
        self.deadline = time.monotonic() + 60 * minutes
        self.seconds = seconds
        self.ends_file = folder / "ends.json"

    def load_ends(self) -> dict[str, str]:
        """Return how mutants ended so far, by their marks."""
        ends: dict[str, str] = {}
        if self.ends_file.exists():
            ends = json.loads(self.ends_file.read_text(encoding="utf-8"))
        return ends

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        print(f"{len(session.items)} tests, {len(self.pending)} mutants", flush=True)
        items = {item.nodeid: item for item in session.items}
        tests = self.load_tests(items)
        for mutant in self.pending:
            if not tests or time.monotonic() > self.deadline:
                print("the time is over: call again with the same folder", flush=True)
                return True
            seconds: dict[str, float] = {}
            for line in mutant.lines:
                seconds |= tests.get((str(mutant.file), line), {})
            chosen = choose_tests(seconds, self.seconds)
            stuck_after = 20 + SLOWER * sum(map(seconds.__getitem__, chosen))
            end = run_mutant(mutant, [items[each] for each in chosen], stuck_after)
            # another process may try other mutants at the same time
            written = json.dumps(self.load_ends() | {mutant.mark: end}, indent=0)
            self.ends_file.write_text(written, encoding="utf-8")
            if end != "killed":
                print(f"{end} ({len(chosen)} tests): {mutant.key}", flush=True)
        return True

    def load_tests(self, items: dict[str, Any]) -> "Recorded":
        """Return the tests of every line, recorded now or before in this folder: by the tests, and
        by the sources of all mutants.
        """
        functions = {(str(m.file), m.function, m.body, m.mark[:16]) for m in self.mutants}
        named = json.dumps([sorted(items), sorted(map(str, functions))])
        place = self.folder / f"tests-{hashlib.sha256(named.encode()).hexdigest()[:12]}.pickle"
        if not place.exists():
            bodies = {(file, name): body for file, name, body, _ in functions}
            record_tests(items, bodies, place, self.deadline)
        return load_recorded(place) if place.exists() else {}


Recorded = dict[Line, dict[str, float]]
"""For every line the tests that pass and execute it, with their seconds."""


def choose_tests(seconds: dict[str, float], most: float) -> list[str]:
    """Return the tests for a mutant, the quickest first: but one case of every test before others
    of the same test, since these are alike.
    """
    taken, ranks = Counter[str](), {}
    for test in sorted(seconds, key=lambda test: seconds[test]):
        name = test.partition("[")[0]
        ranks[test] = taken[name]
        taken[name] += 1
    chosen, left = [], most
    for test in sorted(seconds, key=lambda test: (ranks[test], seconds[test]))[:MOST_TESTS]:
        left -= seconds[test]
        if left > 0 or not chosen:
            chosen.append(test)
    return sorted(chosen, key=lambda test: seconds[test])


def load_recorded(place: Path) -> "Recorded":
    """Return the tests of every line, from what was written down of each test."""
    found: Recorded = defaultdict(dict)
    lines_of: dict[str, tuple[float, set[Line]]] = pickle.loads(place.read_bytes())
    for test, (seconds, lines) in lines_of.items():
        for line in lines:
            found[line][test] = seconds
    return found


def record_tests(
    items: dict[str, Any],
    bodies: dict[tuple[str, tuple[str, int]], range],
    place: Path,
    deadline: float,
) -> None:
    """Run all tests once, in a fork. Write down which lines of the functions each of them executes
    if it passes. What was written when the time is over is taken up by the next call.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    wanted = {
        (file, line)
        for (file, (_, first)), body in bodies.items()
        for line in range(first, body.stop)
    }
    partly = place.with_suffix(".part")
    lines_of: dict[str, tuple[float, set[Line]]] = {}
    if partly.exists():
        lines_of = pickle.loads(partly.read_bytes())
    signal.signal(signal.SIGPROF, _stop)
    for test, item in items.items():
        if test in lines_of:
            continue
        lines, started = set[Line](), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LONGEST_TEST)
        sys.settrace(lambda frame, *_, lines=lines: _trace(frame, wanted, lines))
        is_passed = run_test(item)
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines_of[test] = time.process_time() - started, lines if is_passed else set()
        is_late = time.monotonic() > deadline
        if is_late or len(lines_of) % 20 == 0:
            partly.write_bytes(pickle.dumps(lines_of))
        if is_late:
            os._exit(0)
    place.write_bytes(pickle.dumps(lines_of))
    os._exit(0)


def _stop(*_: Any) -> None:
    raise TimeoutError("the test takes too long to be run for mutants")


def _trace(frame: FrameType, wanted: set[Line], lines: set[Line]) -> Any:
    """Note the lines of a frame, if its code begins in one of our functions. Once all lines of the
    code were seen, it runs without us.
    """
    file = frame.f_code.co_filename
    if (file, frame.f_code.co_firstlineno) not in wanted:
        return None
    left = {(file, line) for line in _list_lines(frame.f_code)} - lines
    if not left:
        return None

    def note(frame: FrameType, *_: Any) -> Any:
        line = (file, frame.f_lineno)
        lines.add(line)
        left.discard(line)
        return note if left else None

    return note


@functools.cache
def _list_lines(code: CodeType) -> set[int]:
    """Return the lines of a function but the first, at which nothing is executed."""
    return {line for *_, line in code.co_lines() if line} - {code.co_firstlineno}


def run_test(item: Any) -> bool:
    """Run one test with its fixtures; return whether it passed."""
    from _pytest.runner import runtestprotocol

    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
    except KeyboardInterrupt:  # what DuckDB makes of the alarm of a test that takes too long
        return False
    return not any(report.failed for report in reports)


def run_mutant(mutant: Mutant, items: Sequence[Any], stuck_after: float) -> str:
    """Run tests against a mutant in a fork; return how it ended."""
    if not items:
        return "executed by no test"
    from hypothesis import Phase, settings  # once pytest has been started

    child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, stuck_after)
            # what fails need not be made small
            phases = (Phase.explicit, Phase.generate)
            settings.register_profile("mutants", settings.default, phases=phases)
            settings.load_profile("mutants")
            replace_code(mutant)
            code = 0 if all(map(run_test, items)) else 1
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGPROF:
        return "stuck"
    return {0: "survived", 2: "not tried"}.get(status, "killed")


def main() -> int:
    """Try the mutants of some subjects, and print the survivors without a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subjects", nargs="*", help=f"default: all of {', '.join(SUBJECTS)}")
    parser.add_argument("--every", type=int, default=1, help="try one mutant in so many")
    parser.add_argument("--keep", type=Path, help="remember in this folder, and go on from there")
    parser.add_argument("--minutes", type=float, default=10_000, help="stop after so many")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="of tests for each")
    parser.add_argument("--again", action="store_true", help="also those that were not killed")
    parser.add_argument("--tests", nargs="+", help="paths instead of the usual ones")
    options = parser.parse_args()
    subjects = options.subjects or [*SUBJECTS]
    names = itertools.chain(*(SUBJECTS[subject] for subject in subjects))
    mutants = list_mutants([*names])[:: options.every]
    paths = itertools.chain(*(TESTS[subject] for subject in subjects))
    tests = dict.fromkeys(options.tests or map(str, map(ROOT.joinpath, paths)))
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        session = Session(mutants, folder, options.minutes, options.seconds)
        ends = session.load_ends()
        done = ("killed", "stuck") if options.again else {*ends.values()}
        session.pending = [mutant for mutant in mutants if ends.get(mutant.mark) not in done]
        words = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-m"]
        words.append("(not services and not long) or mutants")
        if session.pending:
            pytest.main([*words, "--doctest-modules", *tests], [session])
        ends = session.load_ends()
    return report_ends(mutants, ends)


def report_ends(mutants: Sequence[Mutant], ends: dict[str, str]) -> int:
    """Print how mutants ended, and those that survive without a reason; 1 if there are any."""
    reasons: dict[str, str] = json.loads(REASONS.read_text(encoding="utf-8"))
    survivors = [mutant for mutant in mutants if ends.get(mutant.mark) not in ("killed", "stuck")]
    unexplained = [mutant for mutant in survivors if mutant.key not in reasons]
    for mutant in unexplained:
        place = f"{mutant.file.relative_to(ROOT)}:{mutant.lines[0]}"
        print(f"{ends.get(mutant.mark, 'not tried')}: {place}: {mutant.key}")
    counts = Counter(ends.get(mutant.mark, "not tried") for mutant in mutants)
    print(f"{len(mutants)} mutants: {dict(counts)}; without a reason: {len(unexplained)}")
    return 1 if unexplained or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())

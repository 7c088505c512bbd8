"""Every bound and every statement against all conforming tables, listed one by one."""

import itertools
import re
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from semidp.assess.disclosure import closed_bounds, program_bounds
from semidp.assess.disclosure.findings import (
    Answer,
    CertainFindings,
    DisclosureStatement,
    FindingKind,
)
from semidp.assess.disclosure.program_bounds import ConformingTables, Effort
from semidp.assess.disclosure.published_counts import KnownTable, PublishedCounts, ReadingRules
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Counts, View, junction_order
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin
from tests.disclosure.small_cases import Case, draw_case

INSIDERS = 2


def list_views(case: Case) -> list[View]:
    return list(itertools.product(*(range(depth + 1) for depth in case.counts.grid.full)))


def check_bounds(case: Case, tables: Counts, found: ConformingTables) -> Counter[str]:
    """Compare the bounds of every cell of every view; return how many of each kind there were."""
    checked: Counter[str] = Counter()
    for view in list_views(case):
        values = case.sum_to_view(tables, view)
        least, most = values.min(axis=0), values.max(axis=0)
        bounds = found.bound(view)
        lower, upper = bounds.lower.ravel(), bounds.upper.ravel()
        assert (lower <= least).all(), (view, lower, least)
        assert (upper >= most).all(), (view, upper, most)
        sharp = np.broadcast_to(bounds.sharp, bounds.lower.shape).ravel()
        assert (lower[sharp] == least[sharp]).all()
        assert (upper[sharp] == most[sharp]).all()
        # Tables in hand are tables: what they show lies within the truth.
        shown = (bounds.least <= bounds.most).ravel()
        assert (bounds.least.ravel()[shown] >= least[shown]).all()
        assert (bounds.most.ravel()[shown] <= most[shown]).all()
        checked[bounds.method] += len(lower)
        checked["sharp"] += int(sharp.sum())
        checked["outer"] += int((~sharp).sum())
    return checked


def holds(case: Case, tables: Counts, statement: DisclosureStatement) -> bool:
    """Whether a statement is true in all conforming tables."""
    view, cell = case.counts.locate_cell(statement.cell)
    values = case.sum_to_view(tables, view)
    mine = values[:, cell]
    if statement.kind in (FindingKind.everybody, FindingKind.anybody, FindingKind.coalition):
        assert statement.value is not None
        axis, depth = case.counts.schema._places[statement.value]
        assert view[axis] == depth
        group = (*view[:axis], depth - 1, *view[axis + 1 :])
        place = int(case.counts.grid.labels(group, view)[cell])
        size = case.sum_to_view(tables, group)[:, place]
        if statement.kind is FindingKind.coalition:
            assert statement.insiders is not None
            return bool((mine >= size - statement.insiders).all() and size.min() == size.max())
        in_span = size.min() >= statement.lower and size.max() <= (statement.upper or 0)
        return bool((mine == size).all() and in_span)
    upper = np.inf if statement.upper is None else statement.upper
    return bool((mine >= statement.lower).all() and (mine <= upper).all())


def count_truth(case: Case, tables: Counts) -> Counter[str]:
    """Count what is certain of the crossing, from all conforming tables."""
    values = case.sum_to_view(tables, case.counts.crossing)
    least, most = values.min(axis=0), values.max(axis=0)
    return Counter(
        alone=int(((least == 1) & (most == 1)).sum()),
        fixed=int(((least > 1) & (least == most)).sum()),
        exists=int(((least >= 1) & (least < most)).sum()),
    )


def check_groups(case: Case, tables: Counts, statements: list[DisclosureStatement]) -> int:
    """Check that every group of which everybody has a value is one of the statements, or lies
    within one; return how many there are.
    """
    told = set()
    for statement in statements:
        if statement.kind in (FindingKind.everybody, FindingKind.anybody):
            told.add((statement.value, tuple(sorted(statement.cell.items()))))
    grid, schema = case.counts.grid, case.counts.schema
    groups = 0
    for view in list_views(case):
        if not all(depth <= top for depth, top in zip(view, case.counts.crossing, strict=True)):
            continue
        values = case.sum_to_view(tables, view).max(axis=0) > 0
        for axis, depth in enumerate(view):
            if not depth:
                continue
            group = (*view[:axis], depth - 1, *view[axis + 1 :])
            labels = grid.labels(group, view)
            declared = np.bincount(labels, weights=case.counts.possible(view).ravel())
            held = np.bincount(labels, weights=values)
            for place in np.flatnonzero((held == 1) & (declared > 1)).tolist():
                (cell,) = np.flatnonzero((labels == place) & values)
                levels = case.counts.name_cell(view, int(cell))
                value = schema.features[axis].names[depth - 1]
                parts = [
                    dict(part)
                    for size in range(len(levels) + 1)
                    for part in itertools.combinations(levels.items(), size)
                ]
                assert any((value, tuple(sorted(part.items()))) in told for part in parts), levels
                groups += 1
    return groups


def check_case(case: Case, effort: Effort | None = None) -> Counter[str]:
    """Check all bounds and all statements of a case."""
    tables = case.list_tables()
    assert len(tables), "the true table conforms"
    found = ConformingTables(case.counts, effort or Effort())
    checked = check_bounds(case, tables, found)
    findings = CertainFindings(found, insiders=INSIDERS, percent=Fraction(30))
    statements = findings.list_statements()
    assert len(statements) == sum(findings.numbers.values())
    for statement in statements:
        assert statement.proof
        assert holds(case, tables, statement), statement
        checked[f"statement {statement.kind}"] += 1
    if effort is None:
        assert checked["outer"] == 0
        crossing = case.counts.crossing
        if any(crossing) and crossing not in case.counts.cliques:
            listed = Counter(
                str(each.kind)
                for each in statements
                if case.counts.locate_cell(each.cell)[0] == crossing
            )
            truth = count_truth(case, tables)
            assert all(listed[kind] == truth[kind] for kind in truth), (listed, truth)
        checked["groups"] += check_groups(case, tables, statements)
        check_hidden(case, tables, statements)
    return checked + Counter(cases=1)


def check_hidden(case: Case, tables: Counts, statements: list[DisclosureStatement]) -> None:
    """Check that exactly those hidden cells are recovered that have one value in all tables."""
    recovered = {
        case.counts.locate_cell(each.cell)
        for each in statements
        if each.kind is FindingKind.recovered
    }
    for known in case.counts.tables:
        if known.hidden is None:
            continue
        values = case.sum_to_view(tables, known.view)
        for cell in np.flatnonzero(known.hidden).tolist():
            fixed = values[:, cell].min() == values[:, cell].max()
            assert ((known.view, cell) in recovered) == fixed


def check_many(seed: int, cases: int, effort: Effort | None = None) -> Counter[str]:
    rng = np.random.default_rng(seed)
    checked: Counter[str] = Counter()
    for number in range(cases):
        case = draw_case(rng, hiding=number % 2 == 1, zeros=number % 3 == 0)
        checked += check_case(case, effort)
    return checked


def test_bounds_and_statements_are_the_truth_in_small_cases() -> None:
    checked = check_many(1, 60)
    assert checked["formula"] > 300
    assert checked["program"] > 300
    assert checked["groups"] > 300
    assert {f"statement {kind}" for kind in ("everybody", "coalition", "recovered")} <= set(checked)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_bounds_and_statements_are_the_truth_in_a_thousand_cases(seed: int) -> None:
    assert check_many(100 + seed, 1_000)["cases"] == 1_000


@pytest.mark.parametrize("effort", [Effort(columns=0), Effort(solves=3, search=0)])
def test_without_time_bounds_are_outer_and_say_so(effort: Effort) -> None:
    checked = check_many(2, 40, effort)
    assert checked["outer"] > 100


def test_a_formula_that_overlooks_structural_zeros_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(counts: PublishedCounts) -> bool:
        return counts.is_exact and junction_order(counts.cliques) is not None

    monkeypatch.setattr(closed_bounds, "is_closed", careless)
    monkeypatch.setattr(program_bounds, "is_closed", careless)
    rng = np.random.default_rng(3)
    cases = [draw_case(rng, hiding=False, zeros=True) for _ in range(80)]
    with pytest.raises(AssertionError):
        [check_case(case) for case in cases]


def test_a_rule_that_rounds_less_than_was_rounded_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = ReadingRules._reach

    def narrow(self: ReadingRules, count: int, base: int) -> tuple[int, int]:
        down, up = honest(self, count, base)
        return down - 1, up

    monkeypatch.setattr(ReadingRules, "_reach", narrow)
    with pytest.raises(AssertionError):
        check_many(4, 100)


def test_a_secondary_cell_is_empty_or_not_small() -> None:
    """Of 7, one cell is 1 to 4 and the other 0 or at least 5: so the first is 1 or 2."""
    schema = Schema([Feature("a", "xy")])
    rules = ReadingRules(suppressed=("c",), secondary=("x",), below=5)
    read = [rules.read_cell(mark) for mark in "cx"]
    lower, upper, gap = (np.array(values) for values in zip(*filter(None, read), strict=True))
    n = np.array(7)
    known = (KnownTable((0,), n, n), KnownTable((1,), lower, upper, gap))
    bounds = ConformingTables(PublishedCounts(schema, known)).bound((1,))
    assert (bounds.lower.tolist(), bounds.upper.tolist()) == ([1, 5], [2, 6])
    forgetful = (known[0], evolve(known[1], gap=None))
    bounds = ConformingTables(PublishedCounts(schema, forgetful)).bound((1,))
    assert bounds.upper.tolist() == [4, 6]


def test_a_coalition_that_is_one_too_small_is_caught() -> None:
    rng = np.random.default_rng(6)
    seen = 0
    for _ in range(60):
        case = draw_case(rng, hiding=False, zeros=False)
        tables = case.list_tables()
        for statement in CertainFindings(
            ConformingTables(case.counts), insiders=2
        ).list_statements():
            if statement.kind is FindingKind.coalition and statement.insiders is not None:
                smaller = evolve(statement, insiders=statement.insiders - 1)
                seen += not holds(case, tables, smaller)
    assert seen > 10


def test_answers_to_asked_cells_have_two_tables_in_hand() -> None:
    rng = np.random.default_rng(7)
    answers: Counter[Answer] = Counter()
    for number in range(30):
        case = draw_case(rng, hiding=number % 2 == 1, zeros=number % 3 == 0)
        findings = CertainFindings(ConformingTables(case.counts))
        tables = case.list_tables()
        view = case.counts.grid.full
        cell = int(rng.integers(case.counts.schema.size))
        told = findings.ask(case.counts.name_cell(view, cell))
        values = tables[:, cell]
        certain = values.min() == values.max()
        assert told.answer == (Answer.certain if certain else Answer.not_certain)
        assert (told.lower, told.upper) == (values.min(), values.max())
        assert len(told.examples) == (0 if certain else 2)
        answers[told.answer] += 1
    assert len(answers) == 2


def test_known_records_are_subtracted_from_everything() -> None:
    """Whoever knows some records sees the tables of the others, each with those added again."""
    rng = np.random.default_rng(8)
    checked = 0
    for number in range(60):
        case = draw_case(rng, hiding=number % 2 == 1, zeros=number % 3 == 0)
        if not case.truth.sum():
            continue
        schema = case.counts.schema
        person = int(rng.choice(np.flatnonzero(case.truth)))
        known = np.zeros(schema.size, dtype=np.int64)
        known[person] = 1
        tables = case.list_tables()
        left = tables[tables[:, person] >= 1] - known
        rest = case.counts.subtract(Table(schema, known.reshape(schema.shape)))
        others = Case(rest, case.truth - known)
        check_bounds(others, left, ConformingTables(rest))
        checked += 1
    assert checked > 40


def test_the_arithmetic_of_every_proof_is_right() -> None:
    """Whatever a proof adds and subtracts, it says what comes out."""
    rng = np.random.default_rng(9)
    equations = 0
    for number in range(60):
        case = draw_case(rng, hiding=number % 2 == 1, zeros=number % 3 == 0)
        for statement in CertainFindings(ConformingTables(case.counts)).list_statements():
            for sentence in statement.proof:
                for left, right in read_equations(sentence):
                    assert left == right, sentence
                    equations += 1
    assert equations > 100


def read_equations(sentence: str) -> list[tuple[Fraction, Fraction]]:
    """Return both sides of the equations of a sentence, without the names of cells."""
    plain = re.sub(r"\([^()]*[a-z][^()]*\)", "", sentence)
    found = re.findall(r"([\d(][\d\s+−×()]*) = (-?\d+(?:/\d+)?)[.:]", plain)
    sides = []
    for left, right in found:
        written = left.replace("−", "-").replace("×", "*").strip()
        if written.startswith("(") and "/" in right:
            numerator = Fraction(eval(written))
            sides.append((numerator, Fraction(right.split("/")[0])))
        else:
            sides.append((Fraction(eval(written)), Fraction(right)))
    return sides


def test_an_equation_that_is_wrong_would_be_seen() -> None:
    left, right = read_equations("At least 2 in (a x): 7 (b y) + 7 (c z) − 12 (all) = 3.")[0]
    assert (left, right) == (2, 3)


def build_counts(records: list[str], margins: list[str], zeros: tuple[str, ...] = ()) -> Any:
    """Return exact margins of records such as "010" over features a, b, c … of 0 and 1."""
    names = "abcdef"[: len(records[0])]
    declared = [StructuralZero.from_pattern(dict(zip(names, zero, strict=True))) for zero in zeros]
    schema = Schema([Feature(name, "01") for name in names], declared)
    counts = np.zeros(schema.shape, dtype=np.int64)
    for record in records:
        counts[tuple(map(int, record))] += 1
    table = Table(schema, counts)
    return PublishedCounts.from_dataspace(
        Dataspace.from_table(table, [Margin(*margin) for margin in margins])
    )


def test_three_missing_separators_that_meet_need_whole_numbers() -> None:
    """The linear program allows 2 here, whole numbers 1."""
    records = ["000000", "101101", "010110", "111011"]
    counts = build_counts(records, ["bcd", "ab", "ce", "df"])
    view = (1, 0, 0, 0, 1, 1)
    assert closed_bounds.close_bounds(counts, view) is None
    assert ConformingTables(counts).bound(view).upper.ravel()[0] == 1
    without = ConformingTables(counts, Effort(search=0)).bound(view)
    assert without.upper.ravel()[0] == 2
    assert not without.sharp.ravel()[0]


def test_a_structural_zero_across_margins_fixes_a_cell() -> None:
    counts = build_counts(["01", "10"], ["a", "b"], zeros=("00",))
    bounds = ConformingTables(counts).bound((1, 1))
    assert bounds.lower.tolist() == bounds.upper.tolist() == [[0, 1], [1, 0]]


def test_a_path_of_margins_is_a_flow() -> None:
    """AB, BC and CD published, (a, c, d) asked, three records: sharper than summed bounds."""
    counts = build_counts(["0000", "0101", "1011"], ["ab", "bc", "cd"])
    bounds = closed_bounds.close_bounds(counts, (1, 0, 0, 1))
    assert bounds is not None
    case = Case(counts, np.zeros(16, dtype=np.int64))
    values = case.sum_to_view(case.list_tables(), (1, 0, 0, 1))
    assert bounds.lower.ravel().tolist() == values.min(axis=0).tolist()
    assert bounds.upper.ravel().tolist() == values.max(axis=0).tolist()

"""Proofs of bounds in plain sentences: the published numbers, and how they are added and
subtracted.

A proof is the first of these that exists: a published number, the formula of decomposable
margins, steps of arithmetic, a combination of published numbers (a dual solution, checked in whole
numbers), a search through all tables of whole numbers.
"""

import math

import numpy as np
from attrs import define, field

from semidp.assess.disclosure.closed_bounds import list_terms
from semidp.assess.disclosure.program_bounds import Certificate, ConformingTables
from semidp.assess.disclosure.published_counts import (
    EXACT_TOTALS,
    LOWER,
    UNBOUNDED,
    UPPER,
    KnownTable,
    Step,
)
from semidp.promise.exact import list_some
from semidp.promise.schema.margins import View, is_within_view

_MOST_SENTENCES = 12
_MOST_STEPS = 200
_LISTED = 6
_MOST_TERMS = 12

_SEARCHED = (
    "No table of whole numbers with all published numbers has {less} {where}: a search through all"
    " of them ended without one."
)


@define(eq=False)
class Explainer:
    """Writes the proofs of bounds.

    >>> from semidp import Dataspace, Feature, Margin, Schema, Table
    >>> from semidp.assess.disclosure.published_counts import PublishedCounts
    >>> table = Table(Schema([Feature("ward", "AB"), Feature("ill", "yn")]), [[5, 2], [2, 3]])
    >>> space = Dataspace.from_table(table, [Margin("ward"), Margin("ill")])
    >>> tables = ConformingTables(PublishedCounts.from_dataspace(space))
    >>> Explainer(tables).explain((1, 1), 0, 0)
    ['At least 2 in (ward A, ill y): 7 (ward A) + 7 (ill y) − 12 (all records) = 2.']
    """

    tables: ConformingTables
    sources: set[str] = field(factory=set)

    def name(self, view: View, cell: int) -> str:
        """Return the words for a cell."""
        levels = self.tables.counts.name_cell(view, cell)
        if not levels:
            return "all records"
        return "(" + ", ".join(f"{name} {level}" for name, level in levels.items()) + ")"

    def explain(self, view: View, cell: int, side: int) -> list[str]:
        """Return the sentences that prove the lower (0) or upper (1) bound of a cell."""
        bounds = self.tables.recall(view, cell)
        value = int((bounds.lower, bounds.upper)[side].ravel()[cell])
        for proof in (
            self._by_published(view, cell, side, value),
            self._by_formula(view, cell, side, value),
            self._by_steps(view, cell, side, value),
            self._by_parts(view, cell, side, value),
            self._by_certificate(view, cell, side, value),
            self._by_steps(view, cell, side, value, most=_MOST_STEPS),
        ):
            if proof:
                return proof
        less = (f"fewer than {value:,}", f"more than {value:,}")[side]
        where = f"in {self.name(view, cell)}"
        if bounds.method == "formula":
            return [
                f"A maximum flow through the published counts shows: {less} {where} is impossible."
            ]
        return [_SEARCHED.format(less=less, where=where)]

    def _by_published(self, view: View, cell: int, side: int, value: int) -> list[str]:
        """A published number that says it, of this cell or, for an upper bound, of a sum."""
        for table in self.tables.counts.tables:
            if table.view == view or (side == UPPER and is_within_view(table.view, view)):
                place = self.tables.counts.find_coarser(view, cell, table.view)
                told = int((table.lower, table.upper)[side].ravel()[place])
                if told == value:
                    return [self._quote(table, place)]
            elif is_within_view(view, table.view) and table.is_exact:
                self.sources.add(table.source)
                return [f"{self._margin(table)} adds up to {value:,} in {self.name(view, cell)}."]
        return []

    def _quote(self, known: KnownTable, cell: int) -> str:
        self.sources.add(known.source)
        lower, upper = int(known.lower.ravel()[cell]), int(known.upper.ravel()[cell])
        where = self.name(known.view, cell)
        if not any(known.view):
            return f"There are {_span(lower, upper)} records in all."
        if upper == 0:
            return f"{self._margin(known)} shows nobody in {where}."
        verb = "shows" if lower == upper else "allows"
        return f"{self._margin(known)} {verb} {_span(lower, upper)} in {where}."

    def _margin(self, known: KnownTable) -> str:
        names = self.tables.counts.schema.list_view_names(known.view)
        text = " × ".join(names) if names else "the total"
        return text if known.source == EXACT_TOTALS else f"{known.source} ({text})"

    def _by_formula(self, view: View, cell: int, side: int, value: int) -> list[str]:
        counts = self.tables.counts
        if side == UPPER or not self.tables.is_closed or view != counts.crossing:
            return []
        cliques, separators = list_terms(counts)
        terms = [(1, clique) for clique in cliques] + [(-1, part) for part in separators]
        total = 0
        written: list[str] = []
        for sign, part in terms:
            exact = counts.require_exact(part)
            place = self.tables.counts.find_coarser(view, cell, part)
            number = int(exact.ravel()[place])
            total += sign * number
            mark = "" if not written else (" + " if sign > 0 else " − ")
            written.append(f"{mark}{number:,} {self._in_brackets(part, place)}")
        if total != value:
            return []
        return [f"At least {value:,} in {self.name(view, cell)}: {''.join(written)} = {value:,}."]

    def _in_brackets(self, view: View, cell: int) -> str:
        name = self.name(view, cell)
        return name if name.startswith("(") else f"({name})"

    def _by_steps(
        self, view: View, cell: int, side: int, value: int, most: int = _MOST_SENTENCES
    ) -> list[str]:
        narrowed = self.tables.narrowing
        if view not in narrowed.lower:
            return []
        last = len(narrowed.steps)
        if narrowed.find_value(view, side, cell, last) != value:
            return []
        lines: dict[str, None] = {}
        self._trace(view, side, cell, last, lines, most)
        if len(lines) <= _MOST_SENTENCES:
            return list(lines)
        if most == _MOST_SENTENCES:
            return []
        return ["Sums and differences of published numbers end with:", *list(lines)[-4:]]

    def _trace(
        self,
        view: View,
        side: int,
        cell: int,
        before: int,
        lines: dict[str, None],
        most: int = _MOST_SENTENCES,
    ) -> None:
        """Add the sentences that lead to a bound, those it rests on first."""
        if len(lines) > most:
            return
        narrowed = self.tables.narrowing
        reason = narrowed.find_step(view, side, cell, before)
        if reason is None:
            for table in narrowed.list_tables(view):
                told = (table.lower, table.upper)[side].ravel()[cell]
                if told not in (0, UNBOUNDED) or (side == UPPER and told == 0):
                    lines.setdefault(self._quote(table, cell))
                    return
            return
        place, step = reason
        if step.whole == step.part:
            self._trace(view, 1 - side, cell, place, lines, most)
            gap = next(table for table in narrowed.list_tables(view) if table.gap is not None)
            self.sources.add(gap.source)
            text = "is suppressed as 0 or at least the threshold, so it is"
            lines.setdefault(
                f"{self.name(view, cell)} {text} {_side(side)} {step_value(step, cell)}."
            )
        elif step.view == step.whole:
            self._trace_sum(step, cell, place, lines, most)
        else:
            self._trace_difference(step, cell, place, lines, most)

    def _trace_sum(
        self, step: Step, cell: int, place: int, lines: dict[str, None], most: int
    ) -> None:
        narrowed = self.tables.narrowing
        numbers = []
        for part in self.tables.counts.list_parts(step.whole, cell, step.part):
            number = narrowed.find_value(step.part, step.side, part, place)
            if number:
                self._trace(step.part, step.side, part, place, lines, most)
                numbers.append(f"{number:,}")
        total = step_value(step, cell)
        written = " + ".join(numbers) or "0"
        lines.setdefault(
            f"{self.name(step.view, cell)} is {_side(step.side)} {written} = {total:,}."
            if len(numbers) > 1
            else f"{self.name(step.view, cell)} is {_side(step.side)} {total:,}."
        )

    def _trace_difference(
        self, step: Step, cell: int, place: int, lines: dict[str, None], most: int
    ) -> None:
        narrowed = self.tables.narrowing
        side = step.side
        whole = self.tables.counts.find_coarser(step.part, cell, step.whole)
        self._trace(step.whole, side, whole, place, lines, most)
        numbers, subtracted = [f"{narrowed.find_value(step.whole, side, whole, place):,}"], []
        for part in self.tables.counts.list_parts(step.whole, whole, step.part):
            if part == cell:
                continue
            number = narrowed.find_value(step.part, 1 - side, part, place)
            if number or side == LOWER:
                self._trace(step.part, 1 - side, part, place, lines, most)
            if number:
                numbers.append(f"{number:,}")
                subtracted.append(self.name(step.part, part))
        total = step_value(step, cell)
        mine, sum_name = self.name(step.part, cell), self.name(step.whole, whole)
        if not subtracted:
            if side == LOWER:
                text = f"So all {total:,} of {sum_name} are in {mine}."
            else:
                same = f"{mine} is at most {total:,}, like {sum_name}"
                text = f"So {same}." if total else f"So nobody is in {mine}."
            lines.setdefault(text)
            return
        lines.setdefault(
            f"{mine} is {_side(side)} {' − '.join(numbers)} = {total:,}: {sum_name} less"
            f" {list_some(subtracted, _LISTED)}."
        )

    def _by_parts(self, view: View, cell: int, side: int, value: int) -> list[str]:
        """A coarser cell than those that steps know: one sentence for each of its parts."""
        crossing = self.tables.counts.crossing
        if side != UPPER or value or view == crossing or not is_within_view(view, crossing):
            return []
        lines: dict[str, None] = {}
        for part in self.tables.counts.list_parts(view, cell, crossing):
            reasons = self._by_published(crossing, part, UPPER, 0) or self._by_steps(
                crossing, part, UPPER, 0
            )
            if not reasons:
                return []
            lines |= dict.fromkeys(reasons)
            if len(lines) > _MOST_SENTENCES:
                break
        sentences = list(lines)[:_MOST_SENTENCES]
        if len(lines) > _MOST_SENTENCES:
            sentences.append("In the same way every other combination is ruled out.")
        return [*sentences, f"So nobody is in {self.name(view, cell)}."]

    def _by_certificate(self, view: View, cell: int, side: int, value: int) -> list[str]:
        program = self.tables.find_program(view)
        if program is None or program.clock.is_over:
            return []
        sense = 1 if side == LOWER else -1
        certificate = program.prove(view, cell, sense)
        if certificate is None or not certificate.terms:
            return []
        proven = sense * certificate.value
        rounded = math.ceil(proven) if side == LOWER else math.floor(proven)
        if rounded != value:
            return []
        sentence = self._combine_numbers(certificate, view, cell, side, value)
        cells = sum(map(self.tables.counts.grid.count_margin_cells, program.blocks))
        empty = ["Cells that must be empty were left out."] if program.size < cells else []
        return [sentence, *empty]

    def _combine_numbers(
        self, certificate: Certificate, view: View, cell: int, side: int, value: int
    ) -> str:
        sense = 1 if side == LOWER else -1
        terms = [term for term in certificate.terms if term[2] >= 0]
        terms.sort(key=lambda term: -sense * term[0])
        written: list[str] = []
        for factor, part, place, number in terms[:_MOST_TERMS]:
            times = sense * factor
            mark = " − " if times < 0 else (" + " if written else "")
            several = "" if abs(times) == 1 else f"{abs(times)} × "
            written.append(f"{mark}{several}{number:,} {self._in_brackets(part, place)}")
            for table in self.tables.counts.tables:
                if table.view == part:
                    self.sources.add(table.source)
        more = f" and {len(terms) - _MOST_TERMS} more" if len(terms) > _MOST_TERMS else ""
        text = "".join(written) + more
        result = f"{sense * certificate.value * certificate.denominator}"
        if certificate.denominator > 1:
            text = f"({text})"
            result = f"{result}/{certificate.denominator}"
        exact = "" if certificate.denominator == 1 else ", in whole numbers"
        return (
            f"{_side(side).capitalize()} {value:,} in {self.name(view, cell)}{exact}: {text} ="
            f" {result}."
        )


def step_value(step: Step, cell: int) -> int:
    """Return the bound that a step gave to a cell."""
    return int(step.values[np.searchsorted(step.cells, cell)])


def _side(side: int) -> str:
    return ("at least", "at most")[side]


def _span(lower: int, upper: int) -> str:
    if lower == upper:
        return f"{lower:,}"
    return f"{lower:,} or more" if upper >= UNBOUNDED else f"{lower:,} to {upper:,}"


def merge_proofs(lower: list[str], upper: list[str]) -> list[str]:
    """Return the proofs of both bounds as one: equal bounds become one value.

    >>> merge_proofs(["(a) is at least 6 − 4 = 2."], ["(a) is at most 6 − 4 = 2."])
    ['(a) is 6 − 4 = 2.']
    """
    twins = {line.replace(" is at least ", " is at most "): line for line in lower}
    merged = []
    for line in lower:
        both = line.replace(" is at least ", " is at most ")
        merged.append(both.replace(" is at most ", " is ") if both in upper else line)
    return merged + [line for line in upper if line not in twins]

"""What published numbers prove about people: who is alone in a cell, what everybody in a group has,
which cells are recovered.

Every statement is *certain*: it holds in all conforming tables, and carries a proof. A cell that
was asked for may also be *not certain* (two conforming tables differ in it) or *undecided*.

A review is one answer to all of that: counts, the worst statements, and what leaving one total out
would change.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from itertools import combinations, islice, product
from typing import Any

import numpy as np
from attrs import define, field, frozen

from semidp.assess.disclosure.closed_bounds import Bounds
from semidp.assess.disclosure.program_bounds import QUICK, ConformingTables, Effort
from semidp.assess.disclosure.proofs import Explainer, merge_proofs
from semidp.assess.disclosure.published_counts import (
    EXACT_TOTALS,
    LOWER,
    UNBOUNDED,
    UPPER,
    PublishedCounts,
)
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Counts, Mask, View, is_within_view, list_axes, meet
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins
from semidp.publish.plan import Plan
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.survey import read_schema

_MOST_FEATURES = 3
"""Of a group and its value, where all combinations of features would be too many."""
_SHOWN = 3  # statements in the text of a review
LISTED = 1_000
"""The default number of statements to list with proofs; all are counted."""


class FindingKind(StrEnum):
    """The kinds of statements, the worst first."""

    everybody = "everybody"
    coalition = "coalition"
    recovered = "recovered"
    within = "within"
    alone = "alone"
    fixed = "fixed"
    exists = "exists"
    anybody = "anybody"
    nobody = "nobody"
    asked = "asked"


REVEALING = (FindingKind.everybody, FindingKind.recovered)
"""What a release says before anything is charged: somebody's value is known for certain."""


class Answer(StrEnum):
    """What is known about a cell."""

    certain = "certain"
    not_certain = "not certain"
    undecided = "undecided"


@frozen(eq=False)
class DisclosureStatement:
    """One statement about one cell.

    Parameters
    ----------
    kind
        What it says.
    cell
        The levels of the cell, by feature.
    lower, upper
        Bounds on the count; for `everybody`, on the number of people in the group. None: no upper
        bound.
    sharp
        Whether conforming tables attain both.
    proof
        Sentences.
    answer
        Certain, not certain or undecided.
    value
        The feature whose level everybody in the group has.
    tables
        The published tables that the proof uses.
    insiders
        For `coalition`: how many members must share what they know.
    """

    kind: FindingKind
    cell: dict[str, str]
    lower: int
    upper: int | None
    sharp: bool
    proof: tuple[str, ...]
    answer: Answer = Answer.certain
    value: str | None = None
    tables: tuple[str, ...] = ()
    insiders: int | None = None
    examples: tuple[tuple[dict[str, Any], ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain values."""
        document: dict[str, Any] = {
            "kind": str(self.kind),
            "answer": str(self.answer),
            "cell": self.cell,
            "lower": self.lower,
            "upper": self.upper,
            "sharp": self.sharp,
            "proof": " ".join(self.proof),
        }
        for name in ("value", "insiders"):
            if getattr(self, name) is not None:
                document[name] = getattr(self, name)
        if len(self.tables) > 1:
            document["tables"] = list(self.tables)
        if self.examples:
            document["examples"] = [list(rows) for rows in self.examples]
        return document


@frozen(eq=False)
class _Found:
    """A statement without its words: a proof is written only if it is listed."""

    kind: FindingKind
    view: View
    cell: int
    rank: int
    lower: int
    upper: int
    sharp: bool
    axis: int = -1


@define(slots=False, eq=False)
class CertainFindings:
    """Everything certain that follows from published counts.

    Parameters
    ----------
    tables
        The conforming tables.
    insiders
        The largest coalition of members of a group to consider.
    percent
        How close a hidden cell must be known to count as recovered.
    """

    tables: ConformingTables
    insiders: int = 0
    percent: Fraction = Fraction(0)
    _explainer: Explainer = field(init=False)
    _unlisted: Counter[FindingKind] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self._explainer = Explainer(self.tables)

    @property
    def counts(self) -> PublishedCounts:
        """What is published."""
        return self.tables.counts

    @cached_property
    def numbers(self) -> dict[FindingKind, int]:
        """How many statements of each kind there are."""
        counted = Counter(each.kind for each in self._findings) + self._unlisted
        return {kind: counted[kind] for kind in FindingKind if counted[kind]}

    @cached_property
    def crossing_bounds(self) -> Bounds | None:
        """The bounds of every cell of the crossing; None if these are too many to look at."""
        crossing = self.counts.crossing
        if self.counts.grid.count_margin_cells(crossing) > self.tables.effort.cells:
            return None
        return self.tables.bound(crossing)

    def count_cells(self) -> dict[str, int] | None:
        """Return how many cells of the crossing are fixed, open and undecided."""
        bounds = self.crossing_bounds
        if bounds is None:
            return None
        fixed, is_open = int(bounds.is_fixed.sum()), int((bounds.is_open & ~bounds.is_fixed).sum())
        cells = bounds.lower.size
        return {
            "cells": cells,
            "certain": fixed,
            "not certain": is_open,
            "undecided": cells - fixed - is_open,
            "sharp": int(bounds.sharp.sum()),
        }

    def list_statements(self, most: int = LISTED) -> list[DisclosureStatement]:
        """Return the worst statements, with their proofs."""
        return [self._write(finding) for finding in islice(self._findings, most)]

    # --- what is certain --------------------------------------------------------------------------

    @cached_property
    def _findings(self) -> list[_Found]:
        # Hidden cells first, while there is time; groups rest on the crossing.
        findings = [*self._find_hidden(), *self._find_counts(), *self._find_groups()]
        order = {kind: place for place, kind in enumerate(FindingKind)}
        return sorted(findings, key=lambda each: (order[each.kind], each.rank))

    @cached_property
    def _views(self) -> list[View]:
        """The tables of groups and values that are looked at, coarse ones first."""
        grid, crossing = self.counts.grid, self.counts.crossing
        effort = self.tables.effort
        whole = self.tables.is_closed or self.crossing_bounds is not None
        chosen = []
        for view in _list_views(crossing, effort.views):
            if grid.count_margin_cells(view) > effort.cells:
                continue
            if whole or any(is_within_view(view, clique) for clique in self.counts.cliques):
                chosen.append(view)
        return sorted(chosen, key=lambda view: (sum(view), view))

    def _find_groups(self) -> Iterator[_Found]:
        """Yield groups of which everybody has a value, and combinations that nobody has."""
        grid = self.counts.grid
        determined: dict[tuple[View, int], Mask] = {}
        support: dict[View, Mask] = {}
        for view in self._views:
            support[view] = self.tables.find_support(view)
            declared = self.counts.possible(view)
            yield from self._find_empty(view, support, declared)
            for axis in list_axes(view):
                group = _coarsen(view, axis)
                children = grid.sum(support[view], group, view)
                declared_children = grid.sum(declared, group, view)
                same = np.asarray((children == 1) & (declared_children > 1))
                determined[view, axis] = same
                implied = np.zeros(same.shape, dtype=bool)
                for other in list_axes(view):
                    coarser = _coarsen(view, other)
                    if other != axis and (coarser, axis) in determined:
                        larger = _coarsen(group, other)
                        implied = implied | grid.spread(
                            determined[coarser, axis], larger, group
                        ).astype(bool)
                yield from self._write_groups(view, axis, same & ~implied, support[view])
                if self.insiders:
                    yield from self._find_coalitions(view, axis, same)

    def _write_groups(self, view: View, axis: int, same: Mask, support: Mask) -> Iterator[_Found]:
        if not same.any():
            return
        group = _coarsen(view, axis)
        grid = self.counts.grid
        bounds = self.tables.bound(group)
        lower, upper = bounds.lower.ravel(), bounds.upper.ravel()
        sharp = np.broadcast_to(bounds.sharp, bounds.lower.shape).ravel()
        labels = grid.labels(group, view)
        held = np.flatnonzero(support.ravel())
        child = dict(zip(labels[held].tolist(), held.tolist(), strict=True))
        for kind, chosen in (
            (FindingKind.everybody, same.ravel() & (lower > 0)),
            (FindingKind.anybody, same.ravel() & (lower == 0)),
        ):
            for cell in self._list_cells(kind, chosen, lower):
                ends = int(lower[cell]), int(upper[cell])
                yield _Found(
                    kind, view, child[cell], ends[0], *ends, sharp=bool(sharp[cell]), axis=axis
                )

    def _list_cells(self, kind: FindingKind, chosen: Mask, rank: Counts) -> list[int]:
        """Return the first cells by rank, as many as may be listed; the others are counted."""
        cells = np.flatnonzero(chosen)
        cells = cells[np.argsort(rank.ravel()[cells], kind="stable")]
        self._unlisted[kind] += max(len(cells) - LISTED, 0)
        return [int(cell) for cell in cells[:LISTED]]

    def _find_empty(
        self, view: View, support: dict[View, Mask], declared: Mask
    ) -> Iterator[_Found]:
        """Yield combinations that nobody has, though no published number is 0 there."""
        grid = self.counts.grid
        empty = ~support[view] & declared
        if not empty.any():
            return
        for table in self.counts.tables:
            shared = meet(table.view, view)
            told = grid.sum(np.minimum(table.upper, 1), shared, table.view)
            empty = empty & (grid.spread(told, shared, view) > 0)
        for axis in list_axes(view):
            coarser = _coarsen(view, axis)
            if coarser in support:
                empty = empty & grid.spread(support[coarser], coarser, view).astype(bool)
        for cell in self._list_cells(FindingKind.nobody, empty, np.zeros(empty.size, np.int64)):
            yield _Found(FindingKind.nobody, view, cell, cell, 0, 0, True)

    def _find_coalitions(self, view: View, axis: int, same: Mask) -> Iterator[_Found]:
        """Yield groups where so many members without a value know that all others have it."""
        group = _coarsen(view, axis)
        sizes = self.counts.find_exact(group)
        if sizes is None:
            return
        grid = self.counts.grid
        bounds = self.tables.bound(view)
        size = np.broadcast_to(grid.spread(sizes, group, view), bounds.lower.shape)
        is_told = np.broadcast_to(grid.spread(same, group, view).astype(bool), bounds.lower.shape)
        missing = size - bounds.lower
        told = (missing >= 1) & (missing <= self.insiders) & (bounds.lower >= 1) & ~is_told
        for cell in self._list_cells(FindingKind.coalition, told, size):
            lower = int(bounds.lower.ravel()[cell])
            whole = int(size.ravel()[cell])
            sharp = bool(np.broadcast_to(bounds.sharp, bounds.lower.shape).ravel()[cell])
            yield _Found(FindingKind.coalition, view, cell, whole, lower, whole, sharp, axis)

    def _find_hidden(self) -> Iterator[_Found]:
        """Yield suppressed and rounded cells that are known again."""
        for table in self.counts.tables:
            if table.hidden is None or not table.hidden.any():
                continue
            cells = np.flatnonzero(table.hidden)
            bounds = self.tables.bound_cells(table.view, cells.tolist())
            lower, upper = bounds.lower.ravel(), bounds.upper.ravel()
            for cell in cells.tolist():
                low, high = int(lower[cell]), int(upper[cell])
                kind = FindingKind.recovered if low == high else FindingKind.within
                if low == high or self._is_close(low, high):
                    sharp = bool(bounds.sharp.ravel()[cell])
                    yield _Found(kind, table.view, cell, low, low, high, sharp)

    def _is_close(self, low: int, high: int) -> bool:
        """Whether one estimate is within p% of every value that is left."""
        share = self.percent / 100
        return bool(self.percent) and high * (1 - share) <= low * (1 + share)

    def _find_counts(self) -> Iterator[_Found]:
        """Yield cells with one person, fixed cells, and cells that cannot be empty."""
        crossing = self.counts.crossing
        for clique in self.counts.cliques:
            exact = self.counts.find_exact(clique)
            if exact is not None and any(clique):
                yield from self._yield_cells(clique, exact, exact, np.ones(exact.shape, bool))
        bounds = self.crossing_bounds
        if bounds is not None and crossing not in self.counts.cliques and any(crossing):
            sharp = np.broadcast_to(bounds.sharp, bounds.lower.shape)
            yield from self._yield_cells(crossing, bounds.lower, bounds.upper, sharp)

    def _yield_cells(
        self, view: View, lower: Counts, upper: Counts, sharp: Any
    ) -> Iterator[_Found]:
        published = self.counts.find_exact(view) is not None
        some, fixed = lower >= 1, lower == upper
        by_kind = {FindingKind.alone: fixed & (lower == 1)}
        # A published count is no finding, unless it is of one person.
        if not published:
            by_kind[FindingKind.fixed] = fixed & (lower > 1)
            by_kind[FindingKind.exists] = some & ~fixed
        for kind, chosen in by_kind.items():
            for cell in self._list_cells(kind, chosen, np.zeros(lower.size, np.int64)):
                ends = int(lower.ravel()[cell]), int(upper.ravel()[cell])
                rank = cell - (0 if published else 2**40)
                yield _Found(kind, view, cell, rank, *ends, sharp=bool(sharp.ravel()[cell]))

    # --- words ------------------------------------------------------------------------------------

    def _write(self, found: _Found) -> DisclosureStatement:
        self._explainer.sources.clear()
        cell = self.counts.name_cell(found.view, found.cell)
        value, insiders = None, None
        if found.axis >= 0:
            value = self.counts.schema.features[found.axis].names[found.view[found.axis] - 1]
        writing: Callable[[_Found], list[str]] = {
            FindingKind.everybody: self._prove_group,
            FindingKind.anybody: self._prove_group,
            FindingKind.coalition: self._prove_coalition,
            FindingKind.nobody: lambda each: self._explainer.explain(each.view, each.cell, UPPER),
        }.get(found.kind, self._prove_count)
        if found.kind is FindingKind.coalition:
            insiders = found.upper - found.lower
        proof = writing(found)
        return DisclosureStatement(
            kind=found.kind,
            cell=cell,
            lower=found.lower,
            upper=None if found.upper >= UNBOUNDED else found.upper,
            sharp=found.sharp,
            proof=tuple(dict.fromkeys(proof)),
            value=value,
            tables=tuple(sorted(self._explainer.sources)),
            insiders=insiders,
        )

    def _prove_count(self, found: _Found) -> list[str]:
        """Prove both ends of a count, where both say something."""
        lines = self._explainer.explain(found.view, found.cell, LOWER) if found.lower else []
        if found.kind is FindingKind.exists:
            return lines
        return merge_proofs(lines, self._explainer.explain(found.view, found.cell, UPPER))

    def _prove_group(self, found: _Found) -> list[str]:
        """Prove that nobody in a group has another value."""
        group = _coarsen(found.view, found.axis)
        place = self.counts.find_coarser(found.view, found.cell, group)
        lines: list[str] = []
        if found.lower:
            lines += self._explainer.explain(group, place, LOWER)
        declared = self.counts.possible(found.view).ravel()
        ruled_out = [
            cell
            for cell in self.counts.list_parts(group, place, found.view)
            if cell != found.cell and declared[cell]
        ]
        for cell in ruled_out[:4]:
            lines += self._explainer.explain(found.view, cell, UPPER)
        if len(ruled_out) > 4:
            lines.append(f"The other {len(ruled_out) - 4} values are ruled out in the same way.")
        whole = self._explainer.name(group, place)
        what = self._name_value(found)
        who = "all records" if not any(group) else whole
        if not found.lower:
            return [*lines, f"So whoever is in {who} has {what}."]
        if found.upper == 1:
            return [*lines, f"So the only one in {who} has {what}."]
        if found.lower == found.upper:
            return [*lines, f"So all {found.lower:,} in {who} have {what}."]
        return [*lines, f"So everybody in {who} has {what}."]

    def _name_value(self, found: _Found) -> str:
        name = self.counts.schema.features[found.axis].names[found.view[found.axis] - 1]
        return f"{name} {self.counts.name_cell(found.view, found.cell)[name]}"

    def _prove_coalition(self, found: _Found) -> list[str]:
        group = _coarsen(found.view, found.axis)
        place = self.counts.find_coarser(found.view, found.cell, group)
        lines = self._explainer.explain(group, place, LOWER)
        lines += self._explainer.explain(found.view, found.cell, LOWER)
        missing = found.upper - found.lower
        who = "one member" if missing == 1 else f"{missing} members together"
        verb = "does not have it knows" if missing == 1 else "do not have it know"
        return [
            *lines,
            f"So {who} of {self._explainer.name(group, place)} who {verb} that all others there"
            f" have {self._name_value(found)}.",
        ]

    # --- a cell that is asked for -----------------------------------------------------------------

    def ask(self, levels: dict[str, str], most_rows: int = 1_000) -> DisclosureStatement:
        """Return what is known about one cell, with two tables in hand where it is not certain."""
        view, cell = self.counts.locate_cell(levels)
        bounds = self.tables.bound_cells(view, [cell])
        lower, upper = int(bounds.lower.ravel()[cell]), int(bounds.upper.ravel()[cell])
        least, most = int(bounds.least.ravel()[cell]), int(bounds.most.ravel()[cell])
        self._explainer.sources.clear()
        proof = self._explainer.explain(view, cell, LOWER) if lower else []
        if upper < UNBOUNDED:
            proof = merge_proofs(proof, self._explainer.explain(view, cell, UPPER))
        answer = Answer.undecided
        examples: tuple[tuple[dict[str, Any], ...], ...] = ()
        if lower == upper:
            answer = Answer.certain
        elif least < most:
            answer = Answer.not_certain
            examples = self._show_tables(view, cell, most_rows)
        return DisclosureStatement(
            kind=FindingKind.asked,
            cell=self.counts.name_cell(view, cell),
            lower=lower,
            upper=None if upper >= UNBOUNDED else upper,
            sharp=(lower, upper) == (least, most),
            proof=tuple(dict.fromkeys(proof)),
            answer=answer,
            tables=tuple(sorted(self._explainer.sources)),
            examples=examples,
        )

    def _show_tables(
        self, view: View, cell: int, most_rows: int
    ) -> tuple[tuple[dict[str, Any], ...], ...]:
        """Two conforming tables that differ in a cell, as rows; none where they are too long."""
        program = self.tables.find_program(view)
        if program is None:
            return ()
        if not program.find_tables(view, cell):
            program.bound(view, [cell])
        shown = []
        for table in program.find_tables(view, cell):
            rows = []
            for block, place, count in program.list_cells(table):
                rows.append({**self.counts.name_cell(block, place), "count": count})
            if len(rows) > most_rows:
                return ()
            shown.append(tuple(rows))
        return tuple(shown)


def _coarsen(view: View, axis: int) -> View:
    """Return a view without the deepest depth of one feature."""
    return (*view[:axis], view[axis] - 1, *view[axis + 1 :])


def _list_views(crossing: View, most: int) -> list[View]:
    """Return all coarser views; of too many, those of one, two and three features at their deepest
    depth, as many as may be.
    """
    axes = list_axes(crossing)
    if math.prod(crossing[axis] + 1 for axis in axes) <= most:
        views = product(*(range(depth + 1) for depth in crossing))
        return [view for view in views if any(view)]
    few: list[View] = []
    for size in range(1, _MOST_FEATURES + 1):
        for chosen in islice(combinations(axes, size), most - len(few)):
            few.append(
                tuple(crossing[axis] if axis in chosen else 0 for axis in range(len(crossing)))
            )
    return few


_MOST_CHANGES = 8
WORST = 5


@frozen(eq=False)
class TotalChange:
    """What would be certain if one exact total were not published, or only its margins.

    `instead` names the totals that would be published in its place.
    """

    without: str
    instead: tuple[str, ...]
    numbers: dict[FindingKind, int]

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain values."""
        return {
            "without": self.without,
            "instead": list(self.instead),
            "numbers": {str(kind): count for kind, count in self.numbers.items()},
        }


@define(slots=False, eq=False, repr=False)
class Disclosure:
    """What published numbers reveal by themselves.

    Parameters
    ----------
    counts
        What is published.
    effort
        The limit of work.
    insiders
        The largest coalition of members of a group.
    percent
        How close a hidden cell must be known to count as recovered.
    asked
        Cells to answer for, by feature and level.
    most
        The largest number of statements to list.
    progress
        Called with progress.

    Examples
    --------
    >>> import semidp
    >>> found = semidp.disclosure(
    ...     totals={"ward": {"A": 7, "B": 5}, ("ward", "ill"): {("A", "y"): 7, ("B", "n"): 5}}
    ... )
    >>> found.reveals
    True
    >>> print(found)
    certain: 4 everybody
    So all 5 in (ill n) have ward B.
    So all 5 in (ward B) have ill n.
    So all 7 in (ill y) have ward A.
    """

    counts: PublishedCounts
    effort: Effort = field(factory=Effort)
    insiders: int = 0
    percent: Fraction = Fraction(0)
    asked: Sequence[Mapping[str, str]] = ()
    most: int = LISTED
    progress: Progress = silent

    @classmethod
    def from_dataspace(cls, dataspace: Dataspace) -> "Disclosure":
        """Return what exact totals reveal, as far as quick work finds it, independent of the
        machine.
        """
        return cls(PublishedCounts.from_dataspace(dataspace), QUICK, most=WORST)

    @cached_property
    def findings(self) -> CertainFindings:
        """What is certain."""
        tables = ConformingTables(self.counts, self.effort, self.progress)
        if any(table.hidden is not None for table in self.counts.tables):
            tables.narrowing  # noqa: B018  (refuses tables that contradict each other)
        return CertainFindings(tables, self.insiders, self.percent)

    @property
    def numbers(self) -> dict[FindingKind, int]:
        """How many certain statements of each kind there are."""
        return self.findings.numbers

    @property
    def reveals(self) -> bool:
        """Whether somebody's value is known for certain."""
        return any(self.numbers.get(kind) for kind in REVEALING)

    @cached_property
    def answers(self) -> list[DisclosureStatement]:
        """What is known about the cells that were asked for."""
        return [self.findings.ask(dict(levels)) for levels in self.asked]

    @cached_property
    def statements(self) -> list[DisclosureStatement]:
        """The worst statements, with their proofs."""
        return self.findings.list_statements(self.most)

    @cached_property
    def changes(self) -> list[TotalChange]:
        """What would be certain without one of the totals, or with its margins instead."""
        sources = {table.source for table in self.counts.tables}
        if sources != {EXACT_TOTALS} or len(self.counts.cliques) > _MOST_CHANGES:
            return []
        changes = []
        for view in self.counts.cliques:
            if not any(view):
                continue
            options: list[tuple[View, ...]] = [()]
            if len(list_axes(view)) > 1 or max(view) > 1:
                options.append(tuple(_parts(view)))
            numbers: list[dict[FindingKind, int]] = []
            for instead in options:
                left = self.counts.without_view(view, instead)
                numbers.append(CertainFindings(ConformingTables(left, QUICK)).numbers)
                names = tuple(self._name(part) for part in instead)
                # The parts are worth a line of their own where they tell more than nothing.
                if numbers[-1] not in numbers[:-1]:
                    changes.append(TotalChange(self._name(view), names, numbers[-1]))
        return changes

    def _name(self, view: View) -> str:
        return str(Margin(*self.counts.schema.list_view_names(view)))

    def __repr__(self) -> str:
        """How many statements are certain, and the worst ones in words."""
        numbers = ", ".join(f"{count} {kind}" for kind, count in self.numbers.items() if count)
        worst = [statement.proof[-1] for statement in self.statements[:_SHOWN]]
        return "\n".join([f"certain: {numbers or 'nothing'}", *worst])

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        document: dict[str, Any] = {
            "published": [self._name(view) for view in self.counts.cliques],
            "numbers": {str(kind): count for kind, count in self.numbers.items()},
            "crossing": self.findings.count_cells(),
            "reveals": self.reveals,
            "statements": [statement.to_json() for statement in (*self.answers, *self.statements)],
            "changes": [change.to_json() for change in self.changes],
        }
        return document


def _parts(view: View) -> list[View]:
    """Return the views that name one depth less of one feature."""
    return [(*view[:axis], view[axis] - 1, *view[axis + 1 :]) for axis in list_axes(view)]


def read_totals(plan: Plan, source: Source) -> Dataspace:
    """Return the exact totals of a plan, read from data: these and nothing else."""
    schema, _ = read_schema(plan, source)
    reader = Reader(schema, source, plan.features)
    margins = normalize_margins(schema, plan.invariants)
    n = reader.table(schema.names[:1]).n if not margins else None
    tables: Iterable[Any] = reader.tables(margin.names for margin in margins)
    return Dataspace.from_totals(schema, dict(zip(margins, tables, strict=True)), n)

"""One answer to what published numbers give away: counts, the worst statements, and what leaving
one total out would change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from semidp.assess.disclosure.conforming import ConformingTables
from semidp.assess.disclosure.findings import (
    LISTED,
    REVEALING,
    CertainFindings,
    DisclosureStatement,
    FindingKind,
)
from semidp.assess.disclosure.program_bounds import QUICK, Effort
from semidp.assess.disclosure.published_counts import EXACT_TOTALS, PublishedCounts
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins
from semidp.publish.plan import Plan
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.survey import read_schema

_MOST_CHANGES = 8
WORST = 5


@dataclass(frozen=True, eq=False)
class TotalChange:
    """What would be certain if one exact total were not published, or only its parts.

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


@dataclass(eq=False)
class Disclosure:
    """What published numbers give away by themselves.

    Parameters
    ----------
    counts
        What is published.
    effort
        How much work it may take.
    insiders
        The largest coalition of members of a group.
    percent
        How close a hidden cell must be known to count as recovered.
    asked
        Cells that are asked for, by feature and level.
    most
        How many statements are listed.
    progress
        Told how far the work is.

    Examples
    --------
    >>> import semidp
    >>> found = semidp.disclosure(
    ...     totals={"ward": {"A": 7, "B": 5}, ("ward", "ill"): {("A", "y"): 7, ("B", "n"): 5}}
    ... )
    >>> found.reveals
    True
    >>> print(found.statements[0].proof[-1])
    So all 5 in (ill n) have ward B.
    """

    counts: PublishedCounts
    effort: Effort = field(default_factory=Effort)
    insiders: int = 0
    percent: Fraction = Fraction(0)
    asked: Sequence[Mapping[str, str]] = ()
    most: int = LISTED
    progress: Progress = silent

    @classmethod
    def from_dataspace(cls, dataspace: Dataspace) -> "Disclosure":
        """Return what exact totals give away, as far as quick work that does not depend on the
        machine finds it.
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
        """What is known of the cells that were asked for."""
        return [self.findings.ask(dict(levels)) for levels in self.asked]

    @cached_property
    def statements(self) -> list[DisclosureStatement]:
        """The worst statements, with their proofs."""
        return self.findings.list_statements(self.most)

    @cached_property
    def changes(self) -> list[TotalChange]:
        """What would be certain without one of the totals, or with its parts in its place."""
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

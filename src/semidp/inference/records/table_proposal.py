"""Which tables to ask for so that records know most: from levels, the number of records and the
budget alone.

Nothing confidential is read. A choice that looks at the data to find pairs that hang together would
spend budget, and is not made here.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from semidp.errors import InputError
from semidp.promise.documents import Encodable
from semidp.promise.guarantee import Scope
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.residual_mechanism import ResidualMechanism

_TAKEN_OUT = 3  # of the tables in which noise dominates a third, the worst, is left out at a time
_MOST_TABLES = 2_000


@dataclass(frozen=True)
class ProposedTable(Encodable):
    """A table as it would be published beside the others.

    Parameters
    ----------
    features, cells
        What it counts.
    error
        The standard error of a cell, as a root mean square.
    mean_count
        The records over the cells: what an average cell holds.
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {"error": "standard_error"}

    features: tuple[str, ...]
    cells: int
    error: float
    mean_count: float

    @property
    def is_dominated(self) -> bool:
        """Whether the noise of an average cell is larger than its count."""
        return self.error > self.mean_count


@dataclass(frozen=True)
class TableProposal(Encodable):
    """Tables to ask for, and pairs that are better left out.

    Parameters
    ----------
    tables
        What to ask for, with the errors that it would have.
    left_out
        Pairs in which noise would dominate: beside all that was proposed with them.
    exact
        Pairs that exact totals give.
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {"tables": "proposed"}

    tables: tuple[ProposedTable, ...]
    left_out: tuple[ProposedTable, ...]
    exact: tuple[tuple[str, ...], ...]


def propose_tables(scope: Scope, names: Sequence[str], budget: Budget) -> TableProposal:
    """Propose all pairs of some features, less those in which noise would dominate.

    The standard errors are those of one release of all proposed tables from the budget. The worst
    of the tables whose average cell is smaller than its error are left out, the noise is placed
    anew, and so on. A feature that is left in no table and in no exact total keeps a table of its
    own.

    Parameters
    ----------
    scope
        What is public: features, exact totals, the number of records, the adjacency.
    names
        The features that records shall have.
    budget
        What all tables may spend together.

    Examples
    --------
    >>> import semidp
    >>> features = [
    ...     semidp.Feature("sex", "fm"),
    ...     semidp.Feature("age", "abc"),
    ...     semidp.Feature("code", range(900)),
    ... ]
    >>> schema = semidp.Schema(features)
    >>> ones = semidp.Table(schema.restrict(["sex"]), [500, 500])
    >>> space = semidp.Dataspace.from_totals(schema, {semidp.Margin("sex"): ones})
    >>> from semidp.promise.guarantee import Scope
    >>> scope = Scope(space, None, semidp.Ball(2))
    >>> proposal = propose_tables(scope, ["sex", "age", "code"], semidp.Budget.gdp(1))
    >>> [table.features for table in proposal.tables]
    [('sex', 'age'), ('code',)]
    """
    schema = scope.dataspace.schema
    axes = dict.fromkeys(schema.axis(name) for name in names)
    if len(axes) < 2:
        raise InputError(
            "pairs need two features or more: name all of them as the features of one table"
        )
    full = schema.view(names)
    views = [_pair(full, pair) for pair in itertools.combinations(axes, 2)]
    if len(views) > _MOST_TABLES:
        raise InputError(f"{len(views):,} pairs are too many to weigh: name at most 60 features")
    exact = [view for view in views if _is_published(scope, view)]
    kept = [view for view in views if view not in exact]
    left_out: list[ProposedTable] = []
    while True:
        alone = _list_missing_features(scope, full, list(axes), [*kept, *exact])
        tables = _estimate_tables(scope, budget, [*kept, *alone])
        dominated = [table for table in tables[: len(kept)] if table.is_dominated]
        if not dominated:
            break
        dominated.sort(key=lambda table: table.mean_count / table.error)
        worst = dominated[: max(1, len(dominated) // _TAKEN_OUT)]
        left_out += worst
        # The noise is placed anew for those that are left: their errors fall.
        gone = {schema.view(table.features) for table in worst}
        kept = [view for view in kept if view not in gone]
    given_exactly = tuple(schema.list_view_names(view) for view in exact)
    return TableProposal(tuple(tables), tuple(left_out), given_exactly)


def _pair(full: View, axes: tuple[int, ...]) -> View:
    return tuple(depth if axis in axes else 0 for axis, depth in enumerate(full))


def _is_published(scope: Scope, view: View) -> bool:
    """Whether exact totals give a table."""
    return scope.dataspace.publishes(Margin(*scope.dataspace.schema.list_view_names(view)))


def _list_missing_features(
    scope: Scope, full: View, axes: list[int], views: list[View]
) -> list[View]:
    """Tables of single features that no table has, and no exact total."""
    reached = {axis for view in views for axis in list_axes(view)}
    single = [_pair(full, (axis,)) for axis in axes if axis not in reached]
    return [view for view in single if not _is_published(scope, view)]


def _estimate_tables(scope: Scope, budget: Budget, views: list[View]) -> list[ProposedTable]:
    """Tables with the errors that they would have, all from one budget."""
    if not views:
        return []
    schema = scope.dataspace.schema
    requested = [schema.list_view_names(view) for view in views]
    mechanism = ResidualMechanism.calibrate(
        product_space(scope.dataspace, scope.adjacency, requested), budget
    )
    tables = []
    for number, (view, names) in enumerate(zip(views, requested, strict=True)):
        cells = schema.grid.count_margin_cells(view)
        error = mechanism.rms_error(number)
        tables.append(ProposedTable(names, cells, error, scope.dataspace.n / cells))
    return tables

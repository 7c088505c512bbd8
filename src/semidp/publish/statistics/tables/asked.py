"""Tables as a user describes them, and the properties of a request that follow from that alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import Number, exact, positive
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.placement import Objective
from semidp.publish.results.published_table import UNNAMED, FitKind, file_stem
from semidp.publish.selection import AUTO
from semidp.publish.statistics.protocol.requests import (
    PlanEntry,
    Request,
    checked_budget,
    file_name,
    mechanism_name,
    member,
)
from semidp.publish.written_values import texts

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.requests import Request

SHARED_NAME = "product"
"""The name of tables that share a budget: in a ledger, in release.json, and in the file of
measurements."""
NO_OBJECTIVE = "an objective is for several tables that share a budget other than pure epsilon"

UNITS_PREFIX = "units-"
"""The prefix of the files of tables of units."""
COMMAND_PREFIX = "units:"
"""The prefix of a table of units in a request."""
MEASUREMENTS = "product-measurements"
"""The name of the file of measurements of several tables, without its ending."""

_LARGEST_WEIGHT = Fraction(10**100)  # weights are compared in floating point


def _weight(value: Number) -> Fraction:
    weight = positive(value, "the weight of a table")
    if not 1 / _LARGEST_WEIGHT <= weight <= _LARGEST_WEIGHT:
        raise InputError("the weight of a table must lie between 1e-100 and 1e100")
    return weight


def _target(value: Number | None) -> Fraction | None:
    return None if value is None else positive(value, "the target error of a table")


def _table_features(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the features of a table")


def _fit(value: FitKind | str) -> FitKind:
    return member(FitKind, value, "fit")


@frozen
class TableRequest(PlanEntry):
    """One table of counts, as a user describes it: its features, how to measure and how to fit it.

    It is not a request itself: a plan puts every table into a `TablesRequest`, which is measured
    and published. A table with a budget is measured alone, in a request of its own. Tables without
    one share the budget of the plan. Instead of a budget a table may have a target: the largest
    standard error of its estimates. `prepare` finds the least budget that meets all targets
    together.

    >>> TableRequest(("sex", "region"), Budget.pure(1)).name
    'table'
    >>> TableRequest("sex,region")
    Traceback (most recent call last):
    semidp.errors.InputError: the features of a table are a list such as ["sex", "region"], not
    'sex,region'
    """

    key: ClassVar[str] = "table"
    _needs: ClassVar[Mapping[str, str]] = {"features": '["…", …]'}

    features: tuple[str, ...] = field(converter=_table_features)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    fit: FitKind = field(default=FitKind.integer, converter=_fit)
    name: str = field(default=UNNAMED, converter=file_name)
    weight: Fraction = field(default=Fraction(1), converter=_weight)
    target_error: Fraction | None = field(default=None, converter=_target)

    def __attrs_post_init__(self) -> None:
        if not self.features:
            raise InputError("a table to release needs at least one feature", needs="table")
        if len(set(self.features)) < len(self.features):
            raise InputError(f"the table names a feature twice: {', '.join(self.features)}")
        if self.budget is not None and self.weight != 1:
            raise InputError(
                f"the table {self.name!r} has a budget of its own: a weight is for tables that"
                " share one"
            )
        if self.budget is not None and self.target_error is not None:
            raise InputError(
                f"the table {self.name!r} has a budget and a target error: give one of them"
            )


def called_after_features(tables: Iterable[TableRequest]) -> list[TableRequest]:
    """Return tables that share a budget; unnamed ones are named after their features."""
    named = []
    for table in tables:
        unnamed = table.name == UNNAMED
        named.append(evolve(table, name=file_stem(table.features)) if unnamed else table)
    return named


def with_numbers(
    tables: Sequence[TableRequest], field: str, option: str, numbers: Mapping[str, str]
) -> tuple[TableRequest, ...]:
    """Return tables with numbers from an option that names tables by their features.

    >>> tables = [TableRequest(["sex", "age"]), TableRequest(["sex", "region"])]
    >>> [
    ...     str(table.weight)
    ...     for table in with_numbers(tables, "weight", "⟨weight⟩", {"region,sex": "4"})
    ... ]
    ['1', '4']
    """
    # Features name the same table in any order.
    asked = {frozenset(table.features) for table in tables}
    said: dict[frozenset[str], dict[str, Any]] = {}
    for names, text in numbers.items():
        key = frozenset(name.strip() for name in names.split(","))
        if key not in asked:
            listed = "; ".join(",".join(table.features) for table in tables) or "none"
            raise InputError(
                f"{option} names {names}: no table that shares the budget has these features"
                f" ({listed})"
            )
        if key in said:
            raise InputError(f"{option} is given twice for the table {names}: keep one")
        said[key] = {field: exact(text, option)}
    return tuple(evolve(table, **said.get(frozenset(table.features), {})) for table in tables)


def largest_excess(
    tables: Sequence[TableRequest], errors: Callable[[int], NDArray[np.float64]]
) -> float:
    """Return by what factor the worst error of a table exceeds its target; `errors`
    are those of the cells of a table, by its number.
    """
    ratios = [0.0]
    for number, table in enumerate(tables):
        if table.target_error is not None:
            ratios.append(float(errors(number).max(initial=0.0)) / float(table.target_error))
    return max(ratios)


def _tables(value: Iterable[TableRequest]) -> tuple[TableRequest, ...]:
    tables = tuple(value)
    if not all(isinstance(table, TableRequest) for table in tables):
        raise InputError("the tables that share a budget are a list of TableRequest")
    return tuple(called_after_features(tables)) if len(tables) > 1 else tables


def _objective(value: Objective | str) -> Objective:
    if str(value) not in list(Objective):
        raise InputError(f"the objective must be one of {', '.join(Objective)}, not {value!r}")
    return Objective(str(value))


def table_stems(name: str) -> tuple[str, str]:
    """Return the names of the files of a table, without endings: its published counts, and its
    measurements.

    >>> table_stems("table"), table_stems("income")
    (('table', 'measurements'), ('income', 'income-measurements'))
    """
    return name, "measurements" if name == "table" else f"{name}-measurements"


def measurements_stem(request: "Request | TablesAsked") -> str:
    """Return the name of the file of a request's measurements, without its ending."""
    return request.files[-1].removesuffix(".csv")


@frozen
class TablesAsked(Request):
    """Tables that share a budget, independent of how they are measured; see
    `request.TablesRequest`.
    """

    tables: tuple[TableRequest, ...] = field(converter=_tables)
    budget: Budget | None = field(default=None, converter=checked_budget)
    objective: Objective = field(default=Objective.total, converter=_objective)

    def __attrs_post_init__(self) -> None:
        if not self.tables:
            raise InputError("tables that share a budget are at least one table", needs="table")
        for table in self.tables:
            if table.budget is not None:
                raise InputError(
                    f"the table {table.name!r} has a budget of its own: leave it out of those that"
                    " share"
                )
        if self.budget is None:
            return
        if not self.is_single_table:
            self._refuse_several(self.budget)
        elif self.only.weight != 1 or self.only.target_error is not None:
            evolve(self.only, budget=self.budget)  # which says what does not go together
        elif self.objective is not Objective.total:
            raise InputError(NO_OBJECTIVE)

    def _refuse_several(self, budget: Budget) -> None:
        for table in self.tables:
            if table.target_error is not None:
                raise InputError(
                    f"the table {table.name!r} has a target error and a shared budget: give one of"
                    " them"
                )
            if table.mechanism != AUTO:
                raise InputError(
                    f"tables that share a budget are measured together, so that {table.name!r} has"
                    " no mechanism of its own: leave the mechanism out, or give the table a budget"
                )
        # Residuals are priced by squared lengths, which prove nothing for pure epsilon.
        if budget.kind == "pure":
            raise InputError(
                "tables share a zCDP, GDP or (epsilon, delta) budget: with pure epsilon give each a"
                " budget of its own"
            )

    @property
    def is_single_table(self) -> bool:
        """Whether it has only one table."""
        return len(self.tables) == 1

    @property
    def only(self) -> TableRequest:
        """The table of a request for one."""
        (table,) = self.tables
        return table

    @property
    def key(self) -> str:
        """``table`` for one table, ``product`` for several, as in machine-readable output."""
        return TableRequest.key if self.is_single_table else SHARED_NAME

    @property
    def name(self) -> str:
        """The name of the table, or of all tables together."""
        return self.only.name if self.is_single_table else SHARED_NAME

    @property
    def share_name(self) -> str:
        """Its name in a division of the budget: all tables together get one share."""
        return "tables"

    @property
    def mechanism(self) -> str:
        """The mechanism of a table alone; several are measured on their residuals."""
        return self.only.mechanism if self.is_single_table else AUTO

    @property
    def features(self) -> tuple[str, ...]:
        """The features that the tables use."""
        return tuple(dict.fromkeys(name for table in self.tables for name in table.features))

    @property
    def files(self) -> tuple[str, ...]:
        """A file for each table, and the measurements."""
        if self.is_single_table:
            return tuple(f"{stem}.csv" for stem in table_stems(self.only.name))
        return (*(f"{table.name}.csv" for table in self.tables), f"{MEASUREMENTS}.csv")

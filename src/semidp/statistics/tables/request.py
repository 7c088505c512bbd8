"""Requests for tables: one with a budget of its own, or several that share one."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from attrs.validators import instance_of
from numpy.typing import NDArray

from semidp.core.checks import texts
from semidp.core.exact import Number, positive
from semidp.core.progress import Progress
from semidp.core.scope import Scope
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError
from semidp.mechanisms.base import Measurement, Mechanism
from semidp.mechanisms.residuals import Objective, ResidualMechanism
from semidp.mechanisms.selection import AUTO, table_mechanism
from semidp.queries.base import QuerySpace
from semidp.queries.products import ProductSpace, product_space
from semidp.queries.tables import sensitivity_space
from semidp.sources.reader import Reader
from semidp.statistics.protocol import (
    Forecast,
    OwnBudget,
    budget_of,
    checked_budget,
    file_name,
    mechanism_name,
    member,
    noise_values,
)
from semidp.statistics.tables.fitting import published_product
from semidp.statistics.tables.forecast import TableForecast, forecasts, noise_lines, shared_json
from semidp.statistics.tables.product_words import together_words
from semidp.statistics.tables.published import (
    MEASUREMENTS,
    FitKind,
    PublishedProduct,
    PublishedTable,
    published_table,
    table_stems,
)


def _weight(value: Number) -> Fraction:
    return positive(value, "the weight of a table")


def _target(value: Number | None) -> Fraction | None:
    return None if value is None else positive(value, "the target error of a table")


def _table_features(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the features of a table")


def _fit(value: FitKind | str) -> FitKind:
    return member(FitKind, value, "fit")


@frozen
class TableRequest(OwnBudget):
    """One table to release: its features, its share of the privacy budget, how to measure and how to fit.

    Instead of a budget a table may have a target: the largest standard error of its estimates. `prepare` finds the
    least budget that meets it, together with the other tables that have none.

    >>> TableRequest(("sex", "region"), Budget.pure(1)).name
    'table'
    >>> TableRequest("sex,region")
    Traceback (most recent call last):
    semidp.errors.InputError: the features of a table are a list such as ["sex", "region"], not 'sex,region'
    """

    key: ClassVar[str] = "table"
    _written: ClassVar[tuple[str, ...]] = ("name", "features", "budget", "mechanism", "fit", "weight", "target_error")
    _needs: ClassVar[Mapping[str, str]] = {"features": '["…", …]'}

    features: tuple[str, ...] = field(converter=_table_features)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    fit: FitKind = field(default=FitKind.integer, converter=_fit)
    name: str = field(default="table", converter=file_name)
    weight: Fraction = field(default=Fraction(1), converter=_weight)
    target_error: Fraction | None = field(default=None, converter=_target)

    def __attrs_post_init__(self) -> None:
        if not self.features:
            raise InputError("a table to release needs at least one feature", needs="table")
        if len(set(self.features)) < len(self.features):
            raise InputError(f"the table names a feature twice: {', '.join(self.features)}")
        if self.budget is not None and self.weight != 1:
            raise InputError(f"the table {self.name!r} has a budget of its own: a weight is for tables that share one")
        if self.budget is not None and self.target_error is not None:
            raise InputError(f"the table {self.name!r} has a budget and a target error: give one of them")

    @property
    def files(self) -> tuple[str, ...]:
        """Its published counts, and its measurements."""
        return tuple(f"{stem}.csv" for stem in table_stems(self.name))

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the table."""
        return sensitivity_space(scope.dataspace, scope.adjacency, self.features)

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one that announces the least variance."""
        return table_mechanism(space, budget_of(self), self.mechanism)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return the errors of the table beside the counts that are to be expected."""
        return forecasts([self], mechanism, scope)

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[TableForecast]) -> list[str]:
        """Say with what noise the table would be measured."""
        return noise_lines(foreseen, mechanism, " by ".join(self.features))

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[TableForecast]) -> dict[str, Any]:
        """Return the table that is foreseen with its noise, as plain values."""
        return {**foreseen[0].to_json(), **noise_values(mechanism)}

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the counts of the table, or its residuals where those are measured."""
        return space.values(reader.table(self.features))

    def publish(self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress) -> PublishedTable:
        """Fit the measurement to the exact totals."""
        return published_table(self.name, self.features, self.fit, mechanism, measured, scope, progress)


def called_after_features(tables: Iterable[TableRequest]) -> list[TableRequest]:
    """Return tables that share a budget, unnamed ones called after their features."""
    return [evolve(table, name=called_after(table.features)) if table.name == "table" else table for table in tables]


def called_after(features: Iterable[str]) -> str:
    """Return features joined as the name of files, without what no file may be called."""
    name = re.sub(r"[/\\\0]", "_", "-".join(features))
    return f"_{name[1:]}" if name.startswith(".") else name


def _tables(value: Iterable[TableRequest]) -> tuple[TableRequest, ...]:
    found = tuple(value)
    if not all(isinstance(table, TableRequest) for table in found):
        raise InputError("the tables of a product are a list of TableRequest")
    return tuple(called_after_features(found))


def _objective(value: Objective | str) -> Objective:
    if str(value) not in list(Objective):
        raise InputError(f"the objective must be one of {', '.join(Objective)}, not {value!r}")
    return Objective(str(value))


@frozen
class ProductRequest:
    """Several tables from one budget that all add up.

    Parameters
    ----------
    tables
        The tables, without budgets of their own; unnamed ones are called after their features.
    budget
        What all of them may spend together: zCDP, GDP or (ε, δ).
    objective
        Whether the total variance of all tables is least (each table's times its weight), or the largest standard
        error.

    Examples
    --------
    >>> tables = [TableRequest(["sex", "age"]), TableRequest(["sex", "region"], weight=4)]
    >>> request = ProductRequest(tables, Budget.gdp(1))
    >>> [table.name for table in request.tables], request.files[:2]
    (['sex-age', 'sex-region'], ('sex-age.csv', 'sex-region.csv'))
    """

    key: ClassVar[str] = "product"

    tables: tuple[TableRequest, ...] = field(converter=_tables)
    budget: Budget = field(validator=instance_of(Budget))
    objective: Objective = field(default=Objective.total, converter=_objective)

    name: ClassVar[str] = "product"
    mechanism: ClassVar[str] = AUTO

    def __attrs_post_init__(self) -> None:
        if not self.tables:
            raise InputError("a product needs tables", needs="table")
        for table in self.tables:
            if table.budget is not None:
                raise InputError(f"the table {table.name!r} has a budget of its own: leave it out of the product")
            if table.target_error is not None:
                raise InputError(f"the table {table.name!r} has a target error and a shared budget: give one of them")
            if table.mechanism != AUTO:
                raise InputError(
                    f"tables that share a budget are measured together, so that {table.name!r} has no mechanism of its "
                    "own: leave the mechanism out, or give the table a budget"
                )
            if table.fit is FitKind.real:
                raise InputError("tables that share a budget are fitted in whole numbers, or not at all: integer, none")
        if self.budget.kind == "pure":
            raise InputError(
                "tables share a zCDP, GDP or (epsilon, delta) budget: with pure epsilon give each a budget of its own"
            )

    @property
    def features(self) -> tuple[str, ...]:
        """The features that the tables use."""
        return tuple(dict.fromkeys(name for table in self.tables for name in table.features))

    @property
    def budget_name(self) -> str:
        """What they are called where a budget is divided."""
        return f"{len(self.tables)} tables together"

    @property
    def files(self) -> tuple[str, ...]:
        """A file for each table, and the measurements."""
        return (*(f"{table.name}.csv" for table in self.tables), f"{MEASUREMENTS}.csv")

    def space(self, scope: Scope) -> ProductSpace:
        """Return the residuals of the tables."""
        return product_space(scope.dataspace, scope.adjacency, [table.features for table in self.tables])

    def calibrate(self, space: QuerySpace) -> ResidualMechanism:
        """Place the noise on the residuals."""
        weights = [float(table.weight) for table in self.tables]
        return ResidualMechanism.calibrate(space, self.budget, weights, self.objective)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return the errors of each table beside the counts that are to be expected."""
        return forecasts(self.tables, mechanism, scope)

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[TableForecast]) -> list[str]:
        """Say with what noise the tables would be measured."""
        return noise_lines(foreseen, mechanism, together_words(len(self.tables)))

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[TableForecast]) -> dict[str, Any]:
        """Return the noise and the tables that are foreseen, as plain values."""
        return {**noise_values(mechanism), "tables": shared_json(foreseen)}

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the residuals of the confidential tables."""
        assert isinstance(space, ProductSpace)
        return space.measure(reader.tables(table.features for table in self.tables))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> "PublishedProduct":
        """Put the tables together and fit whole numbers to them."""
        assert isinstance(mechanism, ResidualMechanism)
        return published_product(self, mechanism, measured, scope, progress)

    def with_budget(self, budget: Budget) -> "ProductRequest":
        """Return the request with another budget."""
        return evolve(self, budget=budget)

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values: what a plan has at its top, and its tables."""
        own = {} if self.objective is Objective.total else {"objective": str(self.objective)}
        return {**self.budget.keys(), **own, "table": [table.to_json() for table in self.tables]}


def all_of(features: Iterable[str], order: int | None = None) -> list[TableRequest]:
    """Return the tables over all sets of `order` features (2 unless said); none for no features.

    >>> [table.name for table in all_of(["sex", "age", "region"])]
    ['sex-age', 'sex-region', 'age-region']
    """
    names = texts(features, "the features of which all tables are wanted")
    size = 2 if order is None else order
    if order is not None and not names:
        raise InputError("an order needs the features of which all tables are wanted: give all_of")
    if not names:
        return []
    if size == 2 and len(names) < 2:
        raise InputError(f"a table for each pair of features needs two or more, not {names[0]} alone")
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= len(names):
        raise InputError(f"the order of all tables of {len(names)} features is a whole number from 1 to {len(names)}")
    return [TableRequest(chosen, name=called_after(chosen)) for chosen in itertools.combinations(names, size)]


def tables_for(
    tables: Iterable[TableRequest], budget: Budget
) -> tuple[tuple[TableRequest, ...], "ProductRequest | None"]:
    """Return how tables share a budget: one has it alone, several make a product; pure epsilon is split evenly.

    >>> tables_for([TableRequest(["sex"])], Budget.gdp(1))[0][0].name
    'table'
    """
    wanted = tuple(tables)
    if len(wanted) < 2:
        return tuple(table.with_budget(budget) for table in wanted), None
    if budget.kind == "pure":
        return tuple(table.with_budget(budget.shared(len(wanted))) for table in _tables(wanted)), None
    return (), ProductRequest(wanted, budget)

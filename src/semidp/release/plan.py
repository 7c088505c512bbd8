"""A plan: everything about a release that can be decided before the data are read.

A `Plan` is a frozen value with a TOML and a JSON form; it holds no data and no address, so that it can be reviewed,
kept and reused. What it does to data is in `run`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from semidp.errors import InputError, SchemaError
from semidp.exact import exact, plain
from semidp.files import toml_text
from semidp.invariants import Margin
from semidp.mechanisms import NAMES
from semidp.tables import Feature, Schema, StructuralZero
from semidp.tradeoff import Budget

AUTO = "auto"
"""The mechanism that a plan names to leave the choice to the expected loss."""

_BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")


class Reading(StrEnum):
    """Which reading of the semi-adjacent parameter a(t) sets the adjacency."""

    worst_case = "worst-case"
    definition = "definition"


class FitKind(StrEnum):
    """What is published: whole numbers that add up, real ones that do, or the measurement itself."""

    integer = "integer"
    real = "real"
    none = "none"


@dataclass(frozen=True)
class TableRequest:
    """One table to release: its features, its share of the privacy budget, how to measure and how to fit.

    >>> TableRequest(("sex", "region"), Budget.pure(1)).name
    'table'
    """

    features: tuple[str, ...]
    budget: Budget | None = None
    mechanism: str = AUTO
    fit: FitKind = FitKind.integer
    name: str = "table"

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "fit", _member(FitKind, self.fit, "fit"))
        if not self.features:
            raise InputError("a table to release needs at least one feature: name them with --table a,b")
        if len(set(self.features)) < len(self.features):
            raise InputError(f"the table names a feature twice: {', '.join(self.features)}")
        if self.mechanism != AUTO and self.mechanism not in NAMES:
            raise InputError(f"there is no mechanism {self.mechanism!r}; there are {AUTO}, {', '.join(NAMES)}")
        if not self.name or set(self.name) & set("/\\\0") or self.name.startswith("."):
            raise InputError(f"{self.name!r} cannot name a table: its files are called after it")

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""
        return {
            "name": self.name,
            "features": list(self.features),
            **_budget_json(self.budget),
            "mechanism": self.mechanism,
            "fit": str(self.fit),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TableRequest":
        """Read what `to_json` wrote, or one ``[[table]]`` of a plan file."""
        known = {"name", "features", "mechanism", "fit", *_BUDGET_KEYS}
        _only(value, known, "a table of a plan")
        if "features" not in value:
            raise InputError('a table of a plan needs features = ["…", …]')
        return cls(
            tuple(value["features"]),
            budget_from(value),
            value.get("mechanism", AUTO),
            value.get("fit", FitKind.integer),
            value.get("name", "table"),
        )


@dataclass(frozen=True)
class Plan:
    """What to publish exactly, what to publish with noise, and how the data are to be read.

    Parameters
    ----------
    tables
        The tables to release, each with its own budget; all stand under the same invariants.
    invariants
        The margins published exactly; none means that only the number of records is.
    features
        The declared features: levels, bins, null level. A feature that an invariant covers may be left out: the
        invariant publishes its levels.
    structural_zeros
        Combinations of levels that cannot occur.
    adjacency
        Which reading of a(t) to use, or a number of records.
    count, where, id
        The column of counts, the condition on records, and the column that identifies a person.
    levels_from_data
        Read undeclared levels of unpublished features from the data; the report then says that this is a disclosure.
    report_delta
        The delta at which a guarantee without one is restated as (epsilon, delta).

    Examples
    --------
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.zcdp("1/2"))], [Margin("sex"), Margin("region")])
    >>> Plan.from_toml(plan.to_toml()) == plan
    True
    """

    tables: tuple[TableRequest, ...] = ()
    invariants: tuple[Margin, ...] = ()
    features: tuple[Feature, ...] = ()
    structural_zeros: tuple[StructuralZero, ...] = ()
    adjacency: Reading | int = Reading.worst_case
    count: str | None = None
    where: str | None = None
    id: str | None = None
    levels_from_data: bool = False
    report_delta: Fraction = field(default=Fraction(1, 10**9))

    def __post_init__(self) -> None:
        for name in ("tables", "invariants", "features", "structural_zeros"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "adjacency", adjacency_from(self.adjacency))
        declared = {feature.name for feature in self.features}
        if any(name not in declared for zero in self.structural_zeros for name, _ in zero.levels):
            raise SchemaError("structural zeros need the features that they name: declare their levels")
        delta = exact(self.report_delta, "the reporting delta")
        if not 0 < delta < 1:
            raise InputError(f"the reporting delta must lie between 0 and 1, not {plain(delta)}")
        object.__setattr__(self, "report_delta", delta)
        names = [file.casefold() for table in self.tables for file in file_names(table.name)]
        if len(set(names)) < len(names):
            raise InputError("two tables of the plan have the same name, or their files would: give each its own")

    @property
    def names(self) -> tuple[str, ...]:
        """Every feature that the plan uses, in order of first mention."""
        used = [name for table in self.tables for name in table.features]
        used += [name for margin in self.invariants for name in margin.names]
        return tuple(dict.fromkeys(used))

    def with_budget(self, budget: Budget) -> "Plan":
        """Return the plan with this budget for every table that has none of its own."""
        tables = (replace(table, budget=table.budget or budget) for table in self.tables)
        return replace(self, tables=tuple(tables))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values; `from_json` reads them back."""
        schema = {
            "feature": [Schema((feature,)).to_json()["feature"][0] for feature in self.features],
            "structural_zero": [{name: list(ls) for name, ls in zero.levels} for zero in self.structural_zeros],
        }
        document = {
            "invariants": [list(margin.names) for margin in self.invariants],
            "adjacency": self.adjacency if isinstance(self.adjacency, int) else str(self.adjacency),
            "count": self.count,
            "where": self.where,
            "id": self.id,
            "levels_from_data": self.levels_from_data,
            "report_delta": plain(self.report_delta),
            "table": [table.to_json() for table in self.tables],
            **schema,
        }
        return {key: value for key, value in document.items() if value not in (None, [], False)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        """Read what `to_json` wrote."""
        known = {
            *("invariants", "adjacency", "count", "where", "id", "levels_from_data", "report_delta"),
            *("table", "feature", "structural_zero"),
        }
        _only(value, known, "a plan")
        schema = {key: value[key] for key in ("feature", "structural_zero") if key in value}
        features, zeros = _declared(schema)
        try:
            return cls(
                tables=tuple(TableRequest.from_json(entry) for entry in value.get("table", ())),
                invariants=tuple(Margin(*names) for names in value.get("invariants", ())),
                features=features,
                structural_zeros=zeros,
                **{key: value[key] for key in known - {"table", "invariants", *schema} if key in value},
            )
        except (TypeError, AttributeError):
            raise InputError("the plan does not have the form that semidp writes: see docs/tutorial.md") from None

    def to_toml(self) -> str:
        """Write the plan as TOML."""
        return toml_text(self.to_json())

    @classmethod
    def from_toml(cls, text: str) -> "Plan":
        """Read a plan from TOML text."""
        try:
            return cls.from_json(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"the plan is not valid TOML: {error}") from None


def file_names(table: str) -> tuple[str, str]:
    """Return what the files of a table are called: its published counts, and its measurements.

    >>> file_names("table"), file_names("income")
    (('table.csv', 'measurements.csv'), ('income.csv', 'income-measurements.csv'))
    """
    return f"{table}.csv", "measurements.csv" if table == "table" else f"{table}-measurements.csv"


def adjacency_from(choice: Reading | int | str) -> Reading | int:
    """Read an adjacency: ``worst-case``, ``definition``, or a number of records of at least 1.

    >>> adjacency_from("3"), adjacency_from("worst-case")
    (3, <Reading.worst_case: 'worst-case'>)
    """
    text = str(choice)
    if text in list(Reading):
        return Reading(text)
    if text.isdigit() and int(text) >= 1:
        return int(text)
    raise InputError(f"the adjacency must be worst-case, definition or a whole number of at least 1, not {text!r}")


def budget_from(value: Mapping[str, Any]) -> Budget | None:
    """Read a budget from its parts: one of epsilon (with delta or without), rho or mu.

    >>> budget_from({"epsilon": "1"}) == Budget.pure(1)
    True
    """
    given = [key for key in ("epsilon", "rho", "mu") if value.get(key) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise InputError(f"give one of epsilon, rho and mu as the privacy budget, not {' and '.join(given)}")
    number = value[given[0]]
    if given[0] == "epsilon":
        delta = value.get("delta")
        return Budget.pure(number) if delta is None else Budget.approximate(number, delta)
    if value.get("delta") is not None:
        raise InputError(f"delta is part of an epsilon budget; beside {given[0]} set report_delta instead")
    return Budget.zcdp(number) if given[0] == "rho" else Budget.gdp(number)


def _budget_json(budget: Budget | None) -> dict[str, str]:
    if budget is None:
        return {}
    parts = {key: getattr(budget, key) for key in _BUDGET_KEYS}
    if budget.kind == "pure":
        parts["delta"] = None
    return {key: plain(number) for key, number in parts.items() if number is not None}


def _declared(schema: Mapping[str, Any]) -> tuple[tuple[Feature, ...], tuple[StructuralZero, ...]]:
    if not schema.get("feature"):
        if schema.get("structural_zero"):
            raise SchemaError("structural zeros need the features that they name: declare their levels")
        return (), ()
    whole = Schema.from_json(schema)
    return whole.features, whole.structural_zeros


def _member(kind: type[StrEnum], value: str, name: str) -> StrEnum:
    if str(value) not in list(kind):
        raise InputError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(str(value))


def _only(value: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    unknown = set(value) - set(known)
    if unknown:
        raise InputError(f"{what} has no {', '.join(sorted(unknown))}; it may have {', '.join(sorted(known))}")

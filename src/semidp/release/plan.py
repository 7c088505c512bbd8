"""A plan: everything about a release that can be decided before the data are read.

A `Plan` is a frozen value with a TOML and a JSON form; it holds no data and no address, so that it can be reviewed,
kept and reused. What it does to data is in `run`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from semidp.errors import InputError, SchemaError
from semidp.exact import exact, plain, sqrt_down, sqrt_up
from semidp.files import toml_text
from semidp.release.requests import GroupRequest, TableRequest, file_names, only_keys
from semidp.spaces import Margin
from semidp.tables import Feature, Schema, StructuralZero
from semidp.tradeoff import Budget


class Reading(StrEnum):
    """Which reading of the semi-adjacent parameter a(t) sets the adjacency.

    >>> Plan([TableRequest(["sex"])], adjacency=Reading.definition).adjacency
    <Reading.definition: 'definition'>
    """

    worst_case = "worst-case"
    definition = "definition"


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
    groups
        The statistics of private outcomes by group to release, under the same invariants and with budgets of their own.

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
    groups: tuple[GroupRequest, ...] = ()

    def __post_init__(self) -> None:
        for name in ("tables", "invariants", "features", "structural_zeros", "groups"):
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
        names += [file.casefold() for group in self.groups for file in group.files]
        if len(set(names)) < len(names):
            raise InputError("two tables of the plan have the same name, or their files would: give each its own")

    @property
    def names(self) -> tuple[str, ...]:
        """Every feature that the plan uses, in order of first mention."""
        used = [name for table in self.tables for name in table.features]
        used += [name for group in self.groups for margin in group.by for name in margin.names]
        used += [name for margin in self.invariants for name in margin.names]
        return tuple(dict.fromkeys(used))

    @property
    def budget(self) -> Budget | None:
        """What everything may spend together, budgets simply added; None where they are of different kinds."""
        return _together([request.budget for request in self.requests])

    def with_budget(self, budget: Budget) -> "Plan":
        """Return the plan with this budget for every table and group that has none of its own."""
        tables = tuple(replace(table, budget=table.budget or budget) for table in self.tables)
        return replace(self, tables=tables, groups=tuple(replace(g, budget=g.budget or budget) for g in self.groups))

    @property
    def requests(self) -> tuple[TableRequest | GroupRequest, ...]:
        """Everything that is released with noise, tables first."""
        return (*self.tables, *self.groups)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values; `from_json` reads them back."""
        schema = {
            "feature": [feature.to_json() for feature in self.features],
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
            "group": [group.to_json() for group in self.groups],
            **schema,
        }
        return {key: value for key, value in document.items() if value not in (None, [], False)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        """Read what `to_json` wrote."""
        known = {
            *("invariants", "adjacency", "count", "where", "id", "levels_from_data", "report_delta"),
            *("table", "group", "feature", "structural_zero"),
        }
        only_keys(value, known, "a plan")
        schema = {key: value[key] for key in ("feature", "structural_zero") if key in value}
        features, zeros = _declared(schema)
        try:
            return cls(
                tables=tuple(TableRequest.from_json(entry) for entry in value.get("table", ())),
                groups=tuple(GroupRequest.from_json(entry) for entry in value.get("group", ())),
                invariants=tuple(Margin(*names) for names in value.get("invariants", ())),
                features=features,
                structural_zeros=zeros,
                **{key: value[key] for key in known - {"table", "group", "invariants", *schema} if key in value},
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


def shared(budget: Budget, parts: int) -> Budget:
    """Return the budget that each of several measurements gets, so that together they spend no more than `budget`.

    >>> shared(Budget.zcdp(1), 4), shared(Budget.gdp(1), 4).mu
    (Budget(kind='zcdp', rho=Fraction(1, 4), mu=None, epsilon=None, delta=None), Fraction(1, 2))
    """
    if parts == 1:
        return budget
    if budget.rho is not None:
        return Budget.zcdp(budget.rho / parts)
    if budget.mu is not None:
        return Budget.gdp(sqrt_down(budget.mu**2 / parts))
    assert budget.epsilon is not None
    if not budget.delta:
        return Budget.pure(budget.epsilon / parts)
    return Budget.approximate(budget.epsilon / parts, budget.delta / parts)


def _together(parts: Sequence[Budget | None]) -> Budget | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.kind for part in known}) != 1:
        return None
    if len(known) == 1:
        return known[0]
    first = known[0]
    if first.rho is not None:
        return Budget.zcdp(sum((part.rho or Fraction(0) for part in known), Fraction(0)))
    if first.mu is not None:
        return Budget.gdp(sqrt_up(sum(((part.mu or Fraction(0)) ** 2 for part in known), Fraction(0))))
    epsilon = sum((part.epsilon or Fraction(0) for part in known), Fraction(0))
    delta = sum((part.delta or Fraction(0) for part in known), Fraction(0))
    if delta >= 1:
        return None
    return Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)


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


def _declared(schema: Mapping[str, Any]) -> tuple[tuple[Feature, ...], tuple[StructuralZero, ...]]:
    if not schema.get("feature"):
        if schema.get("structural_zero"):
            raise SchemaError("structural zeros need the features that they name: declare their levels")
        return (), ()
    whole = Schema.from_json(schema)
    return whole.features, whole.structural_zeros

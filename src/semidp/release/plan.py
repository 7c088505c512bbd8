"""A plan: everything about a release that can be decided before the data are read.

A `Plan` is a frozen value with a TOML and a JSON form; it holds no data and no address, so that it can be reviewed,
kept and reused. What it does to data is in `run`.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from semidp.engines import Outcome
from semidp.errors import InputError, SchemaError
from semidp.exact import exact, plain, sqrt_down, sqrt_up
from semidp.files import toml_text
from semidp.invariants import Margin
from semidp.mechanisms import NAMES
from semidp.tables import Feature, Schema, StructuralZero
from semidp.tradeoff import Budget

AUTO = "auto"
"""The mechanism that a plan names to leave the choice to the expected loss."""

GRID = 1000
"""The steps between an outcome's bounds, unless declared."""

_BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")


class Reading(StrEnum):
    """Which reading of the semi-adjacent parameter a(t) sets the adjacency.

    >>> Plan([TableRequest(["sex"])], adjacency=Reading.definition).adjacency
    <Reading.definition: 'definition'>
    """

    worst_case = "worst-case"
    definition = "definition"


class FitKind(StrEnum):
    """What is published: whole numbers that add up, real ones that do, or the measurement itself.

    >>> TableRequest(["sex"], fit=FitKind.real).fit
    <FitKind.real: 'real'>
    """

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
        _check_name(self.name)

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


class Statistic(StrEnum):
    """What is published of an outcome in each group.

    >>> [str(statistic) for statistic in Statistic]
    ['mean', 'sum', 'proportion']
    """

    mean = "mean"
    sum = "sum"
    proportion = "proportion"


@dataclass(frozen=True)
class GroupRequest:
    """Sums, means or proportions of a private outcome by groups whose counts are published exactly.

    Parameters
    ----------
    statistic
        What is published.
    outcome
        The private column, its declared bounds and its grid; zeros and ones in one step for a proportion.
    by
        The groups, each a set of features; several sets are measured together. An invariant must publish the counts of
        each.
    budget, mechanism, name
        As for a table. The name is that of the statistic and the column unless given.

    Examples
    --------
    >>> GroupRequest(Statistic.mean, Outcome("score", 0, 100, steps=100), [["school"]], Budget.gdp(1)).name
    'mean-score'
    """

    statistic: Statistic
    outcome: Outcome
    by: tuple[Margin, ...]
    budget: Budget | None = None
    mechanism: str = AUTO
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistic", _member(Statistic, self.statistic, "the statistic"))
        groups = tuple(group if isinstance(group, Margin) else Margin(*group) for group in self.by)
        object.__setattr__(self, "by", groups)
        object.__setattr__(self, "name", self.name or f"{self.statistic}-{self.outcome.column}")
        if not groups or not all(group.names for group in groups):
            raise InputError("a statistic of groups needs the features that form them: name them with --group a")
        if len(set(groups)) < len(groups):
            raise InputError("the same groups are named twice: name them once")
        column = self.outcome.column
        if any(column in group.names for group in groups):
            raise InputError(f"{column!r} forms the groups, so its {self.statistic} in them is no secret: name another")
        if self.statistic is Statistic.proportion and self.outcome != proportion_of(column):
            raise InputError("a proportion is that of ones among zeros and ones: leave bounds and grid out")
        _check_name(self.name)

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups."""
        if len(self.by) == 1:
            return (f"{self.name}.csv",)
        return tuple(f"{self.name}-by-{'-'.join(group.names)}.csv" for group in self.by)

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""
        bounds = {"bounds": [plain(self.outcome.lower), plain(self.outcome.upper)], "grid": self.outcome.steps}
        return {
            "name": self.name,
            "statistic": str(self.statistic),
            "column": self.outcome.column,
            **({} if self.statistic is Statistic.proportion else bounds),
            "by": [list(group.names) for group in self.by],
            **_budget_json(self.budget),
            "mechanism": self.mechanism,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "GroupRequest":
        """Read what `to_json` wrote, or one ``[[group]]`` of a plan file."""
        known = {"name", "statistic", "column", "bounds", "grid", "by", "mechanism", *_BUDGET_KEYS}
        _only(value, known, "a group of a plan")
        statistic = value.get("statistic", Statistic.mean)
        if "column" not in value or "by" not in value or not isinstance(value["by"], list):
            raise InputError('a group of a plan needs column = "…" and by = [["…"], …]')
        if "bounds" not in value and statistic == Statistic.proportion:
            outcome = proportion_of(value["column"])
        else:
            outcome = outcome_from(value["column"], value.get("bounds"), value.get("grid", GRID))
        groups = tuple(Margin(group) if isinstance(group, str) else Margin(*group) for group in value["by"])
        mechanism, name = value.get("mechanism", AUTO), value.get("name", "")
        return cls(statistic, outcome, groups, budget_from(value), mechanism, name)


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
        _only(value, known, "a plan")
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


def outcome_from(column: str, bounds: Sequence[Any] | None, grid: Any) -> Outcome:
    """Return an outcome from its declared bounds and the number of steps of its grid.

    >>> outcome_from("score", ["0", "100"], "200").width
    Fraction(1, 2)
    >>> outcome_from("score", None, 100)
    Traceback (most recent call last):
    semidp.errors.InputError: the outcome 'score' needs declared bounds, such as --bounds score=0,100
    """
    if bounds is None or isinstance(bounds, str) or len(bounds) != 2:
        raise InputError(f"the outcome {column!r} needs declared bounds, such as --bounds {column}=0,100")
    steps = exact(grid, f"the grid of {column!r}")
    if steps.denominator != 1:
        raise InputError(f"the grid of {column!r} must be a whole number of steps, such as --grid {column}=100")
    return Outcome(column, bounds[0], bounds[1], int(steps))


def proportion_of(column: str) -> Outcome:
    """Return the outcome of which a mean is a proportion: zeros and ones.

    >>> proportion_of("cured").steps
    1
    """
    return Outcome(column, Fraction(0), Fraction(1), 1)


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


def _check_name(name: str) -> None:
    if not name or set(name) & set("/\\\0") or name.startswith("."):
        raise InputError(f"{name!r} cannot name a table: its files are called after it")


def _only(value: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    unknown = set(value) - set(known)
    if unknown:
        raise InputError(f"{what} takes no {', '.join(sorted(unknown))}: its keys are {', '.join(sorted(known))}")

"""What a plan asks for: one table, or one statistic by groups, with its share of the budget.

Each is a frozen value that checks itself and has a JSON form; how the data are read is in `plan`, doing it in `run`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from semidp.engines import Outcome
from semidp.errors import InputError
from semidp.exact import exact, plain
from semidp.mechanisms import NAMES
from semidp.spaces import Margin
from semidp.tradeoff import Budget

AUTO = "auto"
"""The mechanism that a plan names to leave the choice to the expected loss."""

GRID = 1000
"""The steps between an outcome's bounds, unless declared."""

_BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")


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
        only_keys(value, known, "a table of a plan")
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
        only_keys(value, known, "a group of a plan")
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


def file_names(table: str) -> tuple[str, str]:
    """Return what the files of a table are called: its published counts, and its measurements.

    >>> file_names("table"), file_names("income")
    (('table.csv', 'measurements.csv'), ('income.csv', 'income-measurements.csv'))
    """
    return f"{table}.csv", "measurements.csv" if table == "table" else f"{table}-measurements.csv"


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


def _member(kind: type[StrEnum], value: str, name: str) -> StrEnum:
    if str(value) not in list(kind):
        raise InputError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(str(value))


def _check_name(name: str) -> None:
    if not name or set(name) & set("/\\\0") or name.startswith("."):
        raise InputError(f"{name!r} cannot name a table: its files are called after it")


def only_keys(value: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse keys that nobody reads: a misspelt one would otherwise be ignored in silence."""
    unknown = set(value) - set(known)
    if unknown:
        raise InputError(f"{what} takes no {', '.join(sorted(unknown))}: its keys are {', '.join(sorted(known))}")

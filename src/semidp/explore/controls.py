"""The form of the page as values: which plan its controls describe, and which controls describe a plan."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from attrs import evolve, frozen

from semidp.core.exact import plain
from semidp.core.spaces.dataspace import Margin
from semidp.core.tables.features import Feature, Nest
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError
from semidp.publishing.plan import Plan
from semidp.statistics.protocol import Request
from semidp.statistics.tables.request import TableRequest, TablesRequest

KINDS = ("mu", "rho", "epsilon")
"""What a budget may be stated in."""

_TENTHS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
LADDER = (
    *(Fraction(tenths, 10) * Fraction(10) ** power for power in range(-2, 2) for tenths in _TENTHS),
    Fraction(100),
)
"""The budgets that the slider stops at."""

_SET = re.compile(r"(table|total)-(\d{1,3})")
Fields = Sequence[tuple[str, str]]
Names = tuple[str, ...]


@frozen
class Controls:
    """What is chosen on the page.

    >>> plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex"])
    >>> controls = Controls.of_plan(plan, ("sex", "region"))
    >>> controls.tables, controls.totals, controls.kind, plain(LADDER[controls.step])
    ((('sex', 'region'),), (('sex',),), 'mu', '1')
    >>> controls.plan(plan, ("sex", "region")) == plan
    True
    """

    tables: tuple[Names, ...] = ()
    totals: tuple[Names, ...] = ()
    nests: tuple[Names, ...] = ()
    levels: tuple[tuple[str, str], ...] = ()
    bins: tuple[tuple[str, str], ...] = ()
    levels_from_data: bool = False
    adjacency: str = "worst-case"
    kind: str = "mu"
    step: int = LADDER.index(Fraction(1))
    delta: str = ""
    report_delta: str = "1e-9"

    @property
    def amount(self) -> Fraction:
        """Where the slider stands."""
        return LADDER[self.step]

    @classmethod
    def of_plan(cls, plan: Plan, columns: Sequence[str]) -> "Controls":
        """Return the controls that show a plan; a budget between two stops stands at the nearest one."""
        budget = next((request.budget for request in plan.requests if request.budget), None)
        keys = {} if budget is None else budget.keys()
        kind = next((kind for kind in KINDS if kind in keys), "mu")
        amount = Fraction(keys[kind]) if keys else Fraction(1)
        return cls(
            tables=tuple(_ordered(table.features, columns) for table in plan.tables),
            totals=tuple(_ordered(margin.names, columns) for margin in plan.invariants),
            nests=tuple(nest.names for nest in plan.nests),
            levels_from_data=plan.levels_from_data,
            adjacency=str(plan.adjacency),
            kind=kind,
            step=min(range(len(LADDER)), key=lambda step: abs(float(LADDER[step]) - float(amount))),
            delta=keys.get("delta", ""),
            report_delta=plain(plan.report_delta),
        )

    @classmethod
    def of_form(cls, fields: Fields, columns: Sequence[str]) -> "Controls":
        """Read the fields of the form; what is not one of them is ignored."""
        sets: dict[str, dict[int, list[str]]] = {"table": {}, "total": {}}
        for name, value in fields:
            found = _SET.fullmatch(name)
            if found and value in columns:
                sets[found[1]].setdefault(int(found[2]), []).append(value)
        single = dict(fields)
        kind, step = single.get("kind", "mu"), single.get("step", "")
        if kind not in KINDS or not step.isdecimal() or len(step) > 4 or int(step) >= len(LADDER):
            raise InputError("the form does not say which budget: reload the page")
        number = single.get("number", "").strip()
        asked = single.get("adjacency", "worst-case")
        return cls(
            tables=tuple(_ordered(names, columns) for _, names in sorted(sets["table"].items())),
            totals=tuple(_ordered(names, columns) for _, names in sorted(sets["total"].items())),
            nests=tuple(_split(line) for line in single.get("nest", "").splitlines() if line.strip()),
            levels=_texts(fields, "levels-"),
            bins=_texts(fields, "bins-"),
            levels_from_data="levels_from_data" in single,
            adjacency=number if asked == "number" else asked,
            kind=kind,
            step=int(step),
            delta=single.get("delta", "").strip() if kind == "epsilon" else "",
            report_delta=single.get("report_delta", "1e-9").strip(),
        )

    def plan(self, base: Plan, columns: Sequence[str]) -> Plan:
        """Return the plan that is chosen: `base`, with what the page can change changed.

        Groups, regressions, conditions and declared levels are those of `base`, and so are a table's name, mechanism
        and fit.
        """
        before = Controls.of_plan(base, columns)
        if before == self:
            return base
        known = {frozenset(table.features): table for table in base.tables}
        tables = [_request(names, known.get(frozenset(names))) for names in self.tables]
        budget = Budget.stated({self.kind: self.amount, **({"delta": self.delta} if self.delta else {})})
        assert budget is not None
        if (self.kind, self.step, self.delta) == (before.kind, before.step, before.delta):
            budget = _kept(base, budget)  # the slider has not moved: a budget between two stops stays
        shared = TablesRequest(tables).dividing(budget) if tables else ()
        statistics = [request for request in base.requests if not request.tables]
        declared = {name for feature in base.features for name in feature.names}
        features = [Feature(name, _split(text)) for name, text in self.levels if name not in declared]
        features += [Feature(name, bins=_split(text)) for name, text in self.bins if name not in declared]
        return evolve(
            base,
            requests=[*shared, *statistics],
            invariants=[Margin(*names) for names in self.totals],
            nests=[_nest(names, base) for names in self.nests],
            features=(*base.features, *features),
            levels_from_data=self.levels_from_data,
            adjacency=self.adjacency,
            report_delta=self.report_delta,
        )


def variants(plan: Plan) -> dict[str, Plan]:
    """Return plans worth a look beside one: half its budget, and the other promise.

    >>> plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex"])
    >>> {name: str(other.requests[0].budget) for name, other in variants(plan).items()}
    {'half the budget': 'mu = 0.5 (Gaussian DP)', 'exchange adjacency': 'mu = 1 (Gaussian DP)'}
    """
    halved = evolve(plan, requests=[_halved(request) for request in plan.requests])
    if str(plan.adjacency) == "exchange":
        return {"half the budget": halved, "any a(t) records": evolve(plan, adjacency="worst-case")}
    return {"half the budget": halved, "exchange adjacency": evolve(plan, adjacency="exchange")}


def _halved(request: Request) -> Request:
    budget = request.budget
    if budget is None:
        return request
    keys = budget.keys()
    name = next(kind for kind in KINDS if kind in keys)
    less = Budget.stated({**keys, name: Fraction(keys[name]) / 2})
    return request.with_budget(less)


def _kept(base: Plan, budget: Budget) -> Budget:
    spent = [request.budget for request in base.requests if request.tables and request.budget]
    return spent[0] if len(spent) == 1 else budget


def _request(names: Names, known: TableRequest | None) -> TableRequest:
    if known is None:
        return TableRequest(names)
    return evolve(known, budget=None, name="table" if known.name == "-".join(known.features) else known.name)


def _nest(names: Names, base: Plan) -> Nest:
    return next((nest for nest in base.nests if nest.names == names), Nest(names))


def _ordered(names: Iterable[str], columns: Sequence[str]) -> Names:
    place = {name: position for position, name in enumerate(columns)}
    return tuple(sorted(dict.fromkeys(names), key=lambda name: place.get(name, len(place))))


def _split(text: str) -> Names:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _texts(fields: Fields, prefix: str) -> tuple[tuple[str, str], ...]:
    found: Mapping[str, str] = {
        name.removeprefix(prefix): value.strip() for name, value in fields if name.startswith(prefix) and value.strip()
    }
    return tuple(found.items())

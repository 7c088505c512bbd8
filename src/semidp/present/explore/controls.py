"""The form of the page as values: which plan its controls describe, and which controls describe a
plan.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from attrs import evolve, frozen

from semidp.errors import InputError
from semidp.present.explore.cards import (
    Card,
    Fields,
    LaidOut,
    Names,
    laid_out,
    order_names,
    read_cards,
    split,
)
from semidp.promise.exact import plain
from semidp.promise.schema.features import Feature, Nest, bin_edges
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.budgets import divide_budget, exact_margins
from semidp.publish.plan import Plan
from semidp.publish.statistics.protocol.requests import Request

KINDS = ("mu", "rho", "epsilon")
"""What a budget may be stated in."""

_TENTHS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
LADDER = (
    *(Fraction(tenths, 10) * Fraction(10) ** power for power in range(-2, 2) for tenths in _TENTHS),
    Fraction(100),
)
"""The budgets that the slider stops at."""

_TOTAL = re.compile(r"total-(\d{1,3})")


@frozen
class Controls:
    """What is chosen on the page.

    >>> from semidp.publish import TableRequest
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex"])
    >>> controls = Controls.of_plan(plan, ("sex", "region"))
    >>> (
    ...     [card.value for card in controls.cards],
    ...     controls.totals,
    ...     controls.kind,
    ...     plain(LADDER[controls.step]),
    ... )
    ([('sex', 'region')], (('sex',),), 'mu', '1')
    >>> controls.plan(plan, ("sex", "region")) == plan
    True
    """

    cards: tuple[Card, ...] = ()
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
        """Return the controls that show a plan; a budget between two stops stands at the nearest
        one.
        """
        laid = laid_out(plan, columns)
        budget = laid.budget or next(
            (request.budget for request in plan.requests if request.budget), None
        )
        keys = {} if budget is None else budget.keys()
        kind = next((kind for kind in KINDS if kind in keys), "mu")
        amount = Fraction(keys[kind]) if keys else Fraction(1)
        # Groups and factors are exact because of what is asked for by them, which says so itself.
        needed = {margin for request in laid.requests for margin in request.exact_margins}
        totals = [margin for margin in plan.invariants if margin not in needed]
        return cls(
            cards=tuple(laid.cards),
            totals=tuple(order_names(margin.names, columns) for margin in totals),
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
        totals: dict[int, list[str]] = {}
        for name, value in fields:
            match = _TOTAL.fullmatch(name)
            if match and value in columns:
                totals.setdefault(int(match[1]), []).append(value)
        single = dict(fields)
        kind, step = single.get("kind", "mu"), single.get("step", "")
        # A form may be written by hand: int() fails on very long numbers in a way of its own.
        if kind not in KINDS or not step.isdecimal() or len(step) > 4 or int(step) >= len(LADDER):
            raise InputError("the form does not say which budget: reload the page")
        number = single.get("number", "").strip()
        asked = single.get("adjacency", "worst-case")
        return cls(
            cards=read_cards(fields, columns),
            totals=tuple(order_names(names, columns) for _, names in sorted(totals.items())),
            nests=tuple(
                split(line) for line in single.get("nest", "").splitlines() if line.strip()
            ),
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

        Conditions, declared levels and what no card shows are those of `base`, and so are the name,
        the mechanism and the fit of a table.
        """
        before = Controls.of_plan(base, columns)
        # A plan that was only looked at stays as it is, with what no control can show.
        if before == self:
            return base
        laid = laid_out(base, columns)
        declared = {name for feature in base.features for name in feature.names}
        features = [
            Feature(name, split(text)) for name, text in self.levels if name not in declared
        ]
        features += [
            Feature(name, bins=bin_edges(text)) for name, text in self.bins if name not in declared
        ]
        plan = evolve(
            base,
            requests=_name_uniquely(_collect_requests(self.cards, laid)),
            invariants=[Margin(*names) for names in self.totals],
            nests=[_nest(names, base) for names in self.nests],
            features=(*base.features, *features),
            levels_from_data=self.levels_from_data,
            adjacency=self.adjacency,
            report_delta=self.report_delta,
        )
        unmoved = (self.kind, self.step, self.delta) == (before.kind, before.step, before.delta)
        same_cards = self.cards == before.cards
        # Dividing anew could round the parts otherwise than the plan has them.
        if unmoved and same_cards and laid.budget is not None:
            return evolve(plan, requests=base.requests, invariants=exact_margins(plan))
        budget = Budget.from_plan_keys(
            {self.kind: self.amount, **({"delta": self.delta} if self.delta else {})}
        )
        # A budget between two stops stays until the slider moves, and parts of it stay while the
        # same is asked for.
        total = laid.budget if unmoved and laid.budget is not None else budget
        shared = divide_budget(plan, total, laid.shares() if same_cards else None)
        return evolve(shared, requests=[*shared.requests, *laid.others])


def _collect_requests(cards: Sequence[Card], laid: LaidOut) -> list[Any]:
    """Return what the cards ask for; what a plan asked for already keeps what no control shows."""
    asked = []
    for card in cards:
        asked.append(laid.cards[card] if card in laid.cards else card.build_request())
    return asked


def _name_uniquely(asked: Sequence[Any]) -> list[Any]:
    """Return what is asked for, where a second thing of one name is called after its features,
    too.
    """
    names: set[str] = set()
    apart = []
    for item in asked:
        twice = getattr(item, "outcome", None) is not None and item.name in names
        apart.append(
            evolve(item, name=f"{item.name}-by-{'-'.join(item.features)}") if twice else item
        )
        names.add(item.name)
    return apart


def variants(plan: Plan) -> dict[str, Plan]:
    """Return plans worth a look beside one: half its budget, and the other promise.

    >>> from semidp.publish import TableRequest
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex"])
    >>> {name: str(other.requests[0].budget) for name, other in variants(plan).items()}
    {'half the budget': 'mu = 0.5 (Gaussian DP)', 'exchange adjacency': 'mu = 1 (Gaussian DP)'}
    """
    halved = evolve(plan, requests=[_halve_budget(request) for request in plan.requests])
    if str(plan.adjacency) == "exchange":
        return {"half the budget": halved, "any a(t) records": evolve(plan, adjacency="worst-case")}
    return {"half the budget": halved, "exchange adjacency": evolve(plan, adjacency="exchange")}


def _halve_budget(request: Request) -> Request:
    budget = request.budget
    if budget is None:
        return request
    keys = budget.keys()
    name = next(kind for kind in KINDS if kind in keys)
    less = Budget.from_plan_keys({**keys, name: Fraction(keys[name]) / 2})
    return request.with_budget(less)


def _nest(names: Names, base: Plan) -> Nest:
    return next((nest for nest in base.nests if nest.names == names), Nest(names))


def _texts(fields: Fields, prefix: str) -> tuple[tuple[str, str], ...]:
    texts: Mapping[str, str] = {
        name.removeprefix(prefix): value.strip()
        for name, value in fields
        if name.startswith(prefix) and value.strip()
    }
    return tuple(texts.items())

"""The form of the page as values: which plan its controls describe, which controls describe a plan,
and its cards, one for each thing that is asked for, made of the fields that statistics declare.

A card holds what its controls hold, and turns into what would have been chosen on the command line.
The page knows no statistic: it draws whatever fields there are.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from attrs import evolve, frozen

from semidp.errors import InputError
from semidp.promise.exact import plain
from semidp.promise.schema.features import Feature, Nest, bin_edges
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.plan_changes import divide_budget, exact_margins, with_missing
from semidp.publish.plan_settings import name_uniquely
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.statistic import (
    Chosen,
    Setting,
    Shape,
    asking_settings,
    list_choices,
)

CONTROL = re.compile(r"([a-z_]+)-(\d{1,3})(?:-([a-z_]+))?")
"""What a control of a card is called in the form: the field that asks, the number of the card, a
field beside."""
LISTED = "values"
"""What the control of a list beside a column is called."""

Fields = Sequence[tuple[str, str]]
Names = tuple[str, ...]
Held = str | Names | bool
"""What a control holds: a text, several features, or a tick."""


@frozen
class Card:
    """One thing that is asked for, by the name of its field, with what its controls hold.

    >>> card = Card("mean", "age", (("group", ("region",)), ("bounds", "0, 120")))
    >>> card.build_request().name
    'mean-age'
    """

    asking: str
    value: str | Names
    beside: tuple[tuple[str, Held], ...] = ()

    @property
    def field(self) -> Setting:
        """The field that asks."""
        return asking_settings()[self.asking][1]

    def read_control(self, name: str) -> Held | None:
        """Return what the control of a field beside holds; None where it is empty."""
        return dict(self.beside).get(name)

    def to_choices(self) -> dict[str, Any]:
        """Return what would have been chosen on the command line."""
        field = self.field
        values: dict[str, Any] = {field.name: (self.value,)}
        if field.shape is Shape.lists:
            listed = str(self.read_control(LISTED) or "")
            values[field.name] = {self.value: split(listed)}
        for each in field.beside:
            held = self.read_control(each.name)
            if held is not None:
                values[each.name] = self._chosen_beside(each, held)
        return values

    def _chosen_beside(self, field: Setting, held: Held) -> Any:
        if field.shape is Shape.features:
            return (held,)
        if field.shape is Shape.lists:
            return {self.value: split(str(held))}
        return {self.value: held} if field.shape is Shape.texts else held

    def build_request(self) -> Any:
        """Return what it asks for: a request, or what a plan makes one of."""
        kind, field = asking_settings()[self.asking]
        chosen = Chosen(self.to_choices())
        (request,) = kind.ask(chosen)
        # What a card holds and its statistic does not read would seem to count, and would not.
        for each in field.beside:
            if any(chosen.explain_unused([each])):
                raise InputError(
                    f"{each.label!r} has no effect on this {field.label.lower()}: leave it out"
                )
        return request

    @classmethod
    def from_choices(cls, chosen: Mapping[str, Any], columns: Sequence[str]) -> "Card | None":
        """Return the card that shows what would have been chosen; None where its controls cannot
        hold that.
        """
        fields = {
            name: field
            for name, (_, field) in asking_settings().items()
            if name in chosen and field.label
        }
        if len(fields) != 1:
            return None
        ((name, field),) = fields.items()
        value, *more = chosen[name]
        beside: dict[str, Held] = {}
        if field.shape is Shape.lists:
            beside[LISTED] = ", ".join(chosen[name][value])
        for each in field.beside:
            if each.name not in chosen:
                continue
            choice = chosen[each.name]
            if each.shape is Shape.features:
                first, *further = choice
                more += further
                beside[each.name] = order_names(first, columns)
            elif each.shape is Shape.lists:
                beside[each.name] = ", ".join(choice[value])
            elif each.shape is Shape.texts:
                beside[each.name] = choice[value]
            else:
                beside[each.name] = choice
        # A card has room for one column and for one set of groups.
        if more:
            return None
        return cls(
            name,
            order_names(value, columns) if field.shape is Shape.features else value,
            _order_controls(beside, field),
        )


def read_cards(fields: Fields, columns: Sequence[str]) -> tuple[Card, ...]:
    """Read the cards of a form, kind by kind and in their order; one that names no column and no
    feature is none.
    """
    held: dict[tuple[str, int], dict[str, list[str]]] = {}
    for name, value in fields:
        match = CONTROL.fullmatch(name)
        if match:
            held.setdefault((match[1], int(match[2])), {}).setdefault(match[3] or "", []).append(
                value.strip()
            )
    cards = []
    for name, (_, field) in asking_settings().items():
        numbers = sorted(number for asking, number in held if asking == name)
        for number in numbers if field.label else ():
            card = _card(field, held[name, number], columns)
            if card is not None:
                cards.append(card)
    return tuple(cards)


def _card(field: Setting, held: Mapping[str, Sequence[str]], columns: Sequence[str]) -> Card | None:
    """Read one card."""
    typed = [value for value in held.get("", ()) if value]
    if field.shape is Shape.features:
        typed = [value for value in typed if value in columns]
    if not typed:
        return None
    beside: dict[str, Held] = {}
    if field.shape is Shape.lists:
        beside[LISTED] = held.get(LISTED, [""])[-1]
    for each in field.beside:
        values = [value for value in held.get(each.name, ()) if value]
        if not values:
            continue
        if each.shape is Shape.features:
            beside[each.name] = order_names(
                [value for value in values if value in columns], columns
            )
        else:
            beside[each.name] = True if each.shape is Shape.tick else values[-1]
    value = order_names(typed, columns) if field.shape is Shape.features else typed[-1]
    return Card(field.name, value, _order_controls(beside, field))


def _order_controls(beside: Mapping[str, Held], field: Setting) -> tuple[tuple[str, Held], ...]:
    """Return what stands beside in the order of the fields, so that equal cards are equal."""
    names = [LISTED, *(each.name for each in field.beside)]
    return tuple((name, beside[name]) for name in names if beside.get(name))


@frozen(eq=False)
class LaidOut:
    """A plan on the page: its cards with what each asks for, the requests they stand for, and what
    no card shows.
    """

    cards: Mapping[Card, Any]
    requests: tuple[Request, ...]
    others: tuple[Request, ...]

    @property
    def budget(self) -> Budget | None:
        """What everything that has a card may spend together."""
        return Budget.sum_budgets([request.budget for request in self.requests])

    def shares(self) -> dict[str, Fraction] | None:
        """Return the parts of the budget that requests have; None where they have one part."""
        parts: dict[str, Fraction] = {}
        for request in self.requests:
            budget = request.budget
            if budget is None:
                return None
            # Parts of mu add up in squares.
            spent = (
                budget.mu**2
                if budget.mu is not None
                else budget.rho or budget.epsilon or Fraction(0)
            )
            parts[request.share_name] = parts.get(request.share_name, Fraction(0)) + spent
        return parts if len(parts) > 1 else None


def laid_out(plan: Plan, columns: Sequence[str]) -> LaidOut:
    """Lay a plan out in cards; a request that cards cannot show is left to others."""
    cards: dict[Card, Any] = {}
    requests: list[Request] = []
    unseen: list[Request] = []
    for request in plan.requests:
        things = list_choices(request)
        # One request may ask for several things, such as tables: all of them have cards, or none
        # has.
        made = [(Card.from_choices(chosen, columns), thing) for chosen, thing in things]
        if not made or any(card is None or card in cards for card, _ in made):
            unseen.append(request)
            continue
        requests.append(request)
        cards |= {card: thing for card, thing in made if card is not None}
    return LaidOut(cards, tuple(requests), tuple(unseen))


def list_offered_fields() -> list[Setting]:
    """Return the fields that may get a card."""
    return [field for _, field in asking_settings().values() if field.label]


def card_controls(cards: Sequence[Card], add: str = "") -> list[dict[str, Any]]:
    """Return the controls of cards, for the page: those that are filled in, and an empty one of the
    field `add`.

    Where there is no card at all, there is an empty one of the first field.

    >>> [control["legend"] for control in card_controls([], add="mean")]
    ['Table 1', 'Mean 1']
    """
    fields = {field.name: field for field in list_offered_fields()}
    asked: list[tuple[str, Card | None]] = [(card.asking, card) for card in cards]
    if not cards:
        asked.append((next(iter(fields)), None))
    if add in fields and (add, None) not in asked:
        asked.append((add, None))
    controls = []
    numbers: dict[str, int] = {}
    for name, card in sorted(asked, key=lambda pair: list(fields).index(pair[0])):
        number = numbers.setdefault(name, 0)
        numbers[name] += 1
        controls.append(_build_controls(fields[name], card, f"{name}-{number}", number + 1))
    return controls


def _build_controls(field: Setting, card: Card | None, called: str, number: int) -> dict[str, Any]:
    """Return the controls of one card: what is always seen, and what is seen when it is opened."""
    seen: list[dict[str, Any]] = []
    further: list[dict[str, Any]] = []
    for each in field.beside:
        held = None if card is None else card.read_control(each.name)
        control = {
            "field": each,
            "called": f"{called}-{each.name}",
            "held": held,
            "such": _such(each),
        }
        (seen if each.shape in (Shape.features, Shape.lists) else further).append(control)
    listed = {
        "called": f"{called}-{LISTED}",
        "held": card.read_control(LISTED) if card else None,
        "such": _such(field),
    }
    return {
        "field": field,
        "called": called,
        "legend": f"{field.label} {number}",
        "value": () if card is None else card.value,
        "listed": listed if field.shape is Shape.lists else None,
        "seen": seen,
        "further": further,
        "opened": any(control["held"] for control in further),
    }


def _such(field: Setting) -> str:
    """Return what may be written into the control of a field, as the page shows it."""
    return field.example.rpartition("=")[2].replace(",", ", ")


def order_names(names: Iterable[str], columns: Sequence[str]) -> Names:
    """Return names once each, in the order of the columns.

    >>> order_names(["age", "sex", "age"], ("sex", "age"))
    ('sex', 'age')
    """
    place = {name: position for position, name in enumerate(columns)}
    return tuple(sorted(dict.fromkeys(names), key=lambda name: place.get(name, len(place))))


def split(text: str) -> Names:
    """Split ``a, b`` into its parts.

    >>> split("0, 18,65")
    ('0', '18', '65')
    """
    return tuple(part.strip() for part in text.split(",") if part.strip())


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
    nulls: tuple[tuple[str, str], ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
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
            nulls=_texts(fields, "null-"),
            missing=_texts(fields, "missing-"),
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
        if before == evolve(self, missing=()):
            return base
        laid = laid_out(base, columns)
        declared = {name for feature in base.features for name in feature.names}
        nulls = dict(self.nulls)
        features = []
        for name, text in self.levels:
            if name not in declared:
                features.append(Feature(name, split(text), null_level=nulls.get(name)))
        for name, text in self.bins:
            if name not in declared:
                edges = bin_edges(text)
                features.append(Feature(name, bins=edges, null_level=nulls.get(name)))
        plan = evolve(
            base,
            requests=name_uniquely(_collect_requests(self.cards, laid)),
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

    def choose_missing(self, plan: Plan) -> Plan:
        """Return a plan with what was chosen about missing values of its outcomes."""
        columns = list_outcomes(plan)
        choices = {name: way for name, way in self.missing if name in columns}
        return with_missing(plan, choices) if choices else plan


def list_outcomes(plan: Plan) -> list[str]:
    """Return the columns of the data that hold the private outcomes of a plan.

    >>> import semidp
    >>> list_outcomes(Plan([semidp.proportion("ok=Y", by="ward")]))
    ['ok']
    """
    shares = {f"{column}={value}": column for column, value in plan.value_shares}
    return list(dict.fromkeys(shares.get(column, column) for column in plan.outcomes))


def _collect_requests(cards: Sequence[Card], laid: LaidOut) -> list[Any]:
    """Return what the cards ask for; what a plan asked for already keeps what no control shows."""
    asked = []
    for card in cards:
        asked.append(laid.cards[card] if card in laid.cards else card.build_request())
    return asked


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

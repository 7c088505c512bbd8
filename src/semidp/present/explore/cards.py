"""The cards of the page: one for each thing that is asked for, made of the fields that statistics
declare.

A card holds what its controls hold, and turns into what would have been chosen on the command line.
The page knows no statistic: it draws whatever fields there are.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from attrs import frozen

from semidp.errors import InputError
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.statistics.fields import Chosen, Field, Shape
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.registry import asking_fields, list_choices

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
    def field(self) -> Field:
        """The field that asks."""
        return asking_fields()[self.asking][1]

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

    def _chosen_beside(self, field: Field, held: Held) -> Any:
        if field.shape is Shape.features:
            return (held,)
        if field.shape is Shape.lists:
            return {self.value: split(str(held))}
        return {self.value: held} if field.shape is Shape.texts else held

    def build_request(self) -> Any:
        """Return what it asks for: a request, or what a plan makes one of."""
        kind, field = asking_fields()[self.asking]
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
            for name, (_, field) in asking_fields().items()
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
    for name, (_, field) in asking_fields().items():
        numbers = sorted(number for asking, number in held if asking == name)
        for number in numbers if field.label else ():
            card = _card(field, held[name, number], columns)
            if card is not None:
                cards.append(card)
    return tuple(cards)


def _card(field: Field, held: Mapping[str, Sequence[str]], columns: Sequence[str]) -> Card | None:
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


def _order_controls(beside: Mapping[str, Held], field: Field) -> tuple[tuple[str, Held], ...]:
    """Return what stands beside in the order of the fields, so that equal cards are equal."""
    names = [LISTED, *(each.name for each in field.beside)]
    return tuple((name, beside[name]) for name in names if beside.get(name))


@dataclass(frozen=True, eq=False)
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


def list_offered_fields() -> list[Field]:
    """Return the fields that may get a card."""
    return [field for _, field in asking_fields().values() if field.label]


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


def _build_controls(field: Field, card: Card | None, called: str, number: int) -> dict[str, Any]:
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


def _such(field: Field) -> str:
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

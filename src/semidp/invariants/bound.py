"""A bound on a(t) that holds whatever the published values are, from the schema and the margins alone.

For releases whose totals are exact but not at hand. With the totals, `semi` is at least as good.
"""

from collections.abc import Iterable

import numpy as np

from semidp.errors import AdjacencyUnknown
from semidp.invariants.semi import SemiAdjacency
from semidp.invariants.spaces import Margin
from semidp.invariants.structure import Published, Structure, closed_under, determined_axes, running_intersection
from semidp.tables import Schema


def semi_adjacency_bound(schema: Schema, margins: Iterable[Margin]) -> SemiAdjacency:
    """Return the bound ``a(t) <= m + 1`` for m decomposable margins, over all published values t.

    m counts the margins with a choice of two cells or more, nested ones dropped. Levels that do not occur under some t
    only make margins smaller, which leaves them decomposable and no more of them, so the bound by the junction tree
    holds for every t. Margins that are not decomposable, and structural zeros that forbid more than the margins do,
    have no such bound here.

    Examples
    --------
    >>> from semidp.tables import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw"), Feature("age", "yo")])
    >>> semi_adjacency_bound(schema, [Margin("sex"), Margin("region")]).bound
    3
    >>> semi_adjacency_bound(schema, [Margin("sex", "region"), Margin("region", "age"), Margin("age", "sex")])
    Traceback (most recent call last):
    semidp.errors.AdjacencyUnknown: no number of records is known that suffices for all totals of ...
    """
    wanted = tuple(margins)
    ways = [_names(schema, margin) for margin in wanted]
    kept = [names for names in dict.fromkeys(ways) if names and not any({*names} < {*other} for other in ways)]
    places = {name: place for place, name in enumerate(schema.names)}
    if (
        _zeros_matter(schema, wanted)
        or running_intersection([tuple(places[n] for n in names) for names in kept]) is None
    ):
        raise AdjacencyUnknown(
            f"no number of records is known that suffices for all totals of {', '.join(map(str, wanted))}: give the "
            "totals themselves, or the number a of records that must be able to move together"
        )
    choices = sum(schema.restrict(names).size > 1 for names in kept)
    return SemiAdjacency(None, None, choices + 1, "bound over all totals")


def _names(schema: Schema, margin: Margin) -> tuple[str, ...]:
    """The names of a margin with all that they imply: coarser depths, and features that declared zeros determine."""
    names = {*schema.closed(margin.names)}
    determined = determined_axes(schema) if schema.structural_zeros and _flat(schema) else {}
    grown = True
    while grown:
        implied = {schema.names[o] for name in names for o in determined.get(schema.names.index(name), ())}
        grown = not implied <= names
        names |= implied
    return tuple(name for name in schema.names if name in names)


def _zeros_matter(schema: Schema, margins: tuple[Margin, ...]) -> bool:
    """Whether structural zeros forbid more than some values of the margins do: it shows where all cells occur."""
    if not schema.structural_zeros:
        return False
    if not _flat(schema):
        return True
    determined = determined_axes(schema)
    full = []
    for margin in margins:
        part = schema.restrict(margin.names)
        occurs = np.ones(part.shape, np.int64) if part.possible is None else part.possible.astype(np.int64)
        full.append(closed_under(schema, Published(schema.axes(margin.names), occurs), determined))
    return Structure(schema, 1, tuple(full)).zeros_matter


def _flat(schema: Schema) -> bool:
    """Whether no feature is a chain of depths."""
    return all(len(feature.names) == 1 for feature in schema.features)

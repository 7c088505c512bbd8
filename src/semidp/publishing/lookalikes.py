"""Levels that look alike, or like a total: pointed out before anything is charged, since they are slips, likely."""

from collections.abc import Iterable, Sequence

from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema

_TOTALS = {"total", "totals", "all", "overall", "sum", "gesamt", "insgesamt", "totaal", "totale", "ensemble"}
_SHOWN = 3


def lookalikes(schema: Schema) -> tuple[str, ...]:
    """Warn of levels of one feature that differ in nothing a reader sees, and of a level that is called a total.

    Levels are declared, published or disclosed, so that they may be quoted.

    >>> for sentence in lookalikes(Schema([Feature("region", ["north", " north", "1", "1.0", "Total"])])):
    ...     print(sentence)
    Levels of region look alike: ' north' and 'north', '1' and '1.0'; one of each is a slip, perhaps.
    A level of region is called 'Total': a row that adds up others would count people twice.
    >>> lookalikes(Schema([Feature("sex", ["f", "m"]), Feature("code", ["01", "1a"])]))
    ()
    """
    said = []
    for feature in schema.features:
        for name, levels in _levels(feature):
            pairs = _alike(levels)
            if pairs:
                left = f" and {len(pairs) - _SHOWN:,} more pairs" if len(pairs) > _SHOWN else ""
                shown = ", ".join(f"{one[:40]!r} and {other[:40]!r}" for one, other in pairs[:_SHOWN])
                said.append(f"Levels of {name} look alike: {shown}{left}; one of each is a slip, perhaps.")
            totals = [level for level in levels if level.strip().casefold() in _TOTALS]
            # A feature with the levels "all" and "none" has no row that adds up others: two more make one likely.
            if totals and len(levels) > 2:
                said.append(
                    f"A level of {name} is called {totals[0]!r}: a row that adds up others would count people twice."
                )
    return tuple(said)


def _levels(feature: Feature) -> list[tuple[str, Sequence[str]]]:
    """Return the distinct labels at each depth of a feature."""
    columns: Iterable[Sequence[str]] = zip(*feature.paths(), strict=True)
    return [(name, tuple(dict.fromkeys(column))) for name, column in zip(feature.names, columns, strict=True)]


def _alike(levels: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of levels that a reader would take for the same, the first two of each group."""
    groups: dict[object, list[str]] = {}
    for level in levels:
        groups.setdefault(_seen(level), []).append(level)
    return [(min(group[:2]), max(group[:2])) for group in groups.values() if len(group) > 1]


def _seen(level: str) -> object:
    """Return what a reader sees of a level: a number, or its words without capitals and spare spaces."""
    words = " ".join(level.split()).casefold()
    has_leading_zero = words.lstrip("+-")[:1] == "0" and words.lstrip("+-")[1:2].isdigit()
    if has_leading_zero:
        return words
    try:
        return float(words)
    except ValueError:
        return words

"""What a recheck finds: statements that do not follow, and what can only be believed; and how numbers are compared."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.core.tradeoff.base import Tradeoff
from semidp.output.cells import Columns
from semidp.publishing.side_information import CLOSE


@dataclass(frozen=True)
class Trust:
    """Something that a release states and that nothing in it confirms.

    Parameters
    ----------
    what
        What is believed, in a sentence.
    fields
        Where it is stated: fields of release.json, ``file column``, or files.
    """

    what: str
    fields: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"what": self.what, "fields": list(self.fields)}


@dataclass(frozen=True)
class Recheck:
    """What came out when everything that a release states was computed again.

    Parameters
    ----------
    disagreements
        What does not follow, a sentence each.
    trusted
        What can only be believed, unless a signature says whose word it is.
    """

    disagreements: tuple[str, ...]
    trusted: tuple[Trust, ...]


@dataclass(eq=False)
class Findings:
    """What a recheck has found so far.

    Parameters
    ----------
    current
        Whether this version of semidp made the release, by what it says; an earlier one may have stated less.
    refits
        Whether tables are fitted again.
    same_software
        Whether the solvers are those that made the release, by what it says: then ties come out alike.
    """

    current: bool
    refits: bool
    same_software: bool = False
    wrong: list[str] = field(default_factory=list)
    trusted: dict[str, list[str]] = field(default_factory=dict)

    def trust(self, what: str, *fields: str) -> None:
        """Note that something is believed."""
        if fields:
            self.trusted.setdefault(what, []).extend(fields)

    def earlier(self, *fields: str) -> None:
        """Note what an earlier version may have computed otherwise."""
        self.trust("what an earlier version computed otherwise than this one", *fields)

    def guarantee(self, stated: Tradeoff, proven: Tradeoff) -> str | None:
        """Say how a stated guarantee differs from the proven one; this version states no weaker one either."""
        if not no_stronger(stated, proven):
            return "a stronger guarantee"
        if self.current and not no_stronger(proven, stated):
            return "a weaker guarantee"
        return None


def different_columns(stated: Columns, found: Columns, tolerance: float) -> Iterator[str]:
    """Yield the columns of a file that are not as they are computed again."""
    if list(stated.labels) != list(found.labels) or stated.rows != found.rows:
        yield next(iter(found.labels), "entry")
        return
    for name, labels in found.labels.items():
        if stated.labels[name].column(found.rows).tolist() != labels.column(found.rows).tolist():
            yield name
    for name in dict.fromkeys((*stated.numbers, *found.numbers)):
        both = stated.numbers.get(name), found.numbers.get(name)
        if both[0] is None or both[1] is None or not close(_closed(both[0]), _closed(both[1]), tolerance):
            yield name


def differences(stated: Any, found: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields in which plain values differ, with both values; numbers may differ by rounding."""
    if isinstance(stated, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*found, *stated)):
            yield from differences(stated.get(key), found.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for one, other in zip(stated, found, strict=True):
            yield from differences(one, other, path)
    elif not same(stated, found):
        yield path, stated, found


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _closed(ends: ArrayLike) -> NDArray[np.float64]:
    numbers = np.asarray(ends, dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def no_stronger(stated: Tradeoff, proven: Tradeoff) -> bool:
    """Whether a stated curve claims no more than the proven one."""
    return stated == proven or proven >= stated


def close(one: ArrayLike, other: ArrayLike, tolerance: float = CLOSE) -> bool:
    left, right = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if left.shape != right.shape:
        return False
    size = float(np.nanmax(np.abs(right), initial=0.0))
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * max(size, 1e-300), equal_nan=True))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=CLOSE)
    return bool(one == other)

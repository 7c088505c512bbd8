"""What a recheck finds: statements that do not follow, and what can only be believed; and how
numbers are compared.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from semidp.promise.tradeoff.function import Tradeoff

CLOSE = 1e-6
"""Relative: what was rounded in print or by another machine's arithmetic."""


@dataclass(frozen=True)
class Trust:
    """A statement of a release that nothing in it confirms.

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


@dataclass(eq=False)
class Findings:
    """What a recheck has found so far.

    Parameters
    ----------
    same_software
        Whether the solvers are those that made the release, by what it says: then ties come out
        alike.
    """

    same_software: bool = False
    wrong: list[str] = field(default_factory=list)
    trusted: dict[str, list[str]] = field(default_factory=dict)

    def trust(self, what: str, *fields: str) -> None:
        """Note that something is believed."""
        if fields:
            self.trusted.setdefault(what, []).extend(fields)


def compare_guarantees(stated: Tradeoff, proven: Tradeoff) -> str | None:
    """Say how a stated guarantee differs from the proven one; None where it does not."""
    if not no_stronger(stated, proven):
        return "a stronger guarantee"
    if not no_stronger(proven, stated):
        return "a weaker guarantee"
    return None


def differences(stated: Any, again: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields in which plain values differ, with both values; numbers may differ by
    rounding.

    >>> list(differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}))
    [('b.c', 2, 3)]
    """
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for key in dict.fromkeys((*again, *stated)):
            yield from differences(
                stated.get(key), again.get(key), f"{path}.{key}" if path else str(key)
            )
    # Lists of different lengths have no pairs: they are one difference, told below.
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for one, other in zip(stated, again, strict=True):
            yield from differences(one, other, path)
    elif not same(stated, again):
        yield path, stated, again


def short(value: Any) -> str:
    """Return a value as a sentence quotes it, cut to sixty characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def no_stronger(stated: Tradeoff, proven: Tradeoff) -> bool:
    """Whether a stated curve claims no more than the proven one."""
    return stated == proven or proven >= stated


def close(one: ArrayLike, other: ArrayLike, tolerance: float = CLOSE) -> bool:
    """Whether two arrays agree but for rounding, relative to the largest number of the second.

    >>> close([1.0, 1e6], [1.5, 1e6]), close([1.0, 2.0], [1.5, 2.0])
    (True, False)
    """
    left, right = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if left.shape != right.shape:
        return False
    # Small numbers carry the rounding of the large ones that they were computed with.
    size = float(np.nanmax(np.abs(right), initial=0.0))
    return bool(
        np.allclose(left, right, rtol=tolerance, atol=tolerance * max(size, 1e-300), equal_nan=True)
    )


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are the same, numbers but for rounding.

    >>> same({"rho": 0.5}, {"rho": 0.5 + 1e-12}), same(True, 1)
    (True, False)
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    # Python takes True for 1, and a reader does not.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=CLOSE)
    return bool(one == other)

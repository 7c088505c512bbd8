"""The types of what a plan holds: what is written is taken as it is, or refused in a sentence.

A plan file is typed: `levels_from_data = "no"` is not true, a name is text, a list is a list.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from semidp.errors import InputError, did_you_mean


def text(value: Any, what: str) -> str:
    """Return text, which must not be empty.

    >>> text(3, "the name")
    Traceback (most recent call last):
    semidp.errors.InputError: the name must be text, not 3
    """
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} must be text, not {shown(value)}")
    return str(value)


def flag(value: Any, what: str) -> bool:
    """Return true or false, and nothing that merely looks like them.

    >>> flag("no", "levels_from_data")
    Traceback (most recent call last):
    semidp.errors.InputError: levels_from_data must be true or false, not 'no'
    """
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, not {shown(value)}")
    return value


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Return a list of names, such as a plan file holds.

    >>> texts(["sex", "region"], "the features")
    ('sex', 'region')
    """
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f'{what} are a list such as ["sex", "region"], not {shown(value)}')
    return tuple(text(item, f"each of {what}") for item in value)


def only_keys(value: Any, known: Iterable[str], what: str) -> None:
    """Refuse keys that nobody reads: a misspelt one would otherwise be ignored in silence."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} has keys and values, not {shown(value)}")
    unknown = sorted({str(key) for key in value} - set(known))
    if unknown:
        meant = did_you_mean(unknown[0], known)
        raise InputError(f"{what} has no key {shown(unknown[0])}{meant}: its keys are {', '.join(sorted(known))}")


def shown(value: object) -> str:
    """Return what was written, cut where it is long.

    >>> shown("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…"
    """
    written = repr(value)
    return written if len(written) <= 60 else f"{written[:57]}…"

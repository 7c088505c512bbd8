"""What people write in plans and questions: texts, flags, keys and levels, taken as they are or
refused in a sentence.

A plan file is typed: ``levels_from_data = "no"`` is not true, a name is text, a list is a list.
Nothing here knows what a value means. Exact numbers are in `promise.exact`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from semidp.errors import InputError, did_you_mean
from semidp.promise.exact import format_value


def text(value: Any, what: str) -> str:
    """Return text, which must not be empty.

    >>> text(3, "the name")
    Traceback (most recent call last):
    semidp.errors.InputError: the name must be text, not 3
    """
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} must be text, not {format_value(value)}")
    return str(value)


def is_unicode(word: str) -> bool:
    """Whether text can be written as UTF-8; Python reads other bytes of file names as lone
    surrogates.

    >>> is_unicode("São"), is_unicode(chr(0xDCE3))
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def flag(value: Any, what: str) -> bool:
    """Return true or false, and nothing that merely looks like them.

    >>> flag("no", "levels_from_data")
    Traceback (most recent call last):
    semidp.errors.InputError: levels_from_data must be true or false, not 'no'
    """
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, not {format_value(value)}")
    return value


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Return a list of names, such as a plan file holds.

    >>> texts(["sex", "region"], "the features")
    ('sex', 'region')
    """
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f'{what} are a list such as ["sex", "region"], not {format_value(value)}')
    return tuple(text(item, f"each of {what}") for item in value)


def only_keys(value: Any, known: Iterable[str], what: str) -> None:
    """Refuse keys that nobody reads: a misspelt one would otherwise be ignored in silence."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} has keys and values, not {format_value(value)}")
    unknown = sorted({str(key) for key in value} - set(known))
    if unknown:
        meant = did_you_mean(unknown[0], known)
        keys = ", ".join(sorted(known))
        raise InputError(
            f"{what} has no key {format_value(unknown[0])}{meant}: its keys are {keys}"
        )


def check_level(value: float, name: str) -> None:
    """Refuse a probability that is not strictly between 0 and 1.

    >>> check_level(95, "the confidence level")
    Traceback (most recent call last):
    semidp.errors.InputError: the confidence level must lie between 0 and 1, such as 0.05 or 0.95,
    not 95
    """
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1, such as 0.05 or 0.95, not {value}")

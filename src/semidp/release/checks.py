"""The types of what a plan holds: converters that take what is written and refuse the rest in a sentence.

A plan file is typed: `levels_from_data = "no"` is not true, a name is text, a list is a list.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from semidp.errors import InputError


def text(what: str, *, empty: bool = False) -> Callable[[str], str]:
    """Return a converter for text that must not be empty unless said.

    >>> text("the name")(3)
    Traceback (most recent call last):
    semidp.errors.InputError: the name must be text, not 3
    """

    def convert(value: str) -> str:
        if not isinstance(value, str) or not (value or empty):
            raise InputError(f"{what} must be text, not {_shown(value)}")
        return str(value)

    return convert


def optional_text(what: str) -> Callable[[str | None], str | None]:
    """Return a converter for text, or nothing.

    >>> optional_text("the count column")(None) is None
    True
    """

    def convert(value: str | None) -> str | None:
        return None if value is None else text(what)(value)

    return convert


def flag(what: str) -> Callable[[bool], bool]:
    """Return a converter for true and false alone.

    >>> flag("levels_from_data")("no")
    Traceback (most recent call last):
    semidp.errors.InputError: levels_from_data must be true or false, not 'no'
    """

    def convert(value: bool) -> bool:
        if not isinstance(value, bool):
            raise InputError(f"{what} must be true or false, not {_shown(value)}")
        return value

    return convert


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Return a list of names, such as a plan file holds.

    >>> texts(["sex", "region"], "the features")
    ('sex', 'region')
    """
    if isinstance(value, str) or not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise InputError(f'{what} are a list such as ["sex", "region"], not {_shown(value)}')
    return tuple(text(f"each of {what}")(item) for item in value)


def names_tuple(what: str) -> Callable[[Iterable[str]], tuple[str, ...]]:
    """Return a converter for a list of names.

    >>> names_tuple("the features")(["sex"])
    ('sex',)
    """

    def convert(value: Iterable[str]) -> tuple[str, ...]:
        return texts(value, what)

    return convert


def only_keys(value: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse keys that nobody reads: a misspelt one would otherwise be ignored in silence."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} has keys and values, not {_shown(value)}")
    unknown = {str(key) for key in value} - set(known)
    if unknown:
        raise InputError(f"{what} takes no {', '.join(sorted(unknown))}: its keys are {', '.join(sorted(known))}")


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"

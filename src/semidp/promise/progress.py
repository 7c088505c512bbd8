"""Progress reports of long work, and small pieces of HTML for notebooks.

The library calls a `Progress`; only the command line knows how to draw a bar. Work that may take
over two seconds takes a `progress` argument of this type, with `silent` as its default. The
HTML of a value (`_repr_html_`) has no color and no script of its own.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Protocol


class Progress(Protocol):
    """Called as work goes on: ``progress("fitting the table", 3, 10)``."""

    def __call__(self, task: str, done: float, total: float | None) -> None:
        """Report that `done` of `total` units of `task` are finished (total None: unknown).

        The part of `task` after a colon may change from call to call, such as a falling distance.
        """


def silent(task: str, done: float, total: float | None) -> None:
    """Report nothing: the default.

    >>> silent("fitting the table", 3, 10)
    """


_MOST_ITEMS = 6
_MOST_CHARACTERS = 90
_CELL = "text-align:left;vertical-align:top;padding:.15em .8em .15em 0"


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return a heading and one line per name and value.

    >>> facts("Plan", [("exact", "sex <b>")])
    '<div><strong>Plan</strong><table><tr>...exact</th><td ...>sex
    &lt;b&gt;</td></tr></table></div>'
    """
    lines = "".join(_fact(name, text) for name, text in pairs)
    return f"<div><strong>{escape(title)}</strong><table>{lines}</table></div>"


def _fact(name: str, text: str) -> str:
    """One line of `facts`."""
    head = f'<th scope="row" style="{_CELL}">{escape(name)}</th>'
    return f'<tr>{head}<td style="{_CELL}">{escape(text)}</td></tr>'


def shorten_items(items: Sequence[Any]) -> str:
    """Write a tuple as Python does, or its first six items and how many there are.

    >>> shorten_items("ab"), shorten_items("abcdefgh")
    ("('a', 'b')", "('a', 'b', 'c', 'd', 'e', 'f', … 8 in all)")
    """
    if len(items) <= _MOST_ITEMS:
        return repr(tuple(items))
    first = ", ".join(map(repr, items[:_MOST_ITEMS]))
    return f"({first}, … {len(items):,} in all)"


def shorten_text(value: Any) -> str:
    """Return the text of a value, cut to 90 characters.

    >>> len(shorten_text("x" * 90)), shorten_text("x" * 100)[-3:]
    (90, 'xx…')
    """
    text = str(value)
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[: _MOST_CHARACTERS - 1]}…"

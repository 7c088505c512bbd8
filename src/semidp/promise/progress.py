"""How long work reports on itself: one callback, nothing else.

The library calls it; only the command line knows how to draw a bar. Work that may take over two
seconds takes a `progress` argument of this type, with `silent` as its default.
"""

from typing import Protocol


class Progress(Protocol):
    """Called as work goes on: ``progress("fitting the table", 3, 10)``."""

    def __call__(self, task: str, done: float, total: float | None) -> None:
        """Report that `done` of `total` units of `task` are finished (total None: unknown).

        What follows a colon in `task` may change from call to call, such as a distance that falls.
        """


def silent(task: str, done: float, total: float | None) -> None:
    """Report nothing: the default.

    >>> silent("fitting the table", 3, 10)
    """

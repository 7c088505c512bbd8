"""The exceptions of semidp, one small tree.

::

    SemidpError ├── InputError (also a ValueError)     what the caller gave is not legal │   ├──
    SchemaError                    an unknown feature, a level listed twice, a margin that does not
    fit │   ├── DataError                      the data contradict the declared schema │   └──
    Occupied                       what is at the place to write may not be lost ├──
    AdjacencyUnknown                   a(t) cannot be computed here: pass `a` ├── Refused
    legal, but not sound or not feasible: the message names what to do instead ├── BudgetExceeded
    a ledger refuses to spend more than it holds └── MissingExtra (also an ImportError) an optional
    package is not installed

A message is one sentence that says what was given, what is legal and what to do next. It never
holds a confidential count or a data value. A setting is marked, as in ``⟨most⟩`` or ``⟨read_as
age=text⟩``: Python calls it ``most=``. The command line calls it ``--most``, or ``--set most=``
if it is not an option; it adds the options that fix the error, and exits with code 2.
"""

import difflib
import re
from collections.abc import Callable, Iterable

_LONGEST_WORD = 100  # difflib takes minutes for a word of 100,000 letters


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that names the closest spelling; nothing if none is close.

    >>> did_you_mean("invariant", ["invariants", "id"]), did_you_mean("x", ["invariants"])
    (" (did you mean 'invariants'?)", '')
    """
    if len(word) > _LONGEST_WORD:
        return ""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.7)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


_SETTING = re.compile("⟨([a-z_]+)(?: ([^⟩]*))?⟩")


def write_settings(message: str, write: Callable[[str, str | None], str]) -> str:
    """Return a message with its settings in the words of one front end.

    >>> write_settings("give a larger ⟨most⟩", lambda name, value: f"--{name}")
    'give a larger --most'
    """
    return _SETTING.sub(lambda found: write(found[1], found[2]), message)


def name_keywords(message: str) -> str:
    """Return a message with its settings as Python keywords.

    >>> name_keywords("give a larger ⟨most⟩, or ⟨read_as age=text⟩")
    "give a larger most=, or read_as={'age': 'text'}"
    """

    def write(name: str, value: str | None) -> str:
        if value is None:
            return f"{name}="
        key, assigned, text = value.partition("=")
        # a condition may hold an equals sign, too
        written = {key: text} if assigned and name != "where" else value
        return f"{name}={written!r}"

    return write_settings(message, write)


_KEYWORDS = {
    "levels": "levels={{{first!r}: [...]}}, exact=[{first!r}], or levels_from_data=True",
    "nested levels": "schema=, exact=[{first!r}], or levels_from_data=True",
    "margin": "exact=[({all})]",
    "adjacency": "adjacency=N",
    "declared levels": (
        "levels={{{first!r}: [...]}} names all of them; na=['NA'] lists codes of missing values"
    ),
    "bins": "bins={{{first!r}: [float('-inf'), 0, 18, float('inf')]}} has no ends",
    "null level": "null_level={{{first!r}: 'unknown'}}, with levels= or bins=",
    "partition": "nest=('state', 'county'), partition='state'",
    "period": "period={first!r}",
    "own columns": "exact=[{units}], derived=[{last!r}]",
}
"""Values of `SemidpError.needs`, and the keywords that fix the error."""


class SemidpError(Exception):
    """Base of every error raised on purpose by semidp.

    `message` is the sentence with its settings marked, for use in another error.
    `needs` says in a word what is missing and `names` what it is missing for, so a front end
    can name its options.

    >>> SemidpError("the levels of sex are not public", needs="levels", names=("sex",)).names
    ('sex',)
    """

    def __init__(self, message: str = "", *, needs: str = "", names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.needs, self.names = message, needs, names

    def __str__(self) -> str:
        sentence, hint = name_keywords(self.message), _KEYWORDS.get(self.needs)
        if hint is None:
            return sentence
        first, last = (self.names[0], self.names[-1]) if self.names else ("a", "a")
        every = ", ".join(map(repr, self.names))
        units = tuple(f"units:{name}" for name in self.names)
        return f"{sentence} ({hint.format(first=first, last=last, all=every, units=units)})"


class InputError(SemidpError, ValueError):
    """What the caller gave is not legal."""


class SchemaError(InputError):
    """A feature, level, bin or margin that the schema does not allow."""


class DataError(InputError):
    """The data contradict the declared schema. Never quotes a data value."""


class Occupied(InputError):
    """The destination holds something that may not be lost; `replaceable` says whether the caller
    may agree to replace it.
    """

    def __init__(self, message: str, *, replaceable: bool = False) -> None:
        super().__init__(message)
        self.replaceable = replaceable


class AdjacencyUnknown(SemidpError):
    """The semi-adjacent parameter a(t) cannot be computed; the caller must pass `a`."""


class Refused(SemidpError):
    """The request is well formed, but not sound or not feasible; the message names the
    alternative.
    """


class BudgetExceeded(SemidpError):
    """A ledger refuses to spend more than its budget."""


class MissingExtra(SemidpError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""

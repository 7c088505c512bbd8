"""What is said of a command line that cannot be read: one plain sentence each.

Typer words such errors for programmers ("Input should be a valid integer"); here they are reworded.
"""

from collections.abc import Sequence
from typing import Any

import typer

from semidp.errors import InputError

_NUMBERS = ("Input should be greater", "Input should be less", "Input should be a valid integer")
"""How Typer begins what it says of a number that is none, too small or too large."""


def usage_sentence(error: typer.TyperException) -> str:
    """Return what is wrong with a command line, and where its options are explained."""
    sentence = _reworded(error).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return sentence
    return f"{sentence}; see '{context.command_path} --help'"


def _reworded(error: typer.TyperException) -> str:
    sentence = error.format_message() if hasattr(error, "format_message") else str(error)
    parameter = getattr(error, "param", None)
    said = str(getattr(error, "message", ""))
    if parameter is not None and said.startswith(_NUMBERS):
        return f"{parameter.opts[0]} takes {_numbers(parameter)}"
    return sentence.replace("Value error, ", "")


def _numbers(parameter: Any) -> str:
    """Say which whole numbers an option takes."""
    low, high = parameter.min, parameter.max
    if low is None and high is None:
        return "a whole number"
    if high is None:
        return f"a whole number from {low} on"
    return f"a whole number from {low} to {high}"


def refuse_missing_values(program: Any, arguments: Sequence[str]) -> None:
    """Refuse an option whose value was forgotten, so that it does not take the next option for it.

    >>> from semidp.cli._program import _program
    >>> refuse_missing_values(_program(()), ["release", "people.csv", "--title", "--quiet"])
    Traceback (most recent call last):
    semidp.errors.InputError: --title TEXT needs a value: '--quiet' follows it, which is an option
    """
    command = program
    following_words = [*arguments[1:], ""]
    for word, following in zip(arguments, following_words, strict=True):
        below = getattr(command, "commands", {})
        command = below.get(word, command)
        # A text that starts with two dashes can still be given, as --note="-- see below".
        if not following.startswith("--") or following == "--":
            continue
        for option in command.params:
            takes_value = not getattr(option, "is_flag", True)
            if takes_value and word in option.opts:
                name = " ".join(filter(None, (word, option.metavar)))
                raise InputError(
                    f"{name} needs a value: {following!r} follows it, which is an option"
                )

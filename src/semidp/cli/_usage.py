"""What is said of a command line that cannot be read: one plain sentence each.

Typer words such errors for programmers ("Input should be a valid integer"); here they are reworded.
"""

from typing import Any

import typer

_NUMBERS = ("Input should be greater", "Input should be less", "Input should be a valid integer")
"""How Typer begins what it says of a number that is none, too small or too large."""


def usage_sentence(error: typer.TyperException) -> str:
    """Return what is wrong with a command line, and where its options are explained."""
    sentence = _reword_error(error).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return sentence
    return f"{sentence}; see '{context.command_path} --help'"


def _reword_error(error: typer.TyperException) -> str:
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

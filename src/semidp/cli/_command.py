"""How a command declares its options: in its own signature, or in a group that several commands
take.
"""

import functools
import inspect
import shlex
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Annotated, Any, get_args, get_origin

import typer
from attrs import Attribute, fields_dict, has
from typer.core import TyperCommand, TyperGroup

from semidp.errors import InputError
from semidp.publish.settings import list_settings
from semidp.publish.statistics.protocol.statistic import Panel, Shape
from semidp.publish.written_values import is_unicode


def option(
    help: str, metavar: str | None = None, *names: str, default: Any = None, **limits: Any
) -> Any:
    """Declare an option: its name is that of the parameter or field unless given."""
    return typer.Option(default, *names, help=help, metavar=metavar, **limits)


def flag(name: str, help: str, *short: str, **settings: Any) -> Any:
    """Declare an option that takes no value."""
    return typer.Option(False, name, *short, help=help, **settings)


def argument(help: str, metavar: str, default: Any = ..., **settings: Any) -> Any:
    """Declare a word that is no option."""
    return typer.Argument(default, help=help, metavar=metavar, **settings)


def plain_defaults(kind: type, fields: list["Attribute[Any]"]) -> list["Attribute[Any]"]:
    """Let the fields of a group default to what its options default to, and keep what Typer is to
    see.
    """
    options: list[Any] = [field.default for field in fields]
    return [
        field.evolve(default=option.default, metadata={"option": option})
        for field, option in zip(fields, options, strict=True)
    ]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Let Typer see the options of each group that a command takes, in place of the group.

    A parameter that is annotated with ``Annotated[Group, ("a", "b")]`` takes these options of the
    group alone. The options of a group with a class method `declare_options` may grow as statistics
    are registered.

    >>> from semidp.cli._options import Options
    >>> @command
    ... def ledger(*, file: str, options: Annotated[Options, ("rho", "mu")]) -> None:
    ...     print(file, options.given["rho"], options.given["mu"])
    >>> list(inspect.signature(ledger).parameters)
    ['file', 'rho', 'mu']
    >>> ledger(file="privacy.json", rho="1")
    privacy.json 1 None
    """

    def collect_options() -> tuple[dict[str, tuple[Any, Collection[str]]], list[inspect.Parameter]]:
        """Return the groups with the options that are taken of each, and all options in their
        order.
        """
        groups: dict[str, tuple[Any, Collection[str]]] = {}
        shown: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            annotation = parameter.annotation
            group, *chosen = (
                get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
            )
            options = _list_options(group)
            if options is None:
                shown.append(parameter)
                continue
            groups[parameter.name] = group, chosen[0] if chosen else _list_shown(group, options)
            for name in groups[parameter.name][1]:
                default, kind = options[name]
                shown.append(parameter.replace(name=name, default=default, annotation=kind))
        return groups, shown

    @functools.wraps(function)
    def run_command(**given: Any) -> None:
        # Read at the call: a statistic may have been registered since the command was declared.
        groups, shown = collect_options()
        # A call from Python may leave options out, which Typer would have filled in.
        defaults = {
            each.name: each.default.default for each in shown if hasattr(each.default, "default")
        }
        values = {**defaults, **given}
        made = {}
        for name, (group, names) in groups.items():
            made[name] = group(**{each: values.pop(each) for each in names})
        function(**values, **made)

    def declare() -> None:
        run_command.__signature__ = inspect.Signature(collect_options()[1])  # type: ignore[attr-defined]

    declare()
    run_command.declare = declare  # type: ignore[attr-defined]  # again, where statistics were registered since
    return run_command


def _list_options(group: Any) -> dict[str, tuple[Any, Any]] | None:
    """Return the options of a group with their types, by the names of its fields; None for what is
    no group.
    """
    if isinstance(group, type) and hasattr(group, "declare_options"):
        options: dict[str, tuple[Any, Any]] = group.declare_options()
        return options
    if not has(group):
        return None
    return {
        name: (field.metadata["option"], field.type) for name, field in fields_dict(group).items()
    }


def _list_shown(group: Any, options: Collection[str]) -> Collection[str]:
    """Return the options of a group that a command takes unless it names some."""
    shown: Collection[str] = group.list_shown() if hasattr(group, "list_shown") else options
    return tuple(shown)


def _name_argument(parameter: Any) -> str:
    name = str(parameter.metavar)
    return name if parameter.required or name.startswith("[") else f"[{name}]..."


class PanelCommand(TyperCommand):
    """A command whose help lists options under the questions that they answer, and names arguments
    as they are declared: Typer would add braces and types of Python.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the name of the command."""
        arguments = (each for each in self.get_params(ctx) if each.param_type_name == "argument")
        return ["[OPTIONS]", *map(_name_argument, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and a section for each panel."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        # The order of the questions, whatever the order of the options.
        panels |= {str(panel): [] for panel in Panel}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            usual = "Options"
            if parameter.param_type_name == "argument":
                usual, record = "Arguments", (_name_argument(parameter), record[1])
            panel = getattr(parameter, "rich_help_panel", None) or usual
            panels.setdefault(panel, []).append(record)
        # What a command has of its own comes first; --help alone comes last.
        if len(panels["Options"]) == 1:
            panels["Options"] = panels.pop("Options")
        for name, records in panels.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class JobGroup(TyperGroup):
    """Commands whose help lists them under the jobs that they do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each job."""
        jobs: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            records = jobs.setdefault(command.rich_help_panel or "Commands", [])
            records.append((name, command.get_short_help_str(60)))
        for job, records in jobs.items():
            with formatter.section(job):
                formatter.write_dl(records)


def refuse_misplaced_options(program: Any, arguments: Sequence[str]) -> None:
    """Refuse an option that is none of its command, where it is known how it is written there.

    >>> from semidp.cli._program import _program
    >>> refuse_misplaced_options(_program(()), ["release", "people.csv", "--fit", "none"])
    Traceback (most recent call last):
    semidp.errors.InputError: --fit is a key of plan files now: write --set fit=none, or see
    docs/plan.md
    """
    rows = list_settings()
    keys = {row.option: row for row in rows.values() if row.panel is None}
    keys["--round"] = rows["round_to"]
    command = program
    for word, following in pairwise([*arguments, ""]):
        command = getattr(command, "commands", {}).get(word, command)
        option, equals, assigned = word.partition("=")
        if not option.startswith("--") or any(option in each.opts for each in command.params):
            continue
        if command.name == "test" and option in [row.option for row in rows.values()]:
            raise InputError(
                f"semidp test asks a release and takes no {option}: the private test of data is"
                " semidp release DATA --odds-ratio ROWS,COLUMNS[,STRATA]"
            )
        if command.name == "microdata":
            if option in ("--units", "--link"):
                raise InputError(
                    "microdata are records of one file: leave linked units out (semidp release"
                    " publishes their tables)"
                )
            keys["--read-as"] = rows["read_as"]
        takes_settings = any("--set" in each.opts for each in command.params)
        if takes_settings and option in keys:
            row = keys[option]
            value = "true" if row.shape is Shape.tick else assigned if equals else following
            entry = shlex.quote(f"{row.name}={value}")
            raise InputError(
                f"{option} is a key of plan files now: write --set {entry}, or see docs/plan.md"
            )


def refuse_unreadable_words(arguments: Sequence[str]) -> None:
    """Refuse words that are no text, such as names of files in an old encoding.

    >>> refuse_unreadable_words(["show", chr(0xDCE3)])
    Traceback (most recent call last):
    semidp.errors.InputError: the word '\\udce3' is not UTF-8: rename the file, or write it in UTF-8
    """
    for word in arguments:
        if not is_unicode(word):
            raise InputError(
                f"the word {ascii(word)[:200]} is not UTF-8: rename the file, or write it in UTF-8"
            )


def refuse_missing_values(program: Any, arguments: Sequence[str]) -> None:
    """Refuse an option whose value was forgotten. Otherwise it would take the next option for its
    value.

    >>> from semidp.cli._program import _program
    >>> refuse_missing_values(_program(()), ["release", "people.csv", "--where", "--quiet"])
    Traceback (most recent call last):
    semidp.errors.InputError: --where SQL needs a value: '--quiet' follows it, which is an option
    >>> refuse_missing_values(_program(()), [])  # as a shell asks for completions
    """
    command = program
    for word, following in pairwise([*arguments, ""]):
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

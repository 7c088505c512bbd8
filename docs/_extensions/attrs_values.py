"""Show how a class of attrs is called: griffe knows by itself only what dataclasses take."""

from typing import Any

from griffe import (
    Class,
    ExprCall,
    Extension,
    Function,
    Module,
    Parameter,
    ParameterKind,
    Parameters,
)

MAKERS = {"attrs.frozen", "attrs.define"}
FIELD = {"field", "attrs.field"}


class AttrsValues(Extension):
    """Give each class of attrs the parameters that follow from its fields."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Do so in every module, once all classes are known."""
        waiting: list[Any] = [pkg]
        while waiting:
            for member in list(waiting.pop().members.values()):
                if member.is_alias:
                    continue
                if member.is_module:
                    waiting.append(member)
                elif member.is_class and is_called_by_fields(member):
                    member.set_member("__init__", describe_call(member))


def is_made(kind: Class) -> bool:
    """Whether attrs makes a class."""
    return any(getattr(one.value, "canonical_path", "") in MAKERS for one in kind.decorators)


def is_called_by_fields(kind: Class) -> bool:
    """Whether attrs writes how it is made."""
    options = read_options([one.value for one in kind.decorators])
    return is_made(kind) and "__init__" not in kind.members and options.get("init") != "False"


def describe_call(kind: Class) -> Function:
    """Describe what a class takes: fields of its bases first, and last those by keyword alone."""
    fields: dict[str, Parameter] = {}
    for part in (*reversed(kind.mro()), kind):
        if is_made(part):
            options = read_options([one.value for one in part.decorators])
            for parameter in list_fields(part, options.get("kw_only") == "True"):
                fields.pop(parameter.name, None)  # a field that is declared again moves to the end
                fields[parameter.name] = parameter
    ordered = sorted(fields.values(), key=lambda one: one.kind is ParameterKind.keyword_only)
    itself = Parameter("self", kind=ParameterKind.positional_or_keyword)
    return Function("__init__", parent=kind, parameters=Parameters(itself, *ordered))


def list_fields(kind: Class, is_by_keyword: bool) -> list[Parameter]:
    """List the fields that a class declares itself and takes, in their order."""
    parameters = []
    for member in kind.members.values():
        is_field = member.is_attribute and "instance-attribute" in member.labels
        if not is_field or member.annotation is None or "property" in member.labels:
            continue
        called = isinstance(member.value, ExprCall) and str(member.value.function) in FIELD
        options = read_options([member.value]) if called else {"default": member.value}
        if options.get("init") == "False":
            continue
        by_keyword = is_by_keyword or options.get("kw_only") == "True"
        default = f"{options['factory']}()" if "factory" in options else options.get("default")
        if str(default).startswith("Factory("):
            default = "..."  # follows from other fields
        if default is None and parameters and parameters[-1].default and not by_keyword:
            default = "..."  # a method decorated with it says what
        parameters.append(
            Parameter(
                member.name.lstrip("_"),
                annotation=member.annotation,
                kind=ParameterKind.keyword_only
                if by_keyword
                else ParameterKind.positional_or_keyword,
                default=default,
            )
        )
    return parameters


def read_options(calls: list[Any]) -> dict[str, Any]:
    """Read the keywords of calls, and their values as they are written."""
    found = {}
    for call in calls:
        for argument in getattr(call, "arguments", ()):
            if hasattr(argument, "name"):
                found[argument.name] = argument.value
    return {name: value if name == "default" else str(value) for name, value in found.items()}

"""What users rely on, as a listing: public names with their parameters, commands with their options,
keys of plans, fields of release.json, and schemas. docs/stability.md says what it promises.

``python -m tests.stability.interface`` writes the listing anew, once the changelog names every
difference.
"""

import enum
import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

import semidp
from semidp.cli._program import _program
from semidp.publish.settings import list_settings

ROOT = Path(__file__).parent.parent.parent
LISTING = Path(__file__).parent / "interface.json"
CHANGELOG = ROOT / "CHANGELOG.md"
DOORS = ("promise", "publish", "inference", "assess")
_PLAIN = (type(None), bool, int, str, float)


def list_interface() -> dict[str, str]:
    """Return every entry with what it takes."""
    entries: dict[str, str] = {}
    for door in ("semidp", *(f"semidp.{name}" for name in DOORS)):
        package = importlib.import_module(door)
        for name in package.__all__:
            entries |= dict(_list_name(f"{door}.{name}", getattr(package, name)))
    entries |= dict(_list_options("semidp", _program(())))
    for row in list_settings().values():
        entries[f"setting {row.name}"] = f"{row.shape} {row.metavar} key={row.key}"
    entries |= {f"plan key {key}": "" for key in _list_plan_keys()}
    plan = semidp.Plan([semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
    release = semidp.run(plan, {"sex": [*"fm"]})
    entries |= {f"release.json {key}": "" for key in release.to_json()}
    for path in sorted(Path(semidp.__file__).parent.rglob("*.schema.json")):
        entries[f"schema {path.name}"] = hash_schema(path.read_text(encoding="utf-8"))
    return dict(sorted(entries.items()))


def _list_plan_keys() -> list[str]:
    """Return the keys of a plan file, as the message about an unknown one lists them."""
    try:
        semidp.Plan.from_json({"?": 1})
    except semidp.InputError as error:
        return error.message.partition("its keys are ")[2].split(", ")
    raise AssertionError("a plan with an unknown key was read")


def hash_schema(text: str) -> str:
    """Hash a schema, whatever its layout is."""
    plain = json.dumps(json.loads(text), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def _list_name(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if not inspect.isclass(value):
        yield name, describe_parameters(value) if callable(value) else type(value).__name__
        return
    yield name, describe_parameters(value)
    for field in attrs.fields(value) if attrs.has(value) else ():
        if not field.name.startswith("_"):
            yield f"{name}.{field.name}", "value"
    for member, found in inspect.getmembers(value):
        home = next((one for one in value.__mro__ if member in vars(one)), object)
        if member.startswith("_") or not home.__module__.startswith("semidp"):
            continue
        if isinstance(inspect.getattr_static(value, member), property) or not callable(found):
            yield f"{name}.{member}", "value"
        else:
            yield f"{name}.{member}", describe_parameters(found)


def describe_parameters(value: Any) -> str:
    """Name the parameters, which are by keyword, and plain defaults; types are not compared.

    >>> describe_parameters(lambda data, *rest, mu=None, **more: 0)
    '(data, *rest, mu=None, **more)'
    """
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return "(value)"  # versions of Python give other parameters
    try:
        signature = inspect.signature(value)
    except ValueError:
        return "()"
    parameters = []
    for parameter in signature.parameters.values():
        default = parameter.default
        if default is not parameter.empty:
            default = default if isinstance(default, _PLAIN) else ...
        # Annotations are written otherwise by other versions of Python.
        parameters.append(parameter.replace(annotation=parameter.empty, default=default))
    shown = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(shown).replace("Ellipsis", "…")


def _list_options(name: str, command: Any) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            yield f"{name} {parameter.metavar}", "argument"
            continue
        for option in parameter.opts:
            takes = "flag" if parameter.is_flag else "value"
            yield f"{name} {option}", f"{takes}, required" if parameter.required else takes
    for below, found in getattr(command, "commands", {}).items():
        yield f"{name} {below}", "command"
        yield from _list_options(f"{name} {below}", found)


# --- what the changelog must say ------------------------------------------------------------------


def find_unsaid(before: Mapping[str, str], now: Mapping[str, str], changes: str) -> list[str]:
    """Return the entries that were added, removed or changed, and that no line names in code."""
    quoted = " ".join(re.findall(r"`([^`]*)`", changes))
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    named = [name for name in different if _is_named(name, quoted)]
    # What belongs to a command or a class that is new or gone needs no line of its own.
    whole = [name for name in named if name not in before or name not in now]
    covered = tuple(f"{name}{mark}" for name in whole for mark in (" ", "."))
    return [name for name in different if name not in named and not name.startswith(covered)]


def _is_named(entry: str, quoted: str) -> bool:
    word = entry.rpartition(" ")[2]
    # A name is given as users write it: semidp.release, Release.save, --card, scope.
    parts = word.split(".") if word.startswith("semidp.") else [word]
    wanted = ".".join(parts[-2:]) if word.startswith("semidp.") else word
    return re.search(rf"(?<![\w-]){re.escape(wanted)}(?![\w-])", quoted) is not None


def newest_changes() -> tuple[str, list[str]]:
    """Return the newest version of the changelog, and its lines."""
    text = CHANGELOG.read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    return section.split()[0], section.splitlines()


def hash_line(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:8]


def list_new_lines(kept: Mapping[str, Any], lines: list[str]) -> str:
    """Return the lines of the changelog that are newer than the listing: an older line, which names
    an entry for what it was then, says nothing about another change of it.
    """
    return "\n".join(line for line in lines if hash_line(line) not in kept["lines"])


def read_listing() -> dict[str, Any]:
    """Return the listing that is kept."""
    found: dict[str, Any] = json.loads(LISTING.read_text(encoding="utf-8"))
    return found


def write_listing() -> int:
    """Write the listing anew; refuse where the changelog is silent about a difference."""
    version, lines = newest_changes()
    entries, kept = list_interface(), read_listing()
    unsaid = find_unsaid(kept["entries"], entries, list_new_lines(kept, lines))
    if unsaid:
        print(f"name these in CHANGELOG.md, under {version}, in backticks:", *unsaid, sep="\n  ")
        return 1
    document = {"version": version, "lines": [*map(hash_line, lines)], "entries": entries}
    LISTING.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write_listing())

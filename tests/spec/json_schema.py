"""A validator of JSON Schema (draft 2020-12) for the keywords that our schemas use.

It knows no other keyword: a schema that uses one fails, so that nothing is silently unchecked.
`watch_writers` and `validate_left` are called by `conftest`: for every file that the software writes
in a test, and for those that processes of a test leave behind.
"""

import functools
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from semidp.cli.demo import SCHEMAS, load_schema
from semidp.promise.accounting import ledger
from semidp.publish import plan, release_files

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
ANNOTATIONS = {"$schema", "$id", "$defs", "title", "description", "then"}


@functools.cache
def schema_at(place: str) -> tuple[str, Any]:
    """The schema that an absolute reference names, with its file."""
    file, _, pointer = place.partition("#")
    found: Any = load_schema(file.removesuffix(".schema.json"))
    for step in filter(None, pointer.split("/")):
        found = found[step]
    return file, found


def find_errors(schema: Any, value: Any, file: str, at: str = "") -> Iterator[str]:
    """Yield what is wrong with a value, each with its place."""
    if isinstance(schema, bool):
        if not schema:
            yield f"{at}: nothing may stand here"
        return
    for keyword, rule in schema.items():
        if keyword not in ANNOTATIONS:
            yield from KEYWORDS[keyword](rule, value, schema, file, at)


def is_valid(schema: Any, value: Any, file: str) -> bool:
    return next(find_errors(schema, value, file), None) is None


def is_same(first: Any, second: Any) -> bool:
    """Whether two values are the same to JSON, where true is not 1."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def has_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _reference(rule, value, schema, file, at):
    inside = rule if not rule.startswith("#") else file + rule
    target, found = schema_at(inside)
    yield from find_errors(found, value, target, at)


def _type(rule, value, schema, file, at):
    names = [rule] if isinstance(rule, str) else rule
    if not any(has_type(value, name) for name in names):
        yield f"{at}: {' or '.join(names)} is expected"


def _properties(rule, value, schema, file, at):
    if isinstance(value, dict):
        for key in rule.keys() & value.keys():
            yield from find_errors(rule[key], value[key], file, f"{at}.{key}")


def _additional(rule, value, schema, file, at):
    if isinstance(value, dict):
        for key in value.keys() - schema.get("properties", {}).keys():
            yield from find_errors(rule, value[key], file, f"{at}.{key}")


def _names(rule, value, schema, file, at):
    for key in value if isinstance(value, dict) else ():
        yield from find_errors(rule, key, file, f"{at}.{key}")


def _required(rule, value, schema, file, at):
    if isinstance(value, dict):
        yield from (f"{at}: {key} is missing" for key in rule if key not in value)


def _dependent(rule, value, schema, file, at):
    for key, needed in rule.items():
        if isinstance(value, dict) and key in value:
            yield from _required(needed, value, schema, file, at)


def _items(rule, value, schema, file, at):
    for number, item in enumerate(value if isinstance(value, list) else ()):
        yield from find_errors(rule, item, file, f"{at}[{number}]")


def _unique(rule, value, schema, file, at):
    if isinstance(value, list) and len({json.dumps(item) for item in value}) < len(value):
        yield f"{at}: an item stands twice"


def _size_rule(kind: type | tuple[type, ...], holds):
    def check(rule, value, schema, file, at):
        if isinstance(value, kind) and not isinstance(value, bool) and not holds(value, rule):
            yield f"{at}: {value!r:.40} breaks a limit of {rule}"

    return check


def _any_of(rule, value, schema, file, at):
    if not any(is_valid(part, value, file) for part in rule):
        yield f"{at}: {value!r:.60} is none of what may stand here"


def _one_of(rule, value, schema, file, at):
    if sum(is_valid(part, value, file) for part in rule) != 1:
        yield f"{at}: exactly one form is expected"


def _all_of(rule, value, schema, file, at):
    for part in rule:
        yield from find_errors(part, value, file, at)


def _if(rule, value, schema, file, at):
    if is_valid(rule, value, file):
        yield from find_errors(schema["then"], value, file, at)


def _enum(rule, value, schema, file, at):
    if not any(is_same(value, one) for one in rule):
        yield f"{at}: {value!r:.40} is none of {rule}"


KEYWORDS = {
    "$ref": _reference,
    "type": _type,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "required": _required,
    "dependentRequired": _dependent,
    "items": _items,
    "uniqueItems": _unique,
    "minItems": _size_rule(list, lambda value, rule: len(value) >= rule),
    "maxItems": _size_rule(list, lambda value, rule: len(value) <= rule),
    "minProperties": _size_rule(dict, lambda value, rule: len(value) >= rule),
    "maxProperties": _size_rule(dict, lambda value, rule: len(value) <= rule),
    "minLength": _size_rule(str, lambda value, rule: len(value) >= rule),
    "pattern": _size_rule(str, lambda value, rule: re.search(rule, value) is not None),
    "minimum": _size_rule((int, float), lambda value, rule: value >= rule),
    "exclusiveMinimum": _size_rule((int, float), lambda value, rule: value > rule),
    "exclusiveMaximum": _size_rule((int, float), lambda value, rule: value < rule),
    "enum": _enum,
    "const": lambda rule, value, schema, file, at: _enum([rule], value, schema, file, at),
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "if": _if,
}


def validate(name: str, document: Any) -> list[str]:
    """What is wrong with a document under one of our schemas; nothing if it is valid."""
    file, schema = schema_at(f"{name}.schema.json")
    return list(find_errors(schema, document, file))


# --- what the software writes in tests ------------------------------------------------------------

validated = dict.fromkeys(SCHEMAS, 0)
"""How many files of each kind were validated in this process."""
failures: list[str] = []
"""What was wrong with them."""
seen: set[int] = set()
"""Hashes of the files that were validated."""
started: list[object] = []
"""The processes that a test started."""


def validate_written(name: str, document: Any) -> None:
    """Note what is wrong with a file that was just written; a test may expect errors of its own."""
    validated[name] += 1
    failures.extend(f"{name}{error}" for error in validate(name, document))


def take_failures() -> list[str]:
    found = list(failures)
    failures.clear()
    return found


def name_kind(path: Path, document: Any) -> str | None:
    """Return the schema that a file of the software has to follow, if it has one."""
    if path.name == "release.json":
        return "release"
    if not isinstance(document, dict):
        return None
    keys = {"charges": "ledger", "margins": "totals", "invariants": "plan"}
    return next((kind for key, kind in keys.items() if key in document), None)


def validate_left(folders: Iterable[Path]) -> None:
    """Validate the JSON files in these folders, but those that were validated as they are."""
    for folder in folders:
        for place, _, names in os.walk(folder):
            for path in (Path(place, name) for name in names if name.endswith(".json")):
                content = path.read_bytes()
                if hash(content) in seen:
                    continue
                seen.add(hash(content))
                document = json.loads(content)
                kind = name_kind(path, document)
                if kind is not None:
                    validate_written(kind, document)


def watch_processes() -> None:
    """Note each process that is started."""
    for kind, starter in ((subprocess.Popen, "__init__"), (BaseProcess, "start")):
        setattr(kind, starter, note_start(getattr(kind, starter)))


def note_start(begin: Any) -> Any:
    @functools.wraps(begin)
    def start(self: Any, *words: Any, **more: Any) -> None:
        started.append(self)
        begin(self, *words, **more)

    return start


def watch_writers() -> None:
    """Validate each release.json, plan.json, dataspace.json and ledger as it is written, and each
    plan that the software accepts.

    What is replaced are the functions that write the texts: others may look for those that call
    them.
    """
    write_json, write_ledger = release_files._write_json, ledger._write
    read_plan = plan.Plan.from_json.__func__

    def write_checked(path: Path, document: Any) -> None:
        write_json(path, document)
        written = path.read_bytes()
        seen.add(hash(written))
        kinds = {"schema_version": "release", "margins": "totals", "invariants": "plan"}
        for key, kind in kinds.items() if isinstance(document, dict) else ():
            if key in document:
                validate_written(kind, json.loads(written))
                break

    def write_document(path: Path, document: Mapping[str, Any]) -> None:
        write_ledger(path, document)
        seen.add(hash(path.read_bytes()))
        validate_written("ledger", document)
        for space in document["dataspaces"].values():
            if "file" in space and (path.parent / space["file"]).exists():
                text = (path.parent / space["file"]).read_text("utf-8")
                validate_written("totals", json.loads(text))

    def accept(cls: Any, value: Any, folder: Path | None = None) -> Any:
        accepted = read_plan(cls, value, folder)
        validate_written("plan", json.loads(json.dumps(value)))
        return accepted

    release_files._write_json = write_checked
    ledger._write = write_document
    plan.Plan.from_json = classmethod(accept)  # type: ignore[method-assign]

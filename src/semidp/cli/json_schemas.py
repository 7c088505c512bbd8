"""``semidp schema``: the JSON Schema of a file that semidp writes."""

import json
from importlib.resources import files
from typing import Any

from semidp.cli._command import argument, command
from semidp.cli._output import echo
from semidp.errors import InputError, did_you_mean

SCHEMAS = ("plan", "release", "ledger", "totals")
"""What there is a schema of; a file of this name and the ending ``.schema.json`` is in the
package."""


@command
def schema(
    *,
    of: str = argument("plan, release, ledger or totals.", "FILE"),
) -> None:
    """Print the JSON Schema (draft 2020-12) of a plan, release.json, a ledger or exact totals.

    The schemas that it refers to are part of what is printed, so that any validator can use it.
    """
    if of not in SCHEMAS:
        meant = did_you_mean(of, SCHEMAS)
        listed = ", ".join(SCHEMAS)
        raise InputError(f"there is no schema of {of[:40]!r}{meant}; there are {listed}")
    echo(json.dumps(bundle_schema(of), indent=2, ensure_ascii=False))


def load_schema(name: str) -> dict[str, Any]:
    """Return a schema as it is in the package.

    >>> load_schema("ledger")["$id"]
    'ledger.schema.json'
    """
    text = (files("semidp") / "data" / "schemas" / f"{name}.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def bundle_schema(name: str) -> dict[str, Any]:
    """Return a schema with all others that it refers to among its definitions, by their names.

    >>> [key for key in bundle_schema("ledger")["$defs"] if key.endswith(".json")]
    ['totals.schema.json']
    """
    schema = load_schema(name)
    needed = [one for one in SCHEMAS if f'"{one}.schema.json' in json.dumps(schema)]
    for one in needed:
        if one != name:
            schema["$defs"][f"{one}.schema.json"] = load_schema(one)
    return schema

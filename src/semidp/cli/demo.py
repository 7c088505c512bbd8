"""``semidp demo`` and ``schema``, from data of the package: a first release of real data (or the
small file that README uses), and the JSON Schema of a file that semidp writes.
"""

import json
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

from attrs import asdict

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import echo, in_place, print_json
from semidp.cli.release import release
from semidp.errors import InputError, Occupied, did_you_mean
from semidp.promise.files import replace_file
from semidp.publish.release_files import REPORT

_SCHOOLS = "california_schools.csv"
_PEOPLE = 400


@command
def demo(
    *,
    out: Path = option(
        "Output folder; an earlier demo is replaced.", "FOLDER", default=Path("build/demo")
    ),
    data: Path | None = option(
        "Only write a small file of invented people, for commands of your own.", "FILE"
    ),
    printing: o.Printing,
) -> None:
    """Publish how many pupils of 420 California school districts qualify for reduced-price meals.
    Enrollment stays exact.

    Prints the command that it runs. The data are written next to the output folder, so that you can
    copy the command and change it.
    """
    if data is not None:
        _write_people(data, printing)
        return
    source = out.parent / _SCHOOLS
    _write_once(source, (files("semidp") / "data" / _SCHOOLS).read_bytes())
    # One exact table, of districts: a = 2 records change together, and Δ2² = 2a² = 8 where both
    # are of one district. So mu = 1 needs the scale √8 = 2.83; the projection leaves 2.83/√2 = 2
    # a cell.
    words = {
        "nest": ["county,district"],
        "table": ["district,meals"],
        "exact": ["district"],
        "levels": ["meals=no,yes"],
        "count": "count",
        "mu": "1",
    }
    printed = not (printing.json or printing.silent)
    if printed:
        typed = []
        for name, value in words.items():
            typed += [f"--{name}", value if isinstance(value, str) else value[0]]
        echo(f"semidp release {shlex.join([str(source), *typed, '--out', str(out), '--force'])}\n")
    release(data=str(source), **words, out=out, force=True, **asdict(printing))
    if printed:
        with in_place(f"the release {out}"):
            echo(f"\nOpen {out / REPORT} in a browser; the table is in {out / 'table.csv'}.")


def _write_once(path: Path, content: bytes) -> None:
    """Write a file of ours; another file of that name is left alone."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        replace_file(path, content, force=False)
    except Occupied:
        raise InputError(f"{path} exists already: name another file or folder") from None


def list_people() -> list[str]:
    """Return the lines of a CSV file of invented people.

    >>> list_people()[:2], len(list_people())
    (['sex,region,age,smoker', 'm,n,18,y'], 401)
    """
    lines = ["sex,region,age,smoker"]
    for number in range(_PEOPLE):
        sex = "mf"[number * 7 % 13 % 2]
        region = "nnsssw"[number * 5 % 17 % 6]
        smoker = "yn"[number * number % 11 > (3 if sex == "m" else 2)]
        lines.append(f"{sex},{region},{18 + number * 31 % 73},{smoker}")
    return lines


def _write_people(path: Path, printing: o.Printing) -> None:
    _write_once(path, ("\n".join(list_people()) + "\n").encode())
    words = ["semidp", "release", str(path), "--table", "sex,region"]
    words += ["--exact", "sex", "--exact", "region", "--mu", "1", "--out", "release"]
    if printing.json:
        print_json({"written": str(path), "records": _PEOPLE})
    elif not printing.silent:
        echo(f"written    {path}: {_PEOPLE} invented people\n\nTry:\n  {shlex.join(words)}")


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

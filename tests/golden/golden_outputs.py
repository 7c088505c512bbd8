"""What a scenario publishes, in two layers: values, and words.

*Values* are every number of CSV and JSON files and of ``--format json``, and exit codes. They may
change only in a commit that says why. *Words* are everything printed and the text of the report;
they may change in any commit, and are reviewed as a difference. The text of reports is kept for the
scenarios of `make test` alone.

``python -m tests.golden.golden_outputs [NAME ...]`` writes both anew.
"""

import contextlib
import csv
import html
import io
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from semidp.cli import run
from tests.golden.example_data import write_files
from tests.golden.scenarios import QUICK, SCENARIOS

FOLDER = Path(__file__).parent / "plans"

# what differs from run to run, or by machine and version, is no output
UNSTABLE = {"created", "versions", "digest", "time", "head", "sha256", "seconds", "software"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ][\d:.+]+)?")
_PACKAGES = "semidp|numpy|scipy|duckdb|python-flint|ortools|dp-accounting|matplotlib|openpyxl"
_VERSION = re.compile(rf"\b({_PACKAGES}) \d+\.\d+[\w.]*")
_DECIMAL = re.compile(r"-?\d+(\.\d+(e[-+]\d+)?|e[-+]\d+)")
_SIMULATED = re.compile(r"\.mechanisms\[0\]\.(errors\.\w+|expected_l2)")
_HEX = re.compile(r"\b[0-9a-f]{12,}\b")


def run_scenario(name: str) -> tuple[dict[str, Any], str]:
    """Run the commands of a scenario; return its values and its words."""
    values: dict[str, Any] = {}
    words: list[str] = []
    with tempfile.TemporaryDirectory() as place, inside(Path(place)) as folder:
        write_files(folder)
        given = {path.name for path in folder.iterdir()}
        for number, line in enumerate(SCENARIOS[name].split(" ; ")):
            arguments = shlex.split(line)
            if arguments[0] == "release" and "--seed" not in arguments:
                arguments += ["--seed", "1"]
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                values[f"exit {number}"] = run(arguments)
            words += [f"$ semidp {line}", out.getvalue(), err.getvalue()]
            if "json" in arguments:
                values[f"stdout {number}"] = list(list_numbers(json.loads(out.getvalue())))
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder).as_posix()
            if path.is_dir() or relative in given:
                continue
            if path.suffix in (".csv", ".parquet"):
                values[relative] = read_table(path)
            elif path.suffix == ".json":
                values[relative] = list(list_numbers(json.loads(path.read_text("utf-8"))))
            elif path.suffix == ".html" and name in QUICK:
                words += [f"# {relative}", strip_page(path.read_text("utf-8"))]
    return values, mask("\n".join(words), place)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[Path]:
    """Work in a folder, with a terminal of known width."""
    before, width = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "100"
    try:
        yield folder
    finally:
        os.chdir(before)
        if width is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = width


def list_numbers(value: Any, at: str = "") -> Iterator[str]:
    """Yield every number and truth value of a document with its place, in order."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key not in UNSTABLE:
                yield from list_numbers(value[key], f"{at}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from list_numbers(each, f"{at}[{number}]")
    elif isinstance(value, float):
        yield f"{at} {value:.10g}"  # the last digits may depend on the machine
    elif isinstance(value, (bool, int)):
        yield f"{at} {json.dumps(value)}"


def read_table(path: Path) -> list[list[str]]:
    """The rows of a table, its header first."""
    if path.suffix == ".parquet":
        found = duckdb.read_parquet(str(path))
        return [list(found.columns), *([str(value) for value in row] for row in found.fetchall())]
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def strip_page(page: str) -> str:
    """The words of a page, a line for each element that has any."""
    page = re.sub(r"(?s)<(style|script|svg)\b.*?</\1>", "", page)
    lines = (html.unescape(part).strip() for part in re.split(r"<[^>]*>", page))
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def mask(text: str, place: str) -> str:
    """Text without folders, dates, versions and digests."""
    text = text.replace(place, "PLACE")
    for pattern, word in ((_DATE, "DATE"), (_VERSION, r"\1 VERSION"), (_HEX, "DIGEST")):
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def is_same(now: Any, before: Any) -> bool:
    """Whether values are the same up to what depends on the machine.

    Linear algebra rounds the last digits of a decimal number differently, and fits that are
    repeated until nothing moves end there. Errors of K-norm noise are simulated.
    """
    if isinstance(now, list) and isinstance(before, list):
        return len(now) == len(before) and all(map(is_same, now, before))
    if now == before or not isinstance(now, str) or not isinstance(before, str):
        return bool(now == before)
    place, _, number = now.rpartition(" ")
    place_before, _, number_before = before.rpartition(" ")
    if place != place_before or not _DECIMAL.fullmatch(number):
        return False
    try:
        tolerance = 0.05 if _SIMULATED.fullmatch(place) else 1e-7
        return math.isclose(float(number), float(number_before), rel_tol=tolerance)
    except ValueError:
        return False


def stored(name: str) -> tuple[dict[str, Any], str]:
    values = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return values, (FOLDER / f"{name}.txt").read_text("utf-8")


def store(name: str) -> None:
    values, words = run_scenario(name)
    document = json.dumps(values, indent=0, ensure_ascii=False, sort_keys=True)
    (FOLDER / f"{name}.json").write_text(document + "\n", encoding="utf-8")
    (FOLDER / f"{name}.txt").write_text(words, encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:] or SCENARIOS:
        store(each)
        print(each)

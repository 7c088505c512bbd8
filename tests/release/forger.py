"""A forger: changes any field of release.json and any column of any file, and makes every digest
right again.

`verdict` says what becomes of a forged folder: refused, said to disagree, taken on trust, or
believed, which is never right.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import define, field

from semidp import Release
from semidp.errors import SemidpError
from semidp.publish.recheck import recheck

Path_ = tuple[str | int, ...]

OTHERS = {  # another value that is as legal
    "worst-case": "definition",
    "integer": "none",
    "none": "integer",
    "exact": "ideal",
    "ideal": "exact",
    "auto": "laplace",
    "gaussian": "zcdp",
    "laplace": "discrete gaussian",
    "k-norm": "laplace",
    "l2": "laplace",
    "discrete gaussian": "lattice gaussian",
    "lattice gaussian": "discrete gaussian",
    "rounded gaussian": "discrete gaussian",
    "residuals": "rounded gaussian",
    "discrete": "rounded",
    "rounded": "discrete",
    "flow": "thresholds",
    "thresholds": "flow",
    "mean": "sum",
    "sum": "mean",
    "linear": "logistic",
    "logistic": "linear",
    "treatment": "sum",
    "noise": "noise and sampling",
    "noise and sampling": "noise",
    "csv": "parquet",
}


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield every plain value of a document, and every list of several, with where it stands."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        if len(value) > 1 and len({json.dumps(part) for part in value}) > 1:
            yield path, value
        for place, part in enumerate(value):
            yield from leaves(part, (*path, place))
    else:
        yield path, value


def others(value: Any) -> list[Any]:
    """Other values for a field that a reader would not stumble over."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, max(value - 1, 0)] if value else [1]
    if isinstance(value, float):
        return [value * 1.2 + 0.05, value * 0.8 - 0.05]
    if value is None:
        return [1]
    if isinstance(value, list):
        return [[*value[1::-1], *value[2:]], value[:-1]]
    if value in OTHERS:
        return [OTHERS[value]]
    try:
        number = float(value)
    except ValueError:
        return [f"{value}x"]
    return [str(number * 1.5), str(number * 0.75)] if number else ["0.5"]


def named(path: Path_) -> str:
    """A field as `taken_on_trust` names it, without places in lists."""
    return ".".join(part for part in path if isinstance(part, str))


def changed(document: Any, path: Path_, value: Any) -> Any:
    """A document with another value at a place; the value itself where the place is all of it."""
    if not path:
        return value
    inner = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return document


@define
class Forger:
    """A release folder that can be changed and set right again."""

    folder: Path
    files: dict[str, bytes] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        self.files = {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}

    def restore(self) -> None:
        for path in self.folder.rglob("*"):
            if path.is_file() and path.relative_to(self.folder).as_posix() not in self.files:
                path.unlink()
        for name, content in self.files.items():
            (self.folder / name).write_bytes(content)

    def without_report(self) -> "Forger":
        """Remove the report, which takes most of the time to draw again: it is forged by itself."""
        self.files.pop("report.html")
        (self.folder / "report.html").unlink()
        return self

    def document(self, name: str = "release.json") -> Any:
        return json.loads(self.files[name])

    def write(self, name: str, content: Any) -> None:
        """Write one file, and every digest that depends on it."""
        text = content if isinstance(content, (str, bytes)) else json.dumps(content)
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        self.seal()

    def seal(self) -> None:
        if (self.folder / "parts.json").exists():
            parts = json.loads((self.folder / "parts.json").read_text())
            for part in parts:
                for name in part["files"]:
                    if (self.folder / part["folder"] / name).exists():
                        part["files"][name] = self._digest(f"{part['folder']}/{name}")
            (self.folder / "parts.json").write_text(json.dumps(parts))
        document = json.loads((self.folder / "release.json").read_text())
        document["files"] = {
            name: self._digest(name) if (self.folder / name).exists() else old
            for name, old in document["files"].items()
        }
        (self.folder / "release.json").write_text(json.dumps(document))

    def _digest(self, name: str) -> str:
        return hashlib.sha256((self.folder / name).read_bytes()).hexdigest()

    def verdict(self, field: str) -> str:
        """What becomes of the folder as it is: refused, disagrees, trusted or believed."""
        try:
            release = Release.load(self.folder)
            found = recheck(
                release, json.loads((self.folder / "release.json").read_text()), self.folder
            )
        except SemidpError:
            return "refused"
        if found.disagreements:
            return "disagrees"
        believed = [name for trust in found.trusted for name in trust.fields]
        if any(field == name or field.startswith((f"{name}.", f"{name} ")) for name in believed):
            return "trusted"
        return "believed"

    def fields(self, step: int = 1) -> Iterator[tuple[str, str]]:
        """Forge the fields of release.json and parts.json, or some of them; yield each, and what
        became of it.
        """
        for number, (file, path, other) in enumerate(self.field_forgeries()):
            if number % step:
                continue
            self.write(file, changed(self.document(file), path, other))
            field = named(path) if file == "release.json" else f"{file} {named(path)}"
            yield f"{field} -> {str(other)[:60]!r}", self.verdict(field)
            self.restore()

    def field_forgeries(self) -> Iterator[tuple[str, Path_, Any]]:
        """Yield a file, a place in it, and what to put there, once for each name of a field and
        kind of change.
        """
        for file in ("release.json", "parts.json"):
            if file not in self.files:
                continue
            seen: set[tuple[str, int]] = set()
            for path, value in leaves(self.document(file)):
                name = named(path)
                if name.startswith("files.") or (file == "parts.json" and path[1:2] == ("files",)):
                    continue
                for number, other in enumerate(others(value)):
                    if (name, number) == ("plan.invariants", 0) and isinstance(value, list):
                        # margins, or their features, in another order are the same margins
                        continue
                    key = (f"{name} {type(value).__name__}", number)
                    if key not in seen:
                        seen.add(key)
                        yield file, path, other

    def columns(self, step: int = 1) -> Iterator[tuple[str, str]]:
        """Forge the columns of all CSV files, or some of them; yield each, and what became of
        it.
        """
        for number, (name, column, forged) in enumerate(self.column_forgeries()):
            if number % step:
                continue
            self.write(name, _csv(forged))
            yield f"{name} {column}", self.verdict(f"{name} {column}")
            self.restore()

    def column_forgeries(self) -> Iterator[tuple[str, str, list[list[str]]]]:
        """Yield a file, what is forged in it, and its rows then: other numbers, swapped labels,
        other columns.
        """
        for name, content in self.files.items():
            if not name.endswith(".csv"):
                continue
            header, *rows = csv.reader(io.StringIO(content.decode()))
            for place, column in enumerate(header):
                for forged in _forged(rows, place):
                    yield name, column, [header, *forged]
                yield (
                    name,
                    f"{column}_",
                    [[*header[:place], f"{column}_", *header[place + 1 :]], *rows],
                )
            yield name, "one more", [[*header, "certified"], *([*row, "1"] for row in rows)]
            if rows[::-1] != rows:
                yield name, "rows", [header, *rows[::-1]]

    def others(self) -> Iterator[tuple[str, str]]:
        """Forge what only describes, and add a file."""
        report = self.files["report.html"].decode()
        self.write("report.html", report.replace("exact", "perfectly exact", 1))
        yield "report.html", self.verdict("report.html")
        self.restore()
        if "csv-metadata.json" in self.files:
            self.write(
                "csv-metadata.json",
                self.files["csv-metadata.json"].replace(b"number", b"decimal", 1),
            )
            yield "csv-metadata.json", self.verdict("csv-metadata.json")
            self.restore()
        self.write("more.csv", "a,b\n")
        yield "more.csv", self.verdict("more.csv")
        document = self.document()
        document["files"]["more.csv"] = ""
        self.write("release.json", document)
        yield "more.csv listed", self.verdict("more.csv listed")
        self.restore()


def _forged(rows: list[list[str]], place: int) -> Iterator[list[list[str]]]:
    """Yield the rows with something else in one column: a number nearby, or two labels swapped."""

    def changed(row: int, text: str) -> list[list[str]]:
        return [
            [*line[:place], text, *line[place + 1 :]] if at == row else line
            for at, line in enumerate(rows)
        ]

    texts = [row[place] for row in rows]
    row = next((at for at, text in enumerate(texts) if text), None)
    if row is None:
        if texts:
            yield changed(0, "1.0")
        return
    try:
        number = float(texts[row])
    except ValueError:
        number = None
    if number is None or not _numeric(texts):
        other = next((at for at, text in enumerate(texts) if text != texts[row]), None)
        if other is None:
            yield changed(row, f"{texts[row]}x")
        else:
            swapped = changed(row, texts[other])
            swapped[other] = [*rows[other][:place], texts[row], *rows[other][place + 1 :]]
            yield swapped
        return
    whole = "." not in texts[row] and "e" not in texts[row]
    yield changed(row, str(int(number) + 1) if whole else repr(number * 1.01 + 0.05))
    yield changed(row, str(int(number) - 1) if whole else repr(number * 0.99 - 0.05))


def _numeric(texts: list[str]) -> bool:
    try:
        [float(text) for text in texts if text]
    except ValueError:
        return False
    return True


def _csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()

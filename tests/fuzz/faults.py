"""Small faults in valid documents, release folders and workbooks.

A fault is small: a neighboring number, another name that occurs, a repeated or missing entry. After
a fault in a release folder its digests are right again, so that what is behind them is reached.
"""

import contextlib
import copy
import functools
import hashlib
import importlib
import io
import json
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from attrs import frozen

from semidp import Release
from semidp.publish.recheck import recheck
from semidp.publish.release_files import read_release_document
from semidp.publish.sources.data_files import sheet_columns
from tests.checker.the_checker import check as checker
from tests.fuzz.test_fuzz import HOSTILE, RELEASES, places

NUMBER = re.compile(rb"\d+")
WRITTEN = (
    *("", "0", "-1", "1.5", "1e400", "nan", "9" * 20, "A1", "XFD1048577", "A0", "\u2028"),
    *("s", "b", "d", "e", "n", "str", "inlineStr", "2026-01-31T25:00:00", "1", "14", "true"),
)
"""What attributes and texts of workbooks are replaced by: numbers, places and types of cells."""


def add_fault(document: Any, draw: random.Random) -> None:
    """Change one value of a document, mostly into something like it."""
    every = list(places(document))
    path = draw.choice(every)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    value, other = inner[path[-1]], draw.choice(every)
    kind = draw.choice([0, 1, 2, 3, 4, 4, 4, 4])
    if kind == 0 and isinstance(inner, list):
        inner.insert(path[-1], copy.deepcopy(value))
    elif kind == 1:
        del inner[path[-1]]
    elif kind == 2:
        inner[path[-1]] = draw.choice(HOSTILE)
    elif kind == 3 and other[: len(path)] != path:
        inner[path[-1]] = copy.deepcopy(_get(document)(other))
    else:
        texts = [each for each in map(_get(document), every) if isinstance(each, str)]
        inner[path[-1]] = _nearby(value, texts, draw)


def _get(document: Any) -> Callable[[tuple[Any, ...]], Any]:
    return lambda path: functools.reduce(lambda inner, key: inner[key], path, document)


def _nearby(value: Any, texts: list[str], draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        # a number that grew tenfold again and again is beyond any float
        third = value / 3 if abs(value) < 10**300 else value // 3
        return draw.choice([value + 1, value - 1, -value, value * 10, third, 0])
    if isinstance(value, str) and re.fullmatch(r"[\d./e-]+", value):
        return draw.choice(["1", "1/3", "2", "0.001", "1e-9", f"{value}0", f"-{value}", "0"])
    if isinstance(value, str):
        return draw.choice([*texts, value + "x"])
    return draw.choice([[value], {"value": value}, None])


@frozen
class Input:
    """Documents by name, some of them with faults: the files of a release, a plan, a workbook."""

    source: str
    files: dict[str, Any]
    faults: int = 0


class FaultyFolders:
    """Release folders of every kind, with faults."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "near"
        self.valid: list[Input] = []
        quick = sorted({*RELEASES} - {"parts"})
        for name in [*quick * 3, "parts"]:  # every part is a release of its own, which takes longer
            files: dict[str, Any] = {}
            for path in sorted((place / name).rglob("*")):
                if path.is_file():
                    files[str(path.relative_to(place / name))] = path.read_bytes()
            files["release.json"] = json.loads(files["release.json"])
            self.valid.append(Input(name, files))

    def add(self, whole: Input, draw: random.Random) -> Input:
        files = copy.deepcopy(whole.files)
        document = files["release.json"]
        tables = sorted(name for name in document["files"] if name.endswith(".csv"))
        if tables and draw.random() < 0.5:
            name = draw.choice(tables)
            files[name] = _change_number(files[name], draw)
            document["files"][name] = hashlib.sha256(files[name]).hexdigest()
        else:
            fixed = {name: document.pop(name) for name in ("files", "versions")}
            add_fault(document, draw)
            document |= fixed
        return Input(whole.source, files, whole.faults + 1)

    def write(self, faulty: Input) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for name, content in faulty.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            (self.folder / name).write_bytes(text)

    def show(self) -> None:
        """Do what ``semidp show`` does."""
        recheck(Release.load(self.folder), read_release_document(self.folder))

    def check(self) -> None:
        """Do what ``semidp check`` does; a sentence of it may be that it cannot be read."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert checker.main([str(self.folder), "--seconds", "0.01"]) in (0, 1, 2, 3)


def _change_number(content: bytes, draw: random.Random) -> bytes:
    found = draw.choice([*NUMBER.finditer(content), None])
    if found is None:
        return content
    put = draw.choice([b"0", b"7", b"", b"99999999999999999999", b"1.5", b"-1", b"x", b"1e9"])
    return content[: found.start()] + put + content[found.end() :]


class FaultyWorkbooks:
    """A workbook of people, with faults in its parts."""

    def __init__(self, place: Path) -> None:
        self.file = place / "near.xlsx"
        book = importlib.import_module("openpyxl").Workbook()
        for line in (place / "people.csv").read_text().splitlines():
            book.active.append([int(t) if t.isdecimal() else t for t in line.split(",")])
        book.save(place / "people.xlsx")
        with zipfile.ZipFile(place / "people.xlsx") as whole:
            parts = {name: whole.read(name) for name in whole.namelist()}
        self.valid = [Input("people.xlsx", parts)]

    def add(self, whole: Input, draw: random.Random) -> Input:
        damaged = dict(whole.files)
        # most faults in what holds the cells
        name = draw.choice([*damaged, *([n for n in damaged if "sheet1" in n] * 6)])
        if draw.random() < 0.7:
            damaged[name] = _change_element(damaged[name], draw)
        else:
            content, at = damaged[name], draw.randrange(1 + len(damaged[name]))
            put = draw.choice([b"", b"0", b"<", b"&", b"9", b"\xff", b"A1", b"<c/>"])
            damaged[name] = content[:at] + put + content[at + draw.randrange(3) :]
        return Input(whole.source, damaged, whole.faults + 1)

    def write(self, faulty: Input) -> None:
        with zipfile.ZipFile(self.file, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in faulty.files.items():
                file.writestr(name, content)

    def read(self) -> None:
        """Read the sheet as a source of records does."""
        sheet_columns(str(self.file))


def _change_element(content: bytes, draw: random.Random) -> bytes:
    """Change one element of an XML document, which stays well formed."""
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError:
        return content
    every = list(root.iter())
    element, other = draw.choice(every), draw.choice(every)
    texts = [each.text for each in every if each.text] + [*other.attrib.values()]
    value, kind = draw.choice([*WRITTEN, *texts]), draw.choice([0, 1, 2, 2, 2, 3, 3, 3])
    if kind == 0:
        element.append(copy.deepcopy(other))
    elif kind == 1 and len(element):
        element.remove(draw.choice(list(element)))
    elif kind == 2:
        element.set(draw.choice([*element.attrib, *other.attrib, "t", "r", "s"]), value)
    else:
        element.text = value
    return ElementTree.tostring(root)

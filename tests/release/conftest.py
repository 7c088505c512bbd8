"""The example tables, and checks that read a release folder the way a stranger would: as CSV and
JSON.
"""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from semidp import Feature, Release

DATA = files("semidp") / "data"
NAMES = ("occupational_status", "ucb_admissions", "hair_eye_color", "titanic")


@frozen
class Example:
    """One of the example tables, read without semidp."""

    path: Path
    features: tuple[str, ...]
    counts: Mapping[tuple[str, ...], int]

    @classmethod
    def named(cls, name: str) -> "Example":
        path = Path(str(DATA / f"{name}.csv"))
        header, *rows = csv.reader(path.read_text().splitlines())
        return cls(path, tuple(header[:-1]), {tuple(row[:-1]): int(row[-1]) for row in rows})

    def declared(self) -> tuple[Feature, ...]:
        levels = (
            {cell[position] for cell in self.counts} for position in range(len(self.features))
        )
        return tuple(
            Feature(name, sorted(found)) for name, found in zip(self.features, levels, strict=True)
        )

    def total(self, names: Sequence[str]) -> dict[tuple[str, ...], int]:
        return totals(self.features, self.counts, names)


def totals(
    features: Sequence[str], counts: Mapping[tuple[str, ...], Any], names: Sequence[str]
) -> dict[Any, Any]:
    """Add cells up over the features that are not named; totals of 0 are left out."""
    positions = [list(features).index(name) for name in names]
    found: dict[tuple[str, ...], Any] = {}
    for cell, count in counts.items():
        key = tuple(cell[position] for position in positions)
        found[key] = found.get(key, 0) + count
    return {key: count for key, count in found.items() if count}


def read_table(
    folder: Path, file: str = "table.csv"
) -> tuple[list[str], dict[tuple[str, ...], list[str]]]:
    """Return the header of a CSV file of a release and, for each cell, its columns as text."""
    header, *rows = csv.reader((folder / file).read_text(encoding="utf-8").splitlines())
    numbers = ("estimate", "noisy_count")
    width = next(place for place, name in enumerate(header) if name in numbers)
    cells = {tuple(row[:width]): row[width:] for row in rows}
    assert len(cells) == len(rows), "a cell is written twice"
    return header, cells


def whole_counts(folder: Path, file: str = "table.csv") -> dict[tuple[str, ...], int]:
    """Return the published counts, which must be written as whole numbers that are not negative."""
    _, cells = read_table(folder, file)
    assert all(row[-1].isdigit() for row in cells.values())
    return {cell: int(row[-1]) for cell, row in cells.items()}


def strict_json(text: str) -> Any:
    """Read JSON that holds no NaN and no infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def assert_same_margins(
    example: Example, folder: Path, features: Sequence[str], invariants: list[list[str]]
) -> None:
    """Check, as integers, that the published table has the exact totals of the data."""
    published = whole_counts(folder)
    assert sum(published.values()) == sum(example.counts.values())
    for names in invariants:
        shared = [name for name in names if name in features]
        if shared:
            assert totals(features, published, shared) == example.total(shared)


def cells_of(features: Sequence[Feature]) -> set[tuple[str, ...]]:
    return set(product(*(feature.levels for feature in features)))


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest) -> Example:
    return Example.named(request.param)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Release], Path]:
    """A function that saves a release into a new folder and returns the folder."""

    def save(release: Release) -> Path:
        folder = tmp_path / f"release-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        release.save(folder)
        return folder

    return save

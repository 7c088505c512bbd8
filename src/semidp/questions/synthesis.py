"""Records that have every published table: whole-number tables joined along what they share.

Where the published tables and the exact totals are decomposable, each joins the earlier ones along a separator inside
one of them, and both have the same counts of it. All of it is post-processing of published numbers.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Grid, Totals, View, join, junction_order, maximal, meet
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.tables.schema import Schema
from semidp.errors import Occupied, Refused
from semidp.noise.randomness import Randomness, generator
from semidp.output.cells import csv_bytes
from semidp.output.files import document_at, replace_file

KIND = "semidp synthetic records"
"""What the file beside records says they are."""

_AT_ONCE = 2**16  # lines that are written together


@dataclass(frozen=True, eq=False)
class SyntheticRecords:
    """Synthetic records, one a line: what counting them gives is published, and nothing else of them means anything.

    Parameters
    ----------
    schema
        The features of a record.
    view
        The depth at which each feature is known; 0 where no table has it.
    places
        For each feature, the first leaf of every record's node at that depth.

    Examples
    --------
    >>> import semidp
    >>> wanted = [semidp.TableRequest(["sex", "age"]), semidp.TableRequest(["age", "ill"])]
    >>> plan = semidp.Plan(wanted, ["sex"], levels_from_data=True).with_budget(semidp.Budget.gdp(1))
    >>> people = {"sex": [*"ffmmf"], "age": [*"yoyoo"], "ill": [*"nnyny"]}
    >>> records = semidp.run(plan, people).records()
    >>> records.columns, len(records), sorted(row[0] for row in records.rows())
    (('sex', 'age', 'ill'), 5, ['f', 'f', 'f', 'm', 'm'])
    """

    schema: Schema
    view: View
    places: tuple[NDArray[np.int64], ...] = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The features, a nested one with every depth that is known."""
        return tuple(
            name
            for feature, depth in zip(self.schema.features, self.view, strict=True)
            for name in feature.names[:depth]
        )

    def __len__(self) -> int:
        """The number of records."""
        return len(self.places[0])

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the levels of each record."""
        named = [axis for axis, depth in enumerate(self.view) if depth]
        paths = [[path[: self.view[axis]] for path in self.schema.features[axis].paths()] for axis in named]
        for leaves in zip(*(self.places[axis][start:end].tolist() for axis in named), strict=True):
            yield tuple(label for path, leaf in zip(paths, leaves, strict=True) for label in path[leaf])

    def csv(self) -> Iterator[bytes]:
        """Yield the file of the records, some lines at a time."""
        yield csv_bytes(self.columns, ())
        for start in range(0, len(self), _AT_ONCE):
            first, *others = self.rows(start, start + _AT_ONCE)
            yield csv_bytes(first, others)


def joined(dataspace: Dataspace, tables: Sequence[tuple[str, Totals]], randomness: Randomness) -> SyntheticRecords:
    """Return records that have all given tables and every exact total; refuse where that is not certain.

    Tables that share a separator S have the same counts of it, so that the records of one, in random order within each
    value of S, take the cells of the other one by one: n records have both, to the person. By the running intersection
    property the next table meets all earlier ones inside one of them.

    Parameters
    ----------
    dataspace
        What is published exactly.
    tables
        The published tables of whole numbers, by their names.
    randomness
        How records are matched within a separator.
    """
    schema = dataspace.schema
    grid = schema.grid
    exact = [("the exact totals of " + " by ".join(schema.named(total.view)), total) for total in dataspace.published]
    every = [*tables, *exact]
    for (one, first), (other, second) in combinations(every, 2):
        shared = meet(first.view, second.view)
        if not np.array_equal(first.down(grid, shared).counts.ravel(), second.down(grid, shared).counts.ravel()):
            raise Refused(f"{one} and {other} do not agree, so that no records have both: release them from one budget")
    order = junction_order(maximal(total.view for _, total in every))
    if order is None:
        raise Refused(
            "these tables and exact totals hang together in a circle (they are not decomposable), so that records with "
            "all of them may not exist: release one table of all their features, or fewer tables"
        )
    _check_zeros(schema, order)
    draw, found = generator(randomness), {total.view: total for _, total in every}
    places: list[NDArray[np.int64]] = [np.zeros(dataspace.n or 0, dtype=np.int64) for _ in grid.chains]
    known = grid.nothing
    for view in order:
        cells = np.repeat(np.arange(found[view].counts.size), found[view].counts.ravel())
        nodes = _first_leaves(grid, view, cells)
        shared = meet(view, known)
        theirs, ours = _keys(grid, shared, places), _keys(grid, shared, nodes)
        into = np.lexsort((draw.random(len(theirs)), theirs))
        out_of = np.argsort(ours, kind="stable")
        for axis, depth in enumerate(view):
            if depth > known[axis]:
                places[axis][into] = nodes[axis][out_of]
        known = join(known, view)
    last = np.lexsort(tuple(reversed(places)))
    return SyntheticRecords(schema, known, tuple(place[last] for place in places))


def save_records(
    records: SyntheticRecords, path: Path | str, about: Mapping[str, Any], *, force: bool = False
) -> dict[str, Any]:
    """Write records to a CSV file, and beside it what they are; return the latter.

    The file beside is written first and holds the digest of the records. With `force` records are replaced that were
    written by this function, and no other file.
    """
    path = Path(path)
    beside = about_file(path)
    check_records(path, force=force)
    digest = hashlib.sha256()
    for part in records.csv():
        digest.update(part)
    document = {"kind": KIND, "schema_version": 1, "file": path.name, "sha256": digest.hexdigest(), **about}
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    replace_file(beside, text, force=force or _is_ours(beside))
    replace_file(path, records.csv(), force=force)
    return document


def check_records(path: Path, *, force: bool = False) -> None:
    """Refuse a place for records where something is that nobody agreed to lose."""
    beside = about_file(path)
    if not path.name:
        raise Occupied(f"{path} is not a name for a new file")
    if os.path.lexists(beside) and not _is_ours(beside):
        raise Occupied(f"{beside} already exists, and was not written beside records")
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file() or not _is_ours(beside)):
        raise Occupied(f"{path} already exists, and holds no records that were put together here")
    if os.path.lexists(path) and not force:
        raise Occupied(f"{path} already exists", replaceable=True)


def about_file(path: Path) -> Path:
    """Return the file that says what records are, beside theirs.

    >>> about_file(Path("people.csv")).name
    'people.about.json'
    """
    return path.with_name(f"{path.stem}.about.json")


def _is_ours(beside: Path) -> bool:
    return document_at(beside).get("kind") == KIND


def _check_zeros(schema: Schema, order: Sequence[View]) -> None:
    """Refuse a join that could put together what cannot occur."""
    inside = [set(schema.named(view)) for view in order]
    used = set().union(*inside)
    for zero in schema.structural_zeros:
        names = {name for name, _ in zero.levels}
        if names <= used and not any(names <= part for part in inside):
            raise Refused(
                f"a combination of {', '.join(sorted(names))} cannot occur, and no table has these features together: "
                "release one that does"
            )


def _first_leaves(grid: Grid, view: View, cells: NDArray[np.intp]) -> list[NDArray[np.int64]]:
    """For each feature the first leaf of the node of each cell; zeros where the view does not name it."""
    named = [axis for axis, depth in enumerate(view) if depth]
    nodes = np.unravel_index(cells, [grid.chains[axis].size(view[axis]) for axis in named]) if named else ()
    found = [np.zeros(len(cells), dtype=np.int64) for _ in view]
    for axis, node in zip(named, nodes, strict=True):
        found[axis] = np.asarray(grid.chains[axis].starts[view[axis] - 1], dtype=np.int64)[node]
    return found


def _keys(grid: Grid, view: View, places: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Number the values of a separator: one number for each combination of nodes at its depths."""
    key: Any = np.zeros(len(places[0]), dtype=np.int64)
    for chain, depth, place in zip(grid.chains, view, places, strict=True):
        if depth:
            node = np.searchsorted(np.asarray(chain.starts[depth - 1]), place, side="right") - 1
            key = key * chain.size(depth) + node
    return np.asarray(key, dtype=np.int64)

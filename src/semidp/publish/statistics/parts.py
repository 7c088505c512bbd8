"""Parts of a release: a folder of files for each node of a cut, and the work that makes one.

A part is the same for every statistic. Statistics that are cut measure and write their share of
it: `PartWork`. `publish` runs this work.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
from attrs import asdict, evolve, field, frozen

from semidp.errors import InputError
from semidp.promise.documents import digest, regular_file
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.results.columns import Form, StoredFiles
from semidp.publish.results.grids import faint_cells
from semidp.publish.results.published_table import Fitted, PublishedTable, is_size

BY_PARTS = "partitioned"
"""The key in release.json of the list of results by parts."""
PARTS = "parts.json"
"""Lists the parts of a release and their files, with digests."""


@frozen
class NoisyCells:
    """Cells of one table in one part: how many have noise, and how many of them it dominates.

    >>> NoisyCells(noisy=24, dominated=7, smallest_standard_error=1.5)
    NoisyCells(noisy=24, dominated=7, smallest_standard_error=1.5)
    """

    noisy: int
    dominated: int
    smallest_standard_error: float

    def __attrs_post_init__(self) -> None:
        numbers = (self.noisy, self.dominated, self.smallest_standard_error)
        if not all(map(is_size, numbers)):
            raise ValueError("the cells of a part are counted, and their errors at least 0")

    @classmethod
    def from_table(cls, table: PublishedTable) -> "NoisyCells":
        """Count the cells of a table."""
        errors = table.standard_errors[table.standard_errors > 0]
        smallest = float(errors.min()) if errors.size else 0.0
        return cls(int(errors.size), int(faint_cells(table).sum()), smallest)


@frozen
class PartTable:
    """The outcome of one table in one part.

    Its variance is the sum of all cells' variances.
    """

    name: str
    fitted: Fitted
    largest_standard_error: float
    variance: float
    cells: NoisyCells

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not all(
            map(is_size, (self.largest_standard_error, self.variance))
        ):
            raise ValueError("a table of a part has a name, and errors of at least 0")

    @classmethod
    def from_table(cls, table: PublishedTable) -> "PartTable":
        """Return the outcome of a table."""
        # All of it adds up over parts, so the errors of the whole follow without reading any cell.
        errors = table.standard_errors
        return cls(
            name=table.name,
            fitted=table.fitted,
            largest_standard_error=float(errors.max(initial=0.0)),
            variance=float(np.square(errors).sum()),
            cells=NoisyCells.from_table(table),
        )

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "PartTable":
        """Read what `asdict` wrote."""
        fitted, cells = Fitted(**entry["fitted"]), NoisyCells(**entry["cells"])
        return cls(**{**entry, "fitted": fitted, "cells": cells})


@frozen
class Part:
    """One part of a release: its place and its content.

    Parameters
    ----------
    path
        The labels of its node, from the coarsest depth down to the partition's.
    folder
        Its folder, as seen from the release's.
    files
        Its files, with their digests.
    tables
        The outcome of each table.
    """

    path: tuple[str, ...]
    folder: str
    files: Mapping[str, str] = field(repr=False)
    tables: tuple[PartTable, ...] = field(repr=False)

    def find_fit(self, name: str) -> Fitted:
        """The outcome of a table, by its name."""
        return next(table.fitted for table in self.tables if table.name == name)

    @property
    def digests(self) -> dict[str, str]:
        """The digests of its files, as seen from the folder of the release."""
        return {f"{self.folder}/{name}": expected for name, expected in self.files.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the part as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Part":
        """Read what `to_json` wrote; refuse names that lead elsewhere."""
        names = [*entry["folder"].split("/"), *entry["files"]]
        if not all(
            isinstance(name, str) and name and name[0] != "." and "/" not in name for name in names
        ):
            raise ValueError("a part has a folder and files of its own")
        if not isinstance(entry["path"], list) or not all(
            isinstance(label, str) for label in entry["path"]
        ):
            raise ValueError("a part has labels")
        tables = map(PartTable.from_json, entry["tables"])
        return cls(tuple(entry["path"]), entry["folder"], dict(entry["files"]), tuple(tables))


@frozen
class Partition:
    """The parts of a release.

    Parameters
    ----------
    depth
        The name of the depth at which it was cut.
    parts
        A part for each node there.
    place
        The folder of the release; None if it is not known.
    """

    depth: str
    parts: tuple[Part, ...] = field(repr=False)
    place: Path | None = field(default=None, eq=False)

    def part(self, path: Sequence[str]) -> Part:
        """Return a part by its labels, or by the last of them where that is enough."""
        asked_path = tuple(path)
        matches = [part for part in self.parts if asked_path in (part.path, part.path[-1:])]
        if len(matches) != 1:
            why = "several parts" if matches else "no part"
            raise InputError(
                f"there is {why} {' · '.join(asked_path)!r} of {self.depth}: give its labels from"
                " the top down"
            )
        return matches[0]

    def to_json(self) -> dict[str, Any]:
        """Return all but the parts, which have a file of their own, as plain values."""
        return {"depth": self.depth, "parts": len(self.parts), "file": PARTS}

    @property
    def folder(self) -> Path:
        """The folder of the release; refused where it is not known."""
        if self.place is None:
            raise InputError("parts are read from the folder of a release, which is not known")
        return self.place

    def files(self, part: Part) -> StoredFiles:
        """Return the files of one part."""
        return StoredFiles(self.folder / part.folder, tuple(part.files))

    def copy(self, folder: Path) -> None:
        """Copy the files of every part to another folder; refuse a changed file."""
        for part in self.parts:
            (folder / part.folder).mkdir(parents=True)
            for name in part.files:
                with open(regular_file(self.folder / part.folder / name, self.folder), "rb") as old:
                    (folder / part.folder / name).write_bytes(old.read())
        # The copy is compared, not the original: a file may change while it is copied.
        changed = evolve(self, place=folder).find_changed_file()
        if changed is not None:
            raise InputError(f"{self.folder / changed} was changed after the release was written")

    def find_changed_file(self) -> str | None:
        """Return the first file that changed since the release was made, or None."""
        for part in self.parts:
            for name, expected in part.digests.items():
                try:
                    written = digest(self.folder / name, self.folder)
                except OSError:
                    written = ""
                if written != expected:
                    return name
        return None


class ChangedFile(InputError):
    """A file of a part has changed since the release was written."""


def refuse_changed(folder: Path, digests: Mapping[str, str], since: str) -> None:
    """Refuse a folder with a file that has changed since some event."""
    for name, expected in sorted(digests.items()):
        try:
            written = digest(folder / name, folder)
        except OSError:
            raise ChangedFile(f"cannot read {folder / name}") from None
        if written != expected:
            raise ChangedFile(f"{folder / name} was changed after {since}")


def part_path(schema: Schema, cut: Cut, node: int) -> tuple[str, ...]:
    """Return the labels of a part, from the top down."""
    feature = schema.features[cut.axis]
    # All leaves below a node have the same labels down to the cut, so the first one tells them.
    first = feature.chain.slice_descendants(cut.depth, node, feature.chain.depth).start
    return feature.path(first)[: cut.depth]


def part_folder(schema: Schema, cut: Cut, node: int) -> str:
    """Return the folder of a part, as seen from that of the release.

    >>> from semidp.promise.schema.features import Feature
    >>> places = Schema([Feature.from_paths(["state", "county"], [("a/b", "x"), ("c", "y")])])
    >>> part_folder(places, Cut.from_name(places, "state"), 0)
    'state=a%2Fb'
    """
    pairs = zip(schema.features[cut.axis].names, part_path(schema, cut, node), strict=False)
    return "/".join(f"{_escape(name)}={_escape(label)}" for name, label in pairs)


def _escape(text: str) -> str:
    """Return a name or a label as the name of a folder has it, in the way of Hive."""
    # Dots stay as they are, but one in front would hide the folder or lead upwards.
    kept = quote(text, safe=" !$&()+,;@~-_.")
    return f"%{ord(kept[0]):02X}{kept[1:]}" if kept.startswith(".") else kept


STATE = ".state"
"""The folder, in an unfinished release, of what is needed to finish it."""


class PartWork(Protocol):
    """The work of one request in one part. It shares only public values with other
    parts.
    """

    def is_measured(self, task: "PartTask") -> bool:
        """Whether an earlier attempt has stored what is measured."""

    def reads(self, task: "PartTask") -> bool:
        """Whether it must count the records of the part."""

    def measure(self, task: "PartTask", source: Any, attempt: Path) -> None:
        """Count the records of the part and store them with noise, unless an earlier attempt did.

        Parameters
        ----------
        task
            The part.
        source
            Its records; None if there are none.
        attempt
            A folder of this attempt.
        """

    def write(self, task: "PartTask", attempt: Path) -> list[PartTable]:
        """Write the files of the part from stored values; return the outcome of its tables."""


@frozen(eq=False)
class PartTask:
    """Everything that one part needs.

    Parameters
    ----------
    path
        The labels of the part.
    run_name
        Which measurement it belongs to: the name of the run that was charged for it.
    work, folder
        The folder of the unfinished release, and that of the part in it.
    schema, declared
        The features of the part's records, and as they were declared.
    cut, exact
        The cut of the tables, and the exact totals below it.
    requests, form
        The work of each request, and how tables are written.
    values
        The column values that select the part's records; None if there are no such
        records.
    randomness
        Where its random words come from.
    only_measured
        Whether the task ends when its measurement is stored; another one fits and writes the part.
    """

    path: tuple[str, ...]
    run_name: str
    work: Path
    folder: str
    schema: Schema
    declared: tuple[Feature, ...] = field(repr=False)
    cut: Cut
    exact: Dataspace = field(repr=False)
    requests: tuple[PartWork, ...] = field(repr=False)
    values: Mapping[str, Sequence[Any]] | None = field(repr=False)
    form: Form
    randomness: Randomness
    only_measured: bool = False

"""Memory, disk and time of a release, estimated from its tables before any record is
counted.

The estimates are linear in the cells, with measured constants (docs/scale.md), and err on the high
side. A release that does not fit is refused before any charge.
"""

import json
import math
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.schema.features import Feature, list_labels
from semidp.promise.schema.margins import maximal
from semidp.promise.schema.schema import Schema, refuse_cells
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.fitting.tables import is_fitted_by_flow
from semidp.publish.plan import Plan
from semidp.publish.plotting import is_drawn
from semidp.publish.presentation import AS_USUAL, Presentation, refuse_rows
from semidp.publish.results.columns import TABLE_NUMBERS, Form, choose_form
from semidp.publish.results.grids import FOLDED_CELLS
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.results.published_table import exact_totals
from semidp.publish.sources.reader import reads_jointly

READING_BYTES = 300 * 10**6  # the process while DuckDB reads; it ends before tables are fitted
BASE_BYTES = 215 * 10**6  # the process and its libraries
CELL_BYTES = 62  # the largest table while it is measured and fitted
FLOW_BASE, FLOW_BYTES = 30 * 10**6, 485  # where a flow fits it: the solver, and a cell
PICTURE_BYTES = 165  # where the report draws it, a pixel a cell
SHARED_BYTES = 115  # where it shares a budget: its residuals are held, too
KEPT_BYTES = 40  # a cell of every other table: its count, estimate, error and measurement
JOINT_BYTES = 16  # a cell of the joint table, where one query reads all
LEVEL_BYTES, LETTER_BYTES = 390, 9  # a level in every list and column that names it; its letters
DISK_BYTES = {Form.parquet: 48, Form.csv: 160}  # a cell, both files of a table together
PAGE_DISK, REQUEST_DISK = 10**5, 10**5  # release.json and the report, and what a request adds
GROUP_DISK = 400  # a group of a statistic: its row in a file, on the page and in a figure
SHOWN_DISK = 220  # a cell that the page shows
LISTED_DISK = 50  # a level or an exact total in release.json
SHORT_LABELS = 30  # letters of a row in CSV that DISK_BYTES has room for
SHEET_DISK, WORKBOOK_DISK = 100, 50_000  # a cell of a workbook, and the rest of it
SDMX_DISK = 250  # two observations of a cell
OUTLINES_DISK = 6  # files as large as the map: itself, and the panels on the page
BASE_SECONDS, CELL_SECONDS = 2.0, 1.5e-6
PART_BYTES, PART_SECONDS = 200, 8e-6  # a cell that is measured part by part

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BINARY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


@frozen
class ResourceEstimate:
    """Expected cells, memory, disk space and time of a release.

    Parameters
    ----------
    cells
        The cells of all tables together.
    largest
        The cells of the largest one.
    memory
        In bytes.
    seconds
        On one machine, without the time to read the records.
    sizes, form, other_disk
        The inputs of the disk estimate: the cells of each table, how tables are written if known,
        and the bytes of all other files.

    Examples
    --------
    >>> (
    ...     size_text(ResourceEstimate.from_sizes([10**8]).memory),
    ...     ResourceEstimate.from_sizes([2, 6]).seconds,
    ... )
    ('6.4 GB', 2.000012)
    """

    cells: int
    largest: int
    memory: int
    seconds: float
    sizes: tuple[int, ...] = ()
    form: Form | None = None
    other_disk: int = PAGE_DISK + REQUEST_DISK

    @classmethod
    def from_sizes(
        cls,
        sizes: Iterable[int],
        joint: int = 0,
        form: Form | None = None,
        fit: int = 0,
        labels: int = 0,
    ) -> "ResourceEstimate":
        """Estimate the resources of tables.

        Parameters
        ----------
        sizes, form
            The cells of each, and how they are written.
        joint
            The cells of the joint table that they are summed from.
        fit
            The bytes for the fit of one of them, if that is more than for the largest.
        labels
            The bytes for the levels of all features.
        """
        each = tuple(sizes)
        cells, largest = sum(each), max(each, default=0)
        held = KEPT_BYTES * (cells - largest) + labels
        if joint > largest:
            held += JOINT_BYTES * joint
        memory = max(READING_BYTES, BASE_BYTES + max(CELL_BYTES * largest, fit) + held)
        return cls(cells, largest, memory, BASE_SECONDS + CELL_SECONDS * cells, each, form)

    @property
    def disk(self) -> int:
        """The bytes of its files, the report among them."""
        tables = sum(size * DISK_BYTES[self.form or choose_form((), size)] for size in self.sizes)
        return tables + self.other_disk

    def with_presentation(self, presentation: Presentation) -> "ResourceEstimate":
        """Return the estimate with the disk space of a workbook and a map."""
        disk = self.other_disk
        if presentation.workbook:
            disk += WORKBOOK_DISK + SHEET_DISK * self.cells
        if presentation.sdmx is not None:
            disk += SDMX_DISK * self.cells
        if presentation.places is not None:
            disk += OUTLINES_DISK * len(json.dumps(presentation.places.to_json()))
        return evolve(self, other_disk=disk)

    def to_json(self) -> dict[str, Any]:
        """Return the estimates as plain values."""
        return {
            "cells": self.cells,
            "memory": self.memory,
            "disk": self.disk,
            "seconds": round(self.seconds, 1),
        }

    def refuse_memory(self, limit: int | None = None) -> None:
        """Refuse a release that does not fit in memory: the given limit, or that of the machine or
        container.

        >>> ResourceEstimate.from_sizes([10**8]).refuse_memory(4 * 10**9)
        Traceback (most recent call last):
        semidp.errors.InputError: the release needs about 6.4 GB of memory for 100,000,000 cells,
        and 4.0 GB may be ...
        """
        usable = memory_limit() if limit is None else limit
        if self.memory > usable:
            raise InputError(
                f"the release needs about {size_text(self.memory)} of memory for {self.cells:,}"
                f" cells, and {size_text(usable)} may be used: release a coarser table, or several",
                needs="memory",
            )

    def refuse_disk(self, folder: Path) -> None:
        """Refuse a folder whose disk has too little space."""
        free = shutil.disk_usage(folder).free
        if self.disk > free:
            # Two small numbers would be the same in MB.
            needed, left = size_text(self.disk), size_text(free)
            if needed == left:
                needed, left = f"{math.ceil(self.disk / 1000):,} kB", f"{free // 1000:,} kB"
            raise InputError(
                f"the release needs about {needed} of disk, and {left} are free: choose another"
                " place, or a coarser table"
            )


def declared_needs(plan: Plan, form: Form | None = None) -> ResourceEstimate | None:
    """Estimate the resources of a plan from the declared levels of its tables; None if it declares
    none.

    Tables of which a level list is not declared count for nothing here: `estimate_resources`
    knows them when levels are read.
    """
    names = {name for feature in plan.features for name in feature.names}
    declared = [table for table in plan.tables if names.issuperset(table.features)]
    if not declared:
        return None
    schema = Schema(plan.features)
    parts = [schema.restrict(table.features) for table in declared]
    for part in parts:
        refuse_cells(part.shape)
    sizes = (part.size for part in parts)
    return ResourceEstimate.from_sizes(sizes, form=form, labels=_label_bytes(plan.features))


def estimate_resources(plan: Plan, schema: Schema, form: Form | None = None) -> ResourceEstimate:
    """Estimate the resources of a plan once the levels are known."""
    sizes = [schema.restrict(table.features).size for table in plan.tables]
    fit = max((_fit_bytes(plan, request.tables, schema) for request in plan.requests), default=0)
    joint = schema.size if reads_jointly(schema) else 0
    labels = _label_bytes(schema.features)
    whole = ResourceEstimate.from_sizes(sizes, joint, form, fit, labels)
    return evolve(whole, other_disk=_other_disk(plan, schema, form))


def _label_bytes(features: Iterable[Feature]) -> int:
    return sum(
        LEVEL_BYTES * len(feature.levels) + LETTER_BYTES * _count_letters(feature)
        for feature in features
    )


def _count_letters(feature: Feature) -> int:
    """Bytes of the labels of all depths as text."""
    texts = ("".join(depth.labels) for depth in feature.depths)
    return sum(len(text.encode(errors="surrogatepass")) for text in texts)


def _fit_bytes(plan: Plan, tables: Sequence[Any], schema: Schema) -> int:
    """Bytes for the fit of the largest of some tables that share a budget."""
    largest = max(tables, key=lambda table: schema.restrict(table.features).size, default=None)
    if largest is None:
        return 0
    part = schema.restrict(largest.features)
    fixed: list[Sequence[str]] = [margin.names for margin in plan.invariants]
    # Tables that agree are fitted one after the other, and those before are totals of those after.
    fixed += [table.features for table in tables if table is not largest]
    views = []
    for names in fixed:
        views.append(part.view([name for name in names if name in part.names]))
    if is_fitted_by_flow(part.grid, maximal(views), bool(part.structural_zeros)):
        return FLOW_BASE + FLOW_BYTES * part.size
    if is_drawn(part):
        return PICTURE_BYTES * part.size
    return (CELL_BYTES if len(tables) == 1 else SHARED_BYTES) * part.size


def _other_disk(plan: Plan, schema: Schema, form: Form | None) -> int:
    """Bytes of all files but those of tables: release.json, the report, other statistics; and of
    labels that are longer than usual.
    """
    declared = {name for feature in schema.features for name in feature.names}
    listed = sum(len(feature.levels) for feature in schema.features)
    for margin in plan.invariants:
        # of linked files the schema of one kind is given, and the totals of the other are few
        if declared.issuperset(margin.names):
            listed += schema.grid.count_margin_cells(schema.view(margin.names))
    shown = [schema.restrict(table.features).size for table in plan.tables]
    disk = PAGE_DISK + LISTED_DISK * listed
    disk += SHOWN_DISK * sum(size for size in shown if size <= FOLDED_CELLS)
    disk += 2 * sum(map(_count_letters, schema.features))
    for table, size in zip(plan.tables, shown, strict=True):
        if (form or choose_form((), size)) is Form.csv:
            disk += 2 * size * max(0, _count_row_letters(schema, table.features) - SHORT_LABELS)
    for request in plan.requests:
        disk += REQUEST_DISK
        if request.features and not request.tables and declared.issuperset(request.features):
            disk += GROUP_DISK * schema.restrict(request.features).size
    return disk


def _count_row_letters(schema: Schema, names: Sequence[str]) -> int:
    """Bytes of the labels of a row, on average."""
    letters = 0
    for feature in schema.restrict(names).features:
        for labels in list_labels(feature):
            letters += len("".join(labels).encode(errors="surrogatepass")) // max(1, len(labels))
    return letters


def count_part_cells(schema: Schema, cut: Cut, tables: Sequence[Any]) -> NDArray[np.int64]:
    """Return the cells of each part, of those tables that reach below a cut."""
    chain = cut.chain(schema)
    parts = np.zeros(chain.size(cut.depth), dtype=np.int64)
    for table in tables:
        view = schema.view(table.features)
        if cut.reaches(view):
            deepest = view[cut.axis]
            other_cells = schema.grid.count_margin_cells(view) // chain.size(deepest)
            sizes = chain.children(cut.depth, deepest) * other_cells
            refuse_cells([int(sizes.max())])
            parts += sizes
    return parts


def part_needs(
    plan: Plan, schema: Schema, cut: Cut, jobs: int = 1, form: Form | None = None
) -> ResourceEstimate:
    """Estimate the memory and disk of a plan by parts: memory for `jobs` parts at a time, disk
    for all.

    >>> from semidp.promise.schema.features import Feature
    >>> places = Feature.from_paths(
    ...     ["state", "county"], [(str(n // 1000), str(n)) for n in range(10_000)]
    ... )
    >>> schema = Schema([places, Feature("age", [str(n) for n in range(1000)])])
    >>> from semidp.publish import TableRequest
    >>> plan = Plan([TableRequest(["county", "age"])])
    >>> part_needs(plan, schema, Cut(0, 1)).largest, estimate_resources(plan, schema).largest
    (1000000, 10000000)
    """
    views = [schema.view(table.features) for table in plan.tables]
    above = sum(schema.grid.count_margin_cells(cut.coarsen_view(view)) for view in views)
    refuse_cells([above])
    parts = count_part_cells(schema, cut, plan.tables)
    whole = ResourceEstimate.from_sizes(
        (schema.restrict(table.features).size for table in plan.tables), form=form
    )
    largest, jobs = int(parts.max()), min(jobs, len(parts))
    # Each worker is a process with its own libraries and one part at a time. With several workers
    # this process is one more.
    memory = (
        jobs * (BASE_BYTES + PART_BYTES * largest)
        + KEPT_BYTES * above
        + (BASE_BYTES if jobs > 1 else 0)
    )
    return evolve(
        whole,
        largest=largest,
        memory=memory,
        seconds=BASE_SECONDS + PART_SECONDS * whole.cells / jobs,
    )


def refuse_files(
    plan: Plan,
    schema: Schema,
    folder: Path,
    form: Form | None = None,
    overview: Collection[str] = (),
    presentation: Presentation = AS_USUAL,
) -> None:
    """Refuse a folder that cannot take the files of a release: the names of files and columns, or
    their size.

    The levels must be known, and the folder empty. A release by parts also has tables at its cut,
    named after their features.
    """
    for table in plan.tables:
        part = schema.restrict(table.features)
        choose_form((*part.names, *TABLE_NUMBERS), part.size, form)
    stems = (name.removesuffix(".csv") for request in plan.requests for name in request.files)
    ending, mend = ("", ", or its features") if overview else (".csv", "")
    for stem in dict.fromkeys((*overview, *stems)):
        # Only the file system knows which names it takes, so each is tried before anything is
        # charged.
        file = folder / f"{stem}.{Form.parquet}"  # the longest of all endings
        try:
            file.touch(exist_ok=False)
            file.unlink()
        except (OSError, ValueError):
            raise InputError(
                f"no file can be called {stem + ending!r} in that folder: name the table"
                f" otherwise{mend}"
            ) from None
    needs = estimate_resources(plan, schema, form)
    needs.with_presentation(presentation).refuse_disk(folder)


def refuse_sheets(plan: Plan, dataspace: Dataspace) -> None:
    """Refuse tables and exact totals that do not fit on a sheet of a workbook, before any
    charge.
    """
    for request in plan.requests:
        for table in request.tables:
            schema = dataspace.for_kind(request.counted_by(table)).schema
            refuse_rows(table.name, schema.restrict(table.features).size)
    for total in exact_totals(dataspace):
        refuse_rows(f"exact {total.title}", total.table.counts.size)


def refuse_map(places: PlaceMap, dataspace: Dataspace) -> None:
    """Refuse a map that names no place of the release, before any charge: probably the wrong file
    or property.
    """
    for kind in dataspace.kinds:
        for feature in dataspace.for_kind(kind).schema.features:
            # A nested feature may be drawn at any of its depths.
            for labels in list_labels(feature):
                if places.names_most(list(dict.fromkeys(labels))):
                    return
    raise InputError(
        "the map names no place of this release: give one whose places are called as the levels"
        " are, or say which property names them (⟨map_key PROPERTY⟩)"
    )


def memory_limit() -> int:
    """Return the memory that this machine or container has, in bytes.

    >>> memory_limit() > 2**20
    True
    """
    limits = (
        [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
        if hasattr(os, "sysconf")
        else [2**62]
    )
    for place in _CGROUPS:
        try:
            # In a container the memory of the machine is more than may be used. A control group
            # without a limit says "max", or a number beyond any machine.
            limit = Path(place).read_text(encoding="ascii").strip()
        except (OSError, UnicodeError):
            continue
        limits += [int(limit)] if limit.isdigit() and int(limit) > 0 else []
    return min(limits)


def memory_from(text: str) -> int:
    """Return an amount of memory from its text.

    >>> memory_from("8GB"), memory_from("512 MiB")
    (8000000000, 536870912)
    >>> memory_from("much")
    Traceback (most recent call last):
    semidp.errors.InputError: an amount of memory is a number with a unit, such as 8GB, not 'much'
    """
    units: Mapping[str, int] = {**_UNITS, **_BINARY}
    word = text.strip().lower()
    digits = word.rstrip("abcdefghijklmnopqrstuvwxyz ")
    try:
        amount = int(float(digits) * units[word[len(digits) :].strip()])
    except (ValueError, KeyError, OverflowError):
        amount = 0
    if amount <= 0:
        raise InputError(f"an amount of memory is a number with a unit, such as 8GB, not {text!r}")
    return amount


def size_text(size: int) -> str:
    """Write a number of bytes for people.

    >>> [size_text(size) for size in (900, 1_500_000, 4 * 10**9, 12 * 10**9)]
    ['1 MB', '2 MB', '4.0 GB', '12 GB']
    """
    if size < 10**9:
        return f"{max(1, math.ceil(size / 10**6))} MB"
    return f"{size / 10**9:.1f} GB" if size < 10**10 else f"{size / 10**9:.0f} GB"

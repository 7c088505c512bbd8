"""What a release is: published tables, their measurements and errors, the guarantee, and where it came from.

Everything here may be published. A release is written to a folder as CSV and JSON and read back from it; the report
is drawn from it elsewhere.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from semidp._version import __version__
from semidp.errors import AdjacencyUnknown, InputError
from semidp.exact import number
from semidp.files import recover
from semidp.guarantees import Guarantee
from semidp.invariants import Adjacency, Dataspace
from semidp.release.groups import PublishedGroups
from semidp.release.measured import Noise
from semidp.release.plan import Plan
from semidp.release.requests import file_names
from semidp.release.survey import Scope, semi_of
from semidp.tables import Schema, Table
from semidp.tradeoff import Tradeoff, tradeoff_from_json

SCHEMA_VERSION = 1
"""The version of release.json; it grows when a field changes its meaning."""

_DEPENDENCIES = ("numpy", "scipy", "duckdb", "python-flint", "ortools", "dp-accounting")


@dataclass(frozen=True)
class Fitted:
    """How the published table was made from the measurement: post-processing of public values only."""

    kind: str
    method: str
    loss: float
    bound: float
    optimal: bool
    note: str


@dataclass(frozen=True, eq=False)
class Published:
    """One published table.

    Parameters
    ----------
    name
        What its files are called.
    schema
        Its features and levels.
    counts
        What is published: whole numbers unless the plan asked for real ones.
    noisy, projected
        The measurement as drawn, and with the invariants put back.
    standard_errors
        Of `projected`, cell by cell. They belong to the measurement, not to the fitted counts.
    noise, fitted, guarantee, private
        How it was measured and fitted, what it guarantees, and whether its randomness was secure.
    advertised
        What the same noise would be said to give for one record if the exact totals were forgotten.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [semidp.Margin("sex", "region")])
    >>> table = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]}).tables[0]
    >>> table.counts.tolist(), table.noise.mechanism  # all of it is exact here
    ([[1, 0], [0, 1]], 'no noise')
    """

    name: str
    schema: Schema
    counts: NDArray[Any] = field(repr=False)
    noisy: NDArray[Any] = field(repr=False)
    projected: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    noise: Noise
    fitted: Fitted
    guarantee: Guarantee
    advertised: Tradeoff | None
    private: bool

    def keeps(self, scope: Scope) -> bool:
        """Whether the published whole numbers, none of them negative, have every exact total."""
        if self.counts.dtype.kind != "i":  # no table of whole numbers was found in time, and the note says so
            return True
        return bool(self.counts.min() >= 0) and scope.published(self.schema.names).contains(
            Table(self.schema, self.counts)
        )

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the levels of each cell, in the order of the flattened arrays."""
        levels = [feature.levels for feature in self.schema.features]
        for index in np.ndindex(*self.schema.shape):
            yield tuple(level[position] for level, position in zip(levels, index, strict=True))


@dataclass(frozen=True, eq=False)
class Release:
    """A finished release. Nothing in it is confidential beyond what the plan publishes exactly.

    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [semidp.Margin("sex", "region")])
    >>> release = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> release.private, release.guarantee.adjacency.a, [table.name for table in release.tables]
    (True, 2, ['table'])
    """

    plan: Plan
    scope: Scope
    tables: tuple[Published, ...]
    guarantee: Guarantee
    private: bool
    ledger: Mapping[str, Any] | None
    versions: Mapping[str, str]
    created: str
    groups: tuple[PublishedGroups, ...] = ()

    def save(self, folder: Path) -> None:
        """Write ``release.json``, two CSV files a table and one for each set of groups into an existing folder."""
        files = self._files()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        document = {**self.to_json(), "files": digests}
        (folder / "release.json").write_text(
            json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a release that `save` wrote; refuse one whose files were changed since."""
        folder = Path(folder)
        recover(folder)
        try:
            document = json.loads((folder / "release.json").read_text(encoding="utf-8"))
            digests = {Path(name).name: digest for name, digest in document["files"].items()}
            files = {name: (folder / name).read_bytes() for name in digests}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{folder} is not a release: it has no readable release.json with its tables") from None
        if document.get("schema_version") != SCHEMA_VERSION:
            raise InputError(f"{folder} was written by another version of semidp: read it with that version")
        for name, digest in digests.items():
            if hashlib.sha256(files[name]).hexdigest() != digest:
                raise InputError(f"{folder / name} was changed after the release was written")
        try:
            release = cls._from_json(document, files)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError):
            raise InputError(f"{folder / 'release.json'} is damaged: make the release again") from None
        for table in release.tables:
            if table.fitted.kind == "integer" and not table.keeps(release.scope):
                raise InputError(f"{folder} contradicts itself: {table.name!r} does not add up to the exact totals")
        return release

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, which are in the CSV files, as plain values.

        ``epsilon`` restates the guarantee at ``report_delta``; the plan holds every number exactly, as text.
        """
        epsilon = self.guarantee.tradeoff.epsilon(self.plan.report_delta)
        return {
            "schema_version": SCHEMA_VERSION,
            "created": self.created,
            "private": self.private,
            "plan": self.plan.to_json(),
            "dataspace": self.scope.dataspace.to_json(),
            "a": self.scope.adjacency_json(),
            "guarantee": self.guarantee.tradeoff.to_json(),
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "report_delta": number(self.plan.report_delta),
            "budget": self.plan.budget and self.plan.budget.numbers(),
            "tables": [
                {**_table_json(table), "budget": request.budget and request.budget.numbers()}
                for table, request in zip(self.tables, self.plan.tables, strict=True)
            ],
            "groups": [
                {**group.to_json(), "budget": group.request.budget and group.request.budget.numbers()}
                for group in self.groups
            ],
            "disclosures": list(self.scope.disclosures),
            "warnings": list(self.scope.warnings),
            "ledger": self.ledger,
            "versions": dict(self.versions),
        }

    @classmethod
    def _from_json(cls, document: Mapping[str, Any], files: Mapping[str, bytes]) -> Self:
        dataspace = Dataspace.from_json(document["dataspace"])
        adjacency = Adjacency(document["a"]["used"])
        plan = Plan.from_json(document["plan"])
        try:
            semi = semi_of(dataspace, plan)
        except AdjacencyUnknown:
            semi = None
        scope = Scope(dataspace, semi, adjacency, tuple(document["disclosures"]), tuple(document["warnings"]))
        tradeoff = tradeoff_from_json(document["guarantee"])
        return cls(
            plan=plan,
            scope=scope,
            tables=tuple(_table_from_json(entry, scope, files) for entry in document["tables"]),
            guarantee=Guarantee(dataspace, adjacency, tradeoff),
            private=document["private"],
            ledger=document["ledger"],
            versions=document["versions"],
            created=document["created"],
            groups=tuple(
                PublishedGroups.from_json(entry, request, scope, files)
                for entry, request in zip(document["groups"], plan.groups, strict=True)
            ),
        )

    def _files(self) -> dict[str, bytes]:
        files = {}
        for table in self.tables:
            counts, measurements = file_names(table.name)
            files[counts] = _csv(table, count=table.counts, standard_error=table.standard_errors)
            files[measurements] = _csv(table, noisy_count=table.noisy, projected=table.projected)
        for group in self.groups:
            files |= group.files()
        return files


def versions() -> dict[str, str]:
    """Return the versions that a release depends on.

    >>> "semidp" in versions()
    True
    """
    found = {"semidp": __version__}
    for name in _DEPENDENCIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _csv(table: Published, **columns: NDArray[Any]) -> bytes:
    """Write one row a cell: its levels, then the given columns; numbers are written so that they read back the same."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.schema.names, *columns])
    values = zip(*(column.ravel().tolist() for column in columns.values()), strict=True)
    writer.writerows((*levels, *numbers) for levels, numbers in zip(table.rows(), values, strict=True))
    return text.getvalue().encode()


def _read_csv(content: bytes, schema: Schema) -> list[NDArray[Any]]:
    """Return the columns that `_csv` wrote behind the levels, in the shape of the schema."""
    rows = csv.reader(io.StringIO(content.decode()))
    next(rows)
    cells = [row[len(schema.names) :] for row in rows]
    whole = [all(not set(row[position]) & set(".eni") for row in cells) for position in range(len(cells[0]))]
    kinds: list[type] = [np.int64 if integers else np.float64 for integers in whole]
    return [
        np.array([row[position] for row in cells], dtype=str).astype(kind).reshape(schema.shape)
        for position, kind in enumerate(kinds)
    ]


def _table_json(table: Published) -> dict[str, Any]:
    return {
        "name": table.name,
        "features": list(table.schema.names),
        "noise": asdict(table.noise),
        "fit": asdict(table.fitted),
        "guarantee": table.guarantee.tradeoff.to_json(),
        "advertised": table.advertised.to_json() if table.advertised else None,
        "private": table.private,
    }


def _table_from_json(entry: Mapping[str, Any], scope: Scope, files: Mapping[str, bytes]) -> Published:
    assert scope.dataspace.schema is not None
    schema = scope.dataspace.schema.restrict(entry["features"])
    published, measurements = file_names(entry["name"])
    counts, errors = _read_csv(files[published], schema)
    noisy, projected = _read_csv(files[measurements], schema)
    return Published(
        name=entry["name"],
        schema=schema,
        counts=counts,
        noisy=noisy,
        projected=projected.astype(float),
        standard_errors=errors.astype(float),
        noise=Noise(**entry["noise"]),
        fitted=Fitted(**entry["fit"]),
        guarantee=Guarantee(scope.dataspace, scope.adjacency, tradeoff_from_json(entry["guarantee"])),
        advertised=tradeoff_from_json(entry["advertised"]) if entry["advertised"] else None,
        private=entry["private"],
    )

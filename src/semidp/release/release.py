"""What a release is: published results, the guarantee, and where it came from. Everything in it may be published.

A release is written to a folder as CSV and JSON and read back from it; its report is drawn from it elsewhere.
"""

import csv
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from semidp._version import __version__
from semidp.errors import AdjacencyUnknown, InputError
from semidp.exact import number
from semidp.files import from_json, read_plain, recover
from semidp.guarantees import Guarantee
from semidp.release.plan import Plan
from semidp.release.published import Published, PublishedGroups, PublishedRegression, PublishedTable
from semidp.release.scope import Scope, semi_of
from semidp.spaces import Adjacency, Dataspace
from semidp.tradeoff import tradeoff_from_json

SCHEMA_VERSION = 1
"""The version of release.json; it grows when a field changes its meaning."""

_NO_RELEASE = "{} is not a release: it has no readable release.json with its tables"
_DEPENDENCIES = ("numpy", "scipy", "duckdb", "python-flint", "ortools", "dp-accounting")


@dataclass(frozen=True, eq=False)
class Release:
    """A finished release. Nothing in it is confidential beyond what the plan publishes exactly.

    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [["sex", "region"]])
    >>> release = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> release.private, release.guarantee.adjacency.a, [table.name for table in release.tables]
    (True, 2, ['table'])
    """

    plan: Plan
    scope: Scope
    results: tuple[Published, ...]
    guarantee: Guarantee
    private: bool
    ledger: Mapping[str, Any] | None
    versions: Mapping[str, str]
    created: str

    @property
    def tables(self) -> tuple[PublishedTable, ...]:
        """The published tables."""
        return tuple(result for result in self.results if isinstance(result, PublishedTable))

    @property
    def groups(self) -> tuple[PublishedGroups, ...]:
        """The published statistics by group."""
        return tuple(result for result in self.results if isinstance(result, PublishedGroups))

    @property
    def regressions(self) -> tuple[PublishedRegression, ...]:
        """The published regressions."""
        return tuple(result for result in self.results if isinstance(result, PublishedRegression))

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
            content = read_plain(folder / "release.json", folder)
        except OSError:
            raise InputError(_NO_RELEASE.format(folder)) from None
        try:
            document = from_json(content)
            digests = {Path(name).name: digest for name, digest in document["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(_NO_RELEASE.format(folder)) from None
        try:
            files = {name: read_plain(folder / name, folder) for name in digests}
        except (OSError, UnicodeEncodeError):
            raise InputError(_NO_RELEASE.format(folder)) from None
        if document.get("schema_version") != SCHEMA_VERSION:
            raise InputError(f"{folder} was written by another version of semidp: read it with that version")
        for name, digest in digests.items():
            if hashlib.sha256(files[name]).hexdigest() != digest:
                raise InputError(f"{folder / name} was changed after the release was written")
        try:
            release = cls._from_json(document, files)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError, csv.Error):
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
            **{
                key: [
                    {**result.to_json(), "budget": request.budget and request.budget.numbers()}
                    for result, request in zip(self.results, self.plan.requests, strict=True)
                    if result.key == key
                ]
                for key in ("tables", "groups", "regressions")
            },
            "disclosures": list(self.scope.disclosures),
            "warnings": list(self.scope.warnings),
            "ledger": self.ledger,
            "versions": dict(self.versions),
        }

    @classmethod
    def _from_json(cls, document: Mapping[str, Any], files: Mapping[str, bytes]) -> Self:
        dataspace = Dataspace.from_json(document["dataspace"])
        if dataspace.schema is None:
            raise ValueError("a release has features")
        adjacency = Adjacency(document["a"]["used"])
        plan = Plan.from_json(document["plan"])
        try:
            semi = semi_of(dataspace, plan)
        except AdjacencyUnknown:
            semi = None
        scope = Scope(dataspace, semi, adjacency, tuple(document["disclosures"]), tuple(document["warnings"]))
        tradeoff = tradeoff_from_json(document["guarantee"])
        told = (*scope.disclosures, *scope.warnings, *document["versions"].values(), document["created"])
        charged = document["ledger"]
        if not all(isinstance(text, str) for text in told) or not isinstance(document["private"], bool):
            raise ValueError("a release tells in texts, and is private or not")
        if charged is not None and not isinstance(charged, Mapping):
            raise ValueError("a charge has keys and values")
        release = cls(
            plan=plan,
            scope=scope,
            results=(
                *(PublishedTable.from_json(entry, scope, files) for entry in document["tables"]),
                *(
                    PublishedGroups.from_json(entry, request, scope, files)
                    for entry, request in zip(document["groups"], plan.groups, strict=True)
                ),
                *(
                    PublishedRegression.from_json(entry, request, scope, files)
                    for entry, request in zip(document.get("regressions", ()), plan.regressions, strict=True)
                ),
            ),
            guarantee=Guarantee(dataspace, adjacency, tradeoff),
            private=document["private"],
            ledger=document["ledger"],
            versions=document["versions"],
            created=document["created"],
        )
        if [result.name for result in release.results] != [request.name for request in plan.requests]:
            raise ValueError("a release has what its plan asks for")
        return release

    def _files(self) -> dict[str, bytes]:
        return {name: content for result in self.results for name, content in result.files().items()}


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

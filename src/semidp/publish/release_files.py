"""The files of a release: release.json, tables, report, and reading all of them back.

A release folder appears only when complete. The report page is drawn on the floor above, by the
class that is written and read (`Release`).
"""

import contextlib
import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from attrs import evolve, frozen

from semidp._version import __version__
from semidp.errors import AdjacencyUnknown, InputError
from semidp.promise.documents import digest, from_json, read_document, read_plain
from semidp.promise.exact import number
from semidp.promise.files import recover
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.guarantee import read_document as require_document
from semidp.promise.progress import Progress, silent
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import datasets_from_json
from semidp.promise.tradeoff.composition import tradeoff_from_json
from semidp.publish.folders import discard_unfinished, new_folder
from semidp.publish.plan import Plan
from semidp.publish.presentation import (
    AGENCY,
    AS_USUAL,
    WORKBOOK,
    Presentation,
    check_installed,
)
from semidp.publish.recheck_results import Findings
from semidp.publish.release_value import SOURCES, ReleaseValue, publish, read_measurements
from semidp.publish.results.columns import METADATA, Columns, Form, StoredFiles, csvw, form_named
from semidp.publish.results.grids import Section
from semidp.publish.results.place_maps import MAP, PlaceMap
from semidp.publish.results.published_table import Contradiction, ExactTotals, exact_totals
from semidp.publish.sdmx import STRUCTURE, SdmxFiles
from semidp.publish.signing import SIGNATURE, SUMS
from semidp.publish.statistics.parts import (
    PARTS,
    ChangedFile,
    Part,
    Partition,
)
from semidp.publish.statistics.protocol.statistic import (
    always_listed,
    result_keys,
)
from semidp.publish.survey import find_semi_adjacency

SCHEMA_VERSION = 1
"""The version of release.json; it grows when a field changes its meaning."""
REPORT = "report.html"
LISTED = 10_000
"""The most levels and exact totals listed in release.json; more have files of their
own."""
_ALWAYS = {"schema_version", "dataspace", "guarantee", "versions"}
"""Keys that the release.json of every version has."""
_DAMAGED = (
    KeyError,
    TypeError,
    IndexError,
    ValueError,
    AttributeError,
    ArithmeticError,
    csv.Error,
)
"""What reading a damaged document raises."""
_DOCUMENTS = {"plan": "plan.json", "dataspace": "dataspace.json"}


@frozen(slots=False, eq=False, repr=False)
class ReleaseFiles(ReleaseValue, ABC):
    """A release that is written to a folder and read back from it.

    Report and workbook are drawn by `Release`, on a floor above.
    """

    def save(
        self,
        folder: Path | str,
        *,
        force: bool = False,
        form: Form | str | None = None,
        progress: Progress = silent,
    ) -> None:
        """Make a folder with everything that ``semidp release`` writes; it appears only when
        complete.

        Parameters
        ----------
        folder
            The output folder, which must be missing or empty.
        force
            Also replace a release, in a folder that holds no other file.
        form
            How cells are written, ``"csv"`` or ``"parquet"`` (default: tables from a million cells
            on as Parquet). ``"xlsx"`` writes CSV and a workbook next to it (needs openpyxl),
            ``"sdmx"`` CSV and SDMX files.
        progress
            Told what is going on.

        Examples
        --------
        >>> import semidp, tempfile
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"]
        ... )
        >>> with tempfile.TemporaryDirectory() as root:
        ...     semidp.run(plan, {"sex": ["f", "m"]}).save(f"{root}/release")
        ...     sorted(file.name for file in Path(f"{root}/release").iterdir())
        ['csv-metadata.json', 'exact-sex.csv', 'measurements.csv', 'release.json', 'report.html',
        'table.csv']
        """
        written = self._written_as(form)
        partition = self.partition
        if partition is not None and (partition.place is None or written.form != self.form):
            raise InputError(
                "the parts of a release are copied as they are, from its folder: leave the form out"
            )
        with new_folder(folder, force=force, ours=release_files) as new:
            written.write_files(new, progress)
            if partition is not None:
                partition.copy(new)

    def _write_sources(self, folder: Path, progress: Progress) -> list[dict[str, str]]:
        """Write the releases of a combination into folders of their own; return these with
        digests.
        """
        entries = []
        for count, source in enumerate(self.sources, 1):
            place = folder / SOURCES / str(count)
            place.mkdir(parents=True)
            source.write_files(place, progress)
            if source.partition is not None:
                source.partition.copy(place)
            written = digest(place / "release.json")
            entries.append({"folder": f"{SOURCES}/{count}", "digest": written})
        return entries

    def _written_as(self, form: Form | str | None) -> Self:
        """Return the release as it is written in a form."""
        if form is None:
            return self
        if form in ("xlsx", "sdmx"):
            added: dict[str, Any] = {"workbook": True} if form == "xlsx" else {"sdmx": AGENCY}
            if form == "xlsx":
                check_installed()
            self.refuse_parts("workbooks" if form == "xlsx" else "SDMX files")
            return evolve(self, form=Form.csv, presentation=evolve(self.presentation, **added))
        return evolve(self, form=form_named(form))

    def columns_by_file(self) -> dict[str, Columns]:
        """Return the content of the files of all results and of the exact totals."""
        files: dict[str, Columns] = {}
        for result in self.results:
            files |= result.files(self.form)
        for total, name in self.exact_files():
            files[name] = total.columns()
        if self.sdmx is not None:
            files |= self.sdmx.columns
        return files

    @cached_property
    def sdmx(self) -> SdmxFiles | None:
        """Its SDMX files, if it has any."""
        agency = self.presentation.sdmx
        return None if agency is None else SdmxFiles(self, agency)

    def exact_files(self) -> list[tuple[ExactTotals, str]]:
        """Return the exact totals, each with the name of its file."""
        names = [name for result in self.results for name in result.files(self.form)]
        stems = [name.rpartition(".")[0] for name in names]
        totals = exact_totals(self.scope.dataspace, stems)
        return [(total, f"{total.stem}.{total.columns().form(self.form)}") for total in totals]

    def write_files(self, folder: Path, progress: Progress = silent) -> None:
        """Write the files of a release into a folder that exists, one after another; `save` does so
        atomically.
        """
        files = self.columns_by_file()
        for name, columns in files.items():
            columns.write(folder / name, progress)
        described, names = csvw(release_title(self), files), list(files)
        if described is not None:
            (folder / METADATA).write_bytes(described)
            names.append(METADATA)
        if self.sdmx is not None:
            (folder / STRUCTURE).write_bytes(self.sdmx.structure())
            names.append(STRUCTURE)
        if self.presentation.workbook:
            progress("writing the workbook", 0, None)
            self.write_workbook(folder / WORKBOOK)
            names.append(WORKBOOK)
        if self.presentation.places is not None:
            _write_json(folder / MAP, self.presentation.places.to_json())
            names.append(MAP)
        document, space = self.to_json(), self.scope.dataspace
        if self.sources:
            document["combination"] = self._write_sources(folder, progress)
        if self.partition is not None:
            _write_json(folder / PARTS, [part.to_json() for part in self.partition.parts])
            names.append(PARTS)
        levels = sum(len(feature.levels) for feature in space.schema.features)
        many = levels + sum(total.counts.size for total in space.totals) > LISTED
        for key, file in _DOCUMENTS.items() if many else ():
            if key not in document:
                continue
            _write_json(folder / file, document[key])
            names.append(file)
            document[key] = {"file": file}
        progress("hashing the files", 0, None)
        # The report has no digest here: it is drawn from what release.json says, and a recheck
        # draws it again.
        document["files"] = {name: digest(folder / name) for name in names}
        _write_json(folder / "release.json", document)
        progress("drawing the report", 0, None)
        (folder / REPORT).write_text(self.report_html(), encoding="utf-8", newline="\n")

    @abstractmethod
    def report_html(self, title: str | None = None, further: Sequence[Section] = ()) -> str:
        """Return the report as one self-contained HTML page."""

    @abstractmethod
    def write_workbook(self, path: Path) -> None:
        """Write an Excel file of all tables."""

    @classmethod
    @abstractmethod
    def combine_stored(
        cls, document: Mapping[str, Any], files: StoredFiles, sources: Sequence[Self]
    ) -> Self:
        """Return a combination from its releases and the tables that were fitted to them."""

    @abstractmethod
    def check_combination(self, document: Mapping[str, Any], findings: Findings) -> None:
        """Compare a combination with what follows from its releases."""

    @abstractmethod
    def workbook_differs(self, path: Path, *, whole: bool) -> bool:
        """Whether a workbook differs from what this release publishes: at all, or in its
        cells.
        """

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a release that `save` wrote; refuse one whose files were changed since."""
        folder = Path(folder)
        recover(folder)
        document, files = _read_unchanged(folder)
        sources = cls._sources(document, folder)
        try:
            for key, file in _DOCUMENTS.items():
                if document.get(key) == {"file": file}:
                    document[key] = from_json(files[file])
            release = (
                cls._from_sources(document, files, sources)
                if "combination" in document
                else cls._from_json(document, files)
            )
        except (ChangedFile, Contradiction):
            raise
        except _DAMAGED:
            raise InputError(
                f"{folder / 'release.json'} is damaged: make the release again"
            ) from None
        return release

    @staticmethod
    def discard_unfinished(folder: Path | str) -> None:
        """Remove what an unfinished release has left for a folder; the charge
        remains.
        """
        discard_unfinished(folder)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, which are in the CSV files, as plain values.

        ``epsilon`` restates the guarantee at ``report_delta``; the plan holds every number exactly,
        as text.
        """
        document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "created": self.created}
        document["private"] = self.private
        # What few releases have stands only if they have it.
        if self.form is not None:
            document["form"] = str(self.form)
        if self.partition is not None:
            document["partition"] = self.partition.to_json()
        if self.sources:
            document["combination"] = len(self.sources)
        if self.presentation != AS_USUAL:
            document["presentation"] = self.presentation.to_json()
        # The plans of a combination are those of its releases.
        if not self.sources:
            document["plan"] = self.plan.to_json()
        public = scope_json(self.scope)
        told = {key: public.pop(key) for key in ("disclosures", "warnings")}
        document |= public
        document["guarantee"] = self.stated and self.stated.tradeoff.to_json()
        document["epsilon"] = self.epsilon
        document["report_delta"] = number(self.plan.report_delta)
        document["budget"] = self.plan.budget and self.plan.budget.numbers()
        document |= self._entries()
        document |= told
        document["ledger"] = self.ledger
        document["versions"] = dict(self.versions)
        return document

    def _entries(self) -> dict[str, list[dict[str, Any]]]:
        """Return the entries of all results, by the keys of their lists."""
        if self.sources:
            combined: dict[str, list[dict[str, Any]]] = {}
            for result in self.results:
                combined.setdefault(result.list_key, []).append(result.to_json())
            return combined
        lists: dict[str, list[dict[str, Any]]] = {key: [] for key in result_keys()}
        for result, request in zip(self.results, self.plan.requests, strict=True):
            entry = result.to_json()
            entry["budget"] = request.budget and request.budget.numbers()
            lists[result.list_key].append(entry)
        always = always_listed()
        return {key: entries for key, entries in lists.items() if entries or key in always}

    @classmethod
    def _sources(cls, document: Mapping[str, Any], folder: Path) -> tuple[Any, ...]:
        """Read the releases of a combination; refuse those that were changed since."""
        entries = document.get("combination", ())
        releases = []
        for count, entry in enumerate(entries if isinstance(entries, list) else (), 1):
            place = folder / SOURCES / str(count)
            try:
                unchanged = digest(place / "release.json", folder) == entry["digest"]
            except (OSError, KeyError, TypeError):
                unchanged = False
            if not unchanged:
                raise InputError(f"{place} was changed after the releases were combined")
            releases.append(cls.load(place))
        return tuple(releases)

    @classmethod
    def _from_sources(
        cls, document: Mapping[str, Any], files: StoredFiles, sources: tuple[Self, ...]
    ) -> Self:
        """Read a combination: everything but its fitted tables follows from its releases."""
        release = cls.combine_stored(document, files, sources)
        _check_texts(document, release.scope)
        return evolve(
            release,
            versions=document["versions"],
            created=document["created"],
            form=form_named(document["form"]) if "form" in document else None,
            presentation=_presentation(document.get("presentation", {}), files),
        )

    @classmethod
    def _from_json(cls, document: Mapping[str, Any], files: StoredFiles) -> Self:
        plan = Plan.from_json(document["plan"])
        if any(request.budget is None for request in plan.requests):
            raise ValueError("what was released had a budget")
        scope = read_scope(document, plan)
        stated = tradeoff_from_json(document["guarantee"])
        guarantee = Guarantee(scope.dataspace, scope.adjacency, stated)
        _check_texts(document, scope)
        partition = _partition(document, files)
        measurements, counts = read_measurements(document, plan, scope, files, partition)
        return cls(
            plan=plan,
            scope=scope,
            published=partial(publish, plan, scope, measurements, counts),
            stated=guarantee,
            private=document["private"],
            ledger=document["ledger"],
            versions=document["versions"],
            created=document["created"],
            form=form_named(document["form"]) if "form" in document else None,
            partition=partition,
            presentation=_presentation(document.get("presentation", {}), files),
        )


def _read_unchanged(folder: Path) -> tuple[dict[str, Any], StoredFiles]:
    """Read release.json of a folder; refuse files that were changed after it was written."""
    try:
        document = from_json(read_plain(folder / "release.json", folder))
        build = (document["schema_version"], document["versions"]["semidp"])
        # A list from strangers may hold paths: only names in the folder itself are read.
        digests = {Path(name).name: expected for name, expected in document["files"].items()}
        files = StoredFiles(folder, tuple(digests))
        digests_read = {name: files.digest(name) for name in digests}
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{folder} is not a release: it has no readable release.json with its tables"
        ) from None
    if build != (SCHEMA_VERSION, __version__):
        raise InputError(
            f"{folder} was written by another version of semidp: read it with that version"
        )
    for name, expected in digests.items():
        if digests_read[name] != expected:
            raise InputError(f"{folder / name} was changed after the release was written")
    return document, files


def scope_json(scope: Scope) -> dict[str, Any]:
    """Return the public scope of a release as plain values."""
    public: dict[str, Any] = {"dataspace": scope.dataspace.to_json()}
    public["a"] = scope.adjacency_json()
    if scope.persons is not None:
        public["persons"] = scope.persons
    return {
        **public,
        "disclosures": list(scope.disclosures),
        "warnings": list(scope.warnings),
    }


def read_scope(document: Mapping[str, Any], plan: Plan) -> Scope:
    """Read what `scope_json` returned of a release of this plan."""
    dataspace = datasets_from_json(document["dataspace"])
    if not isinstance(dataspace, Dataspace):
        raise ValueError("a release has features")
    adjacency = Adjacency.from_json({**document["a"], "a": document["a"]["used"]})
    try:
        # Computed from the exact totals, whatever the document states for a(t).
        semi = find_semi_adjacency(dataspace, plan)
    except AdjacencyUnknown:
        semi = None
    persons = document.get("persons")
    if (persons is None) != (plan.protection is None) or not isinstance(persons, int | None):
        raise ValueError("a release for several records a person has a number of persons")
    disclosures = tuple(document["disclosures"])
    warnings = tuple(document["warnings"])
    return Scope(dataspace, semi, adjacency, disclosures, warnings, persons)


def _check_texts(document: Mapping[str, Any], scope: Scope) -> None:
    """Refuse a document whose sentences, versions, marks or charge are of another type."""
    versions = document["versions"].values()
    told = (*scope.disclosures, *scope.warnings, *versions, document["created"])
    all_texts = all(isinstance(text, str) for text in told)
    if not all_texts or not isinstance(document["private"], bool):
        raise ValueError("a release tells in texts, and is private or not")
    charged = document["ledger"]
    if charged is not None and not isinstance(charged, Mapping):
        raise ValueError("a charge has keys and values")


def _partition(document: Mapping[str, Any], files: StoredFiles) -> Partition | None:
    """Read the parts of a release; None if it was carried out in one piece."""
    if "partition" not in document:
        return None
    parts = tuple(map(Part.from_json, from_json(files[PARTS])))
    return Partition(document["partition"]["depth"], parts, files.folder)


def _presentation(entry: Mapping[str, Any], files: StoredFiles) -> Presentation:
    """Read how a release is presented, with the outlines of its map where it has one."""
    if not entry.get("map"):
        return Presentation.from_json(entry)
    places = PlaceMap.from_json(from_json(files[MAP]), entry.get("map_key"))
    return Presentation.from_json(entry, places)


def read_release_document(folder: Path) -> dict[str, Any]:
    """Return the content of release.json in a folder; refuse one that cannot be read."""
    return require_document(folder / "release.json", "a release")


def release_title(release: ReleaseValue) -> str:
    """Describe a release, for the description of its files."""
    names = ", ".join(result.name for result in release.results)
    return f"{names}; exact: {release.scope.dataspace.summary()}"


def release_files(folder: Path) -> Collection[str]:
    """Return the files of a release folder, by its release.json; none if that is not one of
    ours.

    >>> release_files(Path("nowhere"))
    ()
    """
    document = read_document(folder / "release.json")
    # What is returned here may be replaced by force, so a release.json of somebody else's must
    # not pass for ours.
    listed = document.get("files")
    if not isinstance(listed, dict) or not document.keys() >= _ALWAYS:
        return ()
    names = {"release.json", REPORT, SUMS, SIGNATURE, *listed}
    if PARTS in listed:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            parts = [*map(Part.from_json, from_json(read_plain(folder / PARTS, folder)))]
            names |= {name for part in parts for name in part.digests}
    sources = document.get("combination")
    for count in range(len(sources) if isinstance(sources, list) else 0):
        place = f"{SOURCES}/{count + 1}"
        names |= {f"{place}/{name}" for name in release_files(folder / place)}
    return names


def _write_json(path: Path, document: Any) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")

"""Whether a release follows from its stated inputs, and what must be taken on trust.

A folder may come from strangers. Its plan, exact totals and noisy values are public, and everything
else that it states is a function of them: the adjacency, the noise that its budgets need, the
guarantees, the errors, the estimates, the intervals, the whole numbers. So everything else is
recomputed and compared, field by field and column by column. Inputs that nothing else confirms are
listed as taken on trust.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from attrs import define, evolve, frozen

from semidp.errors import InputError, SemidpError
from semidp.promise.documents import is_litter, read_document
from semidp.promise.guarantee import Scope
from semidp.promise.spaces.dataspace import normalize_margins
from semidp.publish.pipeline import versions
from semidp.publish.plan import Plan
from semidp.publish.presentation import AS_USUAL, WORKBOOK
from semidp.publish.recheck_results import (
    Findings,
    check_result,
    compare_guarantees,
    compare_parts,
    differences,
    file_differences,
    same,
    short,
)
from semidp.publish.release_files import (
    REPORT,
    ReleaseFiles,
    read_release_document,
    release_files,
    release_title,
)
from semidp.publish.release_value import SOURCES, compose_guarantees
from semidp.publish.results.columns import METADATA, Columns, StoredFiles, csvw
from semidp.publish.results.place_maps import MAP
from semidp.publish.sdmx import STRUCTURE
from semidp.publish.signing import SIGNATURE, SUMS
from semidp.publish.sources.opening import Source
from semidp.publish.statistics.parts import PARTS
from semidp.publish.statistics.protocol.requests import Trust
from semidp.publish.statistics.protocol.statistic import result_keys
from semidp.publish.survey import public_scope, read_schema, stated_totals_differ

_R = TypeVar("_R", bound=ReleaseFiles)
_READING = (
    "plan.count",
    "plan.where",
    "plan.id",
    "plan.most",
    "plan.levels_from_data",
    "plan.feature",
    "plan.adjacency",
    "plan.read_as",
)


@frozen
class Recheck:
    """The outcome of recomputing everything that a release states.

    Parameters
    ----------
    disagreements
        Whatever does not follow, one sentence each.
    trusted
        What must be taken on trust, unless a signature vouches for it.
    """

    disagreements: tuple[str, ...]
    trusted: tuple[Trust, ...]


def disagreements(release: ReleaseFiles, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the statements of a release that do not follow from its plan, exact totals and noisy
    values.

    Parameters
    ----------
    release
        The release that was read.
    document
        Its release.json.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], ["sex", "region"])
    >>> release = semidp.run(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]})
    >>> disagreements(release, release.to_json())
    ()
    >>> disagreements(release, {**release.to_json(), "epsilon": 0.1})
    ('it states epsilon 0.1, and its guarantee gives 6.1739...',)
    """
    return recheck(release, document).disagreements


def recheck(
    release: ReleaseFiles, document: Mapping[str, Any], folder: Path | None = None
) -> Recheck:
    """Recompute what a release states; return what does not follow, and what is taken on trust.

    Parameters
    ----------
    release, document
        The release that was read, and its release.json.
    folder
        Where it was read from; without it, files are not compared.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], ["sex", "region"])
    >>> release = semidp.run(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]})
    >>> [trust.fields for trust in recheck(release, release.to_json()).trusted][:2]
    [('measurements.csv noisy_count',), ('dataspace',)]
    """
    findings = Findings(dict(release.versions) == versions())
    check = _Check(release, document, findings)
    _check_sources(release.sources, folder, findings)
    check.run()
    if folder is not None:
        check.files(folder)
    trusted = [
        Trust(what, tuple(dict.fromkeys(fields))) for what, fields in findings.trusted.items()
    ]
    return Recheck(tuple(dict.fromkeys(findings.wrong)), tuple(trusted))


def load_consistent(kind: type[_R], folder: Path | str) -> _R:
    """Read a release to answer questions from; refuse one whose numbers do not follow from its
    measurements.

    Parameters
    ----------
    kind
        What is read, such as `semidp.Release`.
    folder
        Where it is.

    Examples
    --------
    >>> import semidp, tempfile
    >>> plan = semidp.Plan([semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
    >>> with tempfile.TemporaryDirectory() as root:
    ...     semidp.run(plan, {"sex": ["f", "m"]}).save(f"{root}/release")
    ...     load_consistent(semidp.Release, f"{root}/release").private
    True
    """
    release = kind.load(folder)
    if release.partition is not None:  # questions to parts are refused, or need no numbers of them
        return release
    findings = Findings(dict(release.versions) == versions())
    _check_sources(release.sources, None, findings)
    _Check(release, read_release_document(Path(folder)), findings).run()
    if findings.wrong:
        raise InputError(
            f"{folder} states what does not follow from its measurements, so no questions are"
            f" answered from it: semidp show {folder} says what"
        )
    return release


def _check_sources(
    sources: Sequence[ReleaseFiles], folder: Path | None, findings: Findings
) -> None:
    """Check every release of a combination by itself, and note what is wrong with it and what is
    believed of it.
    """
    for number, source in enumerate(sources, 1):
        name = f"{SOURCES}/{number}"
        place = None if folder is None else folder / name
        document = source.to_json() if place is None else read_release_document(place)
        checked = recheck(source, document, place)
        findings.wrong += [f"{name}: {said}" for said in checked.disagreements]
        for trust in checked.trusted:
            findings.trust(trust.what, *(f"{name} {field}" for field in trust.fields))


@define(eq=False)
class _Check:
    """One recheck: what it is about, and what it has found so far."""

    release: ReleaseFiles
    document: Mapping[str, Any]
    findings: Findings

    def run(self) -> None:
        """Compare everything."""
        release = self.release
        if release.sources:
            release.check_combination(self.document, self.findings)
            return
        self._usual_trust()
        self.findings.wrong += _compare_stated(release, self.document)
        again = self._scope()
        if again is None:
            return
        self._warnings(again)
        needed = []
        for request, result in zip(release.plan.requests, release.results, strict=True):
            try:
                needed.append(check_result(release, request, result, self.findings).guarantee)
            except SemidpError as error:
                # One result that fails must not hide what is wrong with the others.
                self.findings.wrong.append(f"{request.name!r} could not be computed again: {error}")
        # A sum over some results would be compared with the guarantee of all.
        if len(needed) == len(release.results):
            together = compose_guarantees(release.plan, needed).tradeoff
            said = compare_guarantees(release.guarantee.tradeoff, together)
            self.findings.wrong += (
                [] if said is None else [f"it states {said} than its parts have together"]
            )
        compare_parts(release, self.findings)
        self._document()

    def _usual_trust(self) -> None:
        """Note what nothing in a release confirms, whatever it holds."""
        release = self.release
        measured: list[str] = []
        for result in release.results:
            measured += result.noisy_columns(release.form)
        noisy_parts = [
            result.part_stems()[1] for result in release.results if not result.noise.absent
        ]
        for part in () if release.partition is None else release.partition.parts:
            for stem in noisy_parts:
                measured += [] if stem is None else [f"{part.folder}/{stem}.{release.form} noisy"]
        self.findings.trust(
            "the noisy values: that they were drawn from the records, by the mechanisms that are"
            " named",
            *measured,
        )
        self.findings.trust(
            "the exact totals and the levels, where no other number depends on them", "dataspace"
        )
        self.findings.trust(
            "how records were chosen, which levels were declared before they were read, which rule"
            " gave the number a",
            *_READING,
        )
        self.findings.trust(
            "which mechanism was asked for, where it is one that could have been",
            *dict.fromkeys(f"plan.{request.key}.mechanism" for request in release.plan.requests),
        )
        for request, result in zip(release.plan.requests, release.results, strict=True):
            for trust in result.trust_assumptions(request):
                self.findings.trust(trust.what, *trust.fields)
        flags = dict.fromkeys(f"{result.list_key}.private" for result in release.results)
        self.findings.trust(
            "that the random numbers were secret, where it says private", "private", *flags
        )
        self.findings.trust("when it was made, and with which software", "created", "versions")
        if release.presentation != AS_USUAL:
            self.findings.trust(
                "what is said beside the numbers: title, contact, notes, map", "presentation"
            )
        self.findings.trust(
            "what a ledger was charged (semidp ledger FILE --check RELEASE compares it)", "ledger"
        )

    def _scope(self) -> Scope | None:
        """Compare what is public before any noise is drawn: schema, exact margins, adjacency."""
        plan, scope = self.release.plan, self.release.scope
        try:
            again = public_scope(plan, scope.dataspace)
            if plan.units is not None:
                return self._linked_scope(again)
            schema, disclosures = read_schema(plan, cast(Source, _StatedLevels(plan, scope)))
            margins = normalize_margins(schema, plan.invariants)
        except SemidpError as error:
            self.findings.wrong.append(f"its plan cannot be carried out: {error}")
            return None
        if schema != scope.dataspace.schema:
            self.findings.wrong.append(
                "it states other features or levels with its exact totals than its plan declares"
            )
        if tuple(margins) != tuple(scope.dataspace.margins):
            self.findings.wrong.append("it states other exact totals than its plan publishes")
        if again.adjacency.protection != scope.adjacency.protection:
            self.findings.wrong.append(
                f"it states a promise for {scope.adjacency}, and its plan and totals give"
                f" {again.adjacency}"
            )
        elif again.adjacency != scope.adjacency:
            self.findings.wrong.append(
                f"it states a = {scope.adjacency.a}, and its plan and totals give a ="
                f" {again.adjacency.a}"
            )
        return evolve(again, disclosures=disclosures)

    def _linked_scope(self, again: Scope) -> Scope:
        """Compare the same of linked records; which of their levels were read from the data is
        believed.
        """
        scope = self.release.scope
        if stated_totals_differ(self.release.plan, scope.dataspace):
            self.findings.wrong.append("it states other exact totals than its plan publishes")
        if again.adjacency != scope.adjacency:
            self.findings.wrong.append(
                f"it states a promise for {scope.adjacency}, and its plan and totals give"
                f" {again.adjacency}"
            )
        return evolve(again, disclosures=scope.disclosures)

    def _warnings(self, again: Scope) -> None:
        """Compare warnings and disclosures: none may be missing, and others are only believed."""
        scope = self.release.scope
        for key, kind, stated, follows in (
            ("warnings", "a warning", scope.warnings, again.warnings),
            ("disclosures", "a disclosure", scope.disclosures, again.disclosures),
        ):
            missing = [words for words in follows if words not in stated]
            self.findings.wrong += (f"it leaves out {kind}: {words}" for words in missing)
            if any(words not in follows for words in stated):
                self.findings.trust(
                    f"{key} beyond those that follow from the plan and the totals", key
                )

    def _document(self) -> None:
        """Compare release.json with the one that the results give, as they were published again."""
        document = self.document
        # as JSON reads it back, with lists for tuples
        expected = json.loads(json.dumps(self.release.to_json()))
        # The first three are taken on trust, and the others were compared before.
        skipped = {
            "created",
            "versions",
            "ledger",
            "guarantee",
            "epsilon",
            "report_delta",
            "budget",
        }
        for key in expected:
            if key in skipped or key in self._own_files:
                continue
            if key in result_keys():
                if key not in document:
                    self.findings.wrong.append(f"it has no list of {key}")
                self._entries(key, document.get(key, []), expected[key])
            else:
                for path, stated, follows in differences(document.get(key), expected[key], key):
                    self._differs("it states", path, stated, follows)
        unknown = [key for key in document if key not in expected and key != "files"]
        self.findings.wrong += [f"it states {key!r}, which no release has" for key in unknown]

    @property
    def _own_files(self) -> dict[str, str]:
        """The files that a long plan, or long totals, have of their own."""
        stated = {key: self.document.get(key, ()) for key in ("plan", "dataspace")}
        return {key: value["file"] for key, value in stated.items() if set(value) == {"file"}}

    def _entries(self, key: str, entries: Any, expected: Sequence[Any]) -> None:
        """Compare the entries of one kind of results."""
        results = [result for result in self.release.results if result.list_key == key]
        stated = len(entries) if isinstance(entries, list) else 0
        if stated != len(results):
            self.findings.wrong.append(f"it lists {stated} {key}, and {len(results)} follow")
            return
        for result, entry, computed in zip(results, entries, expected, strict=True):
            who = f"{result.name!r}"
            told = any(sentence.startswith(f"{who} ") for sentence in self.findings.wrong)
            noise_fields = ("guarantee", "noise", *result.compared_fields)
            for path, said, follows in differences(entry, computed):
                # wrong noise was told in one sentence already
                if told and path.startswith(noise_fields):
                    continue
                self._differs(f"{who} states", path, said, follows)

    def _differs(self, who: str, path: str, stated: Any, follows: Any) -> None:
        """Note a field that differs."""
        self.findings.wrong.append(f"{who} {path} {short(stated)}, and {short(follows)} follows")

    def files(self, folder: Path) -> None:
        """Compare every file of the folder with the release."""
        release, digests = self.release, self.document.get("files", {})
        files = release.columns_by_file()
        for name, columns in files.items():
            if name not in digests:
                self.findings.wrong.append(f"it lists no {name}")
                continue
            for said in file_differences(folder, name, columns, digests[name]):
                self.findings.wrong.append(f"it states {said}")
        for key, file in self._own_files.items():
            expected = json.loads(json.dumps(release.to_json()[key]))
            for path, stated, follows in differences(read_document(folder / file), expected, key):
                self._differs("it states", path, stated, follows)
        self._check_descriptions(folder, files, digests)
        self._check_file_list(folder, {*files}, digests)
        self._parts_listed()

    def _check_descriptions(
        self, folder: Path, files: Mapping[str, Columns], digests: Mapping[str, str]
    ) -> None:
        """Compare the two files that only describe the others: for machines, and for readers."""
        described = csvw(release_title(self.release), files)
        if METADATA in digests and (
            described is None or described != (folder / METADATA).read_bytes()
        ):
            self.findings.wrong.append(f"{METADATA} describes other files than it has")
        if not (folder / REPORT).is_file():
            return
        try:
            report = StoredFiles(folder, (REPORT,))[REPORT].decode()
            page = self.release.report_html()
        except OSError:  # a disk that fails says nothing about the release
            raise InputError(f"cannot read {folder / REPORT}") from None
        except (ValueError, SemidpError):
            self.findings.wrong.append(f"{REPORT} cannot be read or drawn again")
            return
        if report == page:
            return
        # Only other software draws figures otherwise, and they still are nothing but drawings.
        same_words = _PICTURE.sub("", report) == _PICTURE.sub("", page)
        if same_words and not self.findings.same_software and _holds_only_drawings(report, page):
            self.findings.trust(
                "the figures of the report, which other versions of software draw otherwise", REPORT
            )
        else:
            self.findings.wrong.append(f"{REPORT} says something else than follows: do not read it")

    def _check_file_list(self, folder: Path, files: set[str], digests: Mapping[str, str]) -> None:
        """Compare the list of files with those that a release writes, and with those in the
        folder.
        """
        described = {METADATA}
        if self.release.sdmx is not None:
            described.add(STRUCTURE)
            structure = StoredFiles(folder, (STRUCTURE,)).get(STRUCTURE)
            if structure != self.release.sdmx.structure():
                self.findings.wrong.append(f"{STRUCTURE} describes other files than it has")
        if self.release.presentation.workbook:
            described.add(WORKBOOK)
            self._workbook(folder / WORKBOOK)
        if self.release.presentation.places is not None:
            described.add(MAP)
        if self.release.partition is not None:
            described.add(PARTS)
        described.update(self._own_files.values())
        more = sorted(set(digests) - files - described)
        self.findings.wrong += [
            f"it lists {name!r}, which is not a file of this release" for name in more
        ]
        written = {*release_files(folder), SUMS, SIGNATURE, REPORT}
        present = {
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if not path.is_dir() and not is_litter(path)
        }
        self.findings.trust("files that release.json does not list", *sorted(present - written))

    def _workbook(self, path: Path) -> None:
        """Compare the workbook, where it can be read, with the one that the release gives; only its
        cells if other software wrote it.
        """
        whole = self.findings.same_software
        try:
            differs = self.release.workbook_differs(path, whole=whole)
        except InputError:
            self.findings.trust("the workbook, which nothing here can read", WORKBOOK)
        except Exception:  # whatever a file that is no workbook raises
            self.findings.wrong.append(f"{WORKBOOK} cannot be read")
        else:
            self.findings.wrong += (
                [f"{WORKBOOK} says something else than follows: do not read it"] if differs else []
            )
            if not whole:
                self.findings.trust(
                    "formats and comments of the workbook, which other versions of software write"
                    " otherwise",
                    WORKBOOK,
                )

    def _parts_listed(self) -> None:
        """Compare the list of tables and files of every part with those that a part has."""
        release = self.release
        tables: list[str] = []
        measured: list[str] = []
        for result in release.results:
            names, stem = result.part_stems()
            tables += names
            measured += [] if stem is None else [stem]
        files = {f"{stem}.{release.form}" for stem in (*tables, *measured)}
        for part in () if release.partition is None else release.partition.parts:
            more = sorted({*part.files} - files)
            self.findings.wrong += [
                f"it lists {name!r} in {part.folder}, which is not a file of this release"
                for name in more
            ]
            if [table.name for table in part.tables] != tables:
                self.findings.wrong.append(
                    f"it lists other tables in {part.folder} than its plan asks for"
                )


class _StatedLevels:
    """Levels as a release states them, in the place of the data that they were read from."""

    def __init__(self, plan: Plan, scope: Scope) -> None:
        self._features = {feature.names: feature for feature in scope.dataspace.schema.features}
        depths = [name for part in (*plan.chains, *self._features.values()) for name in part.names]
        self._columns = tuple(dict.fromkeys((*plan.columns, *depths)))

    def columns(self) -> tuple[str, ...]:
        return self._columns

    def levels(self, column: str) -> tuple[str, ...]:
        return tuple(label for (label,) in self.paths((column,)))

    def paths(self, names: Sequence[str], null_level: str | None = None) -> list[tuple[str, ...]]:
        feature = self._features.get(tuple(names))
        if feature is None:
            raise SemidpError(f"its exact totals have no feature {names[-1]!r}")
        return [tuple(path) for path in feature.paths()]


def _compare_stated(release: ReleaseFiles, document: Mapping[str, Any]) -> Iterator[str]:
    """Compare the numbers that are stated for readers with what follows from the rest."""
    follows = release.to_json()
    for key, source in (("epsilon", "guarantee"), ("report_delta", "plan"), ("budget", "plan")):
        if not same(document.get(key), follows[key]):
            yield f"it states {key} {document.get(key)!r}, and its {source} gives {follows[key]!r}"
    stated = document.get("a")
    for key in ("worst_case", "definition", "bound"):
        value = stated.get(key) if isinstance(stated, Mapping) else None
        least = follows["a"][key]
        if value is None or least is None:
            continue
        # A larger number than a(t) claims less, and is no fault.
        if not isinstance(value, int) or value < least:
            yield f"it states {value!r} for the {key.replace('_', ' ')} of a(t), which is {least}"


_PICTURE = re.compile(r"<svg.*?</svg>", re.DOTALL)
_STYLE_SHEET = re.compile(r"<style.*?</style>", re.DOTALL)


_LEADS_OUT = re.compile(
    r"""href\s*=\s*["']?(?!data:image/png;base64,)[^"'\#\s]"""
    r"""|url\(\s*["']?[^"'\#\s)]|style\s*=\s*"[^"]*[\\@&]""",
    re.IGNORECASE,
)
"""A link or an address that does not stay in the drawing, or a style that hides one. Shades of
large tables are pictures inside the drawing."""


def _holds_only_drawings(report: str, page: str) -> bool:
    """Whether the drawings of a report have no tag, attribute or style sheet that ours lack, and no
    link to elsewhere.

    What the page has outside, a script that searches its tables for one, is no part of a drawing.
    """
    drawn, ours = (" ".join(_PICTURE.findall(text)) for text in (report, page))
    for sheet in {*_STYLE_SHEET.findall(ours)}:
        drawn, ours = drawn.replace(sheet, ""), ours.replace(sheet, "")
    return _markup(drawn) <= _markup(ours) and _LEADS_OUT.search(drawn) is None


def _markup(drawings: str) -> set[str]:
    return {*re.findall(r"<[^\s<>/]+", drawings), *re.findall(r"[\w:-]+(?=\s*=)", drawings)}

"""One release from several of the same records, and the folder that holds it.

The folder of a combination holds the releases themselves, with all their measurements, and the
whole numbers that were fitted to all of them. The rest follows from these: it is computed when the
folder is read, and compared by `semidp show`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any, ClassVar, Self, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import AdjacencyUnknown, InputError, Refused, SemidpError
from semidp.inference.combined.combination import Combination
from semidp.inference.combined.combined_distributions import combine_distributions
from semidp.inference.combined.residual_combination import (
    LinkedCombination,
    ResidualCombination,
    is_large,
    linked_dataspace,
)
from semidp.inference.combined.several_releases import (
    LAW,
    ListedTable,
    SeveralReleases,
    same_records,
)
from semidp.promise.accounting.account import compose_releases
from semidp.promise.exact import count_noun
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.schema.features import SIZE
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import RECORD, Dataspace
from semidp.promise.spaces.linked import UNIT, LinkedDataspace
from semidp.promise.tradeoff.budget import approximate
from semidp.publish.pipeline import versions
from semidp.publish.plan import AdjacencyChoice, LinkedUnits, Plan, chosen_adjacency
from semidp.publish.recheck_results import Findings, check_fits, close, differences, short
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.release_value import ReleaseValue, has_noisy_bins
from semidp.publish.results.columns import Form, StoredFiles
from semidp.publish.results.grids import LISTED_ROWS, Details, Section, first_cells
from semidp.publish.results.published_table import (
    Fitted,
    FittedTable,
    PublishedTable,
)
from semidp.publish.results.texts import more
from semidp.publish.statistics.protocol.requests import Noise, Published
from semidp.publish.statistics.tables.words import (
    HEADINGS,
    PublishedCells,
    error_lines,
    misses_totals,
)
from semidp.publish.survey import find_semi_adjacency

_R = TypeVar("_R", bound=ReleaseValue)
_UNCHECKED = (
    "That the releases are of the same records was checked by their number, their levels and their"
    " exact totals alone."
)
_FIXED_BEFORE = (
    "The guarantee of all together is for budgets that were fixed in advance: if results decided a"
    " later budget, the budget of their ledger is what holds."
)
_BELIEVED = {"created", "versions", "combination"}

_combinations: "WeakKeyDictionary[ReleaseValue, SeveralReleases]" = WeakKeyDictionary()


def find_combination(release: ReleaseValue) -> SeveralReleases | None:
    """The releases that one is a combination of, as one set of measurements; None if it was
    measured itself.
    """
    if not release.sources:
        return None
    # Every question to a combination takes the estimate from all releases, which takes a while.
    if release not in _combinations:
        _combinations[release] = build_combination(release.sources)
    return _combinations[release]


def combine_releases(releases: Iterable[_R]) -> _R:
    """Return one release from several of the same records; see `semidp.combine`."""
    # A combination is no measurement of its own: its releases are.
    sources: list[_R] = []
    for release in releases:
        sources += cast("tuple[_R, ...]", release.sources) or (release,)
    if len(sources) < 2:
        raise InputError("name at least two releases to combine")
    if len({release.plan.period for release in sources} - {None}) > 1:
        raise Refused(
            "these releases are about different periods, and so about other records: compare them"
            " with change"
        )
    if len({release.plan.where for release in sources}) > 1:
        raise Refused(
            "these releases chose their records by different conditions, and so are not about the"
            " same records"
        )
    combination = build_combination(sources)
    has_tables = any(release.tables for release in sources)
    tables = combination.tables() if has_tables else ()
    return combined_release(type(sources[0]), combination, tables)


def build_combination(sources: Sequence[ReleaseValue]) -> SeveralReleases:
    """Return releases as one set of measurements; refuse those that cannot be of the same
    records.
    """
    if any(isinstance(release.scope.dataspace, LinkedDataspace) for release in sources):
        return LinkedCombination(tuple(sources), linked_dataspace(sources))
    dataspace = join_totals(sources)
    one_kind = ResidualCombination if is_large(dataspace) else Combination
    return one_kind(tuple(sources), dataspace)


def join_totals(releases: Sequence[ReleaseValue]) -> Dataspace:
    """Dataspace of all exact totals of releases of one kind of records; refuse releases that cannot
    be of the same records.
    """
    return reduce(same_records, [release.scope.dataspace for release in releases])


def combined_release(
    kind: type[_R], combination: SeveralReleases, tables: tuple[PublishedTable, ...]
) -> _R:
    """Return the release of a combination whose tables were estimated and fitted."""
    sources = combination.releases
    guarantee, notes = _guarantee(combination)
    scope = _scope(sources, combination.dataspace, guarantee, notes)
    private = all(release.private for release in sources)
    claims = {
        result.noise.claim
        for release in sources
        for result in release.results
        if result.counts_cells or result.residual_noise() is not None
    }
    # One ideal claim makes that of all ideal.
    claim = "exact" if claims <= {"exact"} else "ideal"
    results: list[Published] = []
    if tables:
        results.append(CombinedTables.from_tables(tables, len(sources), scope, claim, private))
    results += combine_distributions(sources, scope)
    if not results:
        raise Refused(
            "these releases hold no table, and no distribution on the same grid and lines: those"
            " are combined"
        )
    warned = [warning for result in results for warning in result.warnings()]
    release = kind(
        plan=_plan(sources, combination.dataspace, guarantee),
        scope=evolve(scope, warnings=(*scope.warnings, *warned)),
        published=partial(tuple, results),
        stated=guarantee,
        private=private,
        # Nothing is drawn here, so nothing is charged: each release was charged by itself.
        ledger=None,
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=sources,
    )
    _combinations[release] = combination
    return release


def read_combination(
    kind: type[_R], document: Mapping[str, Any], files: StoredFiles, sources: Sequence[_R]
) -> _R:
    """Return the combination that a folder holds, from its releases and its fitted tables."""
    if len(sources) < 2:
        raise ValueError("a combination is of several releases")
    combination = build_combination(sources)
    tables = []
    for entry in document.get(CombinedTables.key, ()):
        tables += CombinedTables.read_tables(entry, combination.dataspace, files)
    return combined_release(kind, combination, tuple(tables))


def check_combination(
    release: ReleaseFiles, document: Mapping[str, Any], findings: Findings
) -> None:
    """Compare a combination with what follows from its releases. Each release is also checked
    against its measurements.
    """
    try:
        combination = find_combination(release)
        assert combination is not None, "asked of a combination"
        tables = release.tables
        stated = [ListedTable(table.name, table.schema.names, table.counted) for table in tables]
        expected = combination.listed_tables if any(one.tables for one in release.sources) else ()
        if tuple(stated) != expected:
            findings.wrong.append("it states other tables than its releases have")
            return
        again = _compare_tables(combination, tables, findings)
        rebuilt = combined_release(type(release), combination, again)
    except SemidpError as error:
        findings.wrong.append(f"its releases cannot be combined again: {error}")
        return
    follows = json.loads(json.dumps(rebuilt.to_json()))
    for key, value in follows.items():
        if key in _BELIEVED:
            continue
        for path, said, computed in differences(document.get(key), value, key):
            findings.wrong.append(f"it states {path} {short(said)}, and {short(computed)} follows")
    # What a combination does not write, nobody has computed.
    unknown = [key for key in document if key not in follows and key not in {"files", "form"}]
    findings.wrong += [f"it states {key!r}, which no combination has" for key in unknown]
    findings.trust("when it was made, and with which software", "created", "versions")


def _compare_tables(
    combination: SeveralReleases, tables: tuple[PublishedTable, ...], findings: Findings
) -> tuple[PublishedTable, ...]:
    """Compare estimates, errors, intervals and whole numbers; return the tables as they are
    computed again.
    """
    if not tables:
        return ()
    again = []
    fitted = []
    for number, table in enumerate(tables):
        values, errors = combination.table_estimates(number)
        half_widths = combination.table_half_widths(number)
        if not close(table.estimate, values):
            findings.wrong.append(
                f"it states estimates of {table.name} that do not follow from its releases"
            )
        if not close(table.standard_errors, errors):
            findings.wrong.append(
                f"it states standard errors of {table.name} that the noise does not have"
            )
        elif not _intervals_hold(table, half_widths):
            findings.wrong.append(
                f"it states intervals of {table.name} that the noise does not have"
            )
        again.append(
            evolve(table, estimate=values, standard_errors=errors, half_widths=half_widths)
        )
        fitted.append(FittedTable(table, values, "combined.tables.fit"))
    said = check_fits(fitted, None, findings)
    findings.wrong += [f"'tables' states {each}" for each in said]
    return tuple(again)


def _intervals_hold(table: PublishedTable, half_widths: NDArray[np.float64] | None) -> bool:
    """Whether the intervals of a table are those of its noise."""
    if table.half_widths is None or half_widths is None:
        return True
    expected = half_widths.reshape(table.half_widths.shape)
    # Ends are written with six digits, so half-widths are known to about three units of the
    # last.
    return np.allclose(table.half_widths, expected, rtol=1e-6, atol=3e-6)


def _guarantee(combination: SeveralReleases) -> tuple[Guarantee | None, tuple[str, ...]]:
    """Guarantee of all releases together, each recomputed for the union of all exact totals;
    None, with the reason, where they do not add up.
    """
    charges = []
    releases = combination.releases
    if len({release.scope.persons for release in releases}) > 1:
        differ = "they are about other numbers of persons, or not all say whose a record is"
        return None, (f"No guarantee of all releases together is stated: {differ}.",)
    try:
        if isinstance(combination, LinkedCombination):
            return combination.guarantee(), (_FIXED_BEFORE,)
        for number, release in enumerate(releases, 1):
            records = [mechanism.record() for mechanism in release.mechanisms]
            # Of microdata no query is known: other noise would have made other bins.
            records += [{"query": None}] * has_noisy_bins(release.plan)
            charges.append((release.guarantee, f"release {number}", records))
        return compose_releases(charges), (_FIXED_BEFORE,)
    except (Refused, AdjacencyUnknown) as reason:
        return None, (f"No guarantee of all releases together is stated: {reason}.",)


def _scope(
    releases: Sequence[ReleaseValue],
    dataspace: Dataspace,
    guarantee: Guarantee | None,
    notes: Sequence[str],
) -> Scope:
    """What is public about all releases; where no guarantee is stated, all records may change at
    once.
    """
    plan = _plan(releases, dataspace, guarantee)
    try:
        semi = find_semi_adjacency(dataspace, plan)
    except AdjacencyUnknown:
        semi = None
    # Without a guarantee nothing is claimed of any two datasets.
    adjacency = Ball(max(dataspace.n, 1)) if guarantee is None else guarantee.adjacency
    disclosures: dict[str, None] = {}
    warnings = dict.fromkeys([_UNCHECKED, *notes])
    for release in releases:
        disclosures |= dict.fromkeys(release.scope.disclosures)
        warnings |= dict.fromkeys(release.scope.warnings)
    persons = releases[0].scope.persons if plan.protection is not None else None
    return Scope(dataspace, semi, adjacency, tuple(disclosures), tuple(warnings), persons)


def _plan(
    releases: Sequence[ReleaseValue], dataspace: Dataspace, guarantee: Guarantee | None
) -> Plan:
    """A plan that asks for nothing: features, exact totals, and the adjacency of the guarantee."""
    adjacency: Any = AdjacencyChoice.worst_case
    linked = isinstance(dataspace, LinkedDataspace)
    if guarantee is not None:
        adjacency = chosen_adjacency(guarantee.adjacency)
        # Of linked records the numbers follow from the link and what is exact.
        if linked and adjacency is not AdjacencyChoice.exchange:
            adjacency = AdjacencyChoice.worst_case
    if isinstance(dataspace, LinkedDataspace):
        return _linked_plan(releases, dataspace, adjacency)
    protection = None if guarantee is None else guarantee.adjacency.protection
    schema = dataspace.schema
    return Plan(
        invariants=dataspace.margins,
        features=schema.features,
        structural_zeros=schema.structural_zeros,
        adjacency=adjacency,
        report_delta=max(release.plan.report_delta for release in releases),
        id=None if protection is None else protection.id,
        most=None if protection is None else protection.most,
        records=None if protection is None else protection.records,
    )


def _linked_plan(
    releases: Sequence[ReleaseValue], dataspace: LinkedDataspace, adjacency: AdjacencyChoice
) -> Plan:
    """The same of linked members and units: how they are linked, and what is exact of each."""
    link = dataspace.link
    features = list(dataspace.schema.features)
    for feature in dataspace.units.schema.features:
        # Sizes follow from the bounds on the members of a unit.
        if feature.name != SIZE and feature not in features:
            features.append(feature)
    derived = [name for name in link.derived if name != SIZE]
    units = LinkedUnits(
        link.column,
        link.protect,
        link.most,
        link.least,
        derived,
        dataspace.units.margins,
        quarters=link.quarters,
    )
    return Plan(
        invariants=dataspace.margins,
        features=features,
        adjacency=adjacency,
        report_delta=max(release.plan.report_delta for release in releases),
        units=units,
    )


_AGREE = (
    "Members and units were averaged each by themselves and then made to agree, once: sizes times"
    " units is the number of members in every place. Other counts that depend on the members of a"
    " unit need not agree with tables of members."
)


@frozen(eq=False, kw_only=True, repr=False)
class CombinedTables(PublishedCells):
    """The tables of several releases, each estimated from all measurements.

    Parameters
    ----------
    tables
        Every table of any release.
    releases
        How many releases were combined.
    """

    key: ClassVar[str] = "combined"

    tables: tuple[PublishedTable, ...]
    releases: int

    @classmethod
    def from_tables(
        cls,
        tables: tuple[PublishedTable, ...],
        releases: int,
        scope: Scope,
        claim: str,
        private: bool,
    ) -> Self:
        """Return the result; the guarantee is stated for the release as a whole, so nothing is
        claimed here.
        """
        variances = sum(float((table.standard_errors**2).sum()) for table in tables)
        noise = Noise(LAW, 0.0, claim, float(np.sqrt(variances)), None)
        # With delta = 1 nothing is claimed.
        no_claim = approximate(0, 1)
        guarantee = Guarantee(scope.dataspace, scope.adjacency, no_claim)
        return cls(
            name="tables",
            request=None,
            noise=noise,
            guarantee=guarantee,
            advertised=None,
            private=private,
            noisy=np.zeros(0),
            tables=tables,
            releases=releases,
        )

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self.tables)
        return f"CombinedTables({names}; {self.releases} releases)"

    def measurements(self) -> None:
        """Return nothing: its releases were measured."""

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has."""
        return [
            f"{table.title}: {count_noun(table.cells, 'cell')}, from all releases"
            for table in self.cell_errors
        ]

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the errors of each table, for a terminal."""
        combined = f"{self.releases} releases of the same records"
        return [("combined", combined), *error_lines(self.cell_errors)]

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its section of the report: the errors of every table, and their counts."""
        pairs = zip(self.cell_errors, self.tables[:LISTED_ROWS], strict=False)
        rows = [(*errors.row(), table.fitted.method) for errors, table in pairs]
        paragraphs = [
            f"{self.releases} releases of the same records are combined. Every estimate is the"
            " best linear unbiased one from all that was measured. For each residual (what a table"
            " says beyond its own totals) it is the average of the measurements, weighted by their"
            " precision. A total that is exact in one release is exact in all tables."
            " Standard errors are those of the noise alone. The counts are whole numbers"
            " fitted to the estimates, from the coarsest table to the finest."
        ]
        if any(table.counted == UNIT for table in self.tables):
            paragraphs.append(_AGREE)
        paragraphs += more("tables are listed", len(rows), len(self.tables), "the files")
        section = Section(
            heading="Published tables from all releases",
            paragraphs=paragraphs,
            columns=(*HEADINGS, "fit"),
            rows=rows,
            tables=first_cells(self.tables, self.guarantee.dataspace, False, form),
        )
        return [section]

    def details(self) -> Details:
        """Say how the tables were estimated."""
        return Details(
            "the tables", f"the best linear unbiased estimate from {self.releases} releases"
        )

    def every_table(self) -> tuple[PublishedTable, ...]:
        """Return every table of any release."""
        return self.tables

    def warnings(self) -> list[str]:
        """Name the tables that have no whole numbers with all totals."""
        return [
            misses_totals(table.name) for table in self.tables if table.fitted.kind != "integer"
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, as plain values."""
        return {
            "name": self.name,
            "claim": self.noise.claim,
            "private": self.private,
            "releases": self.releases,
            "tables": [_entry(table) for table in self.tables],
        }

    @staticmethod
    def read_tables(
        entry: Mapping[str, Any], dataspace: Dataspace, files: StoredFiles
    ) -> list[PublishedTable]:
        """Read the tables that `to_json` and `files` wrote."""
        tables = []
        for part in entry["tables"]:
            counted = part.get("counted", dataspace.kinds[0])
            schema = dataspace.for_kind(counted).schema.restrict(part["features"])
            fitted = Fitted(**part["fit"])
            tables.append(PublishedTable.read(files, part["name"], schema, fitted, counted))
        return tables


def _entry(table: PublishedTable) -> dict[str, Any]:
    """Everything of a table but its cells; which kind of records it counts where there are two."""
    if table.counted == RECORD:
        return table.to_json()
    return {**table.to_json(), "counted": table.counted}

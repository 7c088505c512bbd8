"""One release from several of the same records, and the folder that holds it.

The folder of a combination holds the releases themselves, with everything that they measured, and
the whole numbers that were fitted to all of it. The rest of it follows from these: it is computed
when the folder is read, and compared by `semidp show`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from semidp.errors import AdjacencyUnknown, InputError, Refused, SemidpError
from semidp.inference.combined.combination import Combination
from semidp.inference.combined.combined_distributions import combine_distributions
from semidp.inference.combined.combined_tables import CombinedTables
from semidp.inference.combined.residual_combination import (
    LinkedCombination,
    ResidualCombination,
    is_large,
    linked_dataspace,
)
from semidp.inference.combined.several_releases import ListedTable, SeveralReleases, same_records
from semidp.promise.accounting.account import compose_releases
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.schema.features import SIZE
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.publish.pipeline import versions
from semidp.publish.plan import AdjacencyChoice, LinkedUnits, Plan, chosen_adjacency
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.release_value import ReleaseValue
from semidp.publish.results.cells import StoredFiles
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.recheck_findings import Findings, close, differences, short
from semidp.publish.statistics.tables.refit import FittedTable, Refit, intervals_hold, note_fits
from semidp.publish.survey import find_semi_adjacency

_R = TypeVar("_R", bound=ReleaseValue)
_UNCHECKED = (
    "That the releases are of the same records was checked by their number, their levels and their"
    " exact totals alone."
)
_BELIEVED = {"created", "versions", "combination"}

_combinations: "WeakKeyDictionary[ReleaseValue, SeveralReleases]" = WeakKeyDictionary()


def find_combination(release: ReleaseValue) -> SeveralReleases | None:
    """The releases that one is a combination of, as one set of measurements; None where it was
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
        scope=replace(scope, warnings=(*scope.warnings, *warned)),
        results=tuple(results),
        stated=guarantee,
        private=private,
        # Nothing is drawn here, so that nothing is charged: each release was charged by itself.
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
    """Compare a combination with what follows from its releases. Whether they follow from their
    measurements is checked one by one.
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
        elif not intervals_hold(table, half_widths):
            findings.wrong.append(
                f"it states intervals of {table.name} that the noise does not have"
            )
        again.append(
            replace(table, estimate=values, standard_errors=errors, half_widths=half_widths)
        )
        fitted.append(FittedTable(table.name, f"{table.name}.csv", table, values))
    # Fitting again takes the time of a recheck, and is left out where it was not asked for.
    fits: list[Refit] | None = None
    if findings.refits:
        fits = combination.fits([table.estimate for table in again])
    note_fits(findings, "tables", "combined.tables.fit", fitted, fits)
    return tuple(again)


def _guarantee(combination: SeveralReleases) -> tuple[Guarantee | None, tuple[str, ...]]:
    """Guarantee of all releases together, each computed anew for the union of all exact totals;
    None, with the reason, where they do not add up.
    """
    charges = []
    releases = combination.releases
    if len({release.scope.persons for release in releases}) > 1:
        differ = "they are about other numbers of persons, or not all say whose a record is"
        return None, (f"No guarantee of all releases together is stated: {differ}.",)
    try:
        if isinstance(combination, LinkedCombination):
            return combination.guarantee(), ()
        for number, release in enumerate(releases, 1):
            records = [mechanism.record() for mechanism in release.mechanisms]
            charges.append((release.guarantee, f"release {number}", records))
        return compose_releases(charges), ()
    except (Refused, AdjacencyUnknown) as reason:
        return None, (f"No guarantee of all releases together is stated: {reason}.",)


def _scope(
    releases: Sequence[ReleaseValue],
    dataspace: Dataspace,
    guarantee: Guarantee | None,
    notes: Sequence[str],
) -> Scope:
    """What is public of all releases; where no guarantee is stated, all records may change at
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

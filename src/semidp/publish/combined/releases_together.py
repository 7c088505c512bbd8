"""One release from several of the same records, and the folder that holds it.

The folder of a combination holds the releases themselves, so that everything in it follows from
them and is computed again by `semidp show`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, TypeVar

from semidp.errors import AdjacencyUnknown, InputError, Refused
from semidp.promise.accounting.account import compose_releases
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.schema.features import SIZE
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.publish.combined.combined_tables import CombinedTables
from semidp.publish.combined.residual_combination import (
    LinkedCombination,
    common_dataspace,
    one_estimate,
)
from semidp.publish.combined.several_releases import SeveralReleases
from semidp.publish.pipeline import versions
from semidp.publish.plan import AdjacencyChoice, LinkedUnits, Plan, chosen_adjacency
from semidp.publish.release_value import ReleaseValue
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.survey import find_semi_adjacency

_R = TypeVar("_R", bound=ReleaseValue)
_UNCHECKED = (
    "That the releases are of the same records was checked by their number, their levels and their"
    " exact totals alone."
)


def combine_releases(releases: Iterable[_R]) -> _R:
    """Return one release from several of the same records; see `semidp.combine`."""
    # A combination is no measurement of its own: its releases are.
    sources = [source for release in releases for source in release.sources or (release,)]
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
    return one_estimate(sources, common_dataspace(sources))


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
    results += combination.pool_results(scope)
    if not results:
        raise Refused(
            "these releases hold no table, and no distribution on the same grid and lines: those"
            " are combined"
        )
    warned = [warning for result in results for warning in result.warnings()]
    return kind(
        plan=_plan(sources, combination.dataspace, guarantee),
        scope=replace(scope, warnings=(*scope.warnings, *warned)),
        results=tuple(results),
        stated=guarantee,
        private=private,
        # Nothing is drawn here, so that nothing is charged: each release was charged by itself.
        ledger=None,
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        combination=combination,
    )


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
    deltas: list[Fraction] = [release.plan.report_delta for release in releases]
    return Plan(
        invariants=dataspace.margins,
        features=schema.features,
        structural_zeros=schema.structural_zeros,
        adjacency=adjacency,
        report_delta=max(deltas),
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

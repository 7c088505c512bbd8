"""The totals that are exact in the periods of a series, and what releases cost as if all were.

In a series one period may publish totals that another does not. If results decide which, pairs of
datasets must agree on all of them in every period. The values of unpublished totals are not known,
so a release is counted under totals that leave room for any: every cell of the features has n
records, except at levels that the period's own totals show to be empty. For a dataset x with n
records of the period, those n·1 less x are records that can be added, so two datasets with the
period's own totals differ as two datasets under these do. Every sensitivity is then at least as
large as under the values of the period.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from semidp.errors import AdjacencyUnknown, Refused
from semidp.promise.accounting.account import Account
from semidp.promise.accounting.periods import Periods
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.dataspace import (
    Datasets,
    Dataspace,
    DescribedDatasets,
    Margin,
    merge_features,
)
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.promise.spaces.semi_adjacency import semi_adjacency_bound

Values = tuple[str, tuple[str, ...]]
Cell = frozenset[Values]

_LARGEST = 1 << 62  # records, as integers of 64 bits


def list_missing(account: Account, margins: Iterable[Margin]) -> list[Margin]:
    """Return which of some margins the releases of an account do not publish exactly.

    Linked files and datasets that are known by name publish all, or are refused before.
    """
    space = account.dataspace
    if not isinstance(space, Dataspace) or isinstance(space, LinkedDataspace):
        return []
    names = {*space.schema.names}
    return [m for m in margins if not ({*m.names} <= names and space.publishes(m))]


def count_as_exact(
    account: Account, missing: Sequence[Margin], features: Iterable[Feature]
) -> Account:
    """Return the account with its charges recomputed for pairs that also agree on the margins
    that it does not publish.

    Parameters
    ----------
    account
        Releases of one period.
    missing
        The margins, as `list_missing` found them.
    features
        Features of other periods, for columns that these releases do not have.

    Raises
    ------
    Refused
        If that is not known for one of the charges.
    """
    if not missing:
        return account
    dataspace = account.dataspace
    assert isinstance(dataspace, Dataspace), "others lack no margin"
    unknown = f"what is lost with exact totals of {list_totals(missing)} is not known"
    asked = {name for margin in missing for name in margin.names}
    merged = merge_features(
        (*dataspace.schema.features, *_find_features(asked, dataspace.schema, features))
    )
    if merged is None:
        raise Refused(f"{unknown}: their levels or nesting differ between periods")
    schema = Schema(merged)
    if dataspace.schema.structural_zeros:
        raise Refused(f"{unknown} where some combinations of levels are impossible")
    unseen = sorted(asked.difference(schema.names))
    if unseen:
        raise Refused(f"{unknown}: no release has a column {unseen[0]!r} yet")
    space = _leave_room(schema, missing, dataspace)
    if space is None:
        raise Refused(f"{unknown}: they have too many combinations of levels")
    try:
        adjacency = _widen(account, space)
    except AdjacencyUnknown:
        raise Refused(f"{unknown}: how many records move together is not known") from None
    charges = []
    for charge in account.charges:
        try:
            charges.append(charge.under(space, adjacency))
        except Refused as refusal:
            raise Refused(f"{unknown} for {charge.label!r}: {refusal.message}") from None
    return Account(account.budget, space, adjacency, tuple(charges), account.id)


def _find_features(asked: set[str], known: Schema, features: Iterable[Feature]) -> list[Feature]:
    """Features of other periods for columns that a schema lacks: the deepest, with most levels."""
    needed, found = asked.difference(known.names), []
    for feature in sorted(features, key=lambda one: (-len(one.names), -len(one.levels))):
        if not needed.isdisjoint(feature.names):
            found.append(_allow_other_levels(feature, {*known.names}))
            needed.difference_update(feature.names)
    return found


def _allow_other_levels(feature: Feature, known: set[str]) -> Feature:
    """A feature with a second level wherever a period has only one, below the depths that are
    known: other periods may have more, and totals of one level would seem to bind nobody.
    """
    paths = feature.paths()
    added: list[tuple[str, ...]] = []
    for depth in range(len(known.intersection(feature.names)), len(feature.names)):
        children: dict[tuple[str, ...], set[str]] = {}
        for path in paths:
            children.setdefault(path[:depth], set()).add(path[depth])
        for node, labels in children.items():
            if len(labels) == 1:
                other = f"not {min(labels)}"
                added.append((*node, *(other,) * (len(feature.names) - depth)))
    if not feature.above:
        levels = [label for (label,) in (*paths, *added)]
        return Feature(feature.name, levels) if added else feature
    return Feature.from_paths(feature.names, [*paths, *added], repeat=True) if added else feature


def _leave_room(schema: Schema, missing: Sequence[Margin], own: Dataspace) -> Dataspace | None:
    """Totals of a table with n records in every cell that may have one; None if there are too
    many.
    """
    margins = (*own.margins, *missing)
    completed = [Margin(*schema.complete_names(margin.names)) for margin in margins]
    exact = {name for margin in completed for name in margin.names}
    names = [name for name in schema.names if name in exact]
    whole = schema.restrict(names)
    occurring = [_find_occurring(feature, own.totals) for feature in whole.features]
    records = own.n * math.prod(int(levels.sum()) for levels in occurring)
    if records > _LARGEST:
        return None
    values = {}
    for margin in completed:
        part = schema.restrict(margin.names)
        counts = np.array(records, dtype=np.int64)
        for feature in part.features:
            axis = whole.axis(feature.name)
            starts = whole.features[axis].depths[len(feature.names) - 1].starts
            # a state has the records of all its counties
            below = np.add.reduceat(occurring[axis].astype(np.int64), starts)
            counts = np.multiply.outer(counts // max(int(below.sum()), 1), below)
        values[margin] = Table(part, counts)
    return Dataspace.from_totals(schema, values)


def _find_occurring(feature: Feature, totals: Iterable[Table]) -> NDArray[np.bool_]:
    """Levels of a feature that some totals leave room for."""
    occurring = np.ones(len(feature.levels), dtype=np.bool_)
    for total in totals:
        for axis, published in enumerate(total.schema.features):
            if published.name in feature.names:
                starts = feature.depths[len(published.names) - 1].starts
                leaves = np.diff([*starts, len(feature.levels)])
                # a level needs room under every total that has its feature
                occurring &= np.repeat(_sum_to_axis(total, axis) > 0, leaves)
    return occurring


def _sum_to_axis(total: Table, axis: int) -> NDArray[np.int64]:
    summed_axes = tuple(other for other in range(total.counts.ndim) if other != axis)
    return np.asarray(total.counts.sum(axis=summed_axes))


def _widen(account: Account, space: Dataspace) -> Adjacency:
    """The promise of an account for other exact totals, whatever their values."""
    before = account.adjacency
    assert before is not None, "an account with charges has a promise"
    protection = before.protection
    if not before.protects_groups:
        exchange = Exchange.from_dataspace(space, protection)
        return Exchange(max(exchange.a, exchange.times), protection)
    enough = semi_adjacency_bound(space.schema, space.margins, protection).bound
    return Ball(max(before.a, enough), protection)


def name_totals(dataspace: Datasets) -> set[Margin]:
    """Names of what is exact, of units too."""
    if isinstance(dataspace, DescribedDatasets):
        return {Margin(dataspace.description)}
    named = {*dataspace.margins}
    if isinstance(dataspace, LinkedDataspace):
        for margin in dataspace.units.margins:
            named.add(Margin(*(f"units:{name}" for name in margin.names)))
    return named


def name_published_features(dataspace: Datasets) -> set[str]:
    """Features with exact totals, of units too.

    Exact counties are exact totals of their states. Exact states count as counties, too: where a
    county never changes, neither does its state.
    """
    names = {name for margin in dataspace.margins for name in margin.names}
    if isinstance(dataspace, Dataspace):
        for feature in dataspace.schema.features:
            if not names.isdisjoint(feature.names):
                names.update(feature.names)
    if isinstance(dataspace, LinkedDataspace):
        units = name_published_features(dataspace.units)
        names |= units | {f"units:{name}" for name in units}
    return names


def refuse_linking_totals(
    pooled: Periods, whole: Dataspace, released: Mapping[Periods, Dataspace]
) -> None:
    """Refuse pooled totals that are not sums of those of their periods, corrected or not.

    All records of a period are among the pooled ones. So both code a column alike only if every
    value that occurs in the period is a level of the pooled data, and every value of these, if all
    their periods were released, a level of one of them.
    """
    singles = [*released.values()]
    is_whole = {period.numbers[0] for period in released} == {*pooled.numbers}
    reason = (
        f"the exact totals of the pooled data of {pooled} must be sums of exact totals of each"
        " period, since totals that link periods tell people apart:"
    )
    for margin in whole.margins:
        for single in singles:
            if not ({*margin.names} <= {*single.schema.names} and single.publishes(margin)):
                raise Refused(f"{reason} {margin} is not exact in one of them")
        occurring_values, all_values = (
            _list_values(whole, margin),
            _list_values(whole, margin, occurring=False),
        )
        theirs = [_list_values(single, margin) for single in singles]
        levels = set[Values]().union(*(_list_values(one, margin, False) for one in singles))
        if any(not values <= all_values for values in theirs) or (
            is_whole and not occurring_values <= levels
        ):
            raise Refused(f"{reason} {margin} has other levels in one of them")
    for margin in (Margin(), *whole.margins):
        least, most = Counter[Cell](), Counter[Cell]()
        for number in pooled.numbers:
            # of data that were corrected, either version may be among the pooled records
            versions = [
                _count_cells(space, margin)
                for period, space in released.items()
                if period.numbers[0] == number
            ]
            for cell in set[Cell]().union(*versions):
                least[cell] += min(version[cell] for version in versions)
                most[cell] += max(version[cell] for version in versions)
        counts = _count_cells(whole, margin)
        if not least <= counts or (is_whole and not counts <= most):
            named = margin if margin.names else "the number of records"
            raise Refused(f"{reason} {named} does not add up")


def _count_cells(space: Dataspace, margin: Margin) -> Counter[Cell]:
    """Count of each cell of a margin that has records, by the values of its features."""
    if not margin.names:
        return Counter({frozenset(): space.n})
    total, cells = space.value(margin), Counter[Cell]()
    paths = [(feature.name, feature.paths()) for feature in total.schema.features]
    for place in np.argwhere(total.counts).tolist():
        labels = zip(paths, place, strict=True)
        cell = frozenset((name, tuple(of_feature[at])) for (name, of_feature), at in labels)
        cells[cell] = int(total.counts[tuple(place)])
    return cells


def _list_values(space: Dataspace, margin: Margin, occurring: bool = True) -> set[Values]:
    """Values of each feature of a margin, by its name: all, or those that occur."""
    total = space.value(margin)
    values = set()
    for axis, feature in enumerate(total.schema.features):
        for path, count in zip(feature.paths(), _sum_to_axis(total, axis), strict=True):
            if count or not occurring:
                values.add((feature.name, tuple(path)))
    return values


def complete_margin(margin: Margin, schema: Schema) -> Margin:
    """A margin with the coarser columns of its nested features, if a release has them."""
    is_known = {*margin.names} <= {*schema.names}
    return Margin(*schema.complete_names(margin.names)) if is_known else margin


def list_totals(margins: Iterable[Margin]) -> str:
    return "; ".join(sorted(map(str, margins))) or "the number of records alone"

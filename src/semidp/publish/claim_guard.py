"""Refusal, before the charge, of noise on residuals if two datasets of the promise are found that
cost more than it claims.

Exchanges are drawn from the definition, including members that move between units and units that
gain and lose members. A pair that is found can only refuse a release: no claim rests on it.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import singledispatch

import numpy as np

from semidp.errors import Refused
from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualNoise
from semidp.promise.schema.margins import Chain, Mask, View, list_axes
from semidp.promise.sensitivity.described_moves import (
    ExchangeMove,
    block_from_view,
    list_exchanges,
)
from semidp.promise.sensitivity.linked_products import KindSpace, find_inhabited_leaves
from semidp.promise.sensitivity.probes import Nodes, Probes, draw_exchanges, residual_squares
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.linked import UNIT
from semidp.promise.spaces.protection import Protect

_MOST_RESIDUALS = 32  # whose costs are compared with drawn exchanges: a tenth of a second
_MOST_KINDS = 32  # of exchanges of linked members that are searched for an expensive one
_DRAWS = 1024
_SECONDS = 0.15


@singledispatch
def refuse_false_claim(mechanism: Mechanism) -> None:
    """Refuse noise if two datasets of the promise are found that cost more than it claims.

    Single tables are not checked here: their norms are compared with drawn exchanges when
    computed.
    """


@refuse_false_claim.register
def _(mechanism: LinkedNoise) -> None:
    for part in mechanism.parts:
        refuse_false_claim(part)


@refuse_false_claim.register
def _(mechanism: ResidualNoise) -> None:
    cost, pair = find_worst_exchange(mechanism.space, mechanism.sigma2)
    if cost > float(mechanism.precision) * (1 + 1e-6):  # costs of pairs are in floating point
        raise Refused(
            f"the noise of these tables would hide less than is stated ({cost:.4g} instead of"
            f" {float(mechanism.precision):.4g} in mu squared), so nothing was drawn: {pair} are"
            " two datasets with the exact totals; this is a fault of semidp, please report it with"
            " this sentence"
        )


def find_worst_exchange(space: ProductSpace, sigma2: Mapping[View, Fraction]) -> tuple[float, str]:
    """Return the joint cost of the most expensive of some drawn exchanges under a noise, and
    its records in words; 0 if none are drawn.
    """
    if isinstance(space, KindSpace):
        return _find_worst_of_kind(space, sigma2)
    if len(sigma2) > _MOST_RESIDUALS:
        return 0.0, ""
    cost, words = _find_worst(space, _draw_exchanges(space), sigma2)
    # costs are squares: so many moves cost at most the square of their number times one
    return space.costs.times**2 * cost, words


def _draw_exchanges(space: ProductSpace) -> Probes:
    """Draw exchanges over all features; none where exact totals overlap."""
    try:
        blocks = Blocks.from_dataspace(space.dataspace)
    except Refused:
        return Probes.empty(len(space.schema.features))
    records = space.adjacency.by_kind(ball=space.costs.a, exchange=blocks.reach)
    return draw_exchanges(blocks, space.schema.grid.full).limit_records(records)


def _find_worst(
    space: ProductSpace, probes: Probes, sigma2: Mapping[View, Fraction]
) -> tuple[float, str]:
    """Return what the most expensive of some exchanges costs, and its records in words."""
    grid, costs = space.schema.grid, np.zeros(len(probes.signs))
    for view, square in sigma2.items():
        squares = residual_squares(grid.chains, probes, grid.full, view, space.inhabited_leaves)
        costs += squares / float(square)
    if not costs.any():
        return 0.0, ""
    worst, words = int(costs.argmax()), []
    for place in range(0, len(probes.signs[worst]), 2):
        often = int(probes.signs[worst][place + 1])
        old, new = (_name_record(space, leaves) for leaves in probes.nodes[worst][place:][:2])
        if old != new:
            words.append(f"{old} → {new}" if often == 1 else f"{often} times {old} → {new}")
    return float(costs[worst]), ", ".join(words)


def _name_record(space: ProductSpace, leaves: Sequence[int]) -> str:
    features = zip(space.schema.features, leaves, strict=True)
    return f"({', '.join(feature.levels[leaf] for feature, leaf in features)})"


def _find_worst_of_kind(space: KindSpace, sigma2: Mapping[View, Fraction]) -> tuple[float, str]:
    """The same for one kind of linked records: members that go to other units or stay, units that
    gain and lose members, or that change features of their own.
    """
    if not sigma2:
        return 0.0, ""
    if space.counted == UNIT:
        return _find_worst_change_of_units(space, sigma2)
    if space.adjacency.protects_groups:
        if len(sigma2) > _MOST_RESIDUALS:
            return 0.0, ""
        return _find_worst(space, _draw_exchanges(space), sigma2)
    axes, inherited = range(len(space.schema.features)), space.public.inherited_axes
    blocks = [block_from_view(margin.view) for margin in space.public.published_totals]
    kinds = 2 ** sum(map(len, blocks))
    if space.public.link.protect is not Protect.member or kinds > _MOST_KINDS:
        # one member of a unit, or one who stays there, is an exchange of the promise as well
        staying = _draw_exchanges(space).keep_axes(inherited)
        return _find_worst(space, staying, sigma2)
    worst, until, random = (0.0, ""), time.monotonic() + _SECONDS, np.random.default_rng(0)
    # a place with units may be known to have no members
    lived_in = [find_inhabited_leaves(space.dataspace, axis) for axis in axes]
    for move in list_exchanges(blocks, axes, inherited):
        draws = draw_placements(move, space.schema.grid.chains, lived_in, _DRAWS, random)
        worst = max(worst, _find_worst(space, draws, sigma2))
        if time.monotonic() > until:
            break
    return worst


def _find_worst_change_of_units(
    space: KindSpace, sigma2: Mapping[View, Fraction]
) -> tuple[float, str]:
    worst = 0.0, ""
    if space.public.size_axis is not None:
        worst = _find_worst(space, _draw_size_changes(space, space.public.size_axis), sigma2)
    if space.public.link.protect is Protect.unit:
        changed = _draw_exchanges(space).limit_records(space.public.reach.own_units)
        derived_changes = changed.keep_axes(space.public.derived_axes)
        worst = max(worst, _find_worst(space, derived_changes, sigma2))
    return worst


def _draw_size_changes(space: KindSpace, size: int) -> Probes:
    """Draw a unit that loses members, and others, all alike, that gain one each.

    Where one member is protected, one moves, or for the ball as many as the promise compares from
    as many units; the units agree in the exact totals of members. A whole unit may lose all members
    above the least number.
    """
    random, link, reach = np.random.default_rng(0), space.public.link, space.public.reach
    kept = space.inhabited_leaves
    leaves = [random.choice(np.flatnonzero(of_feature), (2, _DRAWS)) for of_feature in kept]
    one, other = np.moveaxis(np.array(leaves), 0, 2)
    # units that share features cost most, since their changes meet in the same cells
    other = np.where(random.random(other.shape) < 0.7, one, other)
    lost, times = np.ones(_DRAWS, dtype=np.int64), 1
    if link.protect is Protect.unit:
        most = min(link.most - link.least, reach.size_units - 1)
        lost = random.integers(1, max(most, 1) + 1, _DRAWS)
    elif space.adjacency.protects_groups:
        times = min(reach.members, reach.size_units // 2)
    after, gained = one.copy(), other.copy()
    after[:, size] -= lost
    gained[:, size] += 1
    valid = (after[:, size] >= 0) & (gained[:, size] < len(kept[size]))
    for axis, depth in _find_published_places(space):
        node_of_leaf = space.schema.grid.chains[axis].find_leaf_ancestors(depth)
        valid &= node_of_leaf[one[:, axis]] == node_of_leaf[other[:, axis]]
    signs = times * np.stack([-(lost**0), lost**0, -lost, lost], axis=1)
    return Probes(np.stack([one, after, other, gained], axis=1)[valid], signs[valid])


def _find_published_places(space: KindSpace) -> list[tuple[int, int]]:
    """The features of units in exact totals of members, and how deep they are there."""
    names = [feature.name for feature in space.public.units.schema.features]
    places = []
    for margin in space.public.published_totals:
        for axis in space.public.inherited_axes & {*list_axes(margin.view)}:
            name = space.public.schema.features[axis].name
            if name in names:
                places.append((names.index(name), margin.view[axis]))
    return places


def draw_placements(
    move: ExchangeMove,
    chains: Sequence[Chain],
    kept: Sequence[Mask],
    draws: int,
    random: np.random.Generator,
) -> Probes:
    """Draw leaves for the letters of an exchange that is described over all features; those that
    break a rule are left out. Most letters have one of two leaves of a feature, because exchanges
    whose records coincide cost most.
    """
    inhabited = [np.flatnonzero(kept[axis]) for axis in move.axes]
    two = np.stack([random.choice(nodes, (draws, 2)) for nodes in inhabited], axis=1)
    whole = random.random((draws, 1)) < 0.5
    leaves: dict[str, Nodes] = {}
    places = [place for record in move.records for place in (record.before, record.after)]
    for letter in sorted({*itertools.chain(*places)}):
        of_record, of_feature = random.integers(2, size=(2, draws, len(move.axes)))
        which = np.where(whole, of_record[:, :1], of_feature)
        either = np.take_along_axis(two, which[:, :, None], axis=2)[:, :, 0]
        anywhere = np.stack([random.choice(nodes, draws) for nodes in inhabited], axis=1)
        leaves[letter] = np.where(random.random((draws, 1)) < 0.9, either, anywhere)
    rules = sorted(move.rules, key=lambda rule: (rule.axis, rule.letters, rule.depth))
    valid = np.ones(draws, dtype=bool)
    for repair in (True, False):
        for rule in rules:
            place = move.axes.index(rule.axis)
            node_of_leaf = chains[rule.axis].find_leaf_ancestors(rule.depth)
            first, second = (leaves[letter][:, place] for letter in rule.letters)
            agrees = node_of_leaf[first] == node_of_leaf[second]
            if not repair:
                valid &= agrees == rule.equal
            elif rule.equal:
                # repaired rather than thrown away: independent leaves seldom agree
                leaves[rule.letters[1]][:, place] = np.where(agrees, second, first)
    records = []
    for record in move.records:
        for letters in (record.before, record.after):
            seen = [leaves[letter][:, place] for place, letter in enumerate(letters)]
            records.append(np.stack(seen, axis=1)[valid])
    signs = np.tile(np.array([-1, 1]), (int(valid.sum()), len(move.records)))
    return Probes(np.stack(records, axis=1), signs)

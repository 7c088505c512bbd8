"""What a distribution by groups costs: by the definition of exchanges and balls, in small worlds.

Exchanges are written down again in `test_rank_norms`, without the library's own.
"""

import itertools
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from tests.grouped.measuring import two_wards
from tests.grouped.test_rank_norms import (
    Dataset,
    datasets,
    drawn_world,
    histograms,
    neighbours,
    space_of,
)
from tests.rescaled import with_scale

from semidp.assess import worst_pair
from semidp.assess.worst_moves import worst_move
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    LaplaceMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.sensitivity.distribution_space import (
    DistributionSpace,
    Placement,
    ValueTree,
    distribution_space,
)
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.smooth import Gaussian
from semidp.publish.selection import select_mechanism
from semidp.publish.statistics.distribution.published import count_up_to, gap_weights

SETS = [(p, q) for p in range(3) for q in range(3) if p + q]


def distribution(
    records: int, several: int, single: int, steps: int, a: int | None = None
) -> DistributionSpace:
    """The distribution in the world of `space_of`."""
    ranks = space_of(records, several, single, steps, a)
    return distribution_space(ranks.dataspace, ranks.adjacency, ranks.outcome, ranks.blocks)


def farthest(
    space: DistributionSpace, pairs: Iterable[tuple[Dataset, Dataset]], single: int
) -> tuple[int, int, int, int]:
    """The largest Δ1, Δ2² and Δ∞ over pairs, and how many pairs there were."""
    steps = space.outcome.steps
    l1 = l2 = linf = count = 0
    for one, other in pairs:
        change = space.apply_query(histograms(one, single, steps)) - space.apply_query(
            histograms(other, single, steps)
        )
        sizes = np.abs(change)
        l1, l2, linf = (
            max(l1, int(sizes.sum())),
            max(l2, int((sizes**2).sum())),
            max(linf, int(sizes.max())),
        )
        count += 1
    return l1, l2, linf, count


# --- the tree


@pytest.mark.parametrize("values", range(2, 18))
def test_counts_follow_from_differences_and_the_other_way_round(values: int) -> None:
    tree = ValueTree(values)
    rows = np.random.default_rng(values).integers(0, 9, (6, values))
    expected = np.cumsum(rows, axis=1)[:, :-1]
    assert count_up_to(tree, tree.differences(rows), rows.sum(axis=1)).tolist() == expected.tolist()
    assert tree.depth == (values - 1).bit_length()
    assert sorted(np.concatenate(tree.levels).tolist()) == list(range(values - 1))
    halves = [
        (low, gap + 1, high)
        for gap, (low, high) in enumerate(zip(tree.low, tree.high, strict=True))
    ]
    for low, middle, high in halves:
        assert 0 <= (middle - low) - (high - middle) <= 1


@pytest.mark.parametrize("values", [2, 3, 5, 8, 13, 16])
def test_weights_are_what_one_difference_does_to_the_counts(values: int) -> None:
    tree = ValueTree(values)
    effects = count_up_to(tree, np.eye(tree.gaps), np.zeros(tree.gaps))
    for node, gap in itertools.product(range(tree.gaps), repeat=2):
        above = tree.low[node] <= tree.low[gap] and tree.high[gap] <= tree.high[node]
        assert effects[node, gap] == (gap_weights(tree)[gap, tree.depths[node] - 1] if above else 0)


@pytest.mark.parametrize("parted", [2, 4])
@pytest.mark.parametrize("values", range(2, 12))
def test_places_are_as_far_apart_as_any(values: int, parted: int) -> None:
    """Every triple of values, for several weights of the three pairs."""
    tree = ValueTree(values)
    paths = tree.differences(np.eye(values, dtype=np.int64))
    power = 2 if parted == 4 else 1
    apart = (np.abs(paths[:, None] - paths[None]) ** power).sum(axis=2)
    tried = 0
    for several, single in [(1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (1, 4), (3, 1)]:
        placement = Placement(tree, {(0, 1): several, (1, 2): several, (0, 2): single}, parted)

        def cost(v: int, w: int, after: int, several: int = several, single: int = single) -> int:
            return int(several * (apart[v, w] + apart[w, after]) + single * apart[v, after])

        assert placement.cost == max(
            itertools.starmap(cost, itertools.product(range(values), repeat=3))
        )
        assert placement.cost == cost(*placement.places)
        tried += 1
    assert tried == 7


# --- exchanges and balls


@pytest.mark.few(10)
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(("several", "single"), SETS)
def test_an_exchange_moves_as_far_as_is_said(several: int, single: int, steps: int) -> None:
    """All three norms are attained, and never exceeded."""
    records = 2 if steps == 3 else 3
    space = distribution(records, several, single, steps)
    l1, l2, linf, count = farthest(space, neighbours(records, several, steps), single)
    assert count > 8
    assert (l1, l2, linf) == (space.l1, space.l2_squared, space.linf)
    assert space.exact


@pytest.mark.few(12)
@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(("several", "single"), SETS)
def test_a_ball_moves_as_far_as_is_said(several: int, single: int, steps: int, a: int) -> None:
    records = 3 if steps < 3 and several < 2 else 2
    every = datasets(records, several, steps)

    def near() -> Iterator[tuple[Dataset, Dataset]]:
        for one, other in itertools.combinations(every, 2):
            if sum(x != y for x, y in zip(one, other, strict=True)) <= a:
                yield one, other

    space = distribution(records, several, single, steps, a)
    l1, l2, linf, count = farthest(space, near(), single)
    assert count >= 1
    assert (l1, l2, linf) == (space.l1, space.l2_squared, space.linf)


def test_the_cost_of_ranks_is_too_small_for_a_distribution() -> None:
    """The twin: 2p + p' replaced values, each at 2, fail everywhere."""
    short = 0
    for several, single in SETS:
        _, l2, _, _ = farthest(
            distribution(2, several, single, 2), neighbours(2, several, 2), single
        )
        short += l2 > 2 * (2 * several + single)
    assert short == len(SETS)


@pytest.mark.parametrize("depth", range(1, 7))
@pytest.mark.parametrize(("several", "single"), SETS)
def test_equal_noise_costs_what_the_closed_form_says(several: int, single: int, depth: int) -> None:
    """Costs of partings, in units of 1/σ² of a cell: a difference of halves has twice the variance
    of a cell.
    """
    space = distribution(4, several, single, 2**depth - 1)
    if not single:
        closed = 2 * several * (depth + 1)
    elif depth == 1:
        closed = max(4 * several, 2 * several + 2 * single)
    else:
        two = 2 * several * (depth + 1) + single * depth
        closed = max(two, several * (2 * depth + 1) + single * (depth + 1))
    assert space.l2_squared == 2 * closed
    assert space.l2_squared <= 2 * (2 * several + single) * (depth + 1)


def test_the_cost_is_that_of_the_product_of_all_depths() -> None:
    """Residuals of group × values and of values alone at each depth, with σ² and Gσ²: Σ|r|²/σ² =
    ΣD²/2σ².
    """
    source = np.random.default_rng(5)
    groups, depth, moves = 3, 3, 0
    tree = ValueTree(2**depth)
    for _ in range(50):
        move = source.integers(-2, 3, (groups, tree.values))
        move[:, 0] -= move.sum(axis=1)
        total = 0.0
        for k in range(1, depth + 1):
            table = move.reshape(groups, 2**k, -1).sum(axis=2).reshape(groups, -1, 2)
            residual = table - table.mean(axis=2, keepdims=True)
            nation = residual.sum(axis=0)
            total += ((residual - residual.mean(axis=0)) ** 2).sum() + (nation**2).sum() / groups
        assert total == pytest.approx((tree.differences(move) ** 2).sum() / 2)
        moves += 1
    assert moves == 50


def search(worlds: int, seed: int) -> tuple[int, int, float]:
    """Walk through random worlds by exchanges; return worlds, pairs, and the largest share of Δ2²
    that was seen.
    """
    source = np.random.default_rng(seed)
    seen = pairs = 0
    attained = 0.0
    while seen < worlds:
        drawn = drawn_world(source)
        if drawn is None:
            continue
        blocks, ranks, _, dataset = drawn
        space = distribution_space(ranks.dataspace, ranks.adjacency, ranks.outcome, ranks.blocks)
        views = [blocks.structure.schema.view(margin.names) for margin in ranks.blocks]
        for _ in range(3):
            others = sorted(blocks.neighbours(dataset))
            for other in others:
                change: dict[tuple[object, ...], np.ndarray] = {}
                for sign, records in ((-1, dataset), (1, other)):
                    for (number, view), record in itertools.product(enumerate(views), records):
                        row = change.setdefault(
                            (number, blocks.nodes(record, view)), np.zeros((1, 3), dtype=np.int64)
                        )
                        row[0, record[-1]] += sign
                moved = space.tree.differences(np.concatenate(list(change.values())))
                assert np.abs(moved).sum() <= space.l1
                assert (moved**2).sum() <= space.l2_squared
                assert np.abs(moved).max() <= space.linf
                attained = max(attained, float((moved**2).sum()) / space.l2_squared)
                pairs += 1
            if not others:
                break
            dataset = others[source.integers(len(others))]
        seen += 1
    return seen, pairs, attained


def test_random_worlds_move_no_farther_than_is_said() -> None:
    """Sets of one block, coarser or joint, flat and nested."""
    worlds, pairs, attained = search(20, seed=29)
    assert worlds == 20
    assert pairs > 2_000
    assert attained == 1


@pytest.mark.long
def test_many_random_worlds_move_no_farther_than_is_said() -> None:
    worlds, pairs, attained = search(400, seed=30)
    assert worlds == 400
    assert pairs > 40_000
    assert attained == 1


def test_several_records_of_one_person_move_so_many_times_as_far() -> None:
    once = two_wards(7, Exchange(2))
    space = two_wards(7, Exchange(6, Protection("patient", 3)))
    assert (space.l1, space.l2_squared, space.linf) == (
        3 * once.l1,
        9 * once.l2_squared,
        3 * once.linf,
    )
    move = worst_move(space)
    assert move is not None
    assert (move**2).sum() == space.l2_squared


@pytest.mark.parametrize("adjacency", [Ball(1), Ball(2), Ball(3), Ball(40), Exchange(2)], ids=str)
def test_the_worst_pair_attains_the_norm(adjacency: Ball | Exchange) -> None:
    space = two_wards(12, adjacency)
    move = worst_move(space)
    assert move is not None
    assert (move**2).sum() == space.l2_squared
    assert worst_pair(space).move.tolist() == move.tolist()


# --- the noise itself, on the worst pair


def laws_of(
    mechanism: RoundedGaussianMechanism | DiscreteGaussianMechanism, shift: int, reach: int
) -> np.ndarray:
    """The probabilities of one noisy entry around 0 and around `shift`, on whole numbers up to a
    reach.
    """
    places = np.arange(-reach, reach + 1)
    law = mechanism.sampler
    return np.stack(
        [np.array([float(law.pmf(int(place - move))) for place in places]) for move in (0, shift)]
    )


@pytest.mark.parametrize("adjacency", [Ball(2), Exchange(2)], ids=str)
def test_the_rounded_noise_is_within_its_curve_on_the_worst_pair(
    adjacency: Ball | Exchange,
) -> None:
    """δ(ε) of the joint law of all differences that move, by convolution of the losses of single
    ones.
    """
    space = two_wards(3, adjacency)
    mechanism = RoundedGaussianMechanism.calibrate(space, Budget.gdp(2))
    claim = mechanism.tradeoff
    assert claim == Gaussian(Fraction(4))
    move = worst_move(space)
    assert move is not None
    losses, chances = np.zeros(1), np.ones(1)
    entries = 0
    for shift in move[move != 0].tolist():
        one, other = laws_of(mechanism, shift, 12 + abs(shift))
        loss = np.log(one) - np.log(other)
        losses, chances = (
            np.add.outer(losses, loss).ravel(),
            np.multiply.outer(chances, one).ravel(),
        )
        kept = chances > 1e-9
        # Losses that are as good as the same are merged.
        grid = np.round(losses[kept], 4)
        losses, which = np.unique(grid, return_inverse=True)
        chances = np.bincount(which, chances[kept])
        entries += 1
    assert entries >= 3
    compared = 0
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        excess = float((chances * np.maximum(1 - np.exp(epsilon - losses), 0)).sum())
        allowed = claim.delta(epsilon)
        assert excess <= allowed + 5e-4
        assert excess > 0.7 * allowed - 1e-3  # and not far below it
        compared += 1
    assert compared == 5


def test_the_discrete_noise_is_within_its_divergence_on_the_worst_pair() -> None:
    """Rényi divergences of the entries add up to at most ρα, and nearly to it."""
    space = two_wards(3, Ball(2))
    mechanism = DiscreteGaussianMechanism.calibrate(space, Budget.zcdp("1/2"))
    move = worst_move(space)
    assert move is not None
    for order in (1.5, 2.0, 8.0):
        total = 0.0
        for shift in move[move != 0].tolist():
            one, other = laws_of(mechanism, shift, 60)
            total += np.log((one**order * other ** (1 - order)).sum()) / (order - 1)
        assert 0.99 * order / 2 < total <= order / 2 * (1 + 1e-9)


def test_laplace_noise_is_within_epsilon_on_the_worst_pair() -> None:
    space = two_wards(3, Ball(2))
    mechanism = select_mechanism(space, Budget.pure(1))
    assert isinstance(mechanism, LaplaceMechanism)
    assert space.l1 / mechanism.scale == pytest.approx(1)
    move = Placement(space.tree, {(0, 1): 1}, 2).cost * 2
    assert move == space.l1


def test_half_the_noise_breaks_the_claim() -> None:
    """The twin of the divergences above."""
    space = two_wards(3, Ball(2))
    mechanism = with_scale(
        DiscreteGaussianMechanism.calibrate(space, Budget.zcdp("1/2")),
        np.sqrt(space.l2_squared) / 2,
    )
    move = worst_move(space)
    assert move is not None
    total = 0.0
    for shift in move[move != 0].tolist():
        one, other = laws_of(mechanism, shift, 60)
        total += np.log((one**2.0 / other).sum())
    assert total > 3.9 / 2 * 2

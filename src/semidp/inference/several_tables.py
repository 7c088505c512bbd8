"""Weighted sums over several tables of one release: their errors, and draws of them.

Tables that share a budget, and those of a combination, have noise in common; others are
independent.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from semidp.inference.independence import blocks
from semidp.inference.measured import CombinedMeasured, Floats, Measured, MeasuredTable
from semidp.promise.mechanisms.residual_laws import SharedNoise
from semidp.promise.noise.randomness import Randomness, SystemRandomness

TableWeights = Mapping[Measured, Floats]
"""For each table weights of several sums, (sums, *cells)."""


def compute_joint_errors(weights: TableWeights) -> Floats:
    """Standard errors of weighted sums over several tables, from the noise alone."""
    squares = np.zeros(len(next(iter(weights.values()))))
    for group in _with_common_noise(weights):
        squares += _errors(group) ** 2
    return np.asarray(np.sqrt(squares))


def simulate_joint_errors(
    weights: TableWeights, draws: int | None, randomness: Randomness | None
) -> Floats:
    """Draws of the errors of weighted sums over several tables, one row a draw."""
    source = SystemRandomness() if randomness is None else randomness
    count = min(measured.draws for measured in weights) if draws is None else draws
    total = np.zeros((count, len(next(iter(weights.values())))))
    for group in _with_common_noise(weights):
        total += _draw_errors(group, count, source)
    return total


def _with_common_noise(weights: TableWeights) -> Iterator[dict[Measured, Floats]]:
    """Tables that share noise, group by group."""
    groups: dict[object, dict[Measured, Floats]] = {}
    for measured, stacked in weights.items():
        key: object = id(measured)
        if isinstance(measured, CombinedMeasured):
            key = id(measured.combination)
        elif isinstance(measured, MeasuredTable) and isinstance(measured.mechanism, SharedNoise):
            key = id(measured.mechanism)
        groups.setdefault(key, {})[measured] = stacked
    yield from groups.values()


def _errors(group: dict[Measured, Floats]) -> Floats:
    first = next(iter(group))
    if len(group) == 1:
        return first.errors(group[first])
    errors = []
    for number in range(len(group[first])):
        one = {measured: stacked[number] for measured, stacked in group.items()}
        if isinstance(first, CombinedMeasured):
            errors.append(first.combination.estimate(_by_view(one))[1])
        else:
            assert isinstance(first, MeasuredTable)
            assert isinstance(first.mechanism, SharedNoise)
            errors.append(first.mechanism.combination_error(_by_number(one)))
    return np.array(errors)


def _draw_errors(group: dict[Measured, Floats], count: int, source: Randomness) -> Floats:
    first = next(iter(group))
    if len(group) == 1:
        return first.simulate_errors(group[first], count, source)
    widest = max(measured.estimate.size for measured in group)
    parts = blocks(count, max(widest, len(group[first])))
    if isinstance(first, CombinedMeasured):
        influences = first.combination.influences(_by_view(group))
        return np.concatenate(
            [first.combination.draw_errors(influences, part, source) for part in parts]
        )
    assert isinstance(first, MeasuredTable)
    mechanism = first.mechanism
    assert isinstance(mechanism, SharedNoise)
    pulled = []
    for number in range(len(group[first])):
        one = {measured: stacked[number] for measured, stacked in group.items()}
        pulled.append(mechanism.combination(_by_number(one)))
    matrix = np.stack(pulled)
    # Only residuals that some sum sees are drawn.
    used = np.flatnonzero(np.abs(matrix).max(axis=0) > 1e-15)
    return np.concatenate(
        [mechanism.draw_entries(used, part, source) @ matrix[:, used].T for part in parts]
    )


def _by_view(weights: Mapping[Measured, Floats]) -> dict[tuple[int, ...], Floats]:
    by_view = {}
    for measured, array in weights.items():
        assert isinstance(measured, CombinedMeasured)
        by_view[measured.view] = array
    return by_view


def _by_number(weights: Mapping[Measured, Floats]) -> dict[int, Floats]:
    by_number = {}
    for measured, array in weights.items():
        assert isinstance(measured, MeasuredTable)
        by_number[measured.number] = array
    return by_number

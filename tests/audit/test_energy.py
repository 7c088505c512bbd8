"""The energy of the noise: honest mechanisms of every kind pass, and one that draws less in any
direction does not.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import laplace, norm

from semidp.assess import noise_energy, worst_pair
from semidp.assess.attack_bounds import FOURTH_MOMENT, LEAST_VARIANCE
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    L2Mechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.promise.tradeoff.budget import Budget

from .conftest import a_space

KINDS: dict[type[Mechanism], Callable[[str], Budget]] = {
    RoundedGaussianMechanism: Budget.gdp,
    DiscreteGaussianMechanism: Budget.zcdp,
    LatticeGaussianMechanism: Budget.zcdp,
    LaplaceMechanism: Budget.pure,
    L2Mechanism: Budget.pure,
    KNormMechanism: Budget.pure,
}
ERROR = 1e-3


def altered(
    mechanism: Mechanism, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> Mechanism:
    """Return the mechanism with its noise changed before it is added."""
    kind = type(mechanism)
    whole = kind.noises
    monkeypatch.setattr(
        kind, "noises", lambda self, count, words: np.rint(change(whole(self, count, words)))
    )
    return mechanism


LAWS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "discrete gaussian": lambda k, scale: np.exp(-(k**2) / (2 * scale**2)),
    "discrete laplace": lambda k, scale: np.exp(-np.abs(k) / scale),
    "rounded gaussian": lambda k, scale: np.diff(
        norm.cdf(np.append(k - 0.5, k[-1] + 0.5), scale=scale)
    ),
    "rounded laplace": lambda k, scale: np.diff(
        laplace.cdf(np.append(k - 0.5, k[-1] + 0.5), scale=scale)
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_fourth_moment_of_whole_noise_is_bounded(name: str) -> None:
    k = np.arange(-400, 401).astype(float)
    ratios = {}
    for scale in np.geomspace(0.2, 20, 200):
        weights = LAWS[name](k, scale)
        second, fourth = (float((weights * k**power).sum() / weights.sum()) for power in (2, 4))
        ratios[second] = fourth / second**2
    assert (
        max(ratio for variance, ratio in ratios.items() if variance >= LEAST_VARIANCE)
        <= FOURTH_MOMENT
    )
    assert max(ratios.values()) > FOURTH_MOMENT  # with less variance it does not hold


@pytest.mark.few(10)
@pytest.mark.parametrize("size", ["1/10", "1", "3/2", "2", "4"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_honest_noise_passes(kind: type[Mechanism], size: str, square: TableSpace) -> None:
    mechanism = kind.calibrate(square, KINDS[kind](size))
    found = noise_energy(mechanism, worst_pair(square).first, 20_000, ERROR, SeededRandomness(1))
    assert found is None or not found.convicts
    assert (found is None) == bool((mechanism.standard_errors() ** 2 < 0.5).all())


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_honest_noise_is_convicted_no_more_often_than_stated(
    kind: type[Mechanism], square: TableSpace
) -> None:
    """30 tests at error 0.3 of whole numbers close to zero: more than 17 convictions have
    probability below 1e-3.
    """
    mechanism = kind.calibrate(square, KINDS[kind]("3/2"))
    values = worst_pair(square).first
    found = [
        noise_energy(mechanism, values, 300, 0.3, SeededRandomness(seed)) for seed in range(30)
    ]
    assert sum(energy.convicts for energy in found if energy is not None) <= 17
    assert None not in found


@pytest.mark.parametrize("share", [0.6, 0.8])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_too_little_noise_in_a_single_cell_is_convicted(
    kind: type[Mechanism], share: float, square: TableSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell is one in which the two tables of the audit agree, so that no attack on them can
    find it.
    """
    pair = worst_pair(square)
    cell = tuple(np.argwhere(pair.move == 0)[0])
    scales = np.ones((3, 3))
    scales[cell] = share
    mechanism = altered(
        kind.calibrate(square, KINDS[kind]("1/10")), lambda noise: noise * scales, monkeypatch
    )
    found = noise_energy(mechanism, pair.first, 20_000, ERROR, SeededRandomness(2))
    assert found is not None
    assert found.convicts
    assert found.direction in (f"cell {cell[0] + 1}, {cell[1] + 1}", "the chosen direction")


def test_a_direction_without_noise_is_found(
    square: TableSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cell loses a quarter of its variance at most, and is given it back; the direction is
    left with none.
    """
    direction = np.outer([1, 1, -2], [1, -1, 0]) / np.sqrt(12)
    honest = RoundedGaussianMechanism.calibrate(square, Budget.gdp("1/10"))

    def change(noise: Any) -> Any:
        along = np.tensordot(noise, direction, axes=2)
        return 1.5 * (noise - along[:, None, None] * direction)

    mechanism = altered(honest, change, monkeypatch)
    found = noise_energy(mechanism, worst_pair(square).first, 20_000, ERROR, SeededRandomness(3))
    assert found is not None
    assert (found.direction, found.convicts) == ("the chosen direction", True)
    assert found.share < 0.01


def test_large_tables_are_sampled_in_cells() -> None:
    space = a_space(np.full((40, 30), 5), ["A", "B"], 3)
    mechanism = RoundedGaussianMechanism.calibrate(space, Budget.gdp(1))
    found = noise_energy(mechanism, np.full((40, 30), 5), 2_000, ERROR, SeededRandomness(4))
    assert found is not None
    assert (found.directions, found.convicts) == (1_025, False)


def test_findings_are_plain_values(square: TableSpace) -> None:
    mechanism = RoundedGaussianMechanism.calibrate(square, Budget.gdp(1))
    found = noise_energy(mechanism, worst_pair(square).first, 5_000, ERROR, SeededRandomness(5))
    assert found is not None
    assert set(found.to_json()) == {"direction", "share", "least", "directions"}
    assert 0 < found.least < found.share

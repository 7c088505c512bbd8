"""What an attacker may look at: numbers computed from one output and the two tables, among them a learned one.

Any score gives a valid attack; good ones only make it stronger. Which of them is used, and at which threshold, is
decided in `attack` on outputs that are not counted.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semidp.audit.pairs import Pair

Floats = NDArray[np.float64]

_RIDGE = 1e-6  # of the number of outputs: enough for features that are multiples of each other
_STEPS = 30


@dataclass(frozen=True, eq=False)
class Features:
    """Signed features of outputs y for a pair (x, x'): large where y looks like x'.

    The projection on the move is sufficient for Gaussian noise. For noise of density ``∝ exp(-‖v‖)`` it is the
    difference of the distances ‖y - x‖ - ‖y - x'‖: in l1, l2, l∞, and the largest l1 of a line of the table, which
    is the K-norm of small tables. The distances themselves find noise that is concentrated too much at zero.

    >>> features = Features(Pair([2, 0], [1, 1]))
    >>> signed, _ = features(np.array([[2, 0], [1, 1]]))
    >>> list(zip(features.names, signed[:, 1].round(3).tolist()))[:2]
    [('projection on the move', 0.707), ('l1 distances', 2.0)]
    """

    pair: Pair

    @property
    def names(self) -> tuple[str, ...]:
        """What the signed features are called."""
        return ("projection on the move", *(f"{name} distances" for name in self.distances), "log distances")

    @property
    def distances(self) -> tuple[str, ...]:
        """What the distances are called."""
        axes = self.pair.first.ndim
        lines = tuple(f"line (axis {axis + 1})" for axis in range(axes)) if axes > 1 else ()
        return ("l1", "l2", "l∞", *lines, *(("longest line",) if lines else ()))

    def __call__(self, outputs: NDArray[np.generic]) -> tuple[Floats, Floats]:
        """Return a row for each signed feature, and one for each distance to the first table and then to the second.

        Outputs run along the last axis, so that sums over cells are sums of long rows.
        """
        y = np.ascontiguousarray(np.moveaxis(outputs, 0, -1), dtype=np.float64)
        to_first, to_second = y - self.pair.first[..., None], y - self.pair.second[..., None]
        near, far = _distances(to_first), _distances(to_second)
        move = self.pair.move.ravel() / np.linalg.norm(self.pair.move)
        projection = move @ (to_first + to_second).reshape(len(move), -1) / 2
        logs = np.log1p(near[1]) - np.log1p(far[1])
        return np.vstack([projection, near - far, logs]), np.vstack([near, far])


@dataclass(frozen=True, eq=False)
class Scores:
    """All scores of an output: the signed features, the learned one, and closeness to each of the two tables."""

    features: Features
    centre: Floats = field(repr=False)
    spread: Floats = field(repr=False)
    weights: Floats = field(repr=False)

    @classmethod
    def learned(cls, features: Features, first: Floats, second: Floats) -> "Scores":
        """Fit a logistic regression of "which table?" on the signed features and products of them."""
        rows = np.hstack([first, second])
        centre = rows.mean(axis=1, keepdims=True)
        spread = np.maximum(rows.std(axis=1, keepdims=True), 1e-12)
        answers = np.repeat([0.0, 1.0], [first.shape[1], second.shape[1]])
        return cls(features, centre, spread, logistic(_expanded((rows - centre) / spread), answers))

    @property
    def names(self) -> tuple[str, ...]:
        """What the scores are called, in the order of the rows."""
        distances = self.features.distances
        near = (f"{name} distance to the {which} table" for which in ("first", "second") for name in distances)
        return (*self.features.names, "learned score", *near)

    def __call__(self, outputs: NDArray[np.generic]) -> Floats:
        """Return a row for each score, with an entry for each output."""
        signed, distances = self.features(outputs)
        learned = self.weights @ _expanded((signed - self.centre) / self.spread)
        return np.vstack([signed, learned, -distances])


def logistic(design: Floats, answers: Floats) -> Floats:
    """Return the weights of a logistic regression on the rows of `design`, by Newton's method with a slight ridge.

    >>> weights = logistic(np.array([[1.0, 1, 1, 1], [0, 1, 2, 3]]), np.array([0.0, 1, 0, 1]))
    >>> bool(weights[1] > 0)
    True
    """
    from scipy.linalg import solve
    from scipy.special import expit

    weights = np.zeros(len(design))
    ridge = _RIDGE * design.shape[1] * np.eye(len(weights))
    for _ in range(_STEPS):
        guess = expit(weights @ design)
        curvature = (design * (guess * (1 - guess))) @ design.T + ridge
        step = solve(curvature, design @ (answers - guess) - ridge @ weights, assume_a="pos")
        weights += step * min(1.0, 10.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-6:
            break
    return weights


def _expanded(signed: Floats) -> Floats:
    """The features and ``z_i |z_j|``: products that keep the sign of the first."""
    one, other = np.triu_indices(len(signed))
    return np.vstack([np.ones((1, signed.shape[1])), signed, signed[one] * np.abs(signed)[other]])


def _distances(differences: Floats) -> Floats:
    size = np.abs(differences)
    cells = tuple(range(size.ndim - 1))
    rows = [size.sum(axis=cells), np.sqrt((size**2).sum(axis=cells)), size.max(axis=cells)]
    if len(cells) > 1:
        lines = [size.sum(axis=tuple(other for other in cells if other != axis)).max(axis=0) for axis in cells]
        rows += [*lines, np.max(lines, axis=0)]
    return np.stack(rows)

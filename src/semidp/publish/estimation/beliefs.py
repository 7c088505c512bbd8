"""What is known of many vectors at once: a mean, a covariance, and directions in which nothing is
known.

A belief is ``x = mean + k + u`` with ``Cov(k) = spread`` and `u` anywhere in the range of the
projector `unknown`: the limit of a prior whose variance in these directions grows without bound.
Arrays are batched over their first axis; columns are coordinates that share one covariance.
"""

import numpy as np
from attrs import frozen

from semidp.publish.estimation.measurements import Floats
from semidp.publish.estimation.places import Index

_RANK = 1e-10
"""Eigenvalues below this part of the reference are zero: designs are sums of cells, variances
within 1e6 or so."""


@frozen(eq=False)
class Belief:
    """A batch of beliefs.

    Parameters
    ----------
    mean
        Shape (n, f, columns).
    spread
        Covariance, (n, f, f); or (1, f, f) where all share it.
    unknown
        Projector of the same shape, or None where everything is known.
    """

    mean: Floats
    spread: Floats
    unknown: Floats | None

    @classmethod
    def nothing(cls, nodes: int, size: int, columns: int) -> "Belief":
        """Return what is known before anything is measured."""
        mean = np.zeros((nodes, size, columns))
        spread = np.zeros((1, size, size))
        unknown = np.eye(size)[None]
        return cls(mean, spread, unknown)

    def select_cells(self, nodes: Index, cells: Index) -> "Belief":
        """Return the beliefs of some nodes about some cells; each node has a spread of its own."""
        both = np.ix_(nodes, cells, cells)
        mean = self.mean[np.ix_(nodes, cells)]
        unknown = None if self.unknown is None else self.unknown[both]
        return Belief(mean, self.spread[both], unknown)

    def condition_on_noisy(
        self, information: Floats, right_side: Floats, reference: Floats | None = None
    ) -> "Belief":
        """Return the belief after noisy measurements with ``information = Σ Q'Q/σ²`` and
        ``right_side = Σ Q'y/σ²``.

        Information that is small beside the `reference` (its own size unless given) is a rounding
        error.

        Without unknown directions ``V' = (I + V M)⁻¹ V`` and ``mean' = mean + V'(r - M mean)``, for
        singular V and M too. Unknown directions U are first taken from the measurements,
        ``D = (U M U)⁺``; the rest of the information, ``M - M D M``, is about k alone.
        """
        if self.unknown is None:
            spread = _posterior(self.spread, information)
            unknown = None
        else:
            # What the measurements see of the unknown directions, they alone say.
            seen = self.unknown @ information @ self.unknown
            if reference is None:
                reference = scale(information)
            inverse, covered = pseudo_inverse(seen, reference)
            left = information - information @ inverse @ information
            fixed = np.eye(information.shape[-1]) - inverse @ information
            inner = _posterior(self.spread, left)
            spread = symmetric(inverse + fixed @ inner @ transpose_matrices(fixed))
            unknown = _none_if_zero(self.unknown - covered)
        residual = right_side - information @ self.mean
        return Belief(self.mean + spread @ residual, spread, unknown)

    def condition_on_exact(self, design: Floats, values: Floats) -> tuple["Belief", Floats, Floats]:
        """Return the belief given ``design @ x = values`` exactly, by how much that could not be
        met, and the gain.

        It is the regression of x on the innovation, unknown directions first, then the spread.
        """
        innovation = values - design @ self.mean
        gain = self._gain(design)
        products = design @ design.T
        inverse, _ = pseudo_inverse(products, scale(products))
        identity = np.eye(design.shape[1])
        free = identity - design.T @ inverse @ design
        # Both the square and the projection keep exact directions at zero in floating point.
        unmet = free @ (identity - gain @ design)
        left = symmetric(unmet @ self.spread @ transpose_matrices(unmet))
        spread = _zero_exact_directions(left, scale(self.spread))
        unknown = None
        if self.unknown is not None:
            across = self.unknown @ design.T
            reached, _ = pseudo_inverse(design @ across, scale(products))
            unknown = _none_if_zero(self.unknown - across @ reached @ transpose_matrices(across))
        belief = Belief(self.mean + gain @ innovation, spread, unknown)
        return belief, values - design @ belief.mean, gain

    def _gain(self, design: Floats) -> Floats:
        across = self.spread @ design.T
        lengths = scale(design @ design.T)
        reference = lengths * scale(self.spread)
        if self.unknown is None:
            inverse, _ = pseudo_inverse(design @ across, reference)
            return np.asarray(across @ inverse)
        # Unknown directions take up all of the innovation that they can reach.
        free = self.unknown @ design.T
        free_inverse, covered = pseudo_inverse(design @ free, lengths)
        visible = np.eye(len(design)) - covered
        inverse, _ = pseudo_inverse(visible @ design @ across @ visible, reference)
        first = free @ free_inverse
        unseen = across - first @ design @ across
        return np.asarray(first + unseen @ inverse)


def scale(matrices: Floats) -> Floats:
    """Largest entry on the diagonal of each matrix, which tells a small eigenvalue from a rounding
    error.
    """
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    return np.asarray(diagonal.max(axis=-1, initial=0.0))


def pseudo_inverse(matrices: Floats, reference: Floats) -> tuple[Floats, Floats]:
    """Pseudo-inverses of positive semidefinite matrices, and projectors on their ranges.

    Eigenvalues far below the reference are zero.

    >>> inverse, covered = pseudo_inverse(np.array([[[2.0, 0.0], [0.0, 0.0]]]), np.ones(1))
    >>> inverse.tolist(), covered.tolist()
    ([[[0.5, 0.0], [0.0, 0.0]]], [[[1.0, 0.0], [0.0, 0.0]]])
    """
    if matrices.shape[-1] == 0:
        return matrices, matrices
    values, vectors = np.linalg.eigh(symmetric(matrices))
    kept = values > _RANK * reference[..., None]
    divisors = np.where(kept, values, 1.0)
    inverted = np.where(kept, 1 / divisors, 0.0)
    turned = transpose_matrices(vectors)
    inverse = (vectors * inverted[..., None, :]) @ turned
    covered = (vectors * kept[..., None, :]) @ turned
    return inverse, covered


def _posterior(spread: Floats, information: Floats) -> Floats:
    # Nothing can be learnt of what is exact already.
    if not spread.any():
        return np.broadcast_to(spread, np.broadcast_shapes(spread.shape, information.shape))
    size = spread.shape[-1]
    factor = np.eye(size) + spread @ information
    posterior: Floats = np.asarray(np.linalg.solve(factor, spread), dtype=float)
    return symmetric(posterior)


def _zero_exact_directions(spread: Floats, before: Floats) -> Floats:
    """Set to zero what is left of directions that are now exact."""
    least = 1e-13 * before[..., None, None]
    return np.where(np.abs(spread) > least, spread, 0.0)


def _none_if_zero(projector: Floats) -> Floats | None:
    # The trace of a projector is the number of its directions.
    directions = np.trace(projector, axis1=-2, axis2=-1)
    if (directions < 0.5).all():
        return None
    # Nodes without an unknown direction keep rounding errors otherwise.
    none_unknown = (directions < 0.5)[..., None, None]
    return np.where(none_unknown, 0.0, symmetric(projector))


def symmetric(matrices: Floats) -> Floats:
    """Mean of matrices and their transposes."""
    return (matrices + transpose_matrices(matrices)) / 2


def transpose_matrices(matrices: Floats) -> Floats:
    """Transposes of a batch of matrices."""
    return np.swapaxes(matrices, -1, -2)

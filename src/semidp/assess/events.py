"""The guarantee of a training run, or of any dp-accounting event, if several records change
together; events as JSON.

DP-SGD is a composition of Poisson-sampled Gaussian mechanisms. For a group of records its losses
are known exactly (mixtures of Gaussians), which beats applying the one-record curve repeatedly.
Curves live in `tradeoff`. An event in a file is an object with the name of its class and its
fields, as `dp_accounting.DpEvent.to_named_tuple` names them.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import scipy
from attrs import frozen

from semidp.errors import InputError, Refused
from semidp.promise.ball_arithmetic import RealBall, ball, round_ball_up, sharp
from semidp.promise.exact import exact
from semidp.promise.guarantee import Guarantee
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets
from semidp.promise.tradeoff.composition import (
    Losses,
    compose,
    compute_loss_reach,
    convolve_all,
    discretize_losses,
)
from semidp.promise.tradeoff.function import ROUNDOFF, Floats, Tradeoff, group_size
from semidp.promise.tradeoff.polygons import from_profile
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian, Laplace

_CELLS = 1 << 19  # of the grid of privacy losses of one mechanism, at most
_POINTS = 400  # pairs (epsilon, delta) that the returned curve goes through
_SMALLEST_DELTA = 1e-15
_TAILS = 1e-12  # of all repetitions together, moved to an infinite loss
_FARTHEST = 300.0  # the largest epsilon looked at
_UPSTREAM = 64 * ROUNDOFF  # added to a delta of dp-accounting, whose rounding is not bounded
_FEW = 64  # parts that are kept as they are, with all that is proven about each


def dp_sgd(noise_multiplier: float, sample_rate: float, steps: int) -> Any:
    """Return DP-SGD as a dp-accounting event, from the settings of Opacus or JAX-privacy.

    Parameters
    ----------
    noise_multiplier
        The standard deviation of the noise, in units of the clipping norm.
    sample_rate
        The probability with which a record enters a batch (Poisson sampling).
    steps
        The number of batches.

    Examples
    --------
    >>> dp_sgd(1.1, 0.01, 500).count
    500
    """
    from dp_accounting import dp_event

    if not noise_multiplier > 0 or not 0 <= sample_rate <= 1 or steps < 0:
        raise InputError(
            "DP-SGD needs a noise multiplier above 0, a sample rate between 0 and 1, and 0 or more"
            " steps"
        )
    step = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise_multiplier))
    return dp_event.SelfComposedDpEvent(step, steps)


def event_guarantee(event: Any, dataspace: Datasets, adjacency: Adjacency) -> Guarantee:
    """Return the guarantee of a dp-accounting event next to exact statistics: (D_t, A_a, f).

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> training = dp_sgd(noise_multiplier=2.0, sample_rate=1.0, steps=4)
    >>> event_guarantee(
    ...     training, Dataspace.from_description("enrolment by school"), Ball(2)
    ... ).tradeoff
    Gaussian(mu_squared=Fraction(16, 1))
    """
    if adjacency.a == 0:
        return Guarantee(dataspace, adjacency, Gaussian(Fraction(0)))
    return Guarantee(dataspace, adjacency, event_tradeoff(event, adjacency.a))


def event_tradeoff(event: Any, a: int, relation: Any = None) -> Tradeoff:
    """Return the tradeoff function of a dp-accounting event for groups of `a` records.

    Each part is bounded for the whole group if that is known, and the parts are composed:

    - Gaussian mechanisms, Poisson-sampled or not: by the group's own losses, see below.
    - Laplace noise, whole-numbered or not, and Poisson-sampled Laplace noise: see `_laplace`,
      `_discrete_laplace` and `_sampled_laplace`. Replacing a record moves the sum by up to two of
      its norms, as with Gaussian noise.
    - Randomized response, which is about replaced records by nature, and zCDP: by their curves.
    - Any other part: by its one-record curve, applied `a` times (`functional_tradeoff`). This
      includes mixtures of Gaussians, which describe one record and not the joint sampling of
      several.

    *Why mixtures suffice.* Let a records contribute vectors v_i of length at most c to a batch,
    each with probability q, and v_i' in the other dataset. With the noise's density taken out, the
    two outputs are ``Σ_S w_S exp(<v_S, x> - |v_S|²/2)`` and the same with v', S being who was
    sampled. The hockey-stick divergence is the mean of a convex function of such a sum, so by
    Kahane's inequality (kahane1985chaos) it grows with ``<v_S, v_T>`` and ``<v_S', v_T'>`` and
    falls with ``<v_S, v_T'>``. All are extreme at once where the v_i are one vector of length c and
    the v_i' its negative: two mixtures of Gaussians on a line, at ``±kc`` with binomial weights.
    If records are removed and not replaced, v' = 0 (ganesh2024tight).

    Parameters
    ----------
    event
        A `dp_accounting.DpEvent`; `dp_sgd` builds the usual one.
    a
        How many records change together.
    relation
        The neighboring relation of one record, as dp-accounting names it. ``REPLACE_ONE``, the
        default, is the relation of every guarantee here; ``ADD_OR_REMOVE_ONE`` is what Opacus and
        JAX-privacy report, for comparison.

    Examples
    --------
    >>> from dp_accounting import NeighboringRelation
    >>> training = dp_sgd(noise_multiplier=4.0, sample_rate=0.1, steps=4)
    >>> removed = event_tradeoff(training, 2, NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> removed.epsilon("1e-5") < event_tradeoff(training, 2).epsilon("1e-5")
    True
    """
    from dp_accounting import NeighboringRelation, dp_event

    size = group_size(a)
    relation = _relation(event, relation)
    replaced = relation is NeighboringRelation.REPLACE_ONE
    leaves = [leaf for leaf, _ in _leaves(event, 1)]
    has_mixture = any(isinstance(leaf, dp_event.MixtureOfGaussiansDpEvent) for leaf in leaves)
    if size > 1 and has_mixture:
        # The event is about one record: nothing says that the random centres of several are
        # independent.
        return event_tradeoff(event, 1, relation).group(size)
    # of the Gaussian parts, and of those known by their zCDP
    square, rho = Fraction(0), Fraction(0)
    mixtures: list[tuple[Mixture, int]] = []
    curves: list[tuple[Tradeoff, int]] = []
    for leaf, count in _leaves(event, 1):
        inverse = _precision(leaf)
        mixture = Mixture.from_event(leaf, size, replaced)
        curve = _curve(leaf, size, relation)
        if not count:
            continue
        if isinstance(leaf, dp_event.ZCDpEvent) and leaf.xi == 0:
            rho += exact(float(leaf.rho)) * count
        elif inverse is not None:
            # A replaced record leaves and another joins, so the sum moves by two clipping
            # norms.
            norms = 2 * size if replaced else size
            square += inverse * count * norms**2
        elif mixture is not None:
            mixtures.append((mixture, count))
        elif curve is not None:
            curves.append((curve, count))
        else:
            repeated = dp_event.SelfComposedDpEvent(leaf, count)
            curves.append((functional_tradeoff(repeated, size, relation), 1))
    composed = _compose_all(mixtures, [*curves, (Gaussian(square), 1)])
    # Grouping multiplies every rho by a², so grouping their sum loses nothing.
    return composed.compose(ZCDP(rho).group(size)) if rho else composed


def functional_tradeoff(event: Any, a: int, relation: Any = None) -> Tradeoff:
    """Return the one-record curve of a dp-accounting event, applied `a` times: ``f∘…∘f``.

    The curve comes from dp-accounting's privacy-loss distributions, or from its Rényi accountant
    if those do not support the event. Its sums of floats carry no bound on their rounding (tiny
    deltas come out negative), so a margin is added to each.

    >>> functional_tradeoff(dp_sgd(4.0, 0.1, 4), 1).epsilon("1e-5") > 0
    True
    """
    from dp_accounting import dp_event
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

    size = group_size(a)
    neighbours = _relation(event, relation)
    losses = PLDAccountant(neighbours)
    if losses.supports(event):
        for leaf, count in _leaves(event, 1):
            # dp-accounting 0.6 counts a repeated randomised response once: it is given each of
            # them.
            alone = isinstance(leaf, dp_event.RandomizedResponseDpEvent)
            for _ in range(count if alone else min(count, 1)):
                losses.compose(leaf, 1 if alone else count)

        def deltas(epsilons: Floats) -> Floats:
            values = np.array([losses.get_delta(float(e)) for e in epsilons])
            return np.clip(values + _UPSTREAM, 0.0, 1.0)

        return _interpolate_deltas(deltas).group(size)
    renyi = RdpAccountant(neighboring_relation=neighbours)
    if renyi.supports(event):
        renyi.compose(event)
        # An order without a finite bound says nothing, and the other orders still hold.
        kept = np.isfinite(renyi.rdp)
        if not kept.any():
            raise Refused("the event has a part without any privacy: there is nothing to guarantee")
        orders = [exact(float(order)) for order in renyi.orders[kept]]
        divergences = np.maximum(renyi.rdp[kept], 0.0).tolist()
        bounds = [
            (order, Fraction(value)) for order, value in zip(orders, divergences, strict=True)
        ]

        def renyi_deltas(epsilons: Floats) -> Floats:
            return np.array([renyi_delta(bounds, Fraction(float(e))) for e in epsilons])

        return _interpolate_deltas(renyi_deltas).group(size)
    kinds = dict.fromkeys(type(leaf).__name__ for leaf, _ in _leaves(event, 1))
    names = ", ".join(kinds)
    raise Refused(
        f"dp-accounting knows no bound for this event ({names}) under {neighbours.name}:"
        " state its guarantee as a tradeoff function, and use its group()"
    )


def renyi_delta(bounds: Sequence[tuple[Fraction, Fraction]], epsilon: Fraction) -> float:
    """Return the smallest delta of (epsilon, delta)-DP from bounds of the Rényi divergence at some
    orders above 1, rounded up (Canonne and others 2020).

    >>> half = Fraction(1, 2)  # zCDP with rho = 1/2
    >>> round(renyi_delta([(order, half * order) for order in (Fraction(2), Fraction(4))], half), 3)
    0.412
    """
    deltas = [1.0]
    for order, value in bounds:
        deltas.append(round_ball_up(sharp(functools.partial(_renyi_bound, order, value, epsilon))))
    return min(deltas)


def _renyi_bound(order: Fraction, value: Fraction, epsilon: Fraction) -> RealBall:
    correction = ball(1 - 1 / order).log()
    exponent = ball(order - 1) * (ball(value - epsilon) + correction)
    return exponent.exp() / ball(order)


@frozen
class Mixture:
    """Gaussian noise of unit variance around a random center: the worst pair of outputs for a group
    of records.

    Under the one dataset the center is ``centres[k]`` with probability ``weights[k]``, under the
    other its negative if records are replaced, and 0 if they are removed.

    Examples
    --------
    >>> from dp_accounting import dp_event
    >>> sampled = dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(2.0))
    >>> Mixture.from_event(sampled, 2, replaced=True)
    Mixture(centres=(0.0, 0.5..., 1.0...), weights=(0.25, 0.5, 0.25), replaced=True)
    """

    centres: tuple[float, ...]
    weights: tuple[float, ...]
    replaced: bool

    @classmethod
    def from_event(cls, event: Any, a: int, replaced: bool) -> "Mixture | None":
        """Return the mixture of an event for groups of `a` records, or None if it is not one."""
        from dp_accounting import dp_event

        one: dict[float, float] = {}
        if isinstance(event, dp_event.MixtureOfGaussiansDpEvent):
            for centre, weight in zip(event.sensitivities, event.sampling_probs, strict=True):
                place = _round_center_up(float(centre) / float(event.standard_deviation))
                one[place] = one.get(place, 0.0) + float(weight)
        elif isinstance(event, dp_event.PoissonSampledDpEvent):
            inverse, rate = _precision(event.event), float(event.sampling_probability)
            if inverse is None:
                return None
            one = {0.0: 1 - rate, _round_center_up(math.sqrt(inverse)): rate}
        else:
            return None
        total = functools.reduce(_add_centers, itertools.repeat(one, a - 1), one)
        kept = {centre: weight for centre, weight in total.items() if weight > 0}
        centres = tuple(sorted(kept))
        weights = tuple(kept[centre] for centre in centres)
        return cls(centres, weights, replaced)

    @property
    def is_trivial(self) -> bool:
        """Whether the center is always 0: the output does not depend on the records."""
        return self.centres == (0.0,)

    def losses(self, step: float, back: bool) -> Losses:
        """Return the distribution of the privacy loss on a grid, rounded towards more loss.

        Positive losses follow from the divergence of the first output from the second, negative
        ones from that of the second from the first, and what is left has the loss 0. `back`
        exchanges the two.
        """
        forwards = functools.partial(self.deltas, back=back)
        backwards = functools.partial(self.deltas, back=not back)
        one = Losses.from_deltas(forwards, step, self.reach)
        other = Losses.from_deltas(backwards, step, self.reach)
        top = -one.lowest
        upper = one.masses[top + 1 :]
        lower = other.masses[:top]
        outside = 1 - one.infinite - float(upper.sum())
        middle = max(outside - float(lower.sum()), 0.0)
        middle += 64 * ROUNDOFF  # pairwise sums of numbers below 1
        masses = np.concatenate([lower, [middle], upper])
        return Losses(step, one.lowest, masses, one.infinite)

    def deltas(self, epsilons: Floats, back: bool) -> Floats:
        """Return the hockey-stick divergence at each epsilon >= 0 of the first output from the
        second, or `back`.

        The loss L increases in the output x, so the best test at epsilon asks whether
        ``L(x) > epsilon``, or for the other direction whether ``L(x) < -epsilon``.
        """
        if back:
            x, sign = self._where(-epsilons), -1.0
        else:
            x, sign = -self._where(epsilons), 1.0
        first = self._compute_lower_tail(x, sign)
        if self.replaced:
            second = self._compute_lower_tail(x, -sign)
        else:
            second = np.asarray(scipy.special.ndtr(x))
        gain, cost = (second, first) if back else (first, second)
        with np.errstate(over="ignore", invalid="ignore"):
            price = np.exp(epsilons) * cost
        price = np.where(cost > 0, price, 0.0)
        slack = 32 * ROUNDOFF * (gain + price)  # of two tail probabilities and an exponential
        deltas: Floats = np.clip(gain - price + slack, 0.0, 1.0)
        return np.where(gain > 0, deltas, 0.0)

    @property
    def reach(self) -> float:
        """A loss that is exceeded with negligible probability, in either direction."""
        far = max(self.centres) + 9.5
        return float(self._loss(np.array([far]))[0])

    @property
    def spread(self) -> float:
        """Roughly the standard deviation of the loss."""
        products = []
        for centre, weight in zip(self.centres, self.weights, strict=True):
            products.append(centre * weight)
        return sum(products) * (2 if self.replaced else 1)

    def _log_moment(self, x: Floats) -> Floats:
        """log Σ w_k exp(c_k x - c_k²/2)."""
        c = np.array(self.centres)
        exponents = np.multiply.outer(x, c) - c * c / 2
        result: Floats = scipy.special.logsumexp(exponents, axis=-1, b=np.array(self.weights))
        return result

    def _mean_centre(self, x: Floats) -> Floats:
        """The derivative of `_log_moment`."""
        c = np.array(self.centres)
        exponents = np.multiply.outer(x, c) - c * c / 2
        terms = exponents + np.log(np.array(self.weights))
        terms = np.exp(terms - terms.max(axis=-1, keepdims=True))
        result: Floats = (terms @ c) / terms.sum(axis=-1)
        return result

    def _loss(self, x: Floats) -> Floats:
        if not self.replaced:
            return self._log_moment(x)
        return self._log_moment(x) - self._log_moment(-x)

    def _where(self, losses: Floats) -> Floats:
        """Return the output at which the loss has given values: interpolation, then Newton's
        method; ±inf beyond.
        """
        farthest = max(self.centres) + 12.0 + 40.0
        grid = np.linspace(-farthest, farthest, 1 << 14)
        grid_losses = self._loss(grid)
        x = np.interp(losses, grid_losses, grid)
        for _ in range(4):
            slope = self._mean_centre(x)
            if self.replaced:
                slope = slope + self._mean_centre(-x)
            step = (losses - self._loss(x)) / np.maximum(slope, 1e-12)
            x = x + np.clip(step, -0.5, 0.5)
        x = np.where(losses > grid_losses[-1], np.inf, x)
        return np.where(losses < grid_losses[0], -np.inf, x)

    def _compute_lower_tail(self, x: Floats, sign: float) -> Floats:
        """Σ w_k Φ(x + sign c_k): how probable an output below x is, around the centres (sign -1) or
        their negatives.
        """
        c = np.array(self.centres)
        below = scipy.special.log_ndtr(np.add.outer(x, sign * c))
        log_probability = scipy.special.logsumexp(below, axis=-1, b=np.array(self.weights))
        return np.asarray(np.exp(log_probability))


def _curve(leaf: Any, a: int, relation: Any) -> Tradeoff | None:
    """Return the curve of an event for groups of `a` records where it has a closed form, or
    None.
    """
    from dp_accounting import NeighboringRelation, dp_event

    replaced = relation is NeighboringRelation.REPLACE_ONE
    norms = 2 * a if replaced else a  # the norms of a record by which a sum may move
    if isinstance(leaf, dp_event.LaplaceDpEvent) and leaf.noise_multiplier > 0:
        return _laplace(exact(float(leaf.noise_multiplier)), norms)
    if isinstance(leaf, dp_event.DiscreteLaplaceDpEvent) and leaf.noise_parameter > 0:
        moved = int(leaf.sensitivity) * norms
        return _discrete_laplace(exact(float(leaf.noise_parameter)), moved)
    if isinstance(leaf, dp_event.PoissonSampledDpEvent) and isinstance(
        leaf.event, dp_event.LaplaceDpEvent
    ):
        rate, noise = float(leaf.sampling_probability), leaf.event.noise_multiplier
        if rate == 1:
            return _curve(leaf.event, a, relation)
        if replaced and noise > 0:
            return _sampled_laplace(exact(float(noise)), rate, a)
    if isinstance(leaf, dp_event.RandomizedResponseDpEvent) and relation in (
        NeighboringRelation.REPLACE_ONE,
        NeighboringRelation.REPLACE_SPECIAL,
    ):
        response = _randomized_response(exact(float(leaf.noise_parameter)), int(leaf.num_buckets))
        return None if response is None else response.group(a)
    return None


def _laplace(noise: Fraction, norms: int) -> Laplace:
    """Return the curve of Laplace noise of scale `noise` on a sum that moves by at most `norms` in
    the l1 norm.

    *Why one coordinate is the worst.* A move by d has
    ``delta(eps) = 1 - min(1, e^{(eps-d)/2}, e^eps)``. For two coordinates with d1 >= d2, s = d1 +
    d2 and eps >= 0, delta is ``1 - E min(1, e^{(eps-L-d1)/2})`` over the loss L of the second. With
    c = eps - d1: if c < -d2, the minimum is the second term throughout, and its mean is at least
    ``e^{(eps-s)/2}`` since L <= d2. If not, L = d2 (probability 1/2) adds ``e^{(eps-s)/2}/2``, and
    L <= c, of probability ``e^{(c-d2)/2}/2``, adds as much again. Either way delta is at most
    ``1 - e^{(eps-s)/2}``.

    >>> _laplace(Fraction(2), 4)
    Laplace(epsilon0=Fraction(2, 1))
    """
    return Laplace(norms / noise)


def _discrete_laplace(rate: Fraction, moved: int) -> Tradeoff:
    """Return the curve of noise with probabilities in proportion to ``e^{-rate |x|}`` on integers
    that move by `moved`.

    At ``eps = rate (moved - 2x)`` for whole x the delta is ``1 - e^{-rate x}``, and it is linear in
    e^eps between: the curve of `_laplace` with chords. One coordinate is the worst, by the same
    proof: losses of several lie on the same grid.

    >>> _discrete_laplace(Fraction(1), 1).delta(0) > math.tanh(1 / 2) - 1e-12
    True
    """
    half = moved // 2
    # At most so many corners; chords between the others lie above the curve of delta.
    spaced = np.linspace(0, half, min(half, _POINTS) + 1)
    places = np.unique(spaced.round().astype(int)).tolist()
    points = []
    for x in places:
        points.append((rate * (moved - 2 * x), _one_less_power(rate * x)))
    return from_profile(points)


def _sampled_laplace(noise: Fraction, rate: float, a: int) -> Tradeoff:
    """Return a curve for Laplace noise on a Poisson sample, `a` records of which are replaced.

    With probability ``η = 1 - (1 - rate)^a`` some of the a records are sampled, k of them with
    probability w_k, and move the sum by k norms from where it is without them and by 2k from the
    other dataset's. So at ``e^eps' = 1 + η (e^eps - 1)`` the delta is at most
    ``Σ w_k ((1 - β) delta_k(eps) + β delta_2k(eps))``, β = e^(eps'-eps), by the advanced joint
    convexity of the hockey-stick divergence (balle2018amplification, Theorem 2). And no loss
    exceeds ``log Σ w_k e^{k/noise} - log Σ w_k e^{-k/noise}``, both sums from k = 0: densities are
    that close to those of the noise around the sum of the others.

    >>> _sampled_laplace(Fraction(1), 0.1, 1).epsilon("1e-3") < 1
    True
    """
    if rate == 0:
        return Gaussian(Fraction(0))
    weights = []
    for k in range(1, a + 1):
        sampled = math.comb(a, k) * rate**k
        weights.append(sampled * (1 - rate) ** (a - k))
    # A larger chance gives a smaller inner epsilon and a larger delta: up is the safe side.
    chance = -math.expm1(a * math.log1p(-rate))
    some = chance * (1 + 8 * ROUNDOFF)

    def deltas(epsilons: Floats) -> Floats:
        amplified = np.log1p(np.expm1(epsilons) / some)
        inner = amplified * (1 - 8 * ROUNDOFF)
        share = np.exp(epsilons - inner)
        total = np.zeros(epsilons.shape)
        for k, weight in enumerate(weights, 1):
            near = _laplace(noise, k)._deltas(inner)
            far = _laplace(noise, 2 * k)._deltas(inner)
            total += weight * (near + np.minimum(share, 1.0) * (far - near))
        return np.clip(total * (1 + 64 * ROUNDOFF), 0.0, 1.0)

    counts = np.arange(a + 1) / float(noise)
    logs = np.log([(1 - rate) ** a, *weights])
    logsumexp = scipy.special.logsumexp
    largest = logsumexp(logs + counts) - logsumexp(logs - counts)
    largest_up = Fraction(float(largest) * (1 + 64 * ROUNDOFF))
    return _interpolate_deltas(deltas, [(largest_up, Fraction(0))])


def _randomized_response(noise: Fraction, buckets: int) -> Tradeoff | None:
    """Return the curve of a response that is redrawn from all buckets with probability `noise`;
    None without noise.

    >>> _randomized_response(Fraction(1, 2), 2).delta(0)
    0.5
    """
    if buckets == 1 or noise == 1:
        return Gaussian(Fraction(0))
    if noise == 0:
        return None
    ratio = 1 + (1 - noise) * buckets / noise
    # the largest loss is the logarithm of the ratio, rounded up
    largest = Fraction(round_ball_up(sharp(lambda: ball(ratio).log())))
    return from_profile([(largest, 0), (0, 1 - noise)])


def _one_less_power(x: Fraction) -> Fraction:
    """Return ``1 - e^-x``, rounded up."""
    if not x:
        return Fraction(0)
    rounded_up = round_ball_up(sharp(lambda: -ball(-x).expm1()))
    return Fraction(min(rounded_up, 1.0))


def _compose_all(
    parts: Sequence[tuple[Mixture, int]], curves: Sequence[tuple[Tradeoff, int]]
) -> Tradeoff:
    """Return the curve of all mixtures and of all curves together, each as often as it says."""
    mixed = [(mixture, count) for mixture, count in parts if count and not mixture.is_trivial]
    kept = [(curve, count) for curve, count in curves if count and not curve.is_trivial]
    # A grid of losses would forget what else is known about a curve, such as its exact mu.
    if not mixed and sum(count for _, count in kept) <= _FEW:
        return compose(*(curve for curve, count in kept for _ in range(count)))
    reaches = [mixture.reach for mixture, _ in mixed]
    spreads = [mixture.spread for mixture, _ in mixed]
    for curve, _ in kept:
        least = compute_loss_reach(curve)
        reaches.append(least)
        spreads.append(max(2.6 * curve.delta(0), least / 9))
    finest = min(spreads) / 64
    # Fine enough for the narrowest part, unless the grid of the widest would become too long.
    exponent = math.floor(math.log2(finest))
    coarsest_needed = math.ceil(math.log2(max(reaches) / _CELLS))
    step = 2.0 ** max(exponent, coarsest_needed)
    alike = [_repeat_losses(discretize_losses(curve, step), count) for curve, count in kept]
    # Where records are replaced, the two directions mirror each other. Else the worse one counts.
    is_mirrored = all(mixture.replaced for mixture, _ in mixed)
    powers = []
    for back in (False,) if is_mirrored else (False, True):
        losses = [_repeat_losses(mixture.losses(step, back), count) for mixture, count in mixed]
        powers.append(convolve_all([*losses, *alike]).power_curve())

    def deltas(epsilons: Floats) -> Floats:
        # A smaller factor gives a larger delta, so it is rounded down.
        factors = np.exp(epsilons) * (1 - 8 * ROUNDOFF)
        best = []
        for factor in factors:
            of_directions = [float(np.max(power - factor * size)) for size, power in powers]
            best.append(max(of_directions))
        raised = np.array(best) * (1 + 8 * ROUNDOFF) + 4 * ROUNDOFF
        return np.clip(raised, 0.0, 1.0)

    if mixed:
        return _interpolate_deltas(deltas)
    # Pure parts have a largest loss, which adds up.
    total = Fraction(0)
    for curve, count in kept:
        epsilon = curve.implied_epsilon()
        if epsilon is None:
            return _interpolate_deltas(deltas)
        total += epsilon * count
    return _interpolate_deltas(deltas, [(total, Fraction(0))])


def _interpolate_deltas(deltas: Any, also: Sequence[tuple[Fraction, Fraction]] = ()) -> Tradeoff:
    """Return the curve through delta(epsilon) at many epsilons, the last where delta is tiny or
    stays as it is.

    `also` holds points that are known besides.
    """
    reach = 1.0
    # Where something is revealed for certain with some probability, delta never falls below that.
    floor = float(deltas(np.array([_FARTHEST]))[0])
    if floor >= 1:
        raise Refused("the event has a part without any privacy: there is nothing to guarantee")
    target = max(_SMALLEST_DELTA, floor * (1 + 1e-6))
    while reach < _FARTHEST and float(deltas(np.array([reach]))[0]) > target:
        reach *= 1.25
    epsilons = np.linspace(0.0, reach, _POINTS)
    # Delta cannot rise with epsilon, so a smaller bound found before still holds.
    values = np.minimum.accumulate(np.asarray(deltas(epsilons), dtype=np.float64))
    points = []
    for epsilon, delta in zip(epsilons.tolist(), values.tolist(), strict=True):
        points.append((Fraction(epsilon), Fraction(delta)))
    return from_profile([*points, *also])


def _repeat_losses(losses: Losses, count: int) -> Losses:
    """Return the losses of `count` repetitions, by squaring; tails that matter less than rounding
    become infinite.
    """
    total: Losses | None = None
    allowed = _TAILS / count
    while count:
        if count % 2:
            total = losses if total is None else total.convolve(losses).trim_tails(allowed)
        count //= 2
        if count:
            twice = losses.convolve(losses)
            # Losses of twice as many repetitions are used half as often: twice as much may be cut.
            allowed *= 2
            grown = twice.infinite - 2 * losses.infinite
            losses = twice.trim_tails(max(allowed, grown))
    assert total is not None, "there is at least one repetition"
    return total


def _add_centers(one: dict[float, float], other: dict[float, float]) -> dict[float, float]:
    """Return the distribution of the sum of two independent centres."""
    total: dict[float, float] = {}
    for x, p in one.items():
        for y, q in other.items():
            centre = x + y
            total[centre] = total.get(centre, 0.0) + p * q
    return total


def _leaves(event: Any, count: int) -> Iterator[tuple[Any, int]]:
    """Yield the parts of a composed event and how often each is repeated."""
    from dp_accounting import dp_event

    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_event.ComposedDpEvent):
        yield from itertools.chain.from_iterable(_leaves(part, count) for part in event.events)
    elif not isinstance(event, dp_event.NoOpDpEvent):
        yield event, count


def _precision(event: Any) -> Fraction | None:
    """Return 1/σ² of one Gaussian mechanism, or of several on the same sample, exactly; None for
    any other event.
    """
    from dp_accounting import dp_event

    if isinstance(event, dp_event.PoissonSampledDpEvent) and event.sampling_probability == 1:
        return _precision(event.event)
    parts = list(_leaves(event, 1))
    if not parts:
        return None
    for leaf, _ in parts:
        if not isinstance(leaf, dp_event.GaussianDpEvent) or not leaf.noise_multiplier > 0:
            return None
    precision = Fraction(0)
    for leaf, count in parts:
        precision += count / exact(float(leaf.noise_multiplier)) ** 2
    return precision


def _round_center_up(centre: float) -> float:
    """A center computed with a few roundings, moved away from 0 by as many."""
    # Centers farther from 0 are easier to tell apart, so this errs on the safe side.
    return centre * (1 + 4 * ROUNDOFF)


def _relation(event: Any, relation: Any) -> Any:
    """Return the relation, replacement of a record unless given; refuse what is not an event."""
    from dp_accounting import NeighboringRelation, dp_event

    if not isinstance(event, dp_event.DpEvent):
        raise InputError(
            "give a dp_accounting.DpEvent; dp_sgd(noise_multiplier, sample_rate, steps) builds one"
        )
    return relation or NeighboringRelation.REPLACE_ONE


_DEEPEST = 30
_NAMES = ("class_name", "module_name")  # of an event in a file, besides its fields


def event_to_json(event: Any) -> dict[str, Any]:
    """Return a dp-accounting event as plain values.

    >>> from semidp.assess.events import dp_sgd
    >>> event_to_json(dp_sgd(1.1, 0.01, 500))["count"]
    500
    """
    import attr
    from dp_accounting import dp_event

    if not isinstance(event, dp_event.DpEvent):
        raise InputError(
            "give a dp_accounting.DpEvent; dp_sgd(noise_multiplier, sample_rate, steps) builds one"
        )

    def plain(value: Any) -> Any:
        if isinstance(value, dp_event.DpEvent):
            return event_to_json(value)
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value

    document: dict[str, Any] = {"class_name": type(event).__name__}
    for field in attr.fields(type(event)):
        document[field.name] = plain(getattr(event, field.name))
    return document


def event_from_json(value: Any) -> Any:
    """Read what `event_to_json` wrote.

    >>> event_from_json({"class_name": "GaussianDpEvent", "noise_multiplier": 1.1})
    GaussianDpEvent(noise_multiplier=1.1)
    >>> event_from_json({"class_name": "GaussianDpEvent", "sigma": 1.1})
    Traceback (most recent call last):
    semidp.errors.InputError: a GaussianDpEvent has the fields noise_multiplier, not sigma
    """
    return _read(value, 0)


def _read(value: Any, depth: int) -> Any:
    import attr
    from dp_accounting import dp_event

    if depth > _DEEPEST:
        raise InputError(f"an event is composed at most {_DEEPEST} deep")
    if isinstance(value, list):
        return [_read(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError("the fields of an event are numbers, lists and events")
        return value
    name = value.get("class_name")
    # The file names the class, so nothing but an event may be built from it.
    kind: Any = getattr(dp_event, name, None) if isinstance(name, str) else None
    is_event = isinstance(kind, type) and issubclass(kind, dp_event.DpEvent)
    if not is_event or kind is dp_event.DpEvent:
        raise InputError(
            'an event has the class_name of a dp-accounting event, as {"class_name":'
            ' "GaussianDpEvent", "noise_multiplier": 2} does'
        )
    legal = [field.name for field in attr.fields(kind)]
    values = {str(key): item for key, item in value.items() if key not in _NAMES}
    unknown = sorted({*values} - {*legal})
    legal_names = ", ".join(legal)
    if unknown:
        raise InputError(f"a {name} has the fields {legal_names}, not {', '.join(unknown)}")
    fields = {key: _read(item, depth + 1) for key, item in values.items()}
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        raise InputError(
            f"a {name} needs the fields {legal_names}, with values that it allows"
        ) from None

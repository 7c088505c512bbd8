"""The mechanism of a product of tables: noise on residuals, made exact and certified to stay within
the budget.

The measurement is one vector with one guarantee. `publish` decides how much noise each residual
gets, and computes the tables from it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import plain, positive, round_up
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.additive import mu_within, rho_within
from semidp.promise.mechanisms.mechanism import Mechanism, cell_weights, check_scale, root_up
from semidp.promise.noise.distributions import DiscreteGaussian, RoundedGaussian, sample_each
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import View
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

# σ² is kept to so many significant bits, rounded up: residuals that are alike share a sampler
_BITS = 24
_DRAWS_A_TABLE = 64  # times σ: fewer draws than that are not worth a table of their own

ResidualLaw = DiscreteGaussian | RoundedGaussian

LAWS: dict[str, type[ResidualLaw]] = {"discrete": DiscreteGaussian, "rounded": RoundedGaussian}


def law_within(budget: Budget) -> tuple[str, Fraction]:
    """Return the noise distribution on residuals for a budget, and the largest cost of a move: 2ρ
    or μ².

    >>> law_within(Budget.zcdp("1/2")), law_within(Budget.gdp(2))
    (('discrete', Fraction(1, 1)), ('rounded', Fraction(4, 1)))
    """
    if budget.kind == "zcdp":
        return "discrete", 2 * rho_within(budget)
    return "rounded", mu_within(budget) ** 2


def residual_noise(
    law: str, sigma2: Fraction, scales: NDArray[np.int64], randomness: Randomness
) -> NDArray[np.int64]:
    """Draw the noise of one residual: a whole number for each entry, of variance ``scale²·σ²``
    before rounding.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> residual_noise(
    ...     "discrete", Fraction(4), np.array([[1, 2], [1, 2]]), SeededRandomness(1)
    ... ).shape
    (2, 2)
    """
    distinct, which = different_scales(scales)
    laws = [LAWS[law](sigma2 * scale**2) for scale in distinct]
    return draws_of_laws(laws, which.ravel(), 1, randomness).reshape(scales.shape)


def different_scales(scales: NDArray[np.int64]) -> tuple[list[int], NDArray[np.intp]]:
    """Return the distinct scales, and for each entry the number of its scale. Mostly there is one,
    and nothing is sorted.
    """
    if scales.size and (scales == scales.flat[0]).all():
        only = int(scales.flat[0])
        return [only], np.zeros(scales.shape, dtype=np.intp)
    distinct, which = np.unique(scales, return_inverse=True)
    return distinct.tolist(), which


def draws_of_laws(
    laws: Sequence[ResidualLaw], which: NDArray[np.intp], count: int, randomness: Randomness
) -> NDArray[np.int64]:
    """Draw each entry from the law with the number in `which`, for many measurements at once. Laws
    with few draws are drawn together.
    """
    result = np.zeros((count, len(which)), dtype=np.int64)
    order = np.arange(len(which))
    if len(laws) > 1:
        order = np.argsort(which, kind="stable")
    numbers, firsts = np.unique(which[order], return_index=True)
    entries = np.split(order, firsts[1:])
    rare, rare_entries = [], []
    for number, of_law in zip(numbers.tolist(), entries, strict=False):  # no entries: one part
        sampler = laws[number]
        draws = count * of_law.size
        # A table of the law pays for itself from some draws on; with fewer all such laws are drawn
        # together.
        is_rare = draws**2 < _DRAWS_A_TABLE**2 * sampler.sigma2
        if sampler.sigma2 >= 1 and is_rare:
            rare.append(sampler)
            rare_entries.append(of_law)
        else:
            result[:, of_law] = sampler.sample((count, of_law.size), randomness)
    if rare:
        sizes = [of_law.size for of_law in rare_entries]
        places = np.repeat(np.arange(len(rare)), sizes)
        drawn = sample_each(rare, np.tile(places, count), randomness)
        places_of_rare = np.concatenate(rare_entries)
        result[:, places_of_rare] = drawn.reshape(count, -1)
    return result


@frozen(slots=False, eq=False)
class ResidualNoise(Mechanism):
    """Gaussian noise on the residuals of a product of tables: discrete for zCDP, rounded for GDP
    and (ε, δ).

    A move m costs ``Σ_d |H_d M_d m|²/σ_d²``, which is at most μ² (GDP) or 2ρ (zCDP) for every move
    between adjacent datasets. Residuals are measured times their scale, in whole numbers, so
    the noise in an entry has variance scale²·σ_d².

    Parameters
    ----------
    space
        The residuals.
    sigma2
        σ² of each measured residual, exact.
    precision
        The largest cost of a move.
    law
        ``discrete`` or ``rounded``.
    saved
        The share of the noise's variance that the joint cost of all residuals saved against the sum
        of their costs.

    Examples
    --------
    >>> from semidp.promise.sensitivity.products import product_space
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> both, table = two_way()
    >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
    >>> mechanism = ResidualNoise.calibrate(space, Budget.gdp(1))
    >>> (
    ...     {view: round(float(square), 4) for view, square in mechanism.sigma2.items()},
    ...     mechanism.tradeoff,
    ... )
    ({(1, 1): 4.0}, Gaussian(mu_squared=Fraction(1, 1)))
    """

    name: ClassVar[str] = "residuals"
    budget_kinds: ClassVar[tuple[str, ...]] = ("zcdp", "gdp", "approximate")
    has_one_scale: ClassVar[bool] = False

    space: ProductSpace
    sigma2: Mapping[View, Fraction]
    precision: Fraction
    law: str
    saved: float = 0.0

    def __attrs_post_init__(self) -> None:
        if self.law not in LAWS:
            laws = " or ".join(LAWS)
            raise InputError(f"the noise of residuals is {laws}, not {str(self.law)[:40]!r}")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget, **placing: Any) -> Self:
        """Return the mechanism whose noise satisfies `budget`, placed by `from_precision`.

        Parameters
        ----------
        space
            The residuals of the product.
        budget
            zCDP, GDP or (ε, δ).
        placing
            Further arguments of `from_precision` of the class.
        """
        if not isinstance(space, ProductSpace):
            raise InputError(
                "residuals are those of a product of tables: build it with product_space"
            )
        if budget.kind not in cls.budget_kinds:
            raise Refused(
                "tables are measured together for a zCDP, GDP or (epsilon, delta) budget: with pure"
                " epsilon give each table a budget of its own"
            )
        law, precision = law_within(budget)
        return cls.from_precision(space, precision, law, **placing)

    @classmethod
    def from_precision(cls, space: ProductSpace, precision: Fraction, law: str) -> Self:
        """Return noise that treats all residuals alike, within the precision. `publish` places
        noise that serves some tables best.
        """
        # the least Σ σ² with Σ k/σ² <= 1, by the inequality of Cauchy and Schwarz
        roots = {view: math.sqrt(cost) for view, cost in space.cost.items()}
        total = sum(roots.values())
        noise = {view: root * total for view, root in roots.items()}
        return cls.from_noise(space, noise, precision, law)

    @classmethod
    def from_noise(
        cls,
        space: ProductSpace,
        noise: Mapping[View, float],
        precision: Fraction,
        law: str,
        joint: bool = False,
    ) -> Self:
        """Return proposed noise made exact, and scaled until no move costs more than the precision.

        Parameters
        ----------
        space
            The residuals of the product.
        noise
            σ² of each residual in floating point, which cost about one.
        precision, law
            As of the mechanism.
        joint
            Whether the residuals' joint cost is bounded, or the sum of their costs.
        """
        bound = _bound_joint_cost if joint else _spent
        sigma2 = _scale_to_precision(noise, precision, partial(bound, space))
        for view, square in sigma2.items():
            # An entry is measured times its scale, and its noise grows as much.
            check_scale(square * space.residuals.largest_scale(view) ** 2)
        return cls(space, sigma2, precision, law)

    @cached_property
    def spent(self) -> Fraction:
        """Largest cost of a move by the bounds of this version: no more than the precision, unless
        a claim is false.

        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> mechanism = ResidualNoise.calibrate(space, Budget.gdp(1))
        >>> mechanism.spent <= mechanism.precision
        True
        """
        return _cost(self.space, self.sigma2)

    @property
    def tradeoff(self) -> Tradeoff:
        """The curve of every pair of adjacent datasets: μ-GDP or ρ-zCDP; perfect secrecy if nothing
        is drawn.
        """
        if not self.sigma2:
            return Gaussian(Fraction(0))
        if self.law == "discrete":
            return ZCDP(self.precision / 2)
        return Gaussian(self.precision)

    def record(self) -> dict[str, Any]:
        """Return the ledger entry: the tables, and the exact noise of every residual."""
        squares = []
        for view, square in self.sigma2.items():
            features = list(self.space.schema.list_view_names(view))
            squares.append({"features": features, "sigma2": plain(square)})
        noise = {"law": self.name, "draw": self.law, "residuals": squares}
        return {"query": self.space.query(), "noise": noise}

    @classmethod
    def from_record(cls, space: QuerySpace, noise: Mapping[str, Any]) -> Self:
        """Return the mechanism of a recorded noise on another space: the same σ², and what its
        residuals cost there.

        Residuals that are fixed there cost nothing. A residual that was not measured, because
        something exact fixed it, must be fixed there too.
        """
        if not isinstance(space, ProductSpace):
            raise TypeError("residuals are those of a product of tables")
        squares = {}
        for part in noise["residuals"]:
            view = space.schema.view(part["features"])
            squares[view] = positive(part["sigma2"], "σ²")
        if not set(space.measured_residuals) <= set(squares):
            raise Refused(
                "part of this release has no noise, because its exact totals fix that part: without"
                " these totals nothing protects it, so there is no guarantee"
            )
        measured = {view: squares[view] for view in space.measured_residuals}
        return cls(space, measured, _cost(space, measured), str(noise["draw"]))

    def under(self, adjacency: Adjacency) -> Guarantee:
        """Return the guarantee of the same noise under another adjacency: the same σ², and the
        costs there.

        >>> from semidp.promise.spaces.adjacency import Ball
        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> ResidualNoise.calibrate(space, Budget.gdp(1)).under(Ball(4)).tradeoff.mu_squared > 3
        True
        """
        space = self.space.under(adjacency)
        assert isinstance(space, ProductSpace)
        precision = _cost(space, self.sigma2)
        return ResidualNoise(space, self.sigma2, precision, self.law).guarantee

    @property
    def scale(self) -> float:
        """The largest σ of a residual, rounded up."""
        return max((root_up(square) for square in self.sigma2.values()), default=0.0)

    @property
    def variance(self) -> float:
        """Mean variance of a direction of the vector. Each residual has its own."""
        return float(np.square(self.standard_errors()).sum()) / max(1, self.space.dimension)

    @cached_property
    def samplers(self) -> tuple[list[ResidualLaw], NDArray[np.intp]]:
        """Distinct laws of the noise, and the number of the law of each entry of the vector."""
        numbers: dict[Fraction, int] = {}
        which = np.zeros(self.space.shape, dtype=np.intp)
        for view, part in self.space.parts.items():
            scales, at = different_scales(self.space.scales[part])
            squares = [self.sigma2[view] * scale**2 for scale in scales]
            laws = [numbers.setdefault(square, len(numbers)) for square in squares]
            which[part] = np.array(laws)[at]
        return [LAWS[self.law](square) for square in numbers], which

    @cached_property
    def variances(self) -> NDArray[np.float64]:
        """The variance of the noise in each entry of the vector, rounding included."""
        laws, which = self.samplers
        return np.array([law.variance for law in laws])[which]

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard error of each entry of the projected vector."""
        parts = [np.zeros(0)]
        for view, part in self.space.parts.items():
            # Measured residuals are whole numbers: they were multiplied by their scales.
            squared_scales = self.space.scales[part].astype(float) ** 2
            unscaled = self.variances[part] / squared_scales
            shaped = unscaled.reshape(self.space.residuals.shape(view))
            centred = self.space.residuals.centred_variance(view, shaped)
            parts.append(np.sqrt(centred).ravel())
        return np.concatenate(parts) * self.space.scales

    def standard_error(self, weights: ArrayLike) -> float:
        """Return the standard error of a weighted sum of entries of the projected vector."""
        squared_scales = self.space.scales.astype(float) ** 2
        # The projection is S C S⁻¹ with scales S and centering C, so its transpose is S⁻² P S².
        pulled = self.space.project(cell_weights(weights, self.space) * squared_scales)
        total = ((pulled / squared_scales) ** 2 * self.variances).sum()
        return math.sqrt(float(total))

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw one number for each entry; entries of equal scale are drawn together."""
        return draws_of_laws(*self.samplers, count, randomness)

    def noise_by_residual(self, randomness: Randomness) -> NDArray[np.int64]:
        """Draw one number for each entry. Each residual has a source of its own, named after its
        features.
        """
        parts = [np.zeros(0, np.int64)]
        for view, part in self.space.parts.items():
            # A part of the source for each residual: what is drawn does not depend on the others.
            source = randomness.part(*self.space.schema.list_view_names(view))
            scales = self.space.scales[part]
            noise = residual_noise(self.law, self.sigma2[view], scales, source)
            parts.append(noise)
        return np.concatenate(parts)


def _scale_to_precision(
    noise: Mapping[View, float],
    precision: Fraction,
    cost: Callable[[Mapping[View, Fraction]], Fraction],
) -> dict[View, Fraction]:
    """Return exact σ² that cost at most the precision, from floating-point σ² that cost about one.

    They are rounded up, and multiplied until a certified bound of the cost is within the precision.
    """
    factor = 1 / precision
    while True:
        sigma2 = {}
        for view, square in noise.items():
            sigma2[view] = _coarse(Fraction(square) * factor)
        spent = cost(sigma2)
        if spent <= precision:
            return sigma2
        # A little more than is missing, or rounding could keep the cost above the precision.
        missing = max(spent / precision, Fraction(1))
        factor *= missing + Fraction(1, 2**22)


def _spent(space: ProductSpace, sigma2: Mapping[View, Fraction]) -> Fraction:
    """Return ``Σ k/σ²``, rounded up to at least 60 significant bits, however small it is."""
    costs = [space.cost[view] / square for view, square in sigma2.items()]
    largest = max(costs, default=Fraction(1))
    exponent = math.frexp(round_up(largest))[1]
    bits = 80 - min(0, exponent + 20)
    # Multiples of one small unit add up fast. Exact fractions would have huge denominators.
    rounded_up = [math.ceil(cost * 2**bits) for cost in costs]
    return Fraction(sum(rounded_up), 2**bits)


def _bound_joint_cost(space: ProductSpace, sigma2: Mapping[View, Fraction]) -> Fraction:
    """Return the certified joint cost plus a millionth of it, so the floating point of another
    computer confirms it too.
    """
    certified = Fraction(space.costs.joint(sigma2))
    return certified * (1 + Fraction(1, 2**20))


def _cost(space: ProductSpace, sigma2: Mapping[View, Fraction]) -> Fraction:
    """Return a bound on the cost of every move: the sum over residuals, or their joint cost where
    that is less.
    """
    if not sigma2:
        return Fraction(0)
    # Both bound the cost of every move, so the smaller one holds too.
    return min(_spent(space, sigma2), Fraction(space.costs.joint(sigma2)))


def _coarse(square: Fraction) -> Fraction:
    """Round σ² up to few significant bits."""
    exponent = math.frexp(round_up(square))[1]
    step = Fraction(2) ** (exponent - _BITS)
    return math.ceil(square / step) * step

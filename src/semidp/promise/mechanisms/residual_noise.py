"""The mechanism of a product of tables: noise on residuals, as much on each as serves the tables
best.

How much noise is proposed in `placement`, from costs and gains; here it is made exact and certified
to stay within the budget. The measurement is one vector with one guarantee.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import plain, positive, round_up
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import cell_weights, check_scale, root_up
from semidp.promise.mechanisms.placement import (
    Objective,
    Workload,
    closed_form,
    place_noise,
)
from semidp.promise.mechanisms.residual_laws import (
    LAWS,
    NEAR,
    Conditioning,
    ResidualLaw,
    SharedNoise,
    combine_weights,
    different_scales,
    draws_of_laws,
    law_within,
    residual_noise,
)
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import View, trimmed_view
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

# σ² is kept to so many significant bits, rounded up: residuals that are alike share a sampler
_BITS = 24

_WORTH = 1e-5  # the share of the variance from which on the joint cost is used


@dataclass(frozen=True, eq=False)
class ResidualMechanism(SharedNoise):
    """Gaussian noise on the residuals of a product of tables: discrete for zCDP, rounded for GDP
    and (ε, δ).

    A move m costs ``Σ_d |H_d M_d m|²/σ_d²``, which is at most μ² (GDP) or 2ρ (zCDP) for every move
    between adjacent datasets. Residuals are measured times their scale, in whole numbers, so that
    the noise in an entry has variance scale²·σ_d².

    Parameters
    ----------
    space
        The residuals.
    sigma2
        σ² of each measured residual, exact.
    precision
        What the cost of every move is at most.
    law
        ``discrete`` or ``rounded``.
    saved
        The share of the noise's variance that the joint cost of all residuals saved against the sum
        of their costs.
    workload
        What the noise was placed for; None where it is the noise of a record.

    Examples
    --------
    >>> from semidp.promise.sensitivity.products import product_space
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> both, table = two_way()
    >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
    >>> mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
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
    saved: float = field(default=0.0)
    workload: Workload | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            laws = " or ".join(LAWS)
            raise InputError(f"the noise of residuals is {laws}, not {str(self.law)[:40]!r}")

    @classmethod
    def calibrate(
        cls,
        space: QuerySpace,
        budget: Budget,
        weights: Sequence[float] | None = None,
        objective: Objective = Objective.total,
        joint: bool = True,
    ) -> Self:
        """Return the mechanism whose tables have the least total variance, or the least largest
        standard error.

        Parameters
        ----------
        space
            The residuals of the product.
        budget
            zCDP, GDP or (ε, δ).
        weights
            How much the variance of each table counts; all alike unless given.
        objective
            What is minimised.
        joint
            Whether the exact joint sensitivity is used where it can be found.
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
        return cls.from_precision(space, precision, law, weights, objective, joint)

    @classmethod
    def from_precision(
        cls,
        space: ProductSpace,
        precision: Fraction,
        law: str,
        weights: Sequence[float] | None = None,
        objective: Objective = Objective.total,
        joint: bool = True,
    ) -> Self:
        """Return the mechanism for which no move costs more than the precision; the other
        parameters are those of `calibrate`.
        """
        workload = Workload.from_weights(space, weights, objective)
        sigma2 = _scale_to_precision(closed_form(workload), precision, partial(_spent, space))
        saved = 0.0
        # Seldom is one move the worst for every residual, so that together they may cost less than
        # the sum of their worst costs.
        if joint and sigma2:
            tighter = _scale_to_precision(
                place_noise(workload), precision, partial(_bound_joint_cost, space)
            )
            share = workload.total(tighter) / workload.total(sigma2)
            if share < 1 - _WORTH:
                sigma2, saved = tighter, 1 - share
        for view, square in sigma2.items():
            # An entry is measured times its scale, and its noise grows as much.
            check_scale(square * space.residuals.largest_scale(view) ** 2)
        return cls(space, sigma2, precision, law, saved, workload)

    @cached_property
    def spent(self) -> Fraction:
        """Largest cost of a move by the bounds of this version: no more than the precision, unless
        a claim is false.

        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
        >>> mechanism.spent <= mechanism.precision
        True
        """
        return _cost(self.space, self.sigma2)

    def serves_like(self, other: "ResidualMechanism") -> bool:
        """Whether this noise is placed about as well as that of `other`.

        The convex program ends near its optimum, where another computer may end a little elsewhere.
        """
        workload = other.workload or self.workload
        if workload is None or set(self.sigma2) != set(other.sigma2):
            return False
        return workload.total(self.sigma2) <= (1 + NEAR) * workload.total(other.sigma2)

    @property
    def tradeoff(self) -> Tradeoff:
        """Curve of every pair of adjacent datasets: μ-GDP or ρ-zCDP; perfect secrecy where nothing
        is drawn.
        """
        if not self.sigma2:
            return Gaussian(Fraction(0))
        if self.law == "discrete":
            return ZCDP(self.precision / 2)
        return Gaussian(self.precision)

    def record(self) -> dict[str, Any]:
        """Return the ledger entry: the tables, and the exact noise of every residual; see
        `recorded`.
        """
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
                "something was published exactly because others fixed it, and here they do not"
                " fix it"
            )
        measured = {view: squares[view] for view in space.measured_residuals}
        return cls(space, measured, _cost(space, measured), str(noise["draw"]))

    def refuse_false_claim(self) -> None:
        """Refuse noise if a drawn exchange costs more than it claims, all residuals together."""
        cost, pair = self.space.find_worst_exchange(self.sigma2)
        if cost > float(self.precision) * (1 + 1e-6):  # costs of pairs are in floating point
            raise Refused(
                f"the noise of these tables would hide less than is stated ({cost:.4g} instead of"
                f" {float(self.precision):.4g} in mu squared), so nothing was drawn: {pair} are two"
                " datasets with the exact totals; this is a fault of semidp, please report it with"
                " this sentence"
            )

    def under(self, adjacency: Adjacency) -> Guarantee:
        """Return the guarantee of the same noise under another adjacency: the same σ², and the
        costs there.

        >>> from semidp.promise.spaces.adjacency import Ball
        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> ResidualMechanism.calibrate(space, Budget.gdp(1)).under(Ball(4)).tradeoff.mu_squared > 3
        True
        """
        space = self.space.under(adjacency)
        assert isinstance(space, ProductSpace)
        precision = _cost(space, self.sigma2)
        return replace(self, space=space, precision=precision, workload=None).guarantee

    @property
    def scale(self) -> float:
        """The largest σ of a residual, rounded up."""
        return max((root_up(square) for square in self.sigma2.values()), default=0.0)

    @property
    def variance(self) -> float:
        """Mean variance of a direction. Each residual has its own."""
        return self.expected_l2**2 / max(1, self.space.dimension)

    @property
    def expected_l2(self) -> float:
        """Root of the expected sum of squared errors over the cells of all tables."""
        tables = range(len(self.space.views))
        totals = [float(self.cell_variances(table).sum()) for table in tables]
        return math.sqrt(sum(totals))

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

    @property
    def entry_variances(self) -> NDArray[np.float64]:
        """The variance of the noise in each entry of the vector."""
        return self.variances

    @property
    def entry_laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise, and the number of the law of each entry of the vector."""
        laws, which = self.samplers
        return list(laws), which

    @property
    def entry_scales(self) -> NDArray[np.int64]:
        """Factor by which each entry was multiplied before it was measured."""
        return self.space.scales

    @cached_property
    def conditioning(self) -> Conditioning | None:
        """Correction of the residuals by impossible cells; None where there are none."""
        if not self.space.impossible or not self.sigma2:
            return None
        return Conditioning(self.space, self.variances)

    def estimates(self, values: ArrayLike) -> list[NDArray[np.float64]]:
        """Return every table put together from a vector of measurements, with zeros in impossible
        cells.

        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
        >>> bool(np.allclose(mechanism.estimates(space.measure([table]))[0], table.counts))
        True
        """
        if self.conditioning is None:
            return self.space.estimates(values)
        return self.conditioning.estimates(values)

    def combination(self, weights: Mapping[int, ArrayLike]) -> NDArray[np.float64]:
        """Return weights on the noise in the entries of the vector, from weights on cells of the
        tables (by number).
        """
        return combine_weights(self.space, weights, self.conditioning)

    def find_reached_entries(self, tables: Sequence[int]) -> NDArray[np.intp]:
        """Return the entries of the residuals that some tables are put together from. Impossible
        cells tie all entries together: then it is all of them.
        """
        entries = np.arange(self.space.scales.size)
        if self.conditioning is not None:
            return entries
        views = {view for table in tables for view in self.space.inside[table]}
        parts = self.space.parts.items()
        kept = [entries[part] for view, part in parts if view in views]
        return np.concatenate([entries[:0], *kept])

    def cell_variances(self, table: int) -> NDArray[np.float64]:
        """Return the variance of each cell of one table's estimate. Tables with the same variances
        share one array.
        """
        if self.conditioning is not None:
            if table not in self._cell_variances:
                self._cell_variances[table] = self.conditioning.cell_variances(table)
            return self._cell_variances[table]
        view = self.space.views[table]
        noise = []
        for small in self.space.inside[table]:
            noise.append((trimmed_view(small, view), self.sigma2[small]))
        alike = (self.space.alike(table), tuple(noise))
        if alike not in self._cell_variances:
            self._cell_variances[alike] = self.space.cell_variances(self.variances, table)
        return self._cell_variances[alike]

    @cached_property
    def _cell_variances(self) -> dict[object, NDArray[np.float64]]:
        return {}

    def rms_error(self, table: int) -> float:
        """Return the root of the mean variance of one table's cells, without rounding and without
        an array of cells.

        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> round(ResidualMechanism.calibrate(space, Budget.gdp(1)).rms_error(0), 4)
        1.1547
        """
        view = self.space.views[table]
        cells = math.prod(self.space.residuals.shape(view))
        if self.conditioning is not None:
            total = float(self.cell_variances(table).sum())
            return math.sqrt(total / cells)
        parts = []
        for small in self.space.inside[table]:
            gain = self.space.residuals.gain(small, view)
            parts.append(float(self.sigma2[small]) * gain)
        return math.sqrt(sum(parts) / cells)

    def table_errors(self, table: int) -> NDArray[np.float64]:
        """Return the standard error of each cell of one table's estimate."""
        return np.sqrt(self.cell_variances(table))

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
        # The projection is S C S⁻¹ with scales S and centring C, so that its transpose is S⁻² P S².
        pulled = self.space.project(cell_weights(weights, self.space) * squared_scales)
        total = ((pulled / squared_scales) ** 2 * self.variances).sum()
        return math.sqrt(float(total))

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw one number for each entry; entries of equal scale are drawn together."""
        return draws_of_laws(*self.samplers, count, randomness)

    def draw_entries(
        self, entries: NDArray[np.intp], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Draw the noise of some entries alone, for many measurements at once."""
        laws, which = self.samplers
        return draws_of_laws(laws, which[entries], count, randomness)

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
    """Return the certified joint cost plus a millionth of it, so that the floating point of another
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
    # Both bound the cost of every move, so that the smaller one holds too.
    return min(_spent(space, sigma2), Fraction(space.costs.joint(sigma2)))


def _coarse(square: Fraction) -> Fraction:
    """Round σ² up to few significant bits."""
    exponent = math.frexp(round_up(square))[1]
    step = Fraction(2) ** (exponent - _BITS)
    return math.ceil(square / step) * step

"""The base of every mechanism: a calibrated value that knows its errors, its guarantee and how to
measure a table.

A mechanism is a `QuerySpace` and an exact scale, nothing else; the guarantee follows from these
two. The noise distributions live in `noise`, the sensitivity in `sensitivity`; making tables
nonnegative lives in `fitting`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from attrs import asdict, evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.confidential import Confidential, reveal
from semidp.promise.exact import bisection, plain, positive, round_up, sqrt_up
from semidp.promise.guarantee import Guarantee
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.promise.progress import Progress
from semidp.promise.schema.schema import Table
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import Gaussian

ClaimKind = Literal["exact", "ideal"]
"""Whether a guarantee holds for the numbers actually sampled, or for the real numbers of the
proof."""

CLAIMS: dict[ClaimKind, str] = {
    "exact": (
        "The noise is drawn exactly from the distribution of the proof, in whole numbers: "
        "the guarantee holds for what is published."
    ),
    "ideal": (
        "The proof is for real-valued noise and the computer draws floating-point numbers; "
        "the output is rounded to whole numbers before anything is published."
    ),
}

KINDS = {
    "zcdp": "gaussian or lattice",
    "gdp": "gaussian",
    "pure": "laplace, knorm or l2",
    "approximate": "gaussian, lattice, laplace, knorm or l2",
}
"""The mechanisms for each kind of budget, by their names in plans and on the command line; for
messages."""

_LARGEST_SCALE = 2**48  # beyond it, the samplers refuse: counts plus noise may not fit in 63 bits
_LARGEST_VALUE = 2**62


@frozen(eq=False)
class Measurement:
    """The output of a mechanism. Everything in it may be published; nothing in it is confidential.

    Parameters
    ----------
    noisy
        The query plus noise, cell by cell: integers, or reals from a mechanism for
        studies.
    projected
        ``P·noisy`` plus the part of the table that the public totals fix. It keeps every invariant
        and depends on the data only through `noisy`.
    mechanism
        The name of the mechanism.
    claim
        "exact" or "ideal", see `CLAIMS`.
    private
        False if the randomness was seeded or the mechanism is meant for studies.

    Examples
    --------
    >>> from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> measured = RoundedGaussianMechanism.calibrate(space, Budget.gdp(1)).apply(table)
    >>> measured.noisy.dtype, measured.projected.sum(axis=1).round(6).tolist(), measured.private
    (dtype('int64'), [60.0, 75.0], True)
    """

    noisy: NDArray[Any] = field(repr=False)
    projected: NDArray[np.float64] = field(repr=False)
    mechanism: str
    claim: ClaimKind
    private: bool


@frozen(slots=False, eq=False)
class Mechanism(ABC):
    """A calibrated additive mechanism: a sensitivity space and an exact scale.

    The projected noise of every mechanism here has covariance ``variance·P``, with P the projection
    on the tables of zero published margins: independent cells are projected, and the others are as
    symmetric as the space is. So one number gives the standard error of a cell, of any sum of
    cells, and the expected loss.

    >>> from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> mechanism: Mechanism = RoundedGaussianMechanism.calibrate(two_way()[0], Budget.gdp(1))
    >>> mechanism.scale, mechanism.guarantee.adjacency.a, mechanism.guarantee.tradeoff
    (2.0, 3, Gaussian(mu_squared=Fraction(1, 1)))
    """

    space: QuerySpace

    name: ClassVar[str]
    budget_kinds: ClassVar[tuple[str, ...]]
    claim: ClassVar[ClaimKind] = "exact"
    for_studies: ClassVar[bool] = False
    known_elsewhere: ClassVar[bool] = True
    """Whether its noise, once drawn, has a known guarantee under other exact statistics."""
    adds_noise: ClassVar[bool] = True
    """Whether outputs are the query plus noise; otherwise they are chosen, without a standard
    error."""
    keeps_totals: ClassVar[bool] = False
    """Whether the noise has zero published margins, so the measurement has every exact
    total."""
    has_one_scale: ClassVar[bool] = True
    """Whether its scale alone determines the noise; otherwise noise may be placed in several
    ways."""
    scale_powers: ClassVar[Mapping[str, int]] = {}
    """By which power of the scale each exact parameter grows: 2 for a variance, -1 for a rate."""

    @property
    def law_details(self) -> dict[str, str]:
        """Further exact numbers of the noise distribution in release.json, besides its scale."""
        return self.space.law_details

    @classmethod
    @abstractmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with the least noise that satisfies `budget` on `space`."""

    @classmethod
    def check_request(cls, space: QuerySpace, budget: Budget) -> None:
        """Refuse a budget that the mechanism cannot satisfy, and a table that needs no noise."""
        if budget.kind not in cls.budget_kinds:
            own_kinds = ", ".join(cls.budget_kinds)
            raise Refused(
                f"{cls.name} cannot satisfy a {budget.kind} budget (it can:"
                f" {own_kinds}): use {KINDS[budget.kind]}"
            )
        if space.is_zero:
            raise Refused(
                "the published totals fix this table and no noise is needed: use NoNoise, as"
                " choose() does"
            )

    @property
    @abstractmethod
    def scale(self) -> float:
        """The scale of the noise in the mechanism's formula, rounded up."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The number τ² with ``Cov(projected noise) = τ² P``."""

    @property
    @abstractmethod
    def tradeoff(self) -> Tradeoff:
        """The proven tradeoff function, from the scale and the norms of the space."""

    @abstractmethod
    def noises(self, count: int, randomness: Randomness) -> NDArray[Any]:
        """Draw the noise of `count` independent measurements, along a new first axis."""

    def noise(self, randomness: Randomness) -> NDArray[Any]:
        """Draw the noise that is added to the table, before projection."""
        return np.asarray(self.noises(1, randomness)[0])

    @property
    def statement(self) -> str:
        """Sentence on the kind of claim: exact or ideal."""
        return CLAIMS[self.claim]

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee (D_t, A_a, f) that the measurement satisfies."""
        return Guarantee(self.space.dataspace, self.space.adjacency, self.tradeoff)

    def under(self, adjacency: Adjacency) -> Guarantee:
        """Return the guarantee of the same noise under another adjacency of the same dataspace:
        ``μ' = Δ2(S')/σ``.

        >>> from semidp.promise.spaces.adjacency import Ball, Exchange
        >>> from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> space, table = two_way()
        >>> exchanges = space.under(Exchange.from_dataspace(space.dataspace))
        >>> mechanism = RoundedGaussianMechanism.calibrate(exchanges, Budget.gdp(1))
        >>> mechanism.under(Ball(4)).tradeoff.mu
        Fraction(2, 1)
        """
        return evolve(self, space=self.space.under(adjacency)).guarantee

    @property
    def expected_l2(self) -> float:
        """The root of the expected squared loss, ``sqrt(E‖P·noise‖²) = τ·sqrt(dim)``."""
        return math.sqrt(self.variance * self.space.dimension)

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard error of each cell of the projected table, ``τ·sqrt(P_ii)``."""
        return np.sqrt(self.variance * self.space.published_variances())

    def rms_error(self, table: int) -> float:
        """Return the root of the mean variance of the cells of one table, by its number."""
        errors = self.standard_errors()
        if not errors.size:
            return 0.0
        return math.sqrt(float(np.square(errors).mean()))

    def standard_error(self, weights: ArrayLike) -> float:
        """Return the standard error of a weighted sum of cells, ``τ‖P w‖``, without building a
        matrix.
        """
        variance = self.space.compute_weighted_variance(cell_weights(weights, self.space))
        return math.sqrt(self.variance * variance)

    def to_json(self) -> dict[str, Any]:
        """Return the entries of an analysis: name, scale, expected loss and kind of claim."""
        return {
            "name": self.name,
            "scale": self.scale,
            "expected_l2": self.expected_l2,
            "claim": self.claim,
        }

    def record(self) -> dict[str, Any]:
        """Return the ledger entry: the query, and the law of the noise with its exact scale.
        `mechanism_from_record` reads it.
        """
        noise: dict[str, Any] = {"law": self.name}
        for name, value in asdict(cast(Any, self), recurse=False).items():
            if isinstance(value, Fraction):
                noise[name] = plain(value)
        return {"query": self.space.query(), "noise": noise}

    @classmethod
    def from_record(cls, space: QuerySpace, noise: Mapping[str, Any]) -> Self:
        """Return the mechanism of a recorded noise on a space: under any exact statistics and
        adjacency.

        >>> from semidp.promise.mechanisms.additive import LaplaceMechanism
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> LaplaceMechanism.from_record(
        ...     two_way()[0], {"law": "laplace", "b": "4"}
        ... ).tradeoff.epsilon(0)
        1.0
        """
        if not cls.known_elsewhere:
            raise Refused(f"{cls.name} noise cannot be accounted for under further exact totals")
        numbers = {str(name): value for name, value in noise.items() if name != "law"}
        parameters = {name: positive(value, name) for name, value in numbers.items()}
        return cls(space, **parameters)

    def reporting(self, progress: Progress) -> Self:
        """Return a copy that reports sampling progress. Default: `self`, since most samplers finish
        at once.
        """
        return self

    def apply(self, table: Table, randomness: Randomness | None = None) -> Measurement:
        """Measure a table: add noise, then project.

        Parameters
        ----------
        table
            The confidential table, on the schema the space was built for.
        randomness
            Where random words come from (default: the operating system).
        """
        return self.measure(self.space.values(table), randomness)

    def measure(
        self,
        values: Confidential[NDArray[np.int64]] | NDArray[np.int64],
        randomness: Randomness | None = None,
    ) -> Measurement:
        """Measure a whole-number query given as an array of the space's shape."""
        shape, numbers = tuple(self.space.shape), reveal(values)
        if numbers.shape != shape or numbers.dtype.kind not in "iu":
            raise InputError(f"the query must be whole numbers of shape {shape}")
        source = SystemRandomness() if randomness is None else randomness
        noisy = self._add(numbers, self.noise(source))
        # studies add floats, whose last digits may tell the count
        private = source.secure and not self.for_studies
        return Measurement(noisy, self.publish(noisy), self.name, self.claim, private)

    def measure_many(
        self, values: NDArray[np.int64], count: int, randomness: Randomness
    ) -> NDArray[Any]:
        """Return the `noisy` of `count` independent measurements of one query: for audits and
        studies.
        """
        return self._add(values, self.noises(count, randomness))

    def publish(self, noisy: NDArray[Any]) -> NDArray[np.float64]:
        """Return ``P·noisy`` plus the part that the public totals
        fix.
        """
        if self.keeps_totals:  # nothing is left to project
            return noisy.astype(np.float64)
        return self.space.project_noisy_values(noisy)

    def with_less_noise(self, share: Fraction) -> "Mechanism | None":
        """Return the mechanism with this share of its noise; None if outputs can be drawn
        towards the query.
        """
        return None

    def restore_measurement(self, noisy: NDArray[Any], private: bool) -> Measurement:
        """Return the measurement whose noisy values were published, as `measure` returned it."""
        return Measurement(noisy, self.publish(noisy), self.name, self.claim, private)

    def _add(self, values: NDArray[np.int64], noise: NDArray[Any]) -> NDArray[Any]:
        """Add noise in whole numbers; an ideal mechanism is rounded before it is added, one for
        studies is not.
        """
        if self.for_studies:
            return np.asarray(values + noise, dtype=np.float64)
        # The noise is rounded by itself: low bits of a float sum would depend on the count.
        whole = noise if noise.dtype.kind == "i" else np.rint(noise)
        # Two numbers below 2^62 have a sum that cannot wrap around in 64 bits.
        if whole.size:
            largest_noise = max(-float(whole.min()), float(whole.max()))
            if largest_noise >= _LARGEST_VALUE:
                raise Refused("the noise does not fit in 63 bits: use a larger budget")
        if values.size:
            largest_value = max(-int(values.min()), int(values.max()))
            if largest_value >= _LARGEST_VALUE:
                raise InputError(
                    "the query does not fit in 62 bits, which exact arithmetic here does not cover"
                )
        # The noise is drawn for this sum, so its room serves for it.
        noisy: NDArray[np.int64] = whole.astype(np.int64, copy=False)
        noisy += values.astype(np.int64, copy=False)
        return noisy


@frozen(slots=False, eq=False)
class CellByCell(Mechanism):
    """A mechanism that adds an independent whole number to every cell, all from one
    distribution.
    """

    @property
    @abstractmethod
    def sampler(self) -> CountNoise:
        """The distribution of the noise in one cell."""

    @property
    def variance(self) -> float:
        """The variance of one cell's noise."""
        return self.sampler.variance

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw one number per cell, for all measurements at once."""
        return self.sampler.sample((count, *self.space.shape), randomness)


@frozen(eq=False)
class NoNoise(Mechanism):
    """No noise, for a table that the public totals fix: it is published exactly.

    The measurement is a function of the public totals alone; the confidential table is only checked
    against them.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> NoNoise.calibrate(two_way()[0], Budget.pure(1))
    Traceback (most recent call last):
    semidp.errors.Refused: the published totals do not fix this table, so it needs noise: use
    another mechanism
    """

    name: ClassVar[str] = "no noise"
    budget_kinds: ClassVar[tuple[str, ...]] = ("zcdp", "gdp", "pure", "approximate")
    statement = (
        "The public totals fix this table: everything in it is published exactly, and no noise is"
        " needed."
    )
    scale = 0.0
    variance = 0.0
    tradeoff = Gaussian(Fraction(0))
    """Nothing is learned beyond the public totals: the identity, G_0."""

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism for a table that is already public; refuse any other."""
        if not space.is_zero:
            raise Refused(
                "the published totals do not fix this table, so it needs noise: use another"
                " mechanism"
            )
        return cls(space)

    @classmethod
    def from_record(cls, space: QuerySpace, noise: Mapping[str, Any]) -> Self:
        """Return the mechanism if the totals still fix the table; refuse it otherwise."""
        if not space.is_zero:
            raise Refused(
                "this table has no noise, because exact totals fix it: without these totals nothing"
                " protects it, so there is no guarantee"
            )
        return super().from_record(space, noise)

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Return zeros."""
        return np.zeros((count, *self.space.shape), dtype=np.int64)

    def measure(
        self,
        values: Confidential[NDArray[np.int64]] | NDArray[np.int64],
        randomness: Randomness | None = None,
    ) -> Measurement:
        """Return the public table; `values` and the randomness are not used."""
        fixed = self.space.fixed_part()
        whole = np.rint(fixed).astype(np.int64)
        return Measurement(whole, fixed, self.name, self.claim, True)

    def restore_measurement(self, noisy: NDArray[Any], private: bool) -> Measurement:
        """Return the public table, whatever was published."""
        return self.measure(noisy)

    def measure_many(
        self, values: NDArray[np.int64], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Return copies of the public table; `values` and the randomness are not used."""
        return np.stack([self.measure(values).noisy] * count)


def require_epsilon(budget: Budget) -> Fraction:
    """Return the ε of a pure or (ε, δ) budget.

    >>> require_epsilon(Budget.pure("0.1"))
    Fraction(1, 10)
    """
    if budget.epsilon is None:
        raise InputError(f"a {budget.kind} budget has no epsilon")
    return budget.epsilon


def check_scale(square: Fraction) -> Fraction:
    """Return σ² if counts plus noise of that scale fit in 63 bits; refuse it otherwise."""
    if square > _LARGEST_SCALE**2:
        raise Refused(
            "the budget is so small that counts plus noise would not fit in 63 bits: use a larger"
            " budget"
        )
    return square


def root_up(square: Fraction) -> float:
    """Return a float of at least the square root.

    >>> root_up(Fraction(6)) ** 2 >= 6
    True
    """
    return round_up(sqrt_up(square))


def largest(holds: Callable[[Fraction], bool]) -> Fraction:
    """Return a number just below the threshold up to which a condition holds.

    The number has 40 significant bits, so it is at most one part in 10¹² short.

    >>> float(largest(lambda x: x * x <= 2))
    1.4142135623...
    """
    low, high = Fraction(1), Fraction(2)
    while not holds(low):
        low, high = low / 2, low
        # A budget that no noise meets would else be halved forever.
        if low.denominator.bit_length() > 200:
            raise Refused("no noise scale meets this budget: use a larger delta")
    while holds(high):
        low, high = high, high * 2
    low, _ = bisection(holds, low, high, halvings=40)
    return low


def cell_weights(weights: ArrayLike, space: QuerySpace) -> NDArray[np.float64]:
    """Return weights as an array of the space's shape."""
    return space.check_shape(weights).astype(np.float64, copy=False)

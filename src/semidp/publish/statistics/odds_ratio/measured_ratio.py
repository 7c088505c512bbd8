"""Inference about an odds ratio from a measured x11, and the power of the test."""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import whole_bisection
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism, CellSpace
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.promise.noise.canonical import Recursive, canonical_noise, find_claimable_curve
from semidp.promise.noise.randomness import Randomness, SeededRandomness, generator
from semidp.promise.spaces.adjacency import Adjacency, Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import Gaussian
from semidp.publish.statistics.odds_ratio.umpu import (
    Alternative,
    Interval,
    Strata,
    TwoByTwo,
    UmpuTest,
    margins_of,
    refuse_untestable,
)
from semidp.publish.written_values import check_level


@frozen(slots=False)
class OddsRatioResult:
    """A published test of the odds ratio ``ω = x11 x22 / (x12 x21)``; level 1 is the first declared
    of each feature.

    With strata it is the exact test of Cochran, Mantel and Haenszel of an odds ratio that is common
    to all of them.

    Everything follows from U, the margins and the guarantee, all public: a result read back from
    JSON, or built from a U that somebody else published, answers the same questions.

    Parameters
    ----------
    rows, columns
        The two features, of two levels each.
    u
        The published U = x11 + noise, a multiple of 2^-grid_bits; with strata x11 is the sum over
        them.
    grid_bits
        The grid of U. It depends on public numbers only.
    guarantee
        (D_t, A_a, f). The noise is canonical for f, stretched by how far x11 can move between
        adjacent datasets: floor(a/2), or less if the margins leave less room; under exchange by the
        effect of one exchange.
    alternative
        The alternative of the p-value and of the default interval.
    private
        False if U was drawn from a seed.
    strata
        Features within whose combinations both margins are public; none for one 2×2 table.

    Examples
    --------
    >>> import semidp
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> schema = Schema([Feature("gender", ["f", "m"]), Feature("admitted", ["yes", "no"])])
    >>> result = semidp.odds_ratio_test(Table(schema, [[89, 19], [512, 313]]), Budget.gdp(1))
    >>> interval = result.confidence_interval(0.9)
    >>> 0 < result.p_value < 1, interval.level
    (True, 0.9)
    """

    rows: str
    columns: str
    u: float
    grid_bits: int
    guarantee: Guarantee
    alternative: Alternative = Alternative.TWO_SIDED
    private: bool = True
    strata: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "alternative", Alternative(self.alternative))
        # P-values widen u by half a step of the grid: with a wrong grid they would not be valid.
        if not math.isfinite(self.u) or not _on_grid(self.u, self.grid_bits):
            raise InputError(
                f"u must be a multiple of 2^-{self.grid_bits}, the grid that it was published on"
            )
        _ = self.test  # refuses margins and guarantees that no test exists for

    @property
    def margins(self) -> TwoByTwo | Strata:
        """The margins that the test conditions on."""
        return self.test.margins

    @cached_property
    def test(self) -> UmpuTest:
        """The test as a function of u, on the grid."""
        space = self.space
        space.refuse_idle()
        noise = canonical_noise(self.guarantee.tradeoff, space.linf)
        return UmpuTest(margins_of(space), noise, 2.0**-self.grid_bits)

    @property
    def space(self) -> CellSpace:
        guarantee = self.guarantee
        return CellSpace(
            guarantee.dataspace, guarantee.adjacency, self.rows, self.columns, self.strata
        )

    @classmethod
    def from_measurement(
        cls, mechanism: CanonicalMechanism, measurement: Measurement, alternative: Alternative
    ) -> "OddsRatioResult":
        """Return the result of a measured x11."""
        cell = mechanism.cell
        u = float(measurement.projected[0])
        return cls(
            cell.row,
            cell.column,
            u,
            mechanism.bits,
            mechanism.guarantee,
            alternative,
            measurement.private,
            cell.strata,
        )

    @property
    def x11(self) -> tuple[str, str]:
        """The row and the column level whose joint count is tested: the first declared of each
        feature.
        """
        return self._levels(self.rows)[0], self._levels(self.columns)[0]

    @property
    def most_powerful(self) -> bool:
        """Whether no unbiased test with this guarantee has more power: one-sided, and x11 moves by
        at most 1.
        """
        return self.alternative is not Alternative.TWO_SIDED and self.test.noise.sensitivity == 1

    @property
    def is_unbiased(self) -> bool:
        """Whether the test rejects under any ω at least as often as under ω = 1."""
        return self.alternative is not Alternative.TWO_SIDED or self.test.is_two_sided_unbiased

    @cached_property
    def p_value(self) -> float:
        """``P(U' >= u)`` under ω = 1 for the published (rounded) U', or the other side, or both:
        see `UmpuTest`.

        Valid exactly: ``P(p <= alpha) <= alpha`` for every alpha, short of it by at most the noise
        of one grid cell.
        """
        return float(self.test.p_value(self.u, self.alternative))

    def reject(self, alpha: float = 0.05) -> bool:
        """Whether the test rejects ω = 1 (for one-sided alternatives also everything beyond it) at
        level alpha.
        """
        check_level(alpha, "alpha")
        return self.p_value <= alpha

    def confidence_interval(self, level: float = 0.95) -> Interval:
        """Return the odds ratios that the test does not reject; `empty` where it rejects them
        all.
        """
        return self.test.confidence_interval(self.u, level, self.alternative)

    def to_json(self, level: float = 0.95) -> dict[str, Any]:
        """Return the result as plain values; `from_json` needs u, the grid, the alternative and the
        guarantee.
        """
        margins = {
            "rows": self._margin(self.rows),
            "columns": self._margin(self.columns),
            "n": self.margins.n,
        }
        strata = {"strata": list(self.strata)} if self.strata else {}
        return {
            "u": self.u,
            "grid_bits": self.grid_bits,
            "p_value": self.p_value,
            "alternative": str(self.alternative),
            "interval": self.confidence_interval(level).to_json(),
            "margins": margins,
            **strata,
            "x11": dict(zip((self.rows, self.columns), self.x11, strict=True)),
            "guarantee": self.guarantee.to_json(),
            "private": self.private,
        }

    def _levels(self, name: str) -> list[str]:
        totals = self.guarantee.dataspace.value(Margin(name, *self.strata))
        (feature,) = totals.schema.restrict([name]).features
        return list(feature.levels)

    def _margin(self, name: str) -> dict[str, Any]:
        counts = self.space.totals(name)
        return {"feature": name, "levels": self._levels(name), "counts": counts.tolist()}

    def measure_many(
        self, values: NDArray[np.int64], count: int, randomness: Randomness
    ) -> NDArray[np.float64]:
        """Return `count` independent draws of U for a value of x11, along a new first axis: for
        audits.
        """
        noise = self.test.noise
        bits = self.grid_bits
        drawn = [noise.grid_steps(bits, randomness) for _ in range(count)]
        steps = np.array(drawn, dtype=np.float64)
        noises = steps / 2.0**bits
        return np.asarray(values + noises[:, None])

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "OddsRatioResult":
        """Read what `to_json` wrote; p-value and interval are computed afresh from u and the
        margins.
        """
        try:
            margins = value["margins"]
            return cls(
                margins["rows"]["feature"],
                margins["columns"]["feature"],
                float(value["u"]),
                int(value["grid_bits"]),
                Guarantee.from_json(value["guarantee"]),
                Alternative(value["alternative"]),
                bool(value["private"]),
                tuple(map(str, value.get("strata", ()))),
            )
        except (KeyError, TypeError):
            raise InputError(
                "this is not the JSON of an odds-ratio test: write one with semidp test"
            ) from None


def _on_grid(u: float, bits: int) -> bool:
    """Whether u is a multiple of 2^-bits."""
    steps = Fraction(u) * (1 << bits)
    return steps.denominator == 1


def planned_test(
    dataspace: Dataspace,
    rows: str,
    columns: str,
    privacy: Tradeoff | Budget,
    *,
    strata: Iterable[str] = (),
    adjacency: Adjacency | None = None,
) -> UmpuTest:
    """Return the test that `odds_ratio_test` would run, from public totals alone: its power before
    anything is spent.

    All invariants of the dataspace count: those beyond the margins of the test may raise a(t), and
    the noise with it.

    Examples
    --------
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> schema = Schema([Feature("sex", "fm"), Feature("vote", "yn"), Feature("ward", "ab")])
    >>> people = Table(schema, [[[4, 12], [12, 36]], [[12, 36], [36, 108]]])
    >>> known = Dataspace.from_table(people, [Margin("sex"), Margin("vote")])
    >>> more = Dataspace.from_table(people, [Margin("sex"), Margin("vote"), Margin("ward")])
    >>> for public in (known, more):
    ...     test = planned_test(public, "sex", "vote", Budget.pure(1))
    ...     print(test.noise.sensitivity, round(test.power(2.0, 0.05, Alternative.GREATER), 3))
    1 0.639
    2 0.498
    """
    refuse_untestable(dataspace.schema, dataspace, rows, columns)
    mechanism = canonical_mechanism(dataspace, adjacency, rows, columns, tuple(strata), privacy)
    return UmpuTest(margins_of(mechanism.cell), mechanism.noise_law)


def canonical_mechanism(
    dataspace: Dataspace,
    adjacency: Adjacency | None,
    rows: str,
    columns: str,
    strata: tuple[str, ...],
    privacy: Tradeoff | Budget,
) -> CanonicalMechanism:
    """Return the canonical noise for a guarantee; the worst case a(t) of the dataspace unless an
    adjacency is given.
    """
    # Every published total counts, not only the two margins: further ones may force more records to
    # change at once.
    used = Ball(semi_adjacency(dataspace).bound) if adjacency is None else adjacency
    space = CellSpace(dataspace, used, rows, columns, strata)
    space.refuse_idle()
    return CanonicalMechanism(space, find_claimable_curve(privacy), space.linf)


_LARGEST = 10**8
_LONGEST = 100
_TWO_MARGINS = Ball(3)
_PRIVATE, _PUBLIC = "semi-private UMPU", "without privacy (UMPU)"
_NAIVE, _CORRECTED = "naive, classical critical value", "naive, corrected to size alpha"


def power(
    margins: TwoByTwo | Strata,
    privacy: Tradeoff | Budget,
    odds_ratio: float,
    *,
    alpha: float = 0.05,
    alternative: Alternative = Alternative.TWO_SIDED,
    adjacency: Adjacency = _TWO_MARGINS,
) -> float:
    """Return the probability that the semi-private test rejects ω = 1 when ω is `odds_ratio`, given
    the margins.

    Parameters
    ----------
    margins
        The public margins, of one table or of strata.
    adjacency
        How many records change together: a(t) = 3 if only the margins are exact, and more with
        other exact statistics. The noise is stretched by floor(a/2).

    Examples
    --------
    >>> margins = TwoByTwo(200, 200, 400)
    >>> for a in (3, 4):
    ...     print(round(power(margins, Budget.pure(1), 2.0, adjacency=Ball(a)), 4))
    0.9138
    0.8558
    """
    noise = canonical_noise(privacy, _moves(adjacency))
    return UmpuTest(margins, noise).power(odds_ratio, alpha, alternative)


def sample_size(
    odds_ratio: float,
    privacy: Tradeoff | Budget | None,
    *,
    target: float = 0.8,
    alpha: float = 0.05,
    alternative: Alternative = Alternative.TWO_SIDED,
    row_share: float = 0.5,
    column_share: float = 0.5,
    adjacency: Adjacency = _TWO_MARGINS,
) -> int:
    """Return the least n such that the test has power `target` at an odds ratio for n records and
    for any more.

    The margins are shares of n, rounded to whole records; without the rounding the power would grow
    with n. Along all n that round the same way (n, n + d, n + 2d, …, with d the
    common denominator of the shares) it does grow, so bisection finds an n that suffices, and
    the last n within the next d that does not is the last of all. If d is above 100, the next
    100 are looked at.

    Parameters
    ----------
    odds_ratio
        The odds ratio to find; on the side of 1 that the alternative names.
    privacy
        The guarantee, or None for the test without privacy.
    row_share, column_share
        The shares of records in the first row and in the first column.
    adjacency
        How many records move together, see `power`.

    Examples
    --------
    >>> sample_size(2.0, Budget.pure(1)), sample_size(2.0, None)
    (292, 265)
    """
    check_level(target, "the power")
    check_level(row_share, "the row share")
    check_level(column_share, "the column share")
    alternative = Alternative(alternative)
    _check_side(odds_ratio, alternative)
    if target <= alpha:
        raise InputError(f"the power must be above alpha, and {target} is not above {alpha}")
    # Uniform noise randomizes the test without privacy, so its size is alpha exactly, like
    # that of the private test it is compared with.
    noise = Recursive.none() if privacy is None else canonical_noise(privacy, _moves(adjacency))

    def enough(n: int) -> bool:
        row = round(row_share * n)
        column = round(column_share * n)
        margins = TwoByTwo(row, column, n)
        if margins.degenerate:
            return False
        test = UmpuTest(margins, noise)
        return test.power(odds_ratio, alpha, alternative) >= target

    # Doubling and bisection find an n that suffices next to one that does not. That is not yet the
    # answer: rounded margins let the power dip again for larger n.
    high = 4
    while not enough(high):
        high *= 2
        if high > _LARGEST:
            raise Refused(
                f"more than {_LARGEST:,} records would be needed: ask for less power or a weaker"
                " guarantee"
            )
    low = high // 2 if high > 4 else 1
    low, high = whole_bisection(lambda n: not enough(n), low, high)
    row_fraction = Fraction(row_share).limit_denominator(_LONGEST)
    column_fraction = Fraction(column_share).limit_denominator(_LONGEST)
    period = math.lcm(row_fraction.denominator, column_fraction.denominator)
    # n + d rounds as n does and has more power, so a period without a failure means that none
    # follows.
    last_failure, n = low, high
    # python rounds halves to even: twice the period
    while n - last_failure <= min(2 * period, _LONGEST):
        if not enough(n):
            last_failure = n
        n += 1
    return last_failure + 1


def _moves(adjacency: Adjacency) -> int:
    """By how much x11 can change."""
    # Which exchanges there are depends on what is exact, which the margins alone do not say.
    if not adjacency.protects_groups or adjacency.a < 2:
        raise InputError(
            "the power before any data needs how many records move together, at least 2: see"
            " planned_test"
        )
    return adjacency.swaps


@frozen(eq=False)
class PowerCurves:
    """Power against the odds ratio, one curve for each test. The value at ω = 1 is the size of the
    test.

    >>> list(
    ...     power_curves(TwoByTwo(50, 50, 100), Budget.pure(1), [1.0, 2.0], replicates=100).curves
    ... )[:2]
    ['semi-private UMPU', 'without privacy (UMPU)']
    """

    margins: TwoByTwo
    odds_ratios: NDArray[np.float64]
    curves: dict[str, NDArray[np.float64]]
    alpha: float
    alternative: Alternative

    def to_json(self) -> dict[str, Any]:
        """Return the curves as plain values."""
        margins = {"row": self.margins.row, "column": self.margins.column, "n": self.margins.n}
        power = {name: curve.tolist() for name, curve in self.curves.items()}
        return {
            "margins": margins,
            "odds_ratios": self.odds_ratios.tolist(),
            "power": power,
            "alpha": self.alpha,
            "alternative": str(self.alternative),
        }


def power_curves(
    margins: TwoByTwo,
    privacy: Tradeoff | Budget,
    odds_ratios: Sequence[float],
    *,
    alpha: float = 0.05,
    alternative: Alternative = Alternative.GREATER,
    replicates: int = 20_000,
    randomness: Randomness | None = None,
) -> PowerCurves:
    """Return the power of the semi-private test, of the test without privacy, and of the naive
    approach.

    The naive approach is simulated, for (ε, δ) and Gaussian guarantees: independent Laplace noise
    of scale 2a/ε, or normal noise with ``σ = √2 a/μ``, in all four cells (a = 3), then the
    classical test of the log odds ratio. Its size is not alpha, so a second curve uses the critical
    value that makes it so.

    >>> found = power_curves(TwoByTwo(100, 100, 200), Budget.pure(1), [1.0, 3.0], replicates=2000)
    >>> float(found.curves["semi-private UMPU"][0].round(6))
    0.05
    """
    check_level(alpha, "alpha")
    alternative = Alternative(alternative)
    grid = np.asarray(odds_ratios, dtype=np.float64)
    tests = {
        _PRIVATE: UmpuTest(margins, canonical_noise(privacy)),
        _PUBLIC: UmpuTest(margins, Recursive.none()),
    }
    curves = {}
    for name, test in tests.items():
        powers = [test.power(float(w), alpha, alternative) for w in grid]
        curves[name] = np.array(powers)
    spread = _naive_spread(find_claimable_curve(privacy), a=3)
    if spread is not None:
        # A simulation is no release: a fixed seed gives the same curves every time.
        source = generator(SeededRandomness(0) if randomness is None else randomness)
        curves |= _naive_curves(margins, spread, grid, alpha, alternative, replicates, source)
    return PowerCurves(margins, grid, curves, alpha, alternative)


def _check_side(odds_ratio: float, alternative: Alternative) -> None:
    if alternative is Alternative.GREATER:
        on_its_side = odds_ratio > 1
    elif alternative is Alternative.LESS:
        on_its_side = 0 < odds_ratio < 1
    else:
        on_its_side = odds_ratio > 0 and odds_ratio != 1
    if not on_its_side or not math.isfinite(odds_ratio):
        raise InputError(
            f"the alternative {alternative} never finds an odds ratio of {odds_ratio}: give the"
            " other side"
        )


def _naive_spread(f: Tradeoff, a: int) -> tuple[str, float] | None:
    """The noise that ordinary privacy, pushed to a records by the group argument, puts into each
    cell.
    """
    if isinstance(f, Gaussian):
        return "normal", math.sqrt(2 / f.mu_squared) * a
    if isinstance(f, Approximate) and f.size == 1 and f.epsilon0 > 0:
        return "laplace", 2 * a / float(f.epsilon0)
    return None


def _naive_curves(
    margins: TwoByTwo,
    spread: tuple[str, float],
    odds_ratios: NDArray[np.float64],
    alpha: float,
    alternative: Alternative,
    replicates: int,
    source: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """How often the classical test of noisy tables rejects: log odds ratio over its error, with 1/2
    in each cell.
    """
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    remaining = margins.n - margins.row - margins.column
    noise_name, scale = spread
    draw_noise = getattr(source, noise_name)

    def evidence(odds_ratio: float) -> NDArray[np.float64]:
        law = margins.law(odds_ratio)
        x = source.choice(law.values, size=replicates, p=law.pmf)
        cells = np.stack([x, margins.row - x, margins.column - x, remaining + x])
        noise = draw_noise(scale=scale, size=cells.shape)
        # Noise makes counts negative, which have no logarithm: cut at 0 and add the usual half.
        noisy = np.maximum(cells + noise, 0.0) + 0.5
        error = np.sqrt((1 / noisy).sum(axis=0))
        z: NDArray[np.float64] = np.asarray(signs @ np.log(noisy) / error)
        if alternative is Alternative.TWO_SIDED:
            return np.abs(z)
        return -z if alternative is Alternative.LESS else z

    null = evidence(1.0)
    tail = alpha / 2 if alternative is Alternative.TWO_SIDED else alpha
    # The classical error leaves the noise out, so its critical value has the wrong size. The
    # quantile of the simulated null is what a fair comparison needs.
    limits = {
        _NAIVE: -float(scipy.special.ndtri(tail)),
        _CORRECTED: float(np.quantile(null, 1 - alpha)),
    }
    evidences = [evidence(float(odds_ratio)) for odds_ratio in odds_ratios]
    curves = {}
    for name, limit in limits.items():
        rejected = [np.mean(each > limit) for each in evidences]
        curves[name] = np.array(rejected)
    return curves

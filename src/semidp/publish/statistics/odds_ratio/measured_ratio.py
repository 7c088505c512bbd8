"""A published test of the (common) odds ratio of a 2×2 table, or of one a stratum.

An `OddsRatioResult` holds nothing but public numbers and can be rebuilt from them. The statistics
behind it are in `umpu`, the noise in `canonical`; the pipeline draws U.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism, CellSpace
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.promise.noise.canonical import canonical_noise, find_claimable_curve
from semidp.promise.noise.randomness import Randomness
from semidp.promise.spaces.adjacency import Adjacency, Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.statistics.odds_ratio.hypergeometric import (
    Strata,
    TwoByTwo,
    margins_of,
    refuse_untestable,
)
from semidp.publish.statistics.odds_ratio.umpu import Alternative, Interval, UmpuTest
from semidp.publish.written_values import check_level


@dataclass(frozen=True)
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
        (D_t, A_a, f). The noise is canonical for f, stretched by what x11 can move between adjacent
        datasets: floor(a/2), or less where the margins leave less room; under exchange what one
        exchange moves.
    alternative
        What the p-value and the default interval look for.
    private
        False where U was drawn from a seed.
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

    def __post_init__(self) -> None:
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
        """Whether the test finds no other odds ratio less often than ω = 1."""
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
    """Return the test that `odds_ratio_test` would make, from public totals alone: its power before
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

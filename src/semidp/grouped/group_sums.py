"""Private sums, means and proportions by group beside exact group counts, with standard errors and a comparison.

Means are noisy sums over exact counts. Where the noise comes from is in `queries`; regression is in `regression`.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome, Source, open_source
from semidp.errors import InputError
from semidp.exact import Number
from semidp.grouped.inputs import check_binary, open_groups, read_sums
from semidp.grouped.intervals import LEVEL, Intervals, each_level, finite, half_widths, level_of
from semidp.grouped.outcome_spread import FromNoise, NoisyPart, Spread, SquareSum
from semidp.guarantees import Guarantee
from semidp.mechanisms import LaplaceMechanism, Measurement, Mechanism, outcome_mechanism
from semidp.noise import Randomness
from semidp.queries import RankSpace, SumSpace, sum_space
from semidp.spaces import Adjacency, Margin
from semidp.tables import Feature, Schema
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]
By = Sequence[Margin | str] | Margin | str
"""The groups: a feature or a margin, or several."""

_AT_ONCE = 1 << 22  # numbers that a comparison holds at a time
_MOST_PAIRS = 10_000  # differences of groups


@dataclass(frozen=True, eq=False)
class Estimates:
    """One number a group with its standard error; a group without records has no mean, which is NaN.

    Parameters
    ----------
    groups
        The levels of each group.
    counts
        The exact number of records of each group.
    values, standard_errors
        The estimates and their errors.
    guarantee
        What everything measured for them guarantees.
    rounding
        The most by which rounding each record to the grid can have moved a value, half a step a record: a bias that the
        standard errors do not hold. None where it is not known.
    """

    groups: tuple[tuple[str, ...], ...]
    counts: NDArray[np.int64] = field(repr=False)
    values: Floats = field(repr=False)
    standard_errors: Floats = field(repr=False)
    guarantee: Guarantee | None = field(default=None, repr=False)
    rounding: Floats | None = field(default=None, repr=False)

    @property
    def coarse(self) -> bool:
        """Whether the grid can have moved a value by more than its standard error: use a finer one.

        >>> one = (("a",),), np.array([100]), np.array([0.5]), np.array([0.02])
        >>> Estimates(*one, rounding=np.array([0.05])).coarse, Estimates(*one, rounding=np.array([0.0005])).coarse
        (True, False)
        """
        return self.rounding is not None and bool((self.rounding > self.standard_errors)[self.counts > 0].any())

    def rows(self) -> Iterator[tuple[tuple[str, ...], int, float, float]]:
        """Yield each group with its count, estimate and standard error."""
        columns = (self.counts.tolist(), self.values.tolist(), self.standard_errors.tolist())
        yield from zip(self.groups, *columns, strict=True)

    def to_json(self) -> dict[str, Any]:
        """Return the estimates as plain values, None for a mean that does not exist."""
        return {
            "groups": [list(group) for group in self.groups],
            "counts": self.counts.tolist(),
            "values": [finite(value) for value in self.values.tolist()],
            "standard_errors": [finite(value) for value in self.standard_errors.tolist()],
        }


@dataclass(frozen=True)
class Comparison:
    """Whether group means differ: ``Σ (m_g - m̄)²`` weighted by precision, against its chi-squared distribution.

    The reference is exact for normal errors; it is an approximation where Laplace noise dominates.

    Parameters
    ----------
    statistic, degrees, pooled
        The chi-squared statistic, its degrees of freedom, and the common mean.
    sampling_sd
        The standard deviation within groups that the errors hold for; None where they are those of the noise alone.
    widened
        The p-value that allows for the errors of `sampling_sd`, where that was estimated.

    Examples
    --------
    >>> Comparison(statistic=3.0, degrees=2, pooled=0.5).p_value
    0.22313...
    """

    statistic: float
    degrees: int
    pooled: float
    sampling_sd: float | None = None
    widened: float | None = None

    @property
    def p_value(self) -> float:
        """The probability of a statistic at least as large where all means are equal; 1 where nothing is compared."""
        from scipy.special import chdtrc

        if self.widened is not None:
            return self.widened
        return float(chdtrc(self.degrees, self.statistic)) if self.degrees else 1.0


@dataclass(frozen=True, eq=False)
class ByBlocks(FromNoise):
    """What was measured by sets of groups whose counts are public; a set may be left out where there is one."""

    mechanism: Mechanism
    measurement: Measurement

    def _measured(self) -> Iterable[NoisyPart | None]:
        return (self,)

    @property
    def space(self) -> SumSpace | RankSpace:
        """The groups, and what the noise is calibrated to."""
        raise NotImplementedError

    def groups(self, block: Margin | None = None) -> tuple[tuple[str, ...], ...]:
        """Return the levels of each group of a set, in the order of its cells."""
        schema, block = self._public(block)
        if not block.names:
            return (("all",),)
        part = schema.restrict(block.names)
        paths = [feature.paths() for feature in part.features]
        # Cells come in the schema's order, but a row's levels in the block's, which is what its columns are headed by.
        places = [(part.axis(name), part.feature(name).names.index(name)) for name in self.columns(block)]
        return tuple(
            tuple(paths[axis][index[axis]][depth] for axis, depth in places) for index in np.ndindex(*part.shape)
        )

    def columns(self, block: Margin | None = None) -> tuple[str, ...]:
        """Return the names of what a group's levels are: the set's features, a nested one with its whole path."""
        schema, block = self._public(block)
        own = {name: schema.feature(name).names for name in block.names}
        return tuple(dict.fromkeys(part for name, path in own.items() for part in path[: path.index(name) + 1]))

    def _public(self, block: Margin | None) -> tuple[Schema, Margin]:
        schema = self.space.dataspace.schema
        assert schema is not None
        return schema, self.space.blocks[self._number(block)]

    def _number(self, block: Margin | None) -> int:
        blocks = self.space.blocks
        if block is None and len(blocks) == 1:
            return 0
        if block not in blocks:
            raise InputError(f"say by which groups: {', '.join(map(str, blocks))}")
        return blocks.index(block)


@dataclass(frozen=True, eq=False)
class GroupSums(ByBlocks):
    """Noisy sums of an outcome by group, and what follows from them. Nothing in it is confidential.

    Examples
    --------
    >>> records = {"school": np.repeat(["a", "b"], [40, 60]), "score": np.repeat([55, 70], [40, 60])}
    >>> from semidp.noise import SeededRandomness
    >>> score = Outcome("score", 0, 100, steps=100)
    >>> found = sums(records, score, ["school"], Budget.gdp(1), randomness=SeededRandomness(1))
    >>> found.means().standard_errors.round(2).tolist()
    [5.0, 3.33]
    >>> found.guarantee.adjacency.a, found.private
    (2, False)
    """

    squares: SquareSum | None = None

    def _measured(self) -> Iterable[NoisyPart | None]:
        return self, self.squares

    @property
    def space(self) -> SumSpace:
        """The sensitivity space that the noise is calibrated to."""
        space = self.mechanism.space
        assert isinstance(space, SumSpace)
        return space

    @property
    def outcome(self) -> Outcome:
        """The outcome with its bounds and grid."""
        return self.space.outcome

    @property
    def blocks(self) -> tuple[Margin, ...]:
        """What the sums are by."""
        return self.space.blocks

    def sums(self, block: Margin | None = None, *, sampling_sd: float | None = None) -> Estimates:
        """Return the sums of one block, ``lower n_g + width · steps``.

        Parameters
        ----------
        block
            Which block; may be left out where there is one.
        sampling_sd
            The standard deviation of the outcome within a group, where the standard errors shall hold for the
            population that the records were drawn from and not for the records themselves.
        """
        number = self._number(block)
        counts = self.space.counts[number].ravel()
        values = float(self.outcome.lower) * counts + float(self.outcome.width) * self._steps(number)
        errors = np.sqrt(self._variances(number) + counts * (sampling_sd or 0.0) ** 2)
        rounding = counts * float(self.outcome.width) / 2
        return Estimates(self.groups(self.blocks[number]), counts, values, errors, self.guarantee, rounding)

    def means(self, block: Margin | None = None, *, sampling_sd: float | None = None) -> Estimates:
        """Return the means of one block: noisy sums over exact counts, NaN for a group without records."""
        total = self.sums(block, sampling_sd=sampling_sd)
        n = np.where(total.counts > 0, total.counts, np.nan)
        values, errors = total.values / n, total.standard_errors / n
        rounding = np.full(len(values), float(self.outcome.width) / 2)
        return Estimates(total.groups, total.counts, values, errors, total.guarantee, rounding)

    def within_sd(self, block: Margin | None = None) -> Spread:
        """Return the pooled standard deviation within groups, from the measured sum of squares.

        ``(Σ y² - Σ_g S_g²/n_g)/(n - g)``, corrected for what the noise adds to the squared sums. An outcome of one step
        (a yes or no) needs no sum of squares: it is its own square. The number knows its own errors, for `compare`.
        """
        number = self._number(block)
        if self.squares is None and self.outcome.steps > 1:
            raise InputError(
                "the spread within groups was not measured: give a spread_budget, or the standard deviation if known"
            )
        return self._spread(number)

    def widest_sd(self, block: Margin | None = None) -> Spread:
        """Return the largest standard deviation within groups that the means and the bounds allow.

        Values y between 0 and B have ``Σ y² <= B Σ y``. It is `within_sd` where that can be had.
        """
        return self._spread(self._number(block))

    def sum_intervals(
        self,
        block: Margin | None = None,
        *,
        level: Number = LEVEL,
        sampling_sd: float | None = None,
        simultaneous: bool = False,
    ) -> Intervals:
        """Return an interval for each sum; the parameters are those of `mean_intervals`."""
        number = self._number(block)
        return self._intervals(self.sums(self.blocks[number]), number, False, level, sampling_sd, simultaneous)

    def mean_intervals(
        self,
        block: Margin | None = None,
        *,
        level: Number = LEVEL,
        sampling_sd: float | None = None,
        simultaneous: bool = False,
    ) -> Intervals:
        """Return an interval for each mean: of the records, or of their population where `sampling_sd` is given.

        Parameters
        ----------
        block
            Which groups; may be left out where there is one set.
        level
            The probability that an interval holds the mean.
        sampling_sd
            The standard deviation within groups: a number that is known, or a `Spread` (`within_sd`, `widest_sd`),
            whose own errors then widen the intervals.
        simultaneous
            Whether all intervals of the set hold at once with that probability.

        Examples
        --------
        >>> from semidp.noise import SeededRandomness
        >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.repeat([2, 8], 500)}
        >>> stay = sums(records, Outcome("days", 0, 10, 10), ["ward"], Budget.gdp(1), randomness=SeededRandomness(1))
        >>> for found in (stay.mean_intervals(), stay.mean_intervals(sampling_sd=1.0)):
        ...     print(found.about, ((found.upper - found.lower) / 2).round(3).tolist())
        noise [0.079, 0.079]
        noise and sampling [0.119, 0.119]
        """
        number = self._number(block)
        return self._intervals(self.means(self.blocks[number]), number, True, level, sampling_sd, simultaneous)

    def _intervals(
        self,
        found: Estimates,
        number: int,
        mean: bool,
        level: Number,
        sampling_sd: float | None,
        simultaneous: bool,
    ) -> Intervals:
        wanted, there = level_of(level), found.counts > 0
        each = each_level(wanted, int(there.sum()), self.mechanism, simultaneous)
        n = found.counts[there].astype(np.float64)
        scale = 1 / n if mean else np.ones(len(n))
        cell = self._weights(number, np.flatnonzero(there)[:1].tolist(), np.array([float(self.outcome.width)]))
        half = np.full(len(there), math.nan if mean else 0.0)
        if sampling_sd is None:
            half[there] = half_widths(self.mechanism, [cell], each)[0] * scale if len(n) else scale
        else:
            squares = [
                scale_of**2 * count * _variances_of(sampling_sd) for scale_of, count in zip(scale, n, strict=True)
            ]
            half[there] = half_widths(self.mechanism, [cell * factor for factor in scale], each, squares)
        return Intervals.around(found.groups, found.values, half, wanted, sampling_sd is not None, simultaneous)

    def difference_intervals(
        self,
        block: Margin | None = None,
        *,
        against: Sequence[str] | None = None,
        level: Number = LEVEL,
        sampling_sd: float | None = None,
        simultaneous: bool = False,
    ) -> Intervals:
        """Return an interval for the difference of the means of two groups with records, the first less the second.

        Parameters
        ----------
        block, level, sampling_sd, simultaneous
            As for `mean_intervals`.
        against
            The levels of the group that every other is compared with; each pair is compared if left out.

        Examples
        --------
        >>> from semidp.noise import SeededRandomness
        >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.repeat([2, 8], 500)}
        >>> stay = sums(records, Outcome("days", 0, 10, 10), ["ward"], Budget.gdp(1), randomness=SeededRandomness(1))
        >>> found = stay.difference_intervals()
        >>> found.names, bool(found.lower[0] < -6 < found.upper[0])
        ((('a', 'b'),), True)
        """
        number = self._number(block)
        found, wanted = self.means(self.blocks[number]), level_of(level)
        there = np.flatnonzero(found.counts > 0).tolist()
        if against is None:
            pairs = list(itertools.combinations(there, 2))
        else:
            one = tuple([against] if isinstance(against, str) else against)
            if one not in found.groups or found.groups.index(one) not in there:
                raise InputError(f"there is no group {', '.join(one)} with records to compare with: name one there is")
            pairs = [(other, found.groups.index(one)) for other in there if found.groups[other] != one]
        if len(pairs) > _MOST_PAIRS:
            raise InputError(f"there are {len(pairs):,} pairs of groups: say against which group to compare")
        n, width = found.counts.astype(np.float64), float(self.outcome.width)
        weights = [self._weights(number, pair, np.array([width / n[pair[0]], -width / n[pair[1]]])) for pair in pairs]
        squares = (
            None
            if sampling_sd is None
            else [_variances_of(sampling_sd) * (1 / n[one_of] + 1 / n[other]) for one_of, other in pairs]
        )
        half = half_widths(
            self.mechanism, weights, each_level(wanted, len(pairs), self.mechanism, simultaneous), squares
        )
        values = np.array([found.values[one_of] - found.values[other] for one_of, other in pairs])
        names = ((*found.groups[one_of], *found.groups[other]) for one_of, other in pairs)
        return Intervals.around(names, values, half, wanted, sampling_sd is not None, simultaneous)

    def _weights(self, number: int, groups: Sequence[int], weights: Floats) -> Floats:
        """The weights of the query's noise, those that are not zero, in a weighted sum of some groups of one set."""
        if len(self.blocks) == 1:
            return weights
        whole = np.zeros(self.space.shape)
        whole[self.space.slices[number].start + np.array(groups)] = weights
        whole = self.space.project(whole)
        return np.asarray(whole[whole != 0])

    def _spread(self, number: int) -> Spread:
        """The spread within the groups of one set, with Σ y² as measured, or as large as the sums allow."""
        counts = self.space.counts[number].ravel().astype(np.float64)
        there = counts > 0
        n, noise, range_ = counts[there], self._noise, float(self.outcome.upper - self.outcome.lower)
        above = float(self.outcome.width) * self._steps(number)[there]
        explained = float(((above**2 - self._variances(number)[there]) / n).sum())
        degrees = int(n.sum()) - len(n)
        means = np.clip(above / n, 0.0, range_)
        if self.squares is not None:
            squares, error = self.squares.value, self.squares.standard_error**2 + noise * float((4 * means**2).sum())
            least = float(self.squares.outcome.width) / math.sqrt(12)
        else:
            squares, error = range_ * float(above.sum()), noise * float(((range_ - 2 * means) ** 2).sum())
            least = 0.0
        share = 1 / max(degrees, 1)
        mechanisms = [self.mechanism, *([self.squares.mechanism] if self.squares else [])]
        return Spread(
            (squares - explained) * share,
            degrees=degrees,
            noise=math.sqrt(error + 2 * float(((noise / n) ** 2).sum())) * share,
            largest=range_ / 2,
            least=least,
            heavy=any(isinstance(mechanism, LaplaceMechanism) for mechanism in mechanisms),
        )

    def compare(self, block: Margin | None = None, *, sampling_sd: float | None = None) -> Comparison:
        """Test whether the means of all groups with records are equal, as an analysis of variance does.

        With V the covariance of the means, ``Q = (m - m̄)' V^-1 (m - m̄)`` has a chi-squared distribution with one
        degree of freedom less than groups. Without `sampling_sd` V holds the noise alone, and the question is about the
        records; with it it is about the population that they were drawn from. Means without any error, as under a huge
        budget, need no test: nothing is compared.

        A known standard deviation is a float. One that was estimated (`within_sd`, `widest_sd`) is a `Spread`: the
        p-value is then the mean of those for all that the true one may be (`Spread.plausible`). Without noise this is
        the F test; with much of it, it rejects less often than stated.

        Parameters
        ----------
        block
            Which groups; may be left out where there is one set.
        sampling_sd
            The standard deviation of the outcome within a group.
        """
        from scipy.special import chdtrc

        number = self._number(block)
        found = self.means(self.blocks[number])
        sd = None if sampling_sd is None else float(sampling_sd)
        there = found.counts > 0
        n, means = found.counts[there].astype(np.float64), found.values[there]
        if len(n) < 2:
            return Comparison(0.0, 0, float(means.mean()) if len(n) else math.nan, sd)
        if not (self._noise or sd):
            return Comparison(0.0, 0, float(n @ means / n.sum()), sd)
        statistic, pooled = self._statistics(number, n, means, np.array([sd or 0.0]))
        compared = Comparison(float(statistic[0]), len(n) - 1, float(pooled[0]), sd)
        if not isinstance(sampling_sd, Spread):
            return compared
        sds = sampling_sd.plausible()
        parts = np.array_split(sds, min(-(-len(sds) * len(n) // _AT_ONCE), len(sds)))
        statistics = np.concatenate([self._statistics(number, n, means, part)[0] for part in parts])
        return replace(compared, widened=float(chdtrc(compared.degrees, statistics).mean()))

    def _statistics(self, number: int, n: Floats, means: Floats, sds: Floats) -> tuple[Floats, Floats]:
        """Return Q and m̄ for each of several standard deviations within groups."""
        # V is a diagonal less κ τ² vv' with v = 1/n, so its inverse is a diagonal plus a multiple of one product
        precision = 1 / (self._noise / n**2 + np.multiply.outer(sds**2, 1 / n))
        taken, v = self._noise * self.space.common_part(number), 1 / n
        share = taken / (1 - taken * (precision @ v**2))

        def inverse(x: Floats) -> Floats:
            return np.asarray(precision * x + (share * ((precision * x) @ v))[:, None] * precision * v)

        weights = inverse(np.ones(len(n)))
        pooled = (weights @ means) / weights.sum(axis=1)
        gaps = means - pooled[:, None]
        return (gaps * inverse(gaps)).sum(axis=1), pooled

    def _steps(self, number: int) -> Floats:
        return self.measurement.projected[self.space.slices[number]]

    @property
    def _noise(self) -> float:
        """The variance of the noise in one sum before projection, in squared units of the outcome."""
        return float(self.outcome.width) ** 2 * self.mechanism.variance

    def _variances(self, number: int) -> Floats:
        """The variances of one block's sums by the noise, in squared units of the outcome."""
        return self._noise * self.space.variances()[self.space.slices[number]]


def sums(
    data: Any,
    outcome: Outcome,
    by: By,
    budget: Budget,
    *,
    invariants: Sequence[Margin] = (),
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    spread_budget: Budget | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> GroupSums:
    """Release sums of an outcome by groups whose counts are published exactly.

    Parameters
    ----------
    data
        A file, a data frame, an Ibis table or a `Source`.
    outcome
        The private column, its declared bounds and its grid: values are clipped and rounded record by record.
    by
        The groups: a feature or margin, or several whose sums are released together. Their counts become public.
    budget
        What may be spent on the sums.
    invariants
        What else is published exactly.
    features
        Declared features; the levels of others are read, since their counts are public.
    adjacency
        How many records may differ; a(t) of all that is published unless given.
    spread_budget
        What may be spent on a sum of squares, from which `GroupSums.within_sd` follows.
    randomness
        Where random words come from; the operating system unless given.
    ledger
        Charged before any noise is drawn.
    """
    blocks = blocks_of(by)
    with open_groups(data, (*blocks, *invariants), features, adjacency, ledger, randomness) as groups:
        space = sum_space(groups.dataspace, groups.adjacency, outcome, blocks)
        mechanism, values = outcome_mechanism(space, budget), read_sums(groups.source, space)
        found = groups.measure(f"sums of {outcome.column}", mechanism, values, outcome, spread_budget)
    return GroupSums(mechanism, *found)


def means(data: Any, outcome: Outcome, by: By, budget: Budget, **options: Any) -> Estimates:
    """Release means of an outcome by groups; the parameters are those of `sums`.

    >>> from semidp.noise import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.repeat([2, 8], 500)}
    >>> stay = means(records, Outcome("days", 0, 10, steps=10), ["ward"], Budget.gdp(1), randomness=SeededRandomness(1))
    >>> stay.groups, stay.values.round(1).tolist(), stay.standard_errors.round(2).tolist()
    ((('a',), ('b',)), [2.0, 8.0], [0.04, 0.04])
    >>> stay.guarantee.adjacency.a
    2
    """
    block = _one(by)
    return sums(data, outcome, block, budget, **options).means(block)


def proportions(data: Any, column: str, by: By, budget: Budget, **options: Any) -> Estimates:
    """Release the proportion of records with a 1 in a column of zeros and ones, by groups; other values are refused.

    >>> from semidp.noise import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "cured": np.repeat([0, 1], 500)}
    >>> proportions(records, "cured", ["ward"], Budget.gdp(1), randomness=SeededRandomness(1)).values.round(1).tolist()
    [0.0, 1.0]
    """
    outcome = Outcome(column, 0, 1, steps=1)
    if isinstance(data, Source):
        check_binary(data, column)
        found = means(data, outcome, by, budget, **options)
    else:
        with open_source(data) as source:
            return proportions(source, column, by, budget, **options)
    return replace(found, rounding=np.zeros(len(found.groups)))  # ones and zeros lie on the grid


def blocks_of(by: By) -> tuple[Margin, ...]:
    """Return the sets of groups that `by` names.

    >>> blocks_of("ward"), blocks_of(["ward", Margin("sex", "age")])
    ((Margin('ward'),), (Margin('ward'), Margin('sex', 'age')))
    """
    several = (by,) if isinstance(by, (Margin, str)) else by
    return tuple(block if isinstance(block, Margin) else Margin(block) for block in several)


def _one(by: By) -> Margin:
    if len(blocks_of(by)) != 1:
        raise InputError("means of several blocks are read from sums(): call its means() with the block")
    return blocks_of(by)[0]


def _variances_of(sampling_sd: float) -> Floats:
    """The variances within groups that may be the true one: a known one, or all that an estimate leaves open."""
    return sampling_sd.plausible() ** 2 if isinstance(sampling_sd, Spread) else np.array([sampling_sd**2])

"""The attack: learn from some outputs of a mechanism which of two tables they came from, then count
successes on fresh ones.

The mechanism is a black box: it is called, never opened. Outputs are split in three: the first part
trains a score, the second chooses events, and the third is only counted, so every bound is exact
whatever was tried before.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
from attrs import asdict, define, field, frozen
from numpy.typing import NDArray

from semidp.assess.attack_bounds import (
    Bound,
    Point,
    allowed_power,
    at_least,
    at_most,
    best_bound,
    worst_point,
)
from semidp.assess.pairs import Pair
from semidp.assess.scores import (
    GRID,
    Batch,
    Floats,
    Score,
    digit_scores,
    distance_scores,
    lessons,
    residue_scores,
    select_outputs,
    signed_scores,
)
from semidp.errors import InputError
from semidp.promise.exact import count_noun
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness, SystemRandomness, generator, is_whole
from semidp.promise.progress import Progress, facts, silent
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.plotting import audit_plot

Outputs = NDArray[Any]
Verdict = Literal["convicted", "inconclusive", "survives"]
_OfBatch = Callable[[Batch], NDArray[Any]]
_Tables = tuple[Floats, Floats]
_Pieces = tuple[list[Floats], list[Floats]]

ERROR = 1e-3
"""The largest probability of convicting a mechanism whose claim is true."""

SHRINKAGE = 0.8
"""The power is stated for the same mechanism with this share of its noise, if the pair attains
the claim."""

ENOUGH_POWER = 0.5
"""An audit with less power than this is inconclusive unless it convicts."""

MOST_SAMPLES = 1_000_000
"""The most outputs for each table by default; fewer if time is short."""

# numbers of outputs held at a time: they and their features stay near the processor
_CHUNK = 1 << 17
_MOST_TO_FIT, _MOST_TO_CHOOSE = 50_000, 200_000
_FEWEST = 1_000
# of the attacks that draw the curve
_SIZES = (0.002, 0.01, 0.03, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.92, 0.98)
_TAIL = np.geomspace(1e-4, 0.1, 40)
_LEVELS = np.concatenate([_TAIL, np.linspace(0.1, 0.9, 81)[1:-1], 1 - _TAIL[::-1]])
_SIMULATIONS = 2_000
_SECONDS = 45.0
_PILOT = (20, 2_000)


class Draws(Protocol):
    """A mechanism as an audit sees it: many independent outputs for one table."""

    def __call__(self, values: NDArray[np.int64], count: int, randomness: Randomness) -> Outputs:
        """Return `count` outputs for `values`, along a new first axis."""


@frozen(eq=False, repr=False)
class Audit:
    """Result of an attack on a mechanism.

    Parameters
    ----------
    claim
        The claimed tradeoff curve of the mechanism.
    pair
        The two tables to be told apart.
    points
        The attacks, counted on outputs that had no part in choosing them. Their bounds hold
        simultaneously, except with probability `error`.
    samples
        The number of outputs for each of the two tables.
    error
        The probability of convicting a mechanism whose claim is true, at most.
    power
        The estimated probability that this audit convicts the same mechanism with `less_noise` of
        its noise.

    Examples
    --------
    >>> from semidp.assess.attacked_pairs import worst_pair
    >>> from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> mechanism = RoundedGaussianMechanism.calibrate(two_way()[0], Budget.gdp(1))
    >>> pair, claim = worst_pair(mechanism.space), mechanism.guarantee.tradeoff
    >>> audit = audit_mechanism(
    ...     mechanism.measure_many, pair, claim, samples=2000, randomness=SeededRandomness(7)
    ... )
    >>> audit.is_convicted, audit.bound.unit
    (False, 'mu')
    """

    claim: Tradeoff
    pair: Pair
    points: tuple[Point, ...] = field(repr=False)
    samples: int
    error: float
    power: float

    @property
    def less_noise(self) -> float:
        """The share of the noise for which the power is stated: 0.8, or less if the pair is
        known to cost less than the claim allows.
        """
        return less_noise(self.pair)

    @property
    def is_convicted(self) -> bool:
        """Whether some attack succeeds more often than the claim allows."""
        return any(point.convicts for point in self.points)

    @property
    def verdict(self) -> Verdict:
        """Whether the claim survives an audit that had the power to convict. That does not prove
        the claim.
        """
        if self.is_convicted:
            return "convicted"
        return "survives" if self.power >= ENOUGH_POWER else "inconclusive"

    @property
    def worst(self) -> Point:
        """The attack that beats the claim by most, or comes closest to it."""
        return worst_point(self.points)

    @property
    def bound(self) -> Bound:
        """The lower bound of the privacy loss in the unit of the claim, next to the claim."""
        return best_bound(self.claim, self.points)

    @property
    def mu(self) -> float:
        """The mechanism is not mu-GDP for any smaller mu."""
        return max(point.mu for point in self.points)

    @property
    def epsilon(self) -> float:
        """The mechanism is not epsilon-DP (delta = 0) for any smaller epsilon."""
        return max(point.epsilon() for point in self.points)

    def plot(self, axes: Any = None) -> Any:
        """Draw the attacks next to the claimed curve, on matplotlib axes if given; return the
        figure.
        """
        return audit_plot(self.claim, self.points, axes=axes)

    def __repr__(self) -> str:
        bound = self.bound
        measured, claimed = f"{bound.measured:.4g}", f"{bound.claimed:.4g}"
        loss = f"{bound.unit} at least {measured}, claimed {claimed}"
        evidence = f"{self.samples:,} samples, power {self.power:.2f}"
        return f"Audit({self.verdict}: {loss}; {evidence})"

    def _repr_html_(self) -> str:
        bound = self.bound
        measured, claimed = f"{bound.measured:.4g}", f"{bound.claimed:.4g}"
        rows: list[tuple[str, str]] = [("verdict", self.verdict)]
        rows.append(("privacy loss", f"{bound.unit} at least {measured}; claimed is {claimed}"))
        tables = f"two tables {count_noun(self.pair.records, 'record')} apart"
        rows.append(("samples", f"{self.samples:,} of each of {tables}"))
        power = f"{self.power:.2f}"
        less = f"{1 - self.less_noise:.0%} less noise"
        chance = f"convicts the same mechanism with {less} with probability {power}"
        rows.append(("power", chance))
        rows.append(("false alarms", f"at most {self.error:g}"))
        return facts("Audit", rows)

    def to_json(self) -> dict[str, Any]:
        """Return the audit as plain values."""
        first, second = self.pair.inputs
        pair = {"first": first.tolist(), "second": second.tolist(), "records": self.pair.records}
        return {
            "verdict": self.verdict,
            "claim": self.claim.to_json(),
            "bound": asdict(self.bound),
            "epsilon_at_least": self.epsilon,
            "mu_at_least": self.mu,
            "power": self.power,
            "less_noise": self.less_noise,
            "error": self.error,
            "samples": self.samples,
            "pair": pair,
            "points": [point.to_json() for point in self.points],
        }


def audit_mechanism(
    mechanism: Draws,
    pair: Pair,
    claim: Tradeoff,
    *,
    samples: int = 200_000,
    error: float = ERROR,
    randomness: Randomness | None = None,
    progress: Progress = silent,
    weaker: Draws | None = None,
) -> Audit:
    """Attack a mechanism on one pair of tables, and say whether a claimed tradeoff curve survives.

    An event E that has probability s under one table and p under the other refutes the claim f
    where ``p > 1 - f(1 - s)``. Events are thresholds of scores, some of them learned: of
    distances, of the values that occur, of remainders on several grids and of binary digits. One is
    chosen to convict and some more to draw the curve. Their probabilities are bounded by Clopper
    and Pearson (1934) on held-out outputs, half of the error for the first event and half for the
    others.

    Parameters
    ----------
    mechanism
        Returns outputs of the shape of the tables: ``mechanism(values, count, randomness)``. For a
        mechanism of this package it is its `measure_many`; `one_by_one` turns any other callable
        into one. Distances of real-valued outputs are read on a grid of 2^-20. Of the digits below
        it each byte is compared by itself, and the place of the lowest digit, alone and with the
        size of the output. Other leaks of floating point may pass.
    pair
        The two tables, as `worst_pair` finds them.
    claim
        The tradeoff curve to be tested; it holds for both orders of the pair.
    samples
        Outputs drawn for each table: a fifth (at most 50,000) to learn, three tenths (at most
        200,000) to choose, the rest to count.
    error
        The largest probability of convicting a mechanism whose claim is true.
    randomness
        Where random words come from (default: the operating system).
    weaker
        The same mechanism with 20% less noise, by which the power is estimated (default: outputs
        drawn towards their table, which suits additive noise).

    Examples
    --------
    The paper's Gaussian noise for mu = 1 has variance 4, but three records can move by six
    cells (docs/errata.md):

    >>> from fractions import Fraction
    >>> from semidp.promise.noise.distributions import RoundedGaussian
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> pair = Pair([[2, 1, 1], [1, 2, 1], [1, 1, 2]], [[1, 2, 1], [1, 1, 2], [2, 1, 1]])
    >>> def gaussian_noise(variance):
    ...     return lambda values, count, words: (
    ...         values + RoundedGaussian(variance).sample((count, *values.shape), words)
    ...     )
    >>> for variance in (Fraction(4), Fraction(6)):
    ...     audit = audit_mechanism(
    ...         gaussian_noise(variance),
    ...         pair,
    ...         gaussian(1),
    ...         samples=40_000,
    ...         randomness=SeededRandomness(1),
    ...     )
    ...     print(audit.verdict, audit.mu > 1)
    convicted True
    survives False
    """
    _check(samples, error)
    words = SystemRandomness() if randomness is None else randomness
    curve = claim.symmetric()
    # Half of the error is for the event that is chosen to convict.
    trial = _Trial(mechanism, weaker, pair, curve, error / 2, words, progress, 2 * samples)
    # Outputs are split in three, so what is counted had no part in choosing what is counted.
    training = trained_on(samples)
    choosing = min(samples * 3 // 10, _MOST_TO_CHOOSE)
    counting = samples - training - choosing
    # Every list has two entries: for outputs as drawn, and for outputs with 20% less noise.
    scores, weaker_scores = trial.learn(training)
    scored, weaker_scored = trial.sorted_scores((scores, weaker_scores), choosing)
    convicting = trial.best(scores, scored, counting)
    weaker_event = trial.best(weaker_scores, weaker_scored, counting)
    events = (convicting, *_curve(scores, scored))
    hits, (weaker_hits,) = trial.count([events, (weaker_event,)], counting)
    shares = _error_shares(error, len(events))
    points = []
    for event, event_hits, share in zip(events, hits, shares, strict=True):
        name = event.score.name
        points.append(Point.from_hits(name, event_hits, counting, share, trial.claim))
    power = trial.chance(weaker_hits, counting)
    return Audit(claim, pair, tuple(points), samples, error, power)


def less_noise(pair: Pair) -> float:
    """Return the share of the noise with which a mechanism is to be convicted on a pair.

    Where a pair costs the share s of what is claimed, noise of standard deviation ``sqrt(s)`` is
    what the claim would be true for on this pair alone. The power is stated for 20% less than that.

    >>> less_noise(Pair([1, 0], [0, 1]))
    0.8
    """
    return SHRINKAGE * math.sqrt(min(1.0, pair.share))


def with_less_noise(mechanism: Mechanism) -> Draws | None:
    """Return a mechanism that chooses with 20% less noise; None for additive noise, which outputs
    show.

    >>> from semidp.publish.selection import choose
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> with_less_noise(choose(two_way()[0], Budget.gdp(1))) is None
    True
    """
    weaker = mechanism.with_less_noise(Fraction(SHRINKAGE).limit_denominator(100))
    return None if weaker is None else weaker.measure_many


def trained_on(samples: int) -> int:
    """Return the number of outputs that an audit of `samples` trains on: the first that it draws
    for each table.

    >>> trained_on(20_000)
    4000
    """
    return min(samples // 5, _MOST_TO_FIT)


def affordable_samples(
    mechanism: Draws, pair: Pair, randomness: Randomness, seconds: float = _SECONDS
) -> int:
    """Return the number of samples of each table that take about the given time, at most a million,
    by timing a few.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> pair = Pair([1, 0], [0, 1])
    >>> def silent(values, count, words):
    ...     return np.tile(values, (count, 1))
    >>> affordable_samples(silent, pair, SeededRandomness(1), seconds=3600)
    1000000
    """
    taught = [lesson.features for lesson in lessons(pair)]
    functions: list[_OfBatch] = [*_plain(pair), *taught]
    few = mechanism(pair.inputs[0], _PILOT[0], randomness)
    pilot = select_outputs(Batch(pair, few))
    functions += digit_scores(pilot, pilot)
    rate = 0.0
    for count in _PILOT:
        start = time.perf_counter()
        batch = Batch(pair, mechanism(pair.inputs[0], count, randomness))
        for function in functions:
            function(batch)
        rate = (time.perf_counter() - start) / count
        if rate * count > seconds / 100:
            break
    # two tables, and every output is scored as drawn and with less noise
    affordable = seconds / (4 * max(rate, 1e-9))
    return int(min(MOST_SAMPLES, max(2 * _FEWEST, affordable)))


def shrunk(
    outputs: Outputs,
    table: NDArray[np.int64],
    dither: np.random.Generator,
    share: float = SHRINKAGE,
) -> Outputs:
    """Return what the mechanism would have returned with a share of its noise (default: 80%):
    outputs drawn towards their table.

    Whole numbers stay whole, by rounding up or down at random. Others are put on a grid, because
    otherwise the digits of this product would reveal the table.

    >>> shrunk(np.array([[10.0]]), np.array([0]), np.random.default_rng(0)).tolist()
    [[8.0]]
    """
    noise = share * (outputs - table)
    if np.asarray(outputs).dtype.kind in "iu":
        noise = np.floor(noise + dither.random(noise.shape))
    else:
        noise = np.rint(noise / GRID) * GRID
    return np.asarray(table + noise)


@frozen
class _Event:
    """A score of at least `threshold`: more likely under the alternative than under the null, table
    0 or 1.
    """

    score: Score
    threshold: float
    null: int


@define
class _Trial:
    """A mechanism on trial; `error` is the share of the event that is chosen to convict."""

    mechanism: Draws
    weaker: Draws | None
    pair: Pair
    claim: Tradeoff
    error: float
    randomness: Randomness
    progress: Progress
    total: int
    done: int = 0

    def batches(self, count: int) -> Iterator[tuple[int, tuple[Batch, Batch]]]:
        """Yield which table, and its outputs as drawn and with less noise, in chunks."""
        step = max(1, _CHUNK // self.pair.first.size)
        dither = generator(self.randomness)
        values_read = (self.pair.first, self.pair.second)
        tables = zip(values_read, self.pair.inputs, strict=True)
        for which, (table, values) in enumerate(tables):
            for start in range(0, count, step):
                size = min(step, count - start)
                shape = (size, *table.shape)
                outputs = _read(self.mechanism(values, size, self.randomness), shape)
                if self.weaker is None:
                    weaker_outputs = shrunk(outputs, table, dither, less_noise(self.pair))
                else:
                    weaker_outputs = _read(self.weaker(values, size, self.randomness), shape)
                drawn = Batch(self.pair, outputs)
                yield which, (drawn, Batch(self.pair, weaker_outputs))
                self.done += size
                self.progress("attacking the mechanism", self.done, self.total)

    def evaluate(self, functions: Sequence[Sequence[_OfBatch]], count: int) -> list[list[_Tables]]:
        """Values of functions for the first and for the second table.

        The first list of functions reads outputs as drawn, the second reads outputs with less
        noise.
        """
        pieces: list[list[_Pieces]] = []
        for several in functions:
            pieces.append([([], []) for _ in several])
        for which, batches in self.batches(count):
            for several, batch, held in zip(functions, batches, pieces, strict=True):
                for function, of_tables in zip(several, held, strict=True):
                    of_tables[which].append(function(batch))
        values: list[list[_Tables]] = []
        for held in pieces:
            stacked = []
            for first, second in held:
                stacked.append((np.hstack(first), np.hstack(second)))
            values.append(stacked)
        return values

    def sorted_scores(self, scores: Sequence[Sequence[Score]], count: int) -> list[list[_Tables]]:
        """Scores of either table, in increasing order."""
        in_order: list[list[_Tables]] = []
        for tables in self.evaluate(scores, count):
            ordered = []
            for first, second in tables:
                ordered.append((np.sort(first), np.sort(second)))
            in_order.append(ordered)
        return in_order

    def learn(self, count: int) -> list[tuple[Score, ...]]:
        """All scores; the learned ones are trained on outputs as drawn, and on outputs with less
        noise.
        """
        taught = lessons(self.pair)
        features: list[_OfBatch] = [*(lesson.features for lesson in taught), select_outputs]
        scores: list[tuple[Score, ...]] = []
        for *rows, digits in self.evaluate([features, features], count):
            learned = []
            for lesson, (first, second) in zip(taught, rows, strict=True):
                learned.append(lesson.fit_score(first, second))
            by_digits = digit_scores(*digits)
            scores.append((*_plain(self.pair), *learned, *by_digits))
        return scores

    def best(self, scores: Sequence[Score], seen: Sequence[_Tables], trials: int) -> _Event:
        """Return the event that is most likely to convict, by its expected counts.

        Scores of either table are given in increasing order.
        """
        candidates: list[tuple[float, _Event]] = []
        for score, tables in zip(scores, seen, strict=True):
            # A stable sort merges the two increasing runs in linear time.
            both = np.sort(np.concatenate(tables), kind="stable")
            last = len(both) - 1
            places = np.ceil(last * _LEVELS).astype(np.intp)
            thresholds = np.unique(both[places])
            shares = []
            for values in tables:
                below = np.searchsorted(values, thresholds)
                shares.append(1 - below / len(values))
            for null in (0, 1):
                promise = self.promise(shares[null], shares[1 - null], trials)
                best = int(promise.argmax())
                event = _Event(score, float(thresholds[best]), null)
                candidates.append((float(promise[best]) - score.handicap, event))
        return max(candidates, key=lambda candidate: candidate[0])[1]

    def promise(self, size: Floats, power: Floats, trials: int) -> Floats:
        """The expected excess of the lower bound of the power over the allowed power, in standard
        deviations.
        """
        high = at_most(size * trials, trials, self.error / 2)
        low = at_least(power * trials, trials, self.error / 2)
        allowed = allowed_power(self.claim, high)
        # The delta method: an error of the size counts by the slope of what is allowed at that
        # size.
        beyond = np.minimum(high * 1.01, 1.0)
        rise = allowed_power(self.claim, beyond) - allowed
        slope = rise / np.maximum(beyond - high, 1e-12)
        power_variance = np.maximum(power * (1 - power), 1 / trials)
        size_variance = np.maximum(size * (1 - size), 1 / trials)
        deviation = np.sqrt((power_variance + slope**2 * size_variance) / trials)
        return np.asarray((low - allowed) / deviation)

    def count(self, events: Sequence[Sequence[_Event]], count: int) -> list[list[tuple[int, int]]]:
        """Hits of events under null and alternative.

        The first list of events is counted on outputs as drawn, the second on outputs with less
        noise.
        """
        hits = []
        for several in events:
            hits.append(np.zeros((len(several), 2), dtype=np.int64))
        for which, batches in self.batches(count):
            for several, batch, of_tables in zip(events, batches, hits, strict=True):
                # Events of one score share its values, which are the costly part.
                values = {event.score.name: event.score(batch) for event in several}
                for number, event in enumerate(several):
                    is_hit = values[event.score.name] >= event.threshold
                    of_tables[number, which] += int(is_hit.sum())
        counted: list[list[tuple[int, int]]] = []
        for several, of_tables in zip(events, hits, strict=True):
            rows = zip(several, of_tables.tolist(), strict=True)
            counted.append([(row[event.null], row[1 - event.null]) for event, row in rows])
        return counted

    def chance(self, hits: tuple[int, int], trials: int) -> float:
        """Return the probability that an event with these frequencies convicts, by simulation."""
        # neither data nor a release: what is estimated is the audit itself
        source = np.random.default_rng(0)
        false_alarms, detections = hits
        size = source.binomial(trials, false_alarms / trials, _SIMULATIONS)
        power = source.binomial(trials, detections / trials, _SIMULATIONS)
        allowed = allowed_power(self.claim, at_most(size, trials, self.error / 2))
        proved = at_least(power, trials, self.error / 2)
        return float((proved > allowed).mean())


def _error_shares(error: float, events: int) -> list[float]:
    """Error probability of each event: half for the first, the other half divided among the rest
    (Bonferroni).
    """
    drawing = events - 1
    half = error / 2
    return [half] + [half / max(1, drawing)] * drawing


def _plain(pair: Pair) -> tuple[Score, ...]:
    return (*signed_scores(pair), *residue_scores(pair), *distance_scores(pair))


def _curve(scores: Sequence[Score], seen: Sequence[_Tables]) -> tuple[_Event, ...]:
    """Return events along the curve of the score that separates the two tables best; scores are in
    increasing order.
    """
    best = int(np.argmax([_separation(*tables) for tables in seen]))
    first = seen[best][0]
    count = len(first)
    places = [min(count - 1, math.ceil((1 - size) * count)) for size in _SIZES]
    thresholds = {float(first[place]) for place in places}
    score = scores[best]
    return tuple(_Event(score, threshold, 0) for threshold in sorted(thresholds))


def _separation(first: Floats, second: Floats) -> float:
    """The probability that the second table scores higher, ties counting half: the area under the
    curve.

    Both are in increasing order, the second only for the sake of speed.
    """
    below = np.searchsorted(first, second, side="left")
    upto = np.searchsorted(first, second, side="right")
    return float((below + upto).mean() / (2 * len(first)))


def _read(outputs: Outputs, shape: tuple[int, ...]) -> Outputs:
    """Return the outputs; refuse another shape, and what is not a finite number."""
    array = np.asarray(outputs)
    if array.shape != shape:
        raise InputError(
            f"asked for {shape[0]} outputs, the mechanism must give an array of shape {shape}, not"
            f" {array.shape}"
        )
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise InputError("the outputs of a mechanism on trial must be finite numbers")
    return array


def _check(samples: int, error: float) -> None:
    if not is_whole(samples) or samples < _FEWEST:
        raise InputError(
            f"an audit needs at least {_FEWEST:,} samples of each table, not {samples!r}"
        )
    if not 0 < error < 1:
        raise InputError(f"the error of an audit must lie strictly between 0 and 1, not {error}")

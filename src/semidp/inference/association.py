"""Tests with few degrees of freedom from a release: pooled over strata, and for ordered features.

The reference distribution is that of `independence`: hypergeometric tables and the known noise.
Only the statistic differs: it targets one association common to all strata, or a trend in scores,
and has more power for these.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.independence import (
    MISS,
    CrossedTable,
    Independence,
    check_draws,
    crossed_table,
    independence_test,
    random_tables,
    tried_totals,
)
from semidp.inference.linear_estimates import blocks
from semidp.inference.unknown_totals import asked_questions, cut_scores, unknown_totals
from semidp.promise.documents import Encodable
from semidp.promise.noise.randomness import Randomness, SystemRandomness, generator
from semidp.publish.statistics.odds_ratio.umpu import Alternative
from semidp.publish.statistics.outcomes.noise_law import count_as_large

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Scores = Mapping[str, Sequence[float] | None]
"""Ordered features with the scores of their levels; None for 1, 2, 3 and so on."""


@frozen
class Association(Encodable):
    """A test for one kind of association from published noisy counts.

    Parameters
    ----------
    rows, columns, strata
        The features: rows and columns are independent under the null hypothesis, given the strata
        if any.
    ordered
        The ordered features, with the scores of their levels.
    pooled
        Whether one association common to all strata is looked for.
    table, noise
        Which published table was tested, and the law of its noise.
    method
        What the statistic is called, and why it was chosen.
    statistic
        ``z²`` with one degree of freedom, else a quadratic form.
    degrees
        Degrees of freedom: the mean of the statistic under independence.
    z
        With one degree of freedom the signed statistic: positive where later levels of rows (higher
        scores) go with later levels of columns, that is for an odds ratio ``x11 x22 / (x12 x21)``
        above 1. None otherwise.
    sense
        This direction in words.
    alternative
        The alternative: ``greater`` is z > 0.
    p_value
        ``(1 + number of simulated statistics at least as large) / (1 + draws)``.
    draws
        How many were simulated; 0 if a bound replaces simulation.
    notes
        What a reader must know.
    noisy_totals
        The features whose totals are noisy: the p-value then holds for all plausible totals.
    """

    rows: str
    columns: str
    strata: tuple[str, ...]
    ordered: tuple[tuple[str, tuple[float, ...]], ...]
    pooled: bool
    table: str
    noise: str
    method: str
    statistic: float
    degrees: int
    z: float | None
    sense: str
    alternative: Alternative
    p_value: float
    draws: int
    notes: tuple[str, ...] = ()
    noisy_totals: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the test as plain values."""
        return {**super().to_json(), "ordered": {name: [*scores] for name, scores in self.ordered}}


@frozen(eq=False)
class ScoreTest:
    """Scores of rows and columns, and their statistic for a table with given margins.

    For stratum k let ``T_k = U' Y_k V`` with the columns of U and V the scores (or, for a feature
    without an order, the indicators of all levels but one), flat. Given the margins R, C of n
    records its covariance under independence is ``H_k = U'(diag R - RR'/n)U ⊗ V'(diag C - CC'/n)V /
    (n - 1)``, and ``N_k`` is that of its noise. Pooled: ``S = Σ H_k (H_k + N_k)⁻¹ (T_k - E T_k)``,
    whose variance is ``C = Σ H_k (H_k + N_k)⁻¹ H_k``; the statistic is ``S' C⁻¹ S``. Without noise
    it is that of Mantel and Haenszel (1959), of Landis, Heyman and Koch (1978) for scores. The
    weights are those of the most powerful linear statistic for a small association under normal
    noise: a stratum is weighted by what its noise leaves of it. Not pooled, the statistics of the
    strata are added.

    Parameters
    ----------
    row_scores, column_scores
        U and V, of shapes (r, a) and (c, b).
    pooled
        Whether strata are pooled.

    Examples
    --------
    >>> test = ScoreTest(np.array([[1.0], [2.0]]), np.array([[1.0], [2.0], [3.0]]), pooled=True)
    >>> rows, columns = np.array([[3], [2]]), np.array([[2], [2], [1]])
    >>> test.covariances(rows, columns).round(3).tolist()  # 6/5 · 14/5 / 4
    [[[0.84]]]
    """

    row_scores: Floats
    column_scores: Floats
    pooled: bool

    @property
    def size(self) -> int:
        """How many sums of a stratum are tested together."""
        return int(self.row_scores.shape[1] * self.column_scores.shape[1])

    @property
    def weights(self) -> Floats:
        """Weights of the cells of one stratum in its T, of shape (size, r, c)."""
        product = np.einsum("ia,jb->abij", self.row_scores, self.column_scores)
        return np.asarray(product.reshape(self.size, len(self.row_scores), len(self.column_scores)))

    def covariances(self, rows: Counts, columns: Counts) -> Floats:
        """``H_k`` of every stratum, of shape (strata, size, size)."""
        n = rows.sum(axis=0)
        one = _compute_scatter(self.row_scores, rows)
        other = _compute_scatter(self.column_scores, columns)
        # The Kronecker product of the two, stratum by stratum.
        product = np.einsum("kab,kcd->kacbd", one, other)
        flat = product.reshape(len(n), self.size, self.size)
        divisor = np.maximum(n - 1, 1)
        return np.asarray(flat / divisor[:, None, None])

    def transforms(self, hypergeometric: Floats, noise: Floats) -> tuple[Floats, int]:
        """Maps from the centered sums of the strata to independent numbers of variance 1, and how
        many these are.

        Returns one map of shape (places, strata, size): the sum of squares of the places is the
        statistic.
        """
        total = np.linalg.pinv(hypergeometric + noise, hermitian=True)
        if not self.pooled:
            whitened = [
                _root(part) @ _support(law) for part, law in zip(total, hypergeometric, strict=True)
            ]
            strata = len(whitened)
            places = np.zeros((strata, self.size, strata, self.size))
            for number, part in enumerate(whitened):
                places[number, :, number] = part
            degrees = int(np.linalg.matrix_rank(hypergeometric, hermitian=True).sum())
            return places.reshape(strata * self.size, strata, self.size), degrees
        shrunk = hypergeometric @ total
        variance = (shrunk @ hypergeometric).sum(axis=0)
        root = _root(np.linalg.pinv(variance, hermitian=True))
        degrees = int(np.linalg.matrix_rank(variance, hermitian=True))
        return np.einsum("ab,kbc->akc", root, shrunk), degrees


def _compute_scatter(scores: Floats, totals: Counts) -> Floats:
    """``U'(diag R - RR'/n)U`` of every stratum, of shape (strata, a, a)."""
    n = np.maximum(totals.sum(axis=0), 1)
    means = np.einsum("ia,ik->ka", scores, totals / n)
    # (strata, levels, a): centered first, so nothing cancels
    away = scores[None] - means[:, None]
    return np.asarray(np.einsum("ik,kia,kib->kab", totals, away, away))


def _root(matrix: Floats) -> Floats:
    """The symmetric square root of a matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _support(matrix: Floats) -> Floats:
    """The projection on the directions in which a table can vary: noise alone is not tested."""
    return np.asarray(matrix @ np.linalg.pinv(matrix, hermitian=True))


def score_test(
    test: ScoreTest,
    estimate: Floats,
    margins: tuple[Counts, Counts],
    noise: Floats,
    law_of: Callable[[Floats], Callable[[int, Randomness], Floats]],
    alternative: Alternative,
    draws: int,
    randomness: Randomness,
) -> tuple[float, int, float | None, float]:
    """Return the statistic, its degrees of freedom, the signed root if there is one, and the
    p-value.

    The published and the simulated statistics are exchangeable under independence, so the
    p-value is valid for every number of draws (Davison and Hinkley, section 4.2).

    Parameters
    ----------
    estimate, margins
        The noisy table of shape (r, c, k) and its exact row and column totals, of shapes (r, k) and
        (c, k).
    noise
        The covariances of the noise of the sums of every stratum, of shape (k, size, size).
    law_of
        Returns, for weights of shape (sums, r, c, k), how to draw the noise of these sums.
    """
    check_draws(draws)
    rows, columns = margins
    n = np.maximum(rows.sum(axis=0), 1)
    mean = rows[:, None] * (columns[None] / n)
    spread = test.covariances(rows, columns)
    if not (np.trace(spread, axis1=1, axis2=2) > 0).any():
        raise Refused(
            "the margins (and scores) leave only one value of the statistic: there is nothing to"
            " test"
        )
    transforms, degrees = test.transforms(spread, noise)
    cells = np.einsum("pkd,dij->pijk", transforms, test.weights)
    seen = np.einsum("pijl,ijl->p", cells, estimate - mean)
    single = transforms.shape[0] == 1
    if alternative is not Alternative.TWO_SIDED and not single:
        raise InputError(
            f"this test has {degrees} degrees of freedom and no direction: ⟨alternative⟩ is for one"
            " degree, such as ⟨ordered⟩ features or two levels, pooled over strata"
        )

    def sizes(parts: Floats) -> Floats:
        # Large is evidence against independence: in one direction, or in any.
        if alternative is Alternative.GREATER:
            return parts[:, 0]
        if alternative is Alternative.LESS:
            return -parts[:, 0]
        return np.asarray((parts**2).sum(axis=1))

    statistic = float(sizes(seen[None])[0])
    if not math.isfinite(statistic):
        # A comparison with it would count no simulated statistic as large.
        raise InputError("the scores are too large for floating point: give smaller ones")
    source = generator(randomness)
    law = law_of(cells)
    larger = 0
    for count in blocks(draws, estimate.size):
        tables = random_tables(rows, columns, count, source)
        off = np.einsum("pijl,nijl->np", cells, tables - mean) + law(count, randomness)
        larger += count_as_large(sizes(off), statistic)
    z = float(seen[0]) if single else None
    return float((seen**2).sum()), degrees, z, (1 + larger) / (1 + draws)


# --- questions to a release -----------------------------------------------------------------------


def assess_association(
    release: "ReleaseValue",
    rows: str,
    columns: str,
    strata: Iterable[str] = (),
    *,
    ordered: Iterable[str] | Scores = (),
    pooled: bool = False,
    alternative: Alternative | str = Alternative.TWO_SIDED,
    table: str | None = None,
    draws: int | None = None,
    randomness: Randomness | None = None,
) -> Independence | Association:
    """Test whether two features are independent, given strata, from the counts of a release; see
    `Release.test`.
    """
    scores = dict(ordered) if isinstance(ordered, Mapping) else dict.fromkeys(ordered)
    alternative = Alternative(alternative)
    asked = crossed_table(release, rows, columns, tuple(strata), table)
    for name in scores:
        if name not in (rows, columns):
            raise InputError(
                f"only rows and columns can be ordered, that is {rows} and {columns}, not {name!r}"
            )
    if pooled and not asked.strata:
        raise InputError("a test is pooled over strata: name them, or do not pool")
    source = SystemRandomness() if randomness is None else randomness
    count = asked.measured.draws if draws is None else draws
    question = AssociationQuestion(asked, scores, pooled, alternative)
    directed = alternative is not Alternative.TWO_SIDED
    if not all(asked.exact):
        return question.try_totals(count, source)
    two_by_two = asked.shape[:2] == (2, 2) and asked.shape[2] == 1
    if scores or pooled or (directed and two_by_two):
        return question.simulate(count, source)
    if directed:
        raise InputError(_NO_DIRECTION)
    return _independence(asked, count, source)


_NO_DIRECTION = (
    "a test of independence has no direction: say which features are ordered, or pool tables of two"
    " levels"
)


@frozen
class AssociationQuestion:
    """A question about a table.

    Parameters
    ----------
    asked
        The table.
    scores
        The ordered features, with scores of their levels.
    pooled
        Whether one association common to all strata is looked for.
    alternative
        The direction.
    """

    asked: CrossedTable
    scores: Scores
    pooled: bool
    alternative: Alternative

    def simulate(self, draws: int, randomness: Randomness) -> Association:
        """Test with exact totals, by simulation."""
        asked = self.asked
        columns = []
        for name, levels in zip((asked.rows, asked.columns), asked.shape, strict=False):
            columns.append(_score_columns(name, levels, self.scores))
        test = ScoreTest(columns[0], columns[1], self.pooled)
        margins = (asked.row_totals, asked.column_totals)
        noise = noise_covariances(asked, test)

        def find_law(weights: Floats) -> Callable[[int, Randomness], Floats]:
            return asked.weigh_noise(weights).draw

        tested = score_test(
            test, asked.estimate, margins, noise, find_law, self.alternative, draws, randomness
        )
        return self._answer(*tested, draws)

    def try_totals(self, draws: int, randomness: Randomness) -> Independence | Association:
        """Test with noisy totals: every plausible total is tried if there are few, else all are
        bounded at once.
        """
        asked = self.asked
        used = {}
        for name, levels in zip((asked.rows, asked.columns), asked.shape, strict=False):
            chosen = None
            if name in self.scores:
                chosen = _score_columns(name, levels, self.scores)[:, 0].tolist()
            used[name] = cut_scores(levels, chosen)
        sums = [(one, other) for one in used[asked.rows] for other in used[asked.columns]]
        directed = self.alternative is not Alternative.TWO_SIDED
        if directed and (len(sums) > 1 or (asked.strata and not self.pooled)):
            raise InputError(_NO_DIRECTION)
        if asked.strata:
            return self._bound_totals(used)
        plain = not self.scores and not directed
        listed = (np.stack([one for one, _ in sums]), np.stack([other for _, other in sums]))
        tried = tried_totals(asked, None if plain else listed, self.alternative, draws, randomness)
        if tried is None:
            return self._bound_totals(used)
        if not plain:
            square = tried.statistic**2
            return self._answer(square, len(sums), tried.z, tried.p_value, tried.draws, tried.note)
        return Independence(
            **asked.named,
            statistic=tried.statistic,
            expected=asked.estimate.size,
            p_value=tried.p_value,
            draws=tried.draws,
            notes=(tried.note, *asked.notes),
            noisy_totals=asked.noisy_names,
        )

    def _bound_totals(self, used: Mapping[str, list[Floats]]) -> Association:
        """Bound the tail of each question over all plausible totals."""
        asked, noisy = self.asked, self.asked.noisy_names
        if len(noisy) == 2:
            named = [" by ".join((name, *asked.strata)) for name in noisy]
            raise Refused(
                f"the totals of {' and of '.join(named)} are both noisy, and too many are plausible"
                " to try them all: publish those of one feature exactly"
            )
        # The exact feature stands first.
        names = (asked.rows, asked.columns) if asked.exact[0] else (asked.columns, asked.rows)
        questions = asked_questions(used[names[0]], used[names[1]], asked.shape[2], self.pooled)
        p_value, answers = unknown_totals(asked, questions).p_value(self.alternative)
        best = min(answers, key=lambda answer: answer.p_value(self.alternative))
        z = best.z if len(answers) == 1 else None
        many = (
            f" The least of {len(answers):,} p-values was multiplied by their number (Bonferroni)."
            if len(answers) > 1
            else ""
        )
        note = (
            f"The totals of {noisy[0]} are noisy: p bounds the tail for all plausible totals, plus"
            f" {MISS:g} for the chance that these miss.{many}"
        )
        return self._answer(best.z**2, len(answers), z, p_value, 0, note)

    def _answer(
        self,
        statistic: float,
        degrees: int,
        z: float | None,
        p_value: float,
        draws: int,
        note: str | None = None,
    ) -> Association:
        """Return an answer together with the scores that were used."""
        asked = self.asked
        ordered = []
        for name, levels in zip((asked.rows, asked.columns), asked.shape, strict=False):
            if name in self.scores:
                ordered.append((name, _given_scores(name, levels, self.scores)))
        return Association(
            **asked.named,
            ordered=tuple(ordered),
            pooled=self.pooled,
            method=self._method(degrees),
            statistic=statistic,
            degrees=degrees,
            z=z,
            sense="" if z is None else self._sense(z),
            alternative=self.alternative,
            p_value=p_value,
            draws=draws,
            notes=asked.notes if note is None else (note, *asked.notes),
            noisy_totals=asked.noisy_names,
        )

    def _sense(self, z: float) -> str:
        """The direction of an association: which levels go together."""
        rows, columns = self.asked.rows, self.asked.columns
        one, other = self._levels_by_score(rows), self._levels_by_score(columns)
        # Two levels are named; of more only the direction is.
        first = f"{rows} = {one[-1]}" if len(one) == 2 else f"high {rows}"
        if len(other) == 2:
            return f"{first} goes with {columns} = {other[-1] if z > 0 else other[0]}"
        return f"{first} goes with {'high' if z > 0 else 'low'} {columns}"

    def _levels_by_score(self, name: str) -> list[str]:
        """The levels of a feature, those with low scores first."""
        schema = self.asked.measured.schema
        levels = list(schema.features[schema.axis(name)].leaves_below(name))
        ordered_by = _given_scores(name, len(levels), self.scores)
        return [levels[place] for place in np.argsort(ordered_by, kind="stable").tolist()]

    def _method(self, degrees: int) -> str:
        """What the statistic is called, and why it was chosen."""
        asked = self.asked
        names = (asked.rows, asked.columns)
        levels = dict(zip(names, asked.shape[:2], strict=True))
        nominal = [name for name in names if levels[name] > 2 and name not in self.scores]
        ranked = [name for name in names if levels[name] > 2 and name in self.scores]
        called = "odds ratio of two levels by two"
        if len(ranked) == 2:
            called = "linear-by-linear association of two ordered features"
        elif ranked and not nominal:
            called = f"trend of two levels in the scores of {ranked[0]} (Cochran-Armitage)"
        elif ranked:
            called = f"mean scores of {ranked[0]} by the levels of {nominal[0]}"
        elif nominal:
            called = "general association"
        if self.pooled:
            famous = " (Cochran-Mantel-Haenszel)" if not ranked and not nominal else ""
            called = f"{called}, common to the strata of {', '.join(asked.strata)}{famous}"
        elif asked.strata:
            called = f"{called}, added over the strata of {', '.join(asked.strata)}"
        if degrees == 1:
            return f"{called}: one degree of freedom"
        many = "the largest of {} sums" if asked.noisy_names else "{} degrees of freedom"
        return f"{called}: {many.format(degrees)}"


def _independence(asked: CrossedTable, draws: int, randomness: Randomness) -> Independence:
    asked.check_size(asked.estimate.size)
    # Every cell is a sum of its own.
    noise = asked.weigh_noise(np.eye(asked.estimate.size).reshape(-1, *asked.shape))
    statistic, expected, p_value = independence_test(
        asked.estimate,
        asked.row_totals,
        asked.column_totals,
        noise.standard_errors.reshape(asked.shape) ** 2,
        noise.draw,
        draws,
        randomness,
    )
    return Independence(
        **asked.named,
        statistic=statistic,
        expected=expected,
        p_value=p_value,
        draws=draws,
        notes=asked.notes,
    )


def _score_columns(name: str, levels: int, scores: Scores) -> Floats:
    """The scores of an ordered feature, from 0 to 1; two levels have an order; else the indicators
    of all levels but the first.

    No test depends on the unit of scores or on where they begin, and squares of large ones would
    leave the range of floating point.

    >>> _score_columns("dose", 3, {"dose": [0, 1, 10]}).T.tolist()
    [[0.0, 0.1, 1.0]]
    >>> _score_columns("town", 3, {}).T.tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if name not in scores and levels > 2:
        return np.eye(levels)[:, 1:]
    column = np.array(_given_scores(name, levels, scores))[:, None]
    if levels == 1:
        return column
    # In units of the largest first: the distance of two large scores may be infinite.
    column = column / np.abs(column).max()
    return np.asarray((column - column.min()) / np.ptp(column))


def _given_scores(name: str, levels: int, scores: Scores) -> tuple[float, ...]:
    """The scores of an ordered feature as they were given; 1, 2, 3 and so on unless they were.

    >>> _given_scores("dose", 3, {"dose": None})
    (1.0, 2.0, 3.0)
    """
    chosen = scores.get(name)
    if chosen is None:
        return tuple(np.arange(1.0, levels + 1).tolist())
    if len(chosen) != levels:
        raise InputError(
            f"{name} has {levels} levels and {len(chosen)} scores: give one for each level, in"
            " order"
        )
    numbers = np.asarray(chosen, dtype=np.float64)
    if not np.isfinite(numbers).all() or (numbers == numbers[0]).all():
        raise InputError(f"the scores of {name} must be finite numbers that are not all equal")
    return tuple(numbers.tolist())


def noise_covariances(asked: CrossedTable, test: ScoreTest) -> Floats:
    """Covariances of the noise of the sums of every stratum, of shape (strata, sums, sums)."""
    strata = asked.shape[2]
    asked.check_size(strata * test.size)
    weights = np.einsum("dij,kl->kdijl", test.weights, np.eye(strata))
    return np.stack([asked.weigh_noise(of_stratum).covariance for of_stratum in weights])

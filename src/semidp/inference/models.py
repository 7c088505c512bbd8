"""Logistic and log-linear models of a released table, at no cost in privacy.

The noise is part of the variance: estimates solve a quasi-score equation with the sampling variance
and the known covariance of the noise, and so do their standard errors. They are about the
population that the records were sampled from. `measured` provides the published measurements.
"""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from attrs import asdict, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.cell_bounds import CellBounds
from semidp.inference.measured import (
    Measured,
    clustering,
    level_codes,
    measured_table,
    select_public,
)
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.protection import Protection
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]

_MOST_CELLS = 600  # of a table whose noise covariance is written out
_ITERATIONS = 400
_LARGEST_STEP = 1.0  # of a linear predictor in one iteration
# standard deviation of a weak normal prior of each coefficient, in units of log-odds or log-counts
_PRIOR = 5.0


@frozen
class Formula:
    """A model: the response (None for counts) and its terms, each a set of features.

    Parameters
    ----------
    response
        The feature whose rate is modeled; None for a log-linear model of the counts.
    terms
        The features of each term, in order; the intercept is always there.

    Examples
    --------
    >>> Formula.parse("survived ~ class * sex")
    Formula(response='survived', terms=(('class',), ('sex',), ('class', 'sex')))
    >>> str(Formula.parse("~ class:sex + class + sex"))
    '~ class + sex + class:sex'
    """

    response: str | None
    terms: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> "Formula":
        """Read ``response ~ a * b + c:d``; ``a * b`` is ``a + b + a:b``, and ``~ …`` models the
        counts.
        """
        if text.count("~") != 1:
            raise InputError(
                f"{text!r} is not a model such as 'survived ~ class * sex', or '~ class * sex' for"
                " counts"
            )
        left, right = (part.strip() for part in text.split("~"))
        terms: dict[tuple[str, ...], None] = {}
        for part in right.split("+"):
            for term in _expand_terms(part.strip(), text):
                # a:b and b:a are one term
                same = next((other for other in terms if {*other} == {*term}), term)
                terms[same] = None
        response = left or None
        if response and any(response in term for term in terms):
            raise InputError(f"{response!r} stands on both sides of {text!r}")
        # Terms of few features first, so main effects come before what they make together.
        return cls(response, tuple(sorted(terms, key=len)))

    @property
    def features(self) -> tuple[str, ...]:
        """The features on the right, each once."""
        names: dict[str, None] = {}
        for term in self.terms:
            names |= dict.fromkeys(term)
        return tuple(names)

    def __str__(self) -> str:
        right = " + ".join(":".join(term) for term in self.terms) or "1"
        return f"{self.response} ~ {right}" if self.response else f"~ {right}"


def _expand_terms(part: str, text: str) -> list[tuple[str, ...]]:
    """The terms of ``a*b`` or ``a:b``; none for ``1``."""
    if part == "1":
        return []
    factors = [factor.strip() for factor in part.split("*")]
    names = [tuple(map(str.strip, factor.split(":"))) for factor in factors]
    for name in itertools.chain.from_iterable(names):
        if not name or re.search(r"[()~\-]", name):
            raise InputError(
                f"{text!r} has a term {part!r}: terms are features joined by + and * and :"
            )
    terms = []
    for size in range(1, len(names) + 1):
        for chosen in itertools.combinations(names, size):
            joined = dict.fromkeys(itertools.chain.from_iterable(chosen))
            terms.append(tuple(joined))
    return terms


@frozen(eq=False)
class DesignMatrix:
    """Columns of a model for every combination of levels, against the first level of each feature.

    >>> design = DesignMatrix.from_formula(Formula.parse("y ~ a"), {"a": ["l", "m", "h"]})
    >>> design.names, design.matrix.tolist()
    (('intercept', 'a[m]', 'a[h]'), [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    """

    names: tuple[str, ...]
    matrix: Floats
    terms: tuple[int, ...]  # which term of the formula each column belongs to; -1 for the intercept

    def restrict(self, rows: NDArray[np.bool_]) -> "DesignMatrix":
        """Keep some rows, and the columns that are not a combination of earlier ones there:
        the coefficient of a level without records is in no row.

        >>> design = DesignMatrix.from_formula(Formula.parse("y ~ a"), {"a": ["l", "m", "h"]})
        >>> design.restrict(np.array([True, False, True])).names
        ('intercept', 'a[h]')
        """
        if rows.all():
            return self
        matrix, kept = self.matrix[rows], []
        basis = np.zeros((len(matrix), 0))
        for place, column in enumerate(matrix.T):
            # Twice, because rounding leaves a part of the first projection.
            remaining = column - basis @ (basis.T @ column)
            remaining = remaining - basis @ (basis.T @ remaining)
            size = float(np.linalg.norm(remaining))
            # of a column that depends on earlier ones only rounding is left
            if size > 1e-9 * math.sqrt(len(matrix)):
                kept.append(place)
                basis = np.column_stack([basis, remaining / size])
        names = tuple(self.names[column] for column in kept)
        terms = tuple(self.terms[column] for column in kept)
        return DesignMatrix(names, matrix[:, kept], terms)

    @classmethod
    def from_formula(cls, formula: Formula, levels: dict[str, list[str]]) -> "DesignMatrix":
        """Build the matrix; its rows are the combinations of the levels of the formula's features,
        in their order.
        """
        names = formula.features
        shape = tuple(len(levels[name]) for name in names)
        places = dict(zip(names, np.indices(shape).reshape(len(names), -1), strict=True))
        rows = math.prod(shape)
        columns, labels, terms = [np.ones(rows)], ["intercept"], [-1]
        for number, term in enumerate(formula.terms):
            choices = [range(1, len(levels[name])) for name in term]
            for chosen in itertools.product(*choices):
                column = np.ones(rows)
                parts = []
                for name, level in zip(term, chosen, strict=True):
                    column = column * (places[name] == level)
                    parts.append(f"{name}[{levels[name][level]}]")
                columns.append(column)
                labels.append(":".join(parts))
                terms.append(number)
        return cls(tuple(labels), np.stack(columns, axis=1), tuple(terms))


@frozen(eq=False)
class QuasiFit:
    """Coefficients that solve ``D'V⁻¹r = 0``, their covariance ``(D'V⁻¹D)⁻¹``, ``r'V⁻¹r``, and how
    many coefficients the counts determine: the trace of ``D'V⁻¹D (D'V⁻¹D + P)⁻¹`` with the prior's
    precision P.
    """

    coefficients: Floats
    covariance: Floats
    distance: float
    determined: float


def quasi_fit(
    start: Floats, design: Floats, parts: Callable[[Floats], tuple[Floats, Floats, Floats]]
) -> QuasiFit:
    """Solve the quasi-score equation by Fisher scoring (McCullagh and Nelder, 1989, chapter 9).

    A weak normal prior around the first coefficients, of standard deviation 5 (a factor of 150 in
    odds), keeps them finite if noise makes a count smaller than 0 or larger than its group;
    otherwise it hardly matters.

    Parameters
    ----------
    start
        The first coefficients.
    design
        The design matrix.
    parts
        Returns, for a linear predictor, the residuals r, their slopes in the predictor, and their
        covariance V.
    """
    coefficients = start.copy()
    penalty = np.full(len(start), _PRIOR**-2)
    penalty[0] /= 100  # the intercept is hardly held at all
    for iteration in range(_ITERATIONS):
        residuals, slopes, variance = parts(design @ coefficients)
        weighted = design * slopes[:, None]
        solved = np.linalg.solve(variance, np.column_stack([weighted, residuals]))
        information = weighted.T @ solved[:, :-1] + np.diag(penalty)
        push = weighted.T @ solved[:, -1] - penalty * (coefficients - start)
        step = np.linalg.solve(information, push)
        # A long step in the predictor would leave the region where the equation is nearly linear.
        longest = float(np.abs(design @ step).max())
        # Full steps may swing to and fro where noise is large; then shorter ones settle.
        damping = 1.0 if iteration < 30 else 0.3 if iteration < 150 else 0.1
        coefficients = coefficients + step * min(damping, _LARGEST_STEP / max(longest, 1e-300))
        if longest < 1e-7:
            covariance = np.linalg.inv(information)
            determined = len(start) - float(penalty @ np.diag(covariance))
            distance = float(residuals @ solved[:, -1])
            return QuasiFit(coefficients, covariance, distance, determined)
    raise Refused(
        "the coefficients do not settle, because too many noisy counts are below 0: leave out a"
        " term, or ask a table with more records in each cell"
    )


def logistic_fit(
    design: Floats, cases: Floats, records: Floats, noise: Floats, cluster: int = 1
) -> QuasiFit:
    """Fit log-odds ``Xβ`` to noisy counts of cases among noisy (or exact) counts of records.

    ``r = y - p m`` has mean 0 whatever the noise of y and m, and
    ``V = diag(m⁺ p (1 - p)) + Cov(noise of y - p m)``, the first times the size of a cluster: then
    V is at least the covariance of r, and so standard errors and tests are on the safe side.

    Parameters
    ----------
    noise
        The covariance of the noise of all cases, then all records.
    cluster
        The most records of one person.

    Examples
    --------
    >>> fit = logistic_fit(np.ones((1, 1)), np.array([20.0]), np.array([80.0]), np.zeros((2, 2)))
    >>> # Log(1/3) and 1/20 + 1/60
    >>> (round(float(fit.coefficients[0]), 4), round(float(fit.covariance[0, 0]), 4))
    (-1.0986, 0.0667)
    """
    groups = len(cases)
    one, cross, other = noise[:groups, :groups], noise[:groups, groups:], noise[groups:, groups:]
    # A group that noise made smaller than nothing has no information, and no negative one.
    sizes = np.maximum(records, 0.0)

    def parts(predictor: Floats) -> tuple[Floats, Floats, Floats]:
        p = scipy.special.expit(predictor)
        spread = p * (1 - p)
        # Cov(y - p m) from the covariances of y and m
        mixed = cross * p[None, :]
        variance = one - mixed - mixed.T + p[:, None] * other * p[None, :]
        # 1e-9 keeps V invertible where counts are exact and a rate is near 0 or 1
        sampling = np.diag(cluster * sizes * spread + 1e-9)
        return cases - p * records, sizes * spread, variance + sampling

    # noise may move the overall rate out of (0, 1), where log-odds end
    rate = min(max(float(cases.sum() / max(sizes.sum(), 1.0)), 0.01), 0.99)
    start = np.zeros(design.shape[1])
    start[0] = math.log(rate / (1 - rate))
    return quasi_fit(start, design, parts)


def loglinear_fit(design: Floats, counts: Floats, noise: Floats, cluster: int = 1) -> QuasiFit:
    """Fit log-means ``Xβ`` to noisy counts: ``V = diag(μ) + Cov(noise)``, the first times the size
    of a cluster.

    >>> fit = loglinear_fit(
    ...     np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([20.0, 60.0]), np.zeros((2, 2))
    ... )
    >>> fit.coefficients.round(2).tolist()  # log 20 and log 3, but for the weak prior
    [3.0, 1.1]
    """

    def parts(predictor: Floats) -> tuple[Floats, Floats, Floats]:
        # a step that goes too far must not overflow; no count comes near e^40
        mean = np.exp(np.minimum(predictor, 40.0))
        return counts - mean, mean, noise + np.diag(cluster * mean + 1e-9)

    start = np.zeros(design.shape[1])
    start[0] = math.log(max(float(counts.mean()), 0.5))
    return quasi_fit(start, design, parts)


@frozen
class TermTest:
    """A Wald test of all coefficients of a term, or of those that one model adds to another."""

    term: str
    statistic: float
    degrees: int
    p_value: float


@frozen(eq=False)
class TableModel:
    """A model fitted to a released table.

    Parameters
    ----------
    formula, kind
        The model; ``logistic`` (log-odds of the second level of the response) or ``log-linear``
        (log-counts).
    table, noise
        Which published table was fitted, and the law of its noise.
    names, coefficients, errors, low, high, level
        The coefficients, with standard errors and intervals that include noise and sampling.
    terms
        Wald tests of the terms that are part of no larger term.
    fit
        ``r'V⁻¹r`` against χ²: whether the model fits; None if it has as many coefficients as
        cells.
    against
        The test against the given smaller model.
    fitted
        For every combination of levels the fitted rate (or count) and its interval.
    notes
        What a reader must know.
    """

    formula: Formula
    kind: str
    response: str
    table: str
    noise: str
    names: tuple[str, ...]
    coefficients: Floats = field(repr=False)
    errors: Floats = field(repr=False)
    low: Floats = field(repr=False)
    high: Floats = field(repr=False)
    level: float
    terms: tuple[TermTest, ...]
    fit: TermTest | None
    against: TermTest | None
    fitted: tuple[tuple[Any, ...], ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def p_values(self) -> Floats:
        """Of each coefficient being 0, by its standard error."""
        return np.asarray(2 * scipy.special.ndtr(-np.abs(self.coefficients / self.errors)))

    def to_json(self) -> dict[str, Any]:
        """Return the model as plain values."""
        columns = (self.coefficients, self.errors, self.low, self.high, self.p_values)
        keys = ("estimate", "standard_error", "low", "high", "p_value")
        coefficients = []
        for name, numbers in zip(self.names, np.stack(columns, axis=1).tolist(), strict=True):
            values = dict(zip(keys, numbers, strict=True))
            coefficients.append({"name": name, **values})
        value = "rate" if self.kind == "logistic" else "count"
        labels = (*self.formula.features, value, "low", "high")
        return {
            "formula": str(self.formula),
            "kind": self.kind,
            "response": self.response,
            "table": self.table,
            "noise": self.noise,
            "level": self.level,
            "coefficients": coefficients,
            "terms": [asdict(test) for test in self.terms],
            "fit": None if self.fit is None else asdict(self.fit),
            "against": None if self.against is None else asdict(self.against),
            "fitted": [dict(zip(labels, row, strict=True)) for row in self.fitted],
            "notes": list(self.notes),
        }


def model(
    release: "ReleaseValue",
    formula: str,
    *,
    against: str | None = None,
    level: float = 0.95,
    table: str | None = None,
) -> TableModel:
    """Fit a logistic or log-linear model to a released table, at no cost in privacy.

    Parameters
    ----------
    release
        A release with a table that has the features.
    formula
        ``survived ~ class * sex`` for the log-odds of the second level of a feature with two
        levels, or ``~ class * sex`` for the log of the counts.
    against
        A smaller model to test this one against.
    level
        The level of the intervals.
    table
        The table, if several have the features.

    Examples
    --------
    >>> import semidp
    >>> from semidp.promise import SeededRandomness
    >>> people = {"sex": [*"ffffmmmm"] * 40, "vote": [*"nyyynnny"] * 40}
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
    ... )
    >>> release = semidp.run(plan, people, SeededRandomness(1))
    >>> answer = model(release, "vote ~ sex")  # log(1/9): 40 of 160 men, 120 of 160 women
    >>> answer.names, bool(answer.low[1] < -2.197 < answer.high[1])
    (('intercept', 'sex[m]'), True)
    """
    check_level(level, "the confidence level")
    asked = Formula.parse(formula)
    names = (*asked.features, *([asked.response] if asked.response else []))
    if not asked.features:
        raise InputError(f"{formula!r} names no feature besides the response: give at least one")
    measured = measured_table(release, names, table)
    if measured.schema.possible is not None:
        raise Refused(
            "a model of a table with impossible cells (structural zeros) is not fitted here"
        )
    if len({measured.schema.axis(name) for name in names}) < len(names):
        raise InputError("the features of a model must be different, and each from another chain")
    levels = {name: list(_feature_levels(measured, name)) for name in names}
    counts, noise = _cells(measured, names)
    if asked.response and len(levels[asked.response]) != 2:
        raise InputError(
            f"{asked.response} has {len(levels[asked.response])} levels, and the"
            " response of a logistic model has two: ask a log-linear model, such as"
            f" '~ {' + '.join(names)}'"
        )
    inhabited = _find_inhabited(release, measured, asked)
    if not inhabited.any():
        raise Refused("the exact totals leave no records for this model: ask for other features")
    whole = DesignMatrix.from_formula(asked, levels)
    design = whole.restrict(inhabited)
    persons = clustering(release, measured)
    cluster = 1 if persons is None else persons.most
    if asked.response:
        chosen = np.repeat(inhabited, 2)
        counts, noise = counts[chosen], noise[np.ix_(chosen, chosen)]
        result, kind = _logistic(design, counts, noise, cluster), "logistic"
        response = f"{asked.response} = {levels[asked.response][1]}"
    else:
        counts, noise = counts[inhabited], noise[np.ix_(inhabited, inhabited)]
        result = loglinear_fit(design.matrix, counts, noise, cluster)
        kind, response = "log-linear", "count"
    comparison = None
    if against is not None:
        comparison = _against(asked, Formula.parse(against), design, result)
    errors = np.sqrt(np.diag(result.covariance))
    half = float(scipy.special.ndtri((1 + level) / 2)) * errors
    return TableModel(
        asked,
        kind,
        response,
        measured.name,
        measured.noise_name,
        design.names,
        result.coefficients,
        errors,
        result.coefficients - half,
        result.coefficients + half,
        level,
        _term_tests(asked, design, result),
        _goodness(design, result),
        comparison,
        _list_fitted(asked, levels, inhabited, design, result, level, kind),
        _notes(persons, int((~inhabited).sum()), {*whole.names} - {*design.names}),
    )


def _find_inhabited(
    release: "ReleaseValue", measured: Measured, asked: Formula
) -> NDArray[np.bool_]:
    """Which combinations of the features on the right the exact totals leave room for records in.

    A group without records says nothing about a rate. In a log-linear model an empty cell does say
    something, unless a whole level is empty.
    """
    public = select_public(release, measured)
    features = asked.features
    if asked.response:
        return _room(public, features)
    codes = np.indices(tuple(len(_room(public, [name])) for name in features))
    kept = [_room(public, [name])[code] for name, code in zip(features, codes, strict=True)]
    return np.asarray(np.logical_and.reduce(kept).ravel())


def _room(public: Dataspace, names: Sequence[str]) -> NDArray[np.bool_]:
    """Which combinations of the levels of some features may have records, flat, in their order."""
    schema = public.schema.restrict(names)
    codes, sizes = level_codes(schema, names)
    most = np.zeros(math.prod(sizes))
    np.add.at(most, codes, CellBounds.from_dataspace(public, schema.names).upper.ravel())
    return most > 0


def _notes(persons: Protection | None, empty: int, lost: set[str]) -> tuple[str, ...]:
    """Say what was left out, and how clusters count."""
    notes = []
    if empty:
        some = "1 combination of levels" if empty == 1 else f"{empty} combinations of levels"
        without = f", with the coefficients {', '.join(sorted(lost))}" if lost else ""
        notes.append(f"Left out: {some} without records by the exact totals{without}.")
    if persons is not None:
        notes.append(
            f"One {persons.noun} may have {persons.most:,} {persons.records}: the sampling variance"
            " is multiplied by that, the most it can be."
        )
    return tuple(notes)


def _feature_levels(measured: Measured, name: str) -> list[str]:
    feature = measured.schema.features[measured.schema.axis(name)]
    return list(feature.leaves_below(name))


def _cells(measured: Measured, names: Sequence[str]) -> tuple[Floats, Floats]:
    """The noisy counts of the combinations of some features, flat, and the covariance of their
    noise.
    """
    codes, sizes = level_codes(measured.schema, names)
    cells = math.prod(sizes)
    if cells > _MOST_CELLS:
        raise Refused(
            f"a model is fitted to at most {_MOST_CELLS} cells, and this one has {cells:,}: use"
            " fewer features"
        )
    weights = (codes == np.arange(cells)[:, None]).astype(np.float64)
    weights = weights.reshape(cells, *measured.schema.shape)
    return measured.sum_cells(weights), measured.weigh_noise(weights).covariance


def _logistic(design: DesignMatrix, counts: Floats, noise: Floats, cluster: int) -> QuasiFit:
    """The response varies fastest: its second level are the cases, both together the records."""
    groups = len(design.matrix)
    take = np.zeros((2 * groups, 2 * groups))
    for group in range(groups):
        take[group, 2 * group + 1] = 1.0
        take[groups + group, 2 * group : 2 * group + 2] = 1.0
    sums = take @ counts
    parts = take @ noise @ take.T
    return logistic_fit(design.matrix, sums[:groups], sums[groups:], parts, cluster)


def _wald(term: str, columns: Sequence[int], result: QuasiFit) -> TermTest:
    chosen = np.array(columns)
    part = result.coefficients[chosen]
    statistic = float(part @ np.linalg.solve(result.covariance[np.ix_(chosen, chosen)], part))
    return TermTest(
        term, statistic, len(columns), float(scipy.special.chdtrc(len(columns), statistic))
    )


def _term_tests(formula: Formula, design: DesignMatrix, result: QuasiFit) -> tuple[TermTest, ...]:
    """Tests of the terms that are part of no larger one: the others have no meaning without it."""
    tests = []
    for number, term in enumerate(formula.terms):
        larger = any({*term} < {*other} for other in formula.terms)
        columns = [place for place, owner in enumerate(design.terms) if owner == number]
        if not larger and columns:
            tests.append(_wald(":".join(term), columns, result))
    return tuple(tests)


def _goodness(design: DesignMatrix, result: QuasiFit) -> TermTest | None:
    rows, columns = design.matrix.shape
    if rows <= columns:
        return None
    # Where noise makes a count impossible, the prior holds a coefficient that then fits nothing.
    degrees = round(rows - result.determined)
    return TermTest(
        "fit", result.distance, degrees, float(scipy.special.chdtrc(degrees, result.distance))
    )


def _against(larger: Formula, smaller: Formula, design: DesignMatrix, result: QuasiFit) -> TermTest:
    kept = [{*term} for term in smaller.terms]
    whole = [{*term} for term in larger.terms]
    if (
        larger.response != smaller.response
        or any(term not in whole for term in kept)
        or len(kept) >= len(whole)
    ):
        raise InputError(f"{smaller} is not a smaller model within {larger}: leave out terms of it")
    columns = [
        place for place, owner in enumerate(design.terms) if owner >= 0 and whole[owner] not in kept
    ]
    if not columns:
        raise Refused(f"no records tell {smaller} from {larger}: compare other models")
    return _wald(str(smaller), columns, result)


def _list_fitted(
    formula: Formula,
    levels: dict[str, list[str]],
    inhabited: NDArray[np.bool_],
    design: DesignMatrix,
    result: QuasiFit,
    level: float,
    kind: str,
) -> tuple[tuple[Any, ...], ...]:
    predictor = design.matrix @ result.coefficients
    variances = np.einsum("gi,ij,gj->g", design.matrix, result.covariance, design.matrix)
    half = float(scipy.special.ndtri((1 + level) / 2)) * np.sqrt(np.maximum(variances, 0.0))
    inverse = scipy.special.expit if kind == "logistic" else np.exp
    ends = np.stack(
        [inverse(predictor), inverse(predictor - half), inverse(predictor + half)], axis=1
    )
    every = itertools.product(*(levels[name] for name in formula.features))
    cells = itertools.compress(every, inhabited)
    return tuple((*cell, *numbers) for cell, numbers in zip(cells, ends.tolist(), strict=True))

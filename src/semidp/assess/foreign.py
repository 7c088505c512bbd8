"""Audits of other things than mechanisms of this package: samples of outputs, functions, and
published odds-ratio tests.

Outputs are taken as they are. Their center is learned from the outputs that train the attack,
never from those that are counted.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.assess.attack import ERROR, Audit, Outputs, audit_mechanism, trained_on
from semidp.assess.pairs import Pair
from semidp.errors import InputError
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress, silent
from semidp.promise.tradeoff.function import Tradeoff

_FINE = 2.0**12  # steps of the grid in which real outputs are read, for each typical deviation
_FEWEST = 2_000
_LARGEST = 2.0**52


def audit_samples(
    first: ArrayLike,
    second: ArrayLike,
    claim: Tradeoff,
    *,
    error: float = ERROR,
    randomness: Randomness | None = None,
    progress: Progress = silent,
) -> Audit:
    """Audit a mechanism from its outputs alone: independent ones for each of two adjacent
    datasets.

    Parameters
    ----------
    first, second
        Outputs for each of the two datasets, one per row.
    claim
        The tradeoff curve to be tested.
    error
        The largest probability of convicting a mechanism whose claim is true.
    randomness
        Where the random words of the attack come from.

    Examples
    --------
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> words = np.random.default_rng(1)
    >>> one, other = (words.normal(mean, 1.0, 20_000).round(3) for mean in (0.0, 1.0))
    >>> (
    ...     audit_samples(one, other, gaussian("0.75")).verdict,
    ...     audit_samples(one, other, gaussian(1)).verdict,
    ... )
    ('convicted', 'survives')
    """
    outputs, pair = _around(first, second)
    handed_out = [0, 0]

    def next_ones(values: NDArray[np.int64], count: int, randomness: Randomness) -> Outputs:
        which = int(not np.array_equal(values, pair.first))
        start = handed_out[which]
        handed_out[which] += count
        return outputs[which][start : start + count]

    samples = min(map(len, outputs))
    return audit_mechanism(
        next_ones,
        pair,
        claim,
        samples=samples,
        error=error,
        randomness=randomness,
        progress=progress,
    )


def audit_function(
    function: Callable[[Any], Any],
    first: Any,
    second: Any,
    claim: Tradeoff,
    *,
    samples: int = 20_000,
    error: float = ERROR,
    randomness: Randomness | None = None,
    progress: Progress = silent,
) -> Audit:
    """Audit any function of a dataset: it is called `samples` times for each of two adjacent
    datasets.

    Parameters
    ----------
    function
        Takes a dataset and returns a number, or a fixed number of numbers.
    first, second
        The two datasets, as the function takes them.
    claim
        The tradeoff curve to be tested.

    Examples
    --------
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> words = np.random.default_rng(1)
    >>> audit_function(
    ...     lambda data: sum(data) + words.normal(), [1, 0], [1, 1], gaussian("0.6")
    ... ).verdict
    'convicted'
    """
    one = [_numbers(function(first)) for _ in range(samples)]
    other = [_numbers(function(second)) for _ in range(samples)]
    return audit_samples(one, other, claim, error=error, randomness=randomness, progress=progress)


def _around(first: ArrayLike, second: ArrayLike) -> tuple[tuple[Outputs, Outputs], Pair]:
    """Return outputs in whole steps, or in steps of a fine grid, and the values that they lie
    around.
    """
    one, other = _matrix(first), _matrix(second)
    if one.shape[1] != other.shape[1]:
        numbers, other_numbers = one.shape[1], other.shape[1]
        raise InputError(
            f"the outputs of one dataset have {numbers} numbers, those of the other {other_numbers}"
        )
    count = min(len(one), len(other))
    if count < _FEWEST:
        raise InputError(
            f"an audit needs at least {_FEWEST:,} outputs for each dataset, not {count:,}"
        )
    learned = trained_on(count)
    whole = one.dtype.kind == other.dtype.kind == "i"
    # Centres and spread come from the outputs that train the attack, never from those that are
    # counted.
    first_seen = one[:learned].astype(np.float64)
    second_seen = other[:learned].astype(np.float64)
    first_centre = np.median(first_seen, axis=0)
    second_centre = np.median(second_seen, axis=0)
    deviations = np.concatenate([first_seen - first_centre, second_seen - second_centre])
    spread = np.median(np.abs(deviations), axis=0)
    typical = float(spread[spread > 0].min(initial=math.inf))
    if whole or not math.isfinite(typical):
        unit = 1.0
    else:
        # A power of two, so dividing by it loses no digit.
        unit = 2.0 ** math.floor(math.log2(typical / _FINE))
    largest = max(float(np.abs(one).max()), float(np.abs(other).max()))
    if largest / unit >= _LARGEST:
        raise InputError(
            "the outputs are too large compared with their spread to be read in whole steps"
        )
    first_value = np.rint(first_centre / unit).astype(np.int64)
    second_value = np.rint(second_centre / unit).astype(np.int64)
    if np.array_equal(first_value, second_value):
        # A pair needs a move. The outputs may differ in other ways, which the learned scores find.
        change = second_seen.mean(axis=0) - first_seen.mean(axis=0)
        where = int(np.abs(change).argmax())
        second_value[where] += 1 if change[where] >= 0 else -1
    precision = None
    if (spread > 0).any():
        precision = 1 / np.maximum(spread / unit, 1e-6) ** 2
    outputs = (one, other)
    if unit != 1.0:
        outputs = (one / unit, other / unit)
    return outputs, Pair(first_value, second_value, precision, unit)


def _matrix(outputs: ArrayLike) -> Outputs:
    array = _array(outputs)
    if array.ndim == 1:
        array = array[:, None]
    elif array.ndim:
        array = array.reshape(len(array), -1)
    has_columns = array.ndim == 2 and array.shape[1] > 0
    if not has_columns or array.dtype.kind not in "iufb":
        raise InputError("outputs are numbers, as many in every row")
    if not np.isfinite(array.astype(np.float64)).all():
        raise InputError(
            "an output is not a finite number: leave none out, but write what the mechanism gave as"
            " numbers"
        )
    return array.astype(np.int64) if array.dtype.kind in "iub" else array


def _numbers(output: Any) -> NDArray[Any]:
    array = np.atleast_1d(_array(output)).ravel()
    if array.dtype.kind not in "iufb":
        raise InputError("the function must return a number, or numbers, always as many")
    return array


def _array(values: ArrayLike) -> NDArray[Any]:
    """Return an array, of no numbers where rows are not of one length."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.zeros(0, dtype=object)

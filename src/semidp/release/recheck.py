"""Whether a release follows from what it says it was made by.

A folder may come from strangers. Its plan, exact totals and noisy values are public, so everything else that it states
can be computed again: the adjacency, the noise that its budgets need, the guarantees, the errors, the estimates.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp._version import __version__
from semidp.errors import SemidpError
from semidp.grouped import Intervals, most_rank_error
from semidp.guarantees import Guarantee
from semidp.mechanisms import (
    ExponentialMechanism,
    KNormMechanism,
    LatticeGaussianMechanism,
    Measurement,
    Mechanism,
    NoNoise,
    ResidualMechanism,
)
from semidp.progress import silent
from semidp.release.cells import StoredFiles
from semidp.release.part_tasks import split_residuals
from semidp.release.partitions import PartitionedTables, PartTable, measurements_stem
from semidp.release.products import ProductTable, PublishedProduct
from semidp.release.published import INTERVALS_BELOW, CellTable, Published, PublishedTable
from semidp.release.published_outcomes import PublishedGroups, PublishedQuantiles, PublishedRegression
from semidp.release.release import Release
from semidp.release.requests import Request, mechanism_again
from semidp.release.scope import announced
from semidp.release.side_information import CLOSE
from semidp.tables import Table
from semidp.tradeoff import Tradeoff

Floats = NDArray[np.float64]
_EARLIER_FACTORS = (
    1.959963984540054,
    math.log(20) / math.sqrt(2),
)  # standard errors in the intervals of earlier versions


def disagreements(release: Release, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a release states that does not follow from its plan, its exact totals and its noisy values.

    Noise above what a budget needs, and a guarantee weaker than the noise gives, are no fault: an earlier version knew
    looser bounds.

    Parameters
    ----------
    release
        The release that was read.
    document
        Its release.json.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], ["sex", "region"])
    >>> release = semidp.run(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]})
    >>> disagreements(release, release.to_json())
    ()
    >>> disagreements(release, {**release.to_json(), "epsilon": 0.1})
    ('it states epsilon 0.1, and its guarantee gives 6.1739...',)
    """
    return tuple(dict.fromkeys(_all(release, document)))


def _all(release: Release, document: Mapping[str, Any]) -> Iterator[str]:
    plan, scope = release.plan, release.scope
    yield from _stated(release, document)
    try:
        again = announced(plan, scope.dataspace)
    except SemidpError as error:
        yield f"its plan cannot be carried out: {error}"
        return
    if again.adjacency != scope.adjacency:
        yield f"it states a = {scope.adjacency.a}, and its plan and totals give a = {again.adjacency.a}"
    if release.versions.get("semidp") == __version__:  # others may have said it otherwise
        missing = [warning for warning in again.warnings if warning not in scope.warnings]
        yield from (f"it leaves out a warning: {warning}" for warning in missing)
    needed = []
    for request, result in zip(plan.requests, release.results, strict=True):
        try:
            mechanism = mechanism_again(request, result, scope)
        except SemidpError as error:
            yield f"{request.name!r} could not be computed again: {error}"
            continue
        needed.append(mechanism.guarantee)
        yield from (f"{result.name!r} states {said}" for said in _of(request, result, mechanism, release))
    known = len(needed) == len(release.results)
    if known and not _no_stronger(release.guarantee.tradeoff, Guarantee.compose(*needed).tradeoff):
        yield "it states a stronger guarantee than its parts have together"


def _stated(release: Release, document: Mapping[str, Any]) -> Iterator[str]:
    """Compare the numbers that are stated for readers with what follows from the rest."""
    found = release.to_json()
    for key, source in (("epsilon", "guarantee"), ("report_delta", "plan"), ("budget", "plan")):
        if not _same(document.get(key), found[key]):
            yield f"it states {key} {document.get(key)!r}, and its {source} gives {found[key]!r}"
    stated = document.get("a")
    for key in ("worst_case", "definition", "bound"):
        value = stated.get(key) if isinstance(stated, Mapping) else None
        known = found["a"][key]
        if value is not None and known is not None and not (isinstance(value, int) and value >= known):
            yield f"it states {value!r} for the {key.replace('_', ' ')} of a(t), which is {known}"


def _of(request: Request, result: Published, mechanism: Mechanism, release: Release) -> Iterator[str]:
    """Compare one result with its mechanism, and with what follows from its noisy values."""
    noise = result.noise
    name = NoNoise.name if mechanism.space.is_zero else mechanism.name
    if noise.mechanism != name:
        yield f"{noise.mechanism} noise, where its totals leave {name}"
    if not noise.scale >= mechanism.scale * (1 - CLOSE):
        yield f"noise of scale {noise.scale:.6g}, and its budget needs {mechanism.scale:.6g}"
    if noise.claim != mechanism.claim:
        yield f"an {noise.claim} claim, and {mechanism.name} noise makes an {mechanism.claim} one"
    if not _no_stronger(result.guarantee.tradeoff, mechanism.tradeoff):
        yield "a stronger guarantee than its noise gives"
    if isinstance(mechanism, ResidualMechanism):
        yield from _of_residuals(result, mechanism)
        if isinstance(result, PartitionedTables):
            yield from _of_parts(result, release)
        return
    if isinstance(result, PublishedQuantiles):
        if isinstance(mechanism, ExponentialMechanism) and result.rank_error != most_rank_error(mechanism):
            yield f"an error of {result.rank_error} ranks, and its choices have {most_rank_error(mechanism)}"
        return
    if isinstance(mechanism, KNormMechanism):  # its errors come from a pilot
        return
    if not _close(noise.scale, mechanism.scale):
        return  # an earlier version used more noise, and all else follows from that
    if isinstance(mechanism, LatticeGaussianMechanism) and _close(noise.expected_l2, mechanism.largest_l2):
        return  # an earlier version stated an upper bound of its errors
    if not _close(noise.expected_l2, mechanism.expected_l2):
        yield f"an expected loss of {noise.expected_l2:.6g}, and its noise has {mechanism.expected_l2:.6g}"
    if isinstance(result, PublishedTable):
        if not _close(result.standard_errors, mechanism.standard_errors()):
            yield "standard errors that its noise does not have"
        elif not _intervals_hold(result, mechanism.half_widths if result.half_widths is not None else None):
            yield "intervals that its noise does not have"
        if not mechanism.space.is_zero and not _close(result.projected, mechanism.publish(result.noisy)):
            yield "estimates that do not follow from the noisy counts"
        return
    assert isinstance(result, (PublishedGroups, PublishedRegression))
    measured = Measurement(
        result.noisy, mechanism.publish(result.noisy), mechanism.name, mechanism.claim, result.private
    )
    again = request.publish(mechanism, measured, release.scope, silent)
    if isinstance(result, PublishedGroups) and isinstance(again, PublishedGroups):
        for one, other in zip(result.estimates, again.estimates, strict=True):
            if one.groups != other.groups or not _close(one.counts, other.counts):
                yield "groups or counts that its exact totals do not have"
            elif not _close(one.values, other.values) or not _close(one.standard_errors, other.standard_errors):
                yield "estimates or standard errors that do not follow from its noisy sums"
        if result.intervals and not _same_ends(
            (*result.intervals, *result.differences), (*again.intervals, *again.differences)
        ):
            yield "intervals that do not follow from its noisy sums"
    elif isinstance(result, PublishedRegression) and isinstance(again, PublishedRegression):
        if result.query is None and request.to_json().get("model") == "logistic":
            return  # an earlier version fitted otherwise
        pairs = (result.coefficients, again.coefficients), (result.standard_errors, again.standard_errors)
        if result.terms != again.terms or not all(_close(one, other, 1e-4) for one, other in pairs):
            yield "coefficients or standard errors that do not follow from its noisy values"
        elif result.query is not None and not _same_ends([result.intervals], [again.intervals], 1e-2):
            yield "intervals that do not follow from its noisy values"


def _same_ends(
    stated: Sequence[Sequence[Intervals]], found: Sequence[Sequence[Intervals]], tolerance: float = CLOSE
) -> bool:
    """Whether intervals have the same ends, and the same ones open."""
    pairs = [list(zip(one, other, strict=False)) for one, other in zip(stated, found, strict=False)]
    return list(map(len, stated)) == list(map(len, found)) and all(
        _close(_closed(mine), _closed(theirs), tolerance)
        for part in pairs
        for one, other in part
        for mine, theirs in ((one.lower, other.lower), (one.upper, other.upper))
    )


def _closed(ends: ArrayLike) -> Floats:
    found = np.asarray(ends, dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def _of_residuals(result: Published, mechanism: ResidualMechanism) -> Iterator[str]:
    """Compare the noise of each residual with what the budget needs, and the tables with what the noise says."""
    assert isinstance(result, (PublishedProduct, PublishedTable, PartitionedTables))
    tables: list[PublishedTable | ProductTable] = []
    if isinstance(result, PublishedTable):
        assert result.residuals is not None  # a table whose noise is on residuals says how much
        stated = result.residuals
        tables.append(result)
    else:
        stated = result.mechanism
        tables += result.overview if isinstance(result, PartitionedTables) else result.tables
    if not isinstance(result, PartitionedTables) and not _close(result.noise.expected_l2, stated.expected_l2):
        yield f"an expected loss of {result.noise.expected_l2:.6g}, and its noise has {stated.expected_l2:.6g}"
    if isinstance(result, PublishedProduct) and not _close(result.one_by_one_l2 or 0.0, stated.one_by_one_l2 or 0.0):
        yield "another loss of tables one by one than they have"
    if any(stated.sigma2[view] < float(square) * (1 - CLOSE) for view, square in mechanism.sigma2.items()):
        yield "less noise on a residual than its budget needs"
    if stated.precision > mechanism.precision or stated.law != mechanism.law:
        yield "another guarantee for its residuals than its budget gives"
    if isinstance(result, PartitionedTables):
        stated = result.above  # what is below is compared part by part
    estimates = stated.space.estimates(stated.publish(result.noisy))
    for number, (table, estimate) in enumerate(zip(tables, estimates, strict=True)):
        if not _close(table.estimate, estimate):
            yield f"estimates of {table.name} that do not follow from its measurements"
        if not _close(table.standard_errors, stated.table_errors(number)):
            yield f"standard errors of {table.name} that its noise does not have"
        elif not _intervals_hold(table, stated.table_half_widths(number) if table.half_widths is not None else None):
            yield f"intervals of {table.name} that its noise does not have"


def _intervals_hold(table: CellTable, half_widths: NDArray[np.float64] | None) -> bool:
    """Whether the intervals of a table are those of its noise, or the normal or Laplace ones of an earlier version."""
    if table.half_widths is None or half_widths is None:
        return True
    earlier = (factor * table.standard_errors for factor in _EARLIER_FACTORS)
    return any(np.allclose(table.half_widths, known, rtol=1e-6, atol=3e-6) for known in (half_widths, *earlier))


def _of_parts(result: PartitionedTables, release: Release) -> Iterator[str]:
    """Compare every part with what was measured in it, with the tables at the cut, and with the exact totals."""
    partition = release.partition
    if partition is None or partition.place is None:
        yield "parts that are not there"
        return
    changed = partition.changed()
    if changed is not None:
        yield f"another {changed} than the folder has"
        return
    below: list[PartTable] = []
    sound = True
    for node, part in enumerate(partition.parts):
        files = StoredFiles(partition.place / part.folder, tuple(part.files))
        try:
            tables = result.part_tables(files, node, part)
            said = list(_of_part(result, node, tables, files))
        except (ValueError, KeyError, OSError):
            said = ["files that are damaged"]
        yield from (f"{what} in {part.folder}" for what in said)
        sound = sound and not said
        for found in map(PartTable.of, tables if not said else ()):
            below.append(found)
            own = next(known for known in part.tables if known.name == found.name)
            stated, again = ((table.largest_standard_error, table.variance) for table in (own, found))
            if not _close(stated, again):
                yield f"other errors of {found.name} than {part.folder} has"
    expected = result.expected_l2(below)
    if sound and not _close(result.noise.expected_l2, expected):
        yield f"an expected loss of {result.noise.expected_l2:.6g}, and its noise has {expected:.6g}"


def _of_part(result: PartitionedTables, node: int, tables: Sequence[ProductTable], files: StoredFiles) -> Iterator[str]:
    noise, rows, cut = result.noise_of(node), result.rows(node), result.cut
    schema = cut.branch(result.mechanism.space.schema, node)
    exact = cut.exact(result.mechanism.space.dataspace, node)
    found = [(np.zeros(table.counts.shape), np.zeros(table.counts.shape)) for table in tables]
    if noise is not None:
        noisy = split_residuals(noise.space, files.numbers(measurements_stem(result.request), 1)["noisy"])
        found = noise.tables(noisy, [(row.estimate, row.variance) for row in rows])
    half_widths = [None] * len(tables) if noise is None else noise.half_widths(INTERVALS_BELOW)
    for table, (estimate, variance), row, half in zip(tables, found, rows, half_widths, strict=True):
        if not _close(table.estimate, estimate.reshape(table.counts.shape)):
            yield f"estimates of {table.name} that do not follow from the measurements"
        if not _close(table.standard_errors, np.sqrt(variance).reshape(table.counts.shape)):
            yield f"standard errors of {table.name} that its noise does not have"
        elif not _intervals_hold(table, half):
            yield f"intervals of {table.name} that its noise does not have"
        if table.fitted.kind != "integer":
            continue
        view = schema.view(table.schema.names)
        at_cut = schema.grid.sum(table.counts.reshape(schema.grid.shape_of(view)), cut.above(view), view)
        adds_up = row.counts is None or np.array_equal(at_cut.ravel(), row.counts.ravel())
        if table.counts.dtype.kind != "i" or table.counts.min(initial=0) < 0 or not adds_up:
            yield f"counts of {table.name} that do not add up to those above"
        elif exact.margins and not exact.over(table.schema.names).contains(Table(table.schema, table.counts)):
            yield f"counts of {table.name} that do not add up to the exact totals"


def _no_stronger(stated: Tradeoff, proven: Tradeoff) -> bool:
    """Whether a stated curve claims no more than the proven one."""
    return stated == proven or proven >= stated


def _close(one: ArrayLike, other: ArrayLike, tolerance: float = CLOSE) -> bool:
    left, right = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if left.shape != right.shape:
        return False
    size = float(np.nanmax(np.abs(right), initial=0.0))
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * max(size, 1e-300), equal_nan=True))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other)]
    if all(numbers):
        return math.isclose(one, other, rel_tol=CLOSE)
    return bool(one == other)

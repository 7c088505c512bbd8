"""Whether published whole numbers are the fit of what was measured: fitted again, and compared by
their distance.

A table is a function of its measurement and of public totals, but for two things. Two tables may be
equally close, and a search with a time limit may end elsewhere on another machine. So counts are
compared by their distance from what was measured: none may be farther than the table that is found
now, and the stated distance must be theirs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.promise.guarantee import Scope
from semidp.promise.progress import silent
from semidp.publish.fitting.tables import fit_table
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable
from semidp.publish.statistics.recheck_findings import Findings
from semidp.publish.statistics.tables.fitting import NOT_ALL

SECONDS = 3.0
"""The time limit of a fit that is made again; all but searches for a proof are over long before."""
_CLOSE = 1e-6
# so much farther than a search without proof finds now is still taken for its result elsewhere
_SEARCHED = 0.05

Refit = tuple[NDArray[Any], Fitted]
"""A table that was fitted, and how."""


@dataclass(frozen=True, eq=False)
class Checked:
    """What came out of the comparison of one table.

    Parameters
    ----------
    wrong
        What the table states that is not so.
    unproved
        What is believed of it: parts of `Fitted`, and ``count`` where another table is as close.
    """

    wrong: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()


def intervals_hold(table: PublishedTable, half_widths: NDArray[np.float64] | None) -> bool:
    """Whether the intervals of a table are those of its noise."""
    if table.half_widths is None or half_widths is None:
        return True
    expected = half_widths.reshape(table.half_widths.shape)
    # Ends are written with six digits, so that half-widths are known to about three units of the
    # last.
    return np.allclose(table.half_widths, expected, rtol=1e-6, atol=3e-6)


def refit_table(
    measure: NDArray[Any], features: Sequence[str], kind: FitKind, scope: Scope
) -> Refit:
    """Fit one table with a budget of its own again, for a few seconds at most."""
    fit = fit_table(
        measure,
        scope.dataspace.restrict_features(features),
        time_limit=SECONDS,
        progress=silent,
    )
    counts = fit.values if fit.counts is None else fit.counts
    assert counts is not None, "a fit holds whole numbers or real ones"
    return counts, Fitted(str(kind), fit.method, fit.loss, fit.bound, fit.optimal, fit.note)


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A published table beside what it was fitted to.

    Parameters
    ----------
    called, file
        What it is called in a sentence, and the file of its counts.
    table
        The table.
    measure
        What was fitted: noisy counts, or estimates.
    """

    called: str
    file: str
    table: PublishedTable
    measure: NDArray[Any]

    def is_same(self, again: Refit) -> bool:
        """Whether the fit that is made now has the same counts."""
        counts = self.table.counts
        refitted = again[0].reshape(counts.shape)
        return counts.dtype.kind == refitted.dtype.kind and _same_numbers(counts, refitted)


def note_fits(
    findings: Findings,
    name: str,
    place: str,
    tables: Sequence[FittedTable],
    fits: Sequence[Refit] | None,
) -> None:
    """Note what is wrong or unproved with the whole numbers of tables that were fitted one after
    the other.

    Each is fitted to those before it. So where two came out otherwise by other software, the second
    was fitted to something else, and its distance is compared loosely.

    Parameters
    ----------
    findings
        Where it is noted.
    name, place
        The result that the tables belong to, and where their fits are stated.
    tables, fits
        The tables, and the fits that are made now; None where the tables are too large for that.
    """
    if fits is None or _is_unfinished(tables, fits):
        for table in tables:
            _note(findings, name, place, table.file, compare_fit(table, None))
        return
    different = [
        table for table, again in zip(tables, fits, strict=True) if not table.is_same(again)
    ]
    for table, again in zip(tables, fits, strict=True):
        # The only table that came out otherwise was fitted to the same totals as now.
        strict = findings.same_software or different == [table]
        _note(findings, name, place, table.file, compare_fit(table, again, strict))


def _is_unfinished(tables: Sequence[FittedTable], fits: Sequence[Refit]) -> bool:
    """Whether whole numbers take longer to find than is spent here: later tables depend on them."""
    for table, (_, how) in zip(tables, fits, strict=True):
        if table.table.fitted.kind == FitKind.integer and how.note.startswith(NOT_ALL):
            return True
    return False


def _note(findings: Findings, name: str, place: str, file: str, checked: Checked) -> None:
    """Note what a comparison of one table found."""
    findings.wrong += [f"{name!r} states {said}" for said in checked.wrong]
    places = []
    for key in checked.unproved:
        places.append(f"{file} count" if key == "count" else f"{place}.{key}")
    findings.trust(
        "which of several close tables was published, where no quick proof singles one out; its"
        " totals and its distance from what was measured are right",
        *places,
    )


def compare_fit(one: FittedTable, again: Refit | None, strict: bool = True) -> Checked:
    """Compare published counts with what they were fitted to, and with the fit that is made now.

    Parameters
    ----------
    one
        The table.
    again
        The fit that is made now; None where there is none.
    strict
        Whether it was fitted to the same totals for certain.
    """
    name, counts, stated = one.called, one.table.counts, one.table.fitted
    measure = one.measure.reshape(counts.shape)
    if again is not None and stated.kind != again[1].kind:
        return Checked(
            (f"a fit of the kind {stated.kind!r} for {name}, and its plan gives {again[1].kind!r}",)
        )
    if stated.kind == FitKind.none and stated.method == "none":
        return Checked(tuple(_published_estimate(name, counts, stated, measure, again)))
    # The distance follows from published numbers alone: no fit is needed to compare it.
    loss = float(np.square((counts - measure).astype(np.float64)).sum())
    if not _near(stated.loss, loss):
        said = (
            f"that {name} has a distance (loss) of {stated.loss:.6g} from what was measured, which"
            f" is {loss:.6g}"
        )
        return Checked((said,))
    # There is nothing found now to compare with, so the published counts are believed.
    if again is None or (counts.dtype.kind == "i" and again[0].dtype.kind != "i"):
        return Checked(
            tuple(_bounds(name, stated)), ("count", "method", "bound", "optimal", "note")
        )
    return _compare_with_refit(one, loss, again, again[1].optimal and strict)


def _published_estimate(
    name: str, counts: NDArray[Any], stated: Fitted, measure: NDArray[Any], again: Refit | None
) -> Iterator[str]:
    """Compare a table that was not fitted with its estimate."""
    if not _same_numbers(counts, measure):
        yield f"counts of {name} that are not its estimates, which were not fitted"
    if again is not None and stated != again[1]:
        yield f"another fit of {name} than its plan gives"


def _compare_with_refit(one: FittedTable, loss: float, again: Refit, proved: bool) -> Checked:
    """Compare a table with the one that a new fit finds, which may be proved to be the closest."""
    name, counts, stated = one.called, one.table.counts, one.table.fitted
    refitted, how = again
    same = one.is_same(again)
    if not same and (said := too_far(name, counts, loss, how, proved)) is not None:
        return Checked((said,))
    if not same and counts.dtype.kind != "i" and refitted.dtype.kind == "i":
        return Checked((f"real numbers in {name}, where whole numbers with the same totals exist",))
    wrong = list(_bounds(name, stated))
    tolerance = 1e-4 if proved else 1e-2
    if not _near(stated.bound, min(how.bound, loss), tolerance):
        wrong.append(
            f"a bound of {stated.bound:.6g} for the distance of {name}, and {how.bound:.6g} is"
            " found"
        )
    # A proof may take longer than is spent here: then its claims are believed, within what is
    # possible.
    unproved = [] if same else ["count"]
    for key in ("method", "optimal", "note"):
        claimed, follows = getattr(stated, key), getattr(how, key)
        if claimed == follows:
            continue
        if not proved and (key != "method" or not same):
            unproved.append(key)
        else:
            wrong.append(f"the {key} {claimed!r} for the fit of {name}, and it is {follows!r}")
    return Checked(tuple(wrong), tuple(unproved))


def too_far(
    name: str, counts: NDArray[Any], loss: float, found: Fitted, proved: bool
) -> str | None:
    """Say that counts are farther from what was measured than those that are found now, if they
    are.
    """
    # A relative allowance vanishes where the distance is near 0, so every cell adds a little.
    allowed = found.loss * (1 + (_CLOSE if proved else _SEARCHED)) + _CLOSE * counts.size
    if loss <= allowed:
        return None
    return (
        f"counts of {name} at a distance (loss) of {loss:.6g} from what was measured, where"
        f" {found.loss:.6g} is possible with the same totals"
    )


def _bounds(name: str, stated: Fitted) -> Iterator[str]:
    """Say where a lower bound of the distance lies above the distance."""
    if stated.bound > stated.loss * (1 + _CLOSE) + _CLOSE:
        yield f"a bound of {stated.bound:.6g} for the distance of {name}, which has a smaller one"


def _same_numbers(one: ArrayLike, other: ArrayLike) -> bool:
    """Whether two tables agree: whole numbers exactly, others but for the digits of a file."""
    left, right = np.asarray(one), np.asarray(other)
    if left.shape != right.shape:
        return False
    if left.dtype.kind == "i" and right.dtype.kind == "i":
        return bool(np.array_equal(left, right))
    return bool(np.allclose(left.astype(float), right.astype(float), rtol=_CLOSE, atol=1e-4))


def _near(stated: float, follows: float, tolerance: float = _CLOSE) -> bool:
    """Whether two distances agree but for rounding."""
    return abs(stated - follows) <= tolerance * max(1.0, abs(follows))

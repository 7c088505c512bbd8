"""Whole numbers beside the fit that is made now: what is wrong, what is only believed, and what two
machines may do.
"""

import numpy as np
import pytest

from semidp.promise.schema.counts import Table
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.fitting.tables import fit_table
from semidp.publish.results.published_table import Fitted, PublishedTable
from semidp.publish.statistics.recheck_findings import Findings
from semidp.publish.statistics.tables.fitting import NOT_ALL
from semidp.publish.statistics.tables.refit import FittedTable, Refit, compare_fit, note_fits

SCHEMA = Schema([Feature("sex", "fm")])
NOISY = np.array([3.5, 6.5])
PUBLIC = Dataspace.from_table(Table(SCHEMA, [6, 4]), [])


def fit_of(noisy: np.ndarray) -> Refit:
    fit = fit_table(noisy, PUBLIC)
    assert fit.counts is not None
    return fit.counts, Fitted("integer", fit.method, fit.loss, fit.bound, fit.optimal, fit.note)


def beside(counts: list[int], stated: Fitted, noisy: np.ndarray = NOISY) -> FittedTable:
    zeros = np.zeros(SCHEMA.shape)
    return FittedTable(
        "sex",
        "sex.csv",
        PublishedTable("sex", SCHEMA, np.array(counts), zeros, zeros, stated),
        noisy,
    )


def test_a_table_that_is_as_close_is_believed_and_said_to_be() -> None:
    counts, how = fit_of(NOISY)
    assert (how.loss, how.optimal) == (0.5, True)
    found = compare_fit(beside(counts.tolist(), how), (counts, how))
    assert (found.wrong, found.unproved) == ((), ())
    twin = [3, 7] if counts.tolist() == [4, 6] else [4, 6]
    found = compare_fit(beside(twin, how), (counts, how))
    assert (found.wrong, found.unproved) == ((), ("count",))


@pytest.mark.parametrize("counts", [[5, 5], [2, 8], [10, 0]])
def test_a_table_that_is_farther_is_wrong_whatever_it_says_of_itself(counts: list[int]) -> None:
    again = fit_of(NOISY)
    loss = float(np.square(np.array(counts) - NOISY).sum())
    honest = Fitted("integer", "thresholds", loss, 0.5, False, "Closer tables may exist.")
    assert "possible with the same totals" in compare_fit(beside(counts, honest), again).wrong[0]
    assert "which is" in compare_fit(beside(counts, again[1]), again).wrong[0]


def test_what_is_not_found_again_in_time_is_believed() -> None:
    counts, how = fit_of(NOISY)
    real = (np.array([3.5, 6.5]), Fitted("integer", "projection", 0.0, 0.0, False, ""))
    found = compare_fit(beside(counts.tolist(), how), real)
    assert (found.wrong, "count" in found.unproved) == ((), True)
    missing = (NOISY, Fitted("none", "none", 0.0, 0.0, False, NOT_ALL))
    findings = Findings(refits=True)
    note_fits(findings, "product", "products.tables.fit", [beside(counts.tolist(), how)], [missing])
    assert findings.wrong == []
    assert "sex.csv count" in next(iter(findings.trusted.values()))


def test_two_tables_that_came_out_otherwise_are_compared_loosely_and_one_is_not() -> None:
    """The second table was fitted to the first: where that is another one, the totals were others,
    too.
    """
    noisy = np.array([100.5, -90.5])
    again = fit_of(noisy)
    assert again[0].tolist() == [10, 0]
    loss = float(np.square(np.array([9, 1]) - noisy).sum())
    assert loss / again[1].loss < 1.05
    stated = Fitted("integer", again[1].method, loss, again[1].bound, True, again[1].note)
    one, other = beside([9, 1], stated, noisy), beside([9, 1], stated, noisy)
    for tables, same, wrong in (
        ([one], False, 1),
        ([one, other], True, 2),
        ([one, other], False, 0),
    ):
        findings = Findings(refits=True, same_software=same)
        note_fits(findings, "product", "products.tables.fit", tables, [again] * len(tables))
        assert sum("possible with the same totals" in said for said in findings.wrong) == wrong
        assert bool(findings.trusted) == (wrong == 0)

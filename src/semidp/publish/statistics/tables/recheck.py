"""Published tables, computed again from their noisy values: estimates, errors, intervals and whole
numbers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Mechanism, NoNoise
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.progress import silent
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.recheck_findings import close
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.fitting import exact_totals, fit_product
from semidp.publish.statistics.tables.published import PublishedTables
from semidp.publish.statistics.tables.refit import (
    SECONDS,
    FittedTable,
    Refit,
    note_fits,
    refit_table,
)

Floats = NDArray[np.float64]

_LEAST_SECONDS = 0.3  # the time limit of a fit, however many tables are fitted one after the other


def compare_residuals(
    check: ResultCheck, stated: ResidualMechanism, needed: ResidualMechanism
) -> ResidualMechanism | None:
    """Compare the noise of each residual with what the budget needs; return the one that all else
    follows from.

    None where the noise is not what the budget gives.
    """
    before = len(check.findings.wrong)
    squares = [(float(stated.sigma2[view]), float(least)) for view, least in needed.sigma2.items()]
    same = all(close(square, least) for square, least in squares)
    # Noise may be placed in several ways, and another computer may end elsewhere: what it costs is
    # compared.
    if stated.spent > stated.precision:
        check.wrong("less noise on a residual than its budget needs")
    elif not same and not stated.serves_like(needed):
        check.wrong("more noise on a residual than its budget gives")
    if (stated.law, stated.precision) != (needed.law, needed.precision):
        check.wrong("another guarantee for its residuals than its budget gives")
    if len(check.findings.wrong) > before:
        return None
    return needed if same else stated


# --- one table with a budget of its own


def recheck_table(
    result: PublishedTables, check: ResultCheck, mechanism: Mechanism
) -> PublishedTables:
    """Compare the totals of one measurement, and the distance of the published table from it."""
    _compare_totals(check, result, mechanism)
    fitted_to = result.noisy if result.residuals is None else result.only.estimate
    _compare_fit(check, result, result.request.only, fitted_to)
    return result


def _compare_totals(check: ResultCheck, result: PublishedTables, mechanism: Mechanism) -> None:
    """Compare a measurement with the totals that it has by itself: noise that keeps the totals, or
    none at all.
    """
    if isinstance(mechanism, NoNoise):
        if not np.array_equal(result.noisy, np.rint(mechanism.space.fixed_part())):
            check.wrong("a measurement that is not what its exact totals fix")
    elif mechanism.keeps_totals:
        # Such noise has zero margins, so a measurement without the totals was not drawn by it.
        schema = result.only.schema
        for total in check.scope.dataspace.restrict_features(schema.names).published_totals:
            if not np.array_equal(schema.grid.sum(result.noisy, total.view), total.counts):
                check.wrong(
                    f"a measurement without the exact totals, which {mechanism.name} noise keeps"
                )
                return


def _compare_fit(
    check: ResultCheck, result: PublishedTables, request: TableRequest, fitted_to: NDArray[Any]
) -> None:
    """Compare the published counts of a table with what they were fitted to."""
    published = result.only
    again: Refit | None = None
    if request.fit is FitKind.none:
        note = "The measurement itself is published."
        again = published.estimate, Fitted(str(request.fit), "none", 0.0, 0.0, True, note)
        fitted_to = published.estimate
    elif check.findings.refits:
        again = refit_table(fitted_to, published.schema.names, request.fit, check.scope)
    file = f"{result.name}.{published.columns().form(check.form)}"
    table = FittedTable("the table", file, published, fitted_to)
    note_fits(
        check.findings,
        result.name,
        f"{result.list_key}.fit",
        [table],
        None if again is None else [again],
    )


# --- tables that share a budget


def recheck_tables(
    result: PublishedTables, check: ResultCheck, mechanism: Mechanism
) -> PublishedTables:
    """Compare how far tables that share a budget are from their estimates."""
    _compare_fits(check, result, [table.estimate for table in result.tables])
    return result


def _compare_fits(check: ResultCheck, result: PublishedTables, estimates: Sequence[Floats]) -> None:
    """Compare the whole numbers of tables that were fitted one after the other."""
    fits = None
    if check.findings.refits:
        space = result.noise_of_residuals.space
        fit_kinds = [table.fit for table in result.request.tables]
        seconds = max(SECONDS / len(estimates), _LEAST_SECONDS)
        fits = fit_product(
            space.schema.grid,
            space.views,
            exact_totals(space),
            list(estimates),
            fit_kinds,
            silent,
            time_limit=seconds,
            possible=[space.possible(number) for number in range(len(space.views))],
        )
    tables = []
    for table, estimate in zip(result.tables, estimates, strict=True):
        file = f"{table.name}.{table.columns().form(check.form)}"
        tables.append(FittedTable(table.name, file, table, estimate))
    note_fits(check.findings, result.name, f"{result.list_key}.tables.fit", tables, fits)

"""The private test of an odds ratio of a given table, in one call.

It prepares what `semidp test` prepares from data; the pipeline charges the ledger and draws U.
"""

from collections.abc import Iterable

import numpy as np

from semidp.errors import DataError, SchemaError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.confidential import Confidential
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.canonical_cell import transpose_counts
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.schema import Table
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.protection import refuse_dependent
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.pipeline import Prepared, RunOptions, measure_prepared
from semidp.publish.plan import Plan
from semidp.publish.statistics.odds_ratio.kind import OddsRatioRequest
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult, canonical_mechanism
from semidp.publish.statistics.odds_ratio.umpu import Alternative, refuse_untestable


def odds_ratio_test(
    table: Table,
    privacy: Tradeoff | Budget,
    *,
    strata: Iterable[str] = (),
    alternative: Alternative = Alternative.TWO_SIDED,
    dataspace: Dataspace | None = None,
    adjacency: Adjacency | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> OddsRatioResult:
    """Test the odds ratio of a 2×2 table whose margins are public, with a privacy guarantee for the
    rest.

    With strata both margins are public within each, and U is the sum of x11 over them plus noise:
    x11 of the table summed over the strata, so a records change it by at most floor(a/2) as in
    a 2×2 table. One-sided tests are uniformly most powerful among all unbiased tests with the same
    guarantee (Cho and Awan, theorem on the semi-private UMPU test; docs/inference_checks.md for
    strata). U is drawn exactly, on a grid of 2^-32 or coarser for very large n or noise: no bit of
    it depends on floating-point arithmetic with x11.

    Parameters
    ----------
    table
        The confidential counts: two features of two levels, and the strata. The first level of each
        is level 1, so a large count in the first cell speaks for ω > 1.
    privacy
        A budget, or any tradeoff function f.
    strata
        The features of the table, any number of levels each, whose combinations are the strata.
    alternative
        ``two-sided`` (ω other than 1), ``greater`` (ω > 1) or ``less``.
    dataspace
        What is public, if more than the two margins; both margins must be part of it.
    adjacency
        How many records change together (default: the worst case a(t) of the dataspace).
    randomness
        Where random words come from (default: the operating system). Any other marks the result
        not private.
    ledger
        Charged before U is drawn.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> schema = Schema([Feature("gender", ["f", "m"]), Feature("admitted", ["yes", "no"])])
    >>> result = odds_ratio_test(Table(schema, [[89, 19], [512, 313]]), Budget.pure(1))
    >>> result.x11, result.reject(0.05), result.guarantee.adjacency.a
    (('f', 'yes'), True, 3)
    """
    strata = tuple(strata)
    rows, columns = _two_features(table, strata)
    if dataspace is None:
        margins = [Margin(rows, *strata), Margin(columns, *strata)]
        dataspace = Dataspace.from_table(table, margins)
    _check_values(table, dataspace, (rows, columns), strata)
    refuse_untestable(table.schema, dataspace, rows, columns)
    if adjacency is not None:
        refuse_dependent(adjacency.protection, f"semidp model '{columns} ~ {rows}' of a release")
    mechanism = canonical_mechanism(dataspace, adjacency, rows, columns, strata, privacy)
    request = OddsRatioRequest(rows, columns, strata=strata, alternative=alternative)
    # Given the margins, the sum over strata holds all that the table says of a common odds ratio.
    x11 = table.margin((rows, columns)).counts[:1, 0]
    prepared = Prepared(
        Plan([request], dataspace.margins),
        Scope(dataspace, None, mechanism.guarantee.adjacency),
        (mechanism,),
        mechanism.guarantee,
        (Confidential(x11),),
    )
    label = f"odds ratio of {rows} and {columns}"
    options = RunOptions(randomness=randomness, ledger=ledger, label=label)
    _, (measurement,) = measure_prepared(prepared, options, ledger)
    return OddsRatioResult.from_measurement(mechanism, measurement, request.alternative)


def _two_features(table: Table, strata: tuple[str, ...]) -> tuple[str, str]:
    for name in strata:
        if name not in table.schema.names:
            raise SchemaError(
                f"the table has no feature {name!r} for strata; it has"
                f" {', '.join(table.schema.names)}"
            )
    tested = [feature for feature in table.schema.features if feature.name not in strata]
    if len(tested) != 2:
        raise SchemaError(
            f"an odds ratio needs a table of two features besides strata, not {len(tested)}: sum it"
            " over the others first, with table.margin([rows, columns])"
        )
    return tested[0].name, tested[1].name


def _check_values(
    table: Table, dataspace: Dataspace, features: tuple[str, str], strata: tuple[str, ...]
) -> None:
    """Both margins must be public, with the values of the table; the message names features
    only.
    """
    # The test conditions on the published margins, so its p-value would be wrong for other totals.
    for name in features:
        names = (name, *strata)
        published = transpose_counts(dataspace.value(Margin(*names)), names)
        counted = transpose_counts(table.margin(names), names)
        if not np.array_equal(published, counted):
            raise DataError(f"the published values of {name} are not those of the table")

"""From a plan and data to a release: the page to read first, one line for each arrow of docs/how_it_works.md."""

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from semidp.accounting import Ledger
from semidp.engines import Source, open_source
from semidp.errors import InputError
from semidp.fit import fit_table
from semidp.guarantees import Guarantee
from semidp.invariants import Dataspace
from semidp.mechanisms import LaplaceMechanism, Measurement, Mechanism, calibrated, choose, naive_loss
from semidp.noise import Randomness, SystemRandomness
from semidp.progress import Progress, silent
from semidp.release.plan import AUTO, FitKind, Plan, TableRequest
from semidp.release.survey import Scope, Survey, survey
from semidp.release.values import Fitted, Noise, Published, Release, versions
from semidp.tradeoff import ZCDP, Gaussian, Tradeoff, approximate


def run(
    plan: Plan,
    data: Any,
    *,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
    progress: Progress = silent,
) -> Release:
    """Carry out a plan: read, calibrate, account, measure, fit.

    Parameters
    ----------
    plan
        What to publish exactly and what with noise. Every table needs a budget.
    data
        A `Source`, or what `open_source` takes: a path, a data frame, an Ibis table.
    randomness
        Where random words come from; the operating system unless given. Any other marks the release not private.
    ledger
        Charged with the composed guarantee before any noise is drawn.

    Returns
    -------
    Release
        What may be published; nothing in it is confidential beyond what the plan publishes exactly.

    Examples
    --------
    >>> from semidp import Budget, Margin
    >>> people = {"sex": ["f", "m", "m", "f", "m"], "region": ["n", "s", "n", "s", "s"]}
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.zcdp(1))], [Margin("sex"), Margin("region")])
    >>> release = run(plan, people)
    >>> release.tables[0].counts.sum(axis=1).tolist(), release.guarantee.adjacency.a
    ([2, 3], 3)
    """
    randomness = SystemRandomness() if randomness is None else randomness
    found = read(plan, data)
    mechanisms = [mechanism_for(request, found.scope) for request in plan.tables]
    guarantee = together([mechanism.guarantee for mechanism in mechanisms])
    entry = ledger.charge(guarantee, label=", ".join(request.name for request in plan.tables)) if ledger else None
    measured = [mechanism.apply(table, randomness) for mechanism, table in zip(mechanisms, found.tables, strict=True)]
    work = zip(plan.tables, mechanisms, measured, strict=True)
    tables = tuple(published(request, mechanism, m, found.scope, progress) for request, mechanism, m in work)
    return Release(
        plan=plan,
        scope=found.scope,
        tables=tables,
        guarantee=guarantee,
        private=all(measurement.private for measurement in measured),
        ledger=entry,
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def read(plan: Plan, data: Any) -> Survey:
    """Read what the plan needs from a source, or from what `open_source` opens; what is opened here is closed here."""
    if not plan.tables:
        raise InputError("the plan releases nothing: name a table with --table a,b")
    if isinstance(data, Source):
        return survey(plan, data)
    with open_source(data, count=plan.count, where=plan.where, id=plan.id) as source:
        return survey(plan, source)


def mechanism_for(request: TableRequest, scope: Scope) -> Mechanism:
    """Return the mechanism that a request names, or the one with the least expected loss, from public values only."""
    if request.budget is None:
        raise InputError(f"the table {request.name!r} has no privacy budget: give epsilon, rho or mu")
    space = scope.space(request.features)
    if request.mechanism == AUTO:
        return choose(space, request.budget)
    return calibrated(request.mechanism, space, request.budget)


def together(guarantees: list[Guarantee]) -> Guarantee:
    """Return the guarantee of several measurements of the same data: Semi-DP first, then composition."""
    first, *others = guarantees
    tradeoff = first.tradeoff.compose(*(other.tradeoff for other in others)) if others else first.tradeoff
    return Guarantee(first.dataspace, first.adjacency, tradeoff)


def published(
    request: TableRequest, mechanism: Mechanism, measurement: Measurement, scope: Scope, progress: Progress
) -> Published:
    """Fit what is published to a measurement: from here on all is post-processing of public values."""
    counts, how = fitted(request.fit, measurement, scope.published(request.features), progress)
    return Published(
        name=request.name,
        schema=mechanism.space.schema,
        counts=counts,
        noisy=measurement.noisy,
        projected=measurement.projected,
        standard_errors=mechanism.standard_errors(),
        noise=described(mechanism),
        fitted=how,
        guarantee=mechanism.guarantee,
        advertised=advertised(mechanism),
        private=measurement.private,
    )


def fitted(
    kind: FitKind, measurement: Measurement, dataspace: Dataspace, progress: Progress
) -> tuple[NDArray[Any], Fitted]:
    """Return the table to publish and how it was made."""
    if kind is FitKind.none:
        return measurement.projected, Fitted(str(kind), "none", 0.0, 0.0, True, "The measurement itself is published.")
    fit = fit_table(measurement.noisy, dataspace, kind="real" if kind is FitKind.real else "integer", progress=progress)
    table = fit.values if fit.counts is None else fit.counts
    assert table is not None
    return table, Fitted(str(kind), fit.method, fit.loss, fit.bound, fit.optimal, fit.note)


def described(mechanism: Mechanism) -> Noise:
    """Return what the report says of a mechanism, next to ordinary differential privacy by group privacy."""
    return Noise(
        mechanism=mechanism.name,
        scale=mechanism.scale,
        claim=mechanism.claim,
        expected_l2=mechanism.expected_l2,
        naive_l2=None if mechanism.space.is_zero else naive_loss(mechanism),
    )


def advertised(mechanism: Mechanism) -> Tradeoff | None:
    """Return what the same noise would be said to give for one record if the exact totals were forgotten.

    The noise that hides a move of squared length Δ2² at mu hides one record, of squared length 2, at ``mu √(2/Δ2²)``;
    Laplace noise at epsilon and Δ1 hides one record at ``2 epsilon/Δ1``.
    """
    space, tradeoff = mechanism.space, mechanism.tradeoff
    if space.is_zero:
        return None
    share = Fraction(space.naive.l2_squared, space.l2_squared)
    if isinstance(tradeoff, ZCDP):
        return ZCDP(tradeoff.rho * share)
    if isinstance(tradeoff, Gaussian):
        return Gaussian(tradeoff.mu_squared * share)
    epsilon = tradeoff.implied_epsilon()
    if isinstance(mechanism, LaplaceMechanism) and epsilon is not None:
        return approximate(epsilon * Fraction(space.naive.l1, space.l1))
    return None

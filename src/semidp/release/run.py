"""From a plan and data to a release: the page to read first, one line for each arrow of docs/how_it_works.md."""

from datetime import UTC, datetime
from typing import Any

from numpy.typing import NDArray

from semidp.accounting import Ledger
from semidp.engines import Source, open_source
from semidp.errors import InputError
from semidp.fit import fit_table
from semidp.mechanisms import Measurement, Mechanism, calibrated, choose
from semidp.noise import Randomness, SystemRandomness
from semidp.progress import Progress, silent
from semidp.release.groups import group_mechanism, published_groups
from semidp.release.measured import advertised, described
from semidp.release.plan import Plan
from semidp.release.requests import AUTO, FitKind, GroupRequest, TableRequest
from semidp.release.survey import Scope, Survey, survey
from semidp.release.values import Fitted, Published, Release, versions
from semidp.spaces import Dataspace


def run(
    plan: Plan,
    data: Any,
    randomness: Randomness | None = None,
    *,
    ledger: Ledger | None = None,
    progress: Progress = silent,
) -> Release:
    """Carry out a plan: read, calibrate, account, measure, fit.

    Parameters
    ----------
    plan
        What to publish exactly and what with noise. Every table and group needs a budget.
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
    sums = [mechanism_for(request, found.scope) for request in plan.groups]
    first, *others = (mechanism.guarantee for mechanism in (*mechanisms, *sums))
    guarantee = first.compose(*others)
    entry = ledger.charge(guarantee, label=", ".join(request.name for request in plan.requests)) if ledger else None
    pairs = zip(mechanisms, found.tables, strict=True)
    measured = [mechanism.reporting(progress).apply(table, randomness) for mechanism, table in pairs]
    work = zip(plan.tables, mechanisms, measured, strict=True)
    tables = tuple(published(request, mechanism, m, found.scope, progress) for request, mechanism, m in work)
    asked = zip(plan.groups, sums, found.sums, strict=True)
    groups = tuple(published_groups(request, mechanism, values, randomness) for request, mechanism, values in asked)
    return Release(
        plan=plan,
        scope=found.scope,
        tables=tables,
        guarantee=guarantee,
        private=all(part.private for part in measured) and all(part.private for part in groups),
        ledger=entry,
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        groups=groups,
    )


def read(plan: Plan, data: Any) -> Survey:
    """Read what the plan needs from a source, or from what `open_source` opens; what is opened here is closed here."""
    if not plan.requests:
        raise InputError("the plan releases nothing: name a table with --table a,b, or groups with --group a --mean b")
    if isinstance(data, Source):
        return survey(plan, data)
    with open_source(data, count=plan.count, where=plan.where, id=plan.id) as source:
        return survey(plan, source)


def mechanism_for(request: TableRequest | GroupRequest, scope: Scope) -> Mechanism:
    """Return the mechanism that a request names, or the one with the least expected loss, from public values only."""
    if isinstance(request, GroupRequest):
        return group_mechanism(request, scope)
    if request.budget is None:
        raise InputError(f"the table {request.name!r} has no privacy budget: give epsilon, rho or mu")
    space = scope.space(request.features)
    if request.mechanism == AUTO:
        return choose(space, request.budget)
    return calibrated(request.mechanism, space, request.budget)


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

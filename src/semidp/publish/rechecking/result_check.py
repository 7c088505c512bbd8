"""What one result states of its noise and of its fits, compared with what its budget and its noisy
values give.

Everything else of a result was published again from its measurement when the release was loaded, so
that the folder is compared with that. One function serves every kind.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.publish.release_value import ReleaseValue
from semidp.publish.results.cells import Form
from semidp.publish.results.published_table import FittedTable
from semidp.publish.selection import NAMES
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published, noise_name
from semidp.publish.statistics.recheck_findings import CLOSE, Findings, close, compare_guarantees

_FIT_FIELDS = ("method", "bound", "optimal", "note")
"""What is stated of a fit and follows from nothing but fitting again."""
_CLOSE_TABLES = (
    "which of several close tables was published; its totals and its distance from what was"
    " measured are right"
)


def check_result(
    release: ReleaseValue, request: Request, result: Published, findings: Findings
) -> Mechanism:
    """Note what a result states that its budget and its noisy values do not give; return the
    mechanism that its budget gives.
    """
    needed = result.recalibrate(request, release.scope)
    said = [*_compare_noise(release, request, result, needed)]
    # What less noise gives is wrong all over: that is said, and not what follows from it.
    if not said:
        said += _compare_totals(release, result, needed)
        said += check_fits(result.fitted_tables(), release.form, findings)
    findings.wrong += [f"{result.name!r} states {each}" for each in said]
    return needed


def _compare_noise(
    release: ReleaseValue, request: Request, result: Published, needed: Mechanism
) -> Iterator[str]:
    """Say where the law of the noise, its scale, its claim or its guarantee are not those of plan
    and budget.
    """
    noise, name = result.noise, noise_name(needed)
    if noise.mechanism != name:
        yield f"{noise.mechanism} noise, where its totals leave {name}"
    # Some requests name the kind of statistic that answers them instead: a quantile a selection.
    served = [law.name for law in NAMES.get(request.mechanism, ())]
    # Where exact totals fix everything, no noise is drawn whatever was asked for.
    if served and not needed.space.is_zero and noise.mechanism not in served:
        yield f"{noise.mechanism} noise, and its plan asks for {request.mechanism}"
    if noise.claim == "ideal" and release.plan.claim is not None:
        yield "an ideal claim, and its plan asks for exact ones"
    if noise.claim != needed.claim:
        yield f"an {noise.claim} claim, and {needed.name} noise makes an {needed.claim} one"
    said = compare_guarantees(result.guarantee.tradeoff, needed.tradeoff)
    if said is not None:
        yield f"{said} than its noise gives"
    stated = result.residual_noise()
    if isinstance(stated, ResidualMechanism) and isinstance(needed, ResidualMechanism):
        yield from _compare_residuals(stated, needed)
    elif noise.mechanism == name and not close(noise.scale, needed.scale):
        verb = "needs" if noise.scale < needed.scale * (1 - CLOSE) else "gives"
        yield f"noise of scale {noise.scale:.6g}, and its budget {verb} {needed.scale:.6g}"


def _compare_residuals(stated: ResidualMechanism, needed: ResidualMechanism) -> Iterator[str]:
    """Say where the noise of residuals is not what the budget gives.

    Noise may be placed in several ways, and another computer may end elsewhere: what it costs is
    compared.
    """
    squares = [(float(stated.sigma2[view]), float(least)) for view, least in needed.sigma2.items()]
    same = all(close(square, least) for square, least in squares)
    if stated.spent > stated.precision:
        yield "less noise on a residual than its budget needs"
    elif not same and not stated.serves_like(needed):
        yield "more noise on a residual than its budget gives"
    elif same and not close(stated.saved, needed.saved):
        yield "another saving by the joint sensitivity of its residuals than they have"
    if (stated.law, stated.precision) != (needed.law, needed.precision):
        yield "another guarantee for its residuals than its budget gives"


def _compare_totals(release: ReleaseValue, result: Published, needed: Mechanism) -> Iterator[str]:
    """Compare a measurement with the totals that it has by itself: noise that keeps the totals, or
    none at all.
    """
    if needed.space.is_zero:
        if not np.array_equal(result.noisy, result.measurement(needed).noisy):
            yield "a measurement that is not what its exact totals fix"
    elif needed.keeps_totals:
        # Such noise has zero margins, so a measurement without the totals was not drawn by it.
        (table,) = result.every_table()
        schema = table.schema
        for total in release.scope.dataspace.restrict_features(schema.names).published_totals:
            if not np.array_equal(schema.grid.sum(result.noisy, total.view), total.counts):
                yield f"a measurement without the exact totals, which {needed.name} noise keeps"
                return


def check_fits(
    tables: Iterable[FittedTable], form: Form | None, findings: Findings
) -> Iterator[str]:
    """Say where the stated distance of whole numbers from what they were fitted to is not theirs;
    note what is believed of fits.

    Parameters
    ----------
    tables
        The tables. That they have the exact totals was seen when they were loaded.
    form
        How their cells are written.
    findings
        Where it is noted what is believed.
    """
    for one in tables:
        table, stated = one.table, one.table.fitted
        if stated.method == "none":
            continue
        gaps = np.asarray(table.counts, np.float64) - one.measure.reshape(table.counts.shape)
        loss = float(np.square(gaps).sum())
        if not close([stated.loss, 1.0], [loss, 1.0]):
            yield (
                f"that {table.name} has a distance (loss) of {stated.loss:.6g} from what was"
                f" measured, which is {loss:.6g}"
            )
        elif stated.bound > stated.loss * (1 + CLOSE) + CLOSE:
            yield (
                f"a bound of {stated.bound:.6g} for the distance of {table.name}, which has a"
                " smaller one"
            )
        file = f"{table.name}.{table.columns().form(form)}"
        trust_fit(findings, one.field, f"{file} count")


def trust_fit(findings: Findings, field: str, *counts: str) -> None:
    """Note what is believed of a fit: a field of release.json or of the list of parts states it."""
    findings.trust(_CLOSE_TABLES, *counts, *(f"{field}.{key}" for key in _FIT_FIELDS))

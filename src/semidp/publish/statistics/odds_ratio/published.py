"""What a release publishes of a test of an odds ratio, and what a command says of it."""

from typing import TYPE_CHECKING

import numpy as np

from semidp.promise.exact import count_noun, exact, plain
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    noisy_column,
)
from semidp.publish.statistics.odds_ratio.hypergeometric import Strata, TwoByTwo
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.publish.statistics.odds_ratio.umpu import Alternative, Interval
from semidp.publish.statistics.protocol.requests import RequestMeasurement
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.odds_ratio.request import OddsRatioRequest

_SIDES = {
    Alternative.GREATER: "above 1",
    Alternative.LESS: "below 1",
    Alternative.TWO_SIDED: "different from 1",
}
_INTRODUCTION = (
    "The table has four counts: x11 of the records with the first level of both features, x22 of"
    " those with the second level of both, and x12 and x21 of the others. The odds ratio is x11 x22"
    " / (x12 x21). Both margins, the totals of each feature, are exact. So only x11 had to be"
    " measured: U is x11 plus noise, and everything below follows from U and the margins."
)
_EMPTY = "Every odds ratio is rejected: U lies far outside the counts that the margins allow."


def publish_odds_ratio(
    request: "OddsRatioRequest", mechanism: CanonicalMechanism, measured: Measurement
) -> PublishedStatistic:
    """Return the test of a measured x11: U, its p-value and interval, and all that follows."""
    result = OddsRatioResult.from_measurement(mechanism, measured, request.alternative)
    level = float(request.level)
    interval = result.confidence_interval(level)
    within = f" within {', '.join(request.strata)}" if request.strata else ""
    title = f"odds ratio of {request.rows} and {request.columns}{within}"
    rows = test_rows(result, interval)
    numbers = (
        (
            "u",
            Role.estimate,
            result.u,
            "the first count with canonical noise",
        ),
        ("p_value", Role.estimate, result.p_value, "that of the test that the odds ratio is 1"),
        ("lower", Role.lower, interval.low, "the lower end of an interval for the odds ratio"),
        ("upper", Role.upper, interval.high, "the upper end of an interval for the odds ratio"),
    )
    sheet = Sheet(
        name=request.name,
        role_columns=(
            *(
                RoleColumn(name, role, np.array([value]), said)
                for name, role, value, said in numbers
            ),
            noisy_column("noisy", measured.noisy, "u as drawn, in steps of its grid"),
        ),
        words=f"the {title}: U, its p-value and interval",
        heading=f"Published {title}",
        row="number",
        listing=rows,
    )
    sentences = Sentences(
        title=title,
        noise=f"exact on a grid of 2^-{result.grid_bits}",
        paragraphs=(_INTRODUCTION, _EMPTY) if interval.empty else (_INTRODUCTION,),
        notes=tuple(rows),
    )
    told = result.to_json(level)
    kept = ("u", "grid_bits", "p_value", "alternative", "interval", "x11")
    facts = {name: told[name] for name in kept}
    source = RequestMeasurement(mechanism, measured)
    return publish_statistic(request, source, sentences, [sheet], facts, result)


def test_rows(result: OddsRatioResult, interval: Interval) -> list[tuple[str, str]]:
    """Return what was counted, what is exact, U, the p-value and the interval, each after a word on
    what it is.
    """
    row, column = result.x11
    counted = f"x11: {result.rows} = {row} and {result.columns} = {column}"
    if result.strata:
        counted += f", summed over the strata of {', '.join(result.strata)}"
    deviation = result.test.noise.standard_deviation
    measured = f"{result.u:.6f}, that is x11 plus noise of standard deviation {deviation:.4g}"
    asked = f"{question(result.alternative)}{_quality(result)}"
    return [
        ("counted", counted),
        ("exact", margins_text(result.margins)),
        ("U", measured),
        ("p-value", f"{result.p_value:.4g} ({asked})"),
        ("interval", interval_text(result, interval)),
    ]


def interval_text(result: OddsRatioResult, interval: Interval) -> str:
    """Say which odds ratios the test does not reject."""
    span = "empty" if interval.empty else f"{interval.low:.4g} to {interval.high:.4g}"
    ratio = "common odds ratio" if result.strata else "odds ratio"
    return f"{span} for the {ratio}, at level {plain(exact(interval.level))}"


def margins_text(margins: TwoByTwo | Strata) -> str:
    """Say which margins the test conditions on.

    >>> margins_text(TwoByTwo(row=60, column=40, n=100))
    '60 and 40 of 100 records have these levels'
    """
    if isinstance(margins, Strata):
        varied = sum(not table.degenerate for table in margins.tables)
        return (
            f"both margins of {count_noun(len(margins.tables), 'stratum', 'strata')} with"
            f" {count_noun(margins.n, 'record')}; {varied:,} of them"
            f" {'varies' if varied == 1 else 'vary'}"
        )
    records = count_noun(margins.n, "record")
    return f"{margins.row:,} and {margins.column:,} of {records} have these levels"


def question(alternative: Alternative) -> str:
    """Say what the alternative means.

    >>> question(Alternative.LESS)
    'is the odds ratio below 1?'
    """
    return f"is the odds ratio {_SIDES[alternative]}?"


def _quality(result: OddsRatioResult) -> str:
    if result.alternative is Alternative.TWO_SIDED and result.is_unbiased:
        return ", unbiased"
    if result.most_powerful:
        return ", uniformly most powerful among unbiased tests with this guarantee"
    return ""

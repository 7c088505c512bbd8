"""What a release publishes of quantiles by groups."""

from typing import TYPE_CHECKING

import numpy as np

from semidp.promise.exact import count_noun, plain
from semidp.publish.results.role_columns import Role, RoleColumn, Sheet, label_columns
from semidp.publish.results.texts import number_text, scale_text
from semidp.publish.statistics.outcomes.words import (
    answered_text,
    clipped_text,
    count_column,
    interval_columns,
    interval_paragraphs,
    quantile_heading,
    quantiles_text,
    set_text,
    whose,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)
from semidp.publish.statistics.quantiles.quantile_estimates import GroupQuantiles, most_rank_error

if TYPE_CHECKING:
    from semidp.publish.statistics.quantiles.request import QuantileRequest


def publish_quantiles(request: "QuantileRequest", found: GroupQuantiles) -> PublishedStatistic:
    """Return quantiles in units of the outcome, with their intervals."""
    mechanism = found.mechanism
    rank_error = most_rank_error(mechanism)
    # Without the measure of its budget: GDP means another thing to most.
    law = mechanism.name.partition(" (")[0]
    how = f"selection by the {law} mechanism"
    if rank_error is not None:
        how += f", {ranks_text(rank_error)}"
    named = quantiles_text(request.outcome.column, request.probabilities)
    sets = " and by ".join(map(set_text, request.shown_sets))
    sentences = Sentences(
        title=f"{named} by {sets}{whose(request)}",
        noise="exact choices",
        mechanism=mechanism.name if mechanism.space.is_zero else how,
        paragraphs=_paragraphs(request, found, law, rank_error),
        faint="a choice there may be off by a quarter of the records to each side",
    )
    facts = {
        "files": list(request.files),
        "unit": float(request.outcome.width),
        "rank_error": rank_error,
        "about": None if request.level is None else str(found.intervals(request.by[0])[0].about),
    }
    sheets = [_sheet(request, found, number, rank_error) for number in range(len(request.by))]
    return publish_statistic(request, found, sentences, sheets, facts)


def _sheet(
    request: "QuantileRequest", found: GroupQuantiles, number: int, rank_error: int | None
) -> Sheet:
    """The file of one set of groups: exact counts, quantiles with their intervals, chosen steps."""
    block = request.by[number]
    counts = found.space.counts[number].ravel()
    values = found.values(block)
    intervals = () if request.level is None else found.intervals(block)
    numbers: list[RoleColumn] = []
    for place, probability in enumerate(request.probabilities):
        name = f"q{plain(probability)}"
        called = quantile_heading(name)
        numbers.append(
            RoleColumn(
                name,
                Role.estimate,
                values[:, place],
                f"the chosen {called}",
                called,
                number_text,
            )
        )
        numbers += interval_columns(intervals[place : place + 1], f"{name}_", called)
    steps = np.asarray(found.measurement.noisy).reshape(-1, len(numbers))
    start = sum(part.size for part in found.space.counts[:number])
    chosen = [
        RoleColumn(
            f"steps_{column.name}",
            Role.noisy,
            steps[start : start + len(counts), place],
            f"the chosen {column.title}, in steps of the grid",
        )
        for place, column in enumerate(numbers)
    ]
    shown = request.shown_sets[number]
    named = quantiles_text(request.outcome.column, request.probabilities)
    what = f"{named} by {set_text(shown)}{whose(request)}"
    faint = np.zeros(len(counts), dtype=bool)
    if rank_error is not None:
        # 95% of choices lie within no less than half of the records of such a group.
        faint = (counts > 0) & (counts <= 4 * rank_error)
    return Sheet(
        name=request.file_stems[number],
        role_columns=(
            *label_columns(found.columns(block), found.groups(block)),
            count_column(request, counts),
            *numbers,
            *chosen,
        ),
        words=f"the {what}, one row a group",
        heading=f"Published {what}",
        faint=faint,
    )


def ranks_text(ranks: int) -> str:
    """Say how far off a choice is.

    >>> ranks_text(1234)
    'at most 1,234 records from the true one, in 95% of choices'
    """
    return f"at most {count_noun(ranks, 'record')} from the true one, in 95% of choices"


def _paragraphs(
    request: "QuantileRequest", found: GroupQuantiles, law: str, rank_error: int | None
) -> tuple[str, ...]:
    """Say how quantiles were chosen, how far they may be off, and what their intervals are
    about.
    """
    if rank_error is None:
        return ()
    paragraphs = [
        *answered_text(request),
        f"{clipped_text(request.outcome)}. In each group a value was chosen at random ({law}"
        " mechanism). To make another value the quantile, some records would have to be replaced."
        " A value that needs fewer of them was more likely to be chosen: a factor e = 2.7 for every"
        f" {scale_text(found.mechanism.scale)} of them. In the same way the true quantile was more"
        " likely if more records would have to be replaced before another value is the quantile."
        " With 95% probability the number of records between a chosen value and the true quantile"
        f" of its group is at most {rank_error:,}, whatever the data.",
    ]
    if request.level is not None:
        # All intervals are of one kind: the first says what all are about.
        paragraphs += interval_paragraphs(found.intervals(request.by[0])[:1])
        paragraphs.append(
            "The ends of an interval were chosen in the same way, at ranks so far below and above"
            " that they rarely pass the quantile, and moved outward by half a step of the grid, by"
            " which values were rounded. Where an end is a declared bound, the group is"
            " too small for such a rank."
        )
    return tuple(paragraphs)

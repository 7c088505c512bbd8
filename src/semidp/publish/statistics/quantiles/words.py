"""What a release says of quantiles by groups."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from semidp.promise.exact import count_noun
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.sections import LISTED_ROWS, Details, Section
from semidp.publish.results.texts import FAINT_MARK, more, number_text, scale_text
from semidp.publish.statistics.outcomes.words import (
    answered_text,
    clipped_text,
    count_heading,
    counted_text,
    estimate_lines,
    faint_cautions,
    first_few,
    interval_paragraphs,
    quantile_heading,
    quantiles_text,
    set_text,
    whose,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.quantiles.published import PublishedQuantiles


def column_meanings(headings: Sequence[str]) -> dict[str, str]:
    """Say what the columns of quantiles mean, for the description of their files.

    >>> column_meanings(["q0.5"])
    {'q0.5': 'the chosen median', 'steps_q0.5': 'the chosen median, in steps of the grid'}
    """
    meanings = {}
    for name in headings:
        meanings[name] = f"the chosen {quantile_heading(name)}"
        meanings[f"steps_{name}"] = f"{meanings[name]}, in steps of the grid"
    return meanings


def title(quantiles: "PublishedQuantiles") -> str:
    """Name quantiles of groups: the median of score by school."""
    request = quantiles.request
    sets = " and by ".join(set_text(by) for by in request.shown_sets)
    named = quantiles_text(request.outcome.column, request.probabilities)
    return f"{named} by {sets}{whose(request)}"


def noisy_lines(quantiles: "PublishedQuantiles") -> list[str]:
    """Say how many groups have quantiles."""
    groups = sum(map(len, quantiles.groups))
    return [f"{title(quantiles)}: {count_noun(groups, 'group')}"]


def ranks_text(ranks: int) -> str:
    """Say how far off a choice is.

    >>> ranks_text(1234)
    'at most 1,234 records from the true one, in 95% of choices'
    """
    return f"at most {count_noun(ranks, 'record')} from the true one, in 95% of choices"


def summary_lines(quantiles: "PublishedQuantiles") -> list[tuple[str, str]]:
    """Return the mechanism, the columns and the first quantiles, for a terminal."""
    how = (
        quantiles.noise.mechanism
        if quantiles.noise.absent
        else f"selection by the {_mechanism(quantiles)} mechanism"
    )
    if quantiles.rank_error is not None:
        how += f", {ranks_text(quantiles.rank_error)}"
    first = [("mechanism", how), ("columns", ", ".join(map(quantile_heading, quantiles.headings)))]
    faint = [("", text) for text in _faint_text(quantiles)]
    return first + estimate_lines(quantile_lines(quantiles)) + faint


def _is_faint(quantiles: "PublishedQuantiles", count: int) -> bool:
    """Whether noise dominates the quantiles of a group: 95% of choices lie within no less than half
    of its records.
    """
    return quantiles.rank_error is not None and 0 < count <= 4 * quantiles.rank_error


def faint_groups(quantiles: "PublishedQuantiles") -> tuple[int, int]:
    """Return in how many groups noise dominates, and how many groups have records."""
    faint, groups = 0, 0
    for number in range(len(quantiles.groups)):
        for _, count, _ in quantiles.rows(number):
            faint += _is_faint(quantiles, count)
            groups += count > 0
    return faint, groups


def _faint_text(quantiles: "PublishedQuantiles") -> list[str]:
    """Say in how many groups noise dominates, and what the mark means; nothing where there is
    none.
    """
    faint, groups = faint_groups(quantiles)
    if not faint:
        return []
    return [
        f"{FAINT_MARK} noise dominates {faint:,} of {count_noun(groups, 'group')}: a choice there"
        " may be off by a quarter of the records to each side"
    ]


def cautions(quantiles: "PublishedQuantiles") -> list[str]:
    """Warn of quantiles that noise dominates in more than a quarter of the groups."""
    return faint_cautions(title(quantiles), *faint_groups(quantiles))


def _mechanism(quantiles: "PublishedQuantiles") -> str:
    """Name the mechanism without the measure of its budget: GDP means another thing to most."""
    return quantiles.noise.mechanism.partition(" (")[0]


def quantile_lines(quantiles: "PublishedQuantiles") -> list[str]:
    """Return the quantiles, a line a group, the first few."""
    lines = []
    for number in range(len(quantiles.groups)):
        for levels, count, numbers in quantiles.rows(number):
            values = ", ".join(_texts(quantiles, count, numbers))
            records = counted_text(quantiles.request, count)
            lines.append(f"{' · '.join(levels)}: {values} ({records})")
    return first_few(lines)


def _texts(quantiles: "PublishedQuantiles", count: int, numbers: Sequence[float]) -> list[str]:
    """The quantiles of a group, marked where noise dominates."""
    texts = list(map(number_text, numbers))
    if not _is_faint(quantiles, count):
        return texts
    # The ends of its interval, if it has one, follow each quantile.
    step = len(numbers) // len(quantiles.request.probabilities)
    for place in range(0, len(texts), step):
        texts[place] = f"{FAINT_MARK}{texts[place]}"
    return texts


def sections(quantiles: "PublishedQuantiles") -> list[Section]:
    """Return a section for each set of groups, the first with what is said of the choices."""
    sets = enumerate(quantiles.request.shown_sets)
    return [_set_section(quantiles, number, by) for number, by in sets]


def _set_section(quantiles: "PublishedQuantiles", number: int, by: Margin) -> Section:
    rows = []
    for levels, count, numbers in islice(quantiles.rows(number), LISTED_ROWS):
        texts = _texts(quantiles, count, numbers)
        rows.append((" · ".join(levels), f"{count:,}", *texts))
    heading, paragraphs = f"Published {title(quantiles)}", quantile_paragraphs(quantiles)
    if number > 0:
        # What is said of the first set holds for all.
        heading, paragraphs = f"The same by {set_text(by)}", []
    paragraphs += more("groups are shown", len(rows), len(quantiles.groups[number]))
    columns = [" · ".join(by.names), count_heading(quantiles.request)]
    columns += map(quantile_heading, quantiles.headings)
    return Section(heading=heading, paragraphs=paragraphs, columns=columns, rows=rows)


def quantile_paragraphs(quantiles: "PublishedQuantiles") -> list[str]:
    """Say how quantiles were chosen, how far they may be off, and what their intervals are
    about.
    """
    noise, request = quantiles.noise, quantiles.request
    if noise.absent:
        return ["There is no record, so there is nothing to choose and no noise."]
    mechanism = _mechanism(quantiles)
    clipped, scale = clipped_text(request.outcome), scale_text(noise.scale)
    paragraphs = answered_text(request)
    paragraphs += [
        f"{clipped}. In each group a value was chosen at random ({mechanism} mechanism). To make"
        " another value the quantile, some records would have to be replaced. A value that needs"
        f" fewer of them was more likely to be chosen: a factor e = 2.7 for every {scale} of them."
        " In the same way the true quantile was more likely if more records would have to be"
        " replaced before another value is the quantile. With 95% probability the number of records"
        " between a chosen value and the true quantile of its group is at most"
        f" {quantiles.rank_error:,}, whatever the data."
    ]
    if request.level is not None:
        # All intervals are of one kind: the first says what all are about.
        paragraphs += interval_paragraphs(quantiles.intervals[0][:1])
        paragraphs.append(
            "The ends of an interval were chosen in the same way, at ranks so far below and above"
            " that they rarely pass the quantile, and moved outward by half a step of the grid, by"
            " which values were rounded. Where an end is a declared bound, the group is"
            " too small for such a rank."
        )
    paragraphs += [f"{text}." for text in _faint_text(quantiles)]
    return paragraphs


def details(quantiles: "PublishedQuantiles") -> Details:
    """Say how quantiles were chosen."""
    return Details(f"the {title(quantiles)}", "exact choices")


def file_words(quantiles: "PublishedQuantiles") -> list[tuple[str, str]]:
    """Say what the file of each set of groups holds."""
    request = quantiles.request
    words = []
    for file, by in zip(request.files, request.shown_sets, strict=True):
        named = quantiles_text(request.outcome.column, request.probabilities)
        title_of_set = f"{named} by {set_text(by)}{whose(request)}"
        words.append((file, f"the {title_of_set}, one row a group"))
    return words

"""What a release says of linked tables: their errors, that both kinds agree, and what the promise
leaves out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semidp.promise.exact import count_noun
from semidp.promise.schema.features import SIZE
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.promise.spaces.protection import Protect
from semidp.publish.linked_mechanism import LinkedMechanism, published_variances
from semidp.publish.results.cells import Form
from semidp.publish.results.grids import Section, counts_sections
from semidp.publish.results.texts import error_text
from semidp.publish.size_agreement import TopCode
from semidp.publish.statistics.protocol.requests import StatisticForecast
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.error_words import (
    ERRORS_TEXT,
    HEADINGS,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.linked_published import PublishedLinked


class LinkedForecast(StatisticForecast):
    """What one of several linked tables would look like: from public values alone."""

    listed: ClassVar[str] = "tables"
    by_cells: ClassVar[bool] = True


def linked_forecasts(
    tables: Sequence[TableRequest], mechanism: LinkedMechanism, code: TopCode | None
) -> tuple[LinkedForecast, ...]:
    """Return the errors of every table as it is published, once both kinds agree: members first."""
    foreseen = []
    for table, variances in zip(tables, published_variances(mechanism, code), strict=True):
        mean = float(np.sqrt(variances.mean())) if variances.size else 0.0
        largest = float(np.sqrt(variances.max(initial=0.0)))
        said = "exact: the published totals fix every cell"
        if largest:
            said = f"standard error {error_text(mean)} per cell, {error_text(largest)} at most"
        numbers = {
            "cells": variances.size,
            "rms_standard_error": mean,
            "largest_standard_error": largest,
        }
        foreseen.append(LinkedForecast(table.name, table.features, said, numbers))
    return tuple(foreseen)


def noise_lines(mechanism: LinkedMechanism, foreseen: Sequence[Any]) -> list[str]:
    """Say with what noise linked tables are measured."""
    share = float(mechanism.members.precision / mechanism.precision) if mechanism.precision else 0.0
    return [
        f"{mechanism.name} for {len(foreseen)} tables from one budget, {mechanism.claim} claim; "
        f"{share:.0%} of it for members"
    ]


def agree_line(result: "PublishedLinked") -> str:
    agreeing, places = result.agreeing
    if not places:
        return "no table of units by size shares a place with a table of members in whole numbers"
    whose = _whose(result)
    coded = ""
    if result.coding is not None:
        coded = f", counted before sizes were coded as {result.coding.levels[-1]}"
    where = f"{agreeing:,} of {count_noun(places, 'place')}"
    return f"sizes times units is the number of {whose} in {where}{coded}"


def _whose(result: "PublishedLinked") -> str:
    quarters = result.mechanism.space.dataspace.link.quarters
    return "members" if quarters is None else "members who live in no quarters"


def sections(result: "PublishedLinked", form: Form | None) -> list[Section]:
    """Return the errors of all tables, and how both kinds hang together."""
    by_parts = [] if result.depth is None else [result.parts_text()]
    errors_section = Section(
        heading="Published tables of members and units from one budget",
        paragraphs=[_describe_measurement(result), *by_parts, ERRORS_TEXT],
        columns=HEADINGS,
        rows=[errors.row() for errors in result.cell_errors],
    )
    together = Section(heading="How members and units agree", paragraphs=_agreement(result))
    public, absent = result.guarantee.dataspace, result.noise.absent
    heading = "The published tables of members and of units"
    counts = counts_sections(heading, result.tables, public, absent, form)
    return [*counts, errors_section, together]


def _describe_measurement(result: "PublishedLinked") -> str:
    mechanism = result.mechanism
    residuals = len(mechanism.members.sigma2) + len(mechanism.units.sigma2)
    return (
        f"One budget is shared by the tables of members ({len(result.members)}) and of units"
        f" ({len(result.units)}). It is divided by need over"
        f" {count_noun(residuals, 'residual')} of both kinds; a residual is what a table says"
        " beyond its own totals. One change of the data can move tables of both kinds, so the noise"
        " has to hide both changes together. Estimates are unbiased, that is, right on average."
        " Standard errors are those of the noise after both kinds were made to agree. Counts are"
        " whole numbers fitted to the estimates."
    )


def _agreement(result: "PublishedLinked") -> list[str]:
    public = result.mechanism.space.dataspace
    paragraphs = [
        f"In whole numbers, {agree_line(result)}. Estimates agree wherever both kinds were"
        " measured or are exact: each was corrected by its share of the difference (the least"
        " squares estimate)."
    ]
    if result.coding is not None:
        paragraphs.append(_describe_top_code(result.coding, _whose(result)))
    derived = [
        name for name in public.link.derived if name != SIZE and name in public.units.schema.names
    ]
    if derived:
        paragraphs.append(
            f"Nothing is promised about {', '.join(derived)} of units: such counts need not agree"
            " with tables of members."
        )
    return paragraphs


def _describe_top_code(code: TopCode, whose: str) -> str:
    """Say that sizes are top-coded, and how a reader sees the agreement all the same."""
    last = code.levels[-1]
    left = f"the {whose} of a place"
    if code.place:
        left += f" and subtract sizes below {code.top} times their units"
    return (
        f"Units of {code.top} and more members are published as {last}. They were measured, made"
        " to agree and fitted by every single size, and coded afterwards: sizes times units is the"
        f" number of {whose} for the sizes before they were coded. A reader can check it: take"
        f" {left}. What is left lives in the units of {last} there, and is between {code.top} and"
        f" {code.most} times their number."
    )


def describe_unprotected(public: LinkedDataspace) -> str | None:
    """Say which columns of units the promise about one member leaves out; None where there are
    none.
    """
    if public.link.protect is not Protect.member:
        return None
    names = [name for name in public.units.schema.names if name not in public.link.derived]
    if not names:
        return None
    return (
        f"The promise is about one member: units keep their own features ({', '.join(names)}),"
        " which it does not protect. Declare a column derived if it depends on the members of a"
        " unit."
    )

"""Published linked tables, members and units that agree, from one measurement, and their
words.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.exact import count_noun
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.features import SIZE
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.linked_products import KindSpace, LinkedSpace
from semidp.promise.spaces.linked import UNIT, LinkedDataspace
from semidp.promise.spaces.protection import Protect
from semidp.publish.linked_mechanism import (
    LinkedMechanism,
)
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.columns import Columns, Form
from semidp.publish.results.grids import Section, counts_sections
from semidp.publish.results.published_table import (
    FittedTable,
    PublishedTable,
    StoredFit,
)
from semidp.publish.results.texts import error_text
from semidp.publish.size_agreement import TopCode, add_quarters_feature
from semidp.publish.statistics.protocol.requests import Forecast, mechanism_fields
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.cut_tables import (
    residual_columns,
    residuals_from_json,
    residuals_json,
)
from semidp.publish.statistics.tables.fitting import build_tables
from semidp.publish.statistics.tables.linked_fitting import Fit, fitted_kinds
from semidp.publish.statistics.tables.published import IN_ONE_PIECE
from semidp.publish.statistics.tables.words import (
    ERRORS_TEXT,
    HEADINGS,
    PublishedCells,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.requests import Request
    from semidp.publish.statistics.tables.linked_request import LinkedTablesRequest


LINKED_MEASUREMENTS = "linked-measurements"
KINDS = ("members", "units")
"""The names of the two kinds in release.json."""


@frozen(slots=False, eq=False, kw_only=True, repr=False)
class PublishedLinked(PublishedCells):
    """Tables of members and of units, all from one measurement.

    Parameters
    ----------
    request
        What was asked for.
    mechanism
        The noise of every residual of both kinds.
    noisy
        The measured residuals as drawn, times their scales: members, then units.
    members, units
        The published tables.
    fitted_units
        The fits of tables of units by single sizes; computed again from the measurement where a
        release was read.
    stated
        If sizes are coded, the number of places in which a loaded release says that both kinds
        agree, and the number of places.
    """

    key: ClassVar[str] = "linked"
    compared_fields: ClassVar[tuple[str, ...]] = ("members", "units")

    request: "LinkedTablesRequest"
    mechanism: LinkedMechanism = field(repr=False)
    noisy: NDArray[np.int64] = field(repr=False)
    members: tuple[PublishedTable, ...]
    units: tuple[PublishedTable, ...]
    fitted_units: tuple[Fit, ...] | None = field(default=None, repr=False)
    stated: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"PublishedLinked({', '.join(table.name for table in self.tables)})"

    @property
    def tables(self) -> tuple[PublishedTable, ...]:
        """The tables of both kinds."""
        return (*self.members, *self.units)

    @property
    def asked_tables(self) -> tuple[TableRequest, ...]:
        """The tables of both kinds as they were asked for."""
        return self.request.every_table

    def every_table(self) -> tuple[PublishedTable, ...]:
        """Return the tables of members, then those of units."""
        return self.tables

    @property
    def coding(self) -> TopCode | None:
        """How sizes are published, if not each by itself."""
        return self.request.coding(self.mechanism.space.dataspace.link)

    @cached_property
    def units_by_size(self) -> tuple[PublishedTable, ...]:
        """The tables of units before sizes were coded, without intervals."""
        if self.coding is None:
            return self.units
        measured = self.mechanism.restore_measurement(self.noisy, self.private)
        fits = self.fitted_units
        if fits is None:
            # The files hold coded sizes: the fit is that of the same measurement, and so the same.
            again = published_linked(self.request, self.mechanism, measured, silent)
            # another version may fit otherwise, and its single sizes would not be these
            _compare_counts(self.units, again.units)
            fits = again.fitted_units
            assert fits is not None, "tables were fitted, so that they hold their fits"
        first = len(self.members)
        estimates = self.mechanism.estimates(measured.projected)[first:]
        tables = []
        for number, (table, (counts, how)) in enumerate(zip(self.units, fits, strict=True)):
            schema = self.mechanism.table_schema(first + number)
            errors = self.mechanism.table_errors(first + number)
            estimate = estimates[number]
            tables.append(
                PublishedTable(table.name, schema, counts, estimate, errors, how, counted=UNIT)
            )
        return tuple(tables)

    def residual_noise(self) -> LinkedMechanism:
        """Return the noise of both kinds; their tables are numbered members first."""
        return self.request.published_noise(self.mechanism)

    @property
    def agreeing(self) -> tuple[int, int]:
        """In how many places whole numbers of both kinds agree, and how many places there are."""
        if self.stated is not None:
            return self.stated
        return agreeing_places(self.mechanism, self.members, self.units_by_size)

    def mechanism_lines(self) -> list[str]:
        """Say with what noise the tables were measured, for a terminal."""
        return noise_lines(self.mechanism, self.tables)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the errors of each table, and whether both kinds agree, for a terminal."""
        return [*super().summary_lines(), ("agree", agree_line(self))]

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its sections of the report: the errors, and how both kinds agree."""
        return list_sections(self, form)

    def warnings(self) -> list[str]:
        """Say what the promise does not protect, and which tables miss some of their totals."""
        told = describe_unprotected(self.mechanism.space.dataspace)
        return [*([told] if told else []), *self.missed_totals()]

    def recalibrate(self, request: "Request", scope: Scope) -> Mechanism:
        """Return the noise of its residuals, placed again."""
        return request.calibrate(request.space(scope))

    def sampling_mechanism(self, needed: Mechanism) -> Mechanism | None:
        """Return the noise that it states, if it costs no more than it claims."""
        return self.mechanism if self.mechanism.spent <= self.mechanism.precision else None

    def fitted_tables(self) -> list[FittedTable]:
        """Return its tables with their estimates; those of units by single sizes, where sizes are
        coded, are in no file.
        """
        units = () if self.coding is not None else self.units
        return [
            FittedTable(table, table.estimate, f"{self.list_key}.{kind}.tables.fit")
            for kind, tables in (("members", self.members), ("units", units))
            for table in tables
        ]

    def measurements(self) -> Columns | None:
        """Return the measured residuals of both kinds."""
        if self.blocks is not None:
            return self.blocks.columns_above(self.noisy)
        return residual_columns(self.mechanism.space.kinds, self.noisy)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the measurements, as plain values."""
        agreeing, places = self.agreeing
        parts = {
            "members": _kind_json(self.mechanism.members, self.members),
            "units": _kind_json(self.mechanism.units, self.units),
        }
        values = {**super().to_json(), **parts, "places": places, "agreeing": agreeing}
        return values if self.blocks is None else {**values, IN_ONE_PIECE: True}


def _kind_json(noise: ResidualMechanism, tables: Sequence[PublishedTable]) -> dict[str, Any]:
    """Noise and tables of one kind, as plain values."""
    return {**residuals_json(noise), "tables": [table.to_json() for table in tables]}


def published_linked(
    request: "LinkedTablesRequest",
    mechanism: LinkedMechanism,
    measured: Measurement,
    progress: Progress,
    stored: Sequence[StoredFit] = (),
) -> PublishedLinked:
    """Return the published result; from here on only public values are used.

    Whole numbers are fitted, unless they are stored as they were published: members first, sizes of
    units coded.
    """
    noise = request.published_noise(mechanism)
    fits, fitted_units = list(stored), None
    if not stored:
        space, agreement = mechanism.space, mechanism.agreement
        residuals = agreement.residuals(*space.split(measured.projected))
        member_fits = [table.fit for table in request.members]
        unit_fits = [table.fit for table in request.units]
        of_members, of_units = fitted_kinds(
            mechanism, residuals, [member_fits, unit_fits], progress
        )
        for number, (counts, how) in enumerate((*of_members, *of_units)):
            fits.append((noise.published_cells(counts, number), how))
        fitted_units = tuple(of_units)
    names = [table.name for table in request.every_table]
    tables = build_tables(noise, names, mechanism.estimates(measured.projected), fits)
    first = len(request.members)
    return PublishedLinked(
        request=request,
        mechanism=mechanism,
        noisy=np.asarray(measured.noisy, dtype=np.int64),
        members=tables[:first],
        units=tables[first:],
        fitted_units=fitted_units,
        **mechanism_fields(request.name, mechanism, measured.private),
    )


def _compare_counts(stored: Sequence[PublishedTable], again: Sequence[PublishedTable]) -> None:
    """Refuse counts in the files that the measurement does not give."""
    for one, other in zip(stored, again, strict=True):
        if not np.array_equal(one.counts, other.counts):
            raise Refused(
                f"the counts of {one.name!r} do not follow from what was measured: use the version"
                " of semidp that wrote the release"
            )


def agreeing_places(
    mechanism: LinkedMechanism,
    of_members: Sequence[PublishedTable],
    of_units: Sequence[PublishedTable],
) -> tuple[int, int]:
    """Return in how many places sizes times units is the number of members, and how many places
    there are.

    Counted at the deepest places that both kinds have, from whole numbers by single sizes.

    Parameters
    ----------
    mechanism
        The residuals of both kinds, and how they agree.
    of_members, of_units
        The tables of each kind, those of units by single sizes.
    """
    agreement, space = mechanism.agreement, mechanism.space
    agreeing, places = 0, 0
    for equation in agreement.deepest:
        members = _living_in_units(space, of_members, equation.members)
        units = _roll_up_counts(space.units, of_units, equation.sizes)
        if members is None or units is None:
            continue
        # estimates were made to agree: only fitted whole numbers may not
        if members.dtype.kind != "i" or units.dtype.kind != "i":
            continue
        sizes = agreement.sizes.astype(np.int64)
        counted = np.moveaxis(units, equation.place_of_size, -1) @ sizes
        agreeing += int((counted == members).sum())
        places += int(np.asarray(members).size)
    return agreeing, places


def _living_in_units(
    space: LinkedSpace, tables: Sequence[PublishedTable], view: View
) -> NDArray[Any] | None:
    """The published members of counted units at a view of places."""
    home = space.dataspace.home
    if home is None:
        return _roll_up_counts(space.members, tables, view)
    axis, level = home
    by_kind = add_quarters_feature(axis, view)
    members = _roll_up_counts(space.members, tables, by_kind)
    if members is None:
        return None
    living: NDArray[Any] = np.take(members, level, axis=list_axes(by_kind).index(axis))
    return living


def _roll_up_counts(
    kind: KindSpace, tables: Sequence[PublishedTable], view: View
) -> NDArray[Any] | None:
    """The counts of the first table that has a view, summed to it."""
    for whole, table in zip(kind.views, tables, strict=True):
        if all(depth <= deeper for depth, deeper in zip(view, whole, strict=True)):
            return kind.schema.grid.sum(np.asarray(table.counts), view, whole)
    return None


def linked_noise_from_json(entry: Mapping[str, Any], space: LinkedSpace) -> LinkedMechanism:
    """Read the noise of both kinds; refuse residuals that are not those of the space."""
    pairs = zip(KINDS, space.kinds, strict=True)
    members, units = [residuals_from_json(entry[key], kind) for key, kind in pairs]
    return LinkedMechanism(space, members, units)


class LinkedForecast(Forecast):
    """The forecast of one of several linked tables, from public values alone."""

    listed: ClassVar[str] = "tables"


def linked_forecasts(
    tables: Sequence[TableRequest], noise: LinkedMechanism
) -> tuple[LinkedForecast, ...]:
    """Return the errors of every table as it is published, once both kinds agree: members first."""
    foreseen = []
    for number, table in enumerate(tables):
        variances = noise.cell_variances(number)
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
        f"{share:.0%} of the budget goes to members"
    ]


def agree_line(result: "PublishedLinked") -> str:
    agreeing, places = result.agreeing
    if not places:
        return "sizes were not compared: no table of units by size has a matching table of members"
    whose = _whose(result)
    coded = ""
    if result.coding is not None:
        coded = f", counted before sizes were coded as {result.coding.levels[-1]}"
    where = f"{agreeing:,} of {count_noun(places, 'place')}"
    return f"sizes times units is the number of {whose} in {where}{coded}"


def _whose(result: "PublishedLinked") -> str:
    quarters = result.mechanism.space.dataspace.link.quarters
    return "members" if quarters is None else "members who live in no quarters"


def list_sections(result: "PublishedLinked", form: Form | None) -> list[Section]:
    """Return the errors of all tables, and how both kinds agree."""
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
    """Say which columns of units the promise about one member leaves out; None if there are
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

"""The request for linked tables: some count members, others the units that they belong to; all
agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import Number, count_noun, exact, plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.features import SIZE
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.linked_products import LinkedSpace, linked_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.linked import MEMBER, UNIT, Link, LinkedDataspace
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.linked_mechanism import CodedNoise, LinkedMechanism
from semidp.publish.results.published_table import StoredFit, file_stem
from semidp.publish.selection import AUTO
from semidp.publish.size_agreement import TopCode
from semidp.publish.sources.linked_records import LinkedReader
from semidp.publish.sources.reader import conceal
from semidp.publish.statistics.protocol.requests import (
    Forecast,
    Request,
    StepsByParts,
    checked_budget,
    noise_values,
    read_entries,
    require_budget,
)
from semidp.publish.statistics.tables.asked import (
    COMMAND_PREFIX,
    UNITS_PREFIX,
    TableRequest,
    largest_excess,
    with_numbers,
)
from semidp.publish.statistics.tables.linked_fitting import refuse_unfitted
from semidp.publish.statistics.tables.linked_published import (
    LINKED_MEASUREMENTS,
    PublishedLinked,
    linked_forecasts,
    noise_lines,
    published_linked,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.cut_tables import TableBlocks

UNIT_TABLE = "unit_table"
"""The list of a plan file that asks for tables of units."""


UNIT_SHARE = "unit_share"
"""The part of the budget for tables of units, in a plan file."""


TOP_CODE = "top_code"
"""The size from which on units are published as one level, in a plan file."""


def _top(value: Any) -> int | None:
    """The top code of the size: ``{"size": 5}``, the number itself, or None."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, Mapping) or list(value) != [SIZE]:
        raise InputError(f"a top code is about the {SIZE} of units, such as {SIZE}=5")
    top = exact(value[SIZE], "a top code")
    if top.denominator != 1:
        raise InputError(f"a top code is a whole number, not {plain(top)}")
    return int(top)


def _share(value: Number | None) -> Fraction | None:
    if value is None:
        return None
    share = exact(value, "the share of tables of units")
    if not 0 < share < 1:
        raise InputError(
            f"the share of tables of units must lie between 0 and 1, not {plain(share)}"
        )
    return share


def _member_tables(value: Iterable[TableRequest]) -> tuple[TableRequest, ...]:
    return _name_tables(value, "")


def _unit_tables(value: Iterable[TableRequest]) -> tuple[TableRequest, ...]:
    return _name_tables(value, UNITS_PREFIX)


def _name_tables(value: Iterable[TableRequest], prefix: str) -> tuple[TableRequest, ...]:
    """Check tables, and call them after their kind and features."""
    named = []
    for table in value:
        if not isinstance(table, TableRequest):
            raise InputError("linked tables are lists of TableRequest: of members, and of units")
        if table.budget is not None:
            raise InputError("linked tables share one budget: leave budgets of single tables out")
        if table.mechanism != AUTO:
            raise InputError("linked tables are measured together: leave the mechanism out")
        # The prefix keeps tables of members and of units apart where they have the same features.
        named.append(evolve(table, name=f"{prefix}{file_stem(table.features)}"))
    return tuple(named)


@frozen
class LinkedTablesRequest(Request):
    """Tables of members and tables of units, from one budget, that agree.

    Parameters
    ----------
    members, units
        The tables of each kind; at least one of each.
    budget
        What all of them may spend together: zCDP, GDP or (ε, δ).
    unit_share
        The part of the budget for tables of units, between 0 and 1 (default: by need).
    top_code
        ``{"size": 5}`` publishes units of 5 and more members as one level, ``5+``. Sizes are
        measured and made to agree one by one, and coded afterwards.

    Examples
    --------
    >>> asked = LinkedTablesRequest(
    ...     [TableRequest(["zone", "sex"])], [TableRequest(["zone", "size"])]
    ... )
    >>> asked.files
    ('zone-sex.csv', 'units-zone-size.csv', 'linked-measurements.csv')
    """

    key: ClassVar[str] = "linked"

    members: tuple[TableRequest, ...] = field(converter=_member_tables)
    units: tuple[TableRequest, ...] = field(converter=_unit_tables)
    budget: Budget | None = field(default=None, converter=checked_budget)
    unit_share: Fraction | None = field(default=None, converter=_share)
    top_code: int | None = field(default=None, converter=_top)

    def __attrs_post_init__(self) -> None:
        if not self.members or not self.units:
            raise InputError(
                "linked tables are at least one table of members and one of units, whose first"
                " feature begins with units:",
                needs="table",
            )
        if self.budget is not None and self.budget.kind == "pure":
            raise InputError(
                "linked tables share a zCDP, GDP or (epsilon, delta) budget: pure epsilon is not"
                " built"
            )
        if self.budget is not None and self.has_targets:
            raise InputError("linked tables have a budget and a target error: give one of them")
        if self.top_code is not None and not any(SIZE in table.features for table in self.units):
            raise InputError(
                f"a top code is about tables of units by {SIZE}, and none is asked for"
            )

    def coding(self, link: Link) -> TopCode | None:
        """Return how sizes are published; refuse a top code that is not a size of a unit."""
        return None if self.top_code is None else TopCode(self.top_code, link.least, link.most)

    def refuse_units(self) -> None:
        """Refuse nothing: releases with units have these tables."""

    @property
    def targets(self) -> tuple[tuple[str, Fraction | None], ...]:
        """The tables of both kinds, and the errors that they name."""
        members = [(" by ".join(table.features), table.target_error) for table in self.members]
        units = [
            (f"units by {' by '.join(table.features)}", table.target_error) for table in self.units
        ]
        return (*members, *units)

    def with_target_errors(self, option: str, errors: Mapping[str, str]) -> "LinkedTablesRequest":
        """Return the request with the target errors of an option; tables of units have the prefix
        ``units:``.
        """
        of_units, of_members = {}, {}
        for names, error in errors.items():
            if names.startswith(COMMAND_PREFIX):
                of_units[names.replace(COMMAND_PREFIX, "")] = error
            else:
                of_members[names] = error
        members = with_numbers(self.members, "target_error", option, of_members)
        units = with_numbers(self.units, "target_error", option, of_units)
        return evolve(self, members=members, units=units)

    def without_targets(self) -> "LinkedTablesRequest":
        """Return the request ready to be given a budget."""
        members = [evolve(table, target_error=None) for table in self.members]
        return evolve(
            self, members=members, units=[evolve(table, target_error=None) for table in self.units]
        )

    def excess(self, mechanism: Mechanism) -> float:
        """Return by what factor the worst error of a table exceeds its target, once
        both kinds agree.
        """
        # Targets are about published numbers, and making both kinds agree changes their errors.
        return largest_excess(self.every_table, self.published_noise(mechanism).table_errors)

    def published_noise(self, mechanism: Mechanism) -> LinkedMechanism:
        """Return the noise of the tables as they are published: with coded sizes, where they
        are.
        """
        assert isinstance(mechanism, LinkedMechanism)
        code = self.coding(mechanism.space.dataspace.link)
        return mechanism if code is None else CodedNoise.from_mechanism(mechanism, code)

    @property
    def every_table(self) -> tuple[TableRequest, ...]:
        """The tables of both kinds, members first."""
        return (*self.members, *self.units)

    @property
    def name(self) -> str:
        """The name of all tables together."""
        return self.key

    @property
    def share_name(self) -> str:
        """Its name where a budget is divided."""
        return "tables"

    @property
    def mechanism(self) -> str:
        """The only mechanism: noise on residuals."""
        return AUTO

    @property
    def features(self) -> tuple[str, ...]:
        """The features that the tables of both kinds use."""
        names = [name for table in self.every_table for name in table.features]
        return tuple(dict.fromkeys(names))

    @property
    def files(self) -> tuple[str, ...]:
        """A file for each table, and the measurements."""
        tables = [f"{table.name}.csv" for table in self.every_table]
        return (*tables, f"{LINKED_MEASUREMENTS}.csv")

    def space(self, scope: Scope) -> LinkedSpace:
        """Return the residuals of both kinds; refuse what has no proven cost."""
        if not isinstance(scope.dataspace, LinkedDataspace):
            raise InputError(
                "tables of units need the file of units, and how members are linked to it: give"
                " units"
            )
        members = [table.features for table in self.members]
        units = [table.features for table in self.units]
        return linked_space(scope.dataspace, scope.adjacency, members, units)

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Place the noise on the residuals of both kinds; refuse what could not be fitted."""
        of_members = [float(table.weight) for table in self.members]
        of_units = [float(table.weight) for table in self.units]
        mechanism = LinkedMechanism.calibrate(
            space,
            require_budget(self),
            weights=(of_members, of_units),
            unit_share=self.unit_share,
        )
        # what has no order of fits is refused while nothing is charged
        refuse_unfitted(mechanism)
        return mechanism

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return the errors of each table. Public values decide them."""
        return linked_forecasts(self.every_table, self.published_noise(mechanism))

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise the tables would be measured."""
        assert isinstance(mechanism, LinkedMechanism)
        lines = [
            f"{one.name}: {one.line()}, {count_noun(one.numbers['cells'], 'cell')}"
            for one in foreseen
        ]
        return [*noise_lines(mechanism, foreseen), *lines]

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> dict[str, Any]:
        """Return the same as plain values."""
        return {**noise_values(mechanism), "tables": [table.to_json() for table in foreseen]}

    def read(self, reader: Any, scope: Scope, space: QuerySpace) -> Confidential[NDArray[np.int64]]:
        """Return the residuals of the confidential tables of both kinds."""
        assert isinstance(reader, LinkedReader)
        assert isinstance(space, LinkedSpace)
        members = reader.members.tables(table.features for table in self.members)
        units = reader.units.tables(table.features for table in self.units)
        return conceal(self.name, space.measure(members, units))

    def publish(
        self,
        mechanism: Mechanism,
        measured: Measurement,
        scope: Scope,
        progress: Progress,
        stored: Sequence[StoredFit] = (),
    ) -> PublishedLinked:
        """Make both kinds agree, and fit whole numbers, unless they are stored."""
        assert isinstance(mechanism, LinkedMechanism)
        return published_linked(self, mechanism, measured, progress, stored)

    def counted_by(self, table: TableRequest) -> str:
        """Return the kind of record that one of its tables counts."""
        return MEMBER if table in self.members else UNIT

    def published_schema(self, table: TableRequest, scope: Scope) -> Schema:
        """Return the features of one of its tables as it is published: with coded sizes, where they
        are.
        """
        public = scope.dataspace
        assert isinstance(public, LinkedDataspace), "asked of linked files"
        if table in self.members:
            return public.members.schema.restrict(table.features)
        schema = public.units.schema.restrict(table.features)
        code = self.coding(public.link)
        return schema if code is None else code.schema(schema)

    def cut_blocks(
        self, mechanism: Mechanism, depth: str, scope: Scope, requests: Sequence[Request]
    ) -> "tuple[TableBlocks, dict[str, tuple[str, ...]]]":
        """Return how the tables of both kinds lie in parts; none at the cut are published next to
        them.
        """
        from semidp.publish.statistics.tables.cut_tables import TableBlocks, cut_linked

        assert isinstance(mechanism, LinkedMechanism)
        return TableBlocks(
            cut_linked(self.members, self.units, mechanism, depth), LINKED_MEASUREMENTS
        ), {}

    def steps_by_parts(
        self,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        requests: Sequence[Request],
        reader: Any,
    ) -> StepsByParts:
        """Return how both kinds are measured at the cut and in each part, and put together."""
        from semidp.publish.statistics.tables.part_steps import prepare_joint_steps

        assert isinstance(mechanism, LinkedMechanism)
        depth = cut.name(mechanism.space.members.schema)
        blocks, names = self.cut_blocks(mechanism, depth, scope, requests)
        public = mechanism.space.dataspace
        readers = [(public.members, reader.members), (public.units, reader.units)]
        return prepare_joint_steps(self, mechanism, scope, blocks, readers, names)

    def with_mechanism(self, name: str) -> "LinkedTablesRequest":
        """Return the request: it has no choice of a mechanism."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return what a plan file has at its top, and the tables of both kinds."""
        spent: dict[str, Any] = {} if self.budget is None else dict(self.budget.keys())
        if self.unit_share is not None:
            spent[UNIT_SHARE] = plain(self.unit_share)
        if self.top_code is not None:
            spent[TOP_CODE] = {SIZE: self.top_code}
        members = [_entry(table) for table in self.members]
        return {**spent, "table": members, UNIT_TABLE: [_entry(table) for table in self.units]}


def _entry(table: TableRequest) -> dict[str, Any]:
    """Return a table as a plan file has it; names follow from features."""
    entry = table.to_json()
    del entry["name"]
    return entry


def read_linked(document: Mapping[str, Any]) -> list[LinkedTablesRequest]:
    """Read the linked tables of a plan file: those of a plan that says how members are linked to
    units.
    """
    if "units" not in document:
        if any(key in document for key in (UNIT_TABLE, UNIT_SHARE, TOP_CODE)):
            raise InputError(
                "tables of units need to know how members are linked to them: give [units]"
            )
        return []
    members = [TableRequest.from_json(entry) for entry in read_entries(document, "table")]
    units = [TableRequest.from_json(entry) for entry in read_entries(document, UNIT_TABLE)]
    if not members and not units:
        return []
    share, top_code = document.get(UNIT_SHARE), document.get(TOP_CODE)
    return [LinkedTablesRequest(members, units, Budget.from_plan_keys(document), share, top_code)]


def write_linked(requests: Sequence[LinkedTablesRequest]) -> dict[str, Any]:
    """Return linked tables as a plan file has them."""
    document: dict[str, Any] = {}
    for request in requests:
        document |= request.to_json()
    return document

"""The registry entry of tables, and their reader from a release: the measurement, and the whole
numbers that were fitted to it.

One function serves tables of one kind of record and of linked files, in one piece and by parts.
Nothing is fitted: a solver may give a different result on another machine.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.products import ProductSpace
from semidp.publish.placement import Objective, Workload
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.columns import StoredFiles
from semidp.publish.results.published_table import (
    UNNAMED,
    FitKind,
    Fitted,
    StoredFit,
    read_cells,
    refuse_contradiction,
)
from semidp.publish.statistics.parts import BY_PARTS, Partition, refuse_changed
from semidp.publish.statistics.protocol.requests import (
    Request,
    RequestMeasurement,
    calibrate_named,
    require_budget,
)
from semidp.publish.statistics.protocol.statistic import Chosen, Kind, Panel, Setting, Shape
from semidp.publish.statistics.tables.asked import TableRequest, measurements_stem, with_numbers
from semidp.publish.statistics.tables.cut_tables import (
    TableBlocks,
    read_residuals,
    residuals_from_json,
)
from semidp.publish.statistics.tables.linked_published import (
    PublishedLinked,
    linked_noise_from_json,
)
from semidp.publish.statistics.tables.linked_request import (
    TOP_CODE,
    UNIT_SHARE,
    UNIT_TABLE,
    LinkedTablesRequest,
    read_linked,
    write_linked,
)
from semidp.publish.statistics.tables.part_steps import TablesMeasurement
from semidp.publish.statistics.tables.published import ALONE, IN_ONE_PIECE, SHARED
from semidp.publish.statistics.tables.request import (
    PLAN_KEYS,
    TablesRequest,
    group_table_requests,
    list_all_tables,
    read_tables,
    write_tables,
)
from semidp.publish.statistics.tables.separate import read_separate


def read_tables_measurement(
    entry: Mapping[str, Any],
    request: Any,
    requests: Sequence[Request],
    partition: Partition | None,
    scope: Scope,
    files: StoredFiles,
) -> tuple[RequestMeasurement, list[StoredFit]]:
    """Read the measurement of the tables of a request, and their whole numbers.

    Parameters
    ----------
    entry
        What release.json says of the measurement: whether its randomness was secure, which law was
        drawn, how noise was placed on residuals, and how whole numbers were fitted.
    request, requests
        What was asked for, among all requests of the plan.
    partition, scope, files
        The parts, if there are any, what is public, and the files of the release itself.
    """
    if not isinstance(request, (TablesRequest, LinkedTablesRequest)):
        raise ValueError("tables are published of a request for tables")
    mechanism = _read_mechanism(entry, request, scope)
    if partition is not None and entry.get(IN_ONE_PIECE) is not True:
        if not isinstance(request, TablesRequest) or not isinstance(mechanism, ResidualMechanism):
            raise ValueError("parts are fitted one by one where residuals were measured")
        return read_separate(entry, request, requests, mechanism, partition, scope, files)
    blocks, names = None, dict[str, tuple[str, ...]]()
    stored: list[StoredFiles] = []
    if partition is None:
        noisy = _read_noisy(request, mechanism, scope, files)
    else:
        # The folder may have changed since the release was written.
        for part in partition.parts:
            refuse_changed(partition.folder, part.digests, "the release was written")
        stored = [partition.files(part) for part in partition.parts]
        blocks, names = request.cut_blocks(mechanism, partition.depth, scope, requests)
        if len(stored) != blocks.parts:
            raise ValueError("a release by parts has a part for each node")
        noisy = blocks.read(files, stored)
    fits: list[StoredFit] = []
    for asked, schema, how in _list_fits(entry, request, scope):
        if blocks is not None and asked.name in blocks.below:
            counts = _read_rows(asked.name, schema, blocks, stored)
        else:
            counts = read_cells(files, asked.name, schema)["count"]
        counted = request.counted_by(asked)
        refuse_contradiction(files.folder, asked.name, schema, counts, how, counted, scope)
        fits.append((counts, how))
    measured = mechanism.restore_measurement(noisy, entry["private"])
    agreeing = _read_agreement(entry, request, scope)
    return TablesMeasurement(mechanism, measured, blocks, names, agreeing), fits


def _read_rows(
    name: str, schema: Schema, blocks: TableBlocks, parts: Sequence[StoredFiles]
) -> NDArray[Any]:
    """Read the counts of a table from the files of all parts."""
    cut = Cut.from_name(schema, blocks.depth)
    rows = []
    for node, files in enumerate(parts):
        rows.append(read_cells(files, name, cut.branch(schema, node))["count"])
    # Counts of a table without whole numbers are real ones.
    counts = np.zeros(schema.shape, np.result_type(*rows))
    for node, cells in enumerate(rows):
        row = cut.row(schema.grid, schema.grid.full, counts, node)
        row[...] = cells.reshape(row.shape)
    return counts


def _read_agreement(
    entry: Mapping[str, Any], request: TablesRequest | LinkedTablesRequest, scope: Scope
) -> tuple[int, int] | None:
    """Return for how many places both kinds are said to agree; None if that can be counted."""
    if not isinstance(request, LinkedTablesRequest) or request.top_code is None:
        return None
    stated = entry["agreeing"], entry["places"]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in stated):
        raise ValueError("places are counted in whole numbers")
    return stated


def _read_mechanism(
    entry: Mapping[str, Any], request: TablesRequest | LinkedTablesRequest, scope: Scope
) -> Mechanism:
    """Return how tables were measured: which law was chosen, and how noise was placed on residuals,
    is stored, since another machine may end elsewhere.
    """
    if isinstance(request, LinkedTablesRequest):
        return linked_noise_from_json(entry, request.space(scope))
    if not request.is_single_table:
        return residuals_from_json(entry, request.residual_space(scope), request.workload(scope))
    if "residuals" not in entry:
        name = entry["noise"]["mechanism"]
        return calibrate_named(name, request.space(scope), require_budget(request))
    space = request.residual_space(scope)
    return residuals_from_json(entry, space, Workload.from_weights(space, None, Objective.total))


def _read_noisy(
    request: TablesRequest | LinkedTablesRequest,
    mechanism: Mechanism,
    scope: Scope,
    files: StoredFiles,
) -> NDArray[np.int64]:
    """Read what was measured in one piece."""
    stem = measurements_stem(request)
    if isinstance(mechanism.space, ProductSpace | LinkedSpace):
        return read_residuals(files, stem, mechanism.space)
    schema = scope.dataspace.schema.restrict(request.features)
    return read_cells(files, stem, schema)["noisy_count"]


def _list_fits(
    entry: Mapping[str, Any], request: TablesRequest | LinkedTablesRequest, scope: Scope
) -> list[tuple[TableRequest, Schema, Fitted]]:
    """Return each table that was asked for with its features as they are published, and how it was
    fitted.
    """
    if isinstance(request, LinkedTablesRequest):
        asked = request.every_table
        entries = [*entry["members"]["tables"], *entry["units"]["tables"]]
    else:
        asked = request.tables
        entries = [entry] if request.is_single_table else entry["tables"]
    fits = []
    for table, part in zip(asked, entries, strict=True):
        fitted = Fitted(**part["fit"])
        if fitted.kind != table.fit:
            raise ValueError("a table has the numbers that its plan asks for")
        fits.append((table, request.published_schema(table, scope), fitted))
    return fits


_TABLES = ("table", "all_pairs")
WEIGHT = Setting(
    "weight",
    "How much the variance of a table counts among the others; 4 about halves it. Survey"
    " weights are not supported.",
    Shape.texts,
    "A,B=NUMBER",
    key="[[table]] weight",
    example="county,age=4",
    needs=_TABLES,
)
OBJECTIVE = Setting(
    "objective",
    "What the noise of several tables that share a budget minimizes: the total variance"
    " (default) or the largest error.",
    Shape.text,
    "total|largest",
    needs=_TABLES,
)
FIT = Setting(
    "fit",
    "Publish whole numbers that match the exact totals (default), or the estimates themselves.",
    Shape.text,
    "integer|none",
    key="[[table]] fit",
    needs=_TABLES,
)
TABLE = Setting(
    "table",
    "Counts by these features, with noise. Repeat it: the tables share the budget and agree.",
    Shape.features,
    "A,B",
    Panel.publish,
    key="[[table]]",
    label="Table",
    several=True,
)
ALL_PAIRS = Setting(
    "all_pairs",
    "A table for every pair of these features.",
    Shape.features,
    "A,B,C",
    Panel.publish,
    key="all_of",
    beside=(WEIGHT, OBJECTIVE, FIT),
)


def _build_requests(chosen: Chosen) -> list[TablesRequest]:
    """Return the tables that share the budget; refuse one that is asked for twice."""
    sets = list(chosen[TABLE])
    for names in chosen[ALL_PAIRS]:
        sets += [table.features for table in list_all_tables(names)]
    if len({frozenset(names) for names in sets}) < len(sets):
        raise InputError("the same table is asked for twice (⟨table⟩, ⟨all_pairs⟩): name each once")
    if not sets:
        return []
    fit = chosen[FIT] or FitKind.integer
    tables = [TableRequest(names, None, fit=fit) for names in sets]
    weighted = with_numbers(tables, "weight", f"⟨{WEIGHT.name}⟩", chosen[WEIGHT])
    objective = chosen[OBJECTIVE]
    if objective is not None and len(tables) < 2:
        raise InputError("⟨objective⟩ is for several tables that share a budget: leave it out")
    return [TablesRequest(weighted, None, objective or Objective.total)]


def _list_choices(request: TablesRequest) -> list[tuple[dict[str, Any], TableRequest]]:
    """Return each table; its mechanism, its weight and its fit are kept, and cannot be chosen on a
    page.
    """
    tables = []
    for table in request.tables:
        called = UNNAMED if table.name == "-".join(table.features) else table.name
        tables.append(({TABLE.name: (table.features,)}, evolve(table, budget=None, name=called)))
    return tables


def _group_with_linked(asked: Sequence[Any]) -> tuple[Any, ...]:
    linked = [item for item in asked if isinstance(item, LinkedTablesRequest)]
    return (*group_table_requests([item for item in asked if item not in linked]), *linked)


def _read_plan(document: Mapping[str, Any]) -> list[Any]:
    # A plan with units has linked tables alone: the same entries must not be read a second time.
    linked = read_linked(document)
    return linked if "units" in document else read_tables(document)


def _write_plan(requests: Sequence[Any]) -> dict[str, Any]:
    linked = [request for request in requests if isinstance(request, LinkedTablesRequest)]
    return write_linked(linked) if linked else write_tables(requests)


KIND = Kind(
    place=0,
    key="table",
    asked=(TableRequest, TablesRequest, LinkedTablesRequest),
    results=dict.fromkeys((ALONE, SHARED, PublishedLinked.key, BY_PARTS), read_tables_measurement),
    always_listed=(ALONE,),
    settings=(TABLE, ALL_PAIRS),
    ask=_build_requests,
    shown=_list_choices,
    plan_keys=(*PLAN_KEYS, UNIT_TABLE, UNIT_SHARE, TOP_CODE),
    gather=_group_with_linked,
    read_plan=_read_plan,
    write_plan=_write_plan,
    # Tables that are finer than a joint total in one feature and coarser in another move more cells
    # than were listed (`ExchangeTable`).
)

"""Assembled and linked tables, computed again: the whole as in one piece, then the rows of each
part.
"""

from collections.abc import Sequence
from dataclasses import replace

from semidp.mechanisms.mechanism import Mechanism
from semidp.output.cells import Columns, StoredFiles
from semidp.output.file_differences import file_differences
from semidp.output.published_table import PublishedTable
from semidp.statistics.findings import close
from semidp.statistics.parts import Part, Partition, part_folder, part_path
from semidp.statistics.protocol.rechecks import ResultCheck
from semidp.statistics.tables.by_parts.assembled_published import AssembledTables
from semidp.statistics.tables.by_parts.linked_parts_published import LinkedPartsTables
from semidp.statistics.tables.linked_published import PublishedLinked
from semidp.statistics.tables.published import PublishedTables
from semidp.statistics.tables.recheck import recheck_table, recheck_tables

AssembledResult = AssembledTables | LinkedPartsTables
"""Results that were measured in parts and fitted in one piece."""


def recheck_assembled(
    result: AssembledTables, check: ResultCheck, mechanism: Mechanism
) -> AssembledTables:
    """Compare the tables as those of one piece, then every part with its rows of them.

    Parameters
    ----------
    result
        The tables.
    check
        What they are computed again from, and where it is noted what does not follow.
    mechanism
        The mechanism with the noise that it states.
    """
    partition = _sound(result, check)
    if partition is None:
        return result
    try:
        whole = _in_one_piece(result)
    except (ValueError, KeyError, OSError, IndexError):
        check.wrong("files that are damaged in its parts")
        return result
    again = (recheck_table if result.request.alone else recheck_tables)(whole, check, mechanism)
    follows = replace(
        result,
        tables=again.tables,
        residuals=again.residuals,
        noise=again.noise,
        one_by_one_l2=again.one_by_one_l2,
        guarantee=again.guarantee,
        advertised=again.advertised,
    )
    for node, part in enumerate(partition.parts):
        _compare_part(follows, check, partition, node, part)
    return follows


def recheck_linked(
    result: LinkedPartsTables, check: ResultCheck, mechanism: Mechanism
) -> LinkedPartsTables:
    """Compare linked tables as those of one piece, then every part with its rows of them.

    Parameters
    ----------
    result
        The tables of both kinds.
    check
        What they are computed again from, and where it is noted what does not follow.
    mechanism
        The noise that they state.
    """
    partition = _sound(result, check)
    if partition is None:
        return result
    try:
        whole = result.in_one_piece()
    except (ValueError, KeyError, OSError, IndexError):
        check.wrong("files that are damaged in its parts")
        return result
    again = whole.recheck(check, mechanism)
    assert isinstance(again, PublishedLinked)
    follows = replace(
        result,
        mechanism=again.mechanism,
        members=again.members,
        units=again.units,
        stated=None,
        noise=again.noise,
        guarantee=again.guarantee,
        advertised=again.advertised,
    )
    for node, part in enumerate(partition.parts):
        _compare_part(follows, check, partition, node, part)
    return follows


def _sound(result: AssembledResult, check: ResultCheck) -> Partition | None:
    """Return the parts if all of them are there and none was changed; else None, and say why."""
    partition = check.partition
    if partition is None or partition.place is None:
        check.wrong("parts that are not there")
        return None
    changed = partition.changed()
    if changed is not None:
        check.wrong(f"another {changed} than the folder has")
        return None
    nodes = result.cut.chain(result.schema).size(result.cut.depth)
    if len(partition.parts) != nodes:
        check.wrong(f"{len(partition.parts)} parts, and there are {nodes}")
        return None
    return partition


def _in_one_piece(result: AssembledTables) -> PublishedTables:
    """Return the result as a release without parts has it, with every cell read from the parts."""
    # A recheck rebuilds tables field by field, and those that read from parts cannot be rebuilt so.
    tables = []
    for table in result.tables:
        cells = (
            table.counts,
            table.estimate,
            table.standard_errors,
            table.fitted,
            table.half_widths,
        )
        tables.append(PublishedTable(table.name, table.schema, *cells))
    return PublishedTables(
        request=result.request,
        noisy=result.noisy,
        tables=tuple(tables),
        residuals=result.residuals,
        one_by_one_l2=result.one_by_one_l2,
        name=result.name,
        noise=result.noise,
        guarantee=result.guarantee,
        advertised=result.advertised,
        private=result.private,
    )


def _compare_part(
    result: AssembledResult, check: ResultCheck, partition: Partition, node: int, part: Part
) -> None:
    """Compare the place and the files of one part with the rows that belong to it."""
    place = part_folder(result.schema, result.cut, node)
    if (part.path, part.folder) != (part_path(result.schema, result.cut, node), place):
        check.wrong(f"another place than {place} in {part.folder}")
        return
    assert partition.place is not None
    stored = StoredFiles(partition.place / part.folder, tuple(part.files))
    rows = result.rows(node)
    expected: dict[str, Columns] = {f"{table.name}.{check.form}": table.columns() for table in rows}
    measured = result.measured_in(node)
    if measured is not None:
        expected[f"{result.part_stems()[1]}.{check.form}"] = measured
    for name, columns in expected.items():
        if name not in part.files:
            check.wrong(f"no {name} in {part.folder}")
            continue
        for said in file_differences(
            stored.folder, name, columns, part.files[name], check.findings.current
        ):
            check.wrong(f"{said} in {part.folder}")
    _compare_list(check, part, rows)


def _compare_list(check: ResultCheck, part: Part, rows: Sequence[PublishedTable]) -> None:
    """Compare what the list of parts says of the tables of one part."""
    stated = {told.name: told for told in part.tables}
    for table in rows:
        told = stated.get(table.name)
        if told is None:
            continue  # told when the lists of all parts are compared
        # A loss of rounding errors is small beside the variance of the noise.
        variance = float((table.standard_errors**2).sum())
        same_fit = close([told.fitted.loss, variance], [table.fitted.loss, variance])
        if not same_fit or not told.tells_errors_of(table):
            check.wrong(f"other errors of {table.name} than it has in {part.folder}")

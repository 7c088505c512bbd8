"""Assembled and linked tables, computed again: the whole as in one piece, then the rows of each
part.
"""

from collections.abc import Sequence

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.rechecking.file_differences import file_differences
from semidp.publish.results.cells import Columns
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.parts import Part, StoredPartition, part_folder, part_path
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.recheck_findings import close
from semidp.publish.statistics.tables.by_parts.assembled_published import AssembledTables
from semidp.publish.statistics.tables.by_parts.linked_parts_published import LinkedPartsTables
from semidp.publish.statistics.tables.by_parts.measured_first import Whole


def recheck_assembled(result: Whole, check: ResultCheck, mechanism: Mechanism) -> Whole:
    """Compare the tables with those of one piece, then every part with its rows of them.

    Parameters
    ----------
    result
        The tables.
    check
        What they are computed again from, and where it is noted what does not follow.
    mechanism
        The mechanism with the noise that it states.
    """
    nodes = result.cut.chain(result.schema).size(result.cut.depth)
    partition = check.sound_partition(nodes)
    if partition is None:
        return result
    try:
        whole = result.in_one_piece()
    except (ValueError, KeyError, OSError, IndexError):
        check.wrong("files that are damaged in its parts")
        return result
    follows = result.with_recomputed_numbers(whole.recheck(check, mechanism))
    for node, part in enumerate(partition.parts):
        _compare_part(follows, check, partition, node, part)
    return follows


def _compare_part(
    result: AssembledTables | LinkedPartsTables,
    check: ResultCheck,
    partition: StoredPartition,
    node: int,
    part: Part,
) -> None:
    """Compare the folder and the files of one part with its rows."""
    place = part_folder(result.schema, result.cut, node)
    if (part.path, part.folder) != (part_path(result.schema, result.cut, node), place):
        check.wrong(f"another place than {place} in {part.folder}")
        return
    stored = partition.files(part)
    rows = result.rows(node)
    expected: dict[str, Columns] = {f"{table.name}.{check.form}": table.columns() for table in rows}
    measured = result.measured_columns(node)
    if measured is not None:
        expected[f"{result.part_stems()[1]}.{check.form}"] = measured
    for name, columns in expected.items():
        if name not in part.files:
            check.wrong(f"no {name} in {part.folder}")
            continue
        for said in file_differences(stored.folder, name, columns, part.files[name]):
            check.wrong(f"{said} in {part.folder}")
    _compare_list(check, part, rows)


def _compare_list(check: ResultCheck, part: Part, rows: Sequence[PublishedTable]) -> None:
    """Compare what the list of parts says about the tables of one part."""
    stated = {told.name: told for told in part.tables}
    for table in rows:
        told = stated.get(table.name)
        if told is None:
            continue  # told when the lists of all parts are compared
        # A loss of rounding errors is small beside the variance of the noise.
        variance = float((table.standard_errors**2).sum())
        same_fit = close([told.fitted.loss, variance], [table.fitted.loss, variance])
        if not same_fit or not told.matches_errors(table):
            check.wrong(f"other errors of {table.name} than it has in {part.folder}")

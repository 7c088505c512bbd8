"""Whether the parts of a release follow from what was measured in them.

Every part is published again from its block of the measurement, with its stored whole numbers, and
compared file by file, whatever the statistic.
"""

from semidp.promise.sensitivity.branches import Cut
from semidp.publish.rechecking.file_differences import file_differences
from semidp.publish.rechecking.result_check import trust_fit
from semidp.publish.release_value import ReleaseValue
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.parts import (
    PARTS,
    Part,
    StoredPartition,
    part_folder,
    part_path,
)
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.recheck_findings import Findings, close


def compare_parts(release: ReleaseValue, findings: Findings) -> None:
    """Compare the files of every part, and what the list of parts says of them."""
    partition = release.partition
    if partition is None:
        return
    if not isinstance(partition, StoredPartition):
        findings.wrong.append("it states parts that are not there")
        return
    changed = partition.find_changed_file()
    if changed is not None:
        findings.wrong.append(f"it states another {changed} than the folder has")
        return
    schema = release.scope.dataspace.schema
    cut = Cut.from_name(schema, partition.depth)
    nodes = cut.chain(schema).size(cut.depth)
    if len(partition.parts) != nodes:
        findings.wrong.append(f"it states {len(partition.parts)} parts, and there are {nodes}")
        return
    trust_fit(findings, f"{PARTS} tables.fitted")
    for node, part in enumerate(partition.parts):
        place = part_folder(schema, cut, node)
        if (part.path, part.folder) != (part_path(schema, cut, node), place):
            findings.wrong.append(f"it states another place than {place} in {part.folder}")
            continue
        for result in release.results:
            try:
                said = _compare_part(release, partition, result, node, part)
            except (ValueError, KeyError, OSError, IndexError, StopIteration):
                said = ["files that are damaged"]
            findings.wrong += [
                f"{result.name!r} states {each} in {part.folder}" for each in dict.fromkeys(said)
            ]


def _compare_part(
    release: ReleaseValue, partition: StoredPartition, result: Published, node: int, part: Part
) -> list[str]:
    """Return what one part states of a result that does not follow."""
    names, stem = result.part_stems()
    if not names:
        return []
    stored = partition.files(part)
    tables, measured = result.publish_part(stored, node, part)
    said = list(result.part_faults(node, tables))
    # Where the counts do not add up, that is said, and not what else follows from them.
    if said:
        return said
    columns = {table.name: table.columns() for table in tables}
    if measured is not None and stem is not None:
        columns[stem] = measured
    for name, content in columns.items():
        file = f"{name}.{release.form}"
        if file not in part.files:
            said.append(f"no {file}")
            continue
        said += file_differences(stored.folder, file, content, part.files[file])
    for table in tables:
        said += _compare_list(part, table)
    return said


def _compare_list(part: Part, table: PublishedTable) -> list[str]:
    """Compare what the list of parts says of one table."""
    told = next((told for told in part.tables if told.name == table.name), None)
    if told is None:
        return []  # told when the lists of all parts are compared
    loss = 0.0
    if table.fitted.method != "none":
        loss = float(((table.counts - table.estimate) ** 2).sum())
    # A loss of rounding errors is small beside the variance of the noise.
    variance = float((table.standard_errors**2).sum())
    if not close([told.fitted.loss, variance], [loss, variance]):
        return [f"another distance of {table.name} from what was measured than it has"]
    if told.fitted.kind != table.fitted.kind:
        return [f"another kind of numbers of {table.name} than it has"]
    return [] if told.matches_errors(table) else [f"other errors of {table.name} than it has"]

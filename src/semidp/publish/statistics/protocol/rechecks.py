"""What a published result is computed again from, and where it is noted what does not follow."""

from dataclasses import dataclass

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.results.cells import Form
from semidp.publish.statistics.parts import Partition, StoredPartition
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.recheck_findings import Findings


@dataclass(eq=False)
class ResultCheck:
    """What a published result is computed again from, and where it is noted what does not follow.

    Parameters
    ----------
    findings
        What the recheck has found so far.
    name
        What the result is called.
    request, scope
        What was asked for, and what is public.
    mechanism
        The mechanism that the budget gives.
    form
        How the cells of the release are written.
    partition
        The parts of a release that was carried out part by part; None for others.
    """

    findings: Findings
    name: str
    request: "Request"
    scope: Scope
    mechanism: Mechanism
    form: Form | None
    partition: Partition | None = None

    def __post_init__(self) -> None:
        self._before = len(self.findings.wrong)

    @property
    def has_findings(self) -> bool:
        """Whether something of this result was found wrong already."""
        return len(self.findings.wrong) > self._before

    def wrong(self, said: str) -> None:
        """Note a statement of this result that does not follow from its noisy values."""
        self.findings.wrong.append(f"{self.name!r} states {said}")

    def sound_partition(self, nodes: int) -> StoredPartition | None:
        """Return the parts if there is one for each node and none was changed.

        None otherwise; then it is noted why.
        """
        partition = self.partition
        if not isinstance(partition, StoredPartition):
            self.wrong("parts that are not there")
            return None
        changed = partition.find_changed_file()
        if changed is not None:
            self.wrong(f"another {changed} than the folder has")
            return None
        if len(partition.parts) != nodes:
            self.wrong(f"{len(partition.parts)} parts, and there are {nodes}")
            return None
        return partition

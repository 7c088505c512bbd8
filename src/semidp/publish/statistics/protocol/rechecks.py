"""What a published result is computed again from, and where it is noted what does not follow."""

from dataclasses import dataclass

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.results.cells import Form
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
    """

    findings: Findings
    name: str
    request: "Request"
    scope: Scope
    mechanism: Mechanism
    form: Form | None

    def __post_init__(self) -> None:
        self._before = len(self.findings.wrong)

    @property
    def has_findings(self) -> bool:
        """Whether something of this result was found wrong already."""
        return len(self.findings.wrong) > self._before

    def wrong(self, said: str) -> None:
        """Note a statement of this result that does not follow from its noisy values."""
        self.findings.wrong.append(f"{self.name!r} states {said}")

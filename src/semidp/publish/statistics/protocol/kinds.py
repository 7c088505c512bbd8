"""A kind of statistic as the packages above its folder know it: how its plans, recorded queries
and results are read.

The kinds that there are stand in `registry`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.results.cells import StoredFiles
from semidp.publish.results.published_table import StoredFit
from semidp.publish.statistics.parts import Partition
from semidp.publish.statistics.protocol.requests import (
    PlanEntry,
    Request,
    RequestMeasurement,
    read_entries,
)
from semidp.publish.statistics.setting import Chosen, Setting

ResultReader = Callable[
    [Mapping[str, Any], Any, Sequence[Request], Partition | None, Scope, StoredFiles],
    tuple[RequestMeasurement, Sequence[StoredFit]],
]
"""Reads what was measured of a request and the whole numbers of its tables, from its entry in
release.json and its files, among all requests of the plan, by parts or in one piece."""


@dataclass(frozen=True)
class OtherAnswer:
    """The questions of a request, put to another kind of statistic at the same cost.

    Parameters
    ----------
    request
        What asks them.
    better
        Whether it answers them better, by public numbers alone.
    reason
        How well both answer them.
    """

    request: Request
    better: bool
    reason: str


@dataclass(frozen=True)
class Kind:
    """A kind of statistic, as the packages above its folder know it.

    Parameters
    ----------
    place
        Where its requests stand among those of a plan.
    key
        The list of its requests in a plan file.
    asked
        The classes that a plan takes; the first reads an entry of a plan file.
    results
        The keys of its lists in release.json, with how their results are read, where they are not
        published again from their measurements.
    always_listed
        The keys of lists that release.json has even where they are empty.
    plan_keys
        What it may have at the top of a plan file beside its list.
    gather
        Turns what a plan was given into its requests.
    read_plan, write_plan
        How its requests are read from a plan file and written to it, where an entry each is not
        all.
    settings
        What can be chosen of it, each with what stands beside it: options of `semidp release` and
        controls of the explorer.
    ask
        Turns what was chosen into requests, or into whatever a plan takes.
    shown
        The inverse of `ask`: the choices that produce a request, each beside what it asks for,
        without a budget. One request may need several, such as one for each table.
    alternative
        Returns how this kind would answer a request of another, beside the mechanism that would
        measure it; None where it does not answer such questions. Public numbers alone decide.
    of_answers
        Returns the same statistic of those who answered, where who did is private; None where this
        kind does not know how.
    """

    place: int
    key: str
    asked: tuple[type[Any], ...] = ()
    results: Mapping[str, ResultReader] = field(default_factory=dict)
    always_listed: tuple[str, ...] = ()
    plan_keys: tuple[str, ...] = ()
    gather: Callable[[Sequence[Any]], Sequence[Request]] = tuple
    read_plan: Callable[[Mapping[str, Any]], Sequence[Request]] | None = None
    write_plan: Callable[[Sequence[Any]], dict[str, Any]] | None = None
    settings: tuple[Setting, ...] = ()
    ask: Callable[[Chosen], Sequence[Any]] = lambda chosen: ()
    shown: Callable[[Any], Sequence[tuple[Mapping[str, Any], Any]]] = lambda request: ()
    alternative: Callable[[Request, Mechanism], OtherAnswer | None] = lambda request, mechanism: (
        None
    )

    of_answers: Callable[[Request], Request | None] = lambda request: None

    @property
    def list_keys(self) -> tuple[str, ...]:
        """The keys of its lists in release.json."""
        return tuple(self.results) or tuple(asked.list_key for asked in self.asked[:1])

    def read(self, document: Mapping[str, Any]) -> Sequence[Request]:
        """Return its requests of a plan file."""
        if self.read_plan is not None:
            return self.read_plan(document)
        if not self.asked:
            return ()
        reader: type[PlanEntry] = self.asked[0]
        return [
            cast(Request, reader.from_json(entry)) for entry in read_entries(document, self.key)
        ]

    def write(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Return its requests as a plan file has them."""
        if self.write_plan is not None:
            return self.write_plan(requests)
        if not self.asked:
            return {}
        return {self.key: [request.to_json() for request in requests]}

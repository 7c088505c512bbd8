"""The content of a release: results, the guarantee and its origin, and lookup by
name.

Results are a function of a plan, exact totals, noisy measurements and the whole numbers that were
fitted to them (`publish`): no data, no side effects. `run` publishes what it has just measured; a
loaded release publishes what its folder stores, when first asked, so both hold the same results.
Everything here may be published. Files are written and read in `release_files`.
"""

import contextlib
import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused, SemidpError, did_you_mean
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.progress import Progress, shorten_text, silent
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.plan import AdjacencyChoice, Plan, margins_from
from semidp.publish.plotting import tradeoff_plot
from semidp.publish.presentation import AS_USUAL, Presentation
from semidp.publish.results.columns import Form, PublishedColumns, StoredFiles
from semidp.publish.results.published_table import PublishedTable, StoredFit
from semidp.publish.results.role_columns import Sheet
from semidp.publish.selection import with_exact_claim
from semidp.publish.side_information import (
    check_same_records,
    guarantee_under,
    naive_tradeoff,
    other_guarantee,
)
from semidp.publish.statistics.parts import BY_PARTS, Partition, refuse_changed
from semidp.publish.statistics.protocol.requests import (
    NOISY,
    Published,
    Request,
    RequestMeasurement,
    require_budget,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    result_keys,
    result_readers,
)
from semidp.publish.written_values import texts


def calibrate_request(plan: Plan, request: Request, space: QuerySpace) -> Mechanism:
    """Return the mechanism that a plan asks for, with an exact claim if it requires one."""
    mechanism = request.calibrate(space)
    if plan.claim is None:
        return mechanism
    return with_exact_claim(mechanism, require_budget(request), request.mechanism)


def compose_guarantees(plan: Plan, guarantees: Iterable[Guarantee]) -> Guarantee:
    """Return what all requests of a plan guarantee together.

    Microdata state what both phases were charged for: bins follow from noise, and the pairs of
    other bins may cost more.
    """
    together = Guarantee.compose(*guarantees)
    if plan.microdata is None:
        return together
    charged = plan.microdata.phases_budget.tradeoff()
    return evolve(together, tradeoff=charged) if together.tradeoff >= charged else together


def has_noisy_bins(plan: Plan) -> bool:
    """Whether bins of microdata follow from noise, so that other noise would have made others."""
    return plan.microdata is not None and len(plan.requests) > 1


def publish(
    plan: Plan,
    scope: Scope,
    measurements: Sequence[RequestMeasurement],
    counts: Sequence[Sequence[StoredFit]] | None = None,
    progress: Progress = silent,
) -> tuple[Published, ...]:
    """Return the results of all requests of a plan.

    Parameters
    ----------
    plan, scope
        The plan, and the exact totals with what follows from them.
    measurements
        The measurement of each request.
    counts
        The whole numbers of each request's tables, if they were fitted before: nothing is
        fitted again.
    progress
        Told what is going on.
    """
    stored: Sequence[Sequence[StoredFit]] = [()] * len(measurements) if counts is None else counts
    requests = zip(plan.requests, measurements, stored, strict=True)
    return tuple(
        measured.publish(request, scope, fits, progress) for request, measured, fits in requests
    )


def read_measurements(
    document: Mapping[str, Any],
    plan: Plan,
    scope: Scope,
    files: StoredFiles,
    partition: Partition | None,
) -> tuple[tuple[RequestMeasurement, ...], tuple[Sequence[StoredFit], ...]]:
    """Return the measurement of each request of a plan, and the whole numbers of its tables, from
    release.json and the files of a release.
    """
    readers = result_readers()
    left = [(key, entry) for key in result_keys() for entry in document.get(key, ())]
    measurements, counts = [], []
    for request in plan.requests:
        # Results of one kind may stand in two lists: in that of parts, and in that of what was not
        # cut.
        place = [entry["name"] for _, entry in left].index(request.name)
        key, entry = left.pop(place)
        if not isinstance(entry["private"], bool):
            raise ValueError("a measurement is private or not")
        if (key == BY_PARTS) and partition is None:
            raise ValueError("a result by parts has parts")
        fits: Sequence[StoredFit] = ()
        if key in readers:
            parts = partition if key == BY_PARTS else None
            measured, fits = readers[key](entry, request, plan.requests, parts, scope, files)
        else:
            measured = _read_statistic(plan, request, entry, scope, files)
        measurements.append(measured)
        counts.append(fits)
    if left:
        raise ValueError("a release has no more than its plan asks for")
    return tuple(measurements), tuple(counts)


def _read_statistic(
    plan: Plan,
    request: Request,
    entry: Mapping[str, Any],
    scope: Scope,
    files: Mapping[str, bytes],
) -> RequestMeasurement:
    """Read what was measured of a request for a statistic."""
    mechanism = calibrate_request(plan, request, request.measured_space(entry, scope))
    noisy = request.order_noisy(_read_noisy(request.files, files))
    if noisy.shape != tuple(mechanism.space.shape):
        raise ValueError("a measurement has as many numbers as its query")
    return RequestMeasurement(mechanism, mechanism.restore_measurement(noisy, entry["private"]))


def _read_noisy(names: Sequence[str], files: Mapping[str, bytes]) -> NDArray[np.int64]:
    """Read the noisy columns of the files of a request, row by row: the last ones of a file."""
    rows: list[list[int]] = []
    for name in names:
        header, *lines = csv.reader(io.StringIO(files[name].decode()))
        start = len(header)
        while start and header[start - 1].startswith(NOISY):
            start -= 1
        if start < len(header):
            rows += [list(map(int, line[start:])) for line in lines]
    return np.array(rows, dtype=np.int64)


_ALSO_KNOWN = 8  # features whose counts an attacker may know
SOURCES = "releases"
"""The folder of a combination that holds its releases."""
MOST_WHOLE = 2 * 10**7
"""The most cells of the tables of a release by parts in memory at once."""


@frozen(slots=False, eq=False, repr=False)
class ReleaseValue:
    """Fields of a release and lookups in them; `Release` adds files and questions."""

    plan: Plan
    scope: Scope
    published: Callable[[], tuple[Published, ...]]
    stated: Guarantee | None
    private: bool
    ledger: Mapping[str, Any] | None
    versions: Mapping[str, str]
    created: str
    form: Form | None = None
    partition: Partition | None = None
    sources: tuple[Any, ...] = ()  # of its own class: mypy knows no Self in fields of attrs
    presentation: Presentation = AS_USUAL

    @cached_property
    def results(self) -> tuple[Published, ...]:
        """The published result of each request, computed when first asked for."""
        return self.published()

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the release; refused if a combination of releases states none
        (`stated` is None).
        """
        if self.stated is None:
            raise Refused("this release states no guarantee: its warnings say why")
        return self.stated

    @property
    def epsilon(self) -> float | None:
        """The guarantee restated at the reporting delta; None if there is none, or no finite
        number.
        """
        if self.stated is None:
            return None
        epsilon = self.guarantee.tradeoff.epsilon(self.plan.report_delta)
        return epsilon if math.isfinite(epsilon) else None

    @property
    def measured_digest(self) -> str:
        """Digest of the noisy values. A ledger records it, because one charge pays for one
        measurement.
        """
        whole = hashlib.sha256()
        for result in self.results:
            numbers = np.ascontiguousarray(result.noisy)
            whole.update(json.dumps([result.name, numbers.dtype.str, numbers.size]).encode())
            whole.update(numbers.data)
        for part in () if self.partition is None else self.partition.parts:
            whole.update(json.dumps([part.folder, sorted(part.files.items())]).encode())
        return whole.hexdigest()

    @property
    def tables(self) -> tuple[PublishedTable, ...]:
        """Every published table, with a budget of its own or a shared one.

        Those of a release by parts are read from the folders of the parts when their cells are
        needed.
        """
        return tuple(table for result in self.results for table in result.every_table())

    def table_name(self, called: str) -> str:
        """Return the name of a table in its files, given an alternative such as
        ``units:zone-size``.
        """
        for result in self.results:
            table = result.columns_by_name().get(called)
            if isinstance(table, PublishedTable):
                return table.name
        return called

    def with_folder(self, folder: Path) -> Self:
        """Return the release located in a folder, with those of its parts."""
        if self.partition is None:
            return self
        partition = evolve(self.partition, place=folder)
        results = tuple(result.with_partition(partition) for result in self.results)
        return evolve(self, published=partial(tuple, results), partition=partition)

    def part(self, *path: str) -> dict[str, PublishedTable]:
        """Read the tables of one part from the folder of the release, by their names.

        Parameters
        ----------
        path
            The labels of the part, from the coarsest depth down; the last is enough if no other
            part has it.
        """
        partition = self.partition
        if partition is None or partition.place is None:
            raise InputError(
                "this release was not carried out part by part, or not read from its folder"
            )
        part = partition.part(path)
        refuse_changed(partition.place, part.digests, "the release was written")
        files = partition.files(part)
        node = partition.parts.index(part)
        tables: dict[str, PublishedTable] = {}
        for result in self.results:
            tables |= {table.name: table for table in result.tables_of_part(files, node, part)}
        return tables

    def refuse_parts(self, what: str) -> None:
        """Refuse a question to a release by parts."""
        if self.partition is not None:
            raise Refused(
                f"{what} are for tables that were released whole, and this release was made part by"
                " part: use the estimates and standard errors in its files"
            )

    def refuse_large_parts(self, what: str) -> None:
        """Refuse a question that needs all parts at once if their tables are too large for
        that.
        """
        if self.partition is None:
            return
        cells = sum(table.schema.size for table in self.tables)
        if cells > MOST_WHOLE:
            raise Refused(
                f"{what} take all parts of a release together, and these tables have {cells:,}"
                f" cells (at most {MOST_WHOLE:,}): use the estimates and standard errors in its"
                " files"
            )

    def refuse_combined(self, what: str) -> None:
        """Refuse a question to a combination of releases."""
        if self.sources:
            raise Refused(
                f"{what} are for a release as it was measured, and this one is a combination of"
                f" several: ask the releases themselves, in its folder {SOURCES}"
            )

    def _select_results(self, key: str) -> tuple[Any, ...]:
        """Results in the list `key` of release.json."""
        return tuple(result for result in self.results if result.list_key == key)

    @property
    def groups(self) -> tuple[PublishedStatistic, ...]:
        """The published statistics by group."""
        return self._select_results("groups")

    @property
    def answers(self) -> tuple[PublishedStatistic, ...]:
        """The published statistics of those who answered, if who answered is private."""
        return self._select_results("answers")

    @property
    def regressions(self) -> tuple[PublishedStatistic, ...]:
        """The published regressions."""
        return self._select_results("regressions")

    @property
    def quantiles(self) -> tuple[PublishedStatistic, ...]:
        """The published quantiles by group."""
        return self._select_results("quantiles")

    @property
    def distributions(self) -> tuple[PublishedStatistic, ...]:
        """The published distributions by group."""
        return self._select_results("distributions")

    @property
    def odds_ratios(self) -> tuple[PublishedStatistic, ...]:
        """The published tests of odds ratios."""
        return self._select_results("odds_ratios")

    def table(self, name: str | Iterable[str]) -> PublishedTable:
        """Return a table of counts, with `to_pandas`, `to_polars` and `to_arrow`.

        Parameters
        ----------
        name
            The name of its file, without ``.csv``, or its features, joined by ``-`` or in a list,
            in any order. For a nested feature the finest name is enough.

        Examples
        --------
        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"]
        ... )
        >>> semidp.run(plan, {"sex": ["f", "m", "m"]}).table("sex").to_dict()["count"]
        [1, 2]
        """
        columns = self._find_columns(name)
        if not isinstance(columns, PublishedTable):
            raise InputError(f"{name!r} is not a table of counts: use release[{name!r}]")
        return columns

    def _find_columns(self, name: str | Iterable[str]) -> PublishedColumns:
        by_features: dict[tuple[str, ...], PublishedColumns] = {}
        by_name: dict[str, PublishedColumns] = {}
        for result in self.results:
            by_features |= result.by_features()
            by_name |= result.columns_by_name()
        if not isinstance(name, str):
            asked = texts(name, "the features of a table")
            same = [features for features in by_features if {*features} == {*asked}]
            name = "-".join(same[0] if same else asked)
        # A name that was given goes before one that follows from features.
        named = {"-".join(features): table for features, table in by_features.items()} | by_name
        if name not in named:
            for features, table in by_features.items():
                if _is_joined_name(name, features):
                    return table
            meant = did_you_mean(name, named)
            raise InputError(
                f"there is nothing called {name!r} here{meant}; there are {', '.join(named)}"
            )
        return named[name]

    def __getitem__(self, name: str | tuple[str, ...]) -> PublishedTable | Sheet:
        """Return what is published under a name: the table ``release["sex-age"]``, or the file
        ``release["mean-pay"]`` of a statistic; see `table`.
        """
        columns = self._find_columns(name)
        assert isinstance(columns, (PublishedTable, Sheet)), "a release publishes nothing else"
        return columns

    def keys(self) -> list[str]:
        """Return the names of all results.

        >>> import semidp
        >>> people = {"sex": [*"fm"] * 9, "pay": [3, 5] * 9}
        >>> asked = [semidp.table("sex"), semidp.mean("pay", bounds=(0, 9))]
        >>> release = semidp.release(people, *asked, exact=["sex"], mu=1)
        >>> list(release), len(release), "mean-pay" in release
        (['table', 'mean-pay'], 2, True)
        >>> {name: list(table.to_dict())[0] for name, table in release.items()}
        {'table': 'sex', 'mean-pay': 'all records'}
        """
        distinct: dict[int, str] = {}
        for result in self.results:
            # Tables of units have a second name, which comes later.
            for name, table in result.columns_by_name().items():
                distinct.setdefault(id(table), name)
        return list(distinct.values())

    def items(self) -> list[tuple[str, PublishedTable | Sheet]]:
        """Return all results with their names."""
        return [(name, self[name]) for name in self.keys()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanism of each result, from the plan and the stated noise; refused if less noise
        is stated than needed.
        """
        self.refuse_combined("mechanisms")
        mechanisms = []
        for request, result in zip(self.plan.requests, self.results, strict=True):
            mechanism = result.sampling_mechanism(result.recalibrate(request, self.scope))
            if mechanism is None:
                raise Refused(
                    f"{result.name!r} states less noise than its budget needs: check the release"
                    " first"
                )
            mechanisms.append(mechanism)
        return tuple(mechanisms)

    def under(
        self,
        invariants: Dataspace | Iterable[Margin | str | Iterable[str]],
        adjacency: Adjacency | AdjacencyChoice | int | str | None = None,
        known: Dataspace | None = None,
        most: int | None = None,
    ) -> Guarantee:
        """Return what the noise of this release guarantees if other statistics are exact: more,
        fewer, or different ones.

        For additive noise ``μ' = Δ2(S')/σ`` with the S' of all that is exact; the result may be
        weaker or stronger. Nothing confidential is read.

        Parameters
        ----------
        invariants
            Everything exact: margins, or a `Dataspace` with their values.
        adjacency
            Which datasets are compared (default: exchanges for an exchange release, else any a(t)
            records).
        known
            Further values of margins, and features, besides those of the release. A margin without
            values may have any.
        most
            How many records a person may have (default: as many as the release says).

        Examples
        --------
        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TableRequest(["sex", "ill"], semidp.Budget.zcdp("1/2"))],
        ...     ["sex"],
        ...     features=[semidp.Feature("ill", ["n", "y"])],
        ... )
        >>> release = semidp.run(plan, {"sex": ["f", "m", "m", "f"], "ill": ["n", "y", "n", "n"]})
        >>> release.under(["sex", "ill"]).tradeoff  # S is now the swaps: Δ2² = 4, where it was 8
        ZCDP(rho=Fraction(1, 4))
        >>> # The noise alone, were the sexes not published: one record, Δ2² = 2
        >>> release.under([]).tradeoff
        ZCDP(rho=Fraction(1, 8))
        """
        if has_noisy_bins(self.plan):
            raise Refused(
                "the bins of these microdata follow from noise, and what the pairs of other bins"
                " would lose for other datasets is not known"
            )
        if isinstance(invariants, Datasets):
            margins, known = invariants.margins, invariants
        else:
            margins = margins_from(invariants)
        about = check_same_records(
            self.scope.dataspace if known is None else known, self.scope.dataspace
        )
        if adjacency is None:
            adjacency = (
                AdjacencyChoice.worst_case
                if self.scope.adjacency.protects_groups
                else AdjacencyChoice.exchange
            )
        protection = self.scope.protection
        if most is not None:
            protection = evolve(self.plan, id=self.plan.id or "person", most=most).protection
        return guarantee_under(
            self.mechanisms, margins, about, adjacency, bool(self.plan.outcomes), protection
        )

    @property
    def other_adjacency_guarantee(self) -> Guarantee | None:
        """What the same noise guarantees under the other adjacency; None if that is not known.

        >>> import semidp
        >>> request = semidp.publish.TableRequest(
        ...     ["sex", "ill"], semidp.Budget.gdp(1), mechanism="gaussian"
        ... )
        >>> plan = semidp.Plan(
        ...     [request],
        ...     ["sex"],
        ...     adjacency="exchange",
        ...     features=[semidp.Feature("ill", ["n", "y"])],
        ... )
        >>> release = semidp.run(plan, {"sex": ["f", "m", "m", "f"], "ill": ["n", "y", "n", "n"]})
        >>> other = release.other_adjacency_guarantee
        >>> # Δ2² = 8 for any two records, and 4 for exchanges
        >>> (other.adjacency, other.tradeoff.mu_squared)
        (Ball(a=2), Fraction(2, 1))
        """
        try:
            mechanisms = self.mechanisms
        except Refused:
            # A release that states less noise than its budget needs has no guarantee to restate.
            return None
        if has_noisy_bins(self.plan):
            return None
        return other_guarantee(mechanisms, self.scope, bool(self.plan.outcomes))

    @property
    def naive_tradeoff(self) -> Tradeoff | None:
        """What the noise would seem to guarantee for one record if the exact totals were
        ignored.
        """
        return naive_tradeoff(self.scope.dataspace, (result.advertised for result in self.results))

    def also_known(self, most: int = _ALSO_KNOWN) -> tuple[dict[str, Guarantee], int]:
        """Return what the noise guarantees if an attacker also knew the counts of a feature, for
        several features, and how many more there are.

        The values of such a margin are confidential: each guarantee holds for any values. Features
        without a known guarantee are left out.

        Parameters
        ----------
        most
            The number of features to try.

        Examples
        --------
        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TableRequest(["sex", "ill"], semidp.Budget.zcdp("1/2"))],
        ...     ["sex"],
        ...     features=[semidp.Feature("ill", ["n", "y"])],
        ... )
        >>> release = semidp.run(plan, {"sex": ["f", "m", "m", "f"], "ill": ["n", "y", "n", "n"]})
        >>> {name: guarantee.tradeoff for name, guarantee in release.also_known()[0].items()}
        {'ill': ZCDP(rho=Fraction(1, 4))}
        """
        space = self.scope.dataspace
        unpublished = [name for name in space.schema.names if not space.publishes(Margin(name))]
        guarantees = {}
        for name in unpublished[:most]:
            # A margin under which this noise proves nothing is left out: it is no fault of the
            # release.
            with contextlib.suppress(SemidpError):
                guarantees[name] = self.under([*space.margins, Margin(name)])
        return guarantees, max(len(unpublished) - most, 0)

    def plot(self, axes: Any = None) -> Any:
        """Draw the error curve of the best attacker, on matplotlib axes if given; return the
        figure.
        """
        return tradeoff_plot({str(self.guarantee.adjacency): self.guarantee.tradeoff}, axes=axes)

    def __repr__(self) -> str:
        what = ", ".join(result.name for result in self.results)
        exact = self.scope.dataspace.summary()
        marked = "" if self.private else ", not private"
        if self.stated is None:
            return f"Release({what}; exact: {exact}; no guarantee is stated{marked})"
        curve = shorten_text(self.guarantee.tradeoff)
        return f"Release({what}; exact: {exact}; {curve} for {self.guarantee.adjacency}{marked})"


def _is_joined_name(name: str, features: tuple[str, ...]) -> bool:
    """Whether a name is that of features joined by ``-`` in any order.

    >>> (
    ...     _is_joined_name("age-sex", ("sex", "age")),
    ...     _is_joined_name("age-sex", ("sex", "age", "ward")),
    ... )
    (True, False)
    """
    if len(features) < 2:
        return name in features
    # The name of a feature may hold a dash itself, so splitting at dashes would not do.
    for position, feature in enumerate(features):
        remaining = (*features[:position], *features[position + 1 :])
        if name.startswith(f"{feature}-") and _is_joined_name(name[len(feature) + 1 :], remaining):
            return True
    return False

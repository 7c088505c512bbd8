"""What a release is: published results, the guarantee, and where it came from. Everything in it may
be published.

A release is written to a folder as CSV, JSON and a page, and read back from it; what the page says
is in `report`.
"""

import contextlib
import csv
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from attrs import evolve
from numpy.typing import ArrayLike, NDArray

from semidp.core.documents import from_json
from semidp.core.exact import number, texts
from semidp.core.guarantee import Guarantee
from semidp.core.notebook import facts, shortened_text
from semidp.core.progress import Progress, silent
from semidp.core.scope import Scope
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Datasets, Dataspace, Margin
from semidp.core.tradeoff.curves import tradeoff_from_json
from semidp.core.tradeoff.function import Tradeoff
from semidp.errors import AdjacencyUnknown, InputError, Refused, SemidpError, did_you_mean
from semidp.mechanisms.mechanism import Mechanism
from semidp.noise.randomness import Randomness, SystemRandomness
from semidp.output.cells import METADATA, Form, PublishedColumns, StoredFiles, csvw, form_named
from semidp.output.files import (
    digest,
    discard_unfinished,
    document_at,
    new_folder,
    read_plain,
    recover,
)
from semidp.output.place_maps import MAP, PlaceMap
from semidp.output.plots.figures import tradeoff_plot
from semidp.output.presentation import AS_USUAL, Presentation
from semidp.output.published_table import PublishedTable
from semidp.output.sections import Section
from semidp.output.workbooks import WORKBOOK, check_installed
from semidp.publishing.combined.combination import Combination
from semidp.publishing.combined.combined_tables import CombinedTables
from semidp.publishing.parts.parts_words import parts_file_words, parts_section
from semidp.publishing.plan import AdjacencyChoice, Plan, margins_from
from semidp.publishing.side_information import (
    announced,
    check_about,
    guarantee_under,
    other_guarantee,
)
from semidp.publishing.signing import SIGNATURE, SUMS
from semidp.publishing.survey import semi_of
from semidp.statistics.parts import PARTS, Part, Partition, refuse_changed
from semidp.statistics.protocol.results import Published
from semidp.statistics.registry import always_listed, parts_readers, result_keys, result_readers

if TYPE_CHECKING:
    from semidp.questions.answers import IntervalEstimate, TableIntervals
    from semidp.questions.association import Association, Scores
    from semidp.questions.independence import Independence
    from semidp.questions.measured import Cells
    from semidp.questions.records.synthetic import SyntheticRecords
    from semidp.statistics.answered.published import PublishedAnswers
    from semidp.statistics.distribution.published import PublishedDistribution
    from semidp.statistics.quantiles.published import PublishedQuantiles
    from semidp.statistics.regression.published import PublishedRegression
    from semidp.statistics.sums.published import PublishedGroups

SCHEMA_VERSION = 1
"""The version of release.json; it grows when a field changes its meaning."""

REPORT = "report.html"
SOURCES = "releases"
"""Folder of a combination that holds the releases that it is of."""
MOST_WHOLE = 2 * 10**7
"""Cells of the tables of a release by parts that are held at once."""
LISTED = 10_000
"""Up to so many levels and exact totals are listed in release.json; more have files of their
own."""

_ALSO_KNOWN = 8  # features whose counts an attacker may know
_DOCUMENTS = {"plan": "plan.json", "dataspace": "dataspace.json"}


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A finished release. Nothing in it is confidential beyond what the plan publishes exactly.

    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [["sex", "region"]])
    >>> release = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> release.private, release.guarantee.adjacency.a, [table.name for table in release.tables]
    (True, 2, ['table'])
    """

    plan: Plan
    scope: Scope
    results: tuple[Published, ...]
    stated: Guarantee | None
    private: bool
    ledger: Mapping[str, Any] | None
    versions: Mapping[str, str]
    created: str
    form: Form | None = None
    partition: Partition | None = None
    combination: Combination | None = None
    presentation: Presentation = AS_USUAL

    @property
    def guarantee(self) -> Guarantee:
        """What the release guarantees; refused where a combination of releases states nothing
        (`stated` is None).
        """
        if self.stated is None:
            raise Refused("this release states no guarantee: its warnings say why")
        return self.stated

    @property
    def combined(self) -> CombinedTables | None:
        """The tables of a combination of releases, or None."""
        return next((result for result in self.results if isinstance(result, CombinedTables)), None)

    @property
    def tables(self) -> tuple[PublishedTable, ...]:
        """Every published table, with a budget of its own or a shared one.

        Those of a release by parts are read from the folders of the parts when their cells are
        asked for.
        """
        return tuple(table for result in self.results for table in result.every_table())

    def table_name(self, called: str) -> str:
        """Return what a table is called in its files, if it may be named otherwise:
        ``units:zone-size``.
        """
        for result in self.results:
            table = result.named().get(called)
            if isinstance(table, PublishedTable):
                return table.name
        return called

    def placed(self, folder: Path) -> Self:
        """Return the release when it stands in a folder, where those of its parts are."""
        if self.partition is None:
            return self
        partition = replace(self.partition, place=folder)
        results = tuple(result.placed(partition) for result in self.results)
        return replace(self, results=results, partition=partition)

    def part(self, *path: str) -> dict[str, PublishedTable]:
        """Read the tables of one part from the folder of the release, by their names.

        Parameters
        ----------
        path
            The labels of the part, from the coarsest depth down; the last is enough where no other
            part has it.
        """
        if self.partition is None or self.partition.place is None:
            raise InputError(
                "this release was not carried out part by part, or not read from its folder"
            )
        part = self.partition.part(path)
        refuse_changed(self.partition.place, part.digests, "the release was written")
        files = StoredFiles(self.partition.place / part.folder, tuple(part.files))
        node = self.partition.parts.index(part)
        tables: dict[str, PublishedTable] = {}
        for result in self.results:
            tables |= {table.name: table for table in result.tables_of_part(files, node, part)}
        return tables

    def refuse_parts(self, what: str) -> None:
        """Refuse something of a release that was carried out part by part."""
        if self.partition is not None:
            raise Refused(
                f"{what} are for tables that were released whole, and this release was made part by"
                " part: use the estimates and standard errors in its files"
            )

    def refuse_large_parts(self, what: str) -> None:
        """Refuse something that takes all parts together, where their tables are too large for
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
        """Refuse something of a combination of releases."""
        if self.combination is not None:
            raise Refused(
                f"{what} are for a release as it was measured, and this one is a combination of"
                f" several: ask the releases themselves, in its folder {SOURCES}"
            )

    def estimate(self, weights: Mapping[str, ArrayLike]) -> tuple[float, float]:
        """Return a weighted sum of estimated cells, across tables, and its exact standard error
        from the noise alone.

        Tables with budgets of their own have independent noise; those that share one have it in
        common.

        Parameters
        ----------
        weights
            For each table, by its name, a weight a cell: an array like its counts, with the axes of
            its schema.

        Examples
        --------
        >>> import semidp
        >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
        >>> plan = semidp.Plan([request], ["sex", "region"])
        >>> release = semidp.run(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]})
        >>> release.estimate({"table": [[1, 1], [0, 0]]})  # the women, an exact total
        (1.0, 0.0)
        >>> release.estimate({"table": [[1, 0], [0, 0]]})[1]
        1.0103...
        """
        self.refuse_large_parts("weighted sums")
        tables = {table.name: table for table in self.tables}
        arrays: dict[str, NDArray[np.float64]] = {}
        for called, table_weights in weights.items():
            name = self.table_name(called)
            if name not in tables:
                raise InputError(f"there is no table {name!r}; there are {', '.join(tables)}")
            weight, shape = np.asarray(table_weights, dtype=np.float64), tables[name].schema.shape
            if weight.shape != shape:
                raise InputError(
                    f"the weights of {name!r} have shape {weight.shape}, but it has {shape}"
                )
            arrays[name] = weight
        if self.combination is not None:
            views = {
                self.scope.dataspace.schema.view(tables[name].schema.names): w
                for name, w in arrays.items()
            }
            return self.combination.estimate(views)
        value, variance = 0.0, 0.0
        for result in self.results:
            names = [table.name for table in result.every_table()]
            weighted = {name: arrays[name] for name in names if name in arrays}
            if weighted:
                part, error = result.weighted_sum(weighted, self.scope)
                value += part
                variance += error**2
        return value, math.sqrt(variance)

    def test(
        self,
        rows: str,
        columns: str,
        strata: Iterable[str] = (),
        *,
        ordered: "Iterable[str] | Scores" = (),
        pooled: bool = False,
        alternative: str = "two-sided",
        table: str | None = None,
        draws: int | None = None,
        randomness: Randomness | None = None,
    ) -> "Independence | Association":
        """Test whether two features are independent (given strata), from what is published: at no
        cost in privacy.

        Exact given the totals of rows and of columns (within strata), which the release must
        publish exactly: tables are simulated from the multivariate hypergeometric law, and noise
        from the law that the release states.

        Parameters
        ----------
        rows, columns, strata
            Features of a published table, of any number of levels; a table of more features is
            summed.
        ordered
            Which of rows and columns have ordered levels (or a mapping to their scores, 1, 2, 3 …
            unless given): the test then looks for a trend.
        pooled
            Whether to look for one association common to all strata (Cochran-Mantel-Haenszel).
        alternative
            ``two-sided``; ``greater`` or ``less`` where the test has one degree of freedom.
        table
            Which table, where several have the features; the smallest unless given.
        draws
            How many tables are simulated: 9999, or 999 where the noise is drawn slowly.
        randomness
            For the simulation; the operating system unless given.

        Examples
        --------
        >>> import semidp
        >>> people = {"sex": [*"fm"] * 40, "vote": [*"yn"] * 40}
        >>> plan = semidp.Plan(
        ...     [semidp.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
        ... )
        >>> semidp.run(plan, people).test("sex", "vote").p_value
        0.0001
        """
        from semidp.questions.association import association_of

        return association_of(
            self,
            rows,
            columns,
            strata,
            ordered=ordered,
            pooled=pooled,
            alternative=alternative,
            table=table,
            draws=draws,
            randomness=randomness,
        )

    def interval(
        self,
        of: "Cells",
        *,
        minus: "Cells | None" = None,
        among: "Cells | None" = None,
        measure: str = "difference",
        level: float = 0.95,
        sampling: bool = False,
        table: str | None = None,
        draws: int | None = None,
        randomness: Randomness | None = None,
    ) -> "IntervalEstimate":
        """Return a count of cells, a rate, or a difference of two, with its interval: at no cost in
        privacy.

        Cells are given by the levels that are meant, such as
        ``{"sex": "f", "region": ["n", "s"]}``. ``of`` alone is a count; with ``minus``, the
        difference of two counts; with ``among``, the rate of ``of`` among those; with both, the
        rate among the one less the rate among the other.

        Parameters
        ----------
        of, minus, among
            Cells of one published table, or of one that is summed over its other features.
        measure
            How two rates are compared: ``difference``, ``risk-ratio`` or ``odds-ratio``.
        level
            The confidence level.
        sampling
            False: the interval is for these records, and allows for the noise alone. True: it is
            for the population that they are a sample of (for counts: the share of it, times n), and
            allows for both.
        table, draws, randomness
            As in `test`.

        Examples
        --------
        >>> import semidp
        >>> people = {"sex": [*"fm"] * 40, "vote": [*"yn"] * 40}
        >>> plan = semidp.Plan(
        ...     [semidp.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
        ... )
        >>> release = semidp.run(plan, people)
        >>> rate = release.interval({"vote": "y"}, among={"sex": "f"})
        >>> rate.exact, str(rate.covers), 0.7 < rate.low <= rate.high <= 1
        (True, 'noise', True)
        """
        from semidp.questions.measured import interval_of

        return interval_of(
            self, of, minus, among, level, sampling, table, draws, randomness, measure
        )

    def intervals(
        self,
        table: str | None = None,
        *,
        level: float = 0.95,
        sampling: bool = False,
        draws: int | None = None,
        randomness: Randomness | None = None,
    ) -> "TableIntervals":
        """Return intervals for all cells of a table (the smallest unless named) that hold at once;
        see `interval`.

        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
        ... )
        >>> found = semidp.run(plan, {"sex": [*"fm"] * 9, "vote": [*"yn"] * 9}).intervals()
        >>> found.rows[0][:2], found.level
        (('f', 'n'), 0.95)
        """
        from semidp.questions.measured import intervals_of

        return intervals_of(self, table, level, sampling, draws, randomness)

    def _listed(self, key: str) -> tuple[Any, ...]:
        """Return the results in the list of that name in release.json."""
        return tuple(result for result in self.results if result.listed_in == key)

    @property
    def groups(self) -> "tuple[PublishedGroups, ...]":
        """The published statistics by group."""
        return self._listed("groups")

    @property
    def answers(self) -> "tuple[PublishedAnswers, ...]":
        """The published statistics of those who answered, where who did is private."""
        return self._listed("answers")

    @property
    def regressions(self) -> "tuple[PublishedRegression, ...]":
        """The published regressions."""
        return self._listed("regressions")

    @property
    def quantiles(self) -> "tuple[PublishedQuantiles, ...]":
        """The published quantiles by group."""
        return self._listed("quantiles")

    @property
    def distributions(self) -> "tuple[PublishedDistribution, ...]":
        """The published distributions by group."""
        return self._listed("distributions")

    def records(
        self,
        randomness: Randomness | None = None,
        *,
        seconds: float = 60.0,
        progress: Progress = silent,
    ) -> "SyntheticRecords":
        """Return synthetic records with every exact total to the person, from the published numbers
        alone: at no cost.

        Where the tables are decomposable the records have all of their whole numbers, too.
        Elsewhere two records at a time exchange values where that brings the tables closer to their
        estimates; `distances` says how close. ``records.to_pandas()`` is a data frame.

        Parameters
        ----------
        randomness
            How records are matched and swapped; the operating system's unless given.
        seconds
            How long tables are approached that are not decomposable.
        progress
            Told how the distance falls.

        Examples
        --------
        >>> import semidp
        >>> people = {"sex": [*"fm"] * 40, "vote": [*"yynn"] * 20, "old": [*"yn"] * 40}
        >>> tables = [["sex", "vote"], ["vote", "old"], ["sex", "old"]]
        >>> requests = [semidp.TableRequest(names) for names in tables]
        >>> plan = semidp.Plan(requests, ["sex"], levels_from_data=True).with_budget(
        ...     semidp.Budget.gdp(1)
        ... )
        >>> records = semidp.run(plan, people).records()
        >>> [distance.name for distance in records.distances], records.to_dict()["sex"].count("f")
        (['sex-vote', 'vote-old', 'sex-old'], 40)
        """
        from semidp.questions.records.putting_together import records_of

        return records_of(
            self, SystemRandomness() if randomness is None else randomness, seconds, progress
        )

    def several_records(
        self,
        files: int,
        randomness: Randomness | None = None,
        *,
        seconds: float = 60.0,
        progress: Progress = silent,
    ) -> "list[SyntheticRecords]":
        """Return several sets of records, each near its own draw of what the estimates leave open:
        at no cost.

        The noise of the release is drawn once more for each set, by the law that it states. What
        differs between the sets shows how much noise there is; `semidp.combine_estimates` makes one
        answer of theirs.

        Parameters
        ----------
        files
            How many sets.
        randomness, seconds, progress
            As for `records`; the time is that of each set.
        """
        from semidp.questions.records.putting_together import several_records

        source = SystemRandomness() if randomness is None else randomness
        return several_records(self, files, source, seconds, progress)

    def save_records(
        self,
        path: Path | str,
        *,
        force: bool = False,
        randomness: Randomness | None = None,
        seconds: float = 60.0,
        files: int = 1,
        progress: Progress = silent,
        stop: Callable[[], bool] = bool,
    ) -> dict[str, Any]:
        """Write synthetic records to a CSV file, and beside it what they are, which is returned;
        see `records`.

        Parameters
        ----------
        path
            The file to write. The one beside it is called after it: ``people.about.json``.
        force
            Also replace records that were written by this function.
        randomness, seconds, progress
            As for `records`.
        files
            How many sets of records to write, as ``people-1.csv`` and so on; see `several_records`.
        stop
            Asked again and again whether to end: the best records so far are written.

        Examples
        --------
        >>> import semidp, tempfile
        >>> plan = semidp.Plan([semidp.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
        >>> with tempfile.TemporaryDirectory() as root:
        ...     about = semidp.run(plan, {"sex": ["f", "m", "f"]}).save_records(
        ...         f"{root}/people.csv"
        ...     )
        ...     Path(f"{root}/people.csv").read_text().split(), about["records"]
        (['sex', 'f', 'f', 'm'], 3)
        """
        from semidp.questions.records.writing import write_records

        source = SystemRandomness() if randomness is None else randomness
        return write_records(self, Path(path), force, source, seconds, files, progress, stop)

    def under(
        self,
        invariants: Dataspace | Iterable[Margin | str | Iterable[str]],
        adjacency: Adjacency | AdjacencyChoice | int | str | None = None,
        known: Dataspace | None = None,
        most: int | None = None,
    ) -> Guarantee:
        """Return what the noise of this release guarantees where other statistics are exact: more,
        fewer, or others.

        For additive noise ``μ' = Δ2(S')/σ`` with the S' of all that is exact; the result may be
        weaker or stronger. Nothing confidential is read.

        Parameters
        ----------
        invariants
            All that is exact: margins, or a `Dataspace` of them with their values.
        adjacency
            Which datasets are compared; unless given, exchanges for an exchange release and else
            any a(t) records.
        known
            Values of margins, and features, that are known besides those of the release. A margin
            whose values nobody gives may have any.
        most
            How many records a person may have; as many as the release says unless given.

        Examples
        --------
        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.TableRequest(["sex", "ill"], semidp.Budget.zcdp("1/2"))],
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
        if isinstance(invariants, Datasets):
            margins, known = invariants.margins, invariants
        else:
            margins = margins_from(invariants)
        about = check_about(self.scope.dataspace if known is None else known, self.scope.dataspace)
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
    def otherwise(self) -> Guarantee | None:
        """What the same noise guarantees under the other adjacency; None where that is not known.

        >>> import semidp
        >>> request = semidp.TableRequest(
        ...     ["sex", "ill"], semidp.Budget.gdp(1), mechanism="gaussian"
        ... )
        >>> plan = semidp.Plan(
        ...     [request],
        ...     ["sex"],
        ...     adjacency="exchange",
        ...     features=[semidp.Feature("ill", ["n", "y"])],
        ... )
        >>> release = semidp.run(plan, {"sex": ["f", "m", "m", "f"], "ill": ["n", "y", "n", "n"]})
        >>> other = release.otherwise
        >>> # Δ2² = 8 for any two records, and 4 for exchanges
        >>> (other.adjacency, other.tradeoff.mu_squared)
        (Ball(a=2), Fraction(2, 1))
        """
        try:
            mechanisms = self.mechanisms
        except Refused:
            # A release that states less noise than its budget needs has no guarantee to restate.
            return None
        return other_guarantee(mechanisms, self.scope, bool(self.plan.outcomes))

    @property
    def announced(self) -> Tradeoff | None:
        """What the noise would be said to give for one record if the exact totals were
        forgotten.
        """
        return announced(self.scope.dataspace, (result.advertised for result in self.results))

    def also_known(self, most: int = _ALSO_KNOWN) -> tuple[dict[str, Guarantee], int]:
        """Return what the noise guarantees if an attacker also knew the counts of a feature, and
        how many are left.

        The values of such a margin are confidential: each guarantee holds for any. What is not
        known for the noise is left out.

        Parameters
        ----------
        most
            The number of features that are tried.

        Examples
        --------
        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.TableRequest(["sex", "ill"], semidp.Budget.zcdp("1/2"))],
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

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """How everything was measured, from the plan and from what is stated; refused where less
        noise is stated.
        """
        self.refuse_combined("mechanisms")
        mechanisms = []
        for request, result in zip(self.plan.requests, self.results, strict=True):
            mechanism = result.drawn_by(result.recalibrated(request, self.scope))
            if mechanism is None:
                raise Refused(
                    f"{result.name!r} states less noise than its budget needs: check the release"
                    " first"
                )
            mechanisms.append(mechanism)
        return tuple(mechanisms)

    def save(
        self,
        folder: Path | str,
        *,
        force: bool = False,
        form: Form | str | None = None,
        progress: Progress = silent,
    ) -> None:
        """Make a folder with everything that ``semidp release`` writes: whole, or not at all.

        Parameters
        ----------
        folder
            Where to write: nothing may be there, or an empty folder.
        force
            Also replace a release, in a folder that holds no other file.
        form
            How cells are written, ``"csv"`` or ``"parquet"``; tables from a million cells on as
            Parquet unless given. ``"xlsx"`` writes CSV and a workbook beside it (needs openpyxl).
        progress
            Told what is going on.

        Examples
        --------
        >>> import semidp, tempfile
        >>> plan = semidp.Plan([semidp.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
        >>> with tempfile.TemporaryDirectory() as root:
        ...     semidp.run(plan, {"sex": ["f", "m"]}).save(f"{root}/release")
        ...     sorted(file.name for file in Path(f"{root}/release").iterdir())
        ['csv-metadata.json', 'measurements.csv', 'release.json', 'report.html', 'table.csv']
        """
        written = self._written_as(form)
        if self.partition is not None and (
            self.partition.place is None or written.form != self.form
        ):
            raise InputError(
                "the parts of a release are copied as they are, from its folder: leave the form out"
            )
        with new_folder(folder, force=force, ours=release_files) as new:
            written.write_files(new, progress)
            if self.partition is not None:
                self.partition.copy(new)

    def _write_sources(self, folder: Path, progress: Progress) -> list[dict[str, str]]:
        """Write the releases of a combination into folders of their own; return these with
        digests.
        """
        entries = []
        for count, source in enumerate(
            () if self.combination is None else self.combination.releases, 1
        ):
            place = folder / SOURCES / str(count)
            place.mkdir(parents=True)
            source.write_files(place, progress)
            if source.partition is not None:
                source.partition.copy(place)
            entries.append(
                {"folder": f"{SOURCES}/{count}", "digest": digest(place / "release.json")}
            )
        return entries

    def _written_as(self, form: Form | str | None) -> "Release":
        """Return the release as it is written in a form."""
        if form is None:
            return self
        if form == "xlsx":
            check_installed()
            self.refuse_parts("workbooks")
            return replace(
                self, form=Form.csv, presentation=replace(self.presentation, workbook=True)
            )
        return replace(self, form=form_named(form))

    def write_files(self, folder: Path, progress: Progress = silent) -> None:
        """Write the files of a release into a folder that exists, one after another; `save` does so
        atomically.
        """
        files = {
            name: content
            for result in self.results
            for name, content in result.files(self.form).items()
        }
        for name, columns in files.items():
            columns.write(folder / name, progress)
        described, names = csvw(release_title(self), files), list(files)
        if described is not None:
            (folder / METADATA).write_bytes(described)
            names.append(METADATA)
        if self.presentation.workbook:
            progress("writing the workbook", 0, None)
            _report().save_workbook(self, folder / WORKBOOK)
            names.append(WORKBOOK)
        if self.presentation.places is not None:
            (folder / MAP).write_text(_text(self.presentation.places.to_json()), encoding="utf-8")
            names.append(MAP)
        document, space = self.to_json(), self.scope.dataspace
        if self.combination is not None:
            document["combination"] = self._write_sources(folder, progress)
        if self.partition is not None:
            (folder / PARTS).write_text(
                _text([part.to_json() for part in self.partition.parts]), encoding="utf-8"
            )
            names.append(PARTS)
        levels = sum(len(feature.levels) for feature in space.schema.features)
        many = levels + sum(total.counts.size for total in space.totals) > LISTED
        for key, file in _DOCUMENTS.items() if many else ():
            (folder / file).write_text(_text(document[key]), encoding="utf-8")
            names.append(file)
            document[key] = {"file": file}
        progress("hashing the files", 0, None)
        # The report has no digest here: it is drawn from what release.json says, and a recheck
        # draws it again.
        document["files"] = {name: digest(folder / name) for name in names}
        (folder / "release.json").write_text(_text(document), encoding="utf-8")
        progress("drawing the report", 0, None)
        (folder / REPORT).write_text(self.report_html(), encoding="utf-8")

    def report_html(self, title: str | None = None, further: Sequence[Section] = ()) -> str:
        """Return the report as one HTML page that needs nothing else; its title names what is
        published.

        Further sections, such as the tests of every pair, stand after those of the results.

        >>> import semidp
        >>> plan = semidp.Plan([semidp.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
        >>> semidp.run(plan, {"sex": ["f", "m"]}).report_html("Sexes").splitlines()[0]
        '<!doctype html>'
        """
        return str(_report().html(self, title, further))

    def workbook_differs(self, path: Path) -> bool:
        """Whether a workbook holds something else than this release publishes."""
        return bool(_report().workbook_differs(self, path))

    def parts_sections(self) -> list[Section]:
        """Return the section of the report on the parts; none where the release was carried out in
        one piece.
        """
        if self.partition is None:
            return []
        by_parts = [result for result in self.results if result.part_stems()[0]]
        overview = [table for result in by_parts for table in result.held_tables()]
        return [parts_section(self.partition, overview, self.form)]

    def parts_file_words(self) -> list[tuple[str, str]]:
        """Say what the files of the parts hold; none where there are no parts."""
        return [] if self.partition is None else parts_file_words(self.partition)

    def table(self, name: str | Iterable[str]) -> PublishedColumns:
        """Return what is published under a name, with `to_pandas`, `to_polars` and `to_arrow`.

        Parameters
        ----------
        name
            What its file is called, without ``.csv``; a table may also be named by its features,
            joined by ``-`` or in a list, in any order.

        Examples
        --------
        >>> import semidp
        >>> plan = semidp.Plan([semidp.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
        >>> semidp.run(plan, {"sex": ["f", "m", "m"]}).table("sex").to_dict()["count"]
        [1, 2]
        """
        by_features: dict[tuple[str, ...], PublishedColumns] = {}
        by_name: dict[str, PublishedColumns] = {}
        for result in self.results:
            by_features |= result.by_features()
            by_name |= result.named()
        if not isinstance(name, str):
            asked = texts(name, "the features of a table")
            same = [features for features in by_features if {*features} == {*asked}]
            name = "-".join(same[0] if same else asked)
        # A name that was given goes before one that follows from features.
        named = {"-".join(features): table for features, table in by_features.items()} | by_name
        if name not in named:
            meant = did_you_mean(name, named)
            raise InputError(
                f"there is nothing called {name!r} here{meant}; there are {', '.join(named)}"
            )
        return named[name]

    def __getitem__(self, name: str) -> Any:
        """Return what is published under a name: ``release["sex-age"]``; see `table`."""
        return self.table(name)

    def plot(self, axes: Any = None) -> Any:
        """Draw the error curve of the best attacker, on matplotlib axes where given; return the
        figure.
        """
        return tradeoff_plot({str(self.guarantee.adjacency): self.guarantee.tradeoff}, axes=axes)

    def __repr__(self) -> str:
        what = ", ".join(result.name for result in self.results)
        exact = self.scope.dataspace.summary()
        marked = "" if self.private else ", not private"
        if self.stated is None:
            return f"Release({what}; exact: {exact}; no guarantee is stated{marked})"
        curve = shortened_text(self.guarantee.tradeoff)
        return f"Release({what}; exact: {exact}; {curve} for {self.guarantee.adjacency}{marked})"

    def _repr_html_(self) -> str:
        lines = [line for line in str(_report().summary(self)).splitlines() if line]
        return facts("Release", [(line[:11].strip(" :"), line[11:].lstrip(" :")) for line in lines])

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read a release that `save` wrote; refuse one whose files were changed since."""
        folder = Path(folder)
        recover(folder)
        try:
            document = from_json(read_plain(folder / "release.json", folder))
            # A list from strangers may hold paths: only names in the folder itself are read.
            digests = {Path(name).name: expected for name, expected in document["files"].items()}
            files = StoredFiles(folder, tuple(digests))
            digests_read = {name: files.digest(name) for name in digests}
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{folder} is not a release: it has no readable release.json with its tables"
            ) from None
        if document.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"{folder} was written by another version of semidp: read it with that version"
            )
        for name, expected in digests.items():
            if digests_read[name] != expected:
                raise InputError(f"{folder / name} was changed after the release was written")
        sources = cls._sources(document, folder)
        try:
            for key, file in _DOCUMENTS.items():
                if document[key] == {"file": file}:
                    document[key] = from_json(files[file])
            release = cls._from_json(document, files, sources)
        except (
            KeyError,
            TypeError,
            IndexError,
            ValueError,
            AttributeError,
            ArithmeticError,
            csv.Error,
        ):
            raise InputError(
                f"{folder / 'release.json'} is damaged: make the release again"
            ) from None
        held = [(result, table) for result in release.results for table in result.held_tables()]
        if "form" not in document and any(
            name not in digests for result, _ in held for name in result.files()
        ):
            release = replace(release, form=Form.csv)  # written before there was another
        for _, table in held:
            if table.fitted.kind == "integer" and not table.keeps(release.scope.dataspace):
                raise InputError(
                    f"{folder} contradicts itself: {table.name!r} does not add up to the exact"
                    " totals"
                )
        return release

    @staticmethod
    def discard_unfinished(folder: Path | str) -> None:
        """Remove what a release part by part that ended early has left for a folder; what was
        charged stays charged.
        """
        discard_unfinished(folder)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, which are in the CSV files, as plain values.

        ``epsilon`` restates the guarantee at ``report_delta``; the plan holds every number exactly,
        as text.
        """
        return {
            "schema_version": SCHEMA_VERSION,
            "created": self.created,
            "private": self.private,
            **({} if self.form is None else {"form": str(self.form)}),
            **({} if self.partition is None else {"partition": self.partition.to_json()}),
            **({} if self.combination is None else {"combination": len(self.combination.releases)}),
            **(
                {}
                if self.presentation == AS_USUAL
                else {"presentation": self.presentation.to_json()}
            ),
            "plan": self.plan.to_json(),
            "dataspace": self.scope.dataspace.to_json(),
            "a": self.scope.adjacency_json(),
            **({} if self.scope.persons is None else {"persons": self.scope.persons}),
            "guarantee": self.stated and self.stated.tradeoff.to_json(),
            "epsilon": self.epsilon,
            "report_delta": number(self.plan.report_delta),
            "budget": self.plan.budget and self.plan.budget.numbers(),
            **self._entries(),
            "disclosures": list(self.scope.disclosures),
            "warnings": list(self.scope.warnings),
            "ledger": self.ledger,
            "versions": dict(self.versions),
        }

    @property
    def epsilon(self) -> float | None:
        """The guarantee restated at the reporting delta; None where there is none, or no finite
        number.
        """
        if self.stated is None:
            return None
        epsilon = self.guarantee.tradeoff.epsilon(self.plan.report_delta)
        return epsilon if math.isfinite(epsilon) else None

    def _entries(self) -> dict[str, list[dict[str, Any]]]:
        """Return the entries of all results, by the keys of their lists."""
        if self.combined is not None:
            return {self.combined.key: [self.combined.to_json()]}
        lists: dict[str, list[dict[str, Any]]] = {key: [] for key in result_keys()}
        for result, request in zip(self.results, self.plan.requests, strict=True):
            lists[result.listed_in].append(
                {**result.to_json(), "budget": request.budget and request.budget.numbers()}
            )
        always = always_listed()
        return {key: entries for key, entries in lists.items() if entries or key in always}

    @classmethod
    def _sources(cls, document: Mapping[str, Any], folder: Path) -> "tuple[Release, ...]":
        """Read the releases of a combination; refuse those that were changed since."""
        entries = document.get("combination", ())
        releases = []
        for count, entry in enumerate(entries if isinstance(entries, list) else (), 1):
            place = folder / SOURCES / str(count)
            try:
                unchanged = digest(place / "release.json", folder) == entry["digest"]
            except (OSError, KeyError, TypeError):
                unchanged = False
            if not unchanged:
                raise InputError(f"{place} was changed after the releases were combined")
            releases.append(cls.load(place))
        return tuple(releases)

    @classmethod
    def _from_json(
        cls, document: Mapping[str, Any], files: StoredFiles, sources: "tuple[Release, ...]"
    ) -> Self:
        dataspace = Datasets.from_json(document["dataspace"])
        if not isinstance(dataspace, Dataspace):
            raise ValueError("a release has features")
        adjacency = Adjacency.from_json({**document["a"], "a": document["a"]["used"]})
        plan = Plan.from_json(document["plan"])
        if any(request.budget is None for request in plan.requests):
            raise ValueError("what was released had a budget")
        try:
            # Computed from the exact totals, whatever the document states for a(t).
            semi = semi_of(dataspace, plan)
        except AdjacencyUnknown:
            semi = None
        persons = document.get("persons")
        if (persons is None) != (plan.protection is None) or not isinstance(persons, int | None):
            raise ValueError("a release for several records a person has a number of persons")
        told_first = tuple(document["disclosures"]), tuple(document["warnings"])
        scope = Scope(dataspace, semi, adjacency, *told_first, persons)
        stated = document["guarantee"]
        guarantee = (
            None if stated is None else Guarantee(dataspace, adjacency, tradeoff_from_json(stated))
        )
        told = (
            *scope.disclosures,
            *scope.warnings,
            *document["versions"].values(),
            document["created"],
        )
        charged = document["ledger"]
        if not all(isinstance(text, str) for text in told) or not isinstance(
            document["private"], bool
        ):
            raise ValueError("a release tells in texts, and is private or not")
        if charged is not None and not isinstance(charged, Mapping):
            raise ValueError("a charge has keys and values")

        partition = None
        if "partition" in document:
            parts = tuple(map(Part.from_json, from_json(files[PARTS])))
            partition = Partition(document["partition"]["depth"], parts, files.folder)

        readers, by_parts = result_readers(), parts_readers()

        def read(key: str, entry: Any, request: Any) -> Published:
            if key not in by_parts:
                return readers[key](entry, request, scope, files)
            if partition is None:
                raise ValueError("a result by parts has parts")
            return by_parts[key](entry, request, plan.requests, partition, scope, files)

        combination = None
        results: list[Published]
        if "combination" in document:
            combination = Combination(sources, dataspace)
            results = [
                CombinedTables.from_json(entry, scope, files)
                for entry in document[CombinedTables.key]
            ]
            if len(results) != 1 or len(combination.releases) < 2:
                raise ValueError("a combination is of several releases")
        elif guarantee is None:
            raise ValueError("a release states its guarantee")
        else:
            results = []
            left = [(key, entry) for key in result_keys() for entry in document.get(key, ())]
            for request in plan.requests:
                # Results of one kind may stand in two lists: in that of parts, and in that of what
                # was not cut.
                place = [entry["name"] for _, entry in left].index(request.name)
                key, entry = left.pop(place)
                results.append(read(key, entry, request))
            if left:
                raise ValueError("a release has no more than its plan asks for")
        asked = (
            [request.name for request in plan.requests]
            if combination is None
            else [results[0].name]
        )
        if [result.name for result in results] != asked:
            raise ValueError("a release has what its plan asks for")
        return cls(
            plan=plan,
            scope=scope,
            results=tuple(results),
            stated=guarantee,
            private=document["private"],
            ledger=charged,
            versions=document["versions"],
            created=document["created"],
            form=form_named(document["form"]) if "form" in document else None,
            partition=partition,
            combination=combination,
            presentation=_presentation(document.get("presentation", {}), files),
        )


def _presentation(entry: Mapping[str, Any], files: StoredFiles) -> Presentation:
    """Read how a release is presented, with the outlines of its map where it has one."""
    if not entry.get("map"):
        return Presentation.from_json(entry)
    places = PlaceMap.from_json(from_json(files[MAP]), entry.get("map_key"))
    return Presentation.from_json(entry, places)


def release_title(release: Release) -> str:
    """Say what a release is about, for the description of its files."""
    return (
        f"{', '.join(result.name for result in release.results)}; exact:"
        f" {release.scope.dataspace.summary()}"
    )


def _report() -> Any:
    # A room above, allowed by name in tests/test_layers.py: a release draws its own report.
    from semidp.report.release_workbook import save_workbook, workbook_differs
    from semidp.report.report_page import html
    from semidp.report.sentences import summary

    return SimpleNamespace(
        html=html, summary=summary, save_workbook=save_workbook, workbook_differs=workbook_differs
    )


def release_files(folder: Path) -> Collection[str]:
    """Return the files of a release folder, by its release.json; none where that is not one of
    ours.

    >>> release_files(Path("nowhere"))
    ()
    """
    document = document_at(folder / "release.json")
    # What is returned here may be replaced by force, so that a release.json of somebody else's must
    # not pass for ours.
    listed = document.get("files")
    if (
        not isinstance(listed, dict)
        or not {"schema_version", "plan", "guarantee", "versions"} <= document.keys()
    ):
        return ()
    names = {"release.json", REPORT, SUMS, SIGNATURE, *listed}
    if PARTS in listed:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            parts = [*map(Part.from_json, from_json(read_plain(folder / PARTS, folder)))]
            names |= {name for part in parts for name in part.digests}
    sources = document.get("combination")
    for count in range(len(sources) if isinstance(sources, list) else 0):
        place = f"{SOURCES}/{count + 1}"
        names |= {f"{place}/{name}" for name in release_files(folder / place)}
    return names


def _text(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

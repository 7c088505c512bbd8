"""A release as users hold it: its values and files, and the questions that it answers at no cost.

Its fields are in `release_value`, its files in `release_files`; the questions themselves are in
`inference`.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused, SemidpError
from semidp.promise.guarantee import Guarantee
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.promise.progress import Progress, silent
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.plan import AdjacencyChoice, margins_from
from semidp.publish.side_information import (
    check_same_records,
    guarantee_under,
    naive_tradeoff,
    other_guarantee,
)

if TYPE_CHECKING:
    from semidp.inference.answers import IntervalEstimate, TableIntervals
    from semidp.inference.association import Association, Scores
    from semidp.inference.independence import Independence
    from semidp.inference.measured import Cells
    from semidp.inference.records.synthetic import SyntheticRecords

from semidp.publish.release_files import ReleaseFiles

_ALSO_KNOWN = 8  # features whose counts an attacker may know


@dataclass(frozen=True, eq=False, repr=False)
class Release(ReleaseFiles):
    """A finished release. Nothing in it is confidential beyond what the plan publishes exactly.

    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [["sex", "region"]])
    >>> release = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> release.private, release.guarantee.adjacency.a, [table.name for table in release.tables]
    (True, 2, ['table'])
    """

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
            return self.combination.sum_cells(arrays)
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
        from semidp.inference.association import assess_association

        return assess_association(
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
        from semidp.inference.measured import estimate_interval

        return estimate_interval(
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
        from semidp.inference.measured import estimate_intervals

        return estimate_intervals(self, table, level, sampling, draws, randomness)

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
        from semidp.inference.records.record_assembly import synthesize_records

        return synthesize_records(
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
        from semidp.inference.records.record_assembly import several_records

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
        from semidp.inference.records.writing import write_records

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
        return other_guarantee(mechanisms, self.scope, bool(self.plan.outcomes))

    @property
    def naive_tradeoff(self) -> Tradeoff | None:
        """What the noise would be said to give for one record if the exact totals were
        forgotten.
        """
        return naive_tradeoff(self.scope.dataspace, (result.advertised for result in self.results))

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

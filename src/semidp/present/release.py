"""A release as users hold it: its values and files, its pages, and the questions that it answers.

Its fields are in `release_value`, its files in `release_files`; the questions themselves are in
`inference`, the pages in `report`. The floors below work with the fields and the files alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from semidp.errors import name_keywords
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.promise.progress import Progress, facts, silent
from semidp.publish.release_files import ReleaseFiles

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from semidp.inference.answers import IntervalEstimate, TableIntervals
    from semidp.inference.association import Association, Scores
    from semidp.inference.independence import Independence
    from semidp.inference.measured import Cells
    from semidp.inference.records.synthetic import SyntheticRecords
    from semidp.publish.recheck_results import Findings
    from semidp.publish.results.columns import StoredFiles
    from semidp.publish.results.grids import Section


@frozen(eq=False, repr=False)
class Release(ReleaseFiles):
    """A finished release. Nothing in it is confidential beyond what the plan publishes exactly.

    >>> import semidp
    >>> request = semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [["sex", "region"]])
    >>> release = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> release.private, release.guarantee.adjacency.a, [table.name for table in release.tables]
    (True, 2, ['table'])
    """

    def __str__(self) -> str:
        from semidp.present.report.sentences import summary

        return name_keywords(summary(self))

    def estimate(self, weights: Mapping[str, "ArrayLike"]) -> tuple[float, float]:
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
        >>> request = semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
        >>> plan = semidp.Plan([request], ["sex", "region"])
        >>> release = semidp.run(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]})
        >>> release.estimate({"table": [[1, 1], [0, 0]]})  # the women, an exact total
        (1.0, 0.0)
        >>> release.estimate({"table": [[1, 0], [0, 0]]})[1]
        1.0103...
        """
        from semidp.inference.measured import estimate_sum

        return estimate_sum(self, weights)

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
        ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))],
        ...     ["sex", "vote"],
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
        ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))],
        ...     ["sex", "vote"],
        ... )
        >>> release = semidp.run(plan, people)
        >>> rate = release.interval({"vote": "y"}, among={"sex": "f"})
        >>> rate.exact, str(rate.covers), 0.7 < rate.low <= rate.high <= 1
        (True, 'noise', True)
        """
        from semidp.inference.interval_questions import estimate_interval

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
        ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))],
        ...     ["sex", "vote"],
        ... )
        >>> found = semidp.run(plan, {"sex": [*"fm"] * 9, "vote": [*"yn"] * 9}).intervals()
        >>> found.rows[0][:2], found.level
        (('f', 'n'), 0.95)
        """
        from semidp.inference.interval_questions import estimate_intervals

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
        >>> requests = [semidp.publish.TableRequest(names) for names in tables]
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
        differs between the sets shows how much noise there is;
        `semidp.inference.combine_estimates` makes one answer of theirs.

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
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"]
        ... )
        >>> with tempfile.TemporaryDirectory() as root:
        ...     about = semidp.run(plan, {"sex": ["f", "m", "f"]}).save_records(
        ...         f"{root}/people.csv"
        ...     )
        ...     Path(f"{root}/people.csv").read_text().split(), about["records"]
        (['sex', 'f', 'f', 'm'], 3)
        """
        from semidp.inference.records.record_writing import write_records

        source = SystemRandomness() if randomness is None else randomness
        return write_records(self, Path(path), force, source, seconds, files, progress, stop)

    def report_html(self, title: str | None = None, further: "Sequence[Section]" = ()) -> str:
        """Return the report as one HTML page that needs nothing else; its title names what is
        published.

        Further sections, such as the tests of every pair, stand after those of the results.

        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"]
        ... )
        >>> semidp.run(plan, {"sex": ["f", "m"]}).report_html("Sexes").splitlines()[0]
        '<!doctype html>'
        """
        from semidp.present.report.report_page import html

        return html(self, title, further)

    def write_workbook(self, path: Path) -> None:
        """Write an Excel file of all tables."""
        from semidp.present.report.release_workbook import save_workbook

        save_workbook(self, path)

    @classmethod
    def combine_stored(
        cls, document: Mapping[str, Any], files: "StoredFiles", sources: Sequence["Release"]
    ) -> "Release":
        """Return a combination from its releases and the tables that were fitted to them."""
        from semidp.inference.combined.releases_together import read_combination

        return read_combination(cls, document, files, sources)

    def check_combination(self, document: Mapping[str, Any], findings: "Findings") -> None:
        """Compare a combination with what follows from its releases."""
        from semidp.inference.combined.releases_together import check_combination

        check_combination(self, document, findings)

    def workbook_differs(self, path: Path, *, whole: bool) -> bool:
        """Whether a workbook holds something else than this release publishes: anything at all, or
        in its cells.
        """
        from semidp.present.report.release_workbook import cells_differ, parts_differ

        return parts_differ(self, path) if whole else cells_differ(self, path)

    def _repr_html_(self) -> str:
        from semidp.present.report.sections import place_pictures
        from semidp.present.report.sentences import summary

        rows = []
        for line in summary(self).splitlines():
            if line:
                # A word on what the line is about stands in its first eleven characters.
                rows.append((line[:11].strip(" :"), line[11:].lstrip(" :")))
        title = self.presentation.title or "Release"
        return facts(title, rows) + place_pictures(self)

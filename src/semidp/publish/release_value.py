"""What a release holds: results, the guarantee and where it came from, and how each is found by its
name.

Everything in it may be published. Its files are written and read in `release_files`; what may be
asked of it is in `release`.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from semidp.errors import InputError, Refused, did_you_mean
from semidp.promise.exact import texts
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.notebook import shorten_text
from semidp.promise.scope import Scope
from semidp.publish.combined.combined_tables import CombinedTables
from semidp.publish.combined.several_releases import SeveralReleases
from semidp.publish.plan import Plan
from semidp.publish.plots.figures import tradeoff_plot
from semidp.publish.presentation import AS_USUAL, Presentation
from semidp.publish.results.cells import Form, PublishedColumns
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.parts import Partition, StoredPartition, refuse_changed
from semidp.publish.statistics.protocol.results import Published

if TYPE_CHECKING:
    from semidp.publish.release import Release
    from semidp.publish.statistics.answered.published import PublishedAnswers
    from semidp.publish.statistics.distribution.published import PublishedDistribution
    from semidp.publish.statistics.odds_ratio.published import PublishedOddsRatio
    from semidp.publish.statistics.quantiles.published import PublishedQuantiles
    from semidp.publish.statistics.regression.published import PublishedRegression
    from semidp.publish.statistics.sums.published import PublishedGroups

SOURCES = "releases"
"""Folder of a combination that holds the releases that it is of."""
MOST_WHOLE = 2 * 10**7
"""Cells of the tables of a release by parts that are held at once."""


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseValue:
    """Fields of a release, and what is looked up in them; `Release` adds files and questions."""

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
    combination: SeveralReleases | None = None
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
    def epsilon(self) -> float | None:
        """The guarantee restated at the reporting delta; None where there is none, or no finite
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
    def combined_tables(self) -> CombinedTables | None:
        """The tables of a combination of releases, or None."""
        return next((result for result in self.results if isinstance(result, CombinedTables)), None)

    @property
    def sources(self) -> "tuple[Release, ...]":
        """The releases that a combination is of; none where this one was measured itself."""
        return () if self.combination is None else self.combination.releases

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
            table = result.columns_by_name().get(called)
            if isinstance(table, PublishedTable):
                return table.name
        return called

    def with_folder(self, folder: Path) -> Self:
        """Return the release when it stands in a folder, where those of its parts are."""
        if self.partition is None:
            return self
        partition = self.partition.as_stored(folder)
        results = tuple(result.with_partition(partition) for result in self.results)
        return replace(self, results=results, partition=partition)

    def part(self, *path: str) -> dict[str, PublishedTable]:
        """Read the tables of one part from the folder of the release, by their names.

        Parameters
        ----------
        path
            The labels of the part, from the coarsest depth down; the last is enough where no other
            part has it.
        """
        partition = self.partition
        if not isinstance(partition, StoredPartition):
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

    def _select_results(self, key: str) -> tuple[Any, ...]:
        """Results in the list `key` of release.json."""
        return tuple(result for result in self.results if result.list_key == key)

    @property
    def groups(self) -> "tuple[PublishedGroups, ...]":
        """The published statistics by group."""
        return self._select_results("groups")

    @property
    def answers(self) -> "tuple[PublishedAnswers, ...]":
        """The published statistics of those who answered, where who did is private."""
        return self._select_results("answers")

    @property
    def regressions(self) -> "tuple[PublishedRegression, ...]":
        """The published regressions."""
        return self._select_results("regressions")

    @property
    def quantiles(self) -> "tuple[PublishedQuantiles, ...]":
        """The published quantiles by group."""
        return self._select_results("quantiles")

    @property
    def distributions(self) -> "tuple[PublishedDistribution, ...]":
        """The published distributions by group."""
        return self._select_results("distributions")

    @property
    def odds_ratios(self) -> "tuple[PublishedOddsRatio, ...]":
        """The published tests of odds ratios."""
        return self._select_results("odds_ratios")

    def table(self, name: str | Iterable[str]) -> PublishedColumns:
        """Return what is published under a name, with `to_pandas`, `to_polars` and `to_arrow`.

        Parameters
        ----------
        name
            What its file is called, without ``.csv``; a table may also be named by its features,
            joined by ``-`` or in a list, in any order. Of a nested feature the finest name will do.

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

    def __getitem__(self, name: str) -> Any:
        """Return what is published under a name: ``release["sex-age"]``; see `table`."""
        return self.table(name)

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """How everything was measured, from the plan and from what is stated; refused where less
        noise is stated.
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
    # The name of a feature may hold a dash itself, so that splitting at dashes would not do.
    for position, feature in enumerate(features):
        others = (*features[:position], *features[position + 1 :])
        if name.startswith(f"{feature}-") and _is_joined_name(name[len(feature) + 1 :], others):
            return True
    return False

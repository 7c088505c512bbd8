"""What a release holds that was carried out part by part: tables at the cut, and a folder of files for each part.

Everything here is public: what was measured at the cut and above, what the files of the parts are, and how the tables
in them were fitted. How a part is carried out is in `tasks`, where tasks run in `by_partition`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import View
from semidp.core.progress import Progress
from semidp.core.scope import Scope
from semidp.core.tables.schema import Schema
from semidp.errors import InputError
from semidp.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.mechanisms.mechanism import Mechanism
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.output.cells import Columns, Form, StoredFiles, named_files
from semidp.output.files import digest, regular_file
from semidp.output.sections import Details, Section
from semidp.publishing.parts import part_words
from semidp.publishing.parts.cut_fits import CutFit, Fits, fit_at_cut, fit_views, fitted_together, whole_totals
from semidp.queries.branches import Cut
from semidp.statistics.protocol import Published, Request, ResultCheck, is_size, read_back
from semidp.statistics.tables.fitting import FIT_SECONDS, fit_product, totals_of
from semidp.statistics.tables.published import (
    RESIDUAL_FIELDS,
    FitKind,
    Fitted,
    OnResiduals,
    ProductTable,
    read_residuals,
    residual_columns,
    residuals_from_json,
    residuals_json,
)
from semidp.statistics.tables.request import TableRequest, TablesRequest, called_after

if TYPE_CHECKING:
    from semidp.publishing.plan import Plan

PARTS = "parts.json"
"""Lists the parts of a release and their files, with digests."""


@dataclass(frozen=True)
class PartTable:
    """How one table came out in one part.

    Its variance is the sum of all cells' variances.
    """

    name: str
    fitted: Fitted
    largest_standard_error: float
    variance: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not all(map(is_size, (self.largest_standard_error, self.variance))):
            raise ValueError("a table of a part has a name, and errors of at least 0")

    @classmethod
    def of(cls, table: ProductTable) -> "PartTable":
        """Return what is told of a table."""
        errors = table.standard_errors
        return cls(table.name, table.fitted, float(errors.max(initial=0.0)), float(np.square(errors).sum()))


@dataclass(frozen=True)
class Part:
    """One part of a release: where it is, and what is in it.

    Parameters
    ----------
    path
        The labels of its node, from the coarsest depth down to the partition's.
    folder
        Its folder, as seen from the release's.
    files
        Its files, with their digests.
    tables
        How each table came out.
    """

    path: tuple[str, ...]
    folder: str
    files: Mapping[str, str] = field(repr=False)
    tables: tuple[PartTable, ...] = field(repr=False)

    def fitted(self, name: str) -> Fitted:
        """How a table came out, by its name."""
        return next(table.fitted for table in self.tables if table.name == name)

    @property
    def digests(self) -> dict[str, str]:
        """The digests of its files, as seen from the folder of the release."""
        return {f"{self.folder}/{name}": expected for name, expected in self.files.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the part as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Part":
        """Read what `to_json` wrote; refuse names that lead elsewhere."""
        names = [*entry["folder"].split("/"), *entry["files"]]
        if not all(isinstance(name, str) and name and name[0] != "." and "/" not in name for name in names):
            raise ValueError("a part has a folder and files of its own")
        if not isinstance(entry["path"], list) or not all(isinstance(label, str) for label in entry["path"]):
            raise ValueError("a part has labels")
        tables = [PartTable(**{**table, "fitted": Fitted(**table["fitted"])}) for table in entry["tables"]]
        return cls(tuple(entry["path"]), entry["folder"], dict(entry["files"]), tuple(tables))


@dataclass(frozen=True)
class Partition:
    """The parts of a release.

    Parameters
    ----------
    depth
        The name of the depth at which it was cut.
    parts
        A part for each node there.
    place
        The folder of the release, where it is known.
    """

    depth: str
    parts: tuple[Part, ...] = field(repr=False)
    place: Path | None = field(default=None, compare=False)

    def part(self, path: Sequence[str]) -> Part:
        """Return a part by its labels, or by the last of them where that is enough."""
        wanted = tuple(path)
        found = [part for part in self.parts if wanted in (part.path, part.path[-1:])]
        if len(found) != 1:
            why = "several parts" if found else "no part"
            raise InputError(
                f"there is {why} {' · '.join(wanted)!r} of {self.depth}: give its labels from the top down"
            )
        return found[0]

    def to_json(self) -> dict[str, Any]:
        """Return all but the parts, which have a file of their own, as plain values."""
        return {"depth": self.depth, "parts": len(self.parts), "file": PARTS}

    def copy(self, folder: Path) -> None:
        """Copy the files of every part to another folder; refuse one that is not what it was."""
        assert self.place is not None
        for part in self.parts:
            (folder / part.folder).mkdir(parents=True)
            for name in part.files:
                with open(regular_file(self.place / part.folder / name, self.place), "rb") as old:
                    (folder / part.folder / name).write_bytes(old.read())
        changed = replace(self, place=folder).changed()
        if changed is not None:
            raise InputError(f"{self.place / changed} was changed after the release was written")

    def changed(self) -> str | None:
        """Return the first file that is not what it was when the release was made, or None."""
        assert self.place is not None
        for part in self.parts:
            for name, expected in part.digests.items():
                try:
                    found = digest(self.place / name, self.place)
                except OSError:
                    found = ""
                if found != expected:
                    return name
        return None


def refuse_changed(folder: Path, digests: Mapping[str, str], since: str) -> None:
    """Refuse a folder with a file that is not what it was since something happened."""
    for name, expected in sorted(digests.items()):
        try:
            found = digest(folder / name, folder)
        except OSError:
            raise InputError(f"cannot read {folder / name}") from None
        if found != expected:
            raise InputError(f"{folder / name} was changed after {since}")


def measurements_stem(request: TablesRequest) -> str:
    """Return what the file of a request's measurements is called, but for its ending."""
    return request.files[-1].removesuffix(".csv")


@dataclass(frozen=True, eq=False)
class AtCut:
    """What is public, at the cut and for one node there, of a table that reaches below.

    Its estimate and the variance of that, and the whole numbers that were fitted; None where there are none.
    """

    asked: TableRequest
    estimate: NDArray[np.float64] = field(repr=False)
    variance: NDArray[np.float64] = field(repr=False)
    counts: NDArray[np.int64] | None = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PartitionedTables(OnResiduals):
    """Tables that were measured and fitted at a cut and above it first, and below it part by part.

    Parameters
    ----------
    request
        What was asked for: a table, or tables that share a budget.
    mechanism
        The noise of every residual, above the cut and below.
    cut
        The depth at which the tables were taken apart.
    noisy
        The measured residuals at the cut and above, as drawn, times their scales.
    overview
        Every table as it is at the cut: those that reach below it are summed to it.
    parts
        The parts of the release, when all of them are done.
    """

    key: ClassVar[str] = "partitioned"
    compared_fields: ClassVar[tuple[str, ...]] = RESIDUAL_FIELDS
    derived_fields: ClassVar[tuple[str, ...]] = (*Published.derived_fields, "saved_by_joint_sensitivity")

    request: TablesRequest
    mechanism: ResidualMechanism = field(repr=False)
    cut: Cut
    noisy: NDArray[np.int64] = field(repr=False)
    overview: tuple[ProductTable, ...]
    parts: tuple[Part, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"PartitionedTables({', '.join(table.name for table in self.tables_asked)})"

    @property
    def tables_asked(self) -> tuple[TableRequest, ...]:
        """The tables that were asked for."""
        return self.request.tables

    @property
    def depth(self) -> str:
        """The name of the depth of the cut."""
        return self.mechanism.space.schema.features[self.cut.axis].names[self.cut.depth - 1]

    def title(self) -> str:
        """Name the first tables that reach below the cut."""
        return part_words.title(self)

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has, in how many parts."""
        return part_words.noisy_lines(self)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the errors of each table over all parts, for a terminal."""
        return part_words.summary_lines(self)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return the section of their errors."""
        return [part_words.section(self)]

    def details(self) -> Details:
        """Say how they were measured."""
        return Details(self.name, "exact noise on each residual, part by part")

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the files at the cut hold."""
        return part_words.file_words(self, form)

    def warnings(self) -> list[str]:
        """Name the tables, and the parts, without whole numbers that have all totals."""
        return part_words.warnings(self)

    def recalibrated(self, request: Request, scope: Scope) -> ResidualMechanism:
        """Return the noise of its residuals, placed anew."""
        return self.request.residual_mechanism(self.request.residual_space(scope))

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "PartitionedTables":
        """Compare the tables at the cut, then every part; return them as they are computed again."""
        from semidp.publishing.parts.parts_again import recheck_parts

        assert isinstance(mechanism, ResidualMechanism)
        return recheck_parts(self, check, mechanism)

    def fitted_cells(self, request: Request, scope: Scope) -> int:
        """Return how many cells the tables have in all parts together."""
        schema = self.mechanism.space.schema
        return sum(schema.restrict(table.features).size for table in self.request.tables)

    @cached_property
    def above(self) -> ResidualMechanism:
        """The noise at the cut and above it."""
        return mechanism_above(self.mechanism, self.cut)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a file for each table at the cut, and the residuals that were measured there and above."""
        columns = {table.name: table.columns() for table in self.overview}
        return named_files({**columns, measurements_stem(self.request): residual_columns(self.above, self.noisy)}, form)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the parts, as plain values."""
        return {
            **super().to_json(),
            **residuals_json(self.mechanism),
            "tables": [{"name": table.name, "features": list(table.features)} for table in self.request.tables],
            "overview": [table.to_json() for table in self.overview],
        }

    @classmethod
    def from_json(
        cls,
        entry: Mapping[str, Any],
        request: Any,
        plan: "Plan",
        partition: Partition,
        scope: Scope,
        files: StoredFiles,
    ) -> "PartitionedTables":
        """Read what `to_json` and `files` wrote of a request of a plan."""
        if not isinstance(request, TablesRequest):
            raise ValueError("only tables are released part by part")
        mechanism = residuals_from_json(entry, request.residual_space(scope))
        cut = Cut.at(mechanism.space.schema, partition.depth)
        above, schema = mechanism_above(mechanism, cut), mechanism.space.schema
        noisy = read_residuals(files, measurements_stem(request), above.space)
        overview = []
        for part, (name, view) in zip(entry["overview"], overview_names(plan, schema, cut)[request.name], strict=True):
            own = schema.restrict(schema.named(view))
            if part["name"] != name or part["features"] != list(own.names):
                raise ValueError("the tables at the cut are not those of the plan")
            overview.append(ProductTable.read(files, name, own, Fitted(**part["fit"])))
        return cls(
            request=request,
            mechanism=mechanism,
            cut=cut,
            noisy=noisy,
            overview=tuple(overview),
            parts=partition.parts,
            **read_back(entry, scope),
        )

    def part_tables(self, files: StoredFiles, node: int, part: Part) -> list[ProductTable]:
        """Read the tables of one part: counts, estimates and errors."""
        schema = self.cut.branch(self.mechanism.space.schema, node)
        fits = {table.name: table.fitted for table in part.tables}
        return [
            ProductTable.read(files, table.name, schema.restrict(table.features), fits[table.name])
            for table in self.below
        ]

    def expected_l2(self, below: Iterable[PartTable]) -> float:
        """Return the expected loss of the tables that were asked for, from how they came out in the parts."""
        own = {table.name for table in self.request.tables}
        every = (*map(PartTable.of, self.overview), *below)
        return math.sqrt(sum(table.variance for table in every if table.name in own))

    @property
    def below(self) -> tuple[TableRequest, ...]:
        """The tables that reach below the cut."""
        view = self.mechanism.space.schema.view
        return tuple(table for table in self.request.tables if self.cut.reaches(view(table.features)))

    @property
    def estimates(self) -> dict[View, NDArray[np.float64]]:
        """The estimates of all tables at the cut."""
        return {view: table.estimate for view, table in zip(self.above.space.views, self.overview, strict=True)}

    @property
    def together(self) -> bool:
        """Whether all parts are fitted in one piece, when they have been measured."""
        space = self.mechanism.space
        exact = [total.view for total in totals_of(space)]
        return fitted_together(space.schema.grid, fitted_views(self.request, space.schema), exact, self.cut)

    def settled(self, progress: Progress) -> CutFit:
        """Settle the whole numbers that the parts need from above, where each is fitted by itself."""
        space = self.mechanism.space
        views = fitted_views(self.request, space.schema)
        return fit_at_cut(space.schema.grid, views, totals_of(space), self.cut, self.estimates, progress)

    def fitted_whole(
        self, below: Mapping[View, NDArray[np.float64]], progress: Progress, time_limit: float = FIT_SECONDS
    ) -> Fits:
        """Fit all tables in one piece, as they are where nothing is taken apart.

        Parameters
        ----------
        below
            The estimates of the tables that reach below the cut, those of all parts.
        progress
            Told what is going on.
        time_limit
            Seconds that the search for one table may take.
        """
        space = self.mechanism.space
        estimates = {**self.estimates, **below}
        fits = fit_product(
            space.schema.grid,
            space.views,
            totals_of(space),
            [estimates[view] for view in space.views],
            [table.fit for table in self.request.tables],
            progress,
            time_limit=time_limit,
        )
        return dict(zip(space.views, fits, strict=True))

    def estimates_below(
        self, measured: Callable[[int, BranchNoise], Mapping[View, NDArray[np.int64]]]
    ) -> dict[View, NDArray[np.float64]]:
        """Return the estimates of the tables that reach below the cut, put together from those of all parts.

        Parameters
        ----------
        measured
            Returns what was measured below a node, given its noise.
        """
        schema = self.mechanism.space.schema
        views = [schema.view(table.features) for table in self.below]
        estimates = {view: np.zeros(schema.grid.shape_of(view)) for view in views}
        for node in range(self.cut.chain(schema).size(self.cut.depth)):
            noise = self.noise_of(node)
            if noise is None:  # nobody is there: zeros
                continue
            above = [(row.estimate, row.variance) for row in self.rows(node)]
            for view, (estimate, _) in zip(views, noise.tables(measured(node, noise), above), strict=True):
                part = self.row(view, estimates[view], node)
                part[...] = estimate.reshape(part.shape)
        return estimates

    def overview_fits(
        self, fit: CutFit, parts: Sequence[Part], folder: Path, progress: Progress
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Return the tables at the cut as they are published: fitted before the parts, their sums, or fitted to those.

        A table that nobody asked for in whole numbers stays as it is.
        """
        schema = self.mechanism.space.schema
        sums: Fits = {}
        for asked in self.below:
            view = self.cut.above(schema.view(asked.features))
            if asked.fit is FitKind.integer and (view not in sums or sums[view][1].kind != FitKind.integer):
                sums[view] = self.sum_of_parts(asked, parts, folder)
        fits = {**sums, **fit.fits}
        totals = [*totals_of(self.mechanism.space), *whole_totals(fits)]
        fits |= fit_views(schema.grid, fit.order.late, totals, self.estimates, progress)
        return [
            fits.get(view, (table.counts, table.fitted))
            for view, table in zip(self.above.space.views, self.overview, strict=True)
        ]

    def sum_of_parts(
        self, asked: TableRequest, parts: Sequence[Part], folder: Path
    ) -> tuple[NDArray[np.int64], Fitted]:
        """Return the counts of a table below the cut, read from the files of all parts and summed to the cut."""
        schema, cut = self.mechanism.space.schema, self.cut
        view = schema.view(asked.features)
        above = cut.above(view)
        counts = np.zeros(schema.grid.shape_of(above), dtype=np.int64)
        labels = len(schema.restrict(asked.features).names)
        missed = []
        for node, part in enumerate(parts):
            grid = cut.branch(schema, node).grid
            cells = StoredFiles(folder / part.folder, tuple(part.files)).counts(asked.name, labels)
            self.row(above, counts, node)[...] = grid.sum(cells.reshape(grid.shape_of(view)), above, view)
            if part.fitted(asked.name).kind != FitKind.integer:
                missed.append(part)
        loss = float(np.square(counts - self.estimates[above]).sum())
        note = f"The sums of the parts, of which {len(missed)} have no whole numbers with all totals." if missed else ""
        kind = FitKind.none if missed else FitKind.integer
        return counts, Fitted(str(kind), "sums of the parts", loss, 0.0, False, note)

    def row(self, view: View, values: NDArray[Any], node: int) -> NDArray[Any]:
        """Return the part of a table at the cut, given by its cells, that belongs to one node."""
        grid = self.mechanism.space.schema.grid
        return self.cut.row(grid, view, np.reshape(values, grid.shape_of(view)), node)

    def rows(self, node: int) -> list[AtCut]:
        """Return what the tables below the cut have at it, for one node."""
        places = {view: place for place, view in enumerate(self.above.space.views)}
        found = []
        for table in self.below:
            view = self.cut.above(self.mechanism.space.schema.view(table.features))
            known = self.overview[places[view]]
            arrays = (known.estimate, self.above.cell_variances(places[view]), known.counts)
            estimate, variance, counts = (self.row(view, array, node) for array in arrays)
            found.append(AtCut(table, estimate, variance, counts if known.fitted.kind == "integer" else None))
        return found

    def noise_of(self, node: int) -> BranchNoise | None:
        """Return the noise below one node; None where nobody can be there."""
        return BranchNoise.of(self.mechanism, self.cut, node)


def part_path(schema: Schema, cut: Cut, node: int) -> tuple[str, ...]:
    """Return the labels of a part, from the top down."""
    feature = schema.features[cut.axis]
    first = feature.chain.below(cut.depth, node, feature.chain.depth).start
    return feature.path(first)[: cut.depth]


def part_folder(schema: Schema, cut: Cut, node: int) -> str:
    """Return the folder of a part, as seen from that of the release.

    >>> from semidp.core.tables.features import Feature
    >>> places = Schema([Feature.nested(["state", "county"], [("a/b", "x"), ("c", "y")])])
    >>> part_folder(places, Cut.at(places, "state"), 0)
    'state=a%2Fb'
    """
    pairs = zip(schema.features[cut.axis].names, part_path(schema, cut, node), strict=False)
    return "/".join(f"{_escaped(name)}={_escaped(label)}" for name, label in pairs)


def _escaped(text: str) -> str:
    """Return a name or a label as the name of a folder has it, in the way of Hive."""
    kept = quote(text, safe=" !$&()+,;@~-_.")
    return f"%{ord(kept[0]):02X}{kept[1:]}" if kept.startswith(".") else kept


def fitted_requests(request: TablesRequest) -> list[TableRequest]:
    """Return the tables of a request that are published as whole numbers."""
    return [table for table in request.tables if table.fit is FitKind.integer]


def fitted_views(request: TablesRequest, schema: Schema) -> list[View]:
    """Return the views of the tables that are published as whole numbers, each once."""
    return list(dict.fromkeys(schema.view(table.features) for table in fitted_requests(request)))


def overview_names(plan: "Plan", schema: Schema, cut: Cut) -> dict[str, list[tuple[str, View]]]:
    """Return each request's tables at a cut, by what their files are called: the plan's own by their names."""
    requests = [request for request in plan.requests if isinstance(request, TablesRequest)]
    taken = {name.casefold().removesuffix(".csv") for request in requests for name in request.files}
    every = {}
    for request in requests:
        views = [schema.view(table.features) for table in request.tables]
        own = dict(zip(views, (table.name for table in request.tables), strict=True))
        found = []
        for view in dict.fromkeys(map(cut.above, views)):
            name = own.get(view)
            if name is None:
                name = called_after(schema.named(view))
                while name.casefold() in taken:
                    name = f"{name}-overview"
                taken.add(name.casefold())
            found.append((name, view))
        every[request.name] = found
    return every


def refuse_apart(plan: "Plan") -> None:
    """Refuse a plan that cannot be carried out part by part, in a sentence.

    >>> import semidp
    >>> refuse_apart(semidp.Plan([semidp.TableRequest(["county"], semidp.Budget.pure(1))]))
    Traceback (most recent call last):
    semidp.errors.InputError: a pure epsilon budget cannot be released part by part: give rho, mu, or epsilon with delta
    """
    for request in plan.requests:
        if not isinstance(request, TablesRequest):
            raise InputError(f"only tables are released part by part, and {request.name!r} is none: release it apart")
    if plan.structural_zeros:
        raise InputError("tables with structural zeros are not released part by part: release them whole")
    for request in plan.requests:
        if request.budget is not None and request.budget.kind == "pure":
            raise InputError(
                "a pure epsilon budget cannot be released part by part: give rho, mu, or epsilon with delta"
            )
    if any(request.objective != "total" for request in plan.requests if isinstance(request, TablesRequest)):
        raise InputError("part by part the noise is placed for the total variance: leave the objective out")
    for table in plan.tables:
        if table.target_error is not None:
            raise InputError(f"the table {table.name!r} has a target error: part by part, give a budget")
        if table.mechanism not in ("auto", ResidualMechanism.name):
            raise InputError(f"part by part residuals are measured: leave the mechanism of {table.name!r} out")
        if table.fit == "real":
            raise InputError("part by part tables are fitted in whole numbers, or not at all: integer, none")

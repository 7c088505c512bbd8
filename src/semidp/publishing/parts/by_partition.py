"""A release part by part: what is measured at the cut and above first, then a task for each node below it.

`run_parts` is what `run` calls for tables that one machine does not hold. The guarantee is that of one
measurement of all residuals, whoever draws them: noise is calibrated to the whole product, never to a part.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp._version import __version__
from semidp.accounting.ledger import Ledger
from semidp.core.guarantee import Guarantee
from semidp.core.margins import View
from semidp.core.progress import Progress, silent
from semidp.core.tables.counts import Table
from semidp.core.tables.schema import Schema
from semidp.errors import InputError, Refused, SemidpError
from semidp.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.noise.randomness import Randomness
from semidp.output.cells import Form, StoredFiles
from semidp.output.files import Unfinished, durable, lasting_folder
from semidp.publishing.needs import refuse_files
from semidp.publishing.options import RunOptions
from semidp.publishing.parts.cut_fits import CutFit, circles_met
from semidp.publishing.parts.partitions import (
    Part,
    Partition,
    PartitionedTables,
    fitted_requests,
    fitted_views,
    overview_names,
    part_folder,
    part_path,
    refuse_apart,
)
from semidp.publishing.parts.runners import Runner, runner_for
from semidp.publishing.parts.stored_fits import read_fits, store_fits
from semidp.publishing.parts.tasks import (
    PART_DONE,
    STATE,
    PartTask,
    RequestTask,
    done_before,
    measured_before,
    read_measurement,
    split_residuals,
    stored_measurement,
)
from semidp.publishing.pipeline import Prepared, charge_told, charged, put_together, records_of
from semidp.publishing.plan import Plan
from semidp.publishing.release import Release, release_files
from semidp.publishing.survey import survey
from semidp.queries.branches import Cut
from semidp.sources.opening import Source
from semidp.sources.reader import at_hand
from semidp.statistics.protocol import budget_of, measured_by
from semidp.statistics.tables.fitting import fitted_tables, totals_of
from semidp.statistics.tables.published import FitKind, ProductTable, read_residuals, residual_columns
from semidp.statistics.tables.request import TablesRequest

_FORMAT = 2
_LARGEST = 2**62


def run_parts(plan: Plan, data: Any, options: RunOptions, partition: str) -> Release:
    """Carry out a plan of tables part by part, and write it to a folder: what `run` does with a partition."""
    if options.out is None:
        raise InputError("a release by parts is written as it is made: give out, the folder for it")
    if options.presented.workbook:
        raise InputError("a workbook is written of a release in one piece: leave it out, or the partition")
    out = Path(options.out).absolute()  # whoever carries out a part may be in another folder
    randomness, ledger, progress = options.words, options.book, options.progress
    written = options.written_as or Form.parquet
    resume = options.resume
    with records_of(plan, data) as source:
        progress("reading the records", 0, None)
        whole = prepare_parts(plan, source, partition, jobs=options.jobs, memory=options.memory)
        runner = runner_for(source, options.jobs)
        with (
            charge_told(ledger),
            lasting_folder(
                out,
                resume=resume,
                force=options.force,
                ours=release_files,
                inputs=options.inputs,
                clear=_clear,
            ) as unfinished,
        ):
            work, about = unfinished.folder, _about(whole, written, randomness)
            if resume:
                _refuse_other(unfinished.noted(), about)
            else:
                whole.refuse_place(work, written)
                # What is foreseen to be published otherwise than in one piece is told before anything is charged.
                options.tell(whole.foreseen)
                # Noted before the charge: a run that is killed right after that is gone on with, and not charged anew.
                charging = None if ledger is None else ledger.account().id
                unfinished.begin({**about, "ledger": None, "charging": charging})
            entry = _charged_once(whole, unfinished, ledger, options.label, resume)
            if unfinished.noted().get("whole") is True:  # all that is left to do is to put the folder in its place
                release = Release.load(work)
                options.finish(work, sorted(_passing(work)))
            else:
                noisy = whole.measured(unfinished, randomness)
                results = whole.at_cut(noisy, randomness.secure)
                # Where parts are fitted together, all of them are measured before any is fitted.
                together = [one.together for one in results]
                if any(together):
                    measuring = whole.tasks(results, None, unfinished, written, randomness, source)
                    _all_measured(measuring, runner, progress)
                fits = [
                    whole.fitted_whole(number, one, work, progress) if together[number] else one.settled(progress)
                    for number, one in enumerate(results)
                ]
                tasks = whole.tasks(results, fits, unfinished, written, randomness, source)
                parts = _carried_out(tasks, runner, progress)
                below = [table for part in parts for table in part.tables]
                done = [
                    replace(
                        one,
                        overview=whole.overview(one, fit, parts, work, progress),
                        parts=tuple(parts),
                        noise=replace(one.noise, expected_l2=one.expected_l2(below)),
                    )
                    for one, fit in zip(results, fits, strict=True)
                ]
                release = put_together(
                    whole, done, entry, written, Partition(whole.partition, tuple(parts)), options.presented
                )
                release.write_files(work, progress)
                options.finish(work, sorted(_passing(work)))
                durable(work)
                unfinished.note(whole=True)
    assert release.partition is not None
    return replace(release, partition=replace(release.partition, place=out))


@dataclass(frozen=True, eq=False, kw_only=True)
class Whole(Prepared):
    """A plan of tables that is to be carried out part by part, up to the first random number.

    Its mechanisms are calibrated to the whole. For each request it holds the confidential tables at the cut, where
    tables are taken apart, and as its values the residuals of those. What is foreseen are sentences on tables that may
    have no whole numbers with all totals.
    """

    mechanisms: tuple[ResidualMechanism, ...]
    cut: Cut
    expected: tuple[Mapping[View, Table], ...] = field(repr=False)
    foreseen: tuple[str, ...] = ()

    @property
    def requests(self) -> tuple[TablesRequest, ...]:
        """The tables."""
        return tuple(request for request in self.plan.requests if isinstance(request, TablesRequest))

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.mechanisms[0].space.schema

    @property
    def nodes(self) -> int:
        """The number of parts."""
        return self.cut.chain(self.schema).size(self.cut.depth)

    @cached_property
    def names(self) -> dict[str, list[tuple[str, View]]]:
        """For each request, by its name, its tables at the cut, by what their files are called."""
        return overview_names(self.plan, self.schema, self.cut)

    def measured(self, unfinished: Unfinished, randomness: Randomness) -> list[NDArray[np.int64]]:
        """Return what was measured at the cut and above: drawn and stored, or read again.

        Once it is noted that all of it is stored, nothing is drawn again. What was drawn before that is in no part, and
        is dropped with what else a run that was killed has left.
        """
        state = unfinished.folder / STATE
        if unfinished.noted().get("measured") is True:
            for attempt in state.glob("attempt-*"):  # of a run that was killed: nothing is drawn twice and kept
                shutil.rmtree(attempt)
            return [self._stored(state, number) for number in range(len(self.mechanisms))]
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        drawn = self.drawn(randomness)
        for number, (mechanism, vector) in enumerate(zip(self.mechanisms, drawn, strict=True)):
            columns = residual_columns(mechanism_above(mechanism, self.cut), vector)
            columns.write(state / f"above-{number}.{Form.parquet}")
        for node in range(self.nodes):  # made here: a task makes no folder but in its own attempt
            (unfinished.folder / part_folder(self.schema, self.cut, node)).parent.mkdir(parents=True, exist_ok=True)
        durable(unfinished.folder)
        unfinished.note(measured=True)
        return drawn

    def drawn(self, randomness: Randomness) -> list[NDArray[np.int64]]:
        """Add the noise to the residuals of every request at the cut and above."""
        found = []
        for request, mechanism, values in zip(self.plan.requests, self.mechanisms, self.values, strict=True):
            noise = mechanism_above(mechanism, self.cut).noise_by_residual(randomness.part(request.name))
            found.append(values + noise)
        return found

    def _stored(self, state: Path, number: int) -> NDArray[np.int64]:
        """Read what was measured at the cut and above of one request."""
        stem = f"above-{number}"
        files = StoredFiles(state, (f"{stem}.{Form.parquet}",))
        try:
            return read_residuals(files, stem, mechanism_above(self.mechanisms[number], self.cut).space)
        except (ValueError, KeyError, OSError):
            raise InputError("what was measured of the unfinished release is damaged: discard it") from None

    def at_cut(self, noisy: Sequence[NDArray[np.int64]], private: bool) -> list[PartitionedTables]:
        """Put the estimates of the tables at the cut together; their counts follow when the parts are done."""
        found = []
        for request, mechanism, vector in zip(self.requests, self.mechanisms, noisy, strict=True):
            above, named = mechanism_above(mechanism, self.cut), self.names[request.name]
            nothing = [FitKind.none] * len(named)
            found.append(
                PartitionedTables(
                    request=request,
                    mechanism=mechanism,
                    cut=self.cut,
                    noisy=vector,
                    overview=fitted_tables(above, above.publish(vector), [name for name, _ in named], nothing, silent),
                    **measured_by(request.name, mechanism, private, 0.0),  # what it costs is known when all is done
                )
            )
        return found

    def overview(
        self, result: PartitionedTables, fit: CutFit, parts: Sequence[Part], work: Path, progress: Progress
    ) -> tuple[ProductTable, ...]:
        """Return the tables of a request at the cut, when all parts are done."""
        fits = result.overview_fits(fit, parts, work, progress)
        tables = []
        for table, (counts, how) in zip(result.overview, fits, strict=True):
            tables.append(replace(table, counts=counts.reshape(table.schema.shape), fitted=how))
        return tuple(tables)

    def fitted_whole(self, number: int, result: PartitionedTables, work: Path, progress: Progress) -> CutFit:
        """Fit the tables of a request in one piece, from what all parts have measured; or read the fit made before.

        A search with a time limit may end elsewhere when a run is resumed. So the fit is stored, and all parts of a
        release are of the same one.
        """
        stored = work / STATE / f"fit-{number}.npz"
        try:
            fits = read_fits(stored)
        except FileNotFoundError:
            fits = result.fitted_whole(result.estimates_below(partial(self._stored_part, work, result)), progress)
            store_fits(stored, fits)
        return CutFit.in_one_piece(fits, self.cut)

    def _stored_part(
        self, work: Path, result: PartitionedTables, node: int, noise: BranchNoise
    ) -> dict[View, NDArray[np.int64]]:
        """Read what was measured of a request below one node."""
        file = stored_measurement(work, result.request, part_path(self.schema, self.cut, node))
        return split_residuals(noise.space, read_measurement(file, noise.space))

    def tasks(
        self,
        results: Sequence[PartitionedTables],
        fits: Sequence[CutFit] | None,
        unfinished: Unfinished,
        form: Form,
        randomness: Randomness,
        source: Source,
    ) -> Iterator[PartTask]:
        """Yield the task of each part; without fits it only measures."""
        feature = next((known for known in self.plan.features if self.partition in known.names), None)
        owner = self.schema.features[self.cut.axis] if feature is None else feature
        where = source.branches(at_hand(owner, self.partition, source.columns()), self.cut.depth)
        how: Sequence[CutFit | None] = [None] * len(results) if fits is None else fits
        for node in range(self.nodes):
            declared = tuple(
                known.branch(self.cut.depth, node) if known is feature else known for known in self.plan.features
            )
            yield PartTask(
                path=part_path(self.schema, self.cut, node),
                run=unfinished.run,
                work=unfinished.folder,
                folder=part_folder(self.schema, self.cut, node),
                schema=self.cut.branch(self.schema, node),
                declared=declared,
                cut=self.cut,
                exact=self.cut.exact(self.scope.dataspace, node),
                requests=tuple(
                    self._task(result, fit, tables, node)
                    for result, fit, tables in zip(results, how, self.expected, strict=True)
                ),
                values=where.get(node),
                form=form,
                randomness=randomness,
                only_measured=fits is None,
            )

    def _task(
        self, result: PartitionedTables, fit: CutFit | None, expected: Mapping[View, Table], node: int
    ) -> RequestTask:
        rows, wanted = result.rows(node), []
        views = [self.schema.view(row.asked.features) for row in rows]
        for view in map(self.cut.above, views):
            wanted.append(result.row(view, expected[view].counts, node))
        how = None if fit is None else fit.part(self.schema.grid, self.cut, node, views)
        return RequestTask(result.request, tuple(rows), tuple(wanted), result.noise_of(node), how)

    @property
    def partition(self) -> str:
        """The name of the depth at which it is cut."""
        return self.schema.features[self.cut.axis].names[self.cut.depth - 1]

    def refuse_place(self, work: Path, form: Form) -> None:
        """Refuse a place that cannot take the files and folders of a release, while nothing is charged."""
        overview = [name for names in self.names.values() for name, _ in names]
        refuse_files(self.plan, self.schema, work, form, overview)
        try:
            (work / "a").touch()
            os.link(work / "a", work / "b")
        except OSError:
            raise InputError(
                "the file system there gives no file a second name, which parts need: choose another"
            ) from None
        finally:
            for name in "ab":
                (work / name).unlink(missing_ok=True)
        made = []
        try:
            for node in range(self.nodes):
                folder = work / part_folder(self.schema, self.cut, node)
                folder.mkdir(parents=True)
                made.append(folder)
            for folder in reversed(made):
                folder.rmdir()
        except (OSError, ValueError):
            raise InputError(
                f"the parts of {self.partition!r} cannot all have folders of their own there: a label is too long, or "
                "two differ in nothing that the file system tells apart"
            ) from None


def prepare_parts(plan: Plan, source: Source, partition: str, *, jobs: int = 1, memory: int | None = None) -> Whole:
    """Read what is public, and the tables at the cut, and calibrate the noise of the whole; nothing is drawn."""
    refuse_apart(plan)
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"the number of worker processes is a whole number, at least 1, not {jobs!r}")
    scope, reader = survey(plan, source, memory, partition, jobs)
    schema = scope.dataspace.schema
    cut = Cut.at(schema, partition)
    if not any(cut.reaches(schema.view(table.features)) for table in plan.tables):
        raise InputError(f"no table is finer than {partition!r}, so that there is nothing to release part by part")
    mechanisms, expected, values = [], [], []
    for request in plan.requests:
        assert isinstance(request, TablesRequest)
        budget_of(request)
        space = request.residual_space(scope)
        if space.impossible:
            raise Refused("tables with impossible cells are not released part by part: release them whole")
        mechanisms.append(request.residual_mechanism(space))
    for mechanism in mechanisms:
        for view in mechanism.space.measured:  # what a part would refuse when all is charged
            if (scope.dataspace.n or 0) * mechanism.space.residuals.largest_scale(view) >= _LARGEST:
                raise Refused("the counts times the numbers of levels do not fit in 62 bits: release smaller tables")
        space = mechanism_above(mechanism, cut).space
        tables = reader.tables(schema.named(view) for view in space.views)
        expected.append(dict(zip(space.views, tables, strict=True)))
        values.append(space.measure(tables))
    foreseen = tuple(_foreseen(plan, mechanisms, cut))
    return Whole(
        plan=plan,
        scope=replace(scope, warnings=(*scope.warnings, *foreseen)),
        mechanisms=tuple(mechanisms),
        guarantee=Guarantee.compose(*(mechanism.guarantee for mechanism in mechanisms)),
        values=tuple(values),
        cut=cut,
        expected=tuple(expected),
        foreseen=foreseen,
    )


def _foreseen(plan: Plan, mechanisms: Sequence[ResidualMechanism], cut: Cut) -> Iterator[str]:
    """Say for which tables the plan promises no whole numbers: their totals are not decomposable (THEORY §13)."""
    for request, mechanism in zip(plan.requests, mechanisms, strict=True):
        assert isinstance(request, TablesRequest)
        schema = mechanism.space.schema
        exact = [total.view for total in totals_of(mechanism.space)]
        circles = circles_met(schema.grid, fitted_views(request, schema), exact, cut)
        for table in fitted_requests(request):
            if schema.view(table.features) in circles:
                yield (
                    f"The totals of the table {table.name!r}, exact ones and those that other tables fix, hang "
                    "together in a circle, so that no whole numbers may have all of them: then other tables follow "
                    "from it, or it misses some."
                )


def _about(whole: Whole, form: Form, randomness: Randomness) -> dict[str, Any]:
    """Return what a release is about, so that only the same one goes on with it."""
    totals = json.dumps(whole.scope.dataspace.to_json(), sort_keys=True)
    return {
        "format": _FORMAT,
        "version": __version__,
        "plan": json.loads(json.dumps(whole.plan.to_json())),
        "partition": whole.partition,
        "totals": hashlib.sha256(totals.encode()).hexdigest(),
        "secure": randomness.secure,
        "form": str(form),
    }


def _refuse_other(noted: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Refuse to go on with a release that was begun with something else."""
    if any(noted.get(key) != about[key] for key in ("format", "version")):
        raise InputError("the unfinished release was begun by another version of semidp: finish it with that one")
    for key, what in (
        ("plan", "another plan"),
        ("partition", "another partition"),
        ("totals", "other exact totals"),
        ("form", "another form of files"),
        ("secure", "another source of random numbers"),
    ):
        if noted.get(key) != about[key]:
            raise InputError(f"the unfinished release has {what}: go on with what it was begun with, or discard it")


def _charged_once(
    whole: Whole, unfinished: Unfinished, ledger: Ledger | None, label: str | None, resume: bool
) -> Mapping[str, Any] | None:
    """Return the ledger's entry for this run: charged now, or found where the run was charged before it was killed."""
    noted = unfinished.noted()
    entry, charging = noted.get("ledger"), noted.get("charging")
    if ledger is None:
        if entry is None and charging is not None:
            raise InputError("the unfinished release ended while a ledger was charged: give that ledger again")
        return entry if isinstance(entry, Mapping) else None
    begun_with = charging if entry is None else entry.get("ledger")
    if begun_with and begun_with != ledger.account().id:  # a ledger of version 1 has no id before it is charged
        raise InputError("the unfinished release was begun with another ledger: give that one, or discard the release")
    if entry is None and noted.get("whole") is True:
        raise InputError("the unfinished release is whole and states that no ledger was charged: finish it without one")
    try:
        entry = charged(whole, ledger, label, unfinished.run)
    except SemidpError:
        if not resume and unfinished.run not in ledger.made:
            unfinished.forget()
        raise
    unfinished.note(ledger=entry)
    return entry


def _passing(work: Path) -> set[str]:
    """Return the files that only an unfinished release needs, as seen from its folder."""
    found = {path.relative_to(work).as_posix() for path in work.rglob(PART_DONE)}
    return found | {path.relative_to(work).as_posix() for path in (work / STATE).rglob("*") if path.is_file()}


def _clear(work: Path) -> None:
    """Remove what only an unfinished release needs."""
    for name in _passing(work):
        (work / name).unlink()
    shutil.rmtree(work / STATE, ignore_errors=True)


def _all_measured(tasks: Iterable[PartTask], runner: Runner, progress: Progress) -> None:
    """Measure every part that is not measured yet."""
    every = list(tasks)
    left = [task for task in every if not measured_before(task)]
    done = len(every) - len(left)
    progress("measuring the parts", done, len(every))
    with contextlib.closing(runner(left)) as parts:
        for _ in parts:
            done += 1
            progress("measuring the parts", done, len(every))
    if not all(map(measured_before, left)):
        raise InputError(
            "a part was measured elsewhere: whoever carries out parts must share the folder that is written"
        )


def _carried_out(tasks: Iterable[PartTask], runner: Runner, progress: Progress) -> list[Part]:
    """Carry out what is left to do, and return every part, in order."""
    wanted = list(tasks)
    found = {task.path: part for task in wanted if (part := done_before(task)) is not None}
    changed = Partition("", tuple(found.values()), wanted[0].work).changed() if found else None
    if changed is not None:
        raise InputError(f"{changed} of the unfinished release was changed since it was written: discard it")
    left = [task for task in wanted if task.path not in found]
    progress("carrying out the parts", len(found), len(wanted))
    with contextlib.closing(runner(left)) as parts:  # whoever works on them stops at once when this is left
        for part in parts:
            found[part.path] = part
            progress("carrying out the parts", len(found), len(wanted))
    if any(done_before(task) != found[task.path] for task in left):
        raise InputError(
            "a part was written elsewhere: whoever carries out parts must share the folder that is written"
        )
    return [found[task.path] for task in wanted]

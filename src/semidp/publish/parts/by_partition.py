"""A release part by part: what is measured at the cut and above first, then a task for each node
below it.

`run_parts` is what `run_plan` calls for tables that one machine does not hold. The guarantee is
that of one measurement of all residuals, whoever draws them: noise is calibrated to the whole
product, never to a part.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp._version import __version__
from semidp.errors import InputError, SemidpError
from semidp.promise.accounting.ledger import Ledger, Session
from semidp.promise.documents import digest
from semidp.promise.files import durable, link
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.selection import with_exact_claim
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.publish.budgets import calibrate_separately, solve_target_errors
from semidp.publish.choices import best_answered
from semidp.publish.linked_survey import linked_survey
from semidp.publish.parts.runners import (
    PART_DONE,
    InOnePiece,
    Runner,
    choose_runner,
    done_before,
    measured_before,
)
from semidp.publish.pipeline import (
    Prepared,
    RunOptions,
    build_release,
    charge_ledger,
    charge_told,
    open_records,
)
from semidp.publish.plan import Plan
from semidp.publish.release_files import ReleaseFiles, release_files
from semidp.publish.resources import refuse_files, refuse_map
from semidp.publish.results.cells import Form, StoredFiles
from semidp.publish.sources.reader import cut_to_available
from semidp.publish.statistics.parts import (
    STATE,
    Part,
    Partition,
    PartTable,
    PartTask,
    StoredPartition,
    part_folder,
    part_path,
)
from semidp.publish.statistics.protocol.request_defaults import require_budget
from semidp.publish.statistics.protocol.requests import StepsByParts
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.survey import survey
from semidp.publish.unfinished import Unfinished, lasting_folder

_R = TypeVar("_R", bound=ReleaseFiles)
_FORMAT = 4  # of what an unfinished release keeps


def run_parts(kind: type[_R], plan: Plan, data: Any, options: RunOptions, partition: str) -> _R:
    """Carry out a plan of tables part by part, and write it to a folder: what `run_plan` does
    with a partition.
    """
    if options.out is None:
        raise InputError("a release by parts is written as it is made: give out, the folder for it")
    if options.resolved_presentation.workbook:
        raise InputError(
            "a workbook is written of a release in one piece: leave it out, or the partition"
        )
    out = Path(options.out).absolute()  # whoever carries out a part may be in another folder
    randomness, ledger, progress = options.words, options.book, options.progress
    written = options.written_as or Form.parquet
    resume = options.resume
    with open_records(plan, data) as source:
        progress("reading the records", 0, None)
        whole = prepare_parts(plan, source, partition, jobs=options.jobs, memory=options.memory)
        runner = choose_runner(source, options.jobs)
        if options.resolved_presentation.places is not None:
            refuse_map(options.resolved_presentation.places, whole.plan, whole.scope.dataspace)
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
            work, about = unfinished.folder, _identify_release(whole, written, randomness)
            if resume:
                _refuse_other(unfinished.read_notes(), about)
                session = _resumed_session(kind, unfinished, ledger)
            else:
                whole.refuse_place(work, written)
                # What is foreseen to be published otherwise than in one piece is told before
                # anything is charged.
                options.tell((*whole.foreseen, *options.review(whole.scope)))
                # Noted before the charge: a run that is killed right after that is gone on with,
                # and not charged anew.
                session = Session(unfinished.run_name)
                charging = None if ledger is None else ledger.account().id
                sessions = [] if ledger is None else [session.name]
                noted = {"ledger": None, "charging": charging, "sessions": sessions}
                unfinished.begin({**about, **noted})
            entry = _charged_once(whole, unfinished, ledger, options.label, session, resume)
            # all that is left to do is to put the folder in its place
            if unfinished.read_notes().get("whole") is True:
                release = kind.load(work)
                options.finish(work, sorted(_passing(work)))
            else:
                whole.measure(unfinished, randomness)
                # Where parts are fitted together, all of them are measured before any is fitted.
                if any(request.is_fitted_jointly for request in whole.steps):
                    measuring = whole.tasks(
                        unfinished, written, randomness, source, only_measured=True
                    )
                    _all_measured(measuring, runner, progress)
                for request in whole.steps:
                    request.settle(work, progress)
                tasks = whole.tasks(unfinished, written, randomness, source)
                parts = _carried_out(tasks, runner, progress)
                results = [request.build_result(parts, work, progress) for request in whole.steps]
                parts = _write_rows(results, parts, work, written)
                partition_of = Partition(whole.partition, tuple(parts))
                release = build_release(
                    kind,
                    whole,
                    results,
                    entry,
                    written,
                    partition_of,
                    options.resolved_presentation,
                )
                release.write_files(work, progress)
                options.finish(work, sorted(_passing(work)))
                durable(work)
                unfinished.note(whole=True)
            if ledger is not None:
                ledger.finish(session, release.measured_digest)
    return release.with_folder(out)


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedByParts(Prepared):
    """A prepared plan that is carried out part by part; nothing random has been drawn yet.

    Its mechanisms are calibrated to the whole plan. `steps` say of each request how it is
    carried out, in parts or beside them. `foreseen` warns of tables that may have no whole numbers
    with all totals.
    """

    cut: Cut
    steps: tuple[StepsByParts, ...] = field(repr=False)
    foreseen: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.scope.dataspace.schema

    @property
    def nodes(self) -> int:
        """The number of parts."""
        return self.cut.chain(self.schema).size(self.cut.depth)

    def measure(self, unfinished: Unfinished, randomness: Randomness) -> None:
        """Measure what comes before the parts: draw and store it, or read it again.

        Once it is noted that all of it is stored, nothing is drawn again. What was drawn before
        that is in no part, and is dropped with what else a run that was killed has left.
        """
        state = unfinished.folder / STATE
        if unfinished.read_notes().get("measured") is True:
            # of a run that was killed: nothing is drawn twice and kept
            for attempt in state.glob("attempt-*"):
                shutil.rmtree(attempt)
            for number, request in enumerate(self.steps):
                _resume_request(request, state / f"above-{number}.npy", randomness.secure)
            return
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        drawn = [request.add_noise(randomness) for request in self.steps]
        for number, vector in enumerate(drawn):
            np.save(state / f"above-{number}.npy", vector, allow_pickle=False)
        for node in range(self.nodes):  # made here: a task makes no folder but in its own attempt
            (unfinished.folder / part_folder(self.schema, self.cut, node)).parent.mkdir(
                parents=True, exist_ok=True
            )
        # On the disk before it is noted: the note promises that nothing has to be drawn a second
        # time.
        durable(unfinished.folder)
        unfinished.note(measured=True)
        for request, vector in zip(self.steps, drawn, strict=True):
            request.begin(vector, randomness.secure)

    def tasks(
        self,
        unfinished: Unfinished,
        form: Form,
        randomness: Randomness,
        source: Any,
        only_measured: bool = False,
    ) -> Iterator[PartTask]:
        """Yield the task of each part. A task that only measures knows nothing of fits."""
        nested = next(
            (feature for feature in self.plan.features if self.partition in feature.names), None
        )
        owner = self.schema.features[self.cut.axis] if nested is None else nested
        where = source.branches(
            cut_to_available(owner, self.partition, source.columns()), self.cut.depth
        )
        for node in range(self.nodes):
            # The plan may declare the nested feature: a part knows its own branch of it alone.
            declared = tuple(
                feature.branch(self.cut.depth, node) if feature is nested else feature
                for feature in self.plan.features
            )
            # A part without records is a task as well: its noise hides that it is empty.
            works = [request.part_work(node) for request in self.steps]
            yield PartTask(
                path=part_path(self.schema, self.cut, node),
                run_name=unfinished.run_name,
                work=unfinished.folder,
                folder=part_folder(self.schema, self.cut, node),
                schema=self.cut.branch(self.schema, node),
                declared=declared,
                cut=self.cut,
                exact=self.cut.exact(self.scope.dataspace, node),
                requests=tuple(work for work in works if work is not None),
                values=where.get(node),
                form=form,
                randomness=randomness,
                only_measured=only_measured,
            )

    @property
    def partition(self) -> str:
        """The name of the depth at which it is cut."""
        return self.cut.name(self.schema)

    def refuse_place(self, work: Path, form: Form) -> None:
        """Refuse a place that cannot take the files and folders of a release, while nothing is
        charged.
        """
        overview = [stem for request in self.steps for stem in request.stems]
        refuse_files(self.plan, self.schema, work, form, overview)
        try:
            # A link never replaces a file. That is how the first measurement that is stored of a
            # part stays the only one, whoever tries again.
            (work / "a").touch()
            link(work / "a", work / "b")
        except OSError:
            raise InputError(
                "the file system there gives no file a second name, which parts need: choose"
                " another"
            ) from None
        finally:
            for name in "ab":
                (work / name).unlink(missing_ok=True)
        made = []
        try:
            for node in range(self.nodes):
                # All folders stand at once, so that two labels that the file system takes for one
                # meet here.
                folder = work / part_folder(self.schema, self.cut, node)
                folder.mkdir(parents=True)
                made.append(folder)
            for folder in reversed(made):
                folder.rmdir()
        except (OSError, ValueError):
            raise InputError(
                f"the parts of {self.partition!r} cannot all have folders of their own there: a"
                " label is too long, or two differ in nothing that the file system tells apart"
            ) from None


def prepare_parts(
    plan: Plan, source: Any, partition: str, *, jobs: int = 1, memory: int | None = None
) -> PreparedByParts:
    """Read what is public, and the tables at the cut, and calibrate the noise of the whole; nothing
    is drawn.
    """
    for request in plan.requests:
        request.refuse_parts()
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(
            f"the number of worker processes is a whole number, at least 1, not {jobs!r}"
        )
    reader: Any
    if plan.units is None:
        scope, reader = survey(plan, source, memory, partition, jobs)
    else:
        scope, reader = linked_survey(plan, plan.units, source, memory)
    schema = scope.dataspace.schema
    cut = Cut.from_name(schema, partition)
    # Linked tables, which are none of the plan's alone, see for themselves what is below the cut.
    if plan.units is None and not any(
        cut.reaches(schema.view(table.features)) for table in plan.tables
    ):
        raise InputError(
            f"no table is finer than {partition!r}, so that there is nothing to release part by"
            " part"
        )
    plan, scope = calibrate_separately(solve_target_errors(plan, scope, by_parts=True), scope)
    plan, choices = best_answered(plan, scope)
    mechanisms = []
    for request in plan.requests:
        budget = require_budget(request)
        mechanism = request.parts_calibrate(request.parts_space(scope))
        if plan.claim is not None:
            mechanism = with_exact_claim(mechanism, budget, request.mechanism)
        mechanisms.append(mechanism)
    steps: list[StepsByParts] = []
    for request, mechanism in zip(plan.requests, mechanisms, strict=True):
        cut_up = request.steps_by_parts(mechanism, cut, scope, plan.requests, reader)
        if cut_up is None:
            values = request.read(reader, scope, mechanism.space)
            cut_up = InOnePiece(request, mechanism, scope, values)
        steps.append(cut_up)
    foreseen = tuple(sentence for request in steps for sentence in request.foreseen())
    return PreparedByParts(
        plan=plan,
        scope=replace(scope, warnings=(*scope.warnings, *foreseen)),
        mechanisms=tuple(mechanisms),
        guarantee=Guarantee.compose(*(mechanism.guarantee for mechanism in mechanisms)),
        values=tuple(request.values for request in steps),
        choices=choices,
        cut=cut,
        steps=tuple(steps),
        foreseen=foreseen,
    )


def _resume_request(request: StepsByParts, stored: Path, private: bool) -> None:
    """Read what was measured before the parts; refuse what is damaged."""
    try:
        noisy: NDArray[Any] = np.load(stored, allow_pickle=False)
        request.begin(noisy, private)
    except (ValueError, EOFError, OSError):
        raise InputError(
            "what was measured of the unfinished release is damaged: discard it"
        ) from None


def _identify_release(whole: PreparedByParts, form: Form, randomness: Randomness) -> dict[str, Any]:
    """Return what identifies a release, so that only the same one is resumed."""
    # A digest tells other totals apart, and leaves no count in the folder of a release that may
    # never be published.
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
    # Another version may calibrate otherwise: half of the parts would have other noise than is
    # stated.
    if any(noted.get(key) != about[key] for key in ("format", "version")):
        raise InputError(
            "the unfinished release was begun by another version of semidp: finish it with that one"
        )
    for key, what in (
        ("plan", "another plan"),
        ("partition", "another partition"),
        ("totals", "other exact totals"),
        ("form", "another form of files"),
        ("secure", "another source of random numbers"),
    ):
        if noted.get(key) != about[key]:
            raise InputError(
                f"the unfinished release has {what}: go on with what it was begun with, or"
                " discard it"
            )


def _resumed_session(
    kind: type[ReleaseFiles], unfinished: Unfinished, ledger: Ledger | None
) -> Session:
    """Note a new session of an unfinished run; refuse a ledger that it was not begun with."""
    noted = unfinished.read_notes()
    entry, charging = noted.get("ledger"), noted.get("charging")
    earlier = tuple(noted.get("sessions", ()))
    if ledger is None:
        # Only the ledger knows whether it was charged, and whether another copy of the run went on.
        if entry is not None or charging is not None:
            raise InputError(
                "the unfinished release was begun with a ledger: give that ledger again"
            )
        return Session(unfinished.run_name, earlier)
    begun_with = charging if entry is None else entry.get("ledger")
    # a ledger of version 1 has no id before it is charged
    if begun_with and begun_with != ledger.account().id:
        raise InputError(
            "the unfinished release was begun with another ledger: give that one, or discard the"
            " release"
        )
    if entry is None and noted.get("whole") is True:
        raise InputError(
            "the unfinished release is whole and states that no ledger was charged: finish it"
            " without one"
        )
    complete = noted.get("whole") is True
    measured = kind.load(unfinished.folder).measured_digest if complete else None
    session = Session(unfinished.run_name, earlier, measured)
    # Noted before the ledger has it: a run that is killed in between is still the latest.
    unfinished.note(sessions=[*earlier, session.name])
    return session


def _charged_once(
    whole: PreparedByParts,
    unfinished: Unfinished,
    ledger: Ledger | None,
    label: str | None,
    session: Session,
    resume: bool,
) -> Mapping[str, Any] | None:
    """Charge the ledger for this run, or find the charge that it made before it was killed; return
    the entry.
    """
    if ledger is None:
        return None
    try:
        # The ledger knows the name of the run: if it was charged before a kill, it returns that
        # charge and makes no other.
        entry = charge_ledger(whole, ledger, label, session)
    except SemidpError:
        # Refused before anything was charged or drawn: nothing is left that anybody could go on
        # with.
        if not resume and unfinished.run_name not in ledger.own_charges:
            unfinished.forget()
        raise
    unfinished.note(ledger=entry)
    return entry


def _write_rows(
    results: Sequence[Published], parts: Sequence[Part], work: Path, form: Form
) -> list[Part]:
    """Write the rows of results that were published together into the folders of the parts, and
    return the parts with them.
    """
    complete = []
    for node, part in enumerate(parts):
        files, tables = dict(part.files), []
        for result in results:
            names, stem = result.part_stems()
            if {*names} <= {table.name for table in part.tables}:
                tables += [table for table in part.tables if table.name in names]
                continue
            rows, measured = result.publish_part(StoredFiles(work / part.folder, ()), node, part)
            columns = {table.name: table.columns() for table in rows}
            if measured is not None and stem is not None:
                columns[stem] = measured
            for name, content in columns.items():
                file = f"{name}.{form}"
                content.write(work / part.folder / file)
                files[file] = digest(work / part.folder / file)
            tables += map(PartTable.from_table, rows)
        complete.append(replace(part, files=dict(sorted(files.items())), tables=tuple(tables)))
    return complete


def _passing(work: Path) -> set[str]:
    """Files that only an unfinished release needs, relative to its folder."""
    finished = {path.relative_to(work).as_posix() for path in work.rglob(PART_DONE)}
    return finished | {
        path.relative_to(work).as_posix() for path in (work / STATE).rglob("*") if path.is_file()
    }


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
            "a part was measured elsewhere: whoever carries out parts must share the folder that is"
            " written"
        )


def _carried_out(tasks: Iterable[PartTask], runner: Runner, progress: Progress) -> list[Part]:
    """Carry out what is left to do, and return every part, in order."""
    all_tasks = list(tasks)
    done = {task.path: part for task in all_tasks if (part := done_before(task)) is not None}
    changed = None
    if done:
        changed = StoredPartition("", tuple(done.values()), all_tasks[0].work).find_changed_file()
    if changed is not None:
        raise InputError(
            f"{changed} of the unfinished release was changed since it was written: discard it"
        )
    left = [task for task in all_tasks if task.path not in done]
    progress("carrying out the parts", len(done), len(all_tasks))
    # whoever works on them stops at once when this is left
    with contextlib.closing(runner(left)) as parts:
        for part in parts:
            done[part.path] = part
            progress("carrying out the parts", len(done), len(all_tasks))
    if any(done_before(task) != done[task.path] for task in left):
        raise InputError(
            "a part was written elsewhere: whoever carries out parts must share the folder that is"
            " written"
        )
    return [done[task.path] for task in all_tasks]

"""Running a release block by block, in a folder that outlasts the run.

A plan runs in one block, or in one block at the cut and above and one for each part below it. The
noisy measurements are stored under the name of the charge before anything is published. A run that
is killed or fails is finished by a later one: nothing is drawn or charged twice, and a release in
one piece no longer needs its records. By parts, everything at the cut and above is measured first,
then each node below it is a task. The guarantee is that of one measurement, whoever draws it: noise
is calibrated to the whole, never to a part.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp._version import __version__
from semidp.errors import InputError, SemidpError
from semidp.promise.accounting.ledger import Ledger, Session
from semidp.promise.confidential import Confidential
from semidp.promise.documents import digest, from_json
from semidp.promise.files import link
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.schema.schema import Schema
from semidp.publish.folders import Unfinished, durable, lasting_folder
from semidp.publish.pipeline import (
    Prepared,
    RunOptions,
    build_release,
    calibrate,
    charge_ledger,
    charge_told,
    open_records,
    prepare,
    refuse_presentation,
)
from semidp.publish.plan import Plan
from semidp.publish.plan_changes import (
    advise_on_missing,
    best_answered,
    calibrate_separately,
    solve_target_errors,
)
from semidp.publish.presentation import Presentation
from semidp.publish.release_files import ReleaseFiles, read_scope, release_files, scope_json
from semidp.publish.resources import refuse_files
from semidp.publish.results.columns import Form, StoredFiles, form_named
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.runners import (
    PART_DONE,
    InOnePiece,
    Runner,
    choose_runner,
    done_before,
    measured_before,
)
from semidp.publish.selection import with_exact_claim
from semidp.publish.sources.reader import cut_to_available
from semidp.publish.statistics.parts import (
    STATE,
    Part,
    Partition,
    PartTable,
    PartTask,
    part_folder,
    part_path,
)
from semidp.publish.statistics.protocol.requests import Published, StepsByParts, require_budget
from semidp.publish.survey import lookalikes, survey

_PUBLIC = "public.json"
"""The file of the plan and the public facts, next to the measurements."""
_DAMAGED = "what was measured of the unfinished release is damaged: discard it"


@frozen(eq=False, kw_only=True)
class PreparedBlocks(Prepared):
    """A prepared plan that runs block by block; nothing random has been drawn yet.

    Its mechanisms are calibrated to the whole plan. `steps` say how each request runs, in parts or
    next to them. `foreseen` holds warnings to give before anything is charged. A plan in one piece
    has no `cut`.
    """

    cut: Cut | None = None
    steps: tuple[StepsByParts, ...] = field(repr=False)
    foreseen: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.scope.dataspace.schema

    @property
    def nodes(self) -> int:
        """The number of parts."""
        return 0 if self.cut is None else self.cut.chain(self.schema).size(self.cut.depth)

    def draw_first_phase(self, randomness: Randomness, progress: Progress) -> "PreparedBlocks":
        """Draw the first phase and return the run with the tables that follow from it; itself if
        there is only one phase.

        The first phase is stored with the second. A run that is killed before that has published
        nothing, and redraws both.
        """
        if self.later is None:
            return self
        measured = []
        for (request, mechanism), steps in zip(self.calibrated_requests, self.steps, strict=True):
            progress(f"measuring {request.name}", 0, None)
            noisy = steps.add_noise(randomness)
            measured.append(mechanism.restore_measurement(noisy, randomness.secure))
        whole, moved = self.later.prepare_pairs(self.plan.requests, self.mechanisms, measured)
        run = _as_one_block(whole, whole.values, self.foreseen)
        for steps, noisy in zip(run.steps, moved, strict=False):
            assert isinstance(steps, InOnePiece), "microdata are released in one piece"
            steps.noisy = noisy
        return run

    def measure(
        self,
        unfinished: Unfinished,
        randomness: Randomness,
        progress: Progress,
        about: Mapping[str, Any],
    ) -> None:
        """Measure everything that comes before the parts (all of a plan in one piece): draw and
        store it, or read it back.

        `about` identifies the release, whose tables may follow from what was drawn. Once the note
        says that all of it is stored, nothing is drawn again. Earlier draws are in no part, and are
        dropped with other leftovers of a killed run.
        """
        state, noted = unfinished.folder / STATE, unfinished.read_notes()
        if noted.get("measured") is True:
            # of a run that was killed: nothing is drawn twice and kept
            for attempt in state.glob("attempt-*"):
                shutil.rmtree(attempt)
            for number, request in enumerate(self.steps):
                _resume_request(request, state / f"above-{number}.npy", noted["secure"] is True)
            return
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        drawn = []
        for asked, steps in zip(self.plan.requests, self.steps, strict=True):
            progress(f"measuring {asked.name}", 0, None)
            drawn.append(steps.add_noise(randomness))
        for number, vector in enumerate(drawn):
            np.save(state / f"above-{number}.npy", vector, allow_pickle=False)
        if self.cut is None:
            # The exact totals too: they are what the charge was made for publishing.
            public = {"plan": self.plan.to_json(), **scope_json(self.scope)}
            (state / _PUBLIC).write_text(json.dumps(public), encoding="utf-8", newline="\n")
        else:
            # made here: a task makes no folder but in its own attempt
            for node in range(self.nodes):
                folder = unfinished.folder / part_folder(self.schema, self.cut, node)
                folder.parent.mkdir(parents=True, exist_ok=True)
        # On the disk before it is noted: the note promises that nothing has to be drawn a second
        # time.
        durable(unfinished.folder)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        unfinished.note(**about, measured=True, created=created)
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
        """Yield the task of each part. A task that only measures has no fits."""
        if self.cut is None or self.partition is None:
            return
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
    def partition(self) -> str | None:
        """The name of the depth at which it is cut; None if it is not."""
        return None if self.cut is None else self.cut.name(self.schema)

    def refuse_place(self, work: Path, form: Form | None, shown: Presentation) -> None:
        """Refuse an output folder that cannot hold the files and folders of a release, before
        any charge.
        """
        if self.cut is None:
            refuse_files(self.plan, self.schema, work, form, presentation=shown)
            return
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
                # All folders stand at once, so two labels that the file system takes for one
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
) -> PreparedBlocks:
    """Read the public facts and the tables at the cut, and calibrate the noise of the whole; draw
    nothing.
    """
    if plan.microdata is not None:
        raise InputError("microdata are released in one piece: leave the partition out")
    for request in plan.requests:
        request.refuse_parts()
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(
            f"the number of worker processes is a whole number, at least 1, not {jobs!r}"
        )
    scope, reader = survey(plan, source, memory, partition, jobs)
    schema = scope.dataspace.schema
    cut = Cut.from_name(schema, partition)
    # Linked tables, which are none of the plan's alone, see for themselves what is below the cut.
    if plan.units is None and not any(
        cut.reaches(schema.view(table.features)) for table in plan.tables
    ):
        raise InputError(
            f"no table is finer than {partition!r}, so there is nothing to release part by part"
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
            with advise_on_missing(plan):
                values = request.read(reader, scope, mechanism.space)
            cut_up = InOnePiece(request, mechanism, scope, values, (request.name,))
        steps.append(cut_up)
    foreseen = tuple(sentence for request in steps for sentence in request.foreseen)
    return PreparedBlocks(
        plan=plan,
        scope=evolve(scope, warnings=(*scope.warnings, *foreseen)),
        mechanisms=tuple(mechanisms),
        guarantee=Guarantee.compose(*(mechanism.guarantee for mechanism in mechanisms)),
        values=tuple(request.values for request in steps),
        choices=choices,
        cut=cut,
        steps=tuple(steps),
        foreseen=foreseen,
    )


def prepare_whole(plan: Plan, data: Any, options: RunOptions) -> PreparedBlocks:
    """Prepare a plan in one piece: everything is one block."""
    prepared = prepare(plan, data, memory=options.memory)
    refuse_presentation(prepared, options.resolved_presentation)
    alike = tuple(lookalikes(prepared.scope.dataspace.schema))
    return _as_one_block(prepared, prepared.values, alike)


def restore_whole(unfinished: Unfinished) -> PreparedBlocks:
    """Return a measured plan in one piece as its run had prepared it, without its records,
    which are no longer needed.
    """
    try:
        document = from_json((unfinished.folder / STATE / _PUBLIC).read_bytes())
        plan = Plan.from_json(document["plan"])
        prepared = calibrate(plan, read_scope(document, plan))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        raise InputError(_DAMAGED) from None
    nothing = tuple(Confidential(np.zeros(0, np.int64)) for _ in prepared.plan.requests)
    return _as_one_block(prepared, nothing, ())


def _as_one_block(
    prepared: Prepared,
    values: tuple[Confidential[NDArray[np.int64]], ...],
    foreseen: tuple[str, ...],
) -> PreparedBlocks:
    steps = []
    for (request, mechanism), of_request in zip(prepared.calibrated_requests, values, strict=True):
        steps.append(InOnePiece(request, mechanism, prepared.scope, of_request))
    return PreparedBlocks(
        plan=prepared.plan,
        scope=prepared.scope,
        mechanisms=prepared.mechanisms,
        guarantee=prepared.guarantee,
        choices=prepared.choices,
        later=prepared.later,
        steps=tuple(steps),
        foreseen=foreseen,
    )


def _resume_request(request: StepsByParts, stored: Path, private: bool) -> None:
    """Read what was measured before the parts; refuse what is damaged."""
    try:
        noisy: NDArray[Any] = np.load(stored, allow_pickle=False)
        request.begin(noisy, private)
    except (ValueError, EOFError, OSError):
        raise InputError(_DAMAGED) from None


_R = TypeVar("_R", bound=ReleaseFiles)
_FORMAT = 6  # of what an unfinished release keeps


def run_blocks(
    kind: type[_R], plan: Plan | None, data: Any, options: RunOptions, partition: str | None
) -> _R:
    """Run a plan and write it to a folder, as `run_plan` does with a partition or a
    ledger.

    A resumed run needs no plan: it continues with its own.
    """
    if options.out is None:
        raise InputError("a release by parts is written as it is made: name its folder with ⟨out⟩")
    # Whoever carries out a part may be in another folder.
    out = Path(options.out) if partition is None else Path(options.out).absolute()
    with (
        charge_told(options.book),
        lasting_folder(
            out,
            resume=options.resume,
            force=options.force,
            ours=release_files,
            inputs=options.inputs,
            clear=_clear,
        ) as unfinished,
        contextlib.ExitStack() as opened,
    ):
        noted = unfinished.read_notes()
        if plan is None:
            plan, partition, options = _read_asked(noted, options)
        shown = options.resolved_presentation
        if partition is not None and (shown.workbook or shown.sdmx is not None):
            what = "a workbook is" if shown.workbook else "SDMX files are"
            raise InputError(
                f"{what} written of a release in one piece: leave that out, or the partition"
            )
        if noted.get("whole") is True:
            _refuse_other_plan(noted, plan, partition)
            release = _put_in_place(kind, options, unfinished)
        elif noted.get("measured") is True and noted.get("partition") is None:
            _refuse_other_plan(noted, plan, partition)
            run = restore_whole(unfinished)
            release = _carry_out(kind, plan, run, None, options, unfinished)
        else:
            run, source = _prepare(plan, data, options, partition, opened)
            release = _carry_out(kind, plan, run, source, options, unfinished)
    return release.with_folder(out)


def _put_in_place(kind: type[_R], options: RunOptions, unfinished: Unfinished) -> _R:
    """Return a release that is whole: all that is left to do is to put its folder in its place."""
    ledger, work = options.book, unfinished.folder
    place = str(Path(options.out or "").absolute())
    session = _resumed_session(kind, unfinished, ledger, place)
    release = kind.load(work)
    options.review(release.scope)
    if ledger is not None:
        ledger.take_over(session)
    options.finish(work, sorted(_passing(work)))
    if ledger is not None:
        ledger.finish(session, release.measured_digest)
    return release


def _prepare(
    plan: Plan, data: Any, options: RunOptions, partition: str | None, opened: contextlib.ExitStack
) -> tuple[PreparedBlocks, Any]:
    """Read what a plan needs; return it prepared, and its records where parts read them later."""
    if data is None:
        raise InputError(
            "not all of the unfinished release is measured: give its records again", needs="data"
        )
    options.progress("reading the records", 0, None)
    if partition is None:
        return prepare_whole(plan, data, options), None
    source = opened.enter_context(open_records(plan, data))
    run = prepare_parts(plan, source, partition, jobs=options.jobs, memory=options.memory)
    refuse_presentation(run, options.resolved_presentation)
    choose_runner(source, options.jobs)  # refuses while nothing is charged
    return run, source


def _carry_out(
    kind: type[_R],
    plan: Plan,
    run: PreparedBlocks,
    source: Any,
    options: RunOptions,
    unfinished: Unfinished,
) -> _R:
    """Charge a prepared run, measure what is not measured yet, and publish it."""
    ledger, progress, randomness = options.book, options.progress, options.words
    work, place = unfinished.folder, str(Path(options.out or "").absolute())
    form = options.written_as or (None if run.cut is None else Form.parquet)
    about = _identify_release(plan, run, form, randomness)
    if options.resume:
        _refuse_other(unfinished.read_notes(), about)
        options.review(run.scope)
        session = _resumed_session(kind, unfinished, ledger, place)
    else:
        run.refuse_place(work, form, options.resolved_presentation)
        # What is foreseen to be published otherwise than was asked for is told before anything is
        # charged.
        options.tell((*run.foreseen, *options.review(run.scope)))
        # Noted before the charge: a run that is killed right after that is gone on with, and not
        # recharged.
        session = Session(unfinished.run_name, place=place)
        charging = None if ledger is None else ledger.account().id
        sessions = [] if ledger is None else [session.name]
        facts = {"ledger": None, "charging": charging, "sessions": sessions}
        unfinished.begin({**about, **facts, **_describe_options(options)})
    entry = _charged_once(run, unfinished, ledger, options.label, session, options.resume)
    run = run.draw_first_phase(randomness, progress)
    about = _identify_release(plan, run, form, randomness)
    run.measure(unfinished, randomness, progress, about)
    results, partition = _publish(run, source, form, options, unfinished)
    shown = options.resolved_presentation
    release = build_release(kind, run, results, entry, form, partition, shown)
    # Whenever it is finished, it is the release of what was measured then.
    release = evolve(release, created=unfinished.read_notes()["created"])
    release.write_files(work, progress)
    options.finish(work, sorted(_passing(work)))
    durable(work)
    unfinished.note(whole=True)
    if ledger is not None:
        ledger.finish(session, release.measured_digest)
    return release


def _publish(
    run: PreparedBlocks,
    source: Any,
    form: Form | None,
    options: RunOptions,
    unfinished: Unfinished,
) -> tuple[list[Published], Partition | None]:
    """Measure the parts, if there are any, and publish everything."""
    work, progress = unfinished.folder, options.progress
    if run.partition is None or form is None:
        for steps in run.steps:
            steps.settle(work, progress)
        return [steps.build_result((), work, progress) for steps in run.steps], None
    runner = choose_runner(source, options.jobs)
    # Where parts are published together, all of them are measured before any is fitted.
    if any(steps.is_fitted_jointly for steps in run.steps):
        measuring = run.tasks(unfinished, form, options.words, source, only_measured=True)
        _all_measured(measuring, runner, progress)
    for steps in run.steps:
        steps.settle(work, progress)
    tasks = run.tasks(unfinished, form, options.words, source)
    parts = _carried_out(tasks, runner, progress)
    results = [steps.build_result(parts, work, progress) for steps in run.steps]
    return results, Partition(run.partition, tuple(_write_rows(results, parts, work, form)))


# --- what a run notes -----------------------------------------------------------------------------


def _identify_release(
    plan: Plan, run: PreparedBlocks, form: Form | None, randomness: Randomness
) -> dict[str, Any]:
    """Return what identifies a release, so only the same one is resumed."""
    # A digest tells other totals apart, and leaves no count in the folder of a release that may
    # never be published.
    records = [mechanism.record() for mechanism in run.mechanisms]
    return {
        "format": _FORMAT,
        "version": __version__,
        "asked": _plain(plan.to_json()),
        "partition": run.partition,
        "totals": _hash(run.scope.dataspace.to_json()),
        "mechanisms": _hash(records),
        "secure": randomness.secure,
        "form": None if form is None else str(form),
    }


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _describe_options(options: RunOptions) -> dict[str, Any]:
    """Return what a later run needs to write the same release: how it is presented, and what the
    command line says of its own.
    """
    shown = options.resolved_presentation
    places = None if shown.places is None else shown.places.to_json()
    return {
        "presentation": shown.to_json(),
        "map": places,
        "label": options.label,
        "force": options.force,
        "command": _plain(options.command),
    }


def _read_asked(
    noted: Mapping[str, Any], options: RunOptions
) -> tuple[Plan, str | None, RunOptions]:
    """Return the plan and the partition of an unfinished run, and the options that it noted."""
    _refuse_other_version(noted)
    try:
        plan, shown = Plan.from_json(noted["asked"]), noted["presentation"]
        places = None
        if noted["map"] is not None:
            places = PlaceMap.from_json(noted["map"], shown.get("map_key"))
        as_noted = evolve(
            options,
            presentation=Presentation.from_json(shown, places),
            form=None if noted["form"] is None else form_named(noted["form"]),
            label=noted["label"],
        )
        return plan, noted["partition"], as_noted
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("the note of the unfinished release is damaged: discard it") from None


def _refuse_other_version(noted: Mapping[str, Any]) -> None:
    # Another version may calibrate otherwise: the stored noise would be another than is stated.
    if (noted.get("format"), noted.get("version")) != (_FORMAT, __version__):
        raise InputError(
            "the unfinished release was begun by another version of semidp: finish it with that one"
        )


def _refuse_other_plan(noted: Mapping[str, Any], plan: Plan, partition: str | None) -> None:
    _refuse_other_version(noted)
    if noted.get("asked") != _plain(plan.to_json()):
        raise _other("another plan")
    if noted.get("partition") != partition:
        raise _other("another partition")


def _other(what: str) -> InputError:
    return InputError(
        f"the unfinished release has {what}: go on with what it was begun with, or discard it"
    )


def _refuse_other(noted: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Refuse to go on with a release that was begun with something else."""
    _refuse_other_version(noted)
    drawn = noted.get("measured") is True and noted.get("partition") is None
    for key, what in (
        ("asked", "another plan"),
        ("partition", "another partition"),
        ("totals", "other exact totals"),
        ("form", "another form of files"),
        ("mechanisms", "other noise than this machine would calibrate"),
        ("secure", "another source of random numbers"),
    ):
        # Where everything is measured, nothing is drawn any more.
        if noted.get(key) != about[key] and not (drawn and key == "secure"):
            raise _other(what)


def _resumed_session(
    kind: type[ReleaseFiles], unfinished: Unfinished, ledger: Ledger | None, place: str
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
        return Session(unfinished.run_name, earlier, place=place)
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
    session = Session(unfinished.run_name, earlier, measured, place=place)
    # Noted before the ledger has it: a run that is killed in between is still the latest.
    unfinished.note(sessions=[*earlier, session.name])
    return session


def _charged_once(
    run: PreparedBlocks,
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
        entry = charge_ledger(run, ledger, label, session)
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
        complete.append(evolve(part, files=dict(sorted(files.items())), tables=tuple(tables)))
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
        changed = Partition("", tuple(done.values()), all_tasks[0].work).find_changed_file()
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

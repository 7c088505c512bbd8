"""A plan that is prepared to be carried out block by block: one block, or one for what is at a cut
and above and one for each part below it.

What was measured is kept in the folder of the run, so that a run that ends early goes on from
there: a release in one piece without its records.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.documents import from_json
from semidp.promise.files import link
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.schema.schema import Schema
from semidp.publish.budgets import best_answered, calibrate_separately, solve_target_errors
from semidp.publish.folders import Unfinished, durable
from semidp.publish.linked_survey import linked_survey
from semidp.publish.missing_outcomes import advise_on_missing
from semidp.publish.parts.runners import InOnePiece
from semidp.publish.pipeline import Prepared, RunOptions, calibrate, prepare, refuse_presentation
from semidp.publish.plan import Plan
from semidp.publish.presentation import Presentation
from semidp.publish.release_files import read_scope, scope_json
from semidp.publish.resources import refuse_files
from semidp.publish.results.columns import Form
from semidp.publish.selection import with_exact_claim
from semidp.publish.sources.reader import cut_to_available
from semidp.publish.statistics.parts import STATE, PartTask, part_folder, part_path
from semidp.publish.statistics.protocol.requests import StepsByParts, require_budget
from semidp.publish.survey import lookalikes, survey

_PUBLIC = "public.json"
"""The file, beside what was measured, of the plan and of what is public."""
_DAMAGED = "what was measured of the unfinished release is damaged: discard it"


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedBlocks(Prepared):
    """A prepared plan that is carried out block by block; nothing random has been drawn yet.

    Its mechanisms are calibrated to the whole plan. `steps` say of each request how it is
    carried out, in parts or beside them. `foreseen` is told before anything is charged. There is no
    `cut` where the plan is carried out in one piece.
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
        """Return the run with the tables that follow from its first phase, which is drawn here;
        itself where there is no second.

        What was drawn is stored with the second phase. A run that is killed before has published
        nothing of it, and draws both anew.
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
        """Measure what comes before the parts, which is all of a plan in one piece: draw and store
        it, or read it again.

        `about` identifies the release, whose tables may follow from what was drawn. Once it is
        noted that all of it is stored, nothing is drawn again. What was drawn before
        that is in no part, and is dropped with what else a run that was killed has left.
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
        """Yield the task of each part. A task that only measures knows nothing of fits."""
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
        """The name of the depth at which it is cut; None where it is not."""
        return None if self.cut is None else self.cut.name(self.schema)

    def refuse_place(self, work: Path, form: Form | None, shown: Presentation) -> None:
        """Refuse a place that cannot take the files and folders of a release, while nothing is
        charged.
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
) -> PreparedBlocks:
    """Read what is public, and the tables at the cut, and calibrate the noise of the whole; nothing
    is drawn.
    """
    if plan.microdata is not None:
        raise InputError("microdata are released in one piece: leave the partition out")
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
            with advise_on_missing(plan):
                values = request.read(reader, scope, mechanism.space)
            cut_up = InOnePiece(request, mechanism, scope, values, (request.name,))
        steps.append(cut_up)
    foreseen = tuple(sentence for request in steps for sentence in request.foreseen)
    return PreparedBlocks(
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


def prepare_whole(plan: Plan, data: Any, options: RunOptions) -> PreparedBlocks:
    """Prepare a plan that is carried out in one piece: everything is one block."""
    prepared = prepare(plan, data, memory=options.memory)
    refuse_presentation(prepared, options.resolved_presentation)
    alike = tuple(lookalikes(prepared.scope.dataspace.schema))
    return _as_one_block(prepared, prepared.values, alike)


def restore_whole(unfinished: Unfinished) -> PreparedBlocks:
    """Return a plan in one piece that was measured, as its run had prepared it: without its
    records, which nothing needs any more.
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

"""From a plan and data to a release. Read this module first.

`prepare` reads the public facts, calibrates a mechanism for every request and states the guarantee;
`run_plan` charges it, draws the noise and publishes, in one piece or part by part. Rehearsals,
audits and tests use prepared plans. `RunOptions` says how to run a plan: nothing in it changes what
a release guarantees.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp._version import __version__
from semidp.errors import InputError
from semidp.promise.accounting.ledger import Ledger, Session
from semidp.promise.confidential import Confidential
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.promise.progress import Progress, silent
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.claim_guard import refuse_false_claim
from semidp.publish.folders import new_folder
from semidp.publish.plan import Plan
from semidp.publish.plan_changes import (
    advise_on_missing,
    best_answered,
    calibrate_separately,
    solve_target_errors,
)
from semidp.publish.presentation import AS_USUAL, Presentation, check_installed
from semidp.publish.release_files import ReleaseFiles, release_files
from semidp.publish.release_value import (
    calibrate_request,
    compose_guarantees,
    has_noisy_bins,
    publish,
)
from semidp.publish.resources import refuse_files, refuse_map, refuse_sheets
from semidp.publish.results.columns import Form, form_named
from semidp.publish.side_information import naive_tradeoff, other_guarantee
from semidp.publish.sources.opening import Source, open_source
from semidp.publish.statistics.parts import Partition
from semidp.publish.statistics.protocol.requests import (
    Published,
    Request,
    RequestMeasurement,
    naive_record_tradeoff,
    require_budget,
)
from semidp.publish.survey import linked_records, lookalikes, survey

if TYPE_CHECKING:
    from semidp.publish.phases import PairsToCome

_R = TypeVar("_R", bound=ReleaseFiles)
CHARGE_STANDS = "the ledger was charged all the same"
"""The note of an error in a release that has charged its ledger: noise may have been drawn, so the
charge stands."""
CHARGE_IN_DOUBT = "the ledger may have been charged: look at it once it can be read"
"""The same if the ledger failed in the middle of a charge and cannot be read."""
_DEPENDENCIES = (
    "numpy",
    "scipy",
    "duckdb",
    "python-flint",
    "ortools",
    "dp-accounting",
    "matplotlib",
    "openpyxl",
)


def _nothing_to_finish(folder: Path, passing: Collection[str]) -> None:
    """Leave a folder as it was written."""


def _nobody_told(sentences: Sequence[str]) -> None:
    """Say nothing."""


def _nothing_reviewed(scope: Scope) -> Sequence[str]:
    """Find nothing."""
    return ()


@frozen(eq=False, kw_only=True)
class RunOptions:
    """How to run a plan.

    Parameters
    ----------
    randomness
        Where random words come from (default: the operating system). Any other marks the release
        not private.
    ledger
        The ledger to charge with the composed guarantee before any noise is drawn: a `Ledger`, or
        its path.
    label
        The name of the charge in the ledger (default: a description of the release).
    memory
        The bytes that may be used, by all workers together (default: all of the machine).
    form
        How tables are written: CSV or Parquet (default: by their size, and Parquet by
        parts).
    progress
        Called with progress.
    out
        Output folder; appears only when complete. Without it nothing is written until
        `Release.save`.
    force
        Replace a release at `out`.
    inputs
        Files that are still needed: a folder that holds one is not replaced.
    finish
        Called with the folder before it is put in place, for example to sign it, and with the
        files that will not be part of it.
    tell
        Called before anything is charged with the levels that look alike, and with the tables
        for which whole numbers with all totals may not be found.
    review
        Called before anything is charged, with the public facts only, for further sentences.
    jobs
        By parts: the number of worker processes; 1 runs the parts in this process. With more, the
        data must be a file or an address.
    presentation
        The text next to the numbers, and how they are shown: ``title``, ``contact``, ``notes``,
        ``round_to``, ``mark_below``, and ``workbook`` for an Excel file of all tables; a mapping of
        those that are given.
    resume
        Resume a release that ended early, by parts or with a ledger. Nothing is measured or charged
        again. The plan and the public totals must be the same, which is checked. Records that are
        still to be measured must be the same too, which cannot be checked: with other records one
        person could be measured twice. Give the same ledger again; one that was not charged yet is
        charged first. `Release.discard_unfinished` removes such a release.
    command
        The command line's own note, for resuming the release without its options.

    Examples
    --------
    >>> RunOptions(jobs=2).resume
    False
    >>> RunOptions(ledger=3)
    Traceback (most recent call last):
    semidp.errors.InputError: a ledger is a Ledger or the path of one, not 3
    """

    randomness: Randomness | None = None
    ledger: Ledger | Path | str | None = None
    label: str | None = None
    memory: int | None = None
    form: Form | str | None = None
    progress: Progress = silent
    out: Path | str | None = None
    force: bool = False
    inputs: Iterable[str | Path] = ()
    finish: Callable[[Path, Collection[str]], None] = _nothing_to_finish
    tell: Callable[[Sequence[str]], None] = _nobody_told
    review: Callable[[Scope], Sequence[str]] = _nothing_reviewed
    jobs: int = 1
    resume: bool = False
    command: Mapping[str, Any] = field(factory=dict)
    presentation: Presentation | Mapping[str, Any] = AS_USUAL

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.ledger, (Ledger, Path, str, type(None))):
            raise InputError(f"a ledger is a Ledger or the path of one, not {self.ledger!r}")
        if self.resolved_presentation.workbook:
            check_installed()

    @classmethod
    def from_value(cls, value: "RunOptions | Randomness | None") -> "RunOptions":
        """Return options; a bare source of random words gets defaults for all others."""
        if isinstance(value, RunOptions):
            return value
        # Randomness is a protocol: whoever has `secure` says where words come from.
        if value is not None and not hasattr(value, "secure"):
            raise InputError(
                f"options are RunOptions(...) or a source of randomness, not {value!r}"
            )
        return cls(randomness=value)

    @property
    def words(self) -> Randomness:
        """The source of random words."""
        return SystemRandomness() if self.randomness is None else self.randomness

    @property
    def book(self) -> Ledger | None:
        """The ledger that is charged."""
        return Ledger(self.ledger) if isinstance(self.ledger, (Path, str)) else self.ledger

    @property
    def resolved_presentation(self) -> Presentation:
        """How the release is presented."""
        chosen = self.presentation
        return chosen if isinstance(chosen, Presentation) else Presentation.from_value(chosen)

    @property
    def written_as(self) -> Form | None:
        """Form of the files of tables; None if none was chosen."""
        return None if self.form is None else form_named(self.form)

    def refuse_parts(self) -> None:
        """Refuse options that only a release by parts can use."""
        if self.jobs != 1:
            raise InputError("jobs are for a release by parts: give partition too")


@frozen(eq=False)
class Prepared:
    """A plan run up to the first random number: everything in it but `values` is public.

    Parameters
    ----------
    plan
        The plan; if it has target errors, with the budget that meets them.
    scope
        What is public: the totals, a(t), the adjacency.
    mechanisms
        One for each request of the plan, calibrated.
    guarantee
        What all of them guarantee together.
    values
        The confidential values of each request's query.
    choices
        How public numbers decided the answers to requests that leave it open: one sentence each.
    later
        For microdata, the second phase, which the guarantee covers but the requests do not hold
        yet.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))],
    ...     ["sex", "region"],
    ... )
    >>> prepared = semidp.prepare(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> prepared.mechanisms[0].name, prepared.guarantee.tradeoff.mu
    ('rounded gaussian', Fraction(1, 1))
    """

    plan: Plan
    scope: Scope
    mechanisms: tuple[Mechanism, ...]
    guarantee: Guarantee
    values: tuple[Confidential[NDArray[np.int64]], ...] = field(default=(), repr=False)
    choices: tuple[str, ...] = ()
    later: "PairsToCome | None" = field(default=None, repr=False)

    @property
    def calibrated_requests(self) -> tuple[tuple[Request, Mechanism], ...]:
        """Each request with its mechanism."""
        return tuple(zip(self.plan.requests, self.mechanisms, strict=True))

    @property
    def other_adjacency_guarantee(self) -> Guarantee | None:
        """What the same noise guarantees under the other adjacency; None if that is not
        known.
        """
        if self.later is not None or has_noisy_bins(self.plan):
            return None
        return other_guarantee(self.mechanisms, self.scope, bool(self.plan.outcomes))

    @property
    def naive_tradeoff(self) -> Tradeoff | None:
        """What the noise would seem to guarantee for one record if the exact totals were
        ignored.
        """
        if self.later is not None:
            return None
        return naive_tradeoff(self.scope.dataspace, map(naive_record_tradeoff, self.mechanisms))


@contextlib.contextmanager
def open_records(plan: Plan, data: Any) -> Iterator[Any]:
    """Yield the records of a plan, from an open source or from one that is opened and closed
    here.
    """
    if plan.units is not None:
        with linked_records(plan, plan.units, data) as both:
            yield both
        return
    if not isinstance(data, Source):
        opening = partial(
            open_source, count=plan.count, where=plan.where, id=plan.id, most=plan.most
        )
        with opening(data, read_as=plan.read_as) as source:
            yield source
        return
    # The plan is published and says how records were chosen: a source that was opened otherwise
    # would make it untrue.
    opened = (data.count, data.where, data.id, data.most, data.read_as)
    if opened != (plan.count, plan.where, plan.id, plan.most, plan.read_as):
        raise InputError(
            "the source was opened with another count, where, id, most or read_as than the plan"
            " has: open it as the plan says"
        )
    yield data


def prepare(plan: Plan, data: Any, *, memory: int | None = None) -> Prepared:
    """Read what a plan needs and calibrate everything it asks for; draw and spend
    nothing.

    Parameters
    ----------
    plan
        What to publish exactly and what with noise. Every request needs a budget.
    data
        A `Source`, or what `open_source` takes: a path, a data frame, an Ibis table. What is opened
        here is closed.
    memory
        The bytes that may be used, which a release must be expected to fit in
        (default: all of the machine).

    Examples
    --------
    >>> from semidp import Budget
    >>> from semidp.publish import TableRequest
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex", "region"])
    >>> prepared = prepare(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]})
    >>> prepared.scope.adjacency.a, [mechanism.scale for mechanism in prepared.mechanisms]
    (3, [2.0])
    """
    plan = plan.with_values_read()
    with open_records(plan, data) as source:
        _check(plan, plan.microdata is not None)
        scope, reader = survey(plan, source, memory)
        if plan.microdata is not None:
            # Imported when used: phases are prepared by the functions of this page.
            from semidp.publish.phases import prepare_phases

            return prepare_phases(plan, plan.microdata, scope, reader)
        # Budgets and noise follow from public values alone: confidential values are asked for after
        # both are settled, so they decide neither.
        plan, scope = calibrate_separately(solve_target_errors(plan, scope), scope)
        prepared = calibrate(plan, scope)
        with advise_on_missing(plan):
            values = tuple(
                request.read(reader, scope, mechanism.space)
                for request, mechanism in prepared.calibrated_requests
            )
    return evolve(prepared, values=values)


def calibrate(
    plan: Plan,
    scope: Scope,
    space: Callable[[Request, Scope], QuerySpace] = lambda request, scope: request.space(scope),
) -> Prepared:
    """Return a plan prepared from public values alone, for rehearsals and
    audits.

    Parameters
    ----------
    plan, scope
        What is asked for, and what is public.
    space
        The function that finds the query space of a request; callers that try many budgets cache
        it.
    """
    _check(plan)
    choices: tuple[str, ...] = ()
    if any(request.answering_kind != request.key for request in plan.requests):
        plan, choices = best_answered(plan, scope, space)
    mechanisms = []
    for request in plan.requests:
        require_budget(request)
        mechanisms.append(calibrate_request(plan, request, space(request, scope)))
    guarantee = compose_guarantees(plan, (mechanism.guarantee for mechanism in mechanisms))
    return Prepared(plan, scope, tuple(mechanisms), guarantee, choices=choices)


def run_plan(
    kind: type[_R],
    plan: Plan | None,
    data: Any,
    options: RunOptions | Randomness | None = None,
    partition: str | None = None,
) -> _R:
    """Run a plan, and return a release of the given class, which draws its own report;
    see `semidp.run`.

    A resumed run continues with its own plan if none is given, and needs no data once everything is
    measured.
    """
    how = RunOptions.from_value(options)
    plan = None if plan is None else plan.with_values_read()
    if partition is None and plan is not None:
        how.refuse_parts()
    # What is paid for must not be lost: it is kept in a folder that outlasts the run.
    is_kept = partition is not None or (how.out is not None and how.ledger is not None)
    if how.resume or is_kept or plan is None:
        # Imported when used: blocks are prepared and charged by the functions of this page.
        from semidp.publish.block_run import run_blocks

        return run_blocks(kind, plan, data, how, partition)
    if how.out is None:
        return _in_one_piece(kind, plan, data, how)
    # The place is claimed before any record is read: a release that cannot be written is not
    # charged.
    with new_folder(how.out, force=how.force, ours=release_files, inputs=how.inputs) as folder:
        release = _in_one_piece(kind, plan, data, how, folder)
        release.write_files(folder, how.progress)
        # Before the folder takes its place: nobody sees a release whose signature is still to come.
        how.finish(folder, ())
    return release


def _in_one_piece(
    kind: type[_R], plan: Plan, data: Any, options: RunOptions, folder: Path | None = None
) -> _R:
    """Return the release of a plan, which will be written to a folder, if one is given.

    Before the ledger is charged, the folder must take files of these names and this size.
    """
    progress, ledger, form = options.progress, options.book, options.written_as
    progress("reading the records", 0, None)
    prepared = prepare(plan, data, memory=options.memory)
    if folder is not None:
        schema, shown = prepared.scope.dataspace.schema, options.resolved_presentation
        refuse_files(prepared.plan, schema, folder, form, presentation=shown)
    refuse_presentation(prepared, options.resolved_presentation)
    options.tell((*lookalikes(prepared.scope.dataspace.schema), *options.review(prepared.scope)))
    session = None if ledger is None else Session()
    with charge_told(ledger):
        # A fit may fail after the noise is drawn: whatever fails from here on says that the charge
        # stands.
        entry, measurements = measure_prepared(prepared, options, ledger, session)
        if prepared.later is not None:
            later, first = prepared.later, (prepared.plan.requests, prepared.mechanisms)
            prepared, moved = later.prepare_pairs(*first, measurements)
            measurements = _draw(prepared, options, moved)
        # The confidential values end here, and so does the memory that they take.
        prepared = evolve(prepared, values=())
        measured = map(RequestMeasurement, prepared.mechanisms, measurements)
        results = publish(prepared.plan, prepared.scope, tuple(measured), progress=progress)
        release = build_release(
            kind, prepared, results, entry, form, presentation=options.resolved_presentation
        )
        if ledger is not None and session is not None:
            ledger.finish(session, release.measured_digest)
    return release


def refuse_presentation(prepared: Prepared, shown: Presentation) -> None:
    """Refuse a workbook or a map that cannot hold the release, before any charge."""
    if shown.workbook:
        refuse_sheets(prepared.plan, prepared.scope.dataspace)
    if shown.places is not None:
        refuse_map(shown.places, prepared.scope.dataspace)


def measure_prepared(
    prepared: Prepared, options: RunOptions, ledger: Ledger | None, session: Session | None = None
) -> tuple[Mapping[str, Any] | None, list[Measurement]]:
    """Charge a prepared plan, then draw all noise; return the ledger's entry and the
    measurements.
    """
    with charge_told(ledger):
        # Charged before the first random number: a run that dies in between has spent its share,
        # which is the safe side.
        entry = charge_ledger(prepared, ledger, options.label, session)
        return entry, _draw(prepared, options)


def _draw(
    prepared: Prepared, options: RunOptions, moved: Sequence[NDArray[np.int64]] = ()
) -> list[Measurement]:
    """Draw all noise; the first requests may be measured already, in an earlier phase."""
    progress, randomness = options.progress, options.words
    measurements = []
    pairs = zip(prepared.calibrated_requests, prepared.values, strict=True)
    for place, ((request, mechanism), values) in enumerate(pairs):
        if place < len(moved):
            measurements.append(mechanism.restore_measurement(moved[place], randomness.secure))
            continue
        progress(f"measuring {request.name}", 0, None)
        measurements.append(mechanism.reporting(progress).measure(values, randomness))
    return measurements


def charge_ledger(
    prepared: Prepared,
    ledger: Ledger | None,
    label: str | None = None,
    session: Session | None = None,
) -> Mapping[str, Any] | None:
    """Charge a prepared plan to a ledger, if there is one, and return its entry; charge the run
    of a session only once.
    """
    for mechanism in prepared.mechanisms:
        refuse_false_claim(mechanism)
    if ledger is None:
        return None
    # From these records a ledger recomputes the charge when another release publishes other
    # totals exactly; a charge without them can never be computed again.
    records: list[dict[str, Any]] = [mechanism.record() for mechanism in prepared.mechanisms]
    plan = prepared.plan
    if prepared.later is not None:
        # The query of the second phase is not known yet.
        records.append({"query": None})
    if plan.where is not None:
        records = [{**record, "where": plan.where} for record in records]
    return ledger.charge(
        prepared.guarantee, label or charge_label(plan), records, session, plan.period
    )


@contextlib.contextmanager
def charge_told(ledger: Ledger | None) -> Iterator[None]:
    """Add to any error in the block that the ledger was charged, if the block has charged
    it.
    """
    before = () if ledger is None else ledger.own_charges
    try:
        yield
    except BaseException as error:
        # An interrupt after the charge must say so, too. Blocks of this kind lie in each other, and
        # the note is added once.
        note = charge_note(ledger, before)
        if note is not None and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def charge_note(ledger: Ledger | None, before: Collection[str] = ()) -> str | None:
    """Return the note on a ledger if more was charged than `before`, or may have been."""
    if ledger is None or ledger.own_charges == before:
        return None
    return CHARGE_IN_DOUBT if ledger.is_in_doubt else CHARGE_STANDS


def build_release(
    kind: type[_R],
    prepared: Prepared,
    results: Iterable[Published],
    entry: Mapping[str, Any] | None,
    form: Form | None,
    partition: Partition | None = None,
    presentation: Presentation = AS_USUAL,
) -> _R:
    """Return the release of what is published."""
    published = tuple(results)
    told = [sentence for result in published for sentence in result.warnings()]
    return kind(
        plan=prepared.plan,
        scope=evolve(prepared.scope, warnings=(*prepared.scope.warnings, *told)),
        published=partial(tuple, published),
        stated=prepared.guarantee,
        private=all(result.private for result in published),
        ledger=entry,
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        form=form,
        partition=partition,
        presentation=presentation,
    )


def charge_label(plan: Plan) -> str:
    """Describe a release for a ledger.

    >>> from semidp.publish import TableRequest
    >>> charge_label(Plan([TableRequest(["sex", "region"])]))
    'table (sex × region)'
    """
    if plan.microdata is not None:
        return f"microdata ({', '.join(plan.microdata.columns)})"
    return ", ".join(
        f"{request.name} ({' × '.join(dict.fromkeys(request.features))})"
        for request in plan.requests
    )


def _check(plan: Plan, has_records: bool = False) -> None:
    if not plan.requests and not has_records:
        raise InputError(
            "the plan releases nothing: ask for a table, a statistic by groups or a regression",
            needs="request",
        )


def versions() -> dict[str, str]:
    """Return the versions of the software that a release depends on.

    >>> "semidp" in versions()
    True
    """
    packages = {"semidp": __version__}
    for name in _DEPENDENCIES:
        installed = _package_version(name)
        if installed is not None:
            packages[name] = installed
    return packages


@cache
def _package_version(name: str) -> str | None:
    """Version of an installed package, read once: parsing its metadata takes milliseconds."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None

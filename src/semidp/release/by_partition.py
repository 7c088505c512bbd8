"""A release part by part: everything at the cut and above first, then a task for each node below it.

`run_partitioned` does what `run` does for tables that one machine does not hold. The guarantee is that of one
measurement of all residuals, whoever draws them: noise is calibrated to the whole product, never to a part.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp._version import __version__
from semidp.accounting.ledger import Ledger
from semidp.engines import Source
from semidp.errors import InputError, Refused
from semidp.files import document_at, durable, lasting_folder
from semidp.geometry import View
from semidp.guarantees import Guarantee
from semidp.mechanisms import ResidualMechanism
from semidp.mechanisms.branches import mechanism_above
from semidp.noise import Randomness, SystemRandomness
from semidp.progress import Progress, silent
from semidp.queries.branches import Cut
from semidp.release.cells import Form, StoredFiles, form_named
from semidp.release.needs import refuse_files
from semidp.release.part_tasks import PART_DONE, STATE, PartTask, RequestTask, done_before
from semidp.release.partitions import (
    BEGUN,
    Asked,
    Part,
    Partition,
    PartitionedTables,
    as_product,
    overview_names,
    part_folder,
    part_path,
    refuse_apart,
    tables_asked,
)
from semidp.release.pipeline import Prepared, charge_told, charged, put_together, records_of
from semidp.release.plan import Plan
from semidp.release.products import fitted_tables
from semidp.release.published import FitKind, measured_by, read_residuals, residual_columns
from semidp.release.release import Release, release_files
from semidp.release.requests import budget_of
from semidp.release.runners import Runner, runner_for
from semidp.release.scope import at_hand, survey
from semidp.tables import Schema, Table

_FORMAT = 1
_LARGEST = 2**62


def run_partitioned(
    plan: Plan,
    data: Any,
    out: Path | str,
    partition: str,
    *,
    jobs: int = 1,
    resume: bool = False,
    discard: bool = False,
    force: bool = False,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
    label: str | None = None,
    memory: int | None = None,
    form: Form | str | None = None,
    inputs: Iterable[str | Path] = (),
    finish: Callable[[Path, Collection[str]], None] = lambda folder, passing: None,
    progress: Progress = silent,
) -> Release:
    """Carry out a plan of tables part by part, and write it to a folder.

    Every table is measured and fitted at the partition's depth and above first, under all exact totals that cross
    parts; below it, each part is measured and fitted from its own records and from public numbers. The measurement is
    that of the whole product, so that the guarantee is too.

    Parameters
    ----------
    plan
        The tables, each with a budget or with a shared one: zCDP, GDP or (ε, δ).
    data
        A `Source`, or what `open_source` takes. Of a source on Spark, the parts are carried out by its executors.
    out
        The folder to write: whole, or not at all.
    partition
        A depth of a nested feature, with a finer one in the tables.
    jobs
        The number of worker processes; with 1 parts are carried out here. The data must be a file or an address then.
    resume
        Go on with a release that ended before it was whole: what was measured is not measured again, and nothing is
        charged again. The plan and the public totals must be the same, and so must the records: nothing is kept that
        could tell, and with others in part of the release one person could be in what two measurements say.
    discard
        Remove what such a release has left, and begin anew.
    force
        Replace a release at `out`.
    randomness, ledger, label, memory, progress
        As for `run`; the memory is that of all workers together.
    form
        How tables are written, Parquet unless given.
    inputs
        Files that are still needed, which a folder that is replaced must not hold.
    finish
        What is done to the folder before it takes its place, such as to sign it; it is told of files that will not be
        part of it.

    Returns
    -------
    Release
        With the tables at the cut; those of a part are read by `Release.part`.

    Examples
    --------
    >>> import semidp, tempfile
    >>> people = {"state": [*"aabb"] * 9, "county": ["a1", "a2", "b1", "b1"] * 9, "sex": [*"fmfm"] * 9}
    >>> plan = semidp.Plan([semidp.TableRequest(["county", "sex"], semidp.Budget.gdp(1))], ["county"],
    ...     features=[semidp.Feature("sex", "fm"),
    ...         semidp.Feature.nested(["state", "county"], [("a", "a1"), ("a", "a2"), ("b", "b1")])])
    >>> with tempfile.TemporaryDirectory() as root:
    ...     release = run_partitioned(plan, people, f"{root}/release", "state")
    ...     [part.folder for part in release.partition.parts], release.part("a")["table"].counts.sum(axis=1)
    (['state=a', 'state=b'], array([9, 9]))
    """
    out = Path(out).absolute()  # whoever carries out a part may be in another folder
    randomness = SystemRandomness() if randomness is None else randomness
    written = Form.parquet if form is None else form_named(form)
    with records_of(plan, data) as source:
        progress("reading the records", 0, None)
        whole = prepare_parts(plan, source, partition, jobs=jobs, memory=memory)
        runner = runner_for(source, jobs)
        with lasting_folder(
            out,
            begun=BEGUN,
            resume=resume,
            discard=discard,
            force=force,
            ours=release_files,
            inputs=inputs,
            clear=_clear,
        ) as work:
            about, begun = _about(whole, written, randomness), document_at(work / BEGUN)
            if resume:
                entry = _entry_of(begun, about)
            else:
                whole.refuse_place(work, written)
                entry = charged(whole, ledger, label)
            if resume and begun.get("whole") is True:  # all that is left to do is to put the folder in its place
                release = Release.load(work)
                finish(work, sorted(_passing(work)))
            else:
                with charge_told(entry):
                    noisy = whole.measured(work, resume, randomness)
                    if not resume:
                        _note(work, {**about, "ledger": entry})
                        durable(work)
                    results = whole.at_cut(noisy, randomness.secure, progress)
                    parts = _carried_out(whole.tasks(results, work, written, randomness, source), runner, progress)
                    below = [table for part in parts for table in part.tables]
                    done = [
                        replace(one, noise=replace(one.noise, expected_l2=one.expected_l2(below))) for one in results
                    ]
                    release = put_together(whole, done, entry, written, Partition(whole.partition, tuple(parts)))
                    release.write_files(work, progress)
                    finish(work, sorted(_passing(work)))
                    durable(work)
                    _note(work, {**document_at(work / BEGUN), "whole": True})
    assert release.partition is not None
    return replace(release, partition=replace(release.partition, place=out))


@dataclass(frozen=True, eq=False, kw_only=True)
class Whole(Prepared):
    """A plan of tables that is to be carried out part by part, up to the first random number.

    Its mechanisms are calibrated to the whole. For each request it holds the confidential tables at the cut, where
    tables are taken apart, and as its values the residuals of those.
    """

    mechanisms: tuple[ResidualMechanism, ...]
    cut: Cut
    expected: tuple[Mapping[View, Table], ...] = field(repr=False)

    @property
    def requests(self) -> tuple[Asked, ...]:
        """The tables."""
        return tuple(request for request in self.plan.requests if isinstance(request, Asked))

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

    def measured(self, work: Path, again: bool, randomness: Randomness) -> list[NDArray[np.int64]]:
        """Return what was measured at the cut and above: drawn and stored, or read again."""
        found = []
        for attempt in (work / STATE).glob("attempt-*"):  # of a run that was killed: nothing is drawn twice and kept
            shutil.rmtree(attempt)
        for number, (mechanism, values) in enumerate(zip(self.mechanisms, self.values, strict=True)):
            above, stem = mechanism_above(mechanism, self.cut), f"above-{number}"
            if again:
                files = StoredFiles(work / STATE, (f"{stem}.{Form.parquet}",))
                try:
                    found.append(read_residuals(files, stem, above.space))
                except (ValueError, KeyError, OSError):
                    raise InputError("what was measured of the unfinished release is damaged: discard it") from None
                continue
            found.append(values + above.noise_by_residual(randomness.part(self.plan.requests[number].name)))
            (work / STATE).mkdir(exist_ok=True)
            residual_columns(above, found[-1]).write(work / STATE / f"{stem}.{Form.parquet}")
        return found

    def at_cut(self, noisy: Sequence[NDArray[np.int64]], private: bool, progress: Progress) -> list[PartitionedTables]:
        """Put the tables at the cut together, and fit them under every exact total."""
        found, schema, cut = [], self.schema, self.cut
        for request, mechanism, vector in zip(self.requests, self.mechanisms, noisy, strict=True):
            above, named = mechanism_above(mechanism, cut), self.names[request.name]
            kinds = []
            for _, view in named:
                fits = [table.fit for table in tables_asked(request) if cut.above(schema.view(table.features)) == view]
                kinds.append(FitKind.integer if FitKind.integer in fits else FitKind.none)
            found.append(
                PartitionedTables(
                    request=request,
                    mechanism=mechanism,
                    cut=cut,
                    noisy=vector,
                    overview=fitted_tables(above, above.publish(vector), [name for name, _ in named], kinds, progress),
                    **measured_by(request.name, mechanism, private, 0.0),  # what it costs is known when all is done
                )
            )
        return found

    def tasks(
        self,
        results: Sequence[PartitionedTables],
        work: Path,
        form: Form,
        randomness: Randomness,
        source: Source,
    ) -> Iterator[PartTask]:
        """Yield the task of each part."""
        feature = next((known for known in self.plan.features if self.partition in known.names), None)
        owner = self.schema.features[self.cut.axis] if feature is None else feature
        where = source.branches(at_hand(owner, self.partition, source.columns()), self.cut.depth)
        for node in range(self.nodes):
            declared = tuple(
                known.branch(self.cut.depth, node) if known is feature else known for known in self.plan.features
            )
            yield PartTask(
                path=part_path(self.schema, self.cut, node),
                work=work,
                folder=part_folder(self.schema, self.cut, node),
                schema=self.cut.branch(self.schema, node),
                declared=declared,
                cut=self.cut,
                exact=self.cut.exact(self.scope.dataspace, node),
                requests=tuple(
                    self._task(result, tables, node) for result, tables in zip(results, self.expected, strict=True)
                ),
                values=where.get(node),
                form=form,
                randomness=randomness,
            )

    def _task(self, result: PartitionedTables, expected: Mapping[View, Table], node: int) -> RequestTask:
        rows, wanted = result.rows(node), []
        for row in rows:
            view = self.cut.above(self.schema.view(row.asked.features))
            wanted.append(result.row(view, expected[view].counts, node))
        return RequestTask(result.request, tuple(rows), tuple(wanted), result.noise_of(node))

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
    assert schema is not None
    cut = Cut.at(schema, partition)
    if not any(cut.reaches(schema.view(table.features)) for table in plan.all_tables):
        raise InputError(f"no table is finer than {partition!r}, so that there is nothing to release part by part")
    mechanisms, expected, values = [], [], []
    for request in plan.requests:
        assert isinstance(request, Asked)
        budget_of(request)
        product = as_product(request)
        mechanisms.append(product.calibrate(product.space(scope)))
    for mechanism in mechanisms:
        for view in mechanism.space.measured:  # what a part would refuse when all is charged
            if (scope.dataspace.n or 0) * mechanism.space.residuals.largest_scale(view) >= _LARGEST:
                raise Refused("the counts times the numbers of levels do not fit in 62 bits: release smaller tables")
        space = mechanism_above(mechanism, cut).space
        tables = reader.tables(schema.named(view) for view in space.views)
        expected.append(dict(zip(space.views, tables, strict=True)))
        values.append(space.measure(tables))
    return Whole(
        plan=plan,
        scope=scope,
        mechanisms=tuple(mechanisms),
        guarantee=Guarantee.compose(*(mechanism.guarantee for mechanism in mechanisms)),
        values=tuple(values),
        cut=cut,
        expected=tuple(expected),
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


def _entry_of(begun: Mapping[str, Any], about: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the ledger's entry of the release that was begun; refuse another release."""
    if any(begun.get(key) != about[key] for key in ("format", "version")):
        raise InputError("the unfinished release was begun by another version of semidp: finish it with that one")
    for key, what in (
        ("plan", "another plan"),
        ("partition", "another partition"),
        ("totals", "other exact totals"),
        ("form", "another form of files"),
        ("secure", "another source of random numbers"),
    ):
        if begun.get(key) != about[key]:
            raise InputError(f"the unfinished release has {what}: go on with what it was begun with, or discard it")
    entry = begun.get("ledger")
    return entry if isinstance(entry, Mapping) else None


def _note(work: Path, document: Mapping[str, Any]) -> None:
    """Write what an unfinished release is and how far it got, whole or not at all."""
    (work / STATE / BEGUN).write_text(json.dumps(document), encoding="utf-8")
    durable(work / STATE)
    os.replace(work / STATE / BEGUN, work / BEGUN)


def _passing(work: Path) -> set[str]:
    """Return the files that only an unfinished release needs, as seen from its folder."""
    found = {BEGUN, *(path.relative_to(work).as_posix() for path in work.rglob(PART_DONE))}
    return found | {path.relative_to(work).as_posix() for path in (work / STATE).rglob("*") if path.is_file()}


def _clear(work: Path) -> None:
    """Remove what only an unfinished release needs, but for the file that says that it is one."""
    for name in _passing(work) - {BEGUN}:
        (work / name).unlink()
    shutil.rmtree(work / STATE, ignore_errors=True)


def _carried_out(tasks: Iterable[PartTask], runner: Runner, progress: Progress) -> list[Part]:
    """Carry out what is left to do, and return every part, in order."""
    wanted = list(tasks)
    found = {task.path: part for task in wanted if (part := done_before(task)) is not None}
    changed = Partition("", tuple(found.values()), wanted[0].work).changed() if found else None
    if changed is not None:
        raise InputError(f"{changed} of the unfinished release was changed since it was written: discard it")
    left = [task for task in wanted if task.path not in found]
    progress("carrying out the parts", len(found), len(wanted))
    for part in runner(left):
        found[part.path] = part
        progress("carrying out the parts", len(found), len(wanted))
    if any(done_before(task) != found[task.path] for task in left):
        raise InputError(
            "a part was written elsewhere: whoever carries out parts must share the folder that is written"
        )
    return [found[task.path] for task in wanted]

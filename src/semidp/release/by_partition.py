"""A release part by part: everything at the cut and above first, then a task for each node below it.

`run_partitioned` does what `run` does for tables that one machine does not hold. The guarantee is that of one
measurement of all residuals, whoever draws them: noise is calibrated to the whole product, never to a part.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from semidp._version import __version__
from semidp.accounting.ledger import Ledger
from semidp.engines import Source, open_source
from semidp.errors import InputError, Refused
from semidp.files import document_at, durable, lasting_folder
from semidp.geometry import View
from semidp.guarantees import Guarantee
from semidp.mechanisms import ResidualMechanism
from semidp.mechanisms.branches import mechanism_above
from semidp.noise import Randomness, SystemRandomness
from semidp.progress import Progress, silent
from semidp.queries.branches import Cut
from semidp.release.cells import Form, StoredFiles, form_named, named_files
from semidp.release.needs import needs_of, refuse_disk
from semidp.release.part_tasks import PART_DONE, STATE, PartTask, RequestTask, TableTask, done_before
from semidp.release.partitions import (
    BEGUN,
    Asked,
    Part,
    Partition,
    PartitionedTables,
    as_product,
    measurements_stem,
    noise_stated,
    overview_names,
    path_of,
    refuse_apart,
    tables_asked,
)
from semidp.release.pipeline import charge_label
from semidp.release.plan import Plan
from semidp.release.products import ProductTable, fit_product, totals_of
from semidp.release.published import FitKind, read_residuals, residual_columns
from semidp.release.release import Release, release_files, versions
from semidp.release.requests import budget_of
from semidp.release.runners import Runner, runner_for
from semidp.release.scope import Scope, at_hand, survey
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
    with contextlib.ExitStack() as opened:
        source = data
        if not isinstance(data, Source):
            source = opened.enter_context(open_source(data, count=plan.count, where=plan.where, id=plan.id))
        progress("reading the records", 0, None)
        whole = prepare_parts(plan, source, partition, jobs=jobs, memory=memory)
        runner = runner_for(source, jobs)
        place = lasting_folder(
            out,
            begun=BEGUN,
            resume=resume,
            discard=discard,
            force=force,
            ours=release_files,
            inputs=inputs,
            clear=_clear,
        )
        work = opened.enter_context(place)
        begun, entry = _Begun.of(whole, written, randomness), None
        if resume:
            entry = begun.found(work)
        else:
            whole.refuse_place(work, written)
            if ledger is not None:
                records = [mechanism.record() for mechanism in whole.mechanisms]
                entry = ledger.charge(whole.guarantee, label or charge_label(plan), records)
        if resume and begun.is_whole(work):
            release = Release.load(work)
            finish(work, sorted(_passing(work)))
        else:
            try:
                noisy = whole.measured(work, resume, randomness)
                if not resume:
                    begun.store(work, entry)
                results = whole.at_cut(noisy, randomness.secure, progress)
                parts = _carried_out(whole.tasks(results, work, written, randomness, source), runner, progress)
                release = whole.release(results, parts, entry, randomness.secure, written)
                release.write_files(work, progress)
                finish(work, sorted(_passing(work)))
                begun.mark_whole(work)
            except BaseException as error:
                if entry is not None:
                    error.add_note("The ledger was charged for this release all the same.")
                raise
    assert release.partition is not None
    return replace(release, partition=replace(release.partition, place=out))


@dataclass(frozen=True, eq=False)
class Whole:
    """A plan that is to be carried out part by part, up to the first random number.

    Parameters
    ----------
    plan, scope
        What is asked for, and what is public.
    cut
        Where tables are taken apart.
    requests, mechanisms
        The tables, and the noise of each request: calibrated to the whole.
    expected, values
        For each request the confidential tables at the cut, and their residuals.
    """

    plan: Plan
    scope: Scope
    cut: Cut
    requests: tuple[Asked, ...]
    mechanisms: tuple[ResidualMechanism, ...]
    expected: tuple[Mapping[View, Table], ...] = field(repr=False)
    values: tuple[NDArray[np.int64], ...] = field(repr=False)

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.mechanisms[0].space.schema

    @property
    def guarantee(self) -> Guarantee:
        """What everything guarantees together."""
        first, *others = (mechanism.guarantee for mechanism in self.mechanisms)
        return first.compose(*others)

    @property
    def nodes(self) -> int:
        """The number of parts."""
        return self.cut.chain(self.schema).size(self.cut.depth)

    @cached_property
    def names(self) -> list[list[tuple[str, View]]]:
        """For each request its tables at the cut, by what their files are called."""
        return overview_names(self.plan, self.schema, self.cut)

    def measured(self, work: Path, again: bool, randomness: Randomness) -> list[NDArray[np.int64]]:
        """Return what was measured at the cut and above: drawn and stored, or read again."""
        found = []
        for attempt in (work / STATE).glob("attempt-*"):  # of a run that was killed: nothing is drawn twice and kept
            shutil.rmtree(attempt)
        for number, (request, mechanism, values) in enumerate(
            zip(self.requests, self.mechanisms, self.values, strict=True)
        ):
            above = mechanism_above(mechanism, self.cut)
            stem = f"above-{number}"
            if again:
                files = StoredFiles(work / STATE, (f"{stem}.{Form.parquet}",))
                try:
                    found.append(read_residuals(files, stem, above.space))
                except (ValueError, KeyError, OSError):
                    raise InputError("what was measured of the unfinished release is damaged: discard it") from None
                continue
            found.append(values + above.noise_by_residual(randomness.part(request.name)))
            (work / STATE).mkdir(exist_ok=True)
            for name, columns in named_files({stem: residual_columns(above, found[-1])}, Form.parquet).items():
                columns.write(work / STATE / name)  # type: ignore[union-attr]
        return found

    def at_cut(self, noisy: Sequence[NDArray[np.int64]], private: bool, progress: Progress) -> list[PartitionedTables]:
        """Put the tables at the cut together, and fit them under every exact total."""
        found, schema, cut = [], self.schema, self.cut
        for request, mechanism, vector, named in zip(self.requests, self.mechanisms, noisy, self.names, strict=True):
            above = mechanism_above(mechanism, cut)
            estimates = above.space.estimates(above.publish(vector))
            kinds = []
            for _, view in named:
                fits = [table.fit for table in tables_asked(request) if cut.above(schema.view(table.features)) == view]
                kinds.append(FitKind.integer if FitKind.integer in fits else FitKind.none)
            fitted = fit_product(schema.grid, above.space.views, totals_of(above.space), estimates, kinds, progress)
            overview = [
                ProductTable(
                    name, schema.restrict(schema.named(view)), counts, estimate, above.table_errors(number), how
                )
                for number, ((name, view), estimate, (counts, how)) in enumerate(
                    zip(named, estimates, fitted, strict=True)
                )
            ]
            found.append(
                PartitionedTables(
                    name=request.name,
                    private=private,
                    request=request,
                    mechanism=mechanism,
                    cut=cut,
                    noisy=vector,
                    overview=tuple(overview),
                    **noise_stated(mechanism, 0.0),
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
            path = path_of(self.schema, self.cut, node)
            yield PartTask(
                path=path,
                work=work,
                folder=self._folder(path),
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
        tables, grid = [], self.schema.grid
        for table, (estimate, variance, counts, whole) in zip(result.below, result.rows(node), strict=True):
            view = self.cut.above(self.schema.view(table.features))
            confidential = np.reshape(expected[view].counts, grid.shape_of(view))
            tables.append(
                TableTask(
                    table.name,
                    table.features,
                    table.fit,
                    estimate,
                    variance,
                    counts if whole else None,
                    self.cut.row(grid, view, confidential, node),
                )
            )
        return RequestTask(result.name, measurements_stem(result.request), tuple(tables), result.noise_of(node))

    @property
    def partition(self) -> str:
        """The name of the depth at which it is cut."""
        return self.schema.features[self.cut.axis].names[self.cut.depth - 1]

    def _folder(self, path: Sequence[str]) -> str:
        names = self.schema.features[self.cut.axis].names
        return "/".join(f"{_escaped(name)}={_escaped(label)}" for name, label in zip(names, path, strict=False))

    def refuse_place(self, work: Path, form: Form) -> None:
        """Refuse a place that cannot take the folders of the parts or their size, while nothing is charged."""
        made = []
        stems = [name for names in self.names for name, _ in names]
        stems += [name.removesuffix(".csv") for request in self.requests for name in request.files]
        for stem in dict.fromkeys(stems):
            probe = work / f"{stem}.{Form.parquet}"
            try:
                probe.touch(exist_ok=False)
                probe.unlink()
            except (OSError, ValueError):
                raise InputError(
                    f"no file can be called {stem!r} in that folder: name the table otherwise, or its features"
                ) from None
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
        try:
            for node in range(self.nodes):
                folder = work / self._folder(path_of(self.schema, self.cut, node))
                folder.mkdir(parents=True)
                made.append(folder)
            for folder in reversed(made):
                folder.rmdir()
        except (OSError, ValueError):
            raise InputError(
                f"the parts of {self.partition!r} cannot all have folders of their own there: a label is too long, or "
                "two differ in nothing that the file system tells apart"
            ) from None
        refuse_disk(needs_of(self.plan, self.schema, False, form).disk, work)

    def release(
        self,
        results: Sequence[PartitionedTables],
        parts: Sequence[Part],
        entry: Mapping[str, Any] | None,
        private: bool,
        form: Form,
    ) -> Release:
        """Put the release together."""
        finished = []
        for result in results:
            own = {table.name for table in tables_asked(result.request)}
            variance = sum(table.variance for part in parts for table in part.tables if table.name in own)
            for table in result.overview:
                variance += float(np.square(table.standard_errors).sum()) if table.name in own else 0.0
            finished.append(replace(result, **noise_stated(result.mechanism, variance)))
        return Release(
            plan=self.plan,
            scope=self.scope,
            results=tuple(finished),
            guarantee=self.guarantee,
            private=private,
            ledger=entry,
            versions=versions(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            form=form,
            partition=Partition(self.partition, tuple(parts)),
        )


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
    requests = tuple(request for request in plan.requests if isinstance(request, Asked))
    mechanisms, expected, values = [], [], []
    for request in requests:
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
    return Whole(plan, scope, cut, requests, tuple(mechanisms), tuple(expected), tuple(values))


@dataclass(frozen=True)
class _Begun:
    """What an unfinished release is about, so that only the same one goes on with it."""

    plan: Mapping[str, Any]
    partition: str
    totals: str
    secure: bool
    form: str

    @classmethod
    def of(cls, whole: Whole, form: Form, randomness: Randomness) -> "_Begun":
        totals = json.dumps(whole.scope.dataspace.to_json(), sort_keys=True)
        plan = json.loads(json.dumps(whole.plan.to_json()))
        return cls(plan, whole.partition, hashlib.sha256(totals.encode()).hexdigest(), randomness.secure, str(form))

    def store(self, work: Path, entry: Mapping[str, Any] | None) -> None:
        """Say durably that everything at the cut has been measured."""
        document = {"format": _FORMAT, "version": __version__, **self.__dict__, "ledger": entry}
        (work / STATE / BEGUN).write_text(json.dumps(document), encoding="utf-8")
        durable(work / STATE)
        os.rename(work / STATE / BEGUN, work / BEGUN)
        durable(work)

    def mark_whole(self, work: Path) -> None:
        """Say durably that all files of the release are there."""
        durable(work)
        document = {**document_at(work / BEGUN), "whole": True}
        (work / STATE / BEGUN).write_text(json.dumps(document), encoding="utf-8")
        durable(work / STATE)
        os.replace(work / STATE / BEGUN, work / BEGUN)

    def is_whole(self, work: Path) -> bool:
        """Whether all that is left to do is to put the folder in its place."""
        return document_at(work / BEGUN).get("whole") is True

    def found(self, work: Path) -> Mapping[str, Any] | None:
        """Return the ledger's entry of the release that was begun; refuse another release."""
        document = document_at(work / BEGUN)
        if document.get("format") != _FORMAT or document.get("version") != __version__:
            raise InputError("the unfinished release was begun by another version of semidp: finish it with that one")
        for key, what in (
            ("plan", "another plan"),
            ("partition", "another partition"),
            ("totals", "other exact totals"),
            ("form", "another form of files"),
            ("secure", "another source of random numbers"),
        ):
            if document.get(key) != getattr(self, key):
                raise InputError(f"the unfinished release has {what}: go on with what it was begun with, or discard it")
        entry = document.get("ledger")
        return entry if isinstance(entry, Mapping) else None


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


def _escaped(text: str) -> str:
    """Return a name or a label as the name of a folder has it, in the way of Hive."""
    kept = quote(text, safe=" !$&()+,;@~-_.")
    return f"%{ord(kept[0]):02X}{kept[1:]}" if kept.startswith(".") else kept

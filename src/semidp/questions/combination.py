"""One best estimate from several releases of the same records, residual by residual.

Every measured table and every measured residual is an independent linear measurement with a known variance; exact
totals of any release bind all. The estimator is in `semidp.combining`; here releases become measurements, and estimates
become tables again.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.accounting.account import guarantee_together
from semidp.combining import CellSums, Estimate, Measurements, Observed, Places, Share, Within, estimate
from semidp.combining.classes import Classes
from semidp.core.guarantee import Guarantee
from semidp.core.margins import View
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.errors import AdjacencyUnknown, InputError, Refused
from semidp.fitting.tables import fit_table
from semidp.mechanisms.mechanism import CellByCell, NoNoise
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.output.files import new_folder, replace_file
from semidp.publishing.release import Release
from semidp.statistics.tables.published import CellTable, Fitted, PublishedTable

SUMMARY = "combination.json"
KIND = "combination"
MOST_CELLS, MOST_COUPLED = 2 * 10**7, 2000
"""Cells of all features together, and cells of features that unequal groups or structural zeros couple."""
_TELLING = 24
"""So many numbers of one measurement are not drawn alike twice."""
_UNCHECKED = (
    "That the releases are of the same records was checked by their number, their levels and their exact totals alone."
)


@frozen(eq=False)
class Combination:
    """Estimates from several releases of the same records; made by `combine`.

    Parameters
    ----------
    dataspace
        What all releases together publish exactly.
    tables
        Every table of any release: whole numbers, the combined estimate, its standard errors from the noise alone.
    releases
        How many releases were combined.
    private
        Whether the noise of all of them was drawn from the operating system.
    guarantee
        That of all releases together, each computed anew for all exact totals; None where they do not add up.
    notes
        What a reader must know: what could not be checked, and why no guarantee is stated.
    """

    dataspace: Dataspace
    tables: tuple[CellTable, ...]
    releases: int
    private: bool
    guarantee: Guarantee | None
    notes: tuple[str, ...]
    answer: Estimate = field(repr=False)

    @property
    def schema(self) -> Schema:
        """Features of all releases together."""
        assert self.dataspace.schema is not None
        return self.dataspace.schema

    def estimate(self, weights: Mapping[str, ArrayLike]) -> tuple[float, float]:
        """Return a weighted sum of cells, across tables, and its standard error from the noise alone.

        Parameters
        ----------
        weights
            For each table, by its name, a weight a cell.
        """
        table_of = {table.name: table for table in self.tables}
        cells = np.zeros(self.schema.shape)
        for name, array in weights.items():
            if name not in table_of:
                raise InputError(f"there is no table {name!r}; there are {', '.join(table_of)}")
            schema = table_of[name].schema
            weight = np.asarray(array, dtype=float)
            if weight.shape != schema.shape:
                raise InputError(f"the weights of {name!r} have shape {weight.shape}, but it has {schema.shape}")
            cells += _spread(weight, schema, self.schema)
        sums = self.answer.sums({0: Share([0], [0])}, cells[None])
        return float(sums.values[0, 0]), float(sums.standard_errors[0, 0])

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, as plain values."""
        tables = []
        for table in self.tables:
            largest = float(table.standard_errors.max(initial=0.0))
            names = list(table.schema.names)
            tables.append({"name": table.name, "features": names, "largest_standard_error": largest})
        return {
            "kind": KIND,
            "schema_version": 1,
            "releases": self.releases,
            "private": self.private,
            "exact": self.dataspace.summary(),
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
            "explanation": None if self.guarantee is None else str(self.guarantee.explain()),
            "notes": list(self.notes),
            "tables": tables,
        }

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a CSV file for each table, and what they are to combination.json; whole or not at all."""
        with new_folder(folder, force=force, ours=combination_files) as place:
            for table in self.tables:
                replace_file(place / f"{table.name}.csv", table.columns().csv())
            replace_file(place / SUMMARY, json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")


def combine(releases: Sequence[Release]) -> Combination:
    """Return the best linear unbiased estimate from several releases of the same records.

    A table w with noise of variance σ² a cell measures every residual d below it with variance ``σ² Π n_i`` over the
    features of w that d lacks; a product measures residuals themselves. The estimate of a residual is the average of
    what was measured, weighted by precision, and exact totals have infinite precision. Whether the releases are of
    the same records cannot be checked beyond the number of records, the levels and the exact totals.

    Examples
    --------
    >>> import semidp
    >>> from semidp.questions import combine
    >>> people = {"sex": [*"fmf"] * 20, "vote": [*"yny"] * 20}
    >>> plan = semidp.Plan([semidp.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"])
    >>> march, june = semidp.run(plan, people), semidp.run(plan, people)
    >>> both = combine([march, june])
    >>> ratio = both.tables[0].standard_errors / march.tables[0].standard_errors
    >>> bool(np.allclose(ratio, 0.5 ** 0.5))
    True
    """
    if len(releases) < 2:
        raise InputError("name at least two releases to combine")
    dataspace = _together(releases)
    schema = dataspace.schema
    assert schema is not None
    if schema.size > MOST_CELLS:
        raise Refused(f"all features together have {schema.size:,} cells, and at most {MOST_CELLS:,} are combined")
    observed: list[Observed] = []
    # A copy of a release is no second measurement, whatever its folder is called.
    seen: set[str] = set()
    for release in releases:
        measured = list(_measured(release, schema))
        # A few numbers may be drawn alike by chance; all of a release, or many, are not.
        digests = {_digest([one]) for one in measured if one.values.size >= _TELLING}
        digests |= {_digest(measured)} if measured else set()
        if digests & seen:
            raise InputError("the same measurement stands in two of these releases: name each release once")
        seen |= digests
        observed += measured
    observed += _exact(dataspace)
    measurements = Measurements(Places(), schema.shape, observed, _possible(schema))
    coupled = Classes.of(measurements).block
    if coupled > MOST_COUPLED:
        raise Refused(
            f"nested features or structural zeros couple {coupled:,} cells here, and at most {MOST_COUPLED:,} are "
            "combined: use semidp.combining with the places as a tree"
        )
    answer = estimate(measurements)
    tables = _tables(releases, dataspace, answer)
    private = all(release.private for release in releases)
    guarantee, notes = _guarantee(releases)
    return Combination(dataspace, tables, len(releases), private, guarantee, (_UNCHECKED, *notes), answer)


def combination_files(folder: Path) -> tuple[str, ...]:
    """Files of a folder that a combination was written to; none if it is something else."""
    try:
        document = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if document["kind"] != KIND:
            return ()
        return (SUMMARY, *(f"{table['name']}.csv" for table in document["tables"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _guarantee(releases: Sequence[Release]) -> tuple[Guarantee | None, tuple[str, ...]]:
    """What all releases guarantee together; None, and the reason, where they do not add up."""
    charges = []
    try:
        for number, release in enumerate(releases, 1):
            records = []
            for request, result in zip(release.plan.requests, release.results, strict=True):
                records.append(result.recalibrated(request, release.scope).record())
            charges.append((release.guarantee, f"release {number}", records))
        return guarantee_together(charges), ()
    except (Refused, AdjacencyUnknown) as reason:
        return None, (f"No guarantee of all releases together is stated: {reason}.",)


def _together(releases: Sequence[Release]) -> Dataspace:
    """What all releases publish exactly; refuse releases that cannot be of the same records."""
    for release in releases:
        release.refuse_parts("combined estimates")
    dataspace = releases[0].scope.dataspace
    for release in releases[1:]:
        union = dataspace.union(release.scope.dataspace)
        if union is None:
            raise InputError(
                "these releases are not of the same records: another number of them, other levels of a feature, other "
                "structural zeros, or exact totals that contradict each other"
            )
        dataspace = union
    return dataspace


def _measured(release: Release, schema: Schema) -> Iterator[Observed]:
    """What a release measured of tables."""
    for table in release.alone:
        if table.residuals is not None:
            yield from _residuals(table.residuals, table.noisy, schema)
        else:
            yield from _cells(release, table, schema)
    if release.product is not None:
        yield from _residuals(release.product.mechanism, release.product.noisy, schema)


def _cells(release: Release, table: PublishedTable, schema: Schema) -> Iterator[Observed]:
    """A table with noise on its cells."""
    request = next(request for request in release.plan.requests if request.name == table.name)
    mechanism = table.recalibrated(request, release.scope)
    # Exact totals fix such a table, and they are taken from the dataspace.
    if isinstance(mechanism, NoNoise):
        return
    if not isinstance(mechanism, CellByCell):
        raise Refused(
            f"the table {table.name!r} has {table.noise.mechanism} noise, which is not independent from cell to cell: "
            "tables with discrete Gaussian, rounded Gaussian, Laplace or residual noise are combined"
        )
    variance = mechanism.variance * (table.noise.scale / mechanism.scale) ** 2
    values = _in_order(table.noisy, table.schema, schema)
    query = _table_query(schema, schema.view(table.schema.names))
    yield Observed(query, 0, values, variance)


def _residuals(mechanism: ResidualMechanism, noisy: NDArray[Any], schema: Schema) -> Iterator[Observed]:
    """Residuals that were measured themselves: contrasts of each named feature, with the noise they were drawn with."""
    space = mechanism.space
    for view, part in space.parts.items():
        names = space.schema.named(view)
        _refuse_empty_levels(mechanism, view)
        # Residuals were multiplied to be whole before noise was added.
        scales = space.scales[part].astype(float)
        variances = mechanism.variances[part] / scales**2
        shape = space.residuals.shape(view)
        values = (np.asarray(noisy)[part] / scales).reshape(shape)
        if not np.allclose(variances, variances[0]):
            raise Refused("noise on residuals that differs from cell to cell is not combined")
        of_view = space.schema.restrict(names)
        ordered = _in_order(values, of_view, schema)
        query = _residual_query(schema, schema.view(names))
        yield Observed(query, 0, ordered, variances[0])


def _refuse_empty_levels(mechanism: ResidualMechanism, view: View) -> None:
    space = mechanism.space
    if space.residuals.shape(view) != space.schema.grid.shape_of(view):
        raise Refused(
            "exact totals show some levels to be empty, and residuals measured without them are not combined yet: "
            "leave these levels out of the schema"
        )


def _table_query(schema: Schema, view: View) -> CellSums:
    """Query of a table: each feature summed up, level by level, or at a coarser depth."""
    treatments: list[str | tuple[int, ...]] = []
    for feature, depth in zip(schema.features, view, strict=True):
        if not depth:
            treatments.append("summed")
        elif depth == feature.chain.depth:
            treatments.append("each")
        else:
            treatments.append(_nodes_at(feature, depth))
    return CellSums(treatments)


def _residual_query(schema: Schema, view: View) -> CellSums:
    """Query of a residual: contrasts of levels, or of siblings at a depth of a nested feature."""
    treatments: list[str | Within] = []
    for feature, depth in zip(schema.features, view, strict=True):
        if not depth:
            treatments.append("summed")
        elif feature.chain.depth == 1:
            treatments.append("contrasts")
        else:
            groups = _nodes_at(feature, depth)
            above = _nodes_at(feature, depth - 1) if depth > 1 else (0,) * len(groups)
            # Leaves are in the order of their nodes, so that the first leaf of a node tells its parent.
            firsts = np.unique(groups, return_index=True)[1]
            treatments.append(Within(groups, [above[first] for first in firsts]))
    return CellSums(treatments)


def _nodes_at(feature: Feature, depth: int) -> tuple[int, ...]:
    """Node at a depth of every leaf of a nested feature."""
    starts = feature.depths[depth - 1].starts
    leaves = np.arange(len(feature.levels))
    return tuple((np.searchsorted(starts, leaves, side="right") - 1).tolist())


def _in_order(values: NDArray[Any], table: Schema, schema: Schema) -> NDArray[Any]:
    """Values of a table with its features in the order of the schema, as one node."""
    order = sorted(range(len(table.features)), key=lambda axis: schema.axis(table.features[axis].name))
    return np.transpose(values, order)[None]


def _digest(measured: Sequence[Observed]) -> str:
    """Tell the measurements of a release apart by what was drawn and with which noise, not by where they lie."""
    parts = []
    for one in measured:
        content = np.ascontiguousarray(one.values, dtype=float).tobytes()
        parts.append(hashlib.sha256(repr(one.query).encode() + one.variance.tobytes() + content).hexdigest())
    return hashlib.sha256("".join(sorted(parts)).encode()).hexdigest()


def _exact(dataspace: Dataspace) -> Iterator[Observed]:
    schema = dataspace.schema
    assert schema is not None
    # The number of records is public.
    if dataspace.n is not None:
        yield Observed(_table_query(schema, schema.grid.nothing), 0, np.full((1,), dataspace.n), 0.0)
    for margin, total in zip(dataspace.margins, dataspace.totals, strict=True):
        values = _in_order(total.counts, total.schema, schema)
        yield Observed(_table_query(schema, schema.view(margin.names)), 0, values, 0.0)


def _possible(schema: Schema) -> dict[int, NDArray[np.bool_]]:
    """Cells that structural zeros leave, with length 1 along features that they do not name."""
    mask = schema.possible
    if mask is None:
        return {}
    # Features that no zero names stay apart from those that zeros couple.
    named = {name for zero in schema.structural_zeros for name, _ in zero.levels}
    for axis, feature in enumerate(schema.features):
        if feature.name not in named:
            mask = mask.take([0], axis=axis)
    return {0: mask[None]}


def _tables(releases: Sequence[Release], dataspace: Dataspace, answer: Estimate) -> tuple[CellTable, ...]:
    """Every table of any release once, with the name that it has first."""
    tables: dict[frozenset[str], CellTable] = {}
    names: set[str] = set()
    for release in releases:
        for table in release.tables:
            key = frozenset(table.schema.names)
            if key in tables:
                continue
            plainly = table.name == "table" or table.name in names
            name = "-".join(table.schema.names) if plainly else table.name
            names.add(name)
            tables[key] = _table(name, table.schema.names, dataspace, answer)
    if not tables:
        raise Refused("these releases hold no table: tables and products are combined")
    return tuple(tables.values())


def _table(name: str, features: Sequence[str], dataspace: Dataspace, answer: Estimate) -> CellTable:
    public = dataspace.over(features)
    schema = dataspace.schema
    assert public.schema is not None
    assert schema is not None
    view = schema.view(features)
    answers = answer.table(0, _table_query(schema, view))
    if np.isnan(answers.values).any():
        raise Refused(f"what was measured does not determine the table of {', '.join(features)}")
    shape = schema.grid.shape_of(view)
    # The features of a table may stand in another order than those of all releases together.
    kept = [axis for axis, depth in enumerate(view) if depth]
    order = [kept.index(schema.axis(feature.name)) for feature in public.schema.features]
    values = np.transpose(answers.values.reshape(shape), order)
    errors = np.transpose(answers.standard_errors.reshape(shape), order)
    fit = fit_table(values, public)
    counts = fit.values if fit.counts is None else fit.counts
    assert counts is not None
    how = Fitted("integer", fit.method, fit.loss, fit.bound, fit.optimal, fit.note)
    return CellTable(name, public.schema, counts, values, errors, how)


def _spread(weights: NDArray[np.float64], table: Schema, schema: Schema) -> NDArray[np.float64]:
    """Weights of a table's cells as weights of the cells of all features."""
    ordered = _in_order(weights, table, schema)[0]
    query = _table_query(schema, schema.view(table.names))
    spread = ordered.reshape(query.shape(schema.shape))
    for axis, size in enumerate(schema.shape):
        matrix = query.matrix(axis, size)
        spread = np.moveaxis(np.tensordot(matrix.T, spread, axes=(1, axis)), 0, axis)
    return np.asarray(spread, dtype=float)

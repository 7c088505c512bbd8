"""Two phases of one release: pairs are measured on bins that follow from the first measurement.

Both phases are charged together before anything is drawn. The data for the second phase are read
with the first, and stay closed until its noise is added. Once the bins are known, the release is an
ordinary one, with bins as the coarser depths of its features.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.confidential import Confidential, reveal
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace, Margin, regroup_table
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.level_bins import (
    BINS,
    Floats,
    Microdata,
    choose_bins,
    count_bins,
    exact_counts,
    expect_rare_levels,
    find_feature,
    is_ordered,
    name_bins,
)
from semidp.publish.pipeline import Prepared, calibrate
from semidp.publish.plan import Plan
from semidp.publish.results.published_table import file_stem
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.request import TablesRequest
from semidp.publish.survey import public_scope

_LIKELY_RANK = 2  # of the interaction of a pair: what is left of its noise once it is shrunk
_ROUNDS = 50  # until shares that depend on themselves stay as they are
_MOST_CELLS = 10**8  # of a pair on all levels, which is counted once and held
_TARGET_WEIGHT = 9  # of the variance of pairs with a target, against that of others


def list_pairs(asked: Microdata, invariants: Iterable[Margin]) -> list[tuple[str, str]]:
    """Return the pairs of columns that no exact total publishes."""
    exact = [{*margin.names} for margin in invariants]
    pairs = itertools.combinations(asked.columns, 2)
    return [pair for pair in pairs if not any({*pair} <= names for names in exact)]


def share_first_phase(
    asked: Microdata, dataspace: Dataspace, adjacency: Adjacency
) -> dict[str, Fraction]:
    """Return the share of the whole budget that each one-way table of the first phase gets.

    Columns with more levels than bins are measured, unless they are exact. Levels in order get
    bins, and this table alone knows how records are spread inside of them. Of other columns, the
    rare levels are pooled, and this table alone knows them: as many are expected as there would be
    if shares of levels were uniform on the simplex. If the errors with the whole budget would be A
    for all pairs and B_f for the levels of f, they add up to ``A / √(1 - Σ s) + Σ B_f / √s_f``,
    which is least where shares are as the errors to the power 2/3. No error of levels is larger
    than all records, m of them in as many pairs: the second terms are ``m B_f / (m √s_f + B_f)``.
    """
    schema = dataspace.schema
    exact = {name for margin in dataspace.margins for name in margin.names}
    pairs = list_pairs(asked, dataspace.margins)
    error = forecast_error(asked, dataspace, adjacency, asked.phases_budget)
    bins = count_bins(dataspace.n, error)
    sizes = {name: len(find_feature(schema, name).levels) for name in asked.columns}
    loss = _total_loss(asked.phases_budget)
    errors, most = {}, {}
    for name, size in sizes.items():
        feature = find_feature(schema, name)
        # Levels that lie in others get no bins of their own.
        if name in exact or size <= bins or feature.above:
            continue
        levels: float = size
        if not is_ordered(asked, feature):
            levels = expect_rare_levels(size, dataspace.n, error)
        noise = sensitivity_space(dataspace, adjacency, [name]).l2 / loss
        # No noise where the totals fix the column; and a single rare level is not pooled.
        if noise and levels >= 2:
            touched = sum(name in pair for pair in pairs)
            errors[name], most[name] = touched * noise * levels, touched * dataspace.n
    of_pairs = 0.0
    for pair in pairs:
        rows, columns = (min(sizes[name], bins) for name in pair)
        rank = max(1, min(_LIKELY_RANK, rows - 1, columns - 1))
        of_pairs += error * math.sqrt(rank * (rows + columns) * rows * columns)
    parts = dict.fromkeys(errors, 1.0)
    for _ in range(_ROUNDS):
        spread = {}
        for name, of_levels in errors.items():
            within = 1 + of_levels / (most[name] * math.sqrt(parts[name]))
            spread[name] = (of_levels / within**2) ** (2 / 3)
        total = of_pairs ** (2 / 3) + sum(spread.values())
        parts = {name: part / total for name, part in spread.items()}
    # Rounded down: the pairs always keep something.
    shares = {name: Fraction(int(part * 10_000), 10_000) for name, part in parts.items()}
    return {name: shares[name] for name in sizes if shares.get(name)}


def one_way_requests(asked: Microdata, shares: Mapping[str, Fraction]) -> tuple[TablesRequest, ...]:
    """Return the tables of the first phase, each with its share of the budget of both phases."""
    budget = asked.phases_budget
    requests = []
    for name, share in shares.items():
        # Noise on the cells, not on residuals: it stays what it is when levels get bins.
        table = TableRequest([name], budget.share(share), "gaussian", name=file_stem([name]))
        requests.append(TablesRequest.from_table(table))
    return tuple(requests)


def pairs_budget(asked: Microdata, shares: Mapping[str, Fraction]) -> Budget:
    """Return what the first phase leaves for the pairs."""
    return asked.phases_budget.share(1 - sum(shares.values(), Fraction(0)))


def pair_requests(
    asked: Microdata, names: Mapping[str, str], invariants: Iterable[Margin], budget: Budget
) -> tuple[TablesRequest, ...]:
    """Return the tables of the second phase: all pairs that are not exact, from one budget.

    Parameters
    ----------
    asked, invariants, budget
        The request, the exact totals, and the remaining budget.
    names
        The name of each feature at the depth of its bins.
    """
    tables = []
    for pair in list_pairs(asked, invariants):
        weight = _TARGET_WEIGHT if {*pair} & {*asked.target} else 1
        features = [names[name] for name in pair]
        tables.append(TableRequest(features, weight=weight, name=file_stem(features)))
    if len(tables) == 1:
        tables = [evolve(tables[0], weight=1)]
    return (TablesRequest(tables, budget),)


def forecast_error(
    asked: Microdata, dataspace: Dataspace, adjacency: Adjacency, budget: Budget
) -> float:
    """Forecast the standard error of a cell of a pair: that of the median pair, if each were
    measured by itself with an equal part of the budget.
    """
    norms = [
        sensitivity_space(dataspace, adjacency, pair).l2
        for pair in list_pairs(asked, dataspace.margins)
    ]
    return float(np.median(norms)) / _total_loss(budget.split_evenly(len(norms)))


def _total_loss(budget: Budget) -> float:
    """What a budget holds, as the distance of two normal laws with standard deviation 1."""
    return math.sqrt(2 * budget.rho) if budget.rho is not None else float(budget.mu or 0)


@frozen(eq=False)
class GroupedTables:
    """Counts of pairs that were read before their bins were known, regrouped by the bins."""

    schema: Schema
    pairs: Mapping[frozenset[str], Confidential[Table]] = field(repr=False)

    def table(self, features: Iterable[str]) -> Table:
        """Return the counts over some features, at the depth of their names."""
        names = tuple(features)
        leaves = [self.schema.features[self.schema.axis(name)].name for name in names]
        return regroup_table(reveal(self.pairs[frozenset(leaves)]), self.schema).margin(names)

    def tables(self, features: Iterable[Iterable[str]]) -> list[Table]:
        """Return the counts over several sets of features."""
        return [self.table(names) for names in features]


@frozen(eq=False)
class PairsToCome:
    """The second phase of microdata, before its bins are known.

    Parameters
    ----------
    plan, asked, scope
        What was asked for, and what is public without bins.
    budget
        What the pairs may spend.
    pairs
        The confidential counts of each pair, on all levels.
    """

    plan: Plan
    asked: Microdata
    scope: Scope
    budget: Budget
    pairs: Mapping[frozenset[str], Confidential[Table]] = field(repr=False)

    def prepare_pairs(
        self,
        first: Sequence[Request],
        mechanisms: Sequence[Mechanism],
        noisy: Sequence[Measurement],
    ) -> tuple[Prepared, list[NDArray[np.int64]]]:
        """Return the whole release, prepared on bins that follow from the first measurements, and
        these in the new order of the levels.
        """
        counts = {}
        for request, measured in zip(first, noisy, strict=True):
            counts[request.features[0]] = measured.projected
        plan, scope = plan_pairs(self, first, counts)
        prepared = calibrate(plan, scope)
        moved = []
        schema, flat = scope.dataspace.schema, self.scope.dataspace.schema
        for place, (request, measured) in enumerate(zip(first, noisy, strict=True)):
            # The promise of the first phase was made before there were bins: they change nothing.
            if prepared.mechanisms[place].record()["noise"] != mechanisms[place].record()["noise"]:
                raise Refused("bins would change the noise of a table that is measured already")
            moved.append(_order_levels(measured.noisy, flat, schema, request.features[0]))
        reader = GroupedTables(schema, self.pairs)
        nothing = Confidential(np.zeros(0, np.int64))
        values = [nothing] * len(first)
        for request, mechanism in prepared.calibrated_requests[len(first) :]:
            values.append(request.read(reader, scope, mechanism.space))  # type: ignore[arg-type]
        return evolve(prepared, values=tuple(values)), moved


def _order_levels(
    noisy: NDArray[np.int64], flat: Schema, schema: Schema, name: str
) -> NDArray[np.int64]:
    """The measurement of a feature, in the order of its levels below bins."""
    before = flat.features[flat.axis(name)].levels
    after = schema.features[schema.axis(name)].levels
    place = {label: at for at, label in enumerate(before)}
    return np.asarray(noisy)[[place[label] for label in after]]


def plan_pairs(
    later: PairsToCome, first: Sequence[Request], counts: Mapping[str, Floats]
) -> tuple[Plan, Scope]:
    """Return the plan with bins and pairs, and its scope: a function of public numbers.

    Parameters
    ----------
    later
        The second phase; nothing confidential in it is used.
    first, counts
        The requests of the first phase, and what was measured of each of its features.
    """
    asked, scope, budget = later.asked, later.scope, later.budget
    dataspace, schema = scope.dataspace, scope.dataspace.schema
    counts_by_column = {**exact_counts(dataspace, asked.columns), **counts}
    error = forecast_error(asked, dataspace, scope.adjacency, budget)
    grouped = Schema(
        choose_bins(asked, schema, counts_by_column, dataspace.n, error), schema.structural_zeros
    )
    names = name_bins(grouped, asked.columns)
    pairs = pair_requests(asked, names, later.plan.invariants, budget)
    # Numeric bins are levels like others from here on: that they are ordered is noted.
    ordered = [name for name in asked.columns if is_ordered(asked, find_feature(schema, name))]
    whole = evolve(
        later.plan,
        requests=(*first, *pairs),
        features=grouped.features,
        nests=(),
        microdata=evolve(asked, ordered=ordered),
    )
    again = public_scope(whole, dataspace.with_bins(grouped))
    return whole, evolve(again, disclosures=scope.disclosures, persons=scope.persons)


def _refuse_what_has_no_second_phase(asked: Microdata, dataspace: Dataspace) -> None:
    """Refuse before the charge what the second phase would refuse after it."""
    if not dataspace.n:
        raise Refused("there are no records in the data, so no microdata are made of them")
    taken = {name for feature in dataspace.schema.features for name in feature.names}
    for name in asked.columns:
        if f"{name}{BINS}" in taken:
            raise InputError(
                f"bins of {name!r} would be called {name}{BINS}, which is a column already: rename"
                " that column"
            )
    sizes = sorted(len(find_feature(dataspace.schema, name).levels) for name in asked.columns)
    if sizes[-1] * sizes[-2] > _MOST_CELLS:
        raise InputError(
            f"two columns have {sizes[-2]:,} and {sizes[-1]:,} levels, too many to count their"
            " pairs: declare bins for numbers or dates, or coarser levels"
        )


def prepare_phases(plan: Plan, asked: Microdata, scope: Scope, reader: Reader) -> Prepared:
    """Return the first phase of a plan for microdata, calibrated and read, with the guarantee of
    both phases.
    """
    if plan.requests:
        raise InputError(
            "the tables of microdata follow from its columns: leave other tables out, or release"
            " them by themselves"
        )
    dataspace = scope.dataspace
    _refuse_what_has_no_second_phase(asked, dataspace)
    names = list_pairs(asked, plan.invariants)
    if not names:
        raise InputError("exact totals publish every pair already: there is nothing to measure")
    shares = share_first_phase(asked, dataspace, scope.adjacency)
    tables = zip(names, reader.tables(names), strict=True)
    pairs = {frozenset(pair): Confidential(table) for pair, table in tables}
    later = PairsToCome(plan, asked, scope, pairs_budget(asked, shares), pairs)
    first = one_way_requests(asked, shares)
    if not first:
        return later.prepare_pairs((), (), ())[0]
    prepared = calibrate(evolve(plan, requests=first), scope)
    values = [
        request.read(reader, scope, mechanism.space)
        for request, mechanism in prepared.calibrated_requests
    ]
    return evolve(prepared, values=tuple(values), later=later)

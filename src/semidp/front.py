"""The front door: one call from records to a release, and one for the guarantee of an existing
release.

`table`, `mean` and the other functions make requests without a budget; `release` divides one budget
among them. A tuple of names is one joint margin, a list holds several margins:
``exact=["sex", ("region", "age")]``.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_overloads, overload

from semidp.assess.disclosure.findings import Disclosure, read_totals
from semidp.assess.disclosure.program_bounds import Effort
from semidp.assess.disclosure.published_counts import PublishedCounts, ReadingRules
from semidp.assess.disclosure.table_files import (
    TableFile,
    read_counts,
    read_exact,
    read_file,
    read_record_file,
    read_records,
)
from semidp.assess.privacy_functions import OneRecord
from semidp.errors import InputError, did_you_mean
from semidp.inference.combined.releases_together import combine_releases
from semidp.inference.period_changes import Changes, compare_releases
from semidp.present.release import Release
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.exact import Number, nonnegative
from semidp.promise.guarantee import Guarantee
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.pipeline import RunOptions, run_plan
from semidp.publish.plan import AdjacencyChoice, Plan
from semidp.publish.plan_settings import (
    build_microdata_plan,
    build_plan,
    build_run_options,
    declare_categories,
    describe,
    open_data,
    open_records,
)
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.selection import AUTO
from semidp.publish.settings import Given, list_settings
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.distribution.published import QUANTILES
from semidp.publish.statistics.outcomes.noise_law import LEVEL, Confidence
from semidp.publish.statistics.outcomes.request import (
    Groups,
    Statistic,
    binary_outcome,
    group_margins,
)
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.quantiles import QuantileRequest
from semidp.publish.statistics.regression.designs import Coding
from semidp.publish.statistics.regression.kind import Model, RegressionRequest
from semidp.publish.statistics.sums import GroupRequest
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.survey import public_scope

if TYPE_CHECKING:
    from semidp.present.forecasts import DryRun

Names = str | tuple[str, ...] | Margin
"""One margin: a feature, or several that are published jointly."""


# --- what is asked for ----------------------------------------------------------------------------


def table(
    *features: str,
    weight: Number = 1,
    target_error: Number | None = None,
    mechanism: str = "auto",
    fit: str = "integer",
    name: str | None = None,
) -> TableRequest:
    """Ask for a table of counts over some features.

    Several tables of one release share a budget and agree with each other.

    >>> table("sex", "region").features
    ('sex', 'region')
    """
    named = _read_name(name)
    return TableRequest(
        features, None, mechanism, fit, weight=weight, target_error=target_error, **named
    )


def each(*groups: str | Sequence[str]) -> tuple[Margin, ...]:
    """Name several sets of groups, to publish a statistic for each.

    >>> mean("income", by=each("region", ["region", "sex"]), bounds=(0, 200_000)).by
    (Margin('region'), Margin('region', 'sex'))
    """
    if not groups:
        raise InputError("name the groups, as in each('region', 'sex')")
    return tuple(Margin.from_names(names) for names in groups)


def mean(
    column: str,
    *,
    by: Groups = None,
    bounds: tuple[Number, Number],
    steps: int | None = None,
    step: Number | None = None,
    confidence: Confidence | None = None,
    name: str | None = None,
) -> GroupRequest:
    """Ask for the mean of a private column by groups, whose counts become exact.

    Parameters
    ----------
    column
        The private column: numbers, clipped to the bounds and rounded to the grid record by record.
    by
        The groups: a feature, or several that are crossed, as in ``["region", "sex"]``. `each`
        names several sets of groups. Without it, everyone is one group.
    bounds
        The smallest and the largest value. They are declared, never read from the data.
    steps
        How many steps of the grid lie between the bounds (default: a fine grid, with every whole
        number on it if the bounds are whole).
    step
        The unit of the data, instead of `steps`: 1 for whole numbers.
    confidence
        The level and the kind of intervals (default: 95% for these records).
    name
        What its files are called (default: the statistic and the column, and the groups too if
        a release has two of that name).

    Examples
    --------
    >>> mean("income", by="region", bounds=(0, 200_000)).name
    'mean-income'
    """
    outcome = GroupRequest.declare_outcome(column, bounds, steps, step)
    return _build_group_request(Statistic.mean, outcome, by, confidence, name)


def total(
    column: str,
    *,
    by: Groups = None,
    bounds: tuple[Number, Number],
    steps: int | None = None,
    step: Number | None = None,
    confidence: Confidence | None = None,
    name: str | None = None,
) -> GroupRequest:
    """Ask for the sum of a private column by groups; the parameters are those of `mean`.

    >>> total("income", by=["region", "sex"], bounds=(0, 200_000)).by
    (Margin('region', 'sex'),)
    """
    outcome = GroupRequest.declare_outcome(column, bounds, steps, step)
    return _build_group_request(Statistic.sum, outcome, by, confidence, name)


def proportion(
    column: str,
    *,
    by: Groups = None,
    confidence: Confidence | None = None,
    name: str | None = None,
) -> GroupRequest:
    """Ask for the proportion of ones in a private column of zeros and ones, by groups; "ok=Y" asks
    for that of Y in ok.

    >>> proportion("cured", by="ward").name
    'proportion-cured'
    """
    return _build_group_request(Statistic.proportion, binary_outcome(column), by, confidence, name)


def median(
    column: str,
    *,
    by: Groups = None,
    bounds: tuple[Number, Number],
    steps: int | None = None,
    step: Number | None = None,
    level: Number | None = None,
    sampling: bool = False,
    mechanism: str = AUTO,
    name: str | None = None,
) -> QuantileRequest:
    """Ask for the median of a private column by groups; `level` adds an interval from the same
    budget.

    The mechanism is ``selection``, ``distribution``, or ``auto`` for the better one, judged by
    public numbers.

    >>> median("income", by="region", bounds=(0, 200_000)).probabilities
    (Fraction(1, 2),)
    """
    return quantile(
        column,
        "1/2",
        by=by,
        bounds=bounds,
        steps=steps,
        step=step,
        level=level,
        sampling=sampling,
        mechanism=mechanism,
        name=name,
    )


def quantile(
    column: str,
    *probabilities: Number,
    by: Groups = None,
    bounds: tuple[Number, Number],
    steps: int | None = None,
    step: Number | None = None,
    level: Number | None = None,
    sampling: bool = False,
    mechanism: str = AUTO,
    name: str | None = None,
) -> QuantileRequest:
    """Ask for quantiles of a private column by groups, such as the first and the last decile; see
    `median`.

    >>> quantile("income", 0.1, 0.9, by="region", bounds=(0, 200_000)).name
    'quantiles-income'
    """
    outcome = QuantileRequest.declare_outcome(column, bounds, steps, step)
    return QuantileRequest(
        outcome,
        group_margins(by),
        probabilities,
        level=level,
        sampling=sampling,
        mechanism=mechanism,
        **_read_name(name),
    )


def distribution(
    column: str,
    *,
    by: Groups = None,
    bounds: tuple[Number, Number],
    steps: int | None = None,
    step: Number | None = None,
    quantiles: Sequence[Number] = QUANTILES,
    lines: Sequence[Number] = (),
    level: Number = LEVEL,
    name: str | None = None,
) -> DistributionRequest:
    """Ask for the whole distribution of a private column by groups, with a band and intervals at
    one cost.

    `quantiles`, and shares below `lines`, are listed. Records are cut exactly at the lines: a value
    on a line is not below it. The result answers all other quantiles and lines at no further cost.
    For a median alone `median` is more accurate.

    >>> distribution("income", by="region", bounds=(0, 200_000), lines=[20_000]).files
    ('distribution-income.csv', 'distribution-income-quantiles.csv')
    """
    outcome = DistributionRequest.declare_outcome(column, bounds, steps, step)
    return DistributionRequest(
        outcome, group_margins(by), quantiles, lines, level=level, **_read_name(name)
    )


def regression(
    column: str,
    *,
    on: Names,
    bounds: tuple[Number, Number],
    steps: int | None = None,
    step: Number | None = None,
    interactions: Iterable[tuple[str, ...]] = (),
    coding: Coding | str = Coding.treatment,
    confidence: Confidence | None = None,
    name: str | None = None,
) -> RegressionRequest:
    """Ask for the linear regression of a private column on features, whose joint counts become
    exact.

    >>> regression("days", on=("arm", "sex"), bounds=(0, 10)).factors
    ('arm', 'sex')
    """
    return RegressionRequest(
        RegressionRequest.declare_outcome(column, bounds, steps, step),
        Margin.from_names(on).names,
        interactions=[list(names) for names in interactions],
        coding=coding,
        confidence=confidence or Confidence(),
        **_read_name(name),
    )


def logistic(
    column: str,
    *,
    on: Names,
    interactions: Iterable[tuple[str, ...]] = (),
    coding: Coding | str = Coding.treatment,
    confidence: Confidence | None = None,
    name: str | None = None,
) -> RegressionRequest:
    """Ask for the logistic regression of a private column of zeros and ones on features.

    >>> str(logistic("cured", on="arm").model)
    'logistic'
    """
    return RegressionRequest(
        binary_outcome(column),
        Margin.from_names(on).names,
        model=Model.logistic,
        interactions=[list(names) for names in interactions],
        coding=coding,
        confidence=confidence or Confidence(),
        **_read_name(name),
    )


def _build_group_request(
    statistic: Statistic,
    outcome: Outcome,
    by: Groups,
    confidence: Confidence | None,
    name: str | None,
) -> GroupRequest:
    how = {"confidence": confidence or Confidence(), **_read_name(name)}
    return GroupRequest(statistic, outcome, group_margins(by), **how)


def _read_name(name: str | None) -> dict[str, Any]:
    return {} if name is None else {"name": name}


# --- one call -------------------------------------------------------------------------------------


@overload
def release(
    data: Any, *requests: Request | TableRequest, dry_run: Literal[True], **settings: Any
) -> "DryRun": ...


@overload
def release(
    data: Any,
    *requests: Request | TableRequest,
    exact: Sequence[Names] = (),
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    target_error: Mapping[str, Number] | None = None,
    share: Mapping[str, Number] | None = None,
    adjacency: AdjacencyChoice | int | str = AdjacencyChoice.worst_case,
    period: str | None = None,
    report_delta: Number | None = None,
    claim: str | None = None,
    levels: Mapping[str, Sequence[str]] | None = None,
    bins: Mapping[str, Sequence[Number]] | None = None,
    null_level: Mapping[str, str] | None = None,
    nest: Sequence[str] | Sequence[Sequence[str]] = (),
    schema: Schema | Path | str | None = None,
    levels_from_data: bool = False,
    count: str | None = None,
    where: str | None = None,
    read_as: Mapping[str, str] | None = None,
    missing: Mapping[str, str] | None = None,
    header_rows: int | None = None,
    na: str | Sequence[str] = (),
    id: str | None = None,
    most: int | None = None,
    records: str | None = None,
    units: Any = None,
    link: str | None = None,
    protect: str | None = None,
    most_members: int | None = None,
    least: int = 1,
    derived: Sequence[str] = (),
    aggregate: Mapping[str, str] | None = None,
    quarters: Mapping[str, Sequence[str]] | None = None,
    top_code: Mapping[str, int] | None = None,
    ledger: Ledger | Path | str | None = None,
    label: str | None = None,
    out: Path | str | None = None,
    write: str | None = None,
    agency: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    seed: int | None = None,
    randomness: Randomness | None = None,
    partition: str | None = None,
    jobs: int = 1,
    sign: Path | str | None = None,
    memory: int | str | None = None,
    title: str | None = None,
    contact: str | None = None,
    note: Sequence[str] = (),
    round_to: int | None = None,
    mark_below: int | None = None,
    map: PlaceMap | Path | str | None = None,
    map_key: str | None = None,
) -> Release: ...


def release(data: Any, *requests: Request | TableRequest, **settings: Any) -> "Release | DryRun":
    """Publish statistics of records with noise, next to totals that stay exact.

    The parameters are the settings of `semidp release` and of plan files, and mean the same.

    Parameters
    ----------
    data
        A file, a data frame, a mapping of columns, a database table or a `Source`.
    requests
        What to publish with noise: `table`, `mean`, `median`, `regression` and the like, which
        share the budget.
    exact
        These counts are published exactly. ``["sex", ("region", "age")]`` is one margin and one
        joint margin. The groups of means and the factors of regressions are exact too.
    epsilon
        The privacy budget as epsilon, with delta= or without.
    delta
        The delta of the budget, with epsilon=.
    rho
        The privacy budget as rho (zero-concentrated).
    mu
        The privacy budget as mu (Gaussian).
    target_error
        Instead of a budget: the largest standard error that a table may have.
    share
        The share of the budget for the tables, or for a statistic such as mean-age (default
        1 each). Of linked tables ``"tables"`` and ``"units:tables"``, by need unless given.
    adjacency
        Which changes of the data are hidden: any records that change together (worst-case,
        the default), exchange (one person), definition, or a number of records.
        ``"worst-case"``, ``"definition"``, ``"exchange"``, or a number of records.
    period
        The period that the data are about, such as 2026Q3.
    report_delta
        The delta at which the guarantee is restated as epsilon.
    claim
        exact: use only noise whose guarantee is proved for the integers actually sampled.
    levels
        All values that a feature may take. Categories of pandas and an Enum of polars need none:
        the categories are the levels. They are published, so list them yourself:
        ``astype("category")`` takes them from the data.
    bins
        The edges of bins of numbers or dates; 0,18,65, has no upper end.
    null_level
        The level that stands for a missing value of a feature.
    nest
        Nested features, coarse to fine, such as state,county,tract. ``("state",
        "county")``, or a list of several chains.
    schema
        A TOML file that declares features, levels, bins and structural zeros. A `Schema`
        will do too.
    levels_from_data
        Read undeclared levels from the data.
    count
        The column that holds counts, if a row stands for several records.
    where
        Keep only the records that meet this condition.
    read_as
        How a column is written: dates as day, month, quarter or year; numbers as 1.234,5 or
        1,234.5. See `open_source`.
    missing
        Missing values of a private column: refuse them (default), or publish those who
        answered, with their number private or exact. ``{"pay": "private"}`` publishes the
        statistic of those who answered, and with noise how many did in each group;
        ``{"pay": "exact"}`` publishes that number exactly.
    header_rows
        How many rows of a sheet name its columns (default 1).
    na
        Codes that stand for a missing value, such as NA,-9. Or a list, ``["NA", "-9"]``.
    id
        The column that identifies a person.
    most
        The most records of one person; all of them are protected together.
    records
        What the records of a person are called, such as stays.
    units
        A second file, of households. ``table("units:zone", "size")`` counts households, and
        ``"units:zone"`` is an exact total of them. See linked.md.
    link
        The column that names the household, in both files.
    protect
        Whom the guarantee protects: one member, or a whole household (unit).
    most_members
        The most members of one household; this bound is public.
    least
        The fewest members of one household: 0 or 1.
    derived
        Columns of households that depend on their members.
    aggregate
        A feature of households that is computed from their members. ``{"children":
        "count(*) FILTER (WHERE age < 18)"}``; levels or bins are declared as for others.
    quarters
        Levels of a column that are group quarters, which no table of households counts.
        ``{"unittype": ["1"]}``. Only with ``protect="member"`` and ``least=0``.
    top_code
        Publish households of this many members and more as one level: 5 becomes 5+.
        ``{"size": 5}``.
    ledger
        Charge this ledger before any noise is drawn. A `Ledger`, or the path of one.
    label
        What the ledger calls this charge.
    out
        Output folder; appears only when complete. Without it, `Release.save` does so later.
    write
        File format of tables: csv (default), parquet (default above one million cells), xlsx
        for CSV files and a workbook, or sdmx for CSV and SDMX files.
    agency
        The agency that maintains the structures of SDMX files (default: SEMIDP).
    dry_run
        Say what would be published and how large the errors would be. Draws and writes nothing.
        Returns a `DryRun`: print it, or ask it for ``to_json()``.
    force
        Replace what an earlier run wrote, and nothing else.
    seed
        Draw the same noise each time. The release is marked as not private.
    randomness
        Where random words come from (default: the operating system). Any other marks the release
        not private.
    partition
        Process one part at a time, such as each state. Needs `out`.
    jobs
        How many parts to process at the same time, each in its own process.
    sign
        Sign every file with this secret key of minisign.
    memory
        The memory that may be used (default: that of the machine or container).
    title
        The heading of the report.
    contact
        Whom to ask about the release.
    note
        Paragraphs at the top of the report.
    round_to
        Show counts in multiples of this number in the report and the workbook.
    mark_below
        Mark counts below this number in the report and the workbook.
    map
        Outlines of places (GeoJSON or TopoJSON), to draw results by place as maps.
    map_key
        The property of the outlines that names places (default: best match).

    Examples
    --------
    >>> import semidp as sd
    >>> people = {
    ...     "sex": ["f", "m", "m", "f"],
    ...     "region": ["n", "s", "n", "s"],
    ...     "age": [31, 64, 17, 80],
    ... }
    >>> done = sd.release(
    ...     people,
    ...     sd.table("sex", "region"),
    ...     sd.table("sex", "age"),
    ...     sd.mean("age", by="region", bounds=(0, 120)),
    ...     exact=["sex", "region"],
    ...     bins={"age": [0, 18, 65, 120]},
    ...     mu=1,
    ... )
    >>> done["sex-region"].counts.sum(axis=1).tolist(), done.guarantee.adjacency.a
    ([2, 2], 2)
    """
    unknown = [name for name in settings if name not in _RELEASE.parameters]
    if unknown:
        meant = did_you_mean(unknown[0], _RELEASE.parameters)
        raise TypeError(f"release() got an unexpected keyword argument {unknown[0]!r}{meant}")
    accepted = Given({name: settings[name] for name in list_settings() if name in settings})
    plan = declare_categories(build_plan(accepted, requests), data)
    options = build_run_options(accepted, settings.get("randomness"))
    # What says how files are read is no part of the plan.
    opens = plan.units is not None or accepted.has("header_rows", "na")
    with open_data(accepted, plan, data) if opens else nullcontext(data) as source:
        if accepted["dry_run"]:
            from semidp.present.forecasts import rehearse

            return rehearse(plan, source, options, accepted["partition"])
        return run(plan, source, options, partition=accepted["partition"])


# A call at run time, an editor and the table of settings see the signature that is written in full.
_RELEASE = inspect.signature(get_overloads(release)[-1])
release.__signature__ = _RELEASE  # type: ignore[attr-defined]


def microdata(
    data: Any,
    columns: Sequence[str] | None = None,
    *,
    exact: Sequence[Names] = (),
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    ordered: Sequence[str] = (),
    target: Sequence[str] = (),
    rules: Sequence[str] = (),
    randomness: Randomness | None = None,
    **settings: Any,
) -> Release:
    """Publish the tables that synthetic records are made from: columns with many levels, then all
    pairs on bins.

    This is one release with one guarantee. Its `records` are synthetic microdata with every exact
    total, and `save_records` writes them.

    Parameters
    ----------
    data
        As for `release`.
    columns
        The columns of the records (default: all of the data).
    exact, epsilon, delta, rho, mu
        As for `release`; no pure epsilon.
    ordered
        Columns with ordered levels, besides numeric bins and dates.
    target
        Columns whose pairs get less noise than others.
    rules
        Rules that hold in every record: ``"retired implies age >= 50"``, ``"start <= end"``.
    randomness
        As for `release`.
    settings
        Further settings of `release` that describe data or say how to run: ``levels``, ``bins``,
        ``adjacency``, ``ledger``, ``out`` and so on.

    Examples
    --------
    >>> import semidp as sd
    >>> ages = [*range(20, 70)] * 2
    >>> people = {"sex": ["f", "m"] * 50, "age": ages, "ill": ["n", "n", "y", "n"] * 25}
    >>> done = sd.microdata(
    ...     people, exact=["sex"], bins={"age": range(20, 71, 5)}, levels={"ill": ["n", "y"]}, rho=1
    ... )
    >>> records = done.records()
    >>> records.columns, sum(row[0] == "f" for row in records.rows())
    (('sex', 'age', 'ill'), 50)
    """
    unknown = [name for name in settings if name not in list_settings()]
    if unknown:
        meant = did_you_mean(
            unknown[0], [*list_settings(), "rules", "ordered", "target", "columns"]
        )
        raise InputError(f"there is no setting {unknown[0]!r}{meant}")
    numbers = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    accepted = Given({"exact": exact, **numbers, **settings})
    if accepted.has_units:
        raise InputError("microdata are records of one file: leave linked units out")
    base = describe(accepted).with_values_read()
    with open_data(accepted, base, data) as source:
        special = {base.count, base.id}
        if columns is None:
            columns = [name for name in source.columns() if name not in special]
        plan = build_microdata_plan(accepted, columns, ordered, target, rules)
        return run(plan, source, build_run_options(accepted, randomness))


def run(
    plan: Plan,
    data: Any,
    options: RunOptions | Randomness | None = None,
    *,
    partition: str | None = None,
) -> Release:
    """Execute a plan: prepare, account, measure, publish.

    By parts, every table is first measured at the partition's depth and above, and exact totals
    that cross parts are divided there. Below it each part is measured and fitted from its own
    records and from public numbers. The measurement is that of all tables in one piece, and so is
    the guarantee.

    Parameters
    ----------
    plan
        What to publish exactly and what with noise. Every request needs a budget, or target errors.
        By parts, whatever is not a table is run in one piece next to the parts.
    data
        A `Source`, or what `open_source` takes: a path, a data frame, an Ibis table. If the source
        is on Spark, its executors run the parts.
    options
        The ledger, the output folder, and so on. A source of random words alone stands for options
        with it.
    partition
        A depth of a nested feature, with a finer one in the tables: release part by part, into the
        folder `out` of the options.

    Returns
    -------
    Release
        The release; nothing in it is confidential beyond what the plan publishes exactly. By parts
        it holds the tables at the cut; `Release.part` reads those of a part.

    Examples
    --------
    >>> import semidp, tempfile
    >>> people = {"sex": ["f", "m", "m", "f", "m"], "region": ["n", "s", "n", "s", "s"]}
    >>> plan = Plan(
    ...     [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.zcdp(1))],
    ...     ["sex", "region"],
    ... )
    >>> release = run(plan, people)
    >>> release.tables[0].counts.sum(axis=1).tolist(), release.guarantee.adjacency.a
    ([2, 3], 3)
    >>> people = {
    ...     "state": [*"aabb"] * 9,
    ...     "county": ["a1", "a2", "b1", "b1"] * 9,
    ...     "sex": [*"fmfm"] * 9,
    ... }
    >>> places = semidp.Feature.from_paths(
    ...     ["state", "county"], [("a", "a1"), ("a", "a2"), ("b", "b1")]
    ... )
    >>> request = semidp.publish.TableRequest(["county", "sex"], semidp.Budget.gdp(1))
    >>> plan = Plan([request], ["county"], features=[semidp.Feature("sex", "fm"), places])
    >>> with tempfile.TemporaryDirectory() as root:
    ...     release = run(plan, people, semidp.RunOptions(out=f"{root}/release"), partition="state")
    ...     (
    ...         [part.folder for part in release.partition.parts],
    ...         release.part("a")["table"].counts.sum(axis=1),
    ...     )
    (['state=a', 'state=b'], array([9, 9]))
    """
    return run_plan(Release, declare_categories(plan, data), data, options, partition)


def combine(*releases: Release | Path | str) -> Release:
    """Return one release from several of the same records: the best linear unbiased estimate of all
    their tables.

    A table w with noise of variance σ² per cell measures every residual d below it with variance
    ``σ² Π n_i`` over the features of w that d lacks; tables that share a budget measure residuals
    themselves. The estimate of a residual is the average of its measurements, weighted by
    precision, and exact totals have infinite precision (nested features: one pass up the tree, one
    down; ghazi2026denoising). No cell has a larger variance than in the better release. Linked
    members and units are averaged separately and then made to agree; distributions of one outcome
    are averaged difference by difference. The guarantee is that of all releases together, each
    recomputed for all exact totals; if they do not add up, none is stated. Whether the releases are
    of the same records can be checked only by the number of records, the levels and the exact
    totals.

    Parameters
    ----------
    releases
        At least two releases, or folders of releases. A combination counts as the releases that
        it combines.

    Examples
    --------
    >>> import semidp
    >>> people = {"sex": [*"fmf"] * 20, "vote": [*"yny"] * 20}
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
    ... )
    >>> march, june = semidp.run(plan, people), semidp.run(plan, people)
    >>> both = semidp.combine(march, june)
    >>> ratio = both.tables[0].standard_errors / march.tables[0].standard_errors
    >>> ratio.round(6).tolist()
    [[0.707107, 0.707107], [0.707107, 0.707107]]
    >>> both.guarantee.tradeoff.mu_squared
    Fraction(2, 1)
    """
    return combine_releases(
        one if isinstance(one, Release) else Release.load(one) for one in releases
    )


def change(
    *releases: Release | Path | str, names: Sequence[str] | None = None, level: float = 0.95
) -> Changes:
    """Say what changed from one release to the next, with the noise of both.

    The noise of two releases is independent, so the distribution of a difference is the convolution
    of two known ones: an interval is ``(y - x) ± h`` with ``P(|N_y - N_x| <= h) >= level``. The
    interval of a ratio divides two intervals of level (1 + level)/2. What is exact in both periods
    has an exact difference. All intervals are about the records of the periods, and cost no
    privacy.

    Parameters
    ----------
    releases
        Two releases or more, or folders of releases, the earliest period first.
    names
        What the periods are called (default: their own names).
    level
        How often each interval covers the change.

    Examples
    --------
    >>> import semidp
    >>> spring = {"ward": [*"aab"] * 30, "ill": [*"yn"] * 45}
    >>> autumn = {"ward": [*"aab"] * 40, "ill": [*"yynn"] * 30}
    >>> tables = [
    ...     semidp.release(
    ...         data, semidp.table("ward", "ill"), exact=["ward"], mu=1, levels={"ill": ["y", "n"]}
    ...     )
    ...     for data in (spring, autumn)
    ... ]
    >>> found = semidp.change(*tables, names=["spring", "autumn"])
    >>> [(row.difference, row.exact) for row in found.rows if row.statistic == "exact ward"]
    [(20.0, True), (10.0, True)]
    """
    loaded = [one if isinstance(one, Release) else Release.load(one) for one in releases]
    return compare_releases(loaded, names, level)


def what_holds(
    *,
    exact: Mapping[Names, Mapping[Any, int]],
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    mu: Number | None = None,
    adjacency: AdjacencyChoice | int | str = AdjacencyChoice.worst_case,
    id: str = "person",
    most: int | None = None,
    stated_for: OneRecord | Literal["replace", "add-remove"] = "replace",
) -> Guarantee:
    """Say what an ordinary release really guarantees when some totals are published
    exactly.

    A mechanism that promises f for one replaced record keeps ``f∘…∘f`` (a times) for the a records
    that must change together under the exact totals; if it promises f for one record added or
    removed, 2a times. Under exchange the same holds for the records that one exchange changes.

    Parameters
    ----------
    exact
        The exact totals, by feature: ``{"sex": {"f": 3, "m": 2}}``. A joint margin has a tuple of
        features, and tuples of levels: ``{("sex", "region"): {("f", "n"): 2, …}}``.
    epsilon, delta, rho, mu
        What the release states for one record.
    adjacency
        Which datasets are compared, as for `release`.
    id, most
        What a person is called, and how many records a person may have, if more than one.
    stated_for
        The change that the release's promise is for: one replaced record, or ``"add-remove"`` as
        in OpenDP, Tumult and MST, where each replacement counts twice.

    Examples
    --------
    >>> totals = {"sex": {"f": 3, "m": 2}, "region": {"n": 3, "s": 2}}
    >>> found = what_holds(mu=1, exact=totals)
    >>> found.adjacency.a, found.tradeoff.mu
    (3, Fraction(3, 1))
    >>> what_holds(mu=1, exact=totals, stated_for="add-remove").tradeoff.mu
    Fraction(6, 1)
    """
    budget = Budget.from_plan_keys({"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu})
    if budget is None:
        raise InputError(
            "say what the release states for one record: epsilon (with delta), rho or mu"
        )
    dataspace = _build_dataspace(exact)
    identity = None if most is None else id
    plan = Plan(invariants=dataspace.margins, adjacency=adjacency, id=identity, most=most)
    scope = public_scope(plan, dataspace)
    records = max(scope.adjacency.a, 1)
    curve = OneRecord(stated_for).group(budget.tradeoff(), records)
    return Guarantee(dataspace, scope.adjacency, curve)


def disclosure(
    data: Any = None,
    *,
    exact: Sequence[Names] = (),
    totals: Mapping[Names, Mapping[Any, int]] | None = None,
    tables: Iterable[Path | str] = (),
    rules: ReadingRules | None = None,
    total: str | None = None,
    cells: Sequence[Mapping[str, str]] = (),
    known: Path | str | None = None,
    insiders: int = 0,
    percent: Number = 0,
    levels: Mapping[str, Sequence[str]] | None = None,
    bins: Mapping[str, Sequence[Number]] | None = None,
    null_level: Mapping[str, str] | None = None,
    nest: Sequence[str] | Sequence[Sequence[str]] = (),
    schema: Schema | Path | str | None = None,
    where: str | None = None,
    count: str | None = None,
    seconds: float | None = 60,
    most: int = 1_000,
) -> Disclosure:
    """Say what exact numbers reveal by themselves, without any noisy number.

    Parameters
    ----------
    data, exact
        Data, and the margins that are published exactly: only these are read.
    totals
        Exact totals without data: ``{"sex": {"f": 3, "m": 2}}``, as in `what_holds`.
    tables, rules, total
        CSV files of published tables, how to read their suppressed and rounded cells, and the word
        for totals among their levels.
    cells
        Cells to answer for: ``{"ward": "A", "diagnosis": "hiv"}``.
    known
        A CSV file of whole records that an attacker knows. The statements are about all others.
    insiders
        The largest coalition of members of a group to consider.
    percent
        How close a hidden cell must be known to count as recovered.
    levels, bins, null_level, nest, schema, where, count
        As for `release`.
    seconds
        The time limit for programs; whatever is not settled by then is marked. None: no limit.
    most
        The largest number of statements to list.

    Examples
    --------
    >>> totals = {
    ...     ("ward", "age"): {("A", "80+"): 7, ("A", "<80"): 5, ("B", "<80"): 6},
    ...     ("ward", "ill"): {("A", "y"): 7, ("A", "n"): 5, ("B", "n"): 6},
    ...     ("age", "ill"): {("80+", "y"): 7, ("<80", "n"): 11},
    ... }
    >>> found = disclosure(totals=totals, cells=[{"ward": "A", "age": "80+", "ill": "y"}])
    >>> found.answers[0].lower, found.answers[0].upper, str(found.answers[0].answer)
    (7, 7, 'certain')
    """
    settings = dict(locals())
    names = ("levels", "bins", "null_level", "nest", "schema", "where", "count", "exact")
    accepted = Given({name: settings[name] for name in names})
    if sum((data is not None, totals is not None, bool(tables))) != 1:
        raise InputError("give one of data (with exact), totals and tables")
    if data is not None:
        if not exact:
            raise InputError("name the exact totals to look at, such as exact=['ward', 'age']")
        plan = build_plan(accepted, ())
        with open_records(accepted, plan, data) as source:
            counts = PublishedCounts.from_dataspace(read_totals(plan, source))
    elif totals is not None:
        counts = PublishedCounts.from_dataspace(_build_dataspace(totals))
    else:
        files = [read_file(Path(path), count) for path in tables]
        plan = describe(accepted)
        counts = read_counts(
            files, rules or ReadingRules(), total, plan.features, plan.structural_zeros
        )
    if known is not None:
        counts = counts.subtract(read_records(read_record_file(Path(known)), counts.schema))
    return Disclosure(
        counts,
        Effort(seconds=seconds),
        insiders=insiders,
        percent=nonnegative(percent, "percent"),
        asked=cells,
        most=most,
    )


def _build_dataspace(totals: Mapping[Names, Mapping[Any, int]]) -> Dataspace:
    """Return the dataspace of exact totals given as dictionaries."""
    if not totals:
        raise InputError("name at least one exact total, such as exact={'sex': {'f': 3, 'm': 2}}")
    tables = []
    for names, counts in totals.items():
        margin = Margin.from_names(names)
        rows = []
        for key, count in counts.items():
            path = tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)
            if len(path) != len(margin.names) or not isinstance(count, int) or count < 0:
                raise InputError(
                    f"the exact totals of {margin} hold a whole count for each of its levels"
                )
            rows.append((dict(zip(margin.names, path, strict=True)), str(count)))
        tables.append(TableFile(f"of {margin}", margin.names, tuple(rows)))
    return read_exact(tables)

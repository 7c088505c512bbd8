"""TODO."""

from collections.abc import Mapping
from typing import Any

from semidp.core.exact import exact, positive
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Dataspace, Margin
from semidp.errors import InputError, Refused, SemidpError
from semidp.mechanisms.base import Mechanism, NoNoise
from semidp.mechanisms.pure import KNormMechanism
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.mechanisms.selection import FOR_RELEASES
from semidp.queries.base import QuerySpace
from semidp.queries.products import ProductSpace, product_space
from semidp.queries.tables import sensitivity_space
from semidp.sources.contract import Outcome
from semidp.statistics.outcomes.spaces import sum_space
from semidp.statistics.quantiles.mechanism import EXPONENTIAL
from semidp.statistics.quantiles.space import RankSpace
from semidp.statistics.regression.designs import Column, Design
from semidp.statistics.regression.space import moment_space


def query_space(query: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency) -> QuerySpace:
    """Return the space of a query that `QuerySpace.query` wrote, under any exact statistics and adjacency.

    >>> from semidp.core.tables.features import Feature
    >>> from semidp.core.tables.schema import Schema
    >>> from semidp.core.tables.counts import Table
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.of(wards, [Margin("ward")])
    >>> space = sum_space(public, Adjacency(2), Outcome("score", 0, 1, steps=100), [Margin("ward")])
    >>> query_space(space.query(), public, Adjacency(1)).l2
    100.0
    >>> query_space({"kind": "opinion"}, public, Adjacency(1))
    Traceback (most recent call last):
    semidp.errors.Refused: this version of semidp knows no query 'opinion': it cannot be recomputed
    """
    kind = query.get("kind")
    if kind not in ("table", "product", "sums", "moments", "quantiles"):
        raise Refused(f"this version of semidp knows no query {kind!r}: it cannot be recomputed")
    try:
        if kind == "table":
            return sensitivity_space(dataspace, adjacency, query["features"])
        if kind == "product":
            space = product_space(dataspace, adjacency, query["tables"])
            if space.query() != query:
                raise Refused("other levels can hold a record here, over which residuals are centred otherwise")
            return space
        lower, upper = map(exact, query["bounds"])
        outcome = Outcome(query["column"], lower, upper, query["grid"])
        if kind == "sums":
            return sum_space(dataspace, adjacency, outcome, [Margin(*names) for names in query["by"]])
        if kind == "quantiles":
            from semidp.statistics.quantiles.space import rank_space

            blocks, level = [Margin(*names) for names in query["by"]], query.get("level")
            sampling = bool(query.get("sampling", False))
            return rank_space(
                dataspace, adjacency, outcome, blocks, query["probabilities"], level=level, sampling=sampling
            )
        if dataspace.schema is None:
            raise Refused("a dataspace that is only described has no design: it cannot be recomputed")
        columns = (
            Column(column["name"], tuple(column["features"]), tuple(exact(value) for value in column["values"]))
            for column in query["columns"]
        )
        design = Design(dataspace.schema, tuple(columns))
        return moment_space(dataspace, adjacency, outcome, design, query.get("combination", ()))
    except SemidpError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"the record of a query of {kind} is damaged: it cannot be recomputed") from None


def recorded(record: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency) -> Mechanism:
    """Return the mechanism of a record under any exact statistics and adjacency.

    The noise is added to the query whatever is exact, and its curve follows from its scale and from the norms of the
    query space: ``ρ = Δ2²/2σ²``, ``μ = Δ2/σ``, ``ε = Δ1/b`` and, with the l2 mechanism, ``ε = Δ2/b``; for noise on
    residuals ``μ² = 2ρ = sup Σ |r|²/σ²``, and for choices of quantiles what their rate gives. Noise that lives
    on the tables with zero margins (lattice, l2) protects only what those margins do not publish, so that the new
    statistics must include the old. K-norm noise has the shape of one space and is known under no other.

    Parameters
    ----------
    record
        What `Mechanism.record` returned.
    dataspace, adjacency
        Under which the mechanism is wanted; for noise with zero margins, within the dataspace of the record.

    Examples
    --------
    >>> from semidp.mechanisms.pure import LaplaceMechanism
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.core.tradeoff.budget import Budget
    >>> space, _ = two_way()
    >>> record = LaplaceMechanism.calibrate(space, Budget.pure(1)).record()
    >>> record["noise"]
    {'law': 'laplace', 'b': '4'}
    >>> recorded(record, space.dataspace, Adjacency(2)).tradeoff.epsilon(0)
    1.0
    """
    query, noise = record.get("query"), record.get("noise")
    if not isinstance(query, Mapping) or not isinstance(noise, Mapping):
        raise Refused("the query of this measurement was not recorded: it cannot be recomputed")
    numbers = {str(name): value for name, value in noise.items() if name != "law"}
    laws: list[type[Mechanism]] = [*FOR_RELEASES, *EXPONENTIAL, ResidualMechanism, NoNoise]
    kind = next((law for law in laws if law.name == noise.get("law")), None)
    if kind is None or kind is KNormMechanism:
        raise Refused(f"noise of the law {noise.get('law')!r} is not known under other exact statistics")
    space = query_space(query, dataspace, adjacency)
    if kind is not NoNoise and isinstance(space, RankSpace) != (kind in EXPONENTIAL):
        raise InputError(f"the record of {kind.name} noise is damaged: it cannot be recomputed")
    if isinstance(space, ProductSpace) and noise.get("law") == ResidualMechanism.name:
        try:
            return ResidualMechanism.from_record(space, noise)
        except (KeyError, TypeError, AttributeError):
            raise InputError("the record of noise on residuals is damaged: it cannot be recomputed") from None
    if kind is NoNoise and not space.is_zero:
        raise Refused("this table was published exactly because others fixed it, and here they do not fix it")
    try:
        return kind(space, **{name: positive(value, name) for name, value in numbers.items()})
    except TypeError:
        raise InputError(f"the record of {kind.name} noise is damaged: it cannot be recomputed") from None

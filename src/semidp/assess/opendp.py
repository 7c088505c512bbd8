"""The guarantee of an OpenDP measurement next to exact statistics:
``pip install semidp[opendp]``.

OpenDP lets a `Context` declare margins whose keys or lengths are public, and states its loss for
one changed row. If group sizes are exact, a row cannot change alone: the privacy map is evaluated
at the distance of a(t) changed people.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import Any

from attrs import evolve, frozen

from semidp.assess.privacy_functions import (
    NO_PRIVACY,
    Assessment,
    LossMeasure,
    Metric,
    assess,
    stated_margins,
)
from semidp.errors import InputError, MissingExtra, Refused
from semidp.promise.guarantee import Guarantee
from semidp.promise.spaces.dataspace import Dataspace, DescribedDatasets, Margin
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import from_profile
from semidp.publish.plan import Plan

METRICS = {
    "SymmetricDistance()": Metric.symmetric,
    "InsertDeleteDistance()": Metric.symmetric,
    "ChangeOneDistance()": Metric.change_one,
    "HammingDistance()": Metric.change_one,
}
MEASURES = {
    "MaxDivergence": LossMeasure.pure,
    "ZeroConcentratedDivergence": LossMeasure.zcdp,
    "Approximate(MaxDivergence)": LossMeasure.approximate,
}
_PROFILE = "SmoothedMaxDivergence"
_EPSILONS = tuple(k / 8 for k in range(400))  # at which a privacy profile is read
_MOST_COLUMNS = 12  # of a frame whose margins are looked up


def guarantee(
    measurement: Any,
    invariants: "Dataspace | Plan | Iterable[Margin | str | Iterable[str]]" = (),
    *,
    keys: Iterable[Margin | str | Iterable[str]] = (),
    a: int | None = None,
    rows: int = 1,
) -> Assessment:
    """Return what an OpenDP measurement really guarantees given exact statistics.

    Datasets of D_t in which a people change are 2ka apart in symmetric distance and ka in
    change-one distance, k rows per person, so ``measurement.map`` there bounds the loss of
    sums and counts; a is that of *all* exact statistics. The keys of a margin are exact statistics
    too: the only member of a group must be replaced. A dataset with its keys has some counts, and
    people can swap while these stay, so a(t) for counts with any values serves for keys.

    Parameters
    ----------
    measurement
        A `Measurement`, or a query of a `Context` (which is resolved). A whole `Context` only knows
        the loss of one change: give its queries, and compose their guarantees.
    invariants
        The exact counts: a `Dataspace` with their values, a plan, or margins by name. Margins
        that the Context itself declares are added.
    keys
        Margins whose list of groups is exact; those of the Context are added.
    a
        How many people change together, if a(t) is not known.
    rows
        The most rows of one person (OpenDP's ``contributions``).

    Raises
    ------
    Refused
        If the map is not a bound at that distance, or the measure has no curve.

    Examples
    --------
    >>> import opendp.prelude as dp
    >>> dp.enable_features("contrib")
    >>> scores = (
    ...     dp.vector_domain(dp.atom_domain(bounds=(0, 10)), size=50),
    ...     dp.symmetric_distance(),
    ... )
    >>> total = scores >> dp.t.then_sum() >> dp.m.then_laplace(10.0)
    >>> found = guarantee(total, ["ward"])  # somebody publishes how many live in each ward
    >>> found.announced.implied_epsilon(), found.guarantee.tradeoff.implied_epsilon()
    (Fraction(0, 1), Fraction(2, 1))
    """
    _require_opendp()
    if hasattr(measurement, "resolve"):
        measurement = measurement.resolve()
    function = _Map.from_measurement(measurement)
    lengths, declared_keys = _read_declared_margins(measurement)
    public, about = _public(
        invariants, lengths, [*(Margin.from_names(margin) for margin in keys), *declared_keys]
    )
    assessment = assess(function, public, a, rows)
    if about is not None:
        real = assessment.guarantee
        assessment = evolve(
            assessment,
            guarantee=Guarantee(Dataspace.from_description(about), real.adjacency, real.tradeoff),
        )
    _check_lengths(measurement, assessment.distance)
    return assessment


@frozen
class _Map:
    """The privacy map of a measurement, as a function that `assess` takes."""

    measurement: Any
    metric: Metric
    measure: LossMeasure | None

    @classmethod
    def from_measurement(cls, measurement: Any) -> "_Map":
        if not hasattr(measurement, "map") or not hasattr(measurement, "output_measure"):
            raise InputError("give an OpenDP measurement, or a query of a Context")
        metric, measure = str(measurement.input_metric), str(measurement.output_measure)
        if metric not in METRICS:
            raise Refused(
                f"the distance {metric} does not count the records of a dataset: give the"
                " measurement with the transformation of the data before it (symmetric,"
                " insert-delete, change-one or Hamming distance)"
            )
        if measure not in MEASURES and measure != _PROFILE:
            raise Refused(
                f"the measure {measure} has no tradeoff curve here: convert it to epsilon and"
                " delta, or to rho"
            )
        return cls(measurement, METRICS[metric], MEASURES.get(measure))

    def evaluate(self, distance: int) -> Tradeoff:
        from opendp.mod import OpenDPException

        try:
            loss = self.measurement.map(distance)
            if self.measure is not None:
                return self.measure.tradeoff(loss)
            return from_profile(
                [(epsilon, min(max(loss.delta(epsilon), 0.0), 1.0)) for epsilon in _EPSILONS]
            )
        except OpenDPException as error:
            if error.variant == "Overflow":  # the noise is so small that no number bounds the loss
                return NO_PRIVACY
            raise Refused(
                f"the privacy map states nothing at the distance {distance}: give the measurements"
                " of the queries, not the Context"
            ) from None


def _public(invariants: Any, lengths: list[Margin], keys: list[Margin]) -> tuple[Any, str | None]:
    """Return all that is exact, for `assess`, and a description where keys are among it or a value
    is not known.
    """
    if isinstance(invariants, DescribedDatasets):
        return invariants, None
    if isinstance(invariants, Dataspace):
        schema = invariants.schema
        if all(
            {*margin.names} <= {*schema.names} and invariants.publishes(margin)
            for margin in (*lengths, *keys)
        ):
            return invariants, None
        margins, features = invariants.margins, schema.features
    else:
        margins, features = stated_margins(invariants)
    counts = list(dict.fromkeys([*margins, *lengths]))
    only = [margin for margin in dict.fromkeys(keys) if not margin.is_within_any(counts)]
    told = [f"the counts of {', '.join(map(str, counts))}"] if counts else []
    told += [f"the keys of {', '.join(map(str, only))}"] if only else []
    return Plan(invariants=[*counts, *only], features=features), " and ".join(told) or None


def _read_declared_margins(measurement: Any) -> tuple[list[Margin], list[Margin]]:
    """Return the margins of a frame that OpenDP takes for exact: by their lengths, and by their
    keys alone.
    """
    lengths, keys = [], []
    for names, margin in _margins(measurement):
        if names and margin.invariant == "lengths":
            lengths.append(Margin(*names))
        elif names and margin.invariant == "keys":
            keys.append(Margin(*names))
    return lengths, keys


def _check_lengths(measurement: Any, distance: int) -> None:
    """Refuse a map that OpenDP cut at a declared group length below the distance.

    It bounds how far a group changes by its length. But a group of L rows changes by up to 2L in
    symmetric distance: all are taken out, and as many are put in.
    """
    for names, margin in _margins(measurement):
        if margin.max_length is not None and margin.max_length < distance:
            group = " and ".join(names) or "the whole frame"
            raise Refused(
                f"OpenDP's privacy map is not a bound at the distance {distance}: it takes the"
                f" declared maximum length {margin.max_length} of {group} for the most that a group"
                f" can change, where replaced rows count twice; declare at least {distance}"
            )


def _margins(measurement: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Iterate over what a frame's domain says about grouping by any of its columns."""
    domain = measurement.input_domain
    if not hasattr(domain, "get_margin"):
        return
    columns = list(domain.columns)
    if len(columns) > _MOST_COLUMNS:
        raise Refused(
            f"the frame has {len(columns)} columns and margins are looked up for at most"
            f" {_MOST_COLUMNS}: select the columns that the query needs"
        )
    for names in chain.from_iterable(
        combinations(columns, size) for size in range(len(columns) + 1)
    ):
        yield names, domain.get_margin(list(names))


def _require_opendp() -> None:
    try:
        import opendp  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "semidp.assess.opendp needs OpenDP: pip install 'semidp[opendp]'"
        ) from None

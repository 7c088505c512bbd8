"""What a release guarantees under exact statistics other than its own: those that an attacker also
knows, or does not.

The noise stays as drawn. The datasets that it must hide follow from everything exact, so further
statistics may make the guarantee weaker or stronger: it is recomputed from public values alone.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

from semidp.errors import AdjacencyUnknown, DataError, InputError, Refused
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.additive import L2Mechanism, LatticeGaussianMechanism
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency
from semidp.promise.spaces.adjacency import Adjacency, AdjacencyKind, Ball
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin, normalize_margins
from semidp.promise.spaces.linked import LinkedDataspace, linked_adjacency
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import semi_adjacency, semi_adjacency_bound
from semidp.promise.spaces.structure import widest_space
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian
from semidp.publish.plan import AdjacencyChoice, adjacency_from
from semidp.publish.survey import build_exchange

# guarantees whose numbers differ by less, relatively, are called as strong: they are printed alike
_SAME = 1e-4


def guarantee_under(
    mechanisms: Iterable[Mechanism],
    margins: Iterable[Margin],
    known: Dataspace,
    adjacency: Adjacency | AdjacencyChoice | int | str,
    outcomes: bool,
    protection: Protection | None = None,
) -> Guarantee:
    """Return what measurements guarantee if exactly these margins are exact.

    A margin without known values may have any. `outcomes` says whether records also carry an
    unpublished outcome, and `protection` whom the promise is about if a person has several records.
    """
    measured = tuple(mechanisms)
    if any(isinstance(mechanism.space.dataspace, LinkedDataspace) for mechanism in measured):
        raise Refused(
            "what noise on linked members and units guarantees under other exact totals is not"
            " known here: plan them as exact totals of the release"
        )
    reading = adjacency if isinstance(adjacency, Adjacency) else adjacency_from(adjacency)
    if isinstance(reading, int):
        reading = Ball(reading, protection)
    space, pairs, about = _exact_pairs(margins, known, reading, outcomes, protection)
    together = Guarantee.compose(*(_guarantee(mechanism, space, pairs) for mechanism in measured))
    return Guarantee(about, together.adjacency, together.tradeoff)


def other_guarantee(
    mechanisms: Iterable[Mechanism], scope: Scope, outcomes: bool
) -> Guarantee | None:
    """Return what noise guarantees under the other adjacency, from public values.

    That of an exchange release under A_a(t), any other under exchanges: ``μ' = Δ2(S')/σ`` for
    additive noise, f∘…∘f where the noise is a K-norm's. None if the other is not defined for
    these margins or not known for this noise.
    """
    try:
        if isinstance(scope.dataspace, LinkedDataspace):
            kind = scope.adjacency.by_kind(ball=AdjacencyKind.exchange, exchange=AdjacencyKind.ball)
            other: Adjacency = linked_adjacency(scope.dataspace, kind)
        elif scope.adjacency.protects_groups:
            other = build_exchange(scope.dataspace, outcomes, scope.protection)
        elif scope.semi_adjacency is not None:
            other = Ball(scope.semi_adjacency.bound, scope.protection)
        else:
            return None
        return Guarantee.compose(*(mechanism.under(other) for mechanism in mechanisms))
    except Refused:
        return None


def naive_tradeoff(dataspace: Dataspace, advertised: Iterable[Tradeoff | None]) -> Tradeoff | None:
    """Return what all noise together would seem to guarantee for one record, if that is known and
    differs.
    """
    curves = []
    for curve in advertised:
        if curve is None:
            return None
        curves.append(curve)
    # Where nothing but n is exact, nothing is forgotten.
    if not dataspace.margins:
        return None
    first, *other_curves = curves
    return first.compose(*other_curves) if other_curves else first


def _exact_pairs(
    margins: Iterable[Margin],
    known: Dataspace,
    reading: Adjacency | AdjacencyChoice,
    outcomes: bool,
    protection: Protection | None,
) -> tuple[Dataspace, Adjacency, Datasets]:
    """Return the datasets that exact statistics leave, which of them are adjacent, and what a claim
    is about.

    Norms are computed from the first dataspace; the claim's is the same where all values are known.
    """
    schema, n = known.schema, known.n
    kept = normalize_margins(schema, margins)
    unknown = [str(margin) for margin in kept if not known.publishes(margin)]
    if not unknown or not n:
        space = Dataspace.from_totals(
            schema, {margin: known.value(margin) for margin in kept if not unknown}, n
        )
        return space, _adjacency(space, reading, outcomes, protection), space
    if reading is AdjacencyChoice.definition:
        raise InputError(
            "the literal reading of a(t) is known from the totals themselves: give their values"
        )
    names = (
        schema.names
        if schema.structural_zeros
        else [name for margin in kept for name in margin.names]
    )
    if reading is AdjacencyChoice.worst_case:
        enough = semi_adjacency_bound(schema.restrict(names), kept, protection).bound
        reading = Ball(min(enough, n), protection)
    times = 1 if protection is None else protection.times
    together = max(times * (len(kept) + 1), reading.a if isinstance(reading, Adjacency) else 0)
    space = widest_space(schema, kept, known, together)
    about = f"{', '.join(map(str, kept))} ({' and '.join(unknown)} with any values)"
    return (
        space,
        _adjacency(space, reading, outcomes, protection),
        Dataspace.from_description(about),
    )


def _guarantee(mechanism: Mechanism, dataspace: Dataspace, adjacency: Adjacency) -> Guarantee:
    """Return what a mechanism that was calibrated elsewhere guarantees for other pairs."""
    released_space, ours = mechanism.space.dataspace, mechanism.space.adjacency
    if dataspace == released_space:
        return mechanism.under(adjacency)
    if adjacency.a == 0:
        return Guarantee(dataspace, adjacency, Gaussian(Fraction(0)))
    more = all(margin.is_within_any(dataspace.margins) for margin in released_space.margins)
    if isinstance(mechanism, (LatticeGaussianMechanism, L2Mechanism)) and not more:
        raise Refused(
            f"{mechanism.name} noise leaves the exact totals of the release as they are, and says"
            " nothing without them: name all that the release publishes"
        )
    try:
        return mechanism_from_record(mechanism.record(), dataspace, adjacency).guarantee
    except Refused:
        same_pairs = ours.protects_groups and adjacency.protects_groups
        fewer = same_pairs and adjacency.a <= ours.a
        if not more or not fewer:
            raise
        # fewer datasets, and no more records apart: these pairs are among those of the release
        return Guarantee(dataspace, adjacency, mechanism.tradeoff)


def _adjacency(
    dataspace: Dataspace,
    reading: Adjacency | AdjacencyChoice,
    outcomes: bool,
    protection: Protection | None,
) -> Adjacency:
    if isinstance(reading, Adjacency):
        return reading
    if reading is AdjacencyChoice.exchange:
        return build_exchange(dataspace, outcomes, protection)
    if reading is AdjacencyChoice.worst_case:
        if outcomes:
            return outcome_adjacency(dataspace, protection)
        return Ball(semi_adjacency(dataspace, protection).bound, protection)
    if protection is not None and protection.times > 1:
        raise InputError("the literal reading of a(t) is known for one record a person")
    literal = semi_adjacency(dataspace).definition
    if literal is None:
        raise AdjacencyUnknown(
            "the literal reading of a(t) is not known for these statistics", needs="adjacency"
        )
    return Ball(max(literal, 1) if outcomes else literal)


def check_same_records(known: Datasets, own: Dataspace) -> Dataspace:
    """Return exact statistics; refuse those that are not about the records of the release."""
    if not isinstance(known, Dataspace):
        raise InputError(
            "a dataspace that is only described says nothing about a release: give its margins and"
            " values"
        )
    theirs = {feature.name: feature for feature in known.schema.features}
    for feature in own.schema.features:
        if theirs.get(feature.name) != feature:
            raise InputError(
                f"the statistics must be about records with the feature {feature.name!r} of the"
                " release"
            )
    if known.n != own.n:
        raise DataError("the statistics are about another number of records than the release")
    for margin, total in zip(own.margins, own.totals, strict=True):
        if known.publishes(margin) and known.value(margin) != total:
            raise DataError(f"the statistics contradict the {margin} that the release publishes")
    return known


def change(now: Tradeoff, before: Tradeoff, delta: Fraction) -> Order:
    """Return how a guarantee changed, for a sentence: numbers that print the same count as
    equal.

    The noise of a product is rounded up (σ² to 24 bits, a joint cost within 1e-5 of the budget is
    left at the budget), so its cost, recomputed, is a little less than what was charged.
    That is not a stronger guarantee.

    >>> one, a_little_less = Gaussian(Fraction(1)), Gaussian(Fraction(99999997, 100000000))
    >>> a_little_less.compare(one).name, change(a_little_less, one, Fraction(1, 10**9)).name
    ('STRONGER', 'EQUAL')
    >>> change(Gaussian(Fraction(99, 100)), one, Fraction(1, 10**9)).name
    'STRONGER'
    """
    order = now.compare(before)
    if order is Order.EQUAL:
        return order
    if isinstance(now, Gaussian) and isinstance(before, Gaussian):  # one number says it all
        numbers = [(float(now.mu_squared), float(before.mu_squared))]
    elif isinstance(now, ZCDP) and isinstance(before, ZCDP):
        numbers = [(float(now.rho), float(before.rho))]
    else:
        # Other curves may cross, so one delta alone would not tell that they differ.
        deltas = {delta, Fraction(1, 10**3), Fraction(1, 10**6)}
        numbers = [(now.epsilon(each), before.epsilon(each)) for each in deltas]
    same = all(math.isclose(one, other, rel_tol=_SAME) for one, other in numbers)
    return Order.EQUAL if same else order

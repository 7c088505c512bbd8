"""``semidp guarantee RELEASE``: what a published release guarantees where other statistics are exact."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from semidp.cli import _options as o
from semidp.cli._output import echo, kind_and_a, print_json, print_rows
from semidp.cli._totals import totals_of
from semidp.errors import AdjacencyUnknown, InputError
from semidp.guarantees import Guarantee
from semidp.release import Plan, Release
from semidp.report import strength
from semidp.spaces import Dataspace, Margin, semi_adjacency, semi_adjacency_bound
from semidp.tables import Schema
from semidp.tradeoff import Order

CHANGES = {
    Order.EQUAL: "The guarantee stays as strong",
    Order.STRONGER: "The guarantee gets stronger",
    Order.WEAKER: "The guarantee gets weaker",
    Order.NOT_COMPARABLE: "The guarantee becomes another one, neither stronger nor weaker",
}


def under_release(
    folder: Path,
    also_known: Sequence[str],
    without: Sequence[str],
    totals: Sequence[Path],
    declared: Plan,
    adjacency: str | None,
    target: Fraction | None,
    printing: o.Printing,
) -> None:
    """Print the guarantee of a release as it was made, and under the statistics that are named."""
    release = Release.load(folder)
    known = _known(release.scope.dataspace, totals, declared)
    margins = _margins(release.scope.dataspace, known, also_known, without)
    found = release.under(margins, adjacency, known)
    delta = target or release.plan.report_delta
    change = found.tradeoff.compare(release.guarantee.tradeoff)
    warnings = _warnings(found, known, margins, bool(release.plan.outcomes))
    if without:
        warnings += ("This is about the noisy values alone: the release publishes exactly what was left out here.",)
    printing.warn(warnings)
    if printing.json:
        print_json(
            {
                "as_released": _document(release.guarantee, delta),
                "under": _document(found, delta),
                "change": str(change.value),
                "report_delta": delta,
                "explanation": str(found.explain()),
                "warnings": list(warnings),
            }
        )
        return
    for name, one in (("as released", release.guarantee), ("now", found)):
        exact = f"exact: {one.dataspace.summary()}; {one.adjacency}"
        print_rows([(name, exact), ("", strength(one, delta)[-1])], width=12)
    echo(f"\n{CHANGES[change]}. The noise is the same; the datasets that it has to hide are others.\n")
    echo(str(found.explain()))


def _document(guarantee: Guarantee, delta: Fraction) -> dict[str, Any]:
    curve = guarantee.tradeoff
    return {
        "invariant": guarantee.dataspace.summary(),
        "adjacency": kind_and_a(guarantee.adjacency),
        "tradeoff": curve.to_json(),
        "rho": curve.implied_rho(),
        "epsilon": curve.epsilon(delta),
        "strength": strength(guarantee, delta)[-1],
    }


def _known(own: Dataspace, totals: Sequence[Path], declared: Plan) -> Dataspace:
    """Return all values that are known: those of the release, and those of the files."""
    assert own.schema is not None
    if declared.structural_zeros:
        raise InputError("structural zeros are those of the release: declare features alone")
    mine = {feature.name: feature for feature in own.schema.features}
    more = tuple(feature for feature in declared.features if feature.name not in mine)
    features, zeros = (*own.schema.features, *more), own.schema.structural_zeros
    values = dict(zip(own.margins, own.totals, strict=True))
    if not totals:
        return Dataspace.known(Schema(features, zeros), values, own.n)
    told = totals_of(totals, Plan(features=features, structural_zeros=zeros))
    assert told.schema is not None
    new = dict(zip(told.margins, told.totals, strict=True))
    # what both tell must agree, which `Release.under` checks; the finer of the two is kept
    return Dataspace.known(told.schema, {**values, **new}, told.n)


def _margins(own: Dataspace, known: Dataspace, also_known: Sequence[str], without: Sequence[str]) -> list[Margin]:
    """Return all that is exact: what the release and the files publish and what is named, less what is left out."""
    assert known.schema is not None
    for name in [name for text in also_known for name in o.names_of(text)]:
        if name not in [each for feature in known.schema.features for each in feature.names]:
            raise InputError(f"the release has no feature {name!r}: give its --totals FILE, or its --levels")
    dropped = [Margin(*known.schema.closed(o.names_of(text))) for text in without]
    for margin in dropped:
        if margin not in own.margins:
            raise InputError(f"--without {','.join(margin.names)} names no margin of the release: {own.summary()}")
    told = [margin for margin in known.margins if margin not in own.margins]
    return [
        *(margin for margin in own.margins if margin not in dropped),
        *told,
        *(Margin(*o.names_of(text)) for text in also_known),
    ]


def _warnings(found: Guarantee, known: Dataspace, margins: Sequence[Margin], outcomes: bool) -> tuple[str, ...]:
    """Say where fewer records are compared than the statistics need."""
    assert known.schema is not None
    if found.adjacency.is_exchange or not margins:
        return ()
    try:
        if found.dataspace.schema is not None:
            enough = semi_adjacency(found.dataspace).bound
        else:
            names = [name for margin in margins for name in margin.names]
            enough = semi_adjacency_bound(known.schema.restrict(names), margins).bound
    except AdjacencyUnknown:
        return ("The adjacency was given and could not be checked against a(t) for these statistics.",)
    enough = max(enough, int(outcomes))
    if found.adjacency.a >= min(enough, known.n or 0):
        return ()
    return (
        f"The adjacency a = {found.adjacency.a} lies below {enough}, which is what these statistics need: some people "
        "cannot be confused with every alternative that they allow.",
    )

"""``semidp guarantee``: what an existing release really guarantees once some of its statistics are exact."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.accounting import approximate_group, dp_sgd, event_from_json, event_tradeoff, zcdp_epsilon_paper
from semidp.bridges import PrivacyFunction
from semidp.cli import _options as o
from semidp.cli._also_known import under_release
from semidp.cli._output import Format, print_json
from semidp.cli._totals import totals_of
from semidp.errors import AdjacencyUnknown, InputError, Refused
from semidp.exact import exact, plain, rounded_up
from semidp.files import from_json
from semidp.guarantees import Guarantee, read_document
from semidp.release import Reading, adjacency_from
from semidp.spaces import (
    Adjacency,
    AdjacencyKind,
    Dataspace,
    Margin,
    exchange_bound,
    semi_adjacency,
    semi_adjacency_bound,
)
from semidp.tables import Schema
from semidp.tradeoff import ZCDP, Approximate, Gaussian, Tradeoff, approximate, gaussian, zcdp

RhoStated = Annotated[str | None, typer.Option("--rho", help="The stated zero-concentrated rho.", metavar="NUMBER")]
MuStated = Annotated[str | None, typer.Option("--mu", help="The stated Gaussian mu.", metavar="NUMBER")]
EpsilonStated = Annotated[str | None, typer.Option("--epsilon", help="The stated epsilon.", metavar="NUMBER")]
DeltaStated = Annotated[
    str | None,
    typer.Option(
        "--delta", help="Beside --epsilon: the stated delta. Beside --rho or --mu: as --report-delta.", metavar="NUMBER"
    ),
]
Analysis = Annotated[
    Path | None,
    typer.Option("--analysis", help="What `semidp analyze --format json` printed: how many records.", metavar="FILE"),
]
ReleaseFolder = Annotated[
    Path | None, typer.Argument(help="A folder that `semidp release` wrote, instead of numbers.", metavar="[RELEASE]")
]
AlsoKnown = Annotated[
    list[str] | None,
    typer.Option(
        "--also-known",
        help="With a release: a margin that an attacker also knows exactly, with the values of --totals or any.",
        metavar="A[,B]",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", help="With a release: a margin that it publishes, as though it did not.", metavar="A[,B]"
    ),
]
EventFile = Annotated[
    Path | None,
    typer.Option("--event", help="A JSON file of a dp-accounting event or a privacy function.", metavar="FILE"),
]
NoiseMultiplier = Annotated[
    str | None, typer.Option("--noise-multiplier", help="DP-SGD: the noise, in clipping norms.", metavar="NUMBER")
]
Sampling = Annotated[
    str | None, typer.Option("--sampling", help="DP-SGD: how likely a record enters a batch.", metavar="NUMBER")
]
Steps = Annotated[int | None, typer.Option("--steps", help="DP-SGD: the number of batches.", metavar="N")]
Rows = Annotated[
    int, typer.Option("--rows", help="With a privacy function: the most rows of one person.", metavar="N", min=1)
]
InvariantText = Annotated[
    str | None, typer.Option("--invariant-text", help="What is published exactly, in words.", metavar="TEXT")
]

DEFAULT_TARGET = Fraction(1, 10**10)
"""The delta at which epsilon is reported, unless another is given or stated."""


def guarantee(
    release: ReleaseFolder = None,
    also_known: AlsoKnown = None,
    without: Without = None,
    rho: RhoStated = None,
    mu: MuStated = None,
    epsilon: EpsilonStated = None,
    delta: DeltaStated = None,
    event: EventFile = None,
    noise_multiplier: NoiseMultiplier = None,
    sampling: Sampling = None,
    steps: Steps = None,
    rows: Rows = 1,
    report_delta: o.ReportDelta = None,
    a: o.AOption = None,
    adjacency: o.AdjacencyOption = None,
    invariant: o.Invariants = None,
    totals: o.TotalsFiles = None,
    analysis: Analysis = None,
    schema: o.SchemaFile = None,
    levels: o.Levels = None,
    bins: o.Bins = None,
    invariant_text: InvariantText = None,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
) -> None:
    """Say what a release with exact statistics really guarantees, without its data.

    How many records move together is given (--a), taken from an --analysis, or computed from what is published exactly:
    from the --totals themselves, or for any totals of the margins that --invariant names with declared features.

    Of a RELEASE that semidp made, the guarantee is computed anew from its noise: under what an attacker also knows
    (--also-known), without what it publishes (--without), or for other pairs of datasets (--adjacency).
    """
    if release is not None:
        numbers = (rho, mu, epsilon, event, noise_multiplier, sampling, steps, invariant, invariant_text)
        if any(value is not None for value in numbers):
            raise InputError("a release states its own guarantee: give --also-known, --without or --adjacency with it")
        asked = None if adjacency is None and a is None else o.adjacency_of(adjacency, a)
        declared = o.declared_features(schema, levels, bins, None)
        target = o.target_of(delta, report_delta)
        under_release(release, also_known or (), without or (), totals or (), declared, asked, target, format, quiet)
        return
    if also_known or without:
        raise InputError("--also-known and --without are about a release: give its folder")
    claim = _event(event, noise_multiplier, sampling, steps, rows)
    if claim is None:
        claim = _Statement.of_curve(stated_curve(rho, mu, epsilon, delta))
    elif any(value is not None for value in (rho, mu, epsilon)):
        raise InputError("give one statement: an event, the settings of DP-SGD, or one of --rho, --mu and --epsilon")
    stated = claim.stated
    margins = [Margin(*o.names_of(text)) for text in invariant or ()]
    declared = o.declared_features(schema, levels, bins, None)
    if analysis is None:
        scope = _scope(o.adjacency_of(adjacency, a), margins, totals or (), declared)
    elif adjacency or a or margins or totals or declared:
        raise InputError("--analysis already says what is exact and how many records move together: give it alone")
    else:
        scope = _analysed(analysis)
    records = scope.records
    alias = delta if epsilon is None else None
    target = o.target_of(alias, report_delta) or _grown(stated, records) or DEFAULT_TARGET
    space = Dataspace.described(invariant_text) if invariant_text is not None else scope.dataspace
    real = Guarantee(space, scope.adjacency, claim.under(records))
    document: dict[str, Any] = {
        "a": records,
        "a_from": scope.source,
        "adjacency": {"kind": str(scope.kind), "a": records},
        "also_for": None if scope.other is None else {"kind": str(scope.other.kind), "a": scope.other.a},
        "invariant": space.summary(),
        "rho": _rho(real.tradeoff),
        "mu": _mu(real.tradeoff),
        "epsilon_paper": _paper(real.tradeoff, target),
        "epsilon_tight": real.tradeoff.epsilon(target),
        "report_delta": target,
        "stated": {"tradeoff": stated.to_json(), "epsilon_tight": stated.epsilon(target)},
        "tradeoff": real.tradeoff.to_json(),
        "explanation": str(real.explain()),
        "warnings": list(scope.warnings),
    }
    o.warn_all(scope.warnings, quiet)
    if format is Format.json:
        print_json(document)
    else:
        _print(document, stated, real)


def stated_curve(rho: str | None, mu: str | None, epsilon: str | None, delta: str | None) -> Tradeoff:
    """Return the curve of what is stated by one of the options."""
    if sum(value is not None for value in (rho, mu, epsilon)) != 1:
        raise InputError("give what the release states: exactly one of --rho, --mu and --epsilon")
    if rho is not None:
        return zcdp(exact(rho, "--rho"))
    if mu is not None:
        return gaussian(exact(mu, "--mu"))
    assert epsilon is not None
    return approximate(exact(epsilon, "--epsilon"), exact(delta, "--delta") if delta is not None else 0)


@dataclass(frozen=True)
class _Statement:
    """What a release states for one record, and what that is for several that change together."""

    stated: Tradeoff
    under: Callable[[int], Tradeoff]

    @classmethod
    def of_curve(cls, curve: Tradeoff) -> "_Statement":
        return cls(curve, curve.group)


def _event(
    file: Path | None, noise_multiplier: str | None, sampling: str | None, steps: int | None, rows: int
) -> _Statement | None:
    """Return what an event file, or the settings of DP-SGD, state; None where neither is given."""
    settings = (noise_multiplier, sampling, steps)
    if all(value is None for value in settings):
        if file is None:
            return None
        document = read_document(file, "an event or a privacy function")
        if "privacy_function" in document:
            function = PrivacyFunction.from_json(document)
            return _Statement(function.at(rows), lambda a: function.tradeoff(a, rows))
        event = event_from_json(document)
        return _Statement(event_tradeoff(event, 1), lambda a: event_tradeoff(event, a))
    if file is not None or None in settings:
        raise InputError("DP-SGD is stated by --noise-multiplier, --sampling and --steps together, without --event")

    from dp_accounting import NeighboringRelation

    assert noise_multiplier is not None
    assert sampling is not None
    assert steps is not None
    training = dp_sgd(float(exact(noise_multiplier, "--noise-multiplier")), float(exact(sampling, "--sampling")), steps)
    # what Opacus and JAX-privacy report is about a record that is added or removed
    reported = event_tradeoff(training, 1, NeighboringRelation.ADD_OR_REMOVE_ONE)
    return _Statement(reported, lambda a: event_tradeoff(training, a))


@dataclass(frozen=True)
class _Together:
    """How many records move together, how that is known, and the datasets it is about."""

    records: int
    source: str
    dataspace: Dataspace
    warnings: tuple[str, ...] = ()
    kind: AdjacencyKind = AdjacencyKind.ball
    other: Adjacency | None = None  # what the same grouped guarantee holds for besides

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency(self.records, self.kind)


def _scope(asked: str, margins: Sequence[Margin], totals: Sequence[Path], declared: o.Declared | None) -> _Together:
    """Return how many records move together: as given, or from what is published exactly."""
    reading = adjacency_from(asked)
    given = reading if isinstance(reading, int) else None
    if reading is Reading.exchange:
        return _exchange_scope(margins, totals, declared)
    if not margins and not totals:
        if given is None:
            raise InputError(
                "say how many records move together under the exact totals with --a N, or what is exact: --totals FILE "
                "for each margin, or --invariant A,B with --schema FILE"
            )
        return _Together(given, "given", Dataspace.described("totals published exactly"))
    space = totals_of(totals, declared) if totals else None
    published = space.margins if space else ()
    missing = [margin for margin in margins if not any(margin.within(known) for known in published)]
    try:
        if space is not None and not missing:
            found, source = semi_adjacency(space), "the published totals"
        else:
            schema = space.schema if space is not None else declared.schema() if declared is not None else None
            found = semi_adjacency_bound(_all_declared(schema, margins), [*margins, *published])
            source = "a bound for any published totals"
            space = Dataspace.described("exact totals of " + ", ".join(map(str, dict.fromkeys([*margins, *published]))))
    except AdjacencyUnknown:
        if given is None:
            raise
        return _Together(given, "given, not checked", space or Dataspace.described(", ".join(map(str, margins))))
    enough = max(found.bound, 1)  # the release has more to say than its totals, or nothing would be noisy
    if given is None and reading is Reading.definition and found.definition is not None:
        given = max(found.definition, 1)
    if given is None:
        return _Together(enough, f"{source} ({found.method})", space, other=_exchanges_within(space, enough))
    worst = f"The adjacency a = {given} lies below {enough}, which is what {source} need"
    low = (f"{worst}: some people cannot be confused with every alternative that the totals allow.",)
    return _Together(given, "given", space, low if given < enough else ())


def _analysed(path: Path) -> _Together:
    """Return how many records move together as ``semidp analyze --format json`` printed it."""
    wrong = InputError(f"{path} is not what `semidp analyze --format json` prints: write it again")
    try:
        document = from_json(o.read_text(path, "--analysis"))
        kind, a = document["adjacency"]["kind"], Adjacency(document["adjacency"]["a"])
        exact = [str(Margin(*names)) for names in document["invariants"]]
        method, warnings = document["a"]["method"], document["warnings"]
    except (ValueError, KeyError, TypeError, InputError):
        raise wrong from None
    if kind not in list(AdjacencyKind) or not all(isinstance(text, str) for text in (method, *warnings)):
        raise wrong
    described = "exact totals of " + ", ".join(exact) if exact else "the number of records"
    return _Together(
        max(a.a, 1), f"the analysis ({method})", Dataspace.described(described), tuple(warnings), AdjacencyKind(kind)
    )


def _exchange_scope(margins: Sequence[Margin], totals: Sequence[Path], declared: o.Declared | None) -> _Together:
    """Return how many records one exchange changes: a stated guarantee for one record is grouped by so many."""
    if not margins and not totals:
        raise InputError(
            "exchanges follow from what is exact: give --totals FILE for each margin, or --invariant A,B with --schema "
            "FILE for a bound over all totals"
        )
    space = totals_of(totals, declared) if totals else None
    source = "one person and those who hand over published values"
    if space is not None and all(space.publishes(margin) for margin in margins):
        records = max(Adjacency.exchange(space).a, 1)
    else:
        every = list(dict.fromkeys([*margins, *(space.margins if space is not None else ())]))
        schema = space.schema if space is not None else declared.schema() if declared is not None else None
        records = max(exchange_bound(_all_declared(schema, margins), every).a, 1)
        source = f"{source}, a bound for any published totals"
        space = Dataspace.described("exact totals of " + ", ".join(map(str, every)))
    return _Together(records, source, space, kind=AdjacencyKind.exchange, other=Adjacency(records))


def _exchanges_within(space: Dataspace, a: int) -> Adjacency | None:
    """Return exchange adjacency where any `a` records include every exchange."""
    try:
        found = Adjacency.exchange(space) if space.schema is not None else None
    except Refused:
        return None
    return found if found is not None and found.a <= a else None


def _all_declared(schema: Schema | None, margins: Sequence[Margin]) -> Schema:
    """Refuse margins of features whose levels nobody declared."""
    for name in (name for margin in margins for name in margin.names):
        if schema is None or name not in schema.names:
            raise InputError(f"--invariant names {name!r}, which is not declared: give --schema, --levels or --totals")
    assert schema is not None
    return schema


def _grown(stated: Tradeoff, records: int) -> Fraction | None:
    """Return what a stated delta becomes for several records, or None where none is stated."""
    if not isinstance(stated, Approximate) or not stated.delta0:
        return None
    if records == 1:
        return stated.delta0 if stated.delta0 < 1 else None
    _, delta = approximate_group(stated.epsilon0, stated.delta0, records)
    grown = exact(rounded_up(delta, 3))
    return grown if grown < 1 else None


def _print(document: dict[str, Any], stated: Tradeoff, real: Guarantee) -> None:
    from rich.console import Console
    from rich.table import Table

    a = real.adjacency.a
    target = document["report_delta"]
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("")
    table.add_column("as stated", justify="right")
    pairs = f"for exchanges of up to {a} records" if real.adjacency.is_exchange else f"with a = {a}"
    table.add_column(pairs, justify="right")
    for name, number in (("rho", _rho), ("mu", _mu)):
        before, after = number(stated), number(real.tradeoff)
        if before is not None and after is not None:
            table.add_row(name, plain(before), plain(after))
    if document["epsilon_paper"] is not None:
        paper = (_paper(stated, target), document["epsilon_paper"])  # to the nearest digit, as the paper prints it
        table.add_row(f"epsilon at delta {plain(target)}, formula of the paper", *(f"{x:.5f}" for x in paper))
    both = (document["stated"]["epsilon_tight"], document["epsilon_tight"])
    table.add_row(f"epsilon at delta {plain(target)}, tight", *map(_up, both))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\na = {a}: {document['a_from']}\n", markup=False)
    if document["also_for"] is not None:
        other = document["also_for"]
        pairs = "exchanges of one person" if other["kind"] == "exchange" else f"any {other['a']} records at once"
        console.print(f"The same numbers hold for {pairs}: the stated guarantee was grouped by {a}.\n", markup=False)
    console.print(str(real.explain()), markup=False)


def _rho(curve: Tradeoff) -> Fraction | None:
    return curve.implied_rho() if isinstance(curve, (ZCDP, Gaussian)) else None


def _mu(curve: Tradeoff) -> Fraction | None:
    return curve.mu if isinstance(curve, Gaussian) else None


def _paper(curve: Tradeoff, delta: Fraction) -> float | None:
    return zcdp_epsilon_paper(curve.rho, delta) if isinstance(curve, ZCDP) else None


def _up(epsilon: float) -> str:
    """Write an epsilon with five decimals, rounded up.

    >>> _up(17.915270001), _up(float("inf"))
    ('17.91528', 'none')
    """
    return "none" if math.isinf(epsilon) else f"{math.ceil(Fraction(epsilon) * 10**5) / 10**5:.5f}"

"""``semidp guarantee``: what an existing release really guarantees once some of its statistics are
exact.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from attrs import frozen

import semidp.cli._options as o
from semidp.assess.privacy_functions import OneRecord, name_curve
from semidp.cli._command import argument, command, option, plain_defaults
from semidp.cli._output import echo, grid, kind_and_a, print_grid, print_json, print_rows, say
from semidp.errors import AdjacencyUnknown, InputError, Refused
from semidp.present.release import Release
from semidp.present.report.sentences import strength
from semidp.promise.documents import from_json
from semidp.promise.exact import count_noun, exact, format_rounded_up, plain
from semidp.promise.guarantee import Guarantee
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.adjacency import Adjacency, AdjacencyKind, Ball, Exchange
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import (
    exchange_bound,
    semi_adjacency,
    semi_adjacency_bound,
)
from semidp.promise.tradeoff.budget import (
    approximate,
    approximate_group,
    gaussian,
    zcdp,
    zcdp_epsilon_paper,
)
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian
from semidp.publish.plan import AdjacencyChoice, Plan, adjacency_from
from semidp.publish.plan_settings import declare_features, read_margins, read_text
from semidp.publish.presentation import report_words
from semidp.publish.recheck_results import no_stronger
from semidp.publish.release_value import compose_guarantees, has_noisy_bins
from semidp.publish.settings import Given
from semidp.publish.side_information import change
from semidp.publish.statistics.protocol.statistic import split_names

DEFAULT_TARGET = Fraction(1, 10**10)
"""The delta at which epsilon is reported, unless another is given or stated."""

CHANGES = {
    Order.EQUAL: "The guarantee stays as strong",
    Order.STRONGER: "The guarantee gets stronger",
    Order.WEAKER: "The guarantee gets weaker",
    Order.NOT_COMPARABLE: "The guarantee becomes another one, neither stronger nor weaker",
}


_TOOLS = {OneRecord.replaced: "", OneRecord.add_remove: " (OpenDP, Tumult, MST)"}

KNOWN = (*o.EXACT, *o.ADJACENCY, "schema", "levels", "bins", "id", "most", "report_delta", "set")
"""The options that say what is exact, and so how many records move together."""


def stated_curve(options: o.Options) -> Tradeoff:
    """Return the curve of what is stated by --rho, --mu or --epsilon."""
    settings = options.given
    if settings["rho"] is not None:
        return zcdp(exact(settings["rho"], "--rho"))
    if settings["mu"] is not None:
        return gaussian(exact(settings["mu"], "--mu"))
    if settings["epsilon"] is None:
        raise InputError("give what the release states: exactly one of --rho, --mu and --epsilon")
    return approximate(
        exact(settings["epsilon"], "--epsilon"), exact(settings["delta"] or "0", "--delta")
    )


@frozen
class Statement:
    """What a release states for one record, and what that is for several that change together."""

    stated: Tradeoff
    under: Callable[[int], Tradeoff]
    read_as: OneRecord | None = None  # of a bare number, which does not say it


@frozen(field_transformer=plain_defaults)
class Exactness:
    """What is known of the exact totals, besides settings."""

    totals: list[Path] | None = o.TOTALS
    analysis: Path | None = option(
        "What `semidp analyze --format json` printed: how many records move together.", "FILE"
    )
    invariant_text: o.Text = option("What is published exactly, in words.", "TEXT")


@command
def guarantee(
    *,
    release: Path | None = argument(
        "A folder that `semidp release` wrote, instead of numbers.", "[RELEASE]", None
    ),
    also_known: o.Texts = option(
        "With a release: counts that an attacker also knows exactly, with the values of --totals"
        " or any.",
        "A[,B]",
    ),
    without: o.Texts = option(
        "With a release: counts that it publishes, as if it did not.", "A[,B]"
    ),
    stated_for: o.Text = option(
        "What the numbers promise protection for: one record that is replaced (replace, the"
        " default), or added or removed (add-remove: OpenDP, Tumult, MST).",
        "CHANGE",
    ),
    options: Annotated[o.Options, (*o.BUDGET, *KNOWN)],
    exactness: Exactness,
    printing: o.Printing,
) -> None:
    """Say what a release with exact totals really guarantees, without its data.

    Numbers of any tool: --rho, --mu or --epsilon say what it states for one record, replaced or
    added (--stated-for). How many
    records move together is given (--adjacency N), taken from an --analysis, or computed from what
    is exact: from the --totals themselves, or for any totals of what --exact names.

    A RELEASE of semidp: the guarantee is computed anew from its noise, under what an attacker also
    knows (--also-known), without what it publishes (--without), or for another --adjacency.
    """
    settings = options.given
    if release is None:
        if also_known or without:
            raise InputError("--also-known and --without are about a release: give its folder")
        # A stated curve can only be grouped.
        curve, change_of_one = stated_curve(options), OneRecord(stated_for or OneRecord.replaced)
        claim = Statement(curve, lambda a: change_of_one.group(curve, a), change_of_one)
        report_statement(claim, options, exactness, printing)
        return
    not_numbers = exactness.invariant_text is None and stated_for is None
    if options.spends or settings.has("exact") or not not_numbers:
        raise InputError(
            "a release states its own guarantee: give --also-known, --without or --adjacency with"
            " it"
        )
    beside = _Beside(
        also_known or (), without or (), exactness.totals or (), declare_features(settings)
    )
    _under_release(release, beside, options, printing)


def report_statement(
    claim: Statement, options: o.Options, exactness: Exactness, printing: o.Printing
) -> None:
    """Print what is stated for one record, and what holds for the records that move together."""
    settings, totals = options.given, exactness.totals or ()
    protection = _protection(settings)
    if settings.has("id") and protection is None:
        raise InputError("--id is about persons with several records: give --most with it")
    margins = read_margins(settings["exact"])
    declared = declare_features(settings)
    if exactness.analysis is None:
        scope = _scope(str(settings["adjacency"]), margins, totals, declared, protection)
    else:
        says_more = settings.has("adjacency", "most") or declared != Plan()
        if says_more or margins or totals:
            raise InputError(
                "--analysis already says what is exact and how many records move together: give it"
                " alone"
            )
        scope = _read_analysis(exactness.analysis)
    records = scope.adjacency.a
    # For several records a stated delta grows; at the old one no epsilon may be left.
    steps = records if claim.read_as is None else claim.read_as.metric.distance(records)
    target = _report_delta(settings) or _grown(claim.stated, steps) or DEFAULT_TARGET
    space = scope.dataspace
    if exactness.invariant_text is not None:
        space = Dataspace.from_description(exactness.invariant_text)
    real = Guarantee(space, scope.adjacency, claim.under(records))
    as_stated = {
        "tradeoff": claim.stated.to_json(),
        "epsilon_tight": claim.stated.epsilon(target),
    }
    document: dict[str, Any] = {
        "a": records,
        "a_from": scope.source,
        "adjacency": kind_and_a(scope.adjacency),
        "also_for": None if scope.other is None else kind_and_a(scope.other),
        "invariant": space.summary(),
        "rho": _rho(real.tradeoff),
        "mu": _mu(real.tradeoff),
        "epsilon_paper": _paper(real.tradeoff, target),
        "epsilon_tight": real.tradeoff.epsilon(target),
        "report_delta": target,
        "stated": as_stated,
        "stated_for": claim.read_as,
        "tradeoff": real.tradeoff.to_json(),
        "explanation": str(real.explain()),
        "warnings": list(scope.warnings),
    }
    printing.warn(scope.warnings)
    if printing.json:
        print_json(document)
    else:
        _print(document, claim, real)


def _report_delta(given: Given) -> Fraction | None:
    return None if given["report_delta"] is None else o.read_delta(given["report_delta"])


@frozen
class _Together:
    """Which records move together, how that is known, and the datasets it is about."""

    adjacency: Adjacency
    source: str
    dataspace: Datasets
    warnings: tuple[str, ...] = ()
    other: Adjacency | None = None  # what the same grouped guarantee holds for besides


def _protection(given: Given) -> Protection | None:
    """Return whom a guarantee is about if a person may have several records."""
    if given["most"] is None:
        return None
    return Protection(given["id"] or "person", given["most"], given["records"] or "records")


def _scope(
    asked: str,
    margins: Sequence[Margin],
    totals: Sequence[Path],
    declared: Plan,
    protection: Protection | None,
) -> _Together:
    """Return how many records move together: as given, or from what is published exactly.

    A stated guarantee for one record is grouped by so many; under exchange by as many as one
    exchange changes, and for a person with several records by as many as all of them need.
    """
    reading = adjacency_from(asked)
    stated_a = reading if isinstance(reading, int) else None
    if protection is not None:
        if stated_a is not None:
            raise InputError(
                "--adjacency N counts all records that move together, one person's among them:"
                " leave --most out"
            )
        if reading is AdjacencyChoice.definition:
            raise InputError(
                "the literal reading of a(t) is known for one record a person: leave --most out"
            )
    if not margins and not totals:
        return _without_totals(reading, protection)
    space = o.read_totals(totals, declared) if totals else None
    published = space.margins if space is not None else ()
    every = list(dict.fromkeys([*margins, *published]))
    missing = [margin for margin in margins if not margin.is_within_any(published)]
    schema = o.choose_schema(space, declared)
    described = Dataspace.from_description("exact totals of " + ", ".join(map(str, every)))
    if reading is AdjacencyChoice.exchange:
        source = "one person and those who hand over published values"
        if space is not None and not missing:
            exchange = Exchange.from_dataspace(space, protection)
            about: Datasets = space
        else:
            exchange = exchange_bound(_all_declared(schema, margins), every, protection)
            about, source = described, f"{source}, for any published totals"
        # What is stated is about one record, so that it is grouped by all that an exchange changes.
        records = max(exchange.a, exchange.times)
        ball = Ball(records, protection)
        return _Together(Exchange(records, protection), source, about, other=ball)
    try:
        if space is not None and not missing:
            adjacency_parameter = semi_adjacency(space, protection)
            about, source = space, "the published totals"
        else:
            features = _all_declared(schema, margins)
            adjacency_parameter = semi_adjacency_bound(features, every, protection)
            about, source = described, "for any published totals"
    except AdjacencyUnknown:
        if stated_a is None:
            raise
        # The user's number is taken, and the document says that nothing confirms it.
        unchecked = space or Dataspace.from_description(", ".join(map(str, margins)))
        return _Together(Ball(stated_a), "given, not checked", unchecked)
    # the release has more to say than its totals, or nothing would be noisy
    least = 1 if protection is None else protection.times
    enough = max(adjacency_parameter.bound, least)
    literal = adjacency_parameter.definition
    if reading is AdjacencyChoice.definition and literal is not None:
        stated_a = max(literal, 1)
    if stated_a is None:
        within = _exchanges_within(about, enough, protection)
        how = f"{source} ({adjacency_parameter.method})"
        return _Together(Ball(enough, protection), how, about, other=within)
    worst = f"The adjacency a = {stated_a} lies below {enough}, which is what {source} need"
    low = (
        f"{worst}: some people cannot be confused with every alternative that the totals allow.",
    )
    return _Together(Ball(stated_a), "given", about, low if stated_a < enough else ())


def _without_totals(reading: AdjacencyChoice | int, protection: Protection | None) -> _Together:
    """Return how many records move together where nobody says what is exact: the number that was
    given.
    """
    if reading is AdjacencyChoice.exchange:
        raise InputError(
            "exchanges follow from what is exact: give --totals FILE for each margin, or"
            " --exact A,B with --schema FILE for a bound over all totals"
        )
    if protection is not None:
        nothing = Dataspace.from_description("the number of records alone")
        return _Together(Ball(protection.times, protection), "nothing else is exact", nothing)
    if not isinstance(reading, int):
        raise InputError(
            "say how many records move together under the exact totals with --adjacency N, or what"
            " is"
            " exact: --totals FILE for each margin, or --exact A,B with --schema FILE"
        )
    return _Together(Ball(reading), "given", Dataspace.from_description("totals published exactly"))


def _read_analysis(path: Path) -> _Together:
    """Return how many records move together as ``semidp analyze --format json`` printed it."""
    wrong = InputError(f"{path} is not what `semidp analyze --format json` prints: write it again")
    try:
        document = from_json(read_text(path, "--analysis"))
        written = document["adjacency"]
        kind = written["kind"]
        # Ball refuses what is no number of records; the file may come from anybody.
        a = Ball(written["a"]).a
        whose = Adjacency.from_json(written).protection
        exact = [str(Margin(*names)) for names in document["invariants"]]
        method = document["a"]["method"]
        warnings = document["warnings"]
        texts = (method, *warnings)
    except (ValueError, KeyError, TypeError, InputError):
        raise wrong from None
    if kind not in list(AdjacencyKind) or not all(isinstance(text, str) for text in texts):
        raise wrong
    described = "exact totals of " + ", ".join(exact) if exact else "the number of records"
    least = 1 if whose is None else whose.times
    adjacency = Adjacency.from_kind(kind, max(a, least), whose)
    space = Dataspace.from_description(described)
    return _Together(adjacency, f"the analysis ({method})", space, tuple(warnings))


def _exchanges_within(space: Datasets, a: int, protection: Protection | None) -> Adjacency | None:
    """Return exchange adjacency where any `a` records include every exchange."""
    if not isinstance(space, Dataspace):
        return None
    try:
        exchange = Exchange.from_dataspace(space, protection)
    except Refused:
        return None
    return exchange if exchange.a <= a else None


def _all_declared(schema: Schema | None, margins: Sequence[Margin]) -> Schema:
    """Refuse margins of features whose levels nobody declared."""
    names = [name for margin in margins for name in margin.names]
    for name in names:
        if schema is None or name not in schema.names:
            raise InputError(
                f"--exact names {name!r}, which is not declared: give --schema, --levels or"
                " --totals"
            )
    assert schema is not None, "a margin names at least one feature"
    return schema


def _grown(stated: Tradeoff, records: int) -> Fraction | None:
    """Return what a stated delta becomes for several records, or None where none is stated."""
    if not isinstance(stated, Approximate) or not stated.delta0:
        return None
    if records == 1:
        return stated.delta0 if stated.delta0 < 1 else None
    _, delta = approximate_group(stated.epsilon0, stated.delta0, records)
    # Rounded up: below the grown delta there may be no epsilon at all.
    grown = exact(format_rounded_up(delta, 3))
    return grown if grown < 1 else None


def _print(document: dict[str, Any], claim: Statement, real: Guarantee) -> None:
    a, stated = real.adjacency.a, claim.stated
    target = document["report_delta"]
    table = grid([""], ["as stated", report_words(real.adjacency).column])
    for name, number in (("rho", _rho), ("mu", _mu)):
        before, after = number(stated), number(real.tradeoff)
        if before is not None and after is not None:
            table.add_row(name, plain(before), plain(after))
    if document["epsilon_paper"] is not None:
        # to the nearest digit, as the paper prints it
        paper = (_paper(stated, target), document["epsilon_paper"])
        digits = [f"{epsilon:.5f}" for epsilon in paper]
        table.add_row(f"epsilon at delta {plain(target)}, formula of the paper", *digits)
    tight = (document["stated"]["epsilon_tight"], document["epsilon_tight"])
    table.add_row(f"epsilon at delta {plain(target)}, tight", *map(_up, tight))
    print_grid(table)
    say(f"\na = {a}: {document['a_from']}\n")
    if claim.read_as is not None:
        other = next(one for one in OneRecord if one is not claim.read_as)
        grouped = other.group(stated, a)
        say(
            f"Read as a promise for one record {claim.read_as.words}. If it is for one record"
            f" {other.words}{_TOOLS[other]}, what holds here is {name_curve(grouped)}:"
            f" --stated-for {other}.\n"
        )
    if document["also_for"] is not None:
        pairs = Adjacency.from_json(document["also_for"]).words.pairs
        say(f"The same numbers hold for {pairs}: the stated guarantee was grouped by {a}.\n")
    say(str(real.explain()))


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
    if math.isinf(epsilon):
        return "none"
    steps = math.ceil(Fraction(epsilon) * 10**5)
    return f"{steps / 10**5:.5f}"


@frozen
class _Beside:
    """What is exact beside a release, or is left out of it."""

    also_known: Sequence[str]
    without: Sequence[str]
    totals: Sequence[Path]
    declared: Plan


def _under_release(
    folder: Path,
    exact: _Beside,
    options: o.Options,
    printing: o.Printing,
) -> None:
    """Print the guarantee of a release as it was made, and under the statistics that are named."""
    also_known, without, settings = exact.also_known, exact.without, options.given
    most = settings["most"]
    adjacency = str(settings["adjacency"]) if settings.has("adjacency") else None
    release = Release.load(folder)
    release.refuse_combined("guarantees under other statistics")
    as_released = release.guarantee
    guarantees = [mechanism.guarantee for mechanism in release.mechanisms]
    proven = compose_guarantees(release.plan, guarantees)
    # The folder may come from a stranger: its claim is compared with what its noise proves.
    if not no_stronger(as_released.tradeoff, proven.tradeoff):
        raise InputError(
            f"{folder} states a stronger guarantee than its noise gives: semidp show {folder} says"
            " more"
        )
    exact_totals = _join_totals(release.scope.dataspace, exact.totals, exact.declared)
    margins = _margins(release.scope.dataspace, exact_totals, also_known, without)
    if settings.has("id", "records"):
        raise InputError("a release says whose its records are: give --most alone")
    other_pairs = adjacency is not None or most is not None
    is_fixed = release.plan.units is not None or has_noisy_bins(release.plan)
    if is_fixed and not (also_known or without or other_pairs):
        # Nothing else is exact and the pairs are those of the release: what it states holds.
        restated = as_released
    else:
        restated = release.under(margins, adjacency, exact_totals, most)
    delta = _report_delta(settings) or release.plan.report_delta
    order = change(restated.tradeoff, as_released.tradeoff, delta)
    warnings = _warnings(restated, exact_totals, margins, bool(release.plan.outcomes))
    asked = release.scope.protection
    if most is not None and asked is not None and most < asked.most:
        warnings += (
            (
                f"The release allows up to {count_noun(asked.most, 'record')} of a person: who has"
                " more is protected less."
            ),
        )
    if without:
        warnings += (
            (
                "This is about the noisy values alone: the release publishes exactly what was left"
                " out here."
            ),
        )
    printing.warn(warnings)
    if printing.json:
        print_json(
            {
                "as_released": _document(as_released, delta),
                "under": _document(restated, delta),
                "change": str(order.value),
                "report_delta": delta,
                "explanation": str(restated.explain()),
                "warnings": list(warnings),
            }
        )
        return
    for name, one in (("as released", as_released), ("now", restated)):
        about = f"exact: {one.dataspace.summary()}; {one.adjacency}"
        print_rows([(name, about), ("", strength(one, delta)[-1])], width=12)
    same_pairs = restated.adjacency == as_released.adjacency
    if same_pairs and restated.dataspace == as_released.dataspace:
        hidden = "and so are the datasets that it has to hide"
    else:
        hidden = "but the datasets that it has to hide are others"
    echo(f"\n{CHANGES[order]}. The noise is the same, {hidden}.\n")
    echo(str(restated.explain()))


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


def _join_totals(own: Dataspace, totals: Sequence[Path], declared: Plan) -> Dataspace:
    """Return all values that are known: those of the release, and those of the files."""
    if declared.structural_zeros:
        raise InputError("structural zeros are those of the release: declare features alone")
    mine = {feature.name for feature in own.schema.features}
    more = [feature for feature in declared.features if feature.name not in mine]
    features = (*own.schema.features, *more)
    zeros = own.schema.structural_zeros
    values = dict(zip(own.margins, own.totals, strict=True))
    if not totals:
        return Dataspace.from_totals(Schema(features, zeros), values, own.n)
    told = o.read_totals(totals, Plan(features=features, structural_zeros=zeros))
    new = dict(zip(told.margins, told.totals, strict=True))
    # what both tell must agree, which `Release.under` checks; the finer of the two is kept
    return Dataspace.from_totals(told.schema, {**values, **new}, told.n)


def _margins(
    own: Dataspace, known: Dataspace, also_known: Sequence[str], without: Sequence[str]
) -> list[Margin]:
    """Return all that is exact: what the release and the files publish and what is named, less what
    is left out.
    """
    depths = [depth for feature in known.schema.features for depth in feature.names]
    for name in [name for text in also_known for name in split_names(text)]:
        if name not in depths:
            raise InputError(
                f"the release has no feature {name!r}: give its --totals FILE, or its --levels"
            )
    dropped = [Margin(*known.schema.complete_names(split_names(text))) for text in without]
    for margin in dropped:
        # A margin that was never published cannot be taken back.
        if margin not in own.margins:
            raise InputError(
                f"--without {','.join(margin.names)} names no margin of the release:"
                f" {own.summary()}"
            )
    kept = [margin for margin in own.margins if margin not in dropped]
    told = [margin for margin in known.margins if margin not in own.margins]
    named = [Margin(*split_names(text)) for text in also_known]
    return [*kept, *told, *named]


def _warnings(
    found: Guarantee, known: Dataspace, margins: Sequence[Margin], outcomes: bool
) -> tuple[str, ...]:
    """Say where fewer records are compared than the statistics need."""
    # How many records an exchange changes follows from the statistics: it is never too few.
    if not found.adjacency.protects_groups or not margins:
        return ()
    try:
        if isinstance(found.dataspace, Dataspace):
            enough = semi_adjacency(found.dataspace, found.adjacency.protection).bound
        else:
            names = [name for margin in margins for name in margin.names]
            schema = known.schema.restrict(names)
            enough = semi_adjacency_bound(schema, margins, found.adjacency.protection).bound
    except AdjacencyUnknown:
        return (
            "The adjacency was given and could not be checked against a(t) for these statistics.",
        )
    # An outcome that nothing publishes can change alone: at least one record is compared.
    enough = max(enough, int(outcomes))
    if found.adjacency.a >= min(enough, known.n or 0):
        return ()
    return (
        (
            f"The adjacency a = {found.adjacency.a} lies below {enough}, which is what these"
            " statistics need: some people cannot be confused with every alternative that they"
            " allow."
        ),
    )

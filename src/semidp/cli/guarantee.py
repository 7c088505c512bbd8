"""``semidp guarantee``: what an existing release really guarantees once some of its statistics are exact."""

import math
from fractions import Fraction
from typing import Annotated, Any

import typer

from semidp.accounting import zcdp_epsilon_paper
from semidp.cli._options import FormatOption, Quiet
from semidp.cli._output import Format, print_json
from semidp.errors import InputError
from semidp.exact import exact, plain
from semidp.guarantees import Guarantee
from semidp.spaces import Adjacency, Dataspace
from semidp.tradeoff import ZCDP, Gaussian, Tradeoff, approximate, gaussian, zcdp

RhoStated = Annotated[str | None, typer.Option("--rho", help="The stated zero-concentrated rho.", metavar="NUMBER")]
MuStated = Annotated[str | None, typer.Option("--mu", help="The stated Gaussian mu.", metavar="NUMBER")]
EpsilonStated = Annotated[str | None, typer.Option("--epsilon", help="The stated epsilon.", metavar="NUMBER")]
DeltaStated = Annotated[
    str | None, typer.Option("--delta-in", help="The stated delta beside --epsilon (0 if pure).", metavar="NUMBER")
]
Together = Annotated[
    str,
    typer.Option("--a", "--adjacency", help="How many records move together under the exact statistics.", metavar="N"),
]
Target = Annotated[str, typer.Option("--delta", help="The delta at which epsilon is reported.", metavar="NUMBER")]
InvariantText = Annotated[
    str, typer.Option("--invariant-text", help="What is published exactly, in words.", metavar="TEXT")
]


def guarantee(
    rho: RhoStated = None,
    mu: MuStated = None,
    epsilon: EpsilonStated = None,
    delta_in: DeltaStated = None,
    a: Together = "1",
    delta: Target = "1e-10",
    invariant_text: InvariantText = "totals published exactly",
    format: FormatOption = Format.text,
    quiet: Quiet = False,  # nothing here to silence: taken so that every command takes it
) -> None:
    """Say what a release with exact statistics really guarantees: --rho 2.56 --a 2 --delta 1e-10."""
    stated = _stated(rho, mu, epsilon, delta_in)
    records = _records(a)
    target = exact(delta, "--delta")
    if not 0 < target < 1:
        raise InputError(f"--delta must lie strictly between 0 and 1, not {delta}")
    real = Guarantee(Dataspace.described(invariant_text), Adjacency(records), stated.group(records))
    document: dict[str, Any] = {
        "a": records,
        "invariant": invariant_text,
        "rho": _rho(real.tradeoff),
        "mu": _mu(real.tradeoff),
        "epsilon_paper": _paper(real.tradeoff, target),
        "epsilon_tight": real.tradeoff.epsilon(target),
        "report_delta": target,
        "stated": {"tradeoff": stated.to_json(), "epsilon_tight": stated.epsilon(target)},
        "tradeoff": real.tradeoff.to_json(),
        "explanation": real.explain(),
    }
    if format is Format.json:
        print_json(document)
    else:
        _print(document, stated, real)


def _stated(rho: str | None, mu: str | None, epsilon: str | None, delta: str | None) -> Tradeoff:
    if sum(value is not None for value in (rho, mu, epsilon)) != 1:
        raise InputError("give what the release states: exactly one of --rho, --mu and --epsilon")
    if delta is not None and epsilon is None:
        raise InputError("--delta-in belongs to --epsilon; --delta is the delta at which to report")
    if rho is not None:
        return zcdp(exact(rho, "--rho"))
    if mu is not None:
        return gaussian(exact(mu, "--mu"))
    assert epsilon is not None
    return approximate(exact(epsilon, "--epsilon"), exact(delta, "--delta-in") if delta is not None else 0)


def _records(text: str) -> int:
    number = exact(text, "--a")
    if number.denominator != 1 or number < 1:
        raise InputError(f"--a must be a whole number of at least 1, not {text}")
    return int(number)


def _print(document: dict[str, Any], stated: Tradeoff, real: Guarantee) -> None:
    from rich.console import Console
    from rich.table import Table

    a = real.adjacency.a
    target = document["report_delta"]
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("")
    table.add_column("as stated", justify="right")
    table.add_column(f"with a = {a}", justify="right")
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
    console.print()
    console.print(real.explain(), markup=False)


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

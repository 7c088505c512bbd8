"""``semidp assess``: what swapping, cell keys and releases of other tools guarantee, or give away.

Swapping stands next to Gaussian noise with the same exact totals. Of a perturbation table of cell
keys it says what is published about one person.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

import semidp.cli._options as o
from semidp.assess.cell_keys import (
    SUPPRESSED,
    CellKeyAssessment,
    PerturbationTable,
    assess_cell_keys,
)
from semidp.assess.distinguishing import gaussian_mu
from semidp.assess.events import dp_sgd, event_from_json, event_tradeoff
from semidp.assess.privacy_functions import PrivacyFunction
from semidp.assess.swap_laws import RECORDS, Stratum, Swap, SwapRule
from semidp.assess.swapping import StratumLoss, SwapAssessment, assess_swapping
from semidp.cli._command import argument, command, option
from semidp.cli._output import (
    echo,
    found_out,
    grid,
    kind_and_a,
    print_grid,
    print_json,
    print_rows,
    progress_bar,
    say,
)
from semidp.cli.guarantee import KNOWN, Exactness, Statement, report_statement
from semidp.errors import InputError, Refused
from semidp.promise.exact import count_noun, exact, list_some, plain
from semidp.promise.guarantee import Guarantee, read_document
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import gaussian
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import from_profile
from semidp.publish.plan_settings import read_text
from semidp.publish.statistics.protocol.statistic import split_names

FALSE_ALARMS = (0.05, 0.01)
"""At which rates of false alarms the two curves are compared."""

_EPSILONS = [Fraction(k, 4) for k in range(81)]  # at which a curve of confidential totals is read
_SHOWN = 4  # totals of a stratum that are printed
_NOTHING = 1e-8  # an advantage below it is round-off
_PAPER = "Bailie, Gong and Meng (2026), Theorem 1"


@command
def swap(
    *,
    data: o.Text = argument(
        "The confidential records, as for release; no count of them is printed. Or give --totals.",
        "[DATA]",
        None,
        show_default=False,
    ),
    rate: o.Text = option("The share of records that are chosen to be swapped.", "NUMBER"),
    match: o.Text = option("The features on which swapped records agree.", "A[,B]"),
    over: o.Text = option("The features whose values are swapped.", "A[,B]"),
    hold: o.Text = option("The features that stay with the record and are published.", "A[,B]"),
    rule: o.Text = option(
        "shuffle (default): any permutation of the chosen records; derange: one that moves each.",
        "RULE",
    ),
    totals: list[Path] | None = o.TOTALS,
    options: Annotated[
        o.Options,
        ("schema", "levels", "bins", "count", "from_table", "where", "read_as", "id", "set"),
    ],
    printing: o.Printing,
) -> None:
    """Say what swapping records guarantees, next to noise with the same exact totals.

    It is computed from the two tables that swapping keeps exact: --totals of the matched and
    swapped features, and of the matched and held ones. Or they are counted in DATA.
    """
    if rate is None or over is None or hold is None:
        raise InputError(
            "say how many records are swapped, which values, and which stay with the record:"
            " --rate NUMBER, --over A[,B] and --hold A[,B]"
        )
    matched = split_names(match) if match is not None else ()
    swapped, held = split_names(over), split_names(hold)
    names = [*matched, *swapped, *held]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name!r} is named twice: a feature is matched, swapped over or held")
    chosen = Swap(rate, rule or SwapRule.shuffle)
    # Exactly one of the two: records and totals next to each other might disagree.
    if (data is None) == (not totals):
        raise InputError(
            "give what swapping keeps exact: two files with --totals, of the matched and swapped"
            " features and of the matched and held ones; or else the records, as DATA"
        )
    declared = options.describe()
    if declared.structural_zeros or any(feature.above for feature in declared.features):
        raise Refused(
            "swapping knows neither structural zeros nor nested features: declare flat features"
            " alone"
        )
    margins = Margin(*matched, *swapped), Margin(*matched, *held)
    space = _space(margins, totals or (), data, options)
    strata = Stratum.from_totals(
        _by_stratum(space, matched, held), _by_stratum(space, matched, swapped)
    )
    with progress_bar(printing.quiet) as progress:
        assessment = assess_swapping(chosen, strata, progress)
    _Report(assessment, margins, matched, swapped, confidential=data is not None).print(printing)


def _space(
    margins: tuple[Margin, Margin],
    totals: Sequence[Path],
    data: str | None,
    options: o.Options,
) -> Dataspace:
    """Exact totals of swapping: from the files, which must hold no other, or counted in the
    records.
    """
    if data is not None:
        # only these two tables are counted: the joint one is never read
        plan = evolve(options.describe(), invariants=margins)
        return o.build_scope(plan, data, options, ())[0].dataspace
    # Files of totals are counted already: these options would change nothing there.
    if options.given.has("count", "from_table", "where", "read_as", "id"):
        raise InputError(
            "--count, --from, --where, --read-as and --id are about records: give DATA with them"
        )
    space = o.read_totals(totals, options.describe())
    for margin in margins:
        for name in margin.names:
            if name not in space.schema.names:
                raise InputError(
                    f"no file of --totals has a column {name!r}: they have"
                    f" {', '.join(space.schema.names)}"
                )
        if not space.publishes(margin):
            raise InputError(
                f"--totals lack the counts of {margin}, which swapping keeps exact: give a file of"
                " them"
            )
    for margin in space.margins:
        if margin.is_within(margins[0]) or margin.is_within(margins[1]):
            continue
        # then several strata change together, and no stratum can be looked at alone
        raise Refused(
            f"{margin} is exact beside what swapping keeps: then several strata change together,"
            " and nothing is known of them; leave it out, or release with noise"
        )
    return space


def _by_stratum(
    space: Dataspace, match: tuple[str, ...], names: tuple[str, ...]
) -> NDArray[np.int64]:
    """Totals with a row for each stratum and a column for each value of the named features."""
    table = space.value(Margin(*match, *names))
    # The matched features come first, so that a row is one stratum.
    order = [table.schema.names.index(name) for name in (*match, *names)]
    counts = np.transpose(table.counts, order)
    strata = math.prod(counts.shape[: len(match)])
    return counts.reshape(strata, -1)


@frozen
class _Report:
    """What is printed of an assessment. Of confidential totals numbers are coarse, and no count is
    given.
    """

    assessment: SwapAssessment
    margins: tuple[Margin, Margin]
    match: tuple[str, ...]
    over: tuple[str, ...]
    confidential: bool

    def print(self, printing: o.Printing) -> None:
        """Print it for people or for machines."""
        proved = self._guarantee()
        if printing.json:
            print_json(self._document(proved))
            return
        self._opening_lines()
        self._side_by_side(proved)
        self._print_published_loss()
        self._closing_lines(proved)

    def _guarantee(self) -> Guarantee | None:
        """The guarantee where every stratum is proved."""
        # one stratum without a proof is enough for no guarantee at all
        curve: Tradeoff | None = self.assessment.curve
        if curve is None:
            return None
        # The corners of the exact curve would give confidential totals away.
        if self.confidential:
            curve = _coarse(curve)
        exact = "the counts of " + " and ".join(map(str, self.margins))
        return Guarantee(Dataspace.from_description(exact), Ball(RECORDS), curve)

    @property
    def _advantage(self) -> float:
        """Three digits: rounded up where it bounds every attacker, down where one attacker has
        it.
        """
        thousandths = self.assessment.attack * 1000
        if self.assessment.is_proved:
            return math.ceil(thousandths - 1e-6) / 1000
        return math.floor(thousandths) / 1000

    @property
    def _mu(self) -> float | None:
        """The mu of Gaussian noise with the same advantage; None where there is no such noise."""
        # no noise tells for certain, and only endless noise tells nothing
        if not _NOTHING < self._advantage < 1:
            return None
        return gaussian_mu(self._advantage)

    def _opening_lines(self) -> None:
        swap = self.assessment.swap
        within = f" within {' × '.join(self.match)}" if self.match else ""
        rules = {
            SwapRule.shuffle: "by any permutation",
            SwapRule.derange: "so that each gets the value of another record",
        }
        echo(
            f"Swapping: each record is chosen with probability {plain(swap.rate)}{within}, and the"
            " chosen"
        )
        echo(f"exchange {' × '.join(self.over)} {rules[swap.rule]}.")
        echo(f"exact      {'; '.join(map(str, self.margins))}")
        if self.confidential:
            return
        strata = self.assessment.strata
        given_away = self.assessment.fixed
        told = f"; {given_away} more are given away by their totals" if given_away else ""
        different = len(strata) + self.assessment.passed_over
        echo(f"strata     {different} of different totals{told}")
        echo(f"worst      {_describe_stratum(self.assessment.worst)}")

    def _side_by_side(self, proved: Guarantee | None) -> None:
        mu = self._mu
        columns = ["swapping", "Gaussian noise, same totals"]
        table = grid([""], columns)
        sign = "" if proved is not None else "at least "
        name = (
            "advantage of the best attacker" if proved is not None else "advantage of an attacker"
        )
        noisy = f"{self._advantage:.3f}" if mu is not None else "-"
        table.add_row(name, f"{sign}{self._advantage:.3f}", noisy)
        # Without a proof there is no curve to read: one attack bounds no other attacker.
        if proved is not None:
            for rate in FALSE_ALARMS:
                noise = "-" if mu is None else found_out(gaussian(str(mu)), rate)
                swapped = found_out(proved.tradeoff, rate)
                table.add_row(f"found out, at {rate:.0%} false alarms", swapped, noise)
        worst = self.assessment.worst
        error = "-" if mu is None else f"{self.assessment.gaussian_error(mu):.2g}"
        between = f"{worst.least_error:.2g} to {worst.most_error:.2g}"
        table.add_row("root mean square error of a cell", between, error)
        echo()
        print_grid(table)
        echo()
        say(
            "Both keep the same totals exact. The noise is scaled to the same advantage; elsewhere"
            " the two curves cross. The error of swapping depends on the true table: cells are"
            " drawn towards independence."
        )

    def _print_published_loss(self) -> None:
        epsilon, exactly = self._epsilons()
        if epsilon is None:
            return
        echo()
        digits = 0 if self.confidential else 2
        once = f"{epsilon:.{digits}f}"
        twice = f"{2 * epsilon:.{digits}f}"
        say(
            f"The literature states epsilon {once} for each record that differs ({_PAPER}), with"
            f" --rule derange. That is {twice} for two people who change places. This number grows"
            " with the largest stratum, although an attacker gains less in large strata: a pure"
            " epsilon is decided by outcomes that hardly ever occur."
        )
        if exactly is not None:
            echo(f"The exact pure epsilon of the worst stratum here is {exactly:.2f}.")

    def _epsilons(self) -> tuple[float | None, float | None]:
        """The published epsilon, rounded up, and the exact one where it is known and public."""
        epsilon = self.assessment.swap.published_epsilon(self.assessment.largest)
        if math.isinf(epsilon):
            return None, None
        # its digits give the size of the largest stratum away
        unit = 1 if self.confidential else 100
        rounded = math.ceil(epsilon * unit) / unit
        exactly = self.assessment.worst.epsilon
        if self.confidential or exactly is None or math.isinf(exactly):
            return rounded, None
        return rounded, math.ceil(exactly * 100) / 100

    def _closing_lines(self, proved: Guarantee | None) -> None:
        echo()
        if proved is not None:
            say(str(proved.explain()))
        else:
            unproved = sum(loss.curve is None for loss in self.assessment.strata)
            unproved += self.assessment.passed_over
            # How many strata are that large is a fact about confidential totals.
            which = "some strata" if self.confidential else f"{unproved} of the strata"
            say(
                f"No guarantee is stated: {which} have more tables than can be listed. The numbers"
                " above are what one attacker achieves, who looks at a single published cell;"
                " another may do better."
            )
        echo()
        say(
            "This is about counts, or records in random order, that are published after swapping,"
            " and about a rate that does not depend on the data: records chosen because they are at"
            " risk are not covered."
        )

    def _document(self, proved: Guarantee | None) -> dict[str, Any]:
        swap = self.assessment.swap
        epsilon, exactly = self._epsilons()
        worst = self.assessment.worst
        attack = {"advantage": None, "advantage_at_least": self._advantage}
        if proved is not None:
            attack = {"advantage": self._advantage, "advantage_at_least": None}
        return {
            "swap_rate": swap.rate,
            "rule": str(swap.rule),
            "exact": [list(margin.names) for margin in self.margins],
            "adjacency": kind_and_a(Ball(RECORDS)),
            "is_proved": proved is not None,
            **attack,
            "guarantee": None if proved is None else proved.to_json(),
            "error": [_two_digits(worst.least_error), _two_digits(worst.most_error)],
            "gaussian": self._gaussian(),
            "published_epsilon_per_record": epsilon,
            "epsilon_of_worst_stratum": exactly,
            "explanation": None if proved is None else str(proved.explain()),
            **self._totals(),
        }

    def _gaussian(self) -> dict[str, float] | None:
        """Gaussian noise with the same advantage."""
        mu = self._mu
        if mu is None:
            return None
        error = self.assessment.gaussian_error(mu)
        return {"mu": float(f"{mu:.4g}"), "error": _two_digits(error)}

    def _totals(self) -> dict[str, Any]:
        """What only public totals may say about strata."""
        if self.confidential:
            return {}
        stratum = self.assessment.worst.stratum
        return {
            "strata": len(self.assessment.strata) + self.assessment.passed_over,
            "strata_given_away": self.assessment.fixed,
            "worst_stratum": {"hold": stratum.hold, "swap_over": stratum.over},
        }


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")


def _coarse(curve: Tradeoff) -> Tradeoff:
    """A curve below, from deltas rounded up to three digits: its corners give no total away."""
    points = []
    for epsilon in _EPSILONS:
        # what is above by round-off alone is not rounded up
        thousandths = math.ceil(curve.delta(epsilon) * 1000 - 1e-6)
        points.append((epsilon, Fraction(min(thousandths, 1000), 1000)))
    return from_profile(points)


def _describe_stratum(loss: StratumLoss) -> str:
    stratum = loss.stratum
    held, swapped = (list_some(totals, _SHOWN, " + ") for totals in (stratum.hold, stratum.over))
    return (
        f"{count_noun(stratum.n, 'record')}: {held} by what is held, {swapped} by what is swapped"
    )


_WIDTH = 34
_SHOWN_COUNTS = 6  # counts of a list that are printed


@command
def cell_keys(
    *,
    ptable: Path = argument(
        "A perturbation table of cell keys, of the R package ptable or of ONS.", "FILE"
    ),
    cells: int = option("How many published cells count the same person.", "N", default=1, min=1),
    threshold: int = option("Published counts below this are suppressed.", "N", default=0, min=0),
    printing: o.Printing,
) -> None:
    """Say what a perturbation table of cell keys publishes about one person."""
    table = PerturbationTable.from_csv(read_text(ptable, "assess cell-keys"), str(ptable))
    # the threshold is applied to what the table publishes
    assessment = assess_cell_keys(table.suppressing(threshold), cells)
    if printing.json:
        print_json(_document(assessment))
    else:
        _print(assessment, ptable)


@command
def opendp(
    *,
    statement: Path | None = argument(
        "A JSON file of a privacy function (OpenDP) or of a dp-accounting event: see"
        " docs/opendp.md and docs/tumult.md for their forms.",
        "[FILE]",
        None,
        show_default=False,
    ),
    rows: int = option(
        "Of a privacy function: the most rows of one person.", "N", default=1, min=1
    ),
    noise_multiplier: o.Text = option("DP-SGD: the noise, in clipping norms.", "NUMBER"),
    sampling: o.Text = option("DP-SGD: how likely a record enters a batch.", "NUMBER"),
    steps: int | None = option("DP-SGD: the number of batches.", "N"),
    options: Annotated[o.Options, KNOWN],
    exactness: Exactness,
    printing: o.Printing,
) -> None:
    """Say what a release of OpenDP, dp-accounting or DP-SGD guarantees next to exact totals.

    The event or function is accounted anew for the records that move together; the options that
    say how many are those of `semidp guarantee`.
    """
    settings = (noise_multiplier, sampling, steps)
    if statement is not None and settings == (None, None, None):
        claim = _read_statement(statement, rows)
    elif statement is None and noise_multiplier and sampling and steps is not None:
        claim = _read_training(noise_multiplier, sampling, steps)
    else:
        raise InputError(
            "give a JSON FILE of a privacy function or an event; or, of DP-SGD,"
            " --noise-multiplier, --sampling and --steps together (docs/opendp.md)"
        )
    report_statement(claim, options, exactness, printing)


def _read_training(multiplier: str, sampling: str, steps: int) -> Statement:
    from dp_accounting import NeighboringRelation

    noise, rate = exact(multiplier, "--noise-multiplier"), exact(sampling, "--sampling")
    training = dp_sgd(float(noise), float(rate), steps)
    # what Opacus and JAX-privacy report is about a record that is added or removed
    reported = event_tradeoff(training, 1, NeighboringRelation.ADD_OR_REMOVE_ONE)
    return Statement(reported, lambda a: event_tradeoff(training, a))


def _read_statement(file: Path, rows: int) -> Statement:
    """Return what a file of an event or of a privacy function states."""
    document = read_document(
        file, "an event or a privacy function (docs/opendp.md and docs/tumult.md have their forms)"
    )
    if "privacy_function" in document:
        function = PrivacyFunction.from_json(document)
        return Statement(function.evaluate(rows), lambda a: function.tradeoff(a, rows))
    event = event_from_json(document)
    return Statement(event_tradeoff(event, 1), lambda a: event_tradeoff(event, a))


def _print(assessment: CellKeyAssessment, path: Path) -> None:
    table = assessment.table
    form = (
        "by count and key, as ONS"
        if table.repeats
        else "transition probabilities, as the R package ptable"
    )
    low, high = table.reach
    echo(f"Cell keys: {path} ({form}), counts 0 to {table.last}, noise {low} to {high}")
    echo()
    echo("One cell and nothing else, a person more or less")
    print_rows(_one_cell(assessment), _WIDTH)
    echo()
    echo("One table without its margins, a person in another cell of it")
    print_rows(
        [("  advantage of the best attacker", f"at most {_up(assessment.replacement_advantage)}")],
        _WIDTH,
    )
    echo()
    some = "1 cell" if assessment.cells == 1 else f"{assessment.cells} cells"
    echo(f"{some} that count the same person: what an attacker can at least do")
    print_rows(_several_cells(assessment), _WIDTH)
    echo()
    echo("Empty cells")
    for sentence in _zeros(assessment):
        echo(f"  {sentence}")
    echo()
    # The words keep apart what is guaranteed and what one attacker can at least do.
    say(
        "This holds if the keys of records are secret, uniform and independent. The first two"
        " sections are guarantees. Nothing is guaranteed for cells of several tables, or of a table"
        " and its margins, whose keys are sums of one another: another attacker may do better."
    )


def _one_cell(assessment: CellKeyAssessment) -> list[tuple[str, str]]:
    """Lines about a single cell."""
    gains = []
    for count in (assessment.worst, assessment.large):
        gained = _up(assessment.advantages[count])
        gains.append(f"{gained}, {_against(count)}")
    certain = assessment.certain(assessment.worst)
    lines = [
        ("  advantage of the best attacker", gains[0]),
        ("  for large counts", gains[1]),
        ("  found out, at 5% false alarms", found_out(assessment.curve, 0.05)),
        ("  the published number proves it", f"with probability {certain:.3f}"),
    ]
    if assessment.distinguishable_counts:
        lines.append(("  told apart for certain", _pairs(assessment.distinguishable_counts)))
    return lines


def _several_cells(assessment: CellKeyAssessment) -> list[tuple[str, str]]:
    """Lines about several cells: at the count where they reveal most, and for large counts."""
    count, gained = assessment.worst_repetition
    large = assessment.large
    for_large = _down(assessment.repetition_advantage(large))
    return [
        (f"  advantage {_against(count)}", f"at least {_down(gained)}"),
        (f"  {_against(large)}", f"at least {for_large}"),
    ]


def _against(count: int) -> str:
    return f"at {count} against {count + 1}"


def _zeros(assessment: CellKeyAssessment) -> list[str]:
    """What is known about cells with nobody in them."""
    empty = assessment.empty_cell
    name = "as suppressed" if empty == SUPPRESSED else f"as {empty}"
    hidden = assessment.hidden
    sentences = [
        f"An empty cell is always published {name}: anything else proves that somebody is there.",
        "One person alone in a cell is seen to be there with probability"
        f" {assessment.detection_probability:.3f}.",
    ]
    if hidden:
        counts = list_some(hidden, _SHOWN_COUNTS)
        sentences.append(f"Counts that may be published {name}, too: {counts}.")
    else:
        sentences.append(
            "No other count is published so: which cells are empty is published exactly."
        )
    return sentences


def _pairs(counts: list[int]) -> str:
    """Counts that are told from one more.

    >>> _pairs([9, 12, 13])
    '9 from 10, 12 from 13, 13 from 14'
    """
    return list_some(counts, _SHOWN_COUNTS, write=lambda count: f"{count} from {count + 1}")


def _up(number: float) -> str:
    # what is above by round-off alone is not rounded up
    thousandths = math.ceil(number * 1000 - 1e-6)
    return f"{min(thousandths, 1000) / 1000:.3f}"


def _down(number: float) -> str:
    # A lower bound on an attacker is rounded down, so that nothing is claimed that was not found.
    thousandths = math.floor(number * 1000 + 1e-9)
    return f"{thousandths / 1000:.3f}"


def _document(assessment: CellKeyAssessment) -> dict[str, Any]:
    count, gained = assessment.worst_repetition
    worst, large = assessment.worst, assessment.large
    advantages = assessment.advantages
    one_cell = {
        "advantage": advantages[worst],
        "at_count": worst,
        "certain": assessment.certain(worst),
        "advantage_of_large_counts": advantages[large],
        "tradeoff": assessment.curve.to_json(),
        "told_apart": assessment.distinguishable_counts,
    }
    # never a guarantee: keys of several tables are sums of one another
    several = {
        "cells": assessment.cells,
        "at_count": count,
        "advantage_at_least": gained,
        "is_a_guarantee": False,
    }
    empty = {
        "published_as": assessment.empty_cell,
        "one_person_is_seen": assessment.detection_probability,
        "other_counts_published_so": assessment.hidden,
    }
    replaced = {"advantage_at_most": assessment.replacement_advantage}
    return {
        "one_cell": one_cell,
        "one_table_without_margins": replaced,
        "several_cells": several,
        "empty_cells": empty,
    }

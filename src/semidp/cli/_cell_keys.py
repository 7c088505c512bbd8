"""``semidp guarantee --ptable``: what a perturbation table of cell keys publishes about one
person.
"""

import math
from pathlib import Path
from typing import Any

from attrs import frozen

import semidp.cli._options as o
from semidp.assess.cell_keys import (
    SUPPRESSED,
    CellKeyAssessment,
    PerturbationTable,
    assess_cell_keys,
)
from semidp.cli._command import option, plain_defaults
from semidp.cli._output import echo, found_out, print_json, print_rows, say
from semidp.errors import InputError

_WIDTH = 34
_SHOWN = 6  # counts of a list that are printed


@frozen(field_transformer=plain_defaults)
class CellKeys:
    """A perturbation table, and how many cells share a person."""

    ptable: Path | None = option(
        "A perturbation table of cell keys, of the R package ptable or of ONS.", "FILE"
    )
    cells: int | None = option(
        "With --ptable: how many published cells count the same person (default 1).", "N", min=1
    )
    threshold: int | None = option(
        "With --ptable: published counts below this are suppressed.", "N", min=0
    )

    @property
    def is_given(self) -> bool:
        """Whether one of the options was given."""
        return self != CellKeys()

    def report(self, printing: o.Printing) -> None:
        """Print what the table publishes."""
        if self.ptable is None:
            raise InputError(
                "--cells and --threshold are about cell keys: give the perturbation table with"
                " --ptable FILE"
            )
        text = o.read_text(self.ptable, "--ptable")
        table = PerturbationTable.from_csv(text, str(self.ptable))
        # the threshold is applied to what the table publishes
        table = table.suppressing(self.threshold or 0)
        assessment = assess_cell_keys(table, self.cells or 1)
        if printing.json:
            print_json(_document(assessment))
        else:
            _print(assessment, self.ptable)


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
        "This holds if the keys of records are secret, uniform and independent. The first two are"
        " guarantees for what they name. For cells of several tables, or of one table and its"
        " margins, keys are sums of one another: nothing is guaranteed there, and another attacker"
        " may do better."
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
        ("  the number alone settles it", f"with probability {certain:.3f}"),
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
        counts = _first([str(count) for count in hidden])
        sentences.append(f"Counts that may be published alike: {counts}.")
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
    pairs = [f"{count} from {count + 1}" for count in counts]
    return _first(pairs)


def _first(texts: list[str]) -> str:
    """The first of many, and how many more there are."""
    shown = ", ".join(texts[:_SHOWN])
    more = len(texts) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


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

"""``semidp guarantee --ptable``: what a perturbation table of cell keys publishes about one person."""

import itertools
import math
from pathlib import Path
from typing import Any

from attrs import frozen

from semidp.bridges.cell_keys import CellKeyAssessment, assess_cell_keys
from semidp.bridges.perturbation_tables import SUPPRESSED, PerturbationTable
from semidp.cli import _options as o
from semidp.cli._command import option, plain_defaults
from semidp.cli._output import echo, print_json, print_rows, say
from semidp.core.tradeoff.base import Tradeoff
from semidp.errors import InputError

_WIDTH = 34
_SHOWN = 6  # counts of a list that are printed


@frozen(field_transformer=plain_defaults)
class CellKeys:
    """A perturbation table, and how many cells share a person."""

    ptable: Path | None = option("A perturbation table of cell keys, of the R package ptable or of ONS.", "FILE")
    cells: int | None = option("With --ptable: how many published cells count the same person (default 1).", "N", min=1)
    threshold: int | None = option("With --ptable: published counts below this are suppressed.", "N", min=0)

    @property
    def given(self) -> bool:
        """Whether one of the options was given."""
        return self != CellKeys()

    def report(self, printing: o.Printing) -> None:
        """Print what the table publishes."""
        if self.ptable is None:
            raise InputError(
                "--cells and --threshold are about cell keys: give the perturbation table with --ptable FILE"
            )
        text = o.read_text(self.ptable, "--ptable")
        table = PerturbationTable.from_csv(text, str(self.ptable)).suppressing(self.threshold or 0)
        assessment = assess_cell_keys(table, self.cells or 1)
        if printing.json:
            print_json(_document(assessment))
        else:
            _print(assessment, self.ptable)


def _print(assessment: CellKeyAssessment, path: Path) -> None:
    table = assessment.table
    form = "by count and key, as ONS" if table.repeats else "transition probabilities, as the R package ptable"
    low, high = table.reach
    echo(f"Cell keys: {path} ({form}), counts 0 to {table.last}, noise {low} to {high}")
    echo()
    worst, large = assessment.worst, assessment.large
    echo("One cell and nothing else, a person more or less")
    rows = [
        ("  advantage of the best attacker", f"{_up(assessment.advantages[worst])}, at {worst} against {worst + 1}"),
        ("  for large counts", f"{_up(assessment.advantages[large])}, at {large} against {large + 1}"),
        ("  found out, at 5% false alarms", _power(assessment.curve)),
        ("  the number alone settles it", f"with probability {assessment.certain(worst):.3f}"),
    ]
    apart = assessment.told_apart
    if apart:
        rows.append(("  told apart for certain", _pairs(apart)))
    print_rows(rows, _WIDTH)
    echo()
    echo("One table without its margins, a person in another cell of it")
    print_rows([("  advantage of the best attacker", f"at most {_up(assessment.replaced)}")], _WIDTH)
    echo()
    count, gained = assessment.repeated
    some = "1 cell" if assessment.cells == 1 else f"{assessment.cells} cells"
    echo(f"{some} that count the same person: what an attacker can at least do")
    rows = [
        (f"  advantage at {count} against {count + 1}", f"at least {_down(gained)}"),
        (f"  at {large} against {large + 1}", f"at least {_down(assessment.repeated_at(large))}"),
    ]
    print_rows(rows, _WIDTH)
    echo()
    echo("Empty cells")
    for sentence in _zeros(assessment):
        echo(f"  {sentence}")
    echo()
    say(
        "This holds if the keys of records are secret, uniform and independent. The first two are guarantees for "
        "what they name. For cells of several tables, or of one table and its margins, keys are sums of one another: "
        "nothing is guaranteed there, and another attacker may do better."
    )


def _zeros(assessment: CellKeyAssessment) -> list[str]:
    """What is known about cells with nobody in them."""
    empty = assessment.empty_cell
    name = "as suppressed" if empty == SUPPRESSED else f"as {empty}"
    hidden = assessment.hidden
    sentences = [
        f"An empty cell is always published {name}: anything else proves that somebody is there.",
        f"One person alone in a cell is seen to be there with probability {assessment.shown:.3f}.",
    ]
    if hidden:
        shown = ", ".join(map(str, hidden[:_SHOWN]))
        more = f" and {len(hidden) - _SHOWN} more" if len(hidden) > _SHOWN else ""
        sentences.append(f"Counts that may be published alike: {shown}{more}.")
    else:
        sentences.append("No other count is published so: which cells are empty is published exactly.")
    return sentences


def _pairs(counts: list[int]) -> str:
    """Counts that are told from one more.

    >>> _pairs([9, 12, 13])
    '9 from 10, 12 from 13, 13 from 14'
    """
    shown = ", ".join(f"{count} from {count + 1}" for count in itertools.islice(counts, _SHOWN))
    return f"{shown} and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else shown


def _power(curve: Tradeoff) -> str:
    power = 1 - float(curve(0.95))
    return f"{min(math.ceil(power * 1000 - 1e-6) / 10, 100):.1f}%"


def _up(number: float) -> str:
    return f"{min(math.ceil(number * 1000 - 1e-6) / 1000, 1):.3f}"


def _down(number: float) -> str:
    return f"{math.floor(number * 1000 + 1e-9) / 1000:.3f}"


def _document(assessment: CellKeyAssessment) -> dict[str, Any]:
    count, gained = assessment.repeated
    worst = assessment.worst
    return {
        "one_cell": {
            "advantage": assessment.advantages[worst],
            "at_count": worst,
            "certain": assessment.certain(worst),
            "advantage_of_large_counts": assessment.advantages[assessment.large],
            "tradeoff": assessment.curve.to_json(),
            "told_apart": assessment.told_apart,
        },
        "one_table_without_margins": {"advantage_at_most": assessment.replaced},
        "several_cells": {
            "cells": assessment.cells,
            "at_count": count,
            "advantage_at_least": gained,
            "is_a_guarantee": False,
        },
        "empty_cells": {
            "published_as": assessment.empty_cell,
            "one_person_is_seen": assessment.shown,
            "other_counts_published_so": assessment.hidden,
        },
    }

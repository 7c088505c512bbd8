"""Cell keys: their laws by all keys, their curves by all tests, and the files that offices use."""

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from semidp.assess import PerturbationTable, assess_cell_keys
from semidp.assess.distinguishing import curve_between, repeated_advantage
from semidp.errors import DataError, InputError

KEYS = 4
NOISE = {1: (-1, 0, 0, 1), 2: (-1, 0, 1, 1), 3: (-2, 0, 1, 1), 4: (-1, -1, 0, 2)}
"""A small table of ONS's kind: noise by count and key."""
LOOKUP = "pcv,ckey,pvalue\n" + "".join(
    f"{count},{key},{added}\n" for count, row in NOISE.items() for key, added in enumerate(row)
)
TAU_ARGUS = """i;j;p;v;p_int_ub
0;0;1.00000000; 0;1.0000000
1;0;0.50000000;-1;0.5000000
1;2;0.49999999; 1;1.0000000
2;0;0.25000000;-2;0.2500000
2;2;0.50000000; 0;0.7500000
2;4;0.25000000; 2;1.0000000
"""
"""As the R package ptable exports it: padded, rounded, with further columns."""


def published(counted: Sequence[int], keys: Sequence[int]) -> int:
    """What is published of a cell with these records."""
    count = len(counted)
    key = sum(keys[record] for record in counted) % KEYS
    return count + (NOISE[count][key] if count in NOISE else 0)


def by_all_keys(cells: Sequence[Sequence[int]], records: int) -> dict[Any, Fraction]:
    law: dict[Any, Fraction] = defaultdict(Fraction)
    for keys in itertools.product(range(KEYS), repeat=records):
        law[tuple(published(cell, keys) for cell in cells)] += Fraction(1, KEYS**records)
    return dict(law)


def test_the_law_of_a_cell_is_that_of_all_keys() -> None:
    table = PerturbationTable.from_csv(LOOKUP)
    for count in range(6):
        expected = by_all_keys([range(count)], max(count, 1))
        assert {(value,): chance for value, chance in table.law(count).items()} == expected


def test_the_curve_is_that_of_all_tests() -> None:
    assessment = assess_cell_keys(PerturbationTable.from_csv(LOOKUP))
    tests = 0
    for count in range(6):
        for null, other in itertools.permutations(assessment.pair(count)):
            outcomes = sorted({*null, *other})
            for size in range(len(outcomes) + 1):
                for rejected in itertools.combinations(outcomes, size):
                    alarms = sum((null.get(value, Fraction(0)) for value in rejected), Fraction(0))
                    missed = 1 - sum(
                        (other.get(value, Fraction(0)) for value in rejected), Fraction(0)
                    )
                    assert assessment.curve.evaluate_exactly(1 - alarms) <= missed
                    tests += 1
    assert tests > 150
    assert (
        assessment.curve.delta(0)
        == max(assessment.advantages)
        == assessment.advantages[assessment.worst]
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_cells_with_a_record_of_their_own_are_independent(count: int) -> None:
    """Two cells share person 0 and have other records each; with and without the person all keys
    are gone through.
    """
    others = [list(range(1, 1 + count)), list(range(1 + count, 1 + 2 * count))]
    records = 1 + 2 * count
    with_person = by_all_keys([[0, *others[0]], [0, *others[1]]], records)
    without = by_all_keys(others, records)
    exact = curve_between(without, with_person).delta(0)
    first, second = assess_cell_keys(PerturbationTable.from_csv(LOOKUP)).pair(count)
    assert repeated_advantage(first, second, 2) == pytest.approx(exact, abs=1e-3)
    assert repeated_advantage(first, second, 2) <= exact


def test_a_person_in_another_cell_of_one_table() -> None:
    """One cell loses the person and another gains it: all keys of all small tables, against the
    bound.
    """
    advantages = [
        Fraction(gain) for gain in assess_cell_keys(PerturbationTable.from_csv(LOOKUP)).advantages
    ]
    closest = 0.0
    for one, other in itertools.product(range(3), repeat=2):
        records = one + other + 1
        first, second = list(range(1, 1 + one)), list(range(1 + one, records))
        here = by_all_keys([[0, *first], second], records)
        there = by_all_keys([first, [0, *second]], records)
        gain = curve_between(here, there).delta(0)
        bound = 1 - (1 - advantages[one]) * (1 - advantages[other])
        assert gain <= bound < 1
        closest = max(closest, gain / float(bound))
    assert closest > 0.9
    smooth = assess_cell_keys(
        PerturbationTable.from_csv("i,j,p\n0,0,1\n1,0,0.25\n1,1,0.5\n1,2,0.25\n")
    )
    assert smooth.replacement_advantage == 1 - 0.25**2


def test_a_margin_tells_more_than_independent_cells() -> None:
    """Keys of a union are sums: two cells and their total reveal more than the composition of two
    cells allows.
    """
    most_gained = 0.0
    for one, other in itertools.product(range(1, 3), repeat=2):
        records = one + other + 1
        cell, beside = list(range(1, 1 + one)), list(range(1 + one, records))
        total = [*cell, *beside]
        apart = curve_between(
            by_all_keys([cell, beside, total], records),
            by_all_keys([[0, *cell], beside, [0, *total]], records),
        ).delta(0)
        alone = curve_between(
            by_all_keys([cell], records), by_all_keys([[0, *cell]], records)
        ).delta(0)
        most_gained = max(most_gained, apart - alone)
    assert most_gained > 0.05


def test_many_cells_are_an_attack_below_the_truth() -> None:
    table = PerturbationTable.from_csv(TAU_ARGUS)
    first, second = assess_cell_keys(table).pair(2)
    compared = 0
    for times in (1, 2, 3, 4):
        joint = []
        for law in (first, second):
            product: dict[Any, Fraction] = defaultdict(Fraction)
            for outcomes in itertools.product(law, repeat=times):
                chance = Fraction(1)
                for outcome in outcomes:
                    chance *= law[outcome]
                product[outcomes] += chance
            joint.append(product)
        exact = curve_between(*joint).delta(0)
        assert exact - 1e-3 <= repeated_advantage(first, second, times) <= exact
        compared += 1
    assert compared == 4
    gains = [assess_cell_keys(table, cells).worst_repetition[1] for cells in (1, 4, 40, 400)]
    assert gains == sorted(gains)


def test_laws_without_a_common_outcome_are_told_apart() -> None:
    one, other = {0: Fraction(1)}, {1: Fraction(1)}
    assert repeated_advantage(one, other, 3) == 1
    assert repeated_advantage(one, one, 3) == 0


def random_table(generator: random.Random) -> tuple[dict[int, dict[int, Fraction]], int]:
    """Rows of a table by count, which may publish negative numbers, and a threshold."""
    rows = {0: {generator.choice([0, 0, 1]): Fraction(1)}}
    for count in range(1, generator.randint(1, 6)):
        noises = generator.sample(range(-4, 5), generator.randint(1, 4))
        weights = [generator.randint(1, 5) for _ in noises]
        rows[count] = {
            noise: Fraction(weight, sum(weights))
            for noise, weight in zip(noises, weights, strict=True)
        }
    return rows, generator.choice([0, 0, 1, 2, 3, 5, 8, 13, 20])


def by_every_count(
    rows: dict[int, dict[int, Fraction]], threshold: int, lookup: bool
) -> tuple[Fraction, set[int], list[tuple[Fraction, Fraction]]]:
    """The largest advantage over all counts, those told apart for certain, and what attackers that
    name one count can do: by the definition, far beyond the rows and the threshold.
    """

    def law(count: int) -> dict[int | None, Fraction]:
        # ONS gives no noise to a count without a row, ptable that of the last row
        row = rows.get(count, {0: Fraction(1)}) if lookup else rows[min(count, len(rows) - 1)]
        found: dict[int | None, Fraction] = defaultdict(Fraction)
        for noise, chance in row.items():
            value = count + noise
            found[None if threshold and value < threshold else value] += chance
        return found

    most, apart, attacks = Fraction(0), set[int](), list[tuple[Fraction, Fraction]]()
    for count in range(len(rows) + threshold + 40):
        pair = law(count), law(count + 1)
        values = {*pair[0], *pair[1]}
        for one, other in (pair, pair[::-1]):
            gains = {value: other.get(value, 0) - one.get(value, 0) for value in values}
            most = max(most, sum(gain for gain in gains.values() if gain > 0))
            kept = [value for value in values if gains[value] <= 0]
            attacks.append(
                (
                    sum((one.get(value, Fraction(0)) for value in kept), Fraction(0)),
                    sum((other.get(value, Fraction(0)) for value in kept), Fraction(0)),
                )
            )
        if not {*pair[0]} & {*pair[1]}:
            apart.add(count)
    return most, apart, attacks


def understated(tables: int, seed: int, lookup: bool = False) -> tuple[int, int]:
    """How many random tables are assessed too low, and how many have a threshold."""
    generator, wrong, suppressing = random.Random(seed), 0, 0
    for _ in range(tables):
        rows, threshold = random_table(generator)
        table = PerturbationTable(rows, repeats=lookup).suppressing(threshold)
        assessment = assess_cell_keys(table)
        most, apart, attacks = by_every_count(rows, threshold, lookup)
        suppressing += threshold > 0
        right = (
            max(assessment.advantages) == pytest.approx(float(most), abs=1e-12)
            and assessment.curve.delta(0) == pytest.approx(float(most), abs=1e-12)
            and {*assessment.distinguishable_counts}
            >= {count for count in apart if count <= table.last}
            and all(
                assessment.curve.evaluate_exactly(accepted) <= missed
                for accepted, missed in attacks
            )
        )
        wrong += not right
    return wrong, suppressing


@pytest.mark.parametrize(
    ("tables", "with_threshold"), [(100, 74), pytest.param(840, 655, marks=pytest.mark.long)]
)
def test_no_count_near_a_threshold_is_left_out(tables: int, with_threshold: int) -> None:
    """Random tables of the R package: every count far beyond the threshold, both directions."""
    assert understated(tables, 43) == (0, with_threshold)


@pytest.mark.long
def test_no_count_near_a_threshold_is_left_out_of_the_other_format() -> None:
    assert understated(12, 44, lookup=True)[0] == 0


def test_a_comparison_that_stops_at_the_last_row_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin: counts were compared up to the last row alone."""
    monkeypatch.setattr(PerturbationTable, "last", property(lambda self: max(1, *self.rows)))
    assert understated(100, 43)[0] > 30


def test_the_export_of_the_r_package() -> None:
    table = PerturbationTable.from_csv(TAU_ARGUS)
    assert table.last == 2
    assert table.reach == (-2, 2)
    assert sum(table.law(1).values()) == 1
    assert table.law(100) == {98: Fraction(1, 4), 100: Fraction(1, 2), 102: Fraction(1, 4)}
    by_comma = TAU_ARGUS.replace(";", ",").replace(" ", "")
    assert PerturbationTable.from_csv(by_comma) == table
    decimal_commas = TAU_ARGUS.replace(".", ",")
    assert PerturbationTable.from_csv(decimal_commas) == table


def test_empty_cells_are_published_as_they_are() -> None:
    assessment = assess_cell_keys(PerturbationTable.from_csv(TAU_ARGUS))
    assert assessment.empty_cell == 0
    assert assessment.hidden == [1, 2]
    assert assessment.detection_probability == pytest.approx(0.5)
    # the sum of no keys is 0, so that a row for 0 is a constant, whatever it says
    noisy = PerturbationTable.from_csv("i,j,p\n0,0,0.5\n0,1,0.5\n1,1,1\n")
    assert noisy.law(0) == {0: 1}
    assert assess_cell_keys(noisy).hidden == []
    assert assess_cell_keys(noisy).distinguishable_counts == [0, 1]


def test_a_deterministic_table_hides_nothing_at_its_steps() -> None:
    """Counts below 10 go to 0, others to the nearest 5: the rule of the table that ONS ships."""
    rule = {
        count: -count if count < 10 else (count + 2) // 5 * 5 - count for count in range(1, 751)
    }
    text = "pcv,ckey,pvalue\n" + "".join(
        f"{count},{key},{rule[count]}\n" for count in rule for key in (0, 1)
    )
    assessment = assess_cell_keys(PerturbationTable.from_csv(text), 40)
    assert assessment.distinguishable_counts[:4] == [9, 12, 17, 22]
    assert len(assessment.distinguishable_counts) == 149
    assert assessment.certain(9) == 1
    assert assessment.curve.delta(0) == 1
    suppressed = PerturbationTable.from_csv(text).suppressing(10)
    assert suppressed.law(4) == suppressed.law(0) == {"suppressed": 1}
    assert assess_cell_keys(suppressed).distinguishable_counts[0] == 9


def test_large_counts_use_the_last_rows_again() -> None:
    rule = {count: 1 if count == 501 else 0 for count in range(1, 751)}
    table = PerturbationTable.from_csv(
        "pcv,ckey,pvalue\n" + "".join(f"{c},0,{v}\n" for c, v in rule.items())
    )
    for count in (501, 751, 1001, 100_001):
        assert table.law(count) == {count + 1: 1}
    assert table.law(750) == {750: 1}
    assert PerturbationTable.from_csv("pcv,ckey,pvalue\n1,3,2\n").law(1) == {
        3: Fraction(1, 4),
        1: Fraction(3, 4),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no row"),
        ("i;j;p\n", "holds no row"),
        ("a,b\n1,2\n", "needs the columns i, j, p or pcv, ckey, pvalue"),
        ("i,j,p\n0,0,1\n1,x,1\n", "row 3 of t.csv has no number"),
        ("i,j,p\n0,0,1\n1,0\n", "another number of fields"),
        ("i,j,p\n0,0,1\n1,0,0.5\n", "do not add up to 1"),
        ("i,j,p\n0,0,1\n1,0,2\n", "between 0 and 1"),
        ("i,j,p\n0,0,1\n2,0,1\n", "every count from 0"),
        ("i,j,p\n0,0,1\n0,0,1\n", "twice"),
        ("i,j,p\n0,0.5,1\n", "not whole numbers"),
        ("i,j,p,type\n0,0,1,even\n", "for magnitudes"),
        ("pcv,ckey,pvalue\n1,0,0\n1,0,1\n", "twice"),
        ("pcv,ckey,pvalue\n1,-1,0\n", "not a whole number"),
        ("pcv,ckey,pvalue\n1,9999999,0\n", "beyond a million"),
        ('i,j,p\n"0,0,1\n', "not a CSV file"),
    ],
)
def test_other_files_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        PerturbationTable.from_csv(text, "t.csv")


def test_senseless_numbers_are_refused() -> None:
    table = PerturbationTable.from_csv(LOOKUP)
    with pytest.raises(InputError, match="at least 1 cell"):
        assess_cell_keys(table, 0)
    with pytest.raises(InputError, match="threshold"):
        table.suppressing(501)

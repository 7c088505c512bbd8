"""``semidp assess swap`` and ``cell-keys``: what they print, what they keep to themselves, what
they refuse.
"""

import random
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Semidp, one_sentence

SWAP = ("assess", "swap", "--rate", "0.1", "--match", "size", "--over", "block", "--hold", "race")
PTABLE = "i;j;p;v\n0;0;1;0\n1;0;0.3;-1\n1;1;0.4;0\n1;2;0.3;1\n2;1;0.25;-1\n2;2;0.5;0\n2;3;0.25;1\n"


@pytest.fixture
def totals(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "blocks.csv").write_text("size,block,count\n1,a,6\n1,b,6\n2,a,5\n2,b,15\n")
    (tmp_path / "races.csv").write_text("size,race,count\n1,x,6\n1,y,6\n2,x,8\n2,y,12\n")
    return "--totals", "blocks.csv", "--totals", "races.csv"


def write_people(folder: Path, sizes: dict[str, int]) -> None:
    source = random.Random(3)
    lines = [
        f"{size},{source.choice('ab')},{source.choice('xy')}"
        for size, n in sizes.items()
        for _ in range(n)
    ]
    (folder / "people.csv").write_text("\n".join(["size,block,race", *lines]) + "\n")


def test_totals_give_the_curve_and_the_worst_stratum(here: Semidp, totals: tuple[str, ...]) -> None:
    done = here(*SWAP, *totals)
    assert done.code == 0, done.err
    assert "exact      size × block; size × race" in done.out
    assert "12 records: 6 + 6 by what is held, 6 + 6 by what is swapped" in done.out
    assert re.search(r"advantage of the best attacker +0\.911 +0\.911", done.out)
    assert "differ in at most 3 records" in done.out.replace("\n", " ")
    found = here(*SWAP, *totals, "--format", "json").json
    assert found["is_proved"]
    assert found["advantage"] == 0.911
    assert found["worst_stratum"] == {"hold": [6, 6], "swap_over": [6, 6]}
    assert found["guarantee"]["adjacency"]["a"] == 3
    assert found["published_epsilon_per_record"] == 5.25
    deranged = here(*SWAP, *totals, "--rule", "derange", "--format", "json").json
    assert deranged["advantage"] < found["advantage"]


@pytest.mark.long
def test_data_give_the_same_without_any_count(here: Semidp, tmp_path: Path) -> None:
    sizes = {"1": 1234, "2": 173, "3": 97}
    write_people(tmp_path, sizes)
    done = here(*SWAP, "people.csv")
    assert done.code == 0, done.err
    assert "advantage of the best attacker" in done.out
    lines = (tmp_path / "people.csv").read_text().splitlines()[1:]
    counts = {str(n) for n in sizes.values()}
    for size in sizes:
        for place in (1, 2):
            values = [line.split(",")[place] for line in lines if line.startswith(f"{size},")]
            counts |= {str(values.count(value)) for value in set(values)}
    assert len(counts) > 6
    machine = here(*SWAP, "people.csv", "--format", "json")
    for text in (done.out, machine.json["explanation"], str({**machine.json, "guarantee": None})):
        numbers = set(re.findall(r"\d+", text.replace(",", "")))
        assert not {count for count in counts if len(count) > 1} & numbers
    assert "worst_stratum" not in machine.json
    assert "strata" not in machine.json
    # its digits would give the size of the largest stratum away
    assert machine.json["published_epsilon_per_record"] == int(
        machine.json["published_epsilon_per_record"]
    )
    deltas = machine.json["guarantee"]["tradeoff"]["alphas"]
    assert len(deltas) > 3


def test_data_and_their_totals_agree(here: Semidp, tmp_path: Path) -> None:
    write_people(tmp_path, {"1": 40, "2": 60})
    lines = (tmp_path / "people.csv").read_text().splitlines()[1:]
    for place, name in ((1, "block"), (2, "race")):
        keys = [(line.split(",")[0], line.split(",")[place]) for line in lines]
        rows = [f"{size},{value},{keys.count((size, value))}" for size, value in sorted(set(keys))]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"size,{name},count", *rows]) + "\n")
    public = here(*SWAP, "--totals", "block.csv", "--totals", "race.csv", "--format", "json").json
    assert here(*SWAP, "people.csv", "--format", "json").json["advantage"] == public["advantage"]


def test_large_strata_of_many_values_are_only_attacked(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "blocks.csv").write_text(
        "block,count\n" + "".join(f"{name},50\n" for name in "abcd")
    )
    (tmp_path / "races.csv").write_text("race,count\nx,100\ny,60\nz,40\n")
    given = ("assess", "swap", "--rate", "0.1", "--over", "block", "--hold", "race")
    done = here(*given, "--totals", "blocks.csv", "--totals", "races.csv")
    assert done.code == 0, done.err
    assert "No guarantee is stated" in done.out
    assert re.search(r"advantage of an attacker +at least 0\.\d", done.out)
    assert "What is protected" not in done.out
    found = here(*given, "--totals", "blocks.csv", "--totals", "races.csv", "--format", "json").json
    assert found["guarantee"] is None
    assert found["advantage"] is None
    assert 0 < found["advantage_at_least"] < 1


def test_a_further_exact_total_is_refused(
    here: Semidp, tmp_path: Path, totals: tuple[str, ...]
) -> None:
    (tmp_path / "both.csv").write_text("block,race,count\na,x,6\na,y,5\nb,x,8\nb,y,13\n")
    assert "several strata change together" in one_sentence(
        here(*SWAP, *totals, "--totals", "both.csv")
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("swap", "--rate", "0.1"), "--over A[,B] and --hold A[,B]"),
        (("swap", "--match", "size"), "--rate NUMBER"),
        (("swap", "--rate", "2", "--over", "a", "--hold", "b", "x.csv"), "at most 1, not 2"),
        (("swap", "--rate", "0.1", "--over", "a", "--hold", "a", "x.csv"), "named twice"),
        (("swap", "--rate", "0.1", "--over", "a", "--hold", "b"), "two files with --totals"),
        (("swap", "--rate", "0.1", "--over", "a", "--hold", "b", "x.csv"), "no file x.csv"),
        (
            ("swap", "--rate", "0.1", "--rule", "hand", "--over", "a", "--hold", "b", "x"),
            "shuffle or derange",
        ),
        (("cell-keys", "p.csv"), "cannot read the file p.csv"),
        (("cell-keys",), "Missing argument"),
        (("opendp", "--steps", "3"), "--noise-multiplier, --sampling and --steps together"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    here: Semidp, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in one_sentence(here("assess", *words))


@pytest.mark.parametrize("text", ["", "size,block\n", "size,block,race\n"])
def test_files_without_records_are_one_sentence(here: Semidp, tmp_path: Path, text: str) -> None:
    (tmp_path / "people.csv").write_text(text)
    one_sentence(here(*SWAP, "people.csv"))


def test_totals_that_give_everything_away(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "blocks.csv").write_text("size,block,count\n1,a,6\n2,b,5\n")
    (tmp_path / "races.csv").write_text("size,race,count\n1,x,3\n1,y,3\n2,x,5\n")
    done = here(*SWAP, "--totals", "blocks.csv", "--totals", "races.csv")
    assert "swapping changes nothing here" in one_sentence(done)


def test_a_perturbation_table_is_read_and_never_called_a_guarantee_for_many_cells(
    here: Semidp, tmp_path: Path
) -> None:
    (tmp_path / "ptable.csv").write_text(PTABLE)
    done = here("assess", "cell-keys", "ptable.csv", "--cells", "40")
    assert done.code == 0, done.err
    assert "40 cells that count the same person: what an attacker can at least do" in done.out
    assert (
        "An empty cell is always published as 0: anything else proves that somebody is there."
        in done.out
    )
    assert "Nothing is guaranteed for cells of several tables" in done.out.replace(
        "\n", " "
    ).replace("  ", " ")
    found = here("assess", "cell-keys", "ptable.csv", "--cells", "40", "--format", "json").json
    assert found["several_cells"]["is_a_guarantee"] is False
    assert (
        found["several_cells"]["advantage_at_least"]
        > found["one_cell"]["advantage_of_large_counts"]
    )
    assert found["empty_cells"]["other_counts_published_so"] == [1]


def test_a_deterministic_table_tells_for_certain(here: Semidp, tmp_path: Path) -> None:
    rows = "".join(f"{count},0,{-count}\n" for count in range(1, 10))
    (tmp_path / "ptable.csv").write_text(f"pcv,ckey,pvalue\n{rows}")
    assert "9 from 10" in here("assess", "cell-keys", "ptable.csv").out
    assert "9 from 10" in here("assess", "cell-keys", "ptable.csv", "--threshold", "10").out

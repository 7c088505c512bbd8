"""Known cases: the block of seven people, textbook patterns of suppression, the example of a ward."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp as sd
from semidp.assess import ReadingRules
from semidp.assess.disclosure.findings import Answer, FindingKind
from semidp.cli import run
from semidp.errors import DataError, InputError

BLOCK = """sex,race,count
All,All,7
f,All,4
m,All,3
All,b,4
All,w,3
f,b,3
m,b,D
m,w,D
f,w,D
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def recovered(found: sd.assess.Disclosure) -> dict[tuple[str, ...], int]:
    return {
        tuple(each.cell.values()): each.lower
        for each in found.statements
        if each.kind is FindingKind.recovered
    }


def test_the_suppressed_counts_of_the_block_are_recovered(tmp_path: Path) -> None:
    """Garfinkel, Abowd and Martindale 2018, statistics 1A to 4D: counts alone."""
    found = sd.disclosure(
        tables=[write(tmp_path, "block.csv", BLOCK)],
        rules=ReadingRules(suppressed=("D",), below=3),
        total="All",
    )
    assert recovered(found) == {("f", "w"): 1, ("m", "b"): 1, ("m", "w"): 2}


def solve_block() -> set[tuple[tuple[int, str], ...]]:
    """Return all sets of seven people with the published counts, medians and means of the block."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    people = range(7)
    ages = [model.new_int_var(0, 125, "") for _ in people]
    female, black, married = ([model.new_bool_var("") for _ in people] for _ in range(3))
    codes = [1000 * ages[i] + 4 * female[i] + 2 * black[i] + married[i] for i in people]
    for i in people[:-1]:
        model.add(codes[i] <= codes[i + 1])  # people are listed by age, each set of them once
    for i in people:
        model.add(ages[i] >= 15).only_enforce_if(married[i])

    def product(one: Any, other: Any, top: int) -> Any:
        result = model.new_int_var(0, top, "")
        model.add_multiplication_equality(result, [one, other])
        return result

    def publish(group: Sequence[Any], count: int, median: int, total: int) -> None:
        """State the count, the median and the sum of ages (the mean) of a group."""
        model.add(sum(group) == count)
        model.add(sum(product(group[i], ages[i], 125) for i in people) == total)
        middle = [model.new_int_var(0, 125, "") for _ in range(2)]
        for age, rank in zip(middle, ((count + 1) // 2, count // 2 + 1), strict=True):
            for i in people:
                here = model.new_bool_var("")
                model.add(sum(group[: i + 1]) == rank).only_enforce_if(here)
                model.add(sum(group[: i + 1]) != rank).only_enforce_if(~here)
                model.add(age == ages[i]).only_enforce_if([here, group[i]])
        model.add(middle[0] + middle[1] == 2 * median)

    def invert(group: Sequence[Any]) -> list[Any]:
        inverse = [model.new_bool_var("") for _ in people]
        for i in people:
            model.add(inverse[i] + group[i] == 1)
        return inverse

    publish([model.new_constant(1) for _ in people], 7, 30, 7 * 38)
    publish(female, 4, 30, 134)  # mean 33.5
    publish(invert(female), 3, 30, 132)  # mean 44
    publish(black, 4, 51, 194)  # mean 48.5
    publish(invert(black), 3, 24, 72)  # mean 24
    publish(married, 4, 51, 216)  # mean 54
    publish([product(female[i], black[i], 1) for i in people], 3, 36, 110)  # mean 36.7
    found = set()

    class Listing(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            rows = []
            for i in people:
                words = ("mf", "wb", "sm")
                columns = (female, black, married)
                told = [
                    word[self.value(column[i])] for word, column in zip(words, columns, strict=True)
                ]
                rows.append((self.value(ages[i]), "".join(told)))
            found.add(tuple(rows))

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.enumerate_all_solutions = True
    assert solver.solve(model, Listing()) == cp_model.OPTIMAL
    return found


def test_medians_and_means_leave_one_block() -> None:
    block = (
        (8, "fbs"),
        (18, "mws"),
        (24, "fws"),
        (30, "mwm"),
        (36, "fbm"),
        (66, "fbm"),
        (84, "mbm"),
    )
    assert solve_block() == {block}


UNSAFE = {
    "alone in its row": ("a\\b,1,2,Total\nx,c,4,6\ny,3,5,8\nTotal,5,9,14\n", {("x", "1"): 2}),
    "two, in different rows and columns": (
        "a\\b,1,2,Total\nx,c,4,6\ny,3,c,5\nTotal,5,6,11\n",
        {("x", "1"): 2, ("y", "2"): 2},
    ),
    "every row and column has two, and blocks give one away": (
        "a\\b,1,2,3,4,Total\nr,c,c,5,6,20\ns,c,c,c,7,24\nt,8,9,c,c,30\nu,6,7,c,c,28\n"
        "Total,23,27,26,26,102\n",
        {("s", "3"): 6},
    ),
    "a rectangle around a total of its own size": (
        "a\\b,1,2,3,Total\nx,c,c,5,5\ny,c,c,6,10\nz,8,9,1,18\nTotal,10,11,12,33\n",
        {("x", "1"): 0, ("x", "2"): 0, ("y", "1"): 2, ("y", "2"): 2},
    ),
}
SAFE = {
    "a rectangle": "a\\b,1,2,3,Total\nx,c,c,5,20\ny,c,c,6,24\nz,8,9,10,27\nTotal,23,27,21,71\n",
    "a cycle of six": ("a\\b,1,2,3,Total\nx,c,c,5,20\ny,9,c,c,24\nz,c,7,c,27\nTotal,23,24,24,71\n"),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_pattern_is_broken(tmp_path: Path, name: str) -> None:
    text, cells = UNSAFE[name]
    path = write(tmp_path, "table.csv", text)
    found = sd.disclosure(tables=[path], rules=ReadingRules(suppressed=("c",)), total="Total")
    assert recovered(found) == cells
    assert all(each.sharp and each.proof for each in found.statements)


@pytest.mark.parametrize("name", SAFE)
def test_a_safe_pattern_stays_open(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "table.csv", SAFE[name])
    found = sd.disclosure(tables=[path], rules=ReadingRules(suppressed=("c",)), total="Total")
    assert recovered(found) == {}
    cells = found.findings.count_cells()
    assert cells is not None
    assert cells["undecided"] == 0
    assert cells["not certain"] == SAFE[name].count("c")


def test_the_difference_of_two_tables_recovers_a_cell(tmp_path: Path) -> None:
    """Each table is safe alone: everybody, and everybody but the one foreigner."""
    first = write(tmp_path, "all.csv", "ward,ill,count\nA,Total,9\nB,Total,7\n")
    second = write(tmp_path, "ill.csv", "ward,ill,count\nA,y,c\nA,n,8\nB,y,c\nB,n,3\n")
    rules = ReadingRules(suppressed=("c",), below=5)
    alone = sd.disclosure(tables=[second], rules=rules, total="Total")
    assert recovered(alone) == {}
    both = sd.disclosure(tables=[first, second], rules=rules, total="Total")
    assert recovered(both) == {("A", "y"): 1, ("B", "y"): 4}
    assert both.statements[0].tables == ("all.csv", "ill.csv")


PEOPLE = {
    "ward": [*"AAAAAAA", *"AAAAA", *"BBBBB"],
    "age": ["80+"] * 7 + ["<80"] * 10,
    "ill": [*"yyyyyyy", *"nnnnn", *"nnnnn"],
}


def test_two_datasets_with_the_same_totals_give_the_same_answer() -> None:
    """They really differ: two records exchange their values."""
    one = {"a": [*"xxyyx"], "b": [*"pqpqq"], "c": [*"uvvuu"]}
    other = {"a": [*"xxyyx"], "b": [*"pqqpq"], "c": [*"vuuvu"]}
    margins = [("a", "b"), "c"]
    tables = [sorted(zip(*each.values(), strict=True)) for each in (one, other)]
    assert tables[0] != tables[1]
    told = [
        json.dumps(sd.disclosure(data, exact=margins, insiders=2).to_json(), default=str)
        for data in (one, other)
    ]
    assert told[0] == told[1]
    assert '"statements": [{' in told[0]


def test_the_ward_of_the_issue() -> None:
    found = sd.disclosure(PEOPLE, exact=[("ward", "age"), ("ward", "ill"), ("age", "ill")])
    assert found.reveals
    groups = [each for each in found.statements if each.kind is FindingKind.everybody]
    told = {tuple(sorted(each.cell.items())) for each in groups}
    assert (("age", "80+"), ("ill", "y")) in told
    asked = sd.disclosure(PEOPLE, exact=["ward", "ill"], cells=[{"ward": "A", "ill": "y"}])
    answer = asked.answers[0]
    assert (answer.lower, answer.upper, answer.answer) == (2, 7, Answer.not_certain)
    assert "12 (ward A) + 7 (ill y) − 17 (all records) = 2" in answer.proof[0]
    counts = [sum(row["count"] for row in table) for table in answer.examples]
    assert counts == [17, 17]


def test_leaving_a_total_out_is_said_to_help() -> None:
    found = sd.disclosure(PEOPLE, exact=[("ward", "age"), ("ward", "ill")])
    by_name = {(each.without, each.instead): each.numbers for each in found.changes}
    assert (
        by_name["ward × ill", ()].get(FindingKind.everybody, 0)
        < found.numbers[FindingKind.everybody]
    )


def test_known_records_are_left_out(tmp_path: Path) -> None:
    """Margins (1, 1) and (1, 1): each of the two knows the other's whole record."""
    data = {"a": [*"xy"], "b": [*"pq"]}
    mine = write(tmp_path, "mine.csv", "a,b\nx,p\n")
    alone = sd.disclosure(data, exact=["a", "b"])
    assert FindingKind.alone not in {each.kind for each in alone.statements if len(each.cell) == 2}
    found = sd.disclosure(data, exact=["a", "b"], known=mine)
    assert {"a": "y", "b": "q"} in [
        each.cell for each in found.statements if each.kind is FindingKind.alone
    ]
    half = write(tmp_path, "half.csv", "a\nx\n")
    with pytest.raises(DataError, match="whole"):
        sd.disclosure(data, exact=["a", "b"], known=half)
    stranger = write(tmp_path, "stranger.csv", "a,b\nx,p\nx,p\n")
    with pytest.raises(DataError, match="same people"):
        sd.disclosure(data, exact=["a", "b"], known=stranger)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no row"),
        ("ward,count\n", "no row"),
        ("ward,count\nA,-3\n", "is neither a count nor"),
        ("ward,count\nA,3\nA,4\n", "twice"),
        ("ward,count\nA\n", "as many values"),
        ("ward,count\nA,3\nB,4\nTotal,8\n", "contradict"),
        ("a\\b,1,2,Total\nx,3,4,7\ny,1,1,2\nTotal,5,5,10\n", "contradict"),
    ],
)
def test_a_wrong_table_is_refused_with_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, "table.csv", text)
    with pytest.raises((DataError, InputError), match=words):
        sd.disclosure(tables=[path], total="Total").to_json()


def test_rounding_that_cannot_be_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "table.csv", "a,count\nx,3\ny,3\nTotal,15\n")
    with pytest.raises(DataError, match="contradict"):
        sd.disclosure(
            tables=[path], total="Total", rules=ReadingRules(rounded=3, rounding="conventional")
        ).to_json()
    with pytest.raises(DataError, match="multiple"):
        sd.disclosure(tables=[path], total="Total", rules=ReadingRules(rounded=5))


@pytest.mark.parametrize("rows", [[], ["x"]])
def test_almost_empty_data_are_no_trouble(rows: list[str]) -> None:
    found = sd.disclosure(
        {"a": rows, "b": rows}, exact=["a", "b"], levels={"a": ["x", "y"], "b": ["x", "y"]}
    )
    document = found.to_json()
    assert document["crossing"]["undecided"] == 0


def test_large_tables_are_answered_by_formula() -> None:
    rng = np.random.default_rng(1)
    levels = [str(number) for number in range(300)]
    data = {"a": rng.choice(levels, 5_000), "b": rng.choice(levels, 5_000)}
    found = sd.disclosure(data, exact=["a", "b"], levels={"a": levels, "b": levels})
    cells = found.findings.count_cells()
    assert cells is not None
    assert cells["sharp"] == 90_000


def test_the_command_reads_three_kinds_of_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = zip(*PEOPLE.values(), strict=True)
    lines = [",".join(PEOPLE), *(",".join(row) for row in rows)]
    write(tmp_path, "people.csv", "\n".join(lines) + "\n")
    write(tmp_path, "wards.csv", "ward,ill,count\nA,y,7\nA,n,5\nB,n,5\n")
    write(tmp_path, "block.csv", BLOCK)

    def ask(*words: str) -> dict[str, Any]:
        assert run(["disclosure", *words, "--format", "json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    read = ask("people.csv", "--exact", "ward,ill", "--cell", "ward=A,ill=y")
    assert read["statements"][0]["answer"] == "certain"
    given = ask("--totals", "wards.csv", "--cell", "ward=A,ill=y")
    assert given == read
    assert {"kind", "cell", "lower", "upper", "sharp", "proof"} <= set(given["statements"][0])
    block = ask("block.csv", "--suppressed", "D", "--below", "3", "--total", "All")
    assert block["numbers"] == {"recovered": 3}
    assert run(["disclosure", "block.csv", "--suppressed", "D", "--total", "All"]) == 0
    assert "recovered" in capsys.readouterr().out
    assert run(["disclosure", "block.csv", "--total", "All"]) == 2
    assert "--suppressed" in capsys.readouterr().err
    words = ["disclosure", "people.csv", "--exact", "ward", "--exact", "ill"]
    assert run([*words, "--picture", "widths.png"]) == 0
    assert (tmp_path / "widths.png").read_bytes().startswith(b"\x89PNG")


def test_a_release_says_so_before_it_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads the exact totals alone, and goes on."""
    monkeypatch.chdir(tmp_path)
    rows = zip(*PEOPLE.values(), strict=True)
    write(tmp_path, "people.csv", "ward,age,ill\n" + "".join(f"{','.join(r)}\n" for r in rows))
    words = ["release", "people.csv", "--table", "ward,ill", "--mu", "1"]
    assert run([*words, "--exact", "ward,ill", "--out", "one"]) == 0
    said = capsys.readouterr().err
    assert "reveal values by themselves" in said
    assert "everybody in ward B has ill n (5)" in said
    assert run([*words, "--exact", "ward", "--exact", "ill", "--out", "two"]) == 0
    assert "reveal" not in capsys.readouterr().err
    page = (tmp_path / "one" / "report.html").read_text(encoding="utf-8")
    assert "What the exact totals give away" in page
    assert "So all 5 in (ward B) have ill n." in page


def test_a_message_quotes_no_cell_of_a_file(tmp_path: Path) -> None:
    """Somebody may give the data themselves, and forget --exact."""
    path = write(tmp_path, "people.csv", "name,illness\nAda,secretitis\n")
    with pytest.raises(DataError) as caught:
        sd.disclosure(tables=[path])
    assert "secretitis" not in str(caught.value)
    assert "Ada" not in str(caught.value)
    rounded = write(tmp_path, "rounded.csv", "a,count\nx,7777\n")
    with pytest.raises(DataError) as caught:
        sd.disclosure(tables=[rounded], rules=ReadingRules(rounded=5))
    assert "7777" not in str(caught.value)


def test_counts_beyond_all_use_are_refused() -> None:
    with pytest.raises(DataError, match="not looked at"):
        sd.disclosure(totals={"a": {"x": 2**41, "y": 1}}).to_json()


def test_nested_places_are_groups_and_values() -> None:
    """Everybody of state t lives in its county 3; of state s only county 1 has women."""
    data = {
        "state": [*"ssst"],
        "county": [*"1223"],
        "sex": [*"fmmf"],
    }
    found = sd.disclosure(data, exact=[("county", "sex")], nest=("state", "county"))
    told = {(each.value, tuple(each.cell.values())) for each in found.statements if each.value}
    assert ("county", ("s", "1", "f")) in told
    assert ("sex", ("s", "2", "m")) in told
    answer = sd.disclosure(
        data, exact=["state", "sex"], nest=("state", "county"), cells=[{"state": "s", "sex": "f"}]
    ).answers[0]
    assert (answer.lower, answer.upper) == (1, 2)


def test_a_level_that_looks_like_a_total_is_asked_about(tmp_path: Path) -> None:
    """Taken for a level, it would hide what the total gives away."""
    path = write(tmp_path, "table.csv", "a,count\nx,c\ny,4\nTotal,6\n")
    rules = ReadingRules(suppressed=("c",))
    with pytest.raises(InputError, match="called 'Total'"):
        sd.disclosure(tables=[path], rules=rules)
    assert recovered(sd.disclosure(tables=[path], rules=rules, total="Total")) == {("x",): 2}
    assert recovered(sd.disclosure(tables=[path], rules=rules, total="")) == {}

"""A release folder from strangers: what it states is computed again, and nothing but its own plain
files is read.
"""

import atexit
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp import Budget, Outcome, Plan, Release, run
from semidp.cli import run as command
from semidp.errors import InputError
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema
from semidp.publish import GroupRequest, RegressionRequest, TableRequest, TablesRequest
from semidp.publish.recheck import disagreements, recheck
from semidp.publish.statistics.outcomes.noise_law import Confidence
from semidp.publish.survey import formulas

PEOPLE = {
    "sex": ["f", "m", "m", "f", "m", "f"] * 5,
    "region": ["n", "s", "n", "s", "s", "n"] * 5,
    "age": list(range(30)),
}
PLAN = Plan(
    [
        TableRequest(["sex", "region"], Budget.pure(1), "laplace"),
        GroupRequest("mean", Outcome("age", 0, 100, 100), [["sex"], ["region"]], Budget.pure(1)),
        RegressionRequest(Outcome("age", 0, 100, 100), ["sex"], Budget.pure(1)),
    ],
    ["sex", "region"],
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    run(PLAN, PEOPLE, SeededRandomness(1)).save(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "release"))


def found(folder: Path) -> tuple[str, ...]:
    return disagreements(Release.load(folder), json.loads((folder / "release.json").read_text()))


def forge(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change release.json, and its hashes of the other files with it."""
    path = folder / "release.json"
    document = json.loads(path.read_text())
    change(document)
    document["files"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in document["files"]
    }
    path.write_text(json.dumps(document))


def test_an_honest_release_agrees(folder: Path) -> None:
    assert found(folder) == ()


@pytest.mark.parametrize("mechanism", ["auto", "l2", "knorm", "laplace"])
def test_every_mechanism_for_pure_budgets_agrees(mechanism: str) -> None:
    plan = Plan([TableRequest(["sex", "region"], Budget.pure(1), mechanism)], ["sex", "region"])
    release = run(plan, PEOPLE, SeededRandomness(2))
    assert disagreements(release, release.to_json()) == ()


@pytest.mark.parametrize("mechanism", ["gaussian", "lattice"])
def test_every_mechanism_for_zcdp_agrees(mechanism: str) -> None:
    plan = Plan([TableRequest(["sex", "region"], Budget.zcdp("1/3"), mechanism)], ["sex", "region"])
    release = run(plan, PEOPLE, SeededRandomness(2))
    assert disagreements(release, release.to_json()) == ()


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "epsilon": (lambda d: d.update(epsilon=0.1), "it states epsilon 0.1"),
    "the budget": (lambda d: d.update(budget={"epsilon": 0.1}), "it states budget"),
    "a": (lambda d: d["a"].update(used=9), "it states a = 9, and its plan and totals give a = "),
    "a(t)": (lambda d: d["a"].update(bound=1, worst_case=1), "of a(t)"),
    "the scale": (
        lambda d: d["tables"][0]["noise"].update(scale=0.001),
        "states noise.scale 0.001",
    ),
    "the loss": (
        lambda d: d["groups"][0]["noise"].update(expected_l2=0.1),
        "noise.expected_l2 0.1",
    ),
    "the claim": (
        lambda d: d["tables"][0]["noise"].update(claim="ideal"),
        "states noise.claim 'ideal'",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_number_shows(folder: Path, what: str) -> None:
    change, said = FORGERIES[what]
    forge(folder, change)
    assert any(said in sentence for sentence in found(folder)), found(folder)


def test_a_forged_guarantee_shows(folder: Path) -> None:
    weak = json.loads((folder / "release.json").read_text())["guarantee"]
    strong = Budget.pure("0.1").tradeoff().to_json()
    forge(folder, lambda document: document.update(guarantee=strong))
    assert "it states a stronger guarantee than its parts have together" in found(folder)
    forge(folder, lambda document: document.update(guarantee=weak))
    forge(folder, lambda document: document["regressions"][0].update(guarantee=strong))
    assert found(folder) == ("'regression-age' states guarantee.epsilon '0.1', and '1' follows",)
    forge(
        folder,
        lambda document: document["regressions"][0].update(
            guarantee=Budget.pure(2).tradeoff().to_json()
        ),
    )
    assert found(folder) == ("'regression-age' states guarantee.epsilon '2', and '1' follows",)


def rewrite(folder: Path, name: str, row: int, column: int, value: str) -> None:
    lines = [line.split(",") for line in (folder / name).read_text().splitlines()]
    lines[row][column] = value
    (folder / name).write_text("\n".join(map(",".join, lines)) + "\n")
    forge(folder, lambda document: None)


CELLS = {
    "a noisy count": (
        "measurements.csv",
        1,
        2,
        "1000000",
        "another column 'estimate' in table.csv than follows",
    ),
    "a mean": (
        "mean-age-by-sex.csv",
        1,
        2,
        "99.0",
        "another column 'mean' in mean-age-by-sex.csv than follows",
    ),
    "an exact count": (
        "mean-age-by-sex.csv",
        1,
        1,
        "16",
        "another column 'count' in mean-age-by-sex.csv than follows",
    ),
    "a coefficient": (
        "regression-age.csv",
        1,
        1,
        "99.0",
        "another column 'coefficient' in regression-age.csv than follows",
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("what", CELLS)
def test_a_forged_cell_shows(folder: Path, what: str) -> None:
    *cell, said = CELLS[what]
    rewrite(folder, *cell)
    document = json.loads((folder / "release.json").read_text())
    wrong = recheck(Release.load(folder), document, folder).disagreements
    assert any(said in sentence for sentence in wrong), wrong


def wrong_in(folder: Path) -> tuple[str, ...]:
    document = json.loads((folder / "release.json").read_text())
    return recheck(Release.load(folder), document, folder).disagreements


def test_the_last_digits_of_another_processor_agree_and_no_others(folder: Path) -> None:
    """Regressions come from linear algebra, which ends in other digits on other processors: about
    10^-13 of a coefficient.
    """
    file = "regression-age.csv"
    coefficient = float(lines_of(folder / file)[1][1])
    rewrite(folder, file, 1, 1, repr(coefficient * (1 + 1e-12)))
    assert repr(coefficient) not in (folder / file).read_text()
    assert wrong_in(folder) == ()
    rewrite(folder, file, 1, 1, repr(coefficient * (1 + 1e-7)))
    assert wrong_in(folder) == (f"it states another column 'coefficient' in {file} than follows",)
    rewrite(folder, file, 1, 1, f"{coefficient:.25f}")
    said = f"it states numbers in {file} that are not written as a release writes them"
    assert wrong_in(folder) == (said,)


@pytest.mark.parametrize("file", ["table.csv", "measurements.csv"])
@pytest.mark.parametrize("number", ["1e400", "-1e308", "nan", "inf"])
def test_a_cell_that_is_no_number_is_damage(folder: Path, file: str, number: str) -> None:
    first, second, *rest = (folder / file).read_text().splitlines()
    *others, _ = second.split(",")
    (folder / file).write_text("\n".join([first, ",".join([*others, number]), *rest]) + "\n")
    forge(folder, lambda document: None)
    with pytest.raises(InputError, match="damaged"):
        Release.load(folder)


@pytest.mark.parametrize("content", [b"", b"\n1\n", b"sex,\xff\n", b"a\rb,count\nf,1\n"])
def test_a_file_that_is_no_table_shows(folder: Path, content: bytes) -> None:
    file = next(folder.glob("exact-*.csv"))
    file.write_bytes(content)
    forge(folder, lambda document: None)
    document = json.loads((folder / "release.json").read_text())
    wrong = recheck(Release.load(folder), document, folder).disagreements
    column = file.stem.removeprefix("exact-")
    assert wrong == (f"it states another column {column!r} in {file.name} than follows",)


def test_a_warning_that_was_taken_out_shows(tmp_path: Path) -> None:
    plan = Plan([TableRequest(["sex", "region"], Budget.pure(1))], ["sex", "region"], adjacency=2)
    people = {**PEOPLE, "region": [*("n", "s", "w") * 10]}
    release = run(plan, people, SeededRandomness(1))
    assert release.scope.warnings
    release.save(tmp_path)
    assert found(tmp_path) == ()
    forge(tmp_path, lambda document: document.update(warnings=[]))
    assert found(tmp_path)[0].startswith("it leaves out a warning: The adjacency a = 2 lies below")


@pytest.mark.long
def test_show_says_where_a_release_disagrees(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["show", str(folder)]) == 0
    assert "disagrees" not in capsys.readouterr().out
    forge(folder, lambda document: document.update(epsilon=0.1))
    assert command(["show", str(folder)]) == 1
    assert (
        "\ndisagrees  it states epsilon 0.1, and its guarantee gives 2.99999"
        in capsys.readouterr().out
    )
    assert command(["show", str(folder), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["disagreements"]


# --- what was believed ----------------------------------------------------------------------------


def crowd(kind: str, folder: Path) -> Path:
    """Copy a release of many people, so that thirty of them can be moved."""
    return Path(shutil.copytree(_made_of_many(kind), folder))


@functools.cache
def _made_of_many(kind: str) -> str:
    random = np.random.default_rng(4)
    people = {
        "sex": random.choice([*"fm"], 3000).tolist(),
        "region": random.choice([*"nsw"], 3000).tolist(),
        "age": random.integers(0, 101, 3000).tolist(),
    }
    folder = Path(tempfile.mkdtemp()) / "release"
    atexit.register(shutil.rmtree, folder.parent)
    run(TABLES[kind], people, SeededRandomness(1)).save(folder)
    assert found(folder) == ()
    (folder / "report.html").unlink()  # to draw it again takes most of the time
    return str(folder)


def convicted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """See that `show` says what does not follow: by exit code 1 and a line, or by exit code 2 and a
    sentence.
    """
    capsys.readouterr()
    code, said = command(["show", str(folder)]), capsys.readouterr()
    assert (code == 1 and "\ndisagrees  " in said.out) or (
        code == 2 and "contradicts itself" in said.err
    ), said


AGES = Outcome("age", 0, 100, 100)
BOTH = ["sex", "region"]
MEANS = Plan(
    [
        GroupRequest(
            "mean", AGES, [["region"]], Budget.pure(1), confidence=Confidence(simultaneous=True)
        )
    ],
    invariants=["region"],
)
TABLES = {
    "laplace": Plan([TableRequest(BOTH, Budget.pure(1), "laplace")], BOTH),
    "knorm": Plan([TableRequest(BOTH, Budget.pure(1), "knorm")], BOTH),
    "lattice": Plan([TableRequest(BOTH, Budget.zcdp(1), "lattice")], BOTH),
    "means": MEANS,
    "product": Plan(
        [TablesRequest([TableRequest(["sex", "region"]), TableRequest(["region"])], Budget.gdp(1))],
        invariants=["sex"],
        levels_from_data=True,
    ),
}

FALSE_FIELDS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "a p-value": ("means", lambda d: d["groups"][0]["comparisons"][0].update(p_value=0.001)),
    "a statistic": ("means", lambda d: d["groups"][0]["comparisons"][0].update(statistic=40.0)),
    "simultaneous": ("means", lambda d: d["groups"][0]["intervals"][0].update(simultaneous=False)),
    "the distance of a fit": (
        "laplace",
        lambda d: d["tables"][0]["fit"].update(loss=0.0, bound=0.0),
    ),
    "a largest standard error": (
        "product",
        lambda d: d["products"][0]["tables"][0].update(largest_standard_error=0.1),
    ),
    "the budget of a request": (
        "laplace",
        lambda d: d["tables"][0].update(budget={"epsilon": 0.1}),
    ),
    "what was advertised": (
        "laplace",
        lambda d: d["tables"][0]["advertised"].update(epsilon="1/9"),
    ),
    "ordinary privacy": ("laplace", lambda d: d["tables"][0]["noise"].update(naive_l2=1e6)),
    "levels": (
        "laplace",
        lambda d: d["dataspace"]["schema"]["feature"][1].update(levels=["s", "n", "w"]),
    ),
    "exact totals": ("laplace", lambda d: d["dataspace"]["margins"].reverse()),
    "a disclosure": ("product", lambda d: d.update(disclosures=[])),
    "a field of no release": ("laplace", lambda d: d.update(certified=True)),
}


@pytest.mark.parametrize("what", FALSE_FIELDS)
def test_a_field_that_was_believed_is_found_out(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, change = FALSE_FIELDS[what]
    folder = crowd(kind, tmp_path / "release")
    forge(folder, change)
    convicted(folder, capsys)


def lines_of(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def write_lines(folder: Path, name: str, lines: list[list[str]]) -> None:
    (folder / name).write_text("\n".join(map(",".join, lines)) + "\n")
    forge(folder, lambda document: None)


@pytest.mark.parametrize("kind", ["laplace", "knorm", "lattice"])
@pytest.mark.parametrize("by", [2, 30])
def test_counts_that_were_moved_inside_their_margins_are_found_out(
    kind: str, by: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = crowd(kind, tmp_path / "release")
    lines = lines_of(folder / "table.csv")
    for row, sign in ((1, 1), (2, -1), (4, -1), (5, 1)):  # f·n, f·s, m·n, m·s: every total stays
        lines[row][-1] = str(int(lines[row][-1]) + sign * by)
    write_lines(folder, "table.csv", lines)
    assert any("has a distance (loss) of" in said for said in found(folder)), found(folder)
    convicted(folder, capsys)
    # With the distance that it has, a farther table contradicts nothing: that it was the closest
    # is on trust, and its distance is stated.
    loss = sum(
        (int(a[-1]) - int(b[2])) ** 2
        for a, b in zip(lines[1:], lines_of(folder / "measurements.csv")[1:], strict=True)
    )
    forge(
        folder,
        lambda d: d["tables"][0]["fit"].update(
            loss=float(loss), optimal=False, note="Closer ones may exist."
        ),
    )
    checked = recheck(
        Release.load(folder), json.loads((folder / "release.json").read_text()), folder
    )
    assert checked.disagreements == ()
    assert "table.csv count" in {field for trust in checked.trusted for field in trust.fields}


@pytest.mark.parametrize("file", ["table.csv", "measurements.csv"])
def test_labels_that_were_swapped_are_found_out(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = crowd("laplace", tmp_path / "release")
    lines = lines_of(folder / file)
    lines[1][1], lines[2][1] = lines[2][1], lines[1][1]
    write_lines(folder, file, lines)
    convicted(folder, capsys)


@pytest.mark.parametrize("kind", ["knorm", "lattice"])
def test_a_measurement_has_the_totals_that_its_noise_keeps(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = crowd(kind, tmp_path / "release")
    lines = lines_of(folder / "measurements.csv")
    lines[1][2] = str(int(lines[1][2]) + 5)
    write_lines(folder, "measurements.csv", lines)
    convicted(folder, capsys)
    table = lines_of(folder / "table.csv")
    table[1][2:-1] = [
        repr(float(value) + 5) if place != 1 else value
        for place, value in enumerate(table[1][2:-1])
    ]
    write_lines(folder, "table.csv", table)
    assert any("without the exact totals, which" in said for said in found(folder)), found(folder)


def quarter(document: dict[str, Any]) -> None:
    for part in document["products"][0]["residuals"]:
        part["sigma2"] = str(Fraction(part["sigma2"]) / 4)


def test_nothing_is_answered_from_a_release_that_does_not_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Less noise stated makes intervals and p-values too small, moved counts give false records."""
    product = crowd("product", tmp_path / "product")
    table = crowd("laplace", tmp_path / "table")
    records = ["synthesize", str(table), "--out", str(tmp_path / "people.csv")]
    independence = ["test", str(table), "--rows", "sex", "--columns", "region", "--draws", "99"]
    other = ["guarantee", str(table), "--without", "region"]
    for words in (["intervals", str(product)], independence, records, other):
        assert command(words) == 0, words
    forge(product, quarter)
    forge(
        table, lambda document: document.update(guarantee=Budget.pure("1/9").tradeoff().to_json())
    )
    capsys.readouterr()
    for words in (["intervals", str(product)], independence, [*records, "--force"], other):
        assert command(words) == 2, words
        said = capsys.readouterr()
        assert said.out == "", "nothing is claimed"
        assert "semidp show" in said.err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("law", "uniform"),
        ("saved_by_joint_sensitivity", float("nan")),
        ("saved_by_joint_sensitivity", "1/0"),
        ("precision", "1/0"),
        ("precision", None),
        ("residuals", []),
    ],
)
def test_noise_that_is_none_is_damage(key: str, value: Any, tmp_path: Path) -> None:
    folder = crowd("product", tmp_path / "release")
    forge(folder, lambda document: document["products"][0].update({key: value}))
    with pytest.raises(InputError, match=r"damaged|not a release"):
        Release.load(folder)


def test_a_key_that_stands_twice_is_damage(folder: Path) -> None:
    """One reader takes the first of two, another the last."""
    text = (folder / "release.json").read_text()
    (folder / "release.json").write_text(
        text.replace('"epsilon":', '"epsilon": 0.1, "epsilon":', 1)
    )
    with pytest.raises(InputError, match="not a release"):
        Release.load(folder)


FORGED_FIGURES = {
    '<path d="M 1 2"/>': True,
    "<script>alert(1)</script>": False,
    "<g onload='x'/>": False,
    "<style>p { display: none }</style>": False,
    "<style>p { display: none }": False,
    '<g style="fill: url(https://a.example/b)"/>': False,
    '<use xlink:href="https://a.example/b"/>': False,
}
"""What is put into a figure, and whether it is nothing but a drawing."""


@pytest.mark.pictures
def test_a_figure_is_compared_whole_and_one_by_other_software_is_only_a_drawing(
    tmp_path: Path,
) -> None:
    """A long table has a script that searches it; a drawing still has none."""
    towns = [f"town {number}" for number in range(40)]
    data = {"town": towns * 3, "sex": ["f", "m", "f"] * 40}
    plan = Plan([TableRequest(["town", "sex"], Budget.gdp(1))], ["town", "sex"])
    run(plan, data).save(tmp_path / "release")
    folder = tmp_path / "release"
    document = json.loads((folder / "release.json").read_text())
    for software, plain in ((document["versions"]["matplotlib"], False), ("0", True)):
        document["versions"]["matplotlib"] = software
        (folder / "release.json").write_text(json.dumps(document))
        release = Release.load(folder)
        report = release.report_html()
        assert "<script" in report
        assert "</svg>" in report
        for more, is_drawing in FORGED_FIGURES.items():
            (folder / "report.html").write_text(report.replace("</svg>", f"{more}</svg>", 1))
            checked = recheck(release, document, folder)
            listed = any("report.html" in trust.fields for trust in checked.trusted)
            believed = plain and is_drawing
            assert (checked.disagreements == (), listed) == (believed, believed), more


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["table.csv", "release.json"])
def test_pipes_devices_and_links_out_are_not_read(folder: Path, tmp_path: Path, name: str) -> None:
    """A pipe would wait for ever, /dev/zero would fill the memory, a link would show what is
    elsewhere.
    """
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match="not a regular file"):
        Release.load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(InputError, match="leads out of its folder"):
        Release.load(folder)
    (folder / name).unlink()
    (tmp_path / "elsewhere").write_bytes(content)
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="leads out of its folder"):
        Release.load(folder)
    (folder / name).unlink()
    (folder / "inside").write_bytes(content)
    (folder / name).symlink_to("inside")
    Release.load(folder)


def test_a_file_that_is_too_large_is_not_read(folder: Path) -> None:
    os.truncate(folder / "table.csv", 2**34)  # a hole: it takes no room
    with pytest.raises(InputError, match="larger than 1024 MB"):
        Release.load(folder)


def test_names_that_lead_elsewhere_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("secret")
    document = json.loads((folder / "release.json").read_text())
    document["files"]["../secret.csv"] = "0" * 64
    (folder / "release.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="not a release"):
        Release.load(folder)


ESCAPES = "\x1b]0;owned\x07\x9b2J\u202egnp"


def test_terminals_obey_nothing_in_a_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = {ESCAPES: PEOPLE["sex"], "region": [f"n{ESCAPES}", "s"] * 15}
    names = [ESCAPES, "region"]
    release = run(Plan([TableRequest(names, Budget.pure(1))], names), people)
    release.save(tmp_path)
    for words in (
        ["show", str(tmp_path)],
        ["show", str(tmp_path), "--format", "json"],
        ["show", f"no{ESCAPES}"],
    ):
        command(words)
        said = capsys.readouterr()
        assert not set(said.out + said.err) & set(ESCAPES[0] + "\x07\x9b\u202e")
        assert "\\u001b]0;owned\\u0007\\u009b2J\\u202egnp" in said.out + said.err
        if "json" in words:
            assert json.loads(said.out)["plan"]["table"][0]["features"] == names, (
                "JSON is still the same value"
            )


@pytest.mark.parametrize("word", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_spreadsheet_formulas_are_warned_of(word: str, tmp_path: Path) -> None:
    for features in ([Feature("sex", [word, "m"])], [Feature(word, ["f", "m"])]):
        assert len(formulas(Schema(features))) == 1
    people = {**PEOPLE, "region": [word, "s"] * 15}
    release = run(
        Plan([TableRequest(["sex", "region"], Budget.pure(1))], ["sex", "region"]), people
    )
    assert "may take" in release.scope.warnings[0]
    release.save(tmp_path)
    assert found(tmp_path) == ()
    assert np.array_equal(Release.load(tmp_path).tables[0].counts, release.tables[0].counts), (
        "the level is kept as is"
    )


def test_numbers_are_no_formulas() -> None:
    assert formulas(Schema([Feature("change", ["-1", "+1", "-1e3", "a=b", "1-2"])])) == ()

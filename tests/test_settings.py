"""The table of settings: `semidp.release`, `semidp release --help`, `--set` and docs/plan.md all
follow from it.
"""

import inspect
import json
import re
import shlex
from pathlib import Path

import pytest

import semidp.front as front
from semidp.cli import COMMANDS, run
from semidp.errors import InputError, name_keywords
from semidp.publish.settings import (
    Given,
    list_file_settings,
    list_settings,
    name_options,
    read_assignment,
)
from semidp.publish.statistics.protocol.statistic import Panel, Setting, Shape, statistic_settings

ROWS = list_settings()
OF_RELEASE = {
    name: row for name, row in ROWS.items() if row.type and name not in statistic_settings()
}
SHOWN = [
    "table",
    "all-pairs",
    "exact",
    "group",
    "mean",
    "sum",
    "proportion",
    "median",
    "quantile",
    "distribution",
    "regress",
    "logistic",
    "on",
    "odds-ratio",
    "bounds",
    "line",
    "step",
    "nest",
    "levels",
    "bins",
    "levels-from-data",
    "schema",
    "count",
    "from",
    "where",
    "read-as",
    "missing",
    "id",
    "most",
    "units",
    "link",
    "protect",
    "most-members",
    "adjacency",
    "period",
    "epsilon",
    "delta",
    "rho",
    "mu",
    "target-error",
    "ledger",
    "plan",
    "approved",
    "set",
    "partition",
    "jobs",
    "out",
    "write",
    "dry-run",
    "seed",
    "force",
    "format",
    "quiet",
]
PLAN_PAGE = Path(__file__).parent.parent / "docs" / "plan.md"


def printed_help(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words, "--help"]) == 0
    return capsys.readouterr().out


def listed_options(text: str) -> list[str]:
    return re.findall(r"^  (?:-\w, )?--([a-z-]+)", text, flags=re.MULTILINE)


# --- one row, one parameter of semidp.release -----------------------------------------------------


def test_release_takes_the_settings_with_their_types_and_defaults() -> None:
    parameters = dict(inspect.signature(front.release).parameters)
    for other in ("data", "requests", "randomness"):
        del parameters[other]
    assert set(parameters) == set(OF_RELEASE)
    for name, parameter in parameters.items():
        row = OF_RELEASE[name]
        assert parameter.default == row.default, name
        assert parameter.annotation == eval(row.type or "", vars(front)), name  # our own text


def test_release_explains_each_setting_as_the_table_does() -> None:
    text = inspect.getdoc(front.release) or ""
    found = dict(re.findall(r"^([a-z_]+)\n((?:    .*\n|\n(?=    ))+)", text, flags=re.MULTILINE))
    assert set(OF_RELEASE) <= set(found)
    for name, row in OF_RELEASE.items():
        first_sentence = re.split(r"(?<=\.)\s", row.help)[0]
        assert " ".join(found[name].split()).startswith(name_keywords(first_sentence)), name


# --- the help -------------------------------------------------------------------------------------


def test_help_of_release_has_panels_in_order_and_the_everyday_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed_help(capsys, "release")
    places = [text.index(f"\n{panel}:\n") for panel in Panel]
    assert places == sorted(places)
    options = listed_options(text)
    assert {*options} == {*SHOWN, "help"}
    assert len(options) <= 55


def test_no_command_shows_more_than_thirty_options(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {tuple(shlex.split(example[0])[1:3]) for _, example in COMMANDS.values()}
    commands = [words if words[0] in ("assess", "plan") else words[:1] for words in asked]
    assert len(commands) > 15
    for words in commands:
        if words != ("release",):
            assert len(listed_options(printed_help(capsys, *words))) <= 30, words


def test_commands_are_listed_by_job(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed_help(capsys)
    jobs = ("Plan:", "Publish:", "Ask a release:", "Check a promise:", "Studies:")
    places = [text.index(f"\n{job}\n") for job in jobs]
    assert places == sorted(places)
    assert text.index("  release ") < text.index("  intervals ") < text.index("  assess ")


# --- plan files and --set -------------------------------------------------------------------------


def test_every_setting_without_an_option_is_on_the_page_of_plans() -> None:
    page = PLAN_PAGE.read_text(encoding="utf-8")
    table = page.split("## Every setting")[1].split("## Conditions")[0]
    cells = re.findall(r"^\| `(\w+)` \| .*? \| ([^|]*) \| ([^|]*) \|$", table, flags=re.MULTILINE)
    hidden = {name: row for name, row in ROWS.items() if row.panel is None}
    assert [name for name, _, _ in cells] == list(hidden)
    for name, key, help in cells:
        assert help == name_options(hidden[name].help)
        assert not hidden[name].key or key == f"`{hidden[name].key}`"


def test_rows_name_settings_that_exist() -> None:
    for row in ROWS.values():
        assert {*row.needs, *row.excludes} <= {*ROWS}, row.name
        assert row.help.endswith("."), row.name
        assert row.metavar is not None or row.shape is Shape.tick, row.name
        assert row.example or row.shape not in (Shape.texts, Shape.lists), row.name


def test_a_key_is_reached_with_hyphens_or_without() -> None:
    for name, row in ROWS.items():
        assert read_assignment(f"{name.replace('_', '-')}=x=y", ROWS) == (row, "x=y")


def test_a_plan_file_says_how_it_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("sex,région\n" + "f,n\nm,s\nm,n\nf,s\n" * 5, encoding="latin-1")
    plan = [
        *('title = "Sexes"', 'note = ["One.", "Two."]', "round_to = 5", 'encoding = "latin-1"'),
        *('invariants = ["sex", "région"]', "[[table]]", 'features = ["sex", "région"]'),
    ]
    Path("plan.toml").write_text("\n".join(plan), encoding="utf-8")
    words = ["release", "people.csv", "--plan", "plan.toml", "--mu", "1"]
    assert run([*words, "--out", "out"]) == 0
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "Sexes" in page
    assert "Two." in page
    plan_of_release = json.loads(Path("out/release.json").read_text(encoding="utf-8"))["plan"]
    assert "title" not in plan_of_release
    assert run([*words, "--set", "title=Others", "--set", "adjacency=exchange", "--out", "o"]) == 0
    assert "Others" in Path("o/report.html").read_text(encoding="utf-8")
    assert "exchange" in capsys.readouterr().out
    assert run([*words, "--adjacency", "exchange", "--out", "p"]) == 2
    assert "change the plan with --set adjacency=…" in capsys.readouterr().err
    Path("plan.toml").write_text("\n".join(['round_to = "5"', *plan[4:]]))
    assert run([*words, "--out", "p"]) == 2
    assert "plan.toml: round_to = '5' in a plan file: Show counts" in capsys.readouterr().err
    assert set(list_file_settings()) >= {"title", "memory", "encoding", "sign"}


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mu": 1, "epsilon": 1}, "epsilon= and mu= cannot be given together"),
        ({"jobs": 2}, "jobs= works only with partition="),
        ({"units": "homes.csv", "most": 3}, "is most_members=, not most="),
        ({"label": "June"}, "label= works only with ledger="),
        ({"target_error": {"sex,age": 5}, "share": {"tables": 2}}, "cannot be given together"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Given(values)


@pytest.mark.parametrize(
    "row", [row for row in ROWS.values() if row.panel is None], ids=lambda row: row.name
)
def test_an_old_spelling_gets_a_sentence_with_the_new_one(
    row: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    value = [] if row.shape is Shape.tick else ["x"]
    assert run(["release", "people.csv", row.option, *value]) == 2
    said = capsys.readouterr().err
    assert f"{row.option} is a key of plan files now: write --set {row.name}=" in said
    assert said.count("\n") == 1

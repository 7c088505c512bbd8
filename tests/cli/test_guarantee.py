"""`semidp guarantee`: the numbers of the Census example, every way of stating a guarantee, and bad
input.
"""

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from dp_accounting import NeighboringRelation, dp_event

from semidp.assess import PrivacyFunction, dp_sgd, event_to_json
from semidp.assess.events import event_from_json, event_tradeoff
from semidp.assess.privacy_functions import name_curve
from semidp.cli import run
from semidp.promise.tradeoff.composition import tradeoff_from_json


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["guarantee", *arguments, "--format", "json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("a", "rho", "paper", "tight"),
    [("1", 2.56, 17.91528, 17.1583), ("2", 10.24, 40.95057, 39.8226)],
)
def test_the_census_example(
    capsys: pytest.CaptureFixture[str], a: str, rho: float, paper: float, tight: float
) -> None:
    found = document(capsys, "--rho", "2.56", "--a", a, "--delta", "1e-10")
    assert found["schema_version"] == 1
    assert found["a"] == int(a)
    assert found["rho"] == rho
    assert found["mu"] is None
    assert found["report_delta"] == 1e-10
    assert round(found["epsilon_paper"], 5) == paper  # type: ignore[call-overload]
    assert round(found["epsilon_tight"], 4) == tight  # type: ignore[call-overload]


def test_mu_and_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    gaussian = document(capsys, "--mu", "1/3", "--a", "3", "--delta", "1e-6")
    assert (gaussian["mu"], gaussian["rho"], gaussian["epsilon_paper"]) == (1, 0.5, None)
    assert gaussian["report_delta"] == 1e-6
    assert gaussian == document(capsys, "--mu", "1/3", "--a", "3", "--report-delta", "1e-6")
    pure = document(capsys, "--epsilon", "0.5", "--a", "2", "--report-delta", "1e-12")
    assert (pure["mu"], pure["rho"], pure["epsilon_paper"]) == (None, None, None)
    assert pure["epsilon_tight"] == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("stated", "loss"), [("epsilon", 1), ("rho", 0.5), ("mu", 1)])
def test_a_promise_for_an_added_record_counts_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, stated: str, loss: float
) -> None:
    numbers = ["--" + stated, str(loss), "--adjacency", "2"]
    found = document(capsys, *numbers, "--stated-for", "add-remove")
    measure = {"epsilon": "pure", "rho": "zcdp", "mu": "gdp"}[stated]
    values = {k: str(loss * k ** (2 if stated == "rho" else 1)) for k in (1, 4)}
    session = tmp_path / "session.json"
    session.write_text(json.dumps(PrivacyFunction(measure, "symmetric", values).to_json()))
    assert run(["assess", "opendp", str(session), "--adjacency", "2", "--format", "json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert found["epsilon_tight"] == pytest.approx(other["epsilon_tight"], rel=1e-9)
    assert (found["rho"], found["mu"]) == (other["rho"], other["mu"])
    assert found["epsilon_tight"] > document(capsys, *numbers)["epsilon_tight"]  # type: ignore[operator]
    assert run(["guarantee", *numbers]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "promise for one record replaced. If it is for one record added or removed" in printed
    assert f"what holds here is {name_curve(tradeoff_from_json(other['tradeoff']))}:" in printed
    assert run(["guarantee", *numbers, "--stated-for", "swap"]) == 2


def test_delta_beside_epsilon_is_what_the_release_states(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three records lose 1e-6 (1 + e + e²) at epsilon 3, which is where it is reported; at 1e-6
    there is no epsilon.
    """
    found = document(capsys, "--epsilon", "1", "--delta", "1e-6", "--a", "3")
    assert found["stated"]["tradeoff"]["delta"] == "1e-6"  # type: ignore[index]
    assert 1e-6 * (1 + math.e + math.e**2) <= found["report_delta"] <= 1.12e-5  # type: ignore[operator]
    assert found["epsilon_tight"] == pytest.approx(3, abs=1e-2)
    lost = document(
        capsys, "--epsilon", "1", "--delta", "1e-6", "--a", "3", "--report-delta", "1e-6"
    )
    assert lost["epsilon_tight"] is None
    one = document(capsys, "--epsilon", "1", "--delta", "1e-6", "--a", "1")
    assert (one["report_delta"], one["epsilon_tight"]) == (1e-6, 1)


SCHEMA = """
[[feature]]
name = "sex"
levels = ["f", "m"]
[[feature]]
name = "region"
levels = ["n", "s", "w"]
[[feature]]
name = "age"
levels = ["young", "old"]
"""


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of public values: a schema, and totals of single margins."""
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA)
    Path("sexes.csv").write_text("sex,count\nf,2\nm,2\n")
    Path("ages.csv").write_text("count,age\n2,young\n2,old\n")
    Path("regions.csv").write_text("region,count\nn,1\ns,3\n")
    Path("joint.csv").write_text("region,sex,count\nn,f,1\ns,f,1\ns,m,2\n")
    return tmp_path


def test_a_is_computed_from_public_totals_without_data(
    capsys: pytest.CaptureFixture[str], public: Path
) -> None:
    """(2, 2) and (2, 2) need 2 records, not the 3 of other totals; the joint margin is one
    block.
    """
    found = document(
        capsys,
        "--rho",
        "1",
        "--totals",
        "sexes.csv",
        "--totals",
        "ages.csv",
        "--schema",
        "schema.toml",
    )
    assert (found["a"], found["rho"]) == (2, 4)
    assert str(found["a_from"]).startswith("the published totals")
    assert (
        document(capsys, "--rho", "1", "--totals", "sexes.csv", "--totals", "regions.csv")["a"] == 3
    )
    assert (
        document(capsys, "--rho", "1", "--totals", "joint.csv", "--totals", "sexes.csv")["a"] == 2
    )
    same = ("--invariant", "sex", "--invariant", "age", "--schema", "schema.toml")
    assert (
        document(capsys, "--rho", "1", *same, "--totals", "sexes.csv", "--totals", "ages.csv")["a"]
        == 2
    )
    literal = ("--adjacency", "definition", "--totals", "sexes.csv", "--totals", "regions.csv")
    assert document(capsys, "--rho", "1", *literal)["a"] == 2


def test_without_totals_a_is_the_bound_over_all_of_them_and_says_so(
    capsys: pytest.CaptureFixture[str], public: Path
) -> None:
    margins = ("--invariant", "sex", "--invariant", "age", "--schema", "schema.toml")
    found = document(capsys, "--rho", "1", *margins)
    assert found["a"] == 3
    assert str(found["a_from"]).startswith("for any published totals")
    # the ages are not known
    assert document(capsys, "--rho", "1", *margins, "--totals", "sexes.csv")["a"] == 3
    assert run(["guarantee", "--rho", "1", *margins]) == 0
    assert "a = 3: for any published totals" in capsys.readouterr().out


def test_a_given_number_below_what_the_totals_need_is_warned_about(
    capsys: pytest.CaptureFixture[str], public: Path
) -> None:
    margins = ("--totals", "sexes.csv", "--totals", "regions.csv")
    assert run(["guarantee", "--rho", "1", "--a", "2", *margins, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert "a = 2 lies below 3" in json.loads(printed.out)["warnings"][0]
    assert "lies below" in printed.err
    assert document(capsys, "--rho", "1", "--a", "3", *margins)["warnings"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--rho 1", "--adjacency N"),
        ("--rho 1 --invariant sex", "not declared"),
        ("--rho 1 --totals gone.csv", "no file gone.csv"),
        ("--rho 1 --totals schema.toml", "line 3 of schema.toml"),
        ("--rho 1 --totals sexes.csv --totals sexes2.csv", "keep one"),
        ("--rho 1 --totals sexes.csv --totals four.csv", "contradict"),
        ("--rho 1 --totals twice.csv", "twice"),
        ("--rho 1 --totals half.csv", "count 2 of half.csv"),
        ("--rho 1 --totals other.csv --schema schema.toml", "not declared"),
        ("--rho 1 --a 2 --delta 1e-6 --report-delta 1e-7", "disagree"),
        ("--epsilon 1 --a 2 --report-delta 0", "strictly between"),
    ],
)
def test_totals_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], public: Path, arguments: str, words: str
) -> None:
    Path("sexes2.csv").write_text("sex,count\nf,2\nm,2\n")
    Path("four.csv").write_text("sex,region,count\nf,n,2\nm,n,3\n")
    Path("twice.csv").write_text("sex,count\nf,2\nf,2\n")
    Path("half.csv").write_text("sex,count\nf,2\nm,2.5\n")
    Path("other.csv").write_text("sex,count\nf,2\nx,2\n")
    assert run(["guarantee", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert words in printed.err


def test_the_text_names_the_invariant_and_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["guarantee", "--rho", "2.56", "--a", "2", "--invariant-text", "state totals"]) == 0
    text = capsys.readouterr().out
    for word in (
        "17.91528",
        "40.95057",
        "17.15831",
        "39.82258",
        "10.24",
        "state totals",
        "side information",
    ):
        assert word in text


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--rho 1 --mu 1 --a 2",
        "--epsilon -1 --a 2",
        "--epsilon 1 --delta 1.5 --a 2",
        "--rho 1 --delta-in 0.1 --a 2",
        "--rho 1 --delta 2 --a 2",
        "--rho 1 --delta 0 --a 2",
        "--rho 1 --a 0",
        "--rho 1 --a 1.5",
        "--rho 1 --a -2",
        "--rho nan --a 2",
        "--rho 1/0 --a 2",
        "--mu 1e300 --a 2",
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    assert run(["guarantee", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert "Traceback" not in printed.err


def test_numbers_are_numbers_and_claim_no_less_loss(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--mu", "1/3", "--adjacency", "2", "--quiet")
    assert found["a"] == 2
    assert isinstance(found["mu"], float)
    assert Fraction(2, 3) <= found["mu"] <= math.nextafter(2 / 3, 1)
    assert Fraction(2, 9) <= found["rho"] <= math.nextafter(2 / 9, 1)  # type: ignore[operator]


def test_totals_of_a_nested_feature_name_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exact counties, and exact sexes by state: three records move, between slices too."""
    tree = (
        '[[feature]]\nname = "county"\nnest = ["state", "county"]\ntree = {a = ["x", "y"], b ='
        ' ["z"]}\n'
    )
    (tmp_path / "schema.toml").write_text(tree)
    # the parents follow from the schema
    (tmp_path / "counties.csv").write_text("county,count\nx,5\ny,3\nz,7\n")
    (tmp_path / "sexes.csv").write_text("sex,state,count\nf,a,5\nm,a,3\nf,b,1\nm,b,6\n")
    words = [
        "guarantee",
        "--rho",
        "1",
        "--format",
        "json",
        "--schema",
        str(tmp_path / "schema.toml"),
    ]
    files = [f"--totals={tmp_path / name}" for name in ("counties.csv", "sexes.csv")]
    assert run([*words, *files]) == 0
    assert json.loads(capsys.readouterr().out)["a"] == 3
    (tmp_path / "counties.csv").write_text("state,county,count\nb,x,5\n")
    assert run([*words, files[0]]) == 2
    assert "that is not declared" in capsys.readouterr().err


# --- events, training runs and privacy functions --------------------------------------------------


def assessed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["assess", "opendp", *words, "--format", "json"]) == 0
    printed: dict[str, object] = json.loads(capsys.readouterr().out)
    return printed


def test_a_training_run_by_its_settings_and_by_its_event(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--a", "2", "--report-delta", "1e-5")
    by_settings = assessed(
        capsys, "--noise-multiplier", "4", "--sampling", "0.1", "--steps", "4", *words
    )
    file = tmp_path / "event.json"
    training = dp_sgd(4.0, 0.1, 4)
    file.write_text(json.dumps(event_to_json(training)))
    by_event = assessed(capsys, str(file), *words)
    assert (
        by_settings["epsilon_tight"]
        == by_event["epsilon_tight"]
        == event_tradeoff(training, 2).epsilon("1e-5")
    )
    reported, replaced = (found["stated"]["epsilon_tight"] for found in (by_settings, by_event))  # type: ignore[index]
    assert reported == event_tradeoff(training, 1, NeighboringRelation.ADD_OR_REMOVE_ONE).epsilon(
        "1e-5"
    )
    # added or removed; replaced; two replaced
    assert reported < replaced < by_event["epsilon_tight"]


def test_a_privacy_function_is_asked_for_the_distance(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "session.json"
    values = {1: 0.125, 4: 2.0, 8: 8.0, 12: math.inf}
    file.write_text(json.dumps(PrivacyFunction("zcdp", "symmetric", values, "a tool").to_json()))
    two = assessed(capsys, str(file), "--a", "2")
    assert (two["rho"], two["stated"]["tradeoff"]) == (2, {"kind": "zcdp", "rho": "0.125"})  # type: ignore[index]
    assert assessed(capsys, str(file), "--a", "2", "--rows", "2")["rho"] == 8
    nothing = assessed(capsys, str(file), "--a", "5")
    assert nothing["epsilon_tight"] is None
    assert "at most 100 of 100" in str(nothing["explanation"])
    (tmp_path / "wards.csv").write_text("ward,count\na,3\nb,5\n")
    found = assessed(capsys, str(file), "--totals", str(tmp_path / "wards.csv"))
    assert (found["a"], found["rho"]) == (2, 2)


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        ("[]", (), "does not hold an event or a privacy function"),
        ('{"class_name": "os"}', (), "class_name of a dp-accounting event"),
        (
            '{"class_name": "GaussianDpEvent", "noise_multiplier": "x"}',
            (),
            "numbers, lists and events",
        ),
        ('{"class_name": "GaussianDpEvent"}', (), "needs the fields noise_multiplier"),
        (
            '{"class_name": "NonPrivateDpEvent"}',
            (),
            "dp-accounting knows no bound|without any privacy",
        ),
        ('{"privacy_function": {"measure": "pure"}}', (), "a measure, a metric and values"),
        (
            '{"privacy_function": {"measure": "x", "metric": "symmetric", "values": {"1": 1}}}',
            (),
            "one of pure",
        ),
        (
            '{"privacy_function": {"measure": "pure", "metric": "symmetric", "values": {"1": 1}}}',
            (),
            "distance 4",
        ),
        (
            '{"privacy_function": {"measure": "pure", "metric": "symmetric", "values": {"4": -1}}}',
            (),
            "at least 0",
        ),
        (
            '{"class_name": "GaussianDpEvent", "noise_multiplier": 1}',
            ("--rho", "1"),
            "No such option",
        ),
        (
            '{"class_name": "GaussianDpEvent", "noise_multiplier": 1}',
            ("--steps", "3"),
            "--noise-multiplier, --sampling and --steps together",
        ),
    ],
)
def test_bad_events_are_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: str,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    file = tmp_path / "event.json"
    file.write_text(content)
    assert run(["assess", "opendp", str(file), "--a", "2", *words]) == 2
    said = capsys.readouterr().err
    assert re.search(sentence, said)
    assert said.count("\n") == 1


EVENTS = [
    dp_sgd(1.1, 0.01, 500),
    dp_event.ComposedDpEvent([dp_event.LaplaceDpEvent(2.0), dp_event.ZCDpEvent(0.5)]),
    dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
    dp_event.RandomizedResponseDpEvent(0.5, 2),
    dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.GaussianDpEvent(1.0)),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_are_read_back_from_their_files(event: dp_event.DpEvent) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event

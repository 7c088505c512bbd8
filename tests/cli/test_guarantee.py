"""`semidp guarantee`: the numbers of the Census example, every way of stating a guarantee, and bad input."""

import json
import math
from fractions import Fraction

import pytest

from semidp.cli import run


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["guarantee", *arguments, "--format", "json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("a", "rho", "paper", "tight"), [("1", 2.56, 17.91528, 17.1583), ("2", 10.24, 40.95057, 39.8226)]
)
def test_the_census_example(capsys: pytest.CaptureFixture[str], a: str, rho: float, paper: float, tight: float) -> None:
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
    pure = document(capsys, "--epsilon", "0.5", "--a", "2", "--delta", "1e-12")
    assert (pure["mu"], pure["rho"], pure["epsilon_paper"]) == (None, None, None)
    assert pure["epsilon_tight"] == pytest.approx(1, abs=1e-9)
    approximate = document(capsys, "--epsilon", "0.5", "--delta-in", "1e-6", "--a", "2", "--delta", "1e-6")
    assert approximate["epsilon_tight"] is None  # two records lose more delta than that, whatever epsilon


def test_the_text_names_the_invariant_and_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["guarantee", "--rho", "2.56", "--a", "2", "--invariant-text", "state totals"]) == 0
    text = capsys.readouterr().out
    for word in ("17.91528", "40.95057", "17.15831", "39.82258", "10.24", "state totals", "side information"):
        assert word in text


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--rho 1 --mu 1",
        "--epsilon -1",
        "--epsilon 1 --delta-in 1.5",
        "--rho 1 --delta-in 0.1",
        "--rho 1 --delta 2",
        "--rho 1 --delta 0",
        "--rho 1 --a 0",
        "--rho 1 --a 1.5",
        "--rho 1 --a -2",
        "--rho nan",
        "--rho 1/0",
        "--mu 1e300",
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
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

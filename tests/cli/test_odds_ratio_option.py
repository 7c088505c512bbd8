"""``semidp release --odds-ratio``: the same request as a plan's, and what is refused."""

from pathlib import Path

import pytest

from semidp.publish.plan import Plan
from semidp.publish.statistics.odds_ratio.kind import OddsRatioRequest
from tests.cli.conftest import Semidp, one_sentence
from tests.release.conftest import Example, strict_json

UCB = Example.named("ucb_admissions")
WORDS = ("release", UCB.path, "--count", "count", "--mu", "1")


def test_it_asks_for_what_a_plan_asks_for(here: Semidp) -> None:
    done = here(
        *WORDS, "--odds-ratio", "gender,admit,dept", "--set", "alternative=less", "--out", "r"
    )
    assert done.code == 0, done.err
    assert "is the odds ratio below 1?" in done.out
    plan = Plan.from_json(strict_json(Path("r", "release.json").read_text())["plan"])
    (request,) = plan.requests
    assert isinstance(request, OddsRatioRequest)
    assert request.features == ("gender", "admit", "dept")
    assert request.alternative == "less"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--odds-ratio", "gender"), "an odds ratio has two features"),
        (("--odds-ratio", "gender,dept"), "two levels"),
        (("--odds-ratio", "gender,admit", "--set", "alternative=sideways"), "must be one of"),
        (("--table", "gender,admit", "--set", "alternative=less"), "works only with --odds-ratio"),
    ],
)
def test_what_cannot_be_tested_is_one_sentence(
    here: Semidp, words: tuple[str, ...], said: str
) -> None:
    refused = here(*WORDS, *words, "--out", "r")
    assert refused.code == 2
    assert said in one_sentence(refused)

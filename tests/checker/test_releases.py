"""The checker on releases that the software makes, and on the same with one field changed."""

import copy
import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from semidp.cli import run
from tests.checker.the_checker import FILE, check

SCHEMA = """
structural_zero = [{ sex = "f", job = "x" }]
feature = [
  { name = "sex", levels = ["f", "m"] },
  { name = "job", levels = ["x", "y", "z"] },
  { name = "region", levels = ["n", "s", "w"] },
]
"""
AGES = """
[[feature]]
name = "sex"
levels = ["f", "m"]
[[feature]]
name = "age"
nest = ["band", "age"]
tree = { young = ["0", "1", "2", "3", "4"], old = ["5", "6", "7", "8", "9"] }
"""
NEST = "--nest state,county"
BALL = "--exact sex --exact region"

PLANS = {
    "two-way": f"--table sex,region {BALL} --mu 1",
    "two-way, rho": f"--table sex,region {BALL} --rho 1/2",
    "two-way, laplace": f"--table sex,region {BALL} --epsilon 1 --mechanism laplace",
    "two-way, exchange": f"--table sex,region {BALL} --mu 1 --adjacency exchange",
    "laplace, exchange": "--table sex,job --exact sex --epsilon 1 --mechanism laplace --adjacency exchange",
    "gaussian for epsilon": "--table sex,region --exact sex --epsilon 1 --delta 1e-6 --mechanism gaussian",
    "only n": "--table sex,region --mu 1/2",
    "given a": f"--table sex,region,job {BALL} --exact job --rho 1 --adjacency 2",
    "nested": f"{NEST} --table county,sex --exact state --exact sex --mu 1",
    "nested, exchange": f"{NEST} --table county,region --exact state,sex --rho 1 --adjacency exchange",
    "joint": "--table sex,region,job --exact sex,region --mu 1",
    "product": "--all-pairs sex,region,job --exact sex --exact region --mu 1",
    "product, exchange": "--all-pairs sex,region,job,state --exact sex --exact region --rho 1/3 --adjacency exchange",
    "nested product": f"{NEST} --table county,sex --table sex,region --table county,region --exact state --exact sex --rho 1/3",
    "overlapping": "--table sex,region,job --exact sex,region --exact region,job --mu 1",
    "zeros": "--schema schema.toml --table sex,job --exact sex --exact job --mu 1",
    "zeros, product": "--schema schema.toml --all-pairs sex,job,region --exact sex --exact job --mu 1",
    "several records": "--id person --most 2 --table sex,region --exact sex --mu 1 --mechanism gaussian",
    "several records, exchange": f"--id person --most 2 --table sex,region {BALL} --rho 1 --adjacency exchange",
    "means": "--group sex --mean income --bounds income=0,10 --exact sex --mu 1",
    "two sets of means": f"--group sex --group region --sum income --bounds income=0,10 {BALL} --rho 1",
    "proportions, exchange": f"--group sex --group region --proportion smokes {BALL} --mu 1 --adjacency exchange",
    "proportion of a level": "--group sex --proportion job=y --exact sex --mu 1",
    "two Laplace tables": "--table sex,region --table job,sex --exact sex --epsilon 1 --mechanism laplace",
    "lattice": "--table sex,region --exact sex --exact region --rho 1 --mechanism lattice",
    "exact band, mean of age": "--schema ages.toml --group sex --mean age --bounds age=0,9 --grid age=9 --exact sex --exact band --mu 1 --adjacency exchange",
    "exact band, any records": "--schema ages.toml --group sex --mean age --bounds age=0,9 --grid age=9 --table band,sex --exact band --rho 1",
    "table and mean": "--table sex,region --group sex --mean income --bounds income=0,10 --exact sex --mu 1 --adjacency exchange",
}


QUICK = (
    *("two-way", "two-way, rho", "laplace, exchange", "nested product", "zeros", "overlapping"),
    *("several records, exchange", "two sets of means", "table and mean"),
    *("proportion of a level", "two Laplace tables", "exact band, mean of age"),
)
"""What `make test` carries out."""


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Some plans, carried out."""
    return carried_out(tmp_path_factory.mktemp("some"), QUICK)


@pytest.fixture(scope="module")
def all_releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All plans, carried out."""
    return carried_out(tmp_path_factory.mktemp("all"), tuple(PLANS))


def carried_out(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """The releases of plans on one small file."""
    draw = random.Random(4)
    lines = ["person,sex,region,state,county,job,income,smokes,age,band"]
    for i in range(120):
        sex, state = draw.choice("ffm"), draw.choice("AB")
        job = draw.choice("xyz" if sex == "m" else "yz")
        rest = f"{state}{draw.choice('12')},{job},{draw.randrange(11)},{draw.randrange(2)}"
        age = draw.randrange(10)
        rest += f",{age},{'young' if age < 5 else 'old'}"
        lines.append(f"p{i // 2},{sex},{draw.choice('nsw')},{state},{rest}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "ages.toml").write_text(AGES)
    made = {}
    for number, name in enumerate(names):
        words = re.sub(r"\w+\.toml", lambda found: str(folder / found[0]), PLANS[name]).split()
        made[name] = folder / f"r{number}"
        levels = [] if "--schema" in words else ["--levels-from-data"]
        arguments = ["release", str(folder / "people.csv"), *words, *levels, "--quiet"]
        assert run([*arguments, "--out", str(made[name])]) == 0, name
    return made


def unconfirmed(releases: dict[str, Path]) -> dict[str, str]:
    verdicts = {name: check.check_release(folder, 0.5)[0] for name, folder in releases.items()}
    return {name: v for name, v in verdicts.items() if not v.startswith("confirmed")}


def test_releases_are_confirmed(releases: dict[str, Path]) -> None:
    assert unconfirmed(releases) == {}


@pytest.mark.long
def test_all_releases_are_confirmed(all_releases: dict[str, Path]) -> None:
    assert unconfirmed(all_releases) == {}


def entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [*document.get("tables", []), *document.get("products", []), *document.get("groups", [])]


def smaller(text: str, factor: Fraction) -> str:
    return str(Fraction(text) * factor)


def less_noise(document: dict[str, Any]) -> None:
    for entry in entries(document):
        for residual in entry.get("residuals", []):
            residual["sigma2"] = smaller(residual["sigma2"], Fraction(4, 5))
        for key in ("sigma2", "scale"):
            if isinstance(entry["noise"].get(key), str):
                entry["noise"][key] = smaller(entry["noise"][key], Fraction(4, 5))


def less_noise_in_one_residual(document: dict[str, Any]) -> None:
    for entry in entries(document):
        if entry.get("residuals"):
            last = entry["residuals"][-1]
            last["sigma2"] = smaller(last["sigma2"], Fraction(1, 3))


def stronger_guarantee(document: dict[str, Any]) -> None:
    for name in ("mu_squared", "rho", "epsilon"):
        if name in document["guarantee"]:
            document["guarantee"][name] = smaller(document["guarantee"][name], Fraction(9, 10))


def stronger_part(document: dict[str, Any]) -> None:
    for entry in entries(document)[:1]:
        for name in ("mu_squared", "rho", "epsilon"):
            if name in entry["guarantee"]:
                entry["guarantee"][name] = smaller(entry["guarantee"][name], Fraction(9, 10))


def smaller_budget(document: dict[str, Any]) -> None:
    for name in ("mu", "rho", "epsilon"):
        if name in document["budget"]:
            document["budget"][name] = float(document["budget"][name]) * 0.9


def smaller_epsilon(document: dict[str, Any]) -> None:
    document["epsilon"] *= 0.98


def fewer_records_together(document: dict[str, Any]) -> None:
    if document["a"].get("kind") != "exchange" and document["plan"]["adjacency"] == "worst-case":
        document["a"]["used"] -= 1


def more_records_together(document: dict[str, Any]) -> None:
    """The same noise said to protect more records."""
    if document["a"].get("kind") != "exchange":
        document["a"]["used"] *= 2


def ball_instead_of_exchange(document: dict[str, Any]) -> None:
    if document["a"].get("kind") == "exchange":
        del document["a"]["kind"]
        document["plan"]["adjacency"] = "worst-case"


def exchange_in_the_plan_alone(document: dict[str, Any]) -> None:
    other = {"exchange": "worst-case"}.get(document["plan"]["adjacency"], "exchange")
    document["plan"]["adjacency"] = other


def more_per_person(document: dict[str, Any]) -> None:
    if "most" in document["plan"]:
        document["plan"]["most"] = document["a"]["protection"]["most"] = 3
        document["persons"] = 50


def per_person_in_the_plan_alone(document: dict[str, Any]) -> None:
    document["plan"]["most"] = 3


def one_total_less(document: dict[str, Any]) -> None:
    if document["dataspace"]["margins"]:
        document["dataspace"]["margins"].pop()


def totals_that_contradict(document: dict[str, Any]) -> None:
    if document["dataspace"]["margins"]:
        document["dataspace"]["margins"][0]["counts"][0] += 1


def fewer_levels(document: dict[str, Any]) -> None:
    for feature in document["dataspace"]["schema"]["feature"]:
        if "levels" in feature and len(feature["levels"]) > 1:
            feature["levels"].pop()


def levels_in_other_states(document: dict[str, Any]) -> None:
    for feature in document["dataspace"]["schema"]["feature"]:
        if "tree" in feature:
            feature["tree"] = {"A": ["A1", "A2", "B1"], "B": ["B2"]}


def another_mechanism(document: dict[str, Any]) -> None:
    """Discrete noise proves no mu, rounded noise of this size no more rho than it has."""
    for entry in entries(document):
        other = {"rounded": "discrete", "rounded gaussian": "discrete gaussian"}
        entry["noise"]["law"] = other.get(entry["noise"].get("law"), "k-norm")
        if "law" in entry:
            entry["law"] = other.get(entry["law"], "k-norm")


def no_noise(document: dict[str, Any]) -> None:
    for entry in entries(document)[:1]:
        entry["noise"]["mechanism"] = entry["noise"]["law"] = "no noise"
        entry.pop("residuals", None)


def ideal(document: dict[str, Any]) -> None:
    for entry in entries(document)[:1]:
        entry["noise"]["claim"] = "ideal"


def one_residual_less(document: dict[str, Any]) -> None:
    for entry in entries(document):
        if entry.get("residuals"):
            entry["residuals"].pop()


def wider_outcome(document: dict[str, Any]) -> None:
    for asked in document["plan"].get("group", []):
        if "grid" in asked:
            asked["grid"] *= 2


def more_sets(document: dict[str, Any]) -> None:
    for asked in document["plan"].get("group", []):
        asked["by"] = [*asked["by"], *asked["by"]]


MUTATIONS: list[Callable[[dict[str, Any]], None]] = [
    *(less_noise, less_noise_in_one_residual, stronger_guarantee, stronger_part, smaller_budget),
    *(smaller_epsilon, fewer_records_together, more_records_together, ball_instead_of_exchange),
    *(exchange_in_the_plan_alone, more_per_person, per_person_in_the_plan_alone, one_total_less),
    *(totals_that_contradict, fewer_levels, levels_in_other_states, another_mechanism, no_noise),
    *(ideal, one_residual_less, wider_outcome, more_sets),
]


STILL_TRUE = {
    "two-way, exchange: ball_instead_of_exchange": "the ball has the same moves (THEORY 11, table)",
    "laplace, exchange: ball_instead_of_exchange": "D1 is 4 for both",
    "exact band, mean of age: ball_instead_of_exchange": "D2^2 is 250 for both",
    # exact bands limit how far ages move, and the software adds noise as though they did not
    **dict.fromkeys(
        f"exact band, any records: {change}"
        for change in ("stronger_guarantee", "smaller_budget", "smaller_epsilon", "more_sets")
    ),
}


def changed(folder: Path, to: Path, mutation: Callable[[dict[str, Any]], None]) -> bool:
    """Copy a release with one change; False where the change does not apply."""
    document = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    before = copy.deepcopy(document)
    mutation(document)
    if document == before:
        return False
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    (to / "release.json").write_text(json.dumps(document), encoding="utf-8")
    return True


def verdict_of(folder: Path, seconds: float) -> str:
    try:
        return str(check.check_release(folder, seconds)[0])
    except check.Unreadable:
        return "unreadable"
    except check.NotCovered:
        return "not covered"


def confirmed_mutants(
    releases: dict[str, Path], to: Path, every: int
) -> tuple[list[str], Counter[str]]:
    wrong, verdicts = [], Counter[str]()
    number = 0
    for name, folder in releases.items():
        for mutation in MUTATIONS:
            number += 1
            if number % every == 0 and changed(folder, to, mutation):
                verdict = verdict_of(to, 0.1)
                verdicts[verdict] += 1
                mutant = f"{name}: {mutation.__name__}"
                if verdict.startswith("confirmed") and mutant not in STILL_TRUE:
                    wrong.append(mutant)
    return wrong, verdicts


def test_no_mutant_is_confirmed(releases: dict[str, Path], tmp_path: Path) -> None:
    wrong, verdicts = confirmed_mutants(releases, tmp_path / "mutant", 2)
    assert wrong == []
    assert verdicts.total() >= 40


@pytest.mark.long
def test_no_mutant_of_all_is_confirmed(all_releases: dict[str, Path], tmp_path: Path) -> None:
    wrong, verdicts = confirmed_mutants(all_releases, tmp_path / "mutant", 1)
    assert wrong == []
    assert verdicts.total() >= 300


def test_a_copy_runs_alone(releases: dict[str, Path], tmp_path: Path) -> None:
    """In an empty folder, without site packages, environment or the folder on the path."""
    shutil.copy(FILE, tmp_path / "alone.py")
    shutil.copytree(releases["nested product"], tmp_path / "release")
    command = [sys.executable, "-S", "-I", "alone.py", "release", "--seconds", "0.5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("confirmed")
    answer = subprocess.run(
        [*command, "--format", "json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    document = json.loads(answer.stdout)
    assert document["verdict"] == "confirmed"
    assert {"stated", "proved", "rules", "pair"} <= set(document)
    nowhere = subprocess.run(
        [*command[:4], "nowhere"], cwd=tmp_path, capture_output=True, check=False
    )
    assert nowhere.returncode == 2


def test_the_command_says_the_same(
    releases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(releases["two-way"]), "--seconds", "1"]) == 0
    assert capsys.readouterr().out.startswith("confirmed: stated mu = 1; proved mu = 1\n")
    changed(releases["two-way, rho"], tmp_path / "less", less_noise)
    assert run(["check", str(tmp_path / "less"), "--seconds", "5", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "false"
    changed(releases["two-way"], tmp_path / "ideal", ideal)
    assert run(["check", str(tmp_path / "ideal")]) == 3
    assert capsys.readouterr().out.startswith("not covered")
    assert run(["check", str(tmp_path)]) == 2
    assert run(["check", str(releases["two-way"]), "--seconds", "0"]) == 2

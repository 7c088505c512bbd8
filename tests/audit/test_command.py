"""``semidp audit``: what it reads, what it prints, and the code it leaves with."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from attrs import evolve
from typer.testing import CliRunner, Result

import semidp
from semidp import run
from semidp.assess import audit_mechanism, claims_of_release
from semidp.cli.audit import audit
from semidp.errors import InputError
from semidp.present.release import Release
from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.features import Feature
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.smooth import Gaussian
from semidp.publish.plan import Plan
from semidp.publish.statistics.tables.asked import TableRequest

FEATURES = (Feature("age", ("young", "old", "older")), Feature("region", ("n", "s", "w")))
PLAN = Plan(
    [TableRequest(["age", "region"], Budget.gdp(1))], [Margin("age"), Margin("region")], FEATURES
)


def people() -> dict[str, list[str]]:
    rng = np.random.default_rng(3)
    return {
        feature.name: [feature.levels[i] for i in rng.integers(3, size=120)] for feature in FEATURES
    }


def released(plan: Plan, folder: Path) -> Release:
    done = run(plan, people())
    folder.mkdir()
    done.save(folder)
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    released(PLAN, tmp_path / "release")
    return tmp_path / "release"


def called(*words: object) -> Result:
    app = typer.Typer()
    app.command()(audit)
    return CliRunner().invoke(app, [*map(str, words), "--seed", "1", "--quiet"])


def test_a_release_survives(folder: Path, tmp_path: Path) -> None:
    found = called(folder, "--samples", 40_000, "--out", tmp_path / "audit.png")
    assert found.exit_code == 0, found.output
    for word in (
        "rounded gaussian",
        "3 records (6 cells)",
        "mu is at most 1",
        "less noise",
        "verdict    survives",
    ):
        assert word in found.output
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_json_says_the_same(folder: Path) -> None:
    found = called(folder, "--samples", 40_000, "--format", "json")
    document = json.loads(found.output)
    assert document["schema_version"] == 1
    assert document["verdict"] == document["tables"][0]["audit"]["verdict"] == "survives"
    bound = document["tables"][0]["audit"]["bound"]
    assert bound["unit"] == "mu"
    assert 0.7 < bound["measured"] < bound["claimed"] == 1


def test_a_claim_that_was_changed_is_convicted(folder: Path) -> None:
    document = json.loads((folder / "release.json").read_text())
    for place in (document, document["tables"][0]):
        place["guarantee"] = Gaussian(1).to_json() | {"mu_squared": "0.25"}
    (folder / "release.json").write_text(json.dumps(document))
    found = called(folder, "--samples", 20_000)
    assert found.exit_code == 1
    assert "convicted: what is recorded" in found.output
    assert "it records guarantee.mu_squared" in found.output


def test_a_recorded_scale_that_is_too_small_is_convicted(folder: Path) -> None:
    document = json.loads((folder / "release.json").read_text())
    document["tables"][0]["noise"]["scale"] *= 0.8
    (folder / "release.json").write_text(json.dumps(document))
    found = called(folder, "--samples", 2_000, "--format", "json")
    assert found.exit_code == 1
    assert "it records noise.scale" in json.loads(found.output)["tables"][0]["faults"][0]


@pytest.mark.parametrize(
    ("key", "value"), [("noise", {"sigma2": "1/100"}), ("guarantee", {"mu_squared": "1/100"})]
)
def test_what_is_recorded_of_a_mean_is_compared_with_its_plan(
    tmp_path: Path, key: str, value: dict[str, str]
) -> None:
    folder, people = tmp_path / "release", {"sex": [*"fm"] * 40, "score": [3, 5] * 40}
    mean = semidp.mean("score", by="sex", bounds=(0, 10))
    semidp.release(people, mean, exact=["sex"], mu=1).save(folder)
    document = json.loads((folder / "release.json").read_text())
    assert called(folder, "--samples", 2_000).exit_code == 3  # too few to decide
    document["groups"][0][key] |= value
    (folder / "release.json").write_text(json.dumps(document))
    found = called(folder, "--samples", 2_000, "--format", "json")
    assert found.exit_code == 1
    (fault,) = json.loads(found.output)["tables"][0]["faults"]
    assert fault.startswith(f"it records {key}.{next(iter(value))} '1/100', but its plan gives")


def test_a_mechanism_that_draws_too_little_is_convicted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RoundedGaussianMechanism.noises
    monkeypatch.setattr(
        RoundedGaussianMechanism,
        "noises",
        lambda self, count, words: whole(evolve(self, sigma2=4), count, words),
    )
    found = called(folder, "--samples", 60_000)
    assert found.exit_code == 1
    assert "convicted: an attacker" in found.output


def test_a_cell_that_draws_too_little_is_convicted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RoundedGaussianMechanism.noises

    def less(self: RoundedGaussianMechanism, count: int, words: Randomness) -> np.ndarray:
        noise = whole(self, count, words)
        noise[:, 0, 0] = np.rint(0.6 * noise[:, 0, 0])
        return noise

    monkeypatch.setattr(RoundedGaussianMechanism, "noises", less)
    found = called(folder, "--samples", 40_000, "--format", "json")
    assert found.exit_code == 1
    (table,) = json.loads(found.output)["tables"]
    assert table["verdict"] == "convicted"
    assert table["energy"]["share"] < table["energy"]["least"]
    assert "verdict    convicted: " in called(folder, "--samples", 40_000).output


def test_an_audit_without_power_is_inconclusive(folder: Path) -> None:
    found = called(folder, "--samples", 1_000)
    assert found.exit_code == 3
    assert (
        "verdict    inconclusive: an audit that notices too little noise in less than 50% of cases"
        in found.output
    )
    found = called(folder, "--samples", 1_000, "--format", "json")
    assert found.exit_code == 3
    document = json.loads(found.output)
    assert document["verdict"] == document["tables"][0]["verdict"] == "inconclusive"


def test_the_help_states_the_exit_codes() -> None:
    text = " ".join(called("--help").output.split())
    assert "Exit code 0: it survives, 1: it is convicted, 3: inconclusive." in text


def test_a_guarantee_of_the_whole_that_is_too_good_is_a_fault(tmp_path: Path) -> None:
    done = released(PLAN, tmp_path / "release")
    better = evolve(done, stated=evolve(done.guarantee, tradeoff=Gaussian(0)))
    assert claims_of_release(better)[0].faults == (
        "it claims more privacy than its tables give together",
    )
    assert claims_of_release(done)[0].faults == ()


def test_a_plan_reads_the_public_totals_of_its_data(tmp_path: Path) -> None:
    table = people()
    rows = [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "plan.toml").write_text(PLAN.to_toml())
    found = called(tmp_path / "plan.toml", "--data", tmp_path / "people.csv", "--samples", 20_000)
    assert found.exit_code == 0, found.output
    assert "survives" in found.output


def test_a_table_that_is_published_exactly_has_nothing_to_attack(tmp_path: Path) -> None:
    released(
        Plan([TableRequest(["age"], Budget.gdp(1))], [Margin("age")], FEATURES[:1]),
        tmp_path / "release",
    )
    found = called(tmp_path / "release")
    assert found.exit_code == 0
    assert "published exactly" in found.output


def test_several_tables_share_the_error(tmp_path: Path) -> None:
    requests = [TableRequest([name], Budget.zcdp("1/4"), name=name) for name in ("age", "region")]
    released(Plan(requests, (), FEATURES), tmp_path / "release")
    found = called(
        tmp_path / "release",
        "--samples",
        5_000,
        "--format",
        "json",
        "--out",
        tmp_path / "audit.png",
    )
    document = json.loads(found.output)
    # half for the energy
    assert [table["audit"]["error"] for table in document["tables"]] == [2.5e-4, 2.5e-4]
    assert [Path(picture).name for picture in document["pictures"]] == [
        "audit-age.png",
        "audit-region.png",
    ]


def test_a_picture_is_replaced_only_with_force(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "audit.png"
    picture.write_text("mine")
    refused = called(folder, "--samples", 2_000, "--out", picture)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception).endswith(
        "audit.png already exists: choose another --out, or replace it with --force"
    )
    assert picture.read_text() == "mine"
    # too few to decide
    assert called(folder, "--samples", 2_000, "--out", picture, "--force").exit_code == 3
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_appears_during_the_attack_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "audit.png"

    def attacked(*words: object, **options: object) -> object:
        picture.write_text("mine")
        return audit_mechanism(*words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sys.modules["semidp.cli.audit"], "audit_mechanism", attacked)
    assert isinstance(called(folder, "--samples", 2_000, "--out", picture).exception, InputError)
    assert picture.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "neither a release folder nor a plan file"),
        (["plan.toml"], "a plan holds no totals"),
        (["release", "--data", "people.csv"], "leave --data"),
        (["release", "--out", "audit.pdf"], "PNG picture"),
        (["release", "--samples", "10"], "at least 1,000 samples"),
    ],
)
def test_what_cannot_be_audited_is_said(words: list[str], sentence: str, folder: Path) -> None:
    (folder.parent / "plan.toml").write_text(PLAN.to_toml())
    found = called(folder.parent / words[0], *words[1:])
    assert isinstance(found.exception, InputError)
    assert sentence in str(found.exception)


def test_how_many_samples_is_left_to_the_clock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semidp.assess.attack.MOST_SAMPLES", 3_000)
    found = called(folder, "--format", "json")
    assert json.loads(found.output)["tables"][0]["audit"]["samples"] == 3_000

"""Synthetic records: counted, they give every published table and exact total to the person;
otherwise a refusal.
"""

import csv
import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, Feature, Margin, Outcome, Plan, Refused, Release, run
from semidp.cli import run as semidp
from semidp.inference.records.record_search import Ending
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import StructuralZero
from semidp.publish import GroupRequest, TableRequest
from semidp.publish.results.columns import Columns

COUNTY = Feature.from_paths(
    ["state", "county"], [("a", "x"), ("a", "y"), ("b", "x,1"), ("b", "u"), ("b", "v")]
)
FLAT = {"sex": "fm", "age": "yio", "ill": "nj", "work": "pqr"}
FEATURES = [*(Feature(name, levels) for name, levels in FLAT.items()), COUNTY]
N = 300


def people(n: int = N) -> dict[str, list[str]]:
    rng = np.random.default_rng(9)
    found = {
        name: [levels[i] for i in rng.integers(len(levels), size=n)]
        for name, levels in FLAT.items()
    }
    paths = [COUNTY.paths()[i] for i in rng.integers(5, size=n)]
    return {**found, "state": [path[0] for path in paths], "county": [path[1] for path in paths]}


def released(
    tables: list[list[str]], invariants: list[str | list[str]], budget: str = "1/2", **changes
) -> Release:
    plan = Plan([TableRequest(names) for names in tables], invariants, features=FEATURES, **changes)
    return run(plan.with_budget(Budget.gdp(budget)), people())


def counted(path: Path, names: list[str]) -> Counter:
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    return Counter(tuple(row[name] for name in names) for row in rows)


def published(content: Columns) -> tuple[list[str], Counter]:
    rows = list(csv.DictReader(b"".join(content.csv()).decode().splitlines()))
    names = list(rows[0])[: list(rows[0]).index("estimate")]
    return names, Counter(
        {tuple(row[n] for n in names): int(row["count"]) for row in rows if int(row["count"])}
    )


CASES = {
    "one table": ([["sex", "age"]], []),
    "one table and a total that it has not": ([["sex", "age"]], ["sex", "ill"]),
    "a chain": ([["sex", "age"], ["age", "ill"], ["ill", "work"]], ["sex", "work"]),
    "a star": ([["sex", "age"], ["sex", "ill"], ["sex", "work"]], [["sex", "ill"]]),
    "one inside the other": ([["sex", "age", "ill"], ["age", "ill"]], ["age"]),
    "down a geography": ([["state", "sex", "age"], ["county", "sex"]], ["state"]),
    "exact counties": ([["state", "sex", "age"], ["state", "ill"]], ["county"]),
    "nothing shared": ([["sex"], ["age", "ill"]], []),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("case", CASES)
def test_records_have_every_table_and_every_exact_total(case: str, tmp_path: Path) -> None:
    tables, invariants = CASES[case]
    done = released(tables, invariants)
    done.save_records(tmp_path / "people.csv")
    for result in done.results:
        for name, content in result.files().items():
            if "measurements" not in name:
                names, counts = published(content)
                assert counted(tmp_path / "people.csv", names) == counts
    truth = people()
    for margin in map(Margin.from_names, invariants):
        assert counted(tmp_path / "people.csv", list(margin.names)) == Counter(
            zip(*(truth[name] for name in margin.names), strict=True)
        )
    assert counted(tmp_path / "people.csv", []) == {(): N}


def test_within_a_separator_records_are_matched_at_random() -> None:
    """Given age, sex and illness are independent in the records: a join without shuffling would
    order them alike.
    """
    done = released([["sex", "age"], ["age", "ill"]], [], "10")
    drawn = [done.records(SeededRandomness(seed)) for seed in range(40)]
    together = [Counter(row[:3] for row in records.rows()) for records in drawn]
    assert len({tuple(sorted(counts.items())) for counts in together}) > 30
    sexes, ills = (done[name].counts for name in ("sex-age", "age-ill"))
    expected = sexes[0, 0] * ills[0, 0] / ills[0].sum()
    found = np.array([counts["f", "y", "n"] for counts in together])
    assert abs(found.mean() - expected) < 5 * found.std() / np.sqrt(40) + 1e-9
    assert drawn[0].places[0].tolist() == done.records(SeededRandomness(0)).places[0].tolist()


CIRCLES = {
    "three pairs": ([["sex", "age"], ["age", "ill"], ["sex", "ill"]], ["sex"]),
    "by depth": ([["state", "sex", "age"], ["county", "sex"], ["county", "age"]], ["county"]),
    "with an exact total": ([["sex", "age"], ["age", "ill"]], [["sex", "ill"]]),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CIRCLES)
def test_tables_in_a_circle_are_approached_and_exact_totals_kept(case: str, tmp_path: Path) -> None:
    tables, invariants = CIRCLES[case]
    done = released(tables, invariants)
    done.save(tmp_path / "r")
    out = tmp_path / "people.csv"
    assert (
        semidp(
            ["synthesize", str(tmp_path / "r"), "--out", str(out), "--quiet", "--format", "json"]
        )
        == 0
    )
    truth = people()
    for margin in map(Margin.from_names, invariants):
        columns = [truth[name] for name in margin.names]
        assert counted(out, list(margin.names)) == Counter(zip(*columns, strict=True))
    about = json.loads((tmp_path / "people.about.json").read_text())
    assert about["ending"] == "settled"
    assert [table["name"] for table in about["tables"]] == [table.name for table in done.tables]
    assert max(table["rms"] for table in about["tables"]) < 2
    assert "in standard errors" in " ".join(about["statement"])


def test_tables_that_disagree_or_hold_no_whole_numbers_are_approached() -> None:
    low = Budget.gdp("1/10")
    own = [
        TableRequest(["sex", "age"], low, name="one"),
        TableRequest(["age", "ill"], low, name="two"),
    ]
    apart = run(Plan(own, features=FEATURES), people(), SeededRandomness(1)).records(
        SeededRandomness(2)
    )
    raw = Plan([TableRequest(["sex", "age"], Budget.gdp(1), fit="none")], features=FEATURES)
    real = run(raw, people()).records(SeededRandomness(2))
    assert apart.ending == real.ending == Ending.SETTLED
    assert len(apart) == len(real) == N


def test_a_release_without_tables_has_no_records() -> None:
    mean = GroupRequest("mean", Outcome("pay", 0, 9, 9), [["sex"]], Budget.gdp(1))
    with pytest.raises(Refused, match="holds no table"):
        run(Plan([mean], invariants=["sex"]), {**people(), "pay": [3] * N}).records()


def test_a_join_never_makes_what_cannot_occur() -> None:
    data = people()
    both = zip(data["sex"], data["work"], strict=True)
    data["work"] = ["q" if sex == "m" and work == "p" else work for sex, work in both]
    zero = StructuralZero.from_pattern({"sex": "m", "work": "p"})
    table = TableRequest(["sex", "work"], Budget.gdp("1/2"))
    done = run(Plan([table], ["sex"], features=FEATURES, structural_zeros=[zero]), data)
    assert ("m", "p") not in Counter(done.records().rows())
    alone = TableRequest(["sex"], Budget.gdp(1))
    apart = Plan([alone], ["work"], features=FEATURES, structural_zeros=[zero], adjacency=2)
    records = run(apart, data).records()
    assert ("m", "p") not in Counter(records.rows())
    assert records.ending is Ending.SETTLED


@pytest.fixture
def release(tmp_path: Path) -> Path:
    released([["sex", "age"]], ["sex"]).save(tmp_path / "r")
    return tmp_path / "r"


def test_the_file_beside_says_what_they_are(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "people.csv"
    assert semidp(["synthesize", str(release), "--out", str(out), "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    about = json.loads((tmp_path / "people.about.json").read_text())
    assert printed["out"] == str(out)
    assert {key: printed[key] for key in about} == about
    assert about["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert about["records"] == N
    assert about["columns"] == ["sex", "age"]
    assert about["exact"] == [["sex"]]
    assert about["private"] is True
    assert about["guarantee"] == json.loads((release / "release.json").read_text())["guarantee"]
    assert "no line is a person" in " ".join(about["statement"])
    assert Release.load(release)  # the folder is as it was


def test_force_replaces_records_and_no_other_file(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: object, code: int) -> str:
        capsys.readouterr()
        assert semidp(["synthesize", str(release), "--quiet", *map(str, words)]) == code
        return capsys.readouterr().err

    out = tmp_path / "people.csv"
    assert "--out people.csv" in said(code=2)
    said("--out", out, "--seed", 1, code=0)
    first = out.read_bytes()
    assert "already exists: choose another --out, or replace it with --force" in said(
        "--out", out, code=2
    )
    said("--out", out, "--seed", 1, "--force", code=0)
    assert out.read_bytes() == first
    other = tmp_path / "mine.csv"
    other.write_text("a,b\n")
    for more in ((), ("--force",)):
        assert "holds no records" in said("--out", other, *more, code=2)
    assert other.read_text() == "a,b\n"
    (tmp_path / "notes.about.json").write_text("{}")
    assert "was not written with records" in said(
        "--out", tmp_path / "notes.csv", "--force", code=2
    )
    link = tmp_path / "link.csv"
    link.symlink_to(out)
    (tmp_path / "link.about.json").write_bytes((tmp_path / "people.about.json").read_bytes())
    assert "holds no records" in said("--out", link, "--force", code=2)
    assert "outside of its folder" in said("--out", release / "people.csv", code=2)
    assert not (release / "people.csv").exists()
    # a run that ended between the two files leaves the one beside, which the next replaces
    out.unlink()
    said("--out", out, code=0)


def test_a_release_that_is_not_private_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan([TableRequest(["sex"], Budget.gdp(1))], features=FEATURES)
    done = run(plan, people(), SeededRandomness(1))
    done.save(tmp_path / "seeded")
    assert semidp(["synthesize", str(tmp_path / "seeded"), "--out", str(tmp_path / "p.csv")]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().out
    assert "not private" in " ".join(
        json.loads((tmp_path / "p.about.json").read_text())["statement"]
    )

"""Forged folders with every digest right: each field and column is found out, or is listed as taken
on trust.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semidp import Budget, Feature, Outcome, Plan, Release, RunOptions, run
from semidp.cli import run as command
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import (
    GroupRequest,
    QuantileRequest,
    RegressionRequest,
    TableRequest,
    TablesRequest,
)
from semidp.publish.recheck import recheck
from semidp.publish.statistics.answered import AnsweredRequest
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.outcomes.noise_law import Confidence
from tests.release.forger import Forger

COUNTIES = Feature.from_paths(
    ["state", "county"], [("A", "a1"), ("A", "a2"), ("A", "a3"), ("B", "b1"), ("B", "b2")]
)
FEATURES = [Feature("sex", "fm"), Feature("age", "yio"), COUNTIES]


def people(n: int = 240) -> dict[str, Any]:
    random = np.random.default_rng(5)
    county = random.choice(COUNTIES.levels, n)
    return {
        "sex": random.choice([*"fm"], n).tolist(),
        "age": random.choice([*"yio"], n).tolist(),
        "region": random.choice([*"nsw"], n).tolist(),
        "county": county.tolist(),
        "state": [name[0].upper() for name in county],
        "score": random.integers(0, 21, n).tolist(),
        "cured": random.integers(0, 2, n).tolist(),
    }


def table(budget: Budget, mechanism: str = "auto", **more: Any) -> Plan:
    return Plan([TableRequest(["sex", "region"], budget, mechanism, **more)], ["sex", "region"])


SCORE = Outcome("score", 0, 20, 20)
CURED = Outcome("cured", 0, 1, 1)
ALL = Confidence("0.9", sampling=True, differences=True, simultaneous=True)
PRODUCT = TablesRequest(
    [TableRequest(["sex", "age"]), TableRequest(["age", "county"], weight=2)], Budget.gdp(1)
)

PLANS: dict[str, Plan] = {
    "laplace": table(Budget.pure(1), "laplace"),
    "l2": table(Budget.pure(1), "l2"),
    "k-norm": table(Budget.pure(1), "knorm"),
    "discrete gaussian": table(Budget.zcdp("1/2"), "gaussian"),
    "lattice": table(Budget.zcdp("1/2"), "lattice"),
    "rounded gaussian": table(Budget.approximate(2, "1e-6"), "gaussian"),
    "no noise": Plan([TableRequest(["sex", "region"], Budget.gdp(1))], [["sex", "region"]]),
    "not fitted": table(Budget.gdp(1), fit="none"),
    "residuals": Plan([TableRequest(["sex", "age", "county"], Budget.gdp(1))], ["sex"], FEATURES),
    "three margins": Plan(
        [TableRequest(["sex", "age", "region"], Budget.gdp(1), "gaussian")],
        ["sex", "age", "region"],
    ),
    "exchange": Plan(
        [TableRequest(["sex", "age"], Budget.gdp(1))], ["sex"], FEATURES, adjacency="exchange"
    ),
    "levels from data": Plan(
        [TableRequest(["sex", "region"], Budget.gdp(1))], ["sex"], levels_from_data=True
    ),
    "product": Plan([PRODUCT], invariants=["sex"], features=FEATURES),
    "nested": Plan([TableRequest(["county", "age"], Budget.zcdp(1))], ["state", "age"], FEATURES),
    "means": Plan(
        [GroupRequest("mean", SCORE, [["sex"], ["region"]], Budget.gdp(1), confidence=ALL)],
        invariants=["sex", "region"],
    ),
    "proportions": Plan(
        [
            GroupRequest(
                "proportion",
                CURED,
                [["region"]],
                Budget.pure(1),
                confidence=Confidence(sampling=True),
            )
        ],
        invariants=["region"],
    ),
    "sums": Plan(
        [GroupRequest("sum", SCORE, [["state"]], Budget.zcdp(1))],
        invariants=["county"],
        features=FEATURES,
    ),
    "quantiles": Plan(
        [
            QuantileRequest(
                SCORE, [["region"]], ["1/4", "1/2"], Budget.gdp(1), level="0.9", sampling=True
            )
        ],
        invariants=["region"],
    ),
    "distributions": Plan(
        [DistributionRequest(SCORE, [["region"]], ["1/4"], [5], Budget.gdp(1), level="0.9")],
        invariants=["region"],
    ),
    "answers": (
        Plan(
            [AnsweredRequest("mean", SCORE, [["region"]], Budget.gdp(1))], invariants=["region"]
        ).with_values_read()
    ),
    "linear": Plan(
        [
            RegressionRequest(
                SCORE, ["sex", "region"], Budget.gdp(2), confidence=Confidence(sampling=True)
            )
        ],
        invariants=[["sex", "region"]],
    ),
    "logistic": Plan(
        [RegressionRequest(CURED, ["region"], Budget.gdp(2), model="logistic")],
        invariants=["region"],
    ),
}


def made(kind: str, folder: Path) -> Forger:
    """Make a release of a kind, and see that it is honest."""
    if kind == "by parts":
        how = RunOptions(out=folder, form="csv", randomness=SeededRandomness(3))
        run(PLANS["product"], people(), how, partition="state")
    else:
        run(PLANS[kind], people(), SeededRandomness(3)).save(folder)
    forger = Forger(folder)
    assert forger.verdict("nothing") == "believed", (
        "an honest release agrees, and nothing else is trusted"
    )
    return forger


def forged(forger: Forger, step: int) -> Counter[str]:
    """Forge every field and column, or some; count the verdicts, and fail where something was
    believed.
    """
    forger.without_report()
    verdicts = [*forger.fields(step), *forger.columns(step)]
    believed = [field for field, verdict in verdicts if verdict == "believed"]
    assert not believed, believed
    return Counter(verdict for _, verdict in verdicts)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["laplace", "by parts", "means"])
def test_some_fields_and_columns_are_found_out_or_listed(kind: str, tmp_path: Path) -> None:
    verdicts = forged(made(kind, tmp_path / "release"), step=31)
    assert verdicts["disagrees"] + verdicts["refused"] >= 3
    assert sum(verdicts.values()) >= 4


@pytest.mark.long
@pytest.mark.parametrize("kind", [*PLANS, "by parts"])
def test_every_field_and_column_is_found_out_or_listed(kind: str, tmp_path: Path) -> None:
    """No field of release.json and no column of a file is both believed and missing from what is
    taken on trust.
    """
    verdicts = forged(made(kind, tmp_path / "release"), step=1)
    assert sum(verdicts.values()) > 100, "a loop that forged little proves little"
    assert verdicts["trusted"] < 0.25 * sum(verdicts.values()), (
        "most of a release follows from the rest"
    )


def test_the_report_the_description_and_further_files(tmp_path: Path) -> None:
    verdicts = dict(made("laplace", tmp_path / "release").others())
    assert verdicts == {
        "report.html": "disagrees",
        "csv-metadata.json": "disagrees",
        "more.csv": "trusted",
        "more.csv listed": "disagrees",
    }


# --- what is taken on trust -----------------------------------------------------------------------


def fields_on_trust(folder: Path) -> set[str]:
    document = json.loads((folder / "release.json").read_text())
    found = recheck(Release.load(folder), document, folder)
    assert found.disagreements == ()
    return {name for trust in found.trusted for name in trust.fields}


def test_whole_numbers_are_compared_by_their_distance(tmp_path: Path) -> None:
    """Which of several close tables was published is on trust; how far it lies is not."""
    forger = made("laplace", tmp_path / "release").without_report()
    assert {"table.csv count", "tables.fit.optimal"} <= fields_on_trust(forger.folder)
    document = forger.document()
    document["tables"][0]["fit"]["loss"] *= 0.9
    forger.write("release.json", document)
    assert forger.verdict("tables.fit.loss") == "disagrees"


@pytest.mark.long
def test_labels_in_parquet_files_are_compared(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    run(PLANS["residuals"], people(), SeededRandomness(3)).save(folder, form="parquet")
    forger = Forger(folder).without_report()
    assert forger.verdict("nothing") == "believed"
    forgeries = 0
    for name in ("table.parquet", "measurements.parquet"):
        columns = pq.read_table(folder / name).to_pydict()
        for column, cells in columns.items():
            other = [cells[-1], *cells[1:-1], cells[0]]
            if other == cells:
                continue
            pq.write_table(pa.table({**columns, column: other}), folder / name)
            forger.seal()
            verdict = forger.verdict(f"{name} {column}")
            assert verdict in ("disagrees", "refused"), (name, column, verdict)
            forger.restore()
            forgeries += 1
    assert forgeries >= 10


def test_show_lists_what_is_taken_on_trust(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made("laplace", tmp_path / "release").folder
    assert command(["show", str(folder)]) == 0
    words = capsys.readouterr().out
    assert (
        "on trust   nothing here confirms the following; it is the unverified word of whoever made"
        " this folder:" in words
    )
    assert "- the noisy values: that they were drawn from the records" in words
    assert command(["show", str(folder), "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["taken_on_trust"]
    assert {"dataspace", "created", "ledger"} <= {
        name for trust in listed for name in trust["fields"]
    }
    assert all(trust["what"] for trust in listed)


def test_the_documentation_lists_the_same(tmp_path: Path) -> None:
    """Every sentence of the list that any release gets is in the documentation."""
    page = " ".join((Path(__file__).parents[2] / "docs" / "threat_model.md").read_text().split())
    sentences = set()
    for kind in ("laplace", "means", "quantiles"):
        run(PLANS[kind], people(), SeededRandomness(3)).save(tmp_path / kind)
        document = json.loads((tmp_path / kind / "release.json").read_text())
        sentences |= {
            trust.what for trust in recheck(Release.load(tmp_path / kind), document).trusted
        }
    assert len(sentences) >= 8
    for sentence in sentences:
        assert sentence in page, sentence

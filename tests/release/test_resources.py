"""What a release takes is known before anything is read or charged, and what cannot be done is
refused until then.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp import Budget, Feature, InputError, Ledger, Plan, Schema, prepare, run
from semidp.publish import TableRequest, resources
from semidp.publish.pipeline import RunOptions
from semidp.publish.resources import (
    ResourceEstimate,
    declared_needs,
    estimate_resources,
    memory_from,
    memory_limit,
)
from semidp.publish.results.columns import Form
from semidp.publish.sources.opening import Source, open_source
from semidp.publish.statistics.tables import request as requests

PEOPLE = {"sex": [*"fmmfm"], "region": [*"nsnss"]}
PLAN = Plan([TableRequest(["sex", "region"], Budget.zcdp("1/10"))], ["sex", "region"])


def wide(levels: int, features: int = 3) -> Plan:
    declared = [
        Feature(f"f{number}", [f"l{level}" for level in range(levels)])
        for number in range(features)
    ]
    names = [feature.name for feature in declared]
    return Plan(
        [TableRequest(names, Budget.zcdp(1))], [[name] for name in names], features=declared
    )


class Untouched:
    """Records that nobody may count."""

    columns: dict[str, bool] = {"f0": False, "f1": False, "f2": False}  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the records were read")


def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.json", Budget.zcdp(5))


def test_ten_to_the_eighth_cells_in_four_gigabytes_are_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    book, plan = ledger(tmp_path), wide(465)
    foreseen = declared_needs(plan)
    assert foreseen is not None
    assert foreseen.cells == 465**3
    with pytest.raises(
        InputError,
        match=r"needs about 6.4 GB of memory for 100,544,625 cells, and 4.0 GB may be used",
    ):
        run(plan, Source(Untouched()), RunOptions(ledger=book, memory=4 * 10**9))
    assert not book.account().charges
    foreseen.refuse_memory(12 * 10**9)


def test_levels_that_the_data_name_count_once_they_are_read(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    columns = {name: [f"l{level}" for level in range(300)] for name in ("f0", "f1", "f2")}
    plan = Plan([TableRequest(list(columns), Budget.zcdp(1))], [[name] for name in columns])
    assert declared_needs(plan) is None
    with pytest.raises(InputError, match="of memory for 27,000,000 cells"):
        run(plan, columns, RunOptions(ledger=book, memory=10**9))
    assert not book.account().charges


def test_depths_of_one_feature_are_counted_once() -> None:
    nested = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")])
    plan = Plan([TableRequest(["state", "county", "sex"])], features=[nested, Feature("sex", "fm")])
    foreseen = declared_needs(plan)
    assert foreseen is not None
    assert foreseen.cells == 6


def test_estimates_grow_with_cells_and_csv_takes_more_disk() -> None:
    small, large = ResourceEstimate.from_sizes([10**6]), ResourceEstimate.from_sizes([10**7])
    assert small.memory < large.memory < 12 * small.memory
    assert small.seconds < large.seconds
    assert ResourceEstimate.from_sizes([10**6], form=Form.csv).disk > 2 * small.disk
    assert ResourceEstimate.from_sizes([10**6, 10**6]).memory > small.memory


def test_the_estimate_of_the_disk_covers_what_is_written(tmp_path: Path) -> None:
    plan = wide(40)
    rng = np.random.default_rng(1)
    people = {
        name: [f"l{level}" for level in rng.integers(0, 40, 5000)] for name in ("f0", "f1", "f2")
    }
    release = run(plan, people)
    for form in Form:
        release.save(tmp_path / form, form=form)
        written = sum(file.stat().st_size for file in (tmp_path / form).iterdir())
        assert written < ResourceEstimate.from_sizes([40**3], form=form).disk


@pytest.mark.parametrize("form", Form)
def test_long_labels_take_disk_too(tmp_path: Path, form: Form) -> None:
    levels = [f"{'long ' * 50}{number}" for number in range(4000)]
    plan = Plan(
        [TableRequest(["place", "sex"], Budget.zcdp(1))],
        features=[Feature("place", levels), Feature("sex", "fmx")],
    )
    release = run(plan, {"place": levels, "sex": ["f", "m"] * 2000})
    release.save(tmp_path / "out", form=form)
    written = sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    needs = estimate_resources(plan, Schema(plan.features), form)
    assert written < needs.disk


def test_a_container_has_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000000000\n")
    monkeypatch.setattr(
        resources, "_CGROUPS", (str(tmp_path / "memory.max"), str(tmp_path / "none"))
    )
    assert memory_limit() == 10**9
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_limit() > 10**9


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "4 bananas", "1e400GB", "nan"])
def test_memory_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="such as 8GB"):
        memory_from(text)


def test_a_full_disk_and_an_impossible_name_are_found_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = ledger(tmp_path)
    (tmp_path / "out").mkdir()
    name = "x" * 300
    long = Plan(
        [TableRequest(["sex", "region"], Budget.zcdp("1/10"), name=name)], ["sex", "region"]
    )
    with pytest.raises(InputError, match=r"no file can be called 'x+.csv' in that folder"):
        run(long, PEOPLE, RunOptions(ledger=book, out=tmp_path / "out", force=True))
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(resources.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(InputError, match=r"needs about 20\d kB of disk, and 0 kB are free"):
        run(PLAN, PEOPLE, RunOptions(ledger=book, out=tmp_path / "out", force=True))
    assert not book.account().charges
    assert not list((tmp_path / "out").iterdir())


def test_numbers_beyond_the_arithmetic_are_found_before_the_charge(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    plan = Plan(
        [TableRequest(["sex"], Budget.zcdp("1/10"))],
        features=[Feature("sex", "fm")],
        count="n",
        adjacency=1,
    )
    many = {"sex": ["f"] * 33, "n": [2**52] * 33}
    with pytest.raises(InputError, match=r"'table' has numbers beyond 2\^57"):
        run(plan, many, RunOptions(ledger=book))
    assert not book.account().charges
    assert prepare(plan, {"sex": ["f"], "n": [2**52]}).scope.dataspace.n == 2**52


def test_a_failure_after_the_charge_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = ledger(tmp_path)

    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(requests.TablesRequest, "publish", fails)
    with pytest.raises(MemoryError) as caught:
        run(PLAN, PEOPLE, RunOptions(ledger=book))
    assert len(book.account().charges) == 1
    assert caught.value.__notes__ == ["the ledger was charged all the same"]


@pytest.mark.parametrize("name", ["Count", "Estimate_High"])
def test_columns_that_parquet_cannot_tell_apart_are_found_before_the_charge(
    name: str, tmp_path: Path
) -> None:
    book, people = ledger(tmp_path), {name: [*"fmmfm"]}
    (tmp_path / "out").mkdir()
    plan = Plan([TableRequest([name], Budget.zcdp("1/10"))], features=[Feature(name, "fm")])
    with pytest.raises(
        InputError, match=f"two columns of a Parquet file would be called '{name.casefold()}'"
    ):
        run(
            plan,
            people,
            RunOptions(ledger=book, out=tmp_path / "out", force=True, form=Form.parquet),
        )
    assert not book.account().charges
    assert not list((tmp_path / "out").iterdir())
    run(plan, people, RunOptions(ledger=book, out=tmp_path / "out", force=True))
    assert len(book.account().charges) == 1


def test_opening_for_a_limit_leaves_the_source_open() -> None:
    with open_source(PEOPLE) as source:
        assert prepare(PLAN, source, memory=10**9).scope.dataspace.n == 5

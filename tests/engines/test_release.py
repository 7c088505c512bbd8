"""The same plan on every engine gives the same release, bit for bit where the noise is seeded."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from semidp import Budget, Feature, Margin, Plan, TableRequest, run
from semidp.cli import run as command
from semidp.engines import Source, open_source
from semidp.noise import SeededRandomness

PLAN = Plan(
    [
        TableRequest(["sex", "age"], Budget.zcdp("1/2"), name="ages"),
        TableRequest(["region", "paid", "day"], Budget.zcdp("1/4"), mechanism="lattice", name="regions"),
        TableRequest(["sex", "dose"], Budget.pure(1), fit="real", name="doses"),
    ],
    [Margin("sex"), Margin("region", "paid"), Margin("day")],
    [
        Feature("region", ["01", "1", 'O\'Brien, "west"', "naïve", "none"], null_level="none"),
        Feature("age", bins=[0, 18, 65], null_level="unknown"),
        Feature("dose", ["0.5", "1", "2", "missing"], null_level="missing"),
    ],
    where="people <> 3",
    id="id",
)
Records = Mapping[str, Sequence[Any]]


def files_of(data: Any, folder: Path) -> dict[str, str]:
    """Release with a seed; return the files of the release, without the time of day."""
    release = run(PLAN, data, randomness=SeededRandomness(7))
    release.save(folder)
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    document = {**json.loads(files["release.json"]), "created": None}
    return {**files, "release.json": json.dumps(document)}


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_the_same_release_everywhere(
    engine: Callable[..., Source], records: Records, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here, reference = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("reference")
    with open_source(frame_of(records), where=PLAN.where, id=PLAN.id) as source:
        expected = files_of(source, reference)
    found = files_of(engine(records, where=PLAN.where, id=PLAN.id), here)
    assert found == expected


def frame_of(records: Records) -> Any:
    import pandas as pd

    return pd.DataFrame(
        {name: pd.Series(list(values), dtype=object) for name, values in records.items()}
    ).convert_dtypes()


@pytest.mark.services
@pytest.mark.parametrize(
    "store",
    [
        "postgres",
        pytest.param(
            "spark",
            marks=pytest.mark.filterwarnings(
                "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
            ),
        ),
    ],
)
def test_the_command_line_on_a_database(
    request: pytest.FixtureRequest, records: Records, tmp_path: Path, capsys: pytest.CaptureFixture[str], store: str
) -> None:
    from tests.engines.conftest import STORES, write_csv

    kept = {name: records[name] for name in ("id", "sex", "paid", "people")}
    address, place = STORES[store](request, tmp_path)(kept)
    write_csv(tmp_path / "records.csv", kept)
    words = ["--table", "sex,paid", "--invariant", "sex", "--invariant", "paid", "--rho", "1", "--seed", "3"]
    words += ["--where", "people <> 3", "--id", "id"]
    assert command(["release", str(address), "--from", place["table"], *words, "--out", str(tmp_path / "there")]) == 0
    assert command(["release", str(tmp_path / "records.csv"), *words, "--out", str(tmp_path / "here")]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().out
    for name in ("table.csv", "measurements.csv"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    for path in (tmp_path / "there").iterdir():
        assert str(address) not in path.read_text(encoding="utf-8")

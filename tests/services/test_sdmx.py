"""sdmx1 reads the SDMX files of a release: the structure by itself, then every file of observations
by its data flow.
"""

from pathlib import Path

import pytest

from semidp.promise.noise.randomness import SystemRandomness
from tests.release.sdmx_example import sdmx_release

pytestmark = pytest.mark.services


@pytest.mark.filterwarnings("ignore")  # of packages that sdmx1 needs
def test_sdmx1_reads_what_is_published(tmp_path: Path) -> None:
    # Not skipped where it is missing: tests/services/run installs it.
    import sdmx

    folder = tmp_path / "out"
    release = sdmx_release(folder, SystemRandomness(), period="2026Q3")
    message = sdmx.read_sdmx(folder / "sdmx-structure.xml")
    assert len(message.dataflow) == len(message.structure) == 6
    codes = message.codelist["CL_REGION"]
    assert str(codes["north_a_e_2"].name) == "a é"
    assert codes["north_a_e_2"].parent is codes["north"]
    frames = {}
    for path in folder.glob("*.sdmx.csv"):
        flow = path.read_text(encoding="utf-8").splitlines()[1].split(":")[1].partition("(")[0]
        read = sdmx.read_sdmx(path, structure=message.dataflow[flow])
        frames[flow] = sdmx.to_pandas(read, attributes="o")
    assert {*frames} == {*message.dataflow}
    cells = frames["COUNTY_SEX"]
    assert cells.index.names == ["COUNTY", "SEX", "INDICATOR", "TIME_PERIOD"]
    assert {*cells.index.get_level_values("TIME_PERIOD")} == {"2026-Q3"}
    table = release.table("county-sex").to_dict()
    for name, key in (("estimate", "value"), ("standard_error", "STANDARD_ERROR")):
        held = cells.xs("estimate", level="INDICATOR")[key].astype(float).tolist()
        assert held == pytest.approx(table[name], rel=1e-12)
    assert {*cells["OBS_STATUS"]} == {"E"}
    exact = frames["EXACT_SEX"]
    assert exact["value"].astype(int).tolist() == [80, 160]
    assert {*exact["OBS_STATUS"]} == {"A"}
    assert {*exact["CONF_STATUS"]} == {"F"}
    mean = frames["MEAN_SCORE"].xs("mean", level="INDICATOR")
    assert mean["value"].astype(float).tolist() == release["mean-score"].to_dict()["mean"]

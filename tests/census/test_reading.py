"""Reading the files as a stranger would: the right numbers in the right places, and a sentence for
what is wrong.
"""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from semidp.errors import DataError, InputError
from semidp.inference import Share
from semidp.inference.area_estimates import estimate_state
from semidp.inference.noisy_files import LEVELS, RACES, groups, read_state
from tests.census.conftest import State, simulated, small_state


def test_a_state_is_read_whole(files: State) -> None:
    state = read_state(files.folder, "15")
    places = state.measurements.places
    assert places.counts[:3] == (1, 1, 2)
    assert places.counts[-1] == len(files.codes)
    assert sorted(state.blocks()) == files.codes
    queries = {
        (one.depth, one.query.shape(state.measurements.sizes))
        for one in state.measurements.observed
    }
    assert len(queries) == 5 * len(simulated.SHAPES)
    assert len(RACES) == 63


def test_values_stand_at_their_places(files: State) -> None:
    """One block and one query, read by hand."""
    state = read_state(files.folder, "15")
    path = f"{files.folder}/Block.parquet/DPQuery/State=015/*.parquet"
    code = state.codes[-1][11]
    text = (
        "SELECT value, variance FROM read_parquet(?) WHERE geocode = ? AND query_name = 'hispanic *"
        " cenrace_dpq'"
    )
    [(values, variance)] = duckdb.execute(text, [path, str(code)]).fetchall()
    chosen = [
        one
        for one in state.measurements.select_depth(5)
        if one.query.shape((8, 2, 2, 63)) == (1, 1, 2, 63)
    ]
    assert len(chosen) == 1
    assert chosen[0].values[11].tolist() == values
    assert chosen[0].variances(40)[11] == variance
    assert variance == pytest.approx(float(simulated.variance_of("Block", "hispanic * cenrace")))


def test_the_order_of_rows_and_files_does_not_matter(files: State, tmp_path: Path) -> None:
    for source in files.folder.rglob("part-0.parquet"):
        place = tmp_path / source.relative_to(files.folder)
        place.parent.mkdir(parents=True)
        rows = f"SELECT * FROM read_parquet('{source}') ORDER BY hash(geocode || query_name)"
        duckdb.sql(f"{rows} LIMIT 5").write_parquet(str(place))
        duckdb.sql(f"{rows} OFFSET 5").write_parquet(str(place.with_name("part-1.parquet")))
    first, second = (estimate_state(folder, "15")[1] for folder in (files.folder, tmp_path))
    for depth in range(6):
        np.testing.assert_allclose(first.cells(depth), second.cells(depth), atol=1e-9)


def test_estimates_add_up_and_have_the_zeros_and_the_exact_total(files: State) -> None:
    state, answer = estimate_state(files.folder, "15")
    cells = [answer.cells(depth) for depth in range(6)]
    for depth in range(5):
        sums = np.zeros_like(cells[depth])
        np.add.at(sums, answer.places.parents[depth], cells[depth + 1])
        np.testing.assert_allclose(sums, cells[depth], atol=1e-8)
    assert cells[0].sum() == pytest.approx(files.cells.sum(), abs=1e-8)
    impossible = ~np.broadcast_to(state.measurements.possible[5], cells[5].shape)
    assert impossible.sum() > 1000
    assert not cells[5][impossible].any()
    assert not cells[5][:, 3, 0].any()


def test_intervals_hold_as_often_as_they_say_and_too_narrow_ones_do_not(tmp_path: Path) -> None:
    """40 states; a true rate of 0.95 leaves (0.93, 0.97) with probability below 1e-6 (counts of one
    cell a block).
    """
    weights = np.stack(list(groups().values()))[[0, 1, 4]]
    held = narrow = count = 0
    for seed in range(6):
        folder = tmp_path / str(seed)
        state = small_state(folder, "15", 100 + seed)
        _, answer = estimate_state(folder, "15")
        nodes = np.arange(40)
        sums = answer.sums({5: Share(nodes, nodes)}, weights)
        truth = np.tensordot(state.cells, weights, axes=([1, 2, 3, 4], [1, 2, 3, 4]))
        noisy = sums.variances > 1e-9
        error = np.abs(sums.values - truth)[noisy] / sums.standard_errors[noisy]
        held += int((error < 1.96).sum())
        narrow += int((error < 1.96 / 1.3).sum())
        count += int(noisy.sum())
    assert count > 500
    assert 0.91 < held / count < 0.985
    assert narrow / count < 0.91


def test_two_parts_of_a_state_share_its_exact_total(tmp_path: Path) -> None:
    state = small_state(tmp_path, "02", 5, parts=("002", "102"))
    for part in ("002", "102"):
        for path in tmp_path.glob(f"State.parquet/Constraint/State={part}/*"):
            path.unlink()
    files = read_state(tmp_path, "02", total=int(state.cells.sum()))
    assert files.measurements.places.counts[:2] == (1, 2)
    answer = estimate_state(tmp_path, "02", total=int(state.cells.sum()))[1]
    assert answer.cells(0).sum() == pytest.approx(state.cells.sum(), abs=1e-8)
    whole = answer.sums({0: Share([0], [0])}, np.ones((1, 8, 2, 2, 63)))
    assert whole.variances[0, 0] < 1e-9


def test_a_query_that_some_places_lack_is_left_out_there(files: State, tmp_path: Path) -> None:
    for source in files.folder.rglob("part-0.parquet"):
        place = tmp_path / source.relative_to(files.folder)
        place.parent.mkdir(parents=True)
        keep = "TRUE"
        if "Block.parquet/DPQuery" in str(source):
            keep = "query_name != 'detailed_dpq' OR right(geocode, 1) != '3'"
        duckdb.sql(f"SELECT * FROM read_parquet('{source}') WHERE {keep}").write_parquet(str(place))
    state = read_state(tmp_path, "15")
    detailed = [
        one
        for one in state.measurements.select_depth(5)
        if one.query.shape((8, 2, 2, 63)) == (8, 2, 2, 63)
    ]
    missing = np.isinf(detailed[0].variances(40))
    assert missing.sum() == sum(code.endswith("3") for code in files.codes) > 0
    assert np.isfinite(estimate_state(tmp_path, "15")[1].cells(0)).all()


def damaged(files: State, tmp_path: Path, query: str) -> Path:
    for level in LEVELS:
        for source in (files.folder / f"{level}.parquet").rglob("part-0.parquet"):
            place = tmp_path / source.relative_to(files.folder)
            place.parent.mkdir(parents=True)
            text = query if "Tract.parquet/DPQuery" in str(source) else "SELECT * FROM rows"
            duckdb.sql(text.replace("rows", f"read_parquet('{source}')")).write_parquet(str(place))
    return tmp_path


CASES: list[tuple[str, str]] = [
    (
        "SELECT * EXCLUDE (variance) FROM rows",
        "cannot be read: it is Parquet with the columns geocode",
    ),
    (
        "SELECT * REPLACE (value[2:] AS value) FROM rows WHERE len(value) > 1",
        "not as many values as its shape",
    ),
    (
        "SELECT * REPLACE ([7, 1, 1, 1] AS query_shape) FROM rows",
        "which is none of the persons file",
    ),
    ("SELECT * FROM rows UNION ALL SELECT * FROM rows", "twice"),
    (
        "SELECT * REPLACE (NULL::DOUBLE AS variance) FROM rows",
        "lacks a geocode, a name, a value or a variance",
    ),
    (
        "SELECT * REPLACE ('9' || geocode AS geocode) FROM rows",
        "lies in no place of the depth above",
    ),
    ("SELECT * REPLACE (-variance AS variance) FROM rows", "a variance is zero"),
]


@pytest.mark.parametrize(("query", "sentence"), CASES)
def test_what_is_wrong_is_said_in_a_sentence(
    files: State, tmp_path: Path, query: str, sentence: str
) -> None:
    with pytest.raises((DataError, InputError), match=sentence):
        read_state(damaged(files, tmp_path, query), "15")


def test_a_folder_of_something_else_is_refused(files: State, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no noisy measurement files"):
        read_state(tmp_path, "15")
    with pytest.raises(InputError, match="hold no state 06; they hold 15"):
        read_state(files.folder, "06")


def test_generated_noise_has_its_variance_and_another_is_caught() -> None:
    """100,000 draws: the variance of a sample is within 2% with probability above 1 - 1e-5."""
    variance: Any = simulated.variance_of("Block", "detailed")
    drawn = simulated.noise(variance, (100_000,), np.random.default_rng(3))
    assert abs(drawn.var() / float(variance) - 1) < 0.02
    assert abs(drawn.var() / (1.1 * float(variance)) - 1) > 0.02

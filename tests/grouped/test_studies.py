"""The two studies of grouped statistics: Semi-DP has the smaller error everywhere, at the same
protection.
"""

import pytest

from semidp.applications.study import Settings, Tidy, find_study


def others(table: Tidy, row: dict[str, object], method: str) -> float:
    keys = [name for name in table.columns if name not in ("method", "error", "se", "replicates")]
    return float(table.where(method=method, **{name: row[name] for name in keys})["error"][0])


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["grouped-means", "grouped-regression"])
def test_semi_private_errors_are_below_the_baseline_everywhere(name):
    table = find_study(name).compute()
    semi = table.where(method="semi").records()
    assert len(semi) == {"grouped-means": 10, "grouped-regression": 35}[name]
    for row in semi:
        assert row["error"] < others(table, row, "baseline")
    assert find_study(name).plot(table).axes


def test_with_equal_groups_semi_private_means_beat_even_ordinary_privacy():
    """The sums have the noise of ordinary DP for one record, and the counts have none."""
    table = find_study("grouped-means").compute(Settings(replicates=60)).where(design="equal")
    for row in table.where(method="semi").records():
        assert row["error"] < others(table, row, "ordinary")

"""Records of a release that was made part by part: the tables are read from its parts."""

from pathlib import Path

import numpy as np
import pytest

from semidp import Release
from semidp.errors import Refused
from semidp.promise.noise.randomness import SeededRandomness
from tests.partitions.conftest import plan, records, run_partitioned


def test_records_have_every_exact_total_to_the_person(tmp_path: Path) -> None:
    data = records()
    run_partitioned(plan(), data, tmp_path / "release", "state", randomness=SeededRandomness(1))
    release = Release.load(tmp_path / "release")
    people = release.records(SeededRandomness(2), seconds=5)
    frame = people.to_pandas()
    assert len(frame) == len(data["sex"])
    for column in ("state", "sex"):
        names, counts = np.unique(data[column], return_counts=True)
        found = frame[column].value_counts()
        assert [found[name] for name in names] == counts.tolist()
    with pytest.raises(Refused, match="several sets of records are for tables"):
        release.several_records(2, SeededRandomness(3))

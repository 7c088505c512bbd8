"""A release with every kind of thing that SDMX files hold; two levels differ in what ids lack."""

from pathlib import Path
from typing import Any

import semidp
from semidp.promise.noise.randomness import Randomness

COUNTIES = [("north", "a é"), ("north", "a e"), ("south & west", "東"), ("south & west", "z\x07")]
PEOPLE: dict[str, list[Any]] = {
    "region": [COUNTIES[row % 4][0] for row in range(240)],
    "county": [COUNTIES[row % 4][1] for row in range(240)],
    "sex": [*"fmm"] * 80,
    "score": [float(row % 100) for row in range(240)],
}


def sdmx_release(folder: Path, randomness: Randomness, **more: Any) -> semidp.Release:
    """Write it to a folder that is not there."""
    return semidp.release(
        PEOPLE,
        semidp.table("county", "sex"),
        semidp.table("region", "sex"),
        semidp.mean("score", by="region", bounds=(0, 100)),
        semidp.proportion("sex=f", by="region"),
        exact=["region", ("sex",)],
        nest=("region", "county"),
        levels_from_data=True,
        mu=1,
        randomness=randomness,
        out=folder,
        write="sdmx",
        **more,
    )

"""The noisy measurement files of the 2020 Census: estimates for any area, with standard errors.

`semidp census estimate` is the command. The format of the files is described in
`semidp.census.layout`, and nowhere else.
"""

from semidp.census.area_codes import Areas, read_areas
from semidp.census.area_estimates import (
    CensusEstimates,
    CensusTask,
    estimate_areas,
    estimate_state,
    write_estimates,
)
from semidp.census.people import groups
from semidp.census.reading import StateFiles, read_state

__all__ = [
    "Areas",
    "CensusEstimates",
    "CensusTask",
    "StateFiles",
    "estimate_areas",
    "estimate_state",
    "groups",
    "read_areas",
    "read_state",
    "write_estimates",
]

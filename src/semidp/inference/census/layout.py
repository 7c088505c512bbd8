"""The format of the noisy measurement files of the 2020 Census (P.L. 94-171, persons), in one
place.

A folder holds, for each level of geography, what was measured and what was exact::

    {LEVEL}.parquet/DPQuery/State={PART}/*.parquet      noisy measurements
    {LEVEL}.parquet/Constraint/State={PART}/*.parquet   exact totals and bounds

`LEVEL` is US, State, County, Tract, Block_Group or Block. `PART` is 0SS for the state SS and 1SS
for the lands of its tribes, which have a tree of their own. Level US has one place, the nation, in
any folder below ``US.parquet/DPQuery``. Each row has

- `geocode`: text; the code of a place starts with the code of the place it lies in. The last 16
  characters of the code of a block are its tabulation code: state 2, county 3, tract 6, block group
  1, block 4;
- `query_name`: `detailed_dpq`, `votingage * hispanic_dpq` and so on; in constraints
  `hhgq_total_ub_con`, `hhgq_total_lb_con`, `nurse_nva_0_con`, `total_con`;
- `query_shape`: the number of values along quarters, age, Hispanic origin and race: all levels (8,
  2, 2, 63), 1 where the attribute is added up, or 3 for quarters in households, institutions and
  other group quarters;
- `value`: the values, in that order, the last attribute running fastest; `variance`: of each, 0 if
  exact.

Noise is discrete Gaussian with ``σ² = 1/ρ`` for a query that has the part ρ of the budget: one
person who changes moves two counts of it by one, so that ``ρ = 2/(2σ²)``.
"""

import itertools

QUARTERS = (
    "household",
    "correctional",
    "juvenile",
    "nursing",
    "other institution",
    "college",
    "military",
    "other",
)
AGES = ("under 18", "18 and over")
ORIGINS = ("not Hispanic", "Hispanic")
ALONE = ("white", "black", "native", "asian", "pacific", "other")


def _races() -> tuple[str, ...]:
    names = []
    for several in range(1, len(ALONE) + 1):
        for combination in itertools.combinations(ALONE, several):
            names.append("+".join(combination))
    return tuple(names)


RACES = _races()
"""The six races alone, then every combination, the shorter first."""

SIZES = (len(QUARTERS), len(AGES), len(ORIGINS), len(RACES))
INSTITUTIONS = (0, 1, 1, 1, 1, 2, 2, 2)
"""Group of each kind of quarters in a query of shape 3: households, institutions, other group
quarters."""
NURSING, MINOR = 3, 0
"""No minor lives in a nursing home: that cell is impossible everywhere."""

LEVELS = ("State", "County", "Tract", "Block_Group", "Block")
NATION = "US"
STATES = tuple(f"{code:02}" for code in range(1, 57) if code not in (3, 7, 14, 43, 52))
"""The fifty states and the District of Columbia, whose sum is the nation."""
MEASURED, EXACT = "DPQuery", "Constraint"
UPPER_BOUND, TOTAL = "hhgq_total_ub_con", "total_con"
PERSONS = "US_Person_PL_PROD"
"""Name of the folder of persons where the files were unpacked with those of housing units."""


def block_geoid(geocode: str) -> str:
    """Code of a block in other files of the Census, of 15 digits, from its geocode.

    The tabulation code has the block group twice: once for itself, and as the first digit of the
    block.

    >>> block_geoid("0150010201001" + "1500102010011000")
    '150010201001000'
    """
    tabulation = geocode[-16:]
    return tabulation[:11] + tabulation[12:]

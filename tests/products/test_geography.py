"""Products down a geography: real school districts, and people generated in a ragged tree of
places.
"""

from importlib.resources import files

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, run
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Nest
from semidp.promise.schema.schema import Schema
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.sources.opening import open_source

SCHOOLS = files("semidp") / "data" / "california_schools.csv"


@pytest.mark.few(1)
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_county_and_district_tables_of_schools_agree_and_enrolment_is_exact(adjacency):
    tables = [["county", "meals"], ["district", "meals"], ["county", "grades", "meals"]]
    plan = Plan(
        [TablesRequest([TableRequest(names) for names in tables], Budget.gdp(1))],
        invariants=["district"],
        features=[Feature("meals", ["no", "yes"]), Feature("grades", ["KK-06", "KK-08"])],
        nests=[Nest(["county", "district"])],
        count="count",
        adjacency=adjacency,
    )
    with open_source(SCHOOLS, count="count") as source:
        release = run(plan, source, SeededRandomness(3))
        schema = release.scope.dataspace.schema
        enrolled = source.counts(schema.restrict(["district"]))
    counties, districts, grades = release.tables
    place = schema.feature("district").chain
    assert np.array_equal(districts.counts.sum(axis=1), enrolled.counts)
    assert np.array_equal(counties.counts.sum(axis=1), enrolled.margin(["county"]).counts)
    firsts = place.first(1, 2)
    assert np.array_equal(np.add.reduceat(districts.counts, firsts, axis=0), counties.counts)
    np.testing.assert_allclose(
        np.add.reduceat(districts.estimate, firsts, axis=0), counties.estimate, atol=1e-6
    )
    assert np.array_equal(grades.counts.sum(axis=grades.schema.axis("grades")), counties.counts)
    assert min(table.counts.min() for table in release.tables) >= 0
    assert release[districts.name].standard_errors.max() > 0


def ragged(tracts: int) -> list[tuple[str, str, str]]:
    """States of one county to several, counties of one tract to many."""
    rng = np.random.default_rng(2)
    state = np.sort(rng.choice(5, size=tracts, p=[0.5, 0.3, 0.15, 0.04, 0.01]))
    county = np.concatenate([np.sort(rng.zipf(1.6, size=n) % 7) for n in np.bincount(state) if n])
    return [
        (f"{s}", f"{s}{c}", f"{s}{c}{t:03d}")
        for t, (s, c) in enumerate(zip(state, county, strict=True))
    ]


@pytest.mark.long
def test_a_product_like_the_census_agrees_from_the_nation_to_the_tract():
    places, rng, n = ragged(60), np.random.default_rng(1), 900
    home = rng.choice(60, size=n, p=rng.dirichlet(np.ones(60)))
    data = {
        name: np.array([path[i] for path in places])[home]
        for i, name in enumerate(("state", "county", "tract"))
    }
    levels = {"sex": ["f", "m"], "age": ["0", "18", "65"], "race": ["a", "b"]}
    data |= {name: rng.choice(known, size=n) for name, known in levels.items()}
    people = ["sex", "age", "race"]
    tables = [["state", *people], ["county", *people], ["tract", *people], people]
    plan = Plan(
        [TablesRequest([TableRequest(names) for names in tables], Budget.zcdp("1/2"))],
        invariants=["state"],
        features=[
            Feature.from_paths(["state", "county", "tract"], places),
            *(Feature(name, known) for name, known in levels.items()),
        ],
    )
    release = run(plan, data, SeededRandomness(2))
    *below, nation = release.tables
    chain = Schema(plan.features).features[0].chain
    for coarse, (above, table) in enumerate(zip([nation, *below], below, strict=False)):
        firsts = chain.first(coarse, coarse + 1)
        for coarser, finer in ((above.counts, table.counts), (above.estimate, table.estimate)):
            summed = np.add.reduceat(finer, firsts, axis=0)
            np.testing.assert_allclose(summed[0] if coarse == 0 else summed, coarser, atol=1e-6)
    exact = np.unique(data["state"], return_counts=True)[1]
    assert np.array_equal(below[0].counts.sum(axis=(1, 2, 3)), exact)
    assert nation.counts.sum() == n
    # many scales, few draws of each: drawn together
    assert len(release.results[0].residuals.samplers[0]) > 10

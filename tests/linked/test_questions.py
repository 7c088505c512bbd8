"""Questions to releases of linked tables: errors, intervals, tests and models of both kinds after
they agree.
"""

import json
import shlex

import numpy as np
import pytest

import semidp
from semidp.cli import run
from semidp.errors import InputError, Refused
from semidp.inference.area_sums import AreaRow, area_intervals
from semidp.inference.models import model
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.linked_mechanism import LinkedIntervals, LinkedMechanism
from semidp.publish.product_estimates import combine_cells
from tests.linked.test_agreement import CASES, linked
from tests.linked.test_release import TABLES, plan_of, released
from tests.sum_errors import error_of_sum

SIZES = np.arange(1, 7)
UNITS = "units:zone-size-type"


@pytest.fixture(scope="module")
def release():
    return released(
        plan_of(TABLES, exact=["units:zone", "sex", "age"], adjacency="exchange", derived=["type"])
    )


def variances_of(mechanism):
    """The variances of all tables, as the agreement gives them."""
    agreement = mechanism.agreement
    members = [
        agreement.variances(0, number) for number in range(len(mechanism.space.members.views))
    ]
    units = [agreement.variances(1, number) for number in range(len(mechanism.space.units.views))]
    return [*members, *units]


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "budget", [Budget.zcdp("1/50"), Budget.gdp("1/3")], ids=["discrete", "rounded"]
)
@pytest.mark.parametrize("name", CASES)
def test_errors_of_single_cells_are_those_of_the_tables(name, budget):
    mechanism = LinkedMechanism.calibrate(linked(name)[0], budget)
    compared = 0
    for number, variance in enumerate(variances_of(mechanism)):
        reached = mechanism.find_reached_entries([number])
        for cell in np.ndindex(variance.shape):
            unit = np.zeros(variance.shape)
            unit[cell] = 1.0
            assert np.isclose(
                error_of_sum(mechanism, {number: unit}) ** 2,
                variance[cell],
                rtol=1e-6,
                atol=1e-9,
            )
            row = mechanism.combination({number: unit})
            assert not np.delete(row, reached).any()
            compared += 1
    assert compared == sum(variance.size for variance in variances_of(mechanism)) > 20


@pytest.mark.parametrize("name", ["states exact", "tenure"])
def test_covariances_of_both_kinds_are_seen_in_many_draws(name):
    space, values = linked(name)
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp("1/2"))
    random = np.random.default_rng(6)
    tables = mechanism.estimates(values)
    weights = [
        {number: random.normal(size=table.shape) for number, table in enumerate(tables)}
        for _ in range(6)
    ]
    # of one kind alone, too: a table of members has noise of units in it
    weights += [{0: each[0]} for each in weights[:2]] + [{1: each[1]} for each in weights[:2]]
    rows = np.stack([mechanism.combination(each) for each in weights])
    draws = 8000
    entries = np.arange(rows.shape[1])
    noise = mechanism.draw_entries(entries, draws, SeededRandomness(5))
    # the long way for some draws: the noise added, the tables made to agree, the sums taken
    for one in noise[:5]:
        noisy = mechanism.estimates(values + one)
        for row, each in zip(rows, weights, strict=True):
            moved = sum(
                float(((noisy[number] - tables[number]) * weight).sum())
                for number, weight in each.items()
            )
            assert np.isclose(moved, float(row @ one), atol=1e-6)
    errors = np.array([error_of_sum(mechanism, each) for each in weights])
    drawn = noise @ rows.T
    # four standard errors of a variance of 8,000 draws are 6.4%
    assert np.abs(drawn.var(axis=0) / errors**2 - 1).max() < 0.065
    # a twin that forgets the agreement is told apart
    apart = []
    for each in weights[6:]:
        kind, number = (space.members, 0) if 0 in each else (space.units, 0)
        part = mechanism.members if 0 in each else mechanism.units
        alone = combine_cells(kind, {number: next(iter(each.values()))})
        apart.append(float((alone**2 * part.variances).sum()))
    assert np.abs(drawn.var(axis=0)[6:] / apart - 1).max() > 0.065


@pytest.mark.few(2)
@pytest.mark.parametrize("rho", [3, 2000])
@pytest.mark.parametrize("name", ["tracts", "states exact"])
def test_intervals_cover_also_where_noise_is_coarse(name, rho):
    space, _ = linked(name)
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp(rho))
    draws = 3000
    zeros = np.zeros(space.shape, dtype=np.int64)
    tables = mechanism.estimates(zeros)
    noise = mechanism.noises(draws, SeededRandomness(11))
    missed, cells = {"law": 0.0, "normal": 0.0}, 0
    for number, variance in enumerate(variances_of(mechanism)):
        unit_rows = []
        chosen = np.random.default_rng(1).choice(
            variance.size, size=min(8, variance.size), replace=False
        )
        for cell in chosen:
            unit = np.zeros(variance.size)
            unit[cell] = 1.0
            unit_rows.append(mechanism.combination({number: unit.reshape(tables[number].shape)}))
        errors = np.abs(noise @ np.stack(unit_rows).T)
        half = LinkedIntervals(mechanism).compute_half_widths(number, variance).ravel()[chosen]
        share = (errors > half + 1e-9).mean(axis=0)
        # 5% of 3,000 draws; 6.6% is four standard errors away
        assert share.max() < 0.066
        assert (half < 3 * np.sqrt(variance.ravel()[chosen]) + 1).all()
        normal = 1.96 * np.sqrt(variance.ravel()[chosen])
        missed["normal"] = max(missed["normal"], float((errors > normal + 1e-9).mean(axis=0).max()))
        missed["law"] = max(missed["law"], float(share.max()))
        cells += len(chosen)
    assert cells >= 14
    assert missed["law"] < 0.066
    if rho == 2000:
        # the normal quantile alone does not cover coarse noise
        assert missed["normal"] > 0.066


def density_ratio(sigma2, tau2):
    """The largest density of a normal number plus a discrete one, over that of the normal number of
    both variances.
    """
    steps = np.arange(-200, 201)
    law = np.exp(-(steps**2) / (2 * sigma2))
    places = np.linspace(-3, 3, 601)[:, None]
    mixed = (law / law.sum() * np.exp(-((places - steps) ** 2) / (2 * tau2))).sum(axis=1) / np.sqrt(
        tau2
    )
    whole = np.exp(-(places[:, 0] ** 2) / (2 * (sigma2 + tau2))) / np.sqrt(sigma2 + tau2)
    return float((mixed / whole).max())


def test_a_normal_number_hides_the_steps_of_discrete_noise():
    for sigma2, tau2 in ((3, 3), (3, 50), (40, 3)):
        assert density_ratio(sigma2, tau2) < 1 + 2e-12
    # narrower ones do not hide them
    assert density_ratio(0.5, 0.5) > 1.01


def test_hidden_steps_give_the_intervals_of_the_law(monkeypatch):
    mechanism = LinkedMechanism.calibrate(linked("states exact")[0], Budget.zcdp(1))
    intervals = LinkedIntervals(mechanism)
    hidden = [
        intervals.compute_half_widths(number, variance)
        for number, variance in enumerate(variances_of(mechanism))
    ]
    monkeypatch.setattr("semidp.publish.linked_mechanism._NEAR", 0.0)
    compared = 0
    for close, number in zip(hidden, range(len(hidden)), strict=True):
        by_law = intervals.compute_half_widths(number, variances_of(mechanism)[number])
        assert np.allclose(close, by_law, rtol=0.02)
        # a small table may have used its law in any case
        compared += 0 if np.array_equal(close, by_law) else by_law.size
    assert compared >= 20


def test_a_wide_tree_has_bounds_instead_of_laws(monkeypatch):
    space, _ = linked("tracts")
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp(3))
    variances = variances_of(mechanism)
    by_law = [
        LinkedIntervals(mechanism).compute_half_widths(number, variance)
        for number, variance in enumerate(variances)
    ]
    monkeypatch.setattr("semidp.publish.linked_mechanism._MOST_LAWS", 0)
    wider = [
        LinkedIntervals(mechanism).compute_half_widths(number, variance)
        for number, variance in enumerate(variances)
    ]
    for close, wide, variance in zip(by_law, wider, variances, strict=True):
        assert (wide >= close - 1e-6).all()
        assert (wide <= 5.44 * 4 * np.sqrt(variance) + 1e-9).all()
        assert (wide > close + 1e-6).any()


def test_a_release_holds_the_tables_of_both_kinds(release):
    assert [(table.name, table.counted) for table in release.tables] == [
        ("zone-sex-age", "member"),
        ("units-zone-size-type", "unit"),
    ]
    assert release.table_name(UNITS) == "units-zone-size-type"
    assert release.tables[1] is release[UNITS]
    assert all(table.keeps(release.scope.dataspace) for table in release.tables)


def test_weighted_sums_of_both_kinds_know_that_they_agree(release):
    persons, homes = np.zeros((5, 2, 3)), np.zeros((5, 6, 2))
    persons[0] = 1.0
    homes[0] = SIZES[:, None]
    value, error = release.estimate({"zone-sex-age": persons})
    assert value == pytest.approx(release["zone-sex-age"].estimate[0].sum())
    assert error > 1
    assert release.estimate({UNITS: homes}) == pytest.approx((value, error))
    assert release.estimate({UNITS: homes, "zone-sex-age": -persons}) == pytest.approx(
        (0.0, 0.0), abs=1e-9
    )
    with pytest.raises(InputError, match="there is no table"):
        release.estimate({"units:zone": homes})


def test_members_are_meant_unless_units_are_named(release):
    persons = release.interval({"zone": "A1"}, randomness=SeededRandomness(1))
    homes = release.interval({"zone": "A1"}, table=UNITS, randomness=SeededRandomness(1))
    assert persons.value == pytest.approx(release["zone-sex-age"].estimate[0].sum())
    assert (homes.low, homes.high, homes.standard_error) == (34.0, 34.0, 0.0)
    sizes = release.interval(
        {"size": ["1", "2"]}, among={"zone": "A1"}, randomness=SeededRandomness(1)
    )
    assert 0 <= sizes.low < sizes.value < sizes.high <= 1
    # exact totals of their own kind cut the intervals
    every = release.intervals(UNITS, randomness=SeededRandomness(1))
    assert every.low.min() == 0
    assert every.high[0].max() <= 34
    assert release.intervals(randomness=SeededRandomness(1)).table == "zone-sex-age"


def test_areas_count_one_kind(release):
    rows = [AreaRow("north", {"zone": "A1"}), AreaRow("north", {"zone": "A2"})]
    (north,) = area_intervals(release, rows, randomness=SeededRandomness(2)).values()
    assert north.value == pytest.approx(release["zone-sex-age"].estimate[:2].sum())
    (homes,) = area_intervals(release, rows, table=UNITS, randomness=SeededRandomness(2)).values()
    assert homes.value == pytest.approx(release[UNITS].estimate[:2].sum())
    with pytest.raises(InputError, match="counts members in one line and units in another"):
        area_intervals(release, [AreaRow("odd", {"sex": "f"}), AreaRow("odd", {"size": "1"})])


def test_tests_and_models_of_both_kinds(release):
    # members of one unit may be alike, and an exact test would not know
    with pytest.raises(Refused, match="members are independent, but one"):
        release.test("sex", "age", randomness=SeededRandomness(3))
    offered = model(release, "~ sex * age", against="~ sex + age")
    assert 0 < offered.against.p_value <= 1
    assert "the sampling variance is multiplied by that" in offered.notes[-1]
    # zones are exact among units, and types have two levels
    homes = release.test("type", "zone", table=UNITS, randomness=SeededRandomness(3))
    assert homes.noisy_totals == ("type",)
    # totals of many levels are bounded, by the noise of both kinds
    assert 0 < release.test("size", "zone", randomness=SeededRandomness(3)).p_value <= 1
    assert model(release, "type ~ zone").table == "units-zone-size-type"
    assert model(release, "type ~ zone").notes == ()
    assert model(release, "sex ~ age").table == "zone-sex-age"
    members, units = (
        release.interval(of, sampling=True, table=table, randomness=SeededRandomness(4))
        for of, table in (({"sex": "f"}, None), ({"size": "1"}, UNITS))
    )
    assert members.cluster == release.scope.dataspace.link.most > 1
    assert units.cluster == 1


def test_what_has_no_answer_is_one_sentence(release):
    from semidp.inference.markov import posterior

    with pytest.raises(Refused, match="posteriors of linked members and units are not built"):
        posterior(release, UNITS)
    with pytest.raises(InputError, match="this release has no table"):
        release.interval({"zone": "A1", "sex": "f", "size": "1"})


@pytest.mark.long
def test_folders_answer_in_the_terminal(release, tmp_path, capsys):
    release.save(tmp_path / "release")
    asked = {
        f"intervals {tmp_path}/release --name {UNITS} --seed 1": "All intervals hold at once",
        f"intervals {tmp_path}/release --of size=1 --among zone=A1 --seed 1": "estimate",
        f"test {tmp_path}/release --rows size --columns zone --seed 1": "units-zone-size-type",
        f"model {tmp_path}/release 'type ~ zone'": "units-zone-size-type",
        f"show {tmp_path}/release": "sizes times units is the number of members in 5 of 5 places",
    }
    for words, said in asked.items():
        assert run(shlex.split(words)) == 0, capsys.readouterr().err
        assert said in capsys.readouterr().out
    assert (
        run(shlex.split(f"intervals {tmp_path}/release --name {UNITS} --seed 1 --format json")) == 0
    )
    assert json.loads(capsys.readouterr().out)["table"] == "units-zone-size-type"
    again = semidp.Release.load(tmp_path / "release")
    assert [table.counted for table in again.tables] == ["member", "unit"]
    assert "units-zone-size-type" in again._repr_html_()


def test_the_guarantee_is_said_again_and_what_is_not_built_is_one_sentence(
    release, tmp_path, capsys
):
    release.save(tmp_path / "release")
    assert run(["guarantee", f"{tmp_path}/release"]) == 0
    assert "stays as strong" in capsys.readouterr().out
    (tmp_path / "plan.json").write_text(json.dumps(release.plan.to_json()))
    refused = {
        f"guarantee {tmp_path}/release --without sex": "not known here",
        f"explore --plan {tmp_path}/plan.json": "records of one kind",
    }
    for words, said in refused.items():
        assert run(shlex.split(words)) == 2
        sentence = capsys.readouterr().err
        assert said in sentence
        assert sentence.count("\n") == 1

"""Top codes: sizes are measured and made to agree one by one, and published as 1, 2, 3, 4, 5+."""

import json

import numpy as np
import pytest
from attrs import evolve

import semidp
from semidp.cli import run
from semidp.errors import InputError
from semidp.inference import sum_intervals, sum_rows
from semidp.inference.records.record_writing import linked_records
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.linked_mechanism import (
    CodedNoise,
    LinkedIntervals,
    LinkedMechanism,
)
from semidp.publish.plan import Plan
from semidp.publish.recheck import recheck
from semidp.publish.size_agreement import TopCode
from tests.linked import test_quarters
from tests.linked.test_agreement import CASES, linked
from tests.linked.test_command import ASKED, command, files  # noqa: F401
from tests.linked.test_release import TABLES, plan_of, released
from tests.sum_errors import error_of_sum

UNITS = "units:zone-size-type"
STRUCTURES = [*CASES, *(f"quarters, {name}" for name in test_quarters.CASES)]


def space_of(name):
    if name.startswith("quarters, "):
        return test_quarters.linked(name.removeprefix("quarters, "))[0]
    return linked(name)[0]


def coded_tables(mechanism):
    """The numbers of tables of units by size, and the axis of the size."""
    space = mechanism.space
    tables = range(len(space.members.views) + len(space.units.views))
    places = {number: mechanism.size_place(number) for number in tables}
    return {number: axis for number, axis in places.items() if axis is not None}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", STRUCTURES)
def test_errors_of_coded_cells_are_those_of_sums_over_sizes(name):
    mechanism = LinkedMechanism.calibrate(space_of(name), Budget.zcdp("1/50"))
    link = mechanism.space.dataspace.link
    tables = range(len(mechanism.space.members.views) + len(mechanism.space.units.views))
    by_size = [mechanism.cell_variances(number) for number in tables]
    compared, larger = 0, 0
    for top in range(link.least, link.most + 1):
        code = TopCode(top, link.least, link.most)
        coded = CodedNoise.from_mechanism(mechanism, code)
        variances = [coded.cell_variances(number) for number in tables]
        for number, axis in coded_tables(mechanism).items():
            shape = variances[number].shape
            assert shape[axis] == len(code.levels)
            whole = mechanism.space.units.schema.grid.compute_margin_shape(
                mechanism.space.units.views[number - len(mechanism.space.members.views)]
            )
            for cell in np.ndindex(shape):
                unit = np.zeros(shape)
                unit[cell] = 1.0
                singles = np.zeros(whole)
                last = cell[axis] == code.place
                sizes = slice(cell[axis], None if last else cell[axis] + 1)
                singles[(*cell[:axis], sizes, *cell[axis + 1 :])] = 1.0
                error = error_of_sum(mechanism, {number: singles})
                assert np.isclose(error_of_sum(coded, {number: unit}), error, atol=1e-9)
                assert np.isclose(variances[number][cell], error**2, rtol=1e-6, atol=1e-9)
                compared += 1
                # a twin that takes the errors of single sizes for that of their sum
                alone = by_size[number][cell]
                larger += bool(last and not np.isclose(alone, error**2, rtol=1e-3))
    assert compared >= 30
    assert larger > 5


@pytest.mark.few(6)
@pytest.mark.parametrize("way", ["near", "law", "tail"])
@pytest.mark.parametrize("name", ["states exact", "quarters, both exact"])
@pytest.mark.parametrize("rho", [1, 6000])
def test_intervals_of_the_last_level_cover(name, way, rho, monkeypatch):
    intervals = "semidp.publish.linked_mechanism"
    # a normal law as near as may be, the law of each sum, or a bound of its tails
    monkeypatch.setattr(f"{intervals}._NEAR", np.inf if way == "near" else 0.0)
    if way == "tail":
        monkeypatch.setattr(f"{intervals}._MOST_LAWS", 0)
    mechanism = LinkedMechanism.calibrate(space_of(name), Budget.zcdp(rho))
    link = mechanism.space.dataspace.link
    code = TopCode(3, link.least, link.most)
    draws = 3000
    noise = mechanism.noises(draws, SeededRandomness(7))
    coded = CodedNoise.from_mechanism(mechanism, code)
    ((number, axis),) = coded_tables(mechanism).items()
    place = number - len(mechanism.space.members.views)
    stretched = mechanism.agreement.variances(1, place, code)
    half = code.take_levels(
        LinkedIntervals(mechanism, code).compute_half_widths(number, stretched), axis
    )
    assert np.array_equal(coded.half_widths(number), half)
    rows, widths, short = [], [], []
    single = LinkedIntervals(mechanism).compute_half_widths(
        number, mechanism.agreement.variances(1, place)
    )
    for cell in list(np.ndindex(half.shape))[:24]:
        unit = np.zeros(half.shape)
        unit[cell] = 1.0
        rows.append(coded.combination({number: unit}))
        widths.append(half[cell])
        short.append(single[cell])
    errors = np.abs(noise @ np.stack(rows).T)
    missed = (errors > np.array(widths) + 1e-9).mean(axis=0)
    # 5% of 3,000 draws; 6.6% is four standard errors away
    assert missed.max() < 0.066
    if way == "law" and rho == 1:
        assert missed.max() > 0.034
    if name == "states exact" and way == "law" and rho == 1:
        # the intervals of single sizes miss the sum of several
        assert (errors > np.array(short) + 1e-9).mean(axis=0).max() > 0.066


@pytest.fixture(scope="module")
def releases():
    """The same noise, published by single sizes and coded."""
    plan = plan_of(TABLES, adjacency="exchange", derived=["type"])
    (request,) = plan.requests
    coded = evolve(plan, requests=[evolve(request, top_code={"size": 3})])
    return released(plan), released(coded)


def test_a_coded_table_is_the_sum_of_its_sizes(releases):
    single, coded = (release[UNITS] for release in releases)
    assert coded.schema.features[1].levels == ("1", "2", "3+")
    assert np.array_equal(coded.counts[:, :2], single.counts[:, :2])
    assert np.array_equal(coded.counts[:, 2], single.counts[:, 2:].sum(axis=1))
    assert np.allclose(coded.estimate[:, 2], single.estimate[:, 2:].sum(axis=1))
    assert np.allclose(coded.half_widths[:, :2], single.half_widths[:, :2])
    assert (coded.standard_errors[:, 2] > single.standard_errors[:, 2]).all()
    assert releases[1].results[0].agreeing == (5, 5)
    # what a reader of coded sizes sees: members of the last level are 3 to 6 a unit
    persons = releases[1]["zone-sex-age"].counts.sum(axis=(1, 2))
    homes = coded.counts.sum(axis=2)
    left = persons - homes[:, :2] @ np.array([1, 2])
    assert (3 * homes[:, 2] <= left).all()
    assert (left <= 6 * homes[:, 2]).all()


def test_a_coded_release_is_read_back_and_checked(releases, tmp_path, capsys):
    _, coded = releases
    coded.save(tmp_path / "release")
    again = semidp.Release.load(tmp_path / "release")
    assert again[UNITS].schema == coded[UNITS].schema
    assert again.results[0].agreeing == (5, 5)
    assert again.plan.requests[0].top_code == 3
    document = json.loads((tmp_path / "release" / "release.json").read_text())
    assert document["plan"]["top_code"] == {"size": 3}
    assert recheck(again, document, tmp_path / "release").disagreements == ()
    page = (tmp_path / "release" / "report.html").read_text()
    assert "Units of 3 and more members are published as 3+" in page
    assert "for the sizes before they were coded" in page
    assert run(["show", str(tmp_path / "release")]) == 0
    assert "counted before sizes were coded as 3+" in capsys.readouterr().out
    # another number of places that agree is found
    document["linked"][0]["agreeing"] = 4
    assert recheck(again, document, tmp_path / "release").disagreements


def test_questions_about_coded_sizes(releases):
    single, coded = releases
    larger = coded.interval({"size": "3+"}, among={"zone": "A1"})
    assert 0 <= larger.low < larger.value < larger.high <= 1
    weights = np.zeros(coded[UNITS].schema.shape)
    weights[0, 2] = 1
    same = np.zeros(single[UNITS].schema.shape)
    same[0, 2:] = 1
    assert np.allclose(coded.estimate({UNITS: weights}), single.estimate({UNITS: same}))
    with pytest.raises(InputError):
        coded.interval({"size": "4"})


def test_sums_over_coded_tables_know_that_they_share_noise():
    tables = [["zone", "sex"], ["units:zone", "size"], ["units:state", "size", "type"]]
    plan = plan_of(tables, adjacency="exchange", derived=["type"])
    (request,) = plan.requests
    coded = released(evolve(plan, requests=[evolve(request, top_code={"size": 3})]))
    fine, coarse = (table for table in coded.tables if table.counted == "unit")
    # Units of one member, by zone and by state: the same number twice.
    text = f"none: {fine.name}[size=1] - {coarse.name}[size=1]"
    (gap,) = sum_intervals(coded, sum_rows(text), draws=99).values()
    assert (gap.value, gap.standard_error) == (pytest.approx(0, abs=1e-6), pytest.approx(0))
    (alone,) = sum_intervals(coded, sum_rows(f"one: {fine.name}[size=1]"), draws=99).values()
    assert alone.standard_error > 0.1


def test_linked_records_of_a_coded_release_have_single_sizes(releases, tmp_path):
    releases[1].save(tmp_path / "release")
    again = semidp.Release.load(tmp_path / "release")
    members, units = linked_records(again, SeededRandomness(2))
    sizes = np.bincount(members.numbers, minlength=len(units))
    assert np.array_equal(np.sort(sizes), np.sort(units.places[1] + 1))
    counts = np.bincount(np.minimum(sizes, 3), minlength=4)[1:]
    assert np.array_equal(counts, again[UNITS].counts.sum(axis=(0, 2)))


def test_counts_that_do_not_follow_are_refused(releases, tmp_path):
    releases[1].save(tmp_path / "release")
    again = semidp.Release.load(tmp_path / "release")
    counts = again.results[0].units[0].counts
    counts[0, 2] = counts[0, 2][::-1] + np.array([1, -1])
    with pytest.raises(semidp.Refused, match="do not follow from what was measured"):
        _ = again.results[0].units_by_size


def test_a_command_and_a_plan_code_sizes(files, capsys):  # noqa: F811
    code, out, err = command(
        f"--units homes.csv {ASKED} --set top_code=size=4 --rho 1 --out release", capsys
    )
    assert code == 0, err
    assert "5 of 5 places, counted before sizes were coded as 4+" in out
    rows = (files / "release" / "units-zone-size-type.csv").read_text()
    assert ",4+," in rows
    assert ",5," not in rows
    plan = json.loads((files / "release" / "release.json").read_text())["plan"]
    assert Plan.from_json(plan).requests[0].top_code == 4
    (files / "plan.json").write_text(json.dumps(plan))
    code, out, err = command("--plan plan.json --units homes.csv --dry-run", capsys)
    assert code == 0, err
    assert "40 cells" in out  # 5 zones, 4 levels, 2 types


def test_a_target_error_is_about_what_is_published():
    plan = plan_of(TABLES, derived=["type"])
    (request,) = plan.requests
    tables = [evolve(table, target_error=3) for table in request.units]
    asked = evolve(request, budget=None, units=tables)
    budgets = []
    for top in (None, {"size": 3}):
        release = released(evolve(plan, requests=[evolve(asked, top_code=top)]))
        assert release[UNITS].standard_errors.max() <= 3 + 1e-9
        budgets.append(release.results[0].mechanism.precision)
    assert budgets[1] > budgets[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--set top_code=size=0", "from 1 to 6, not 0"),
        ("--set top_code=size=7", "from 1 to 6, not 7"),
        ("--set top_code=size=2.5", "whole number"),
        ("--set top_code=size=many", "top code"),
        ("--set top_code=type=1", "about the size of units"),
        ("--set top_code=size", "size=5"),
    ],
)
def test_wrong_top_codes_are_refused(files, capsys, words, said):  # noqa: F811
    code, _, err = command(
        f"--units homes.csv {ASKED} {words} --rho 1 --ledger l.json --out release", capsys
    )
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert not (files / "release").exists()
    assert not (files / "l.json").exists()


def test_top_codes_need_sizes_and_units(files, capsys):  # noqa: F811
    asked = ASKED.replace("units:zone,size,type", "units:zone,type")
    code, _, err = command(
        f"--units homes.csv {asked} --set top_code=size=3 --rho 1 --out r", capsys
    )
    assert code == 2
    assert "none is asked for" in err
    code, _, err = command(
        "--table sex --levels sex=f,m --set top_code=size=3 --rho 1 --out r", capsys
    )
    assert code == 2
    assert "works only with --units" in err
    with pytest.raises(InputError, match=r"give \[units\]"):
        Plan.from_json({"top_code": {"size": 3}})

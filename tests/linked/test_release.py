"""Releases of two linked sources: from data frames and files, through plans, ledgers and the
folder.
"""

import json

import numpy as np
import pytest

import semidp
from semidp.errors import BudgetExceeded, DataError, InputError, Refused
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.confidential import reveal
from semidp.promise.documents import digest
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.publish.linked_mechanism import LinkedIntervals
from semidp.publish.plan import LinkedUnits, Plan
from semidp.publish.product_estimates import sum_residuals
from semidp.publish.recheck import recheck
from semidp.publish.sources.linked_records import LinkedData
from semidp.publish.survey import with_units

pytestmark = pytest.mark.pictures

AGES = semidp.Feature("age", bins=[0, 18, 65, 120])
SEX = semidp.Feature("sex", ["f", "m"])
TYPE = semidp.Feature("type", ["alone", "family"])
TENURE = semidp.Feature("tenure", ["own", "rent"])


def homes_and_persons(households=200, seed=4):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, households)
    homes = {
        "home": np.array([f"h{number}" for number in range(households)]),
        "state": np.array(["A", "B"])[np.arange(households) % 2],
        "zone": np.array(["A1", "B1", "A2", "B2", "A3", "B1"])[np.arange(households) % 6],
        "tenure": random.choice(["own", "rent"], households),
        "type": np.where(sizes == 1, "alone", "family"),
    }
    home = np.repeat(homes["home"], sizes)
    persons = {
        "home": home,
        "sex": random.choice(["f", "m"], len(home)),
        "age": random.integers(0, 90, len(home)),
    }
    return persons, homes


def plan_of(
    tables, exact=("units:zone",), adjacency="worst-case", protect="member", budget=None, **units
):
    asked = Plan(
        [semidp.publish.TableRequest(names) for names in tables],
        [names if isinstance(names, str) else list(names) for names in exact],
        features=[AGES, SEX, TYPE, TENURE],
        nests=[semidp.Nest(["state", "zone"])] if any("zone" in names for names in tables) else [],
        adjacency=adjacency,
    )
    chosen = {"most": 6, **units}
    return with_units(asked, LinkedUnits("home", protect, **chosen)).with_budget(
        budget or semidp.Budget.zcdp(1)
    )


TABLES = [["zone", "sex", "age"], ["units:zone", "size", "type"]]


def released(plan, data=None, seed=3):
    persons, homes = homes_and_persons() if data is None else data
    return semidp.run(plan, LinkedData(persons, homes), SeededRandomness(seed))


@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
@pytest.mark.parametrize("protect", ["member", "unit"])
def test_persons_and_households_agree_in_every_zone(adjacency, protect):
    release = released(plan_of(TABLES, adjacency=adjacency, protect=protect, derived=["type"]))
    persons, homes = release["zone-sex-age"], release["units:zone-size-type"]
    assert release["units-zone-size-type"] is homes
    sizes = np.arange(1, 7)
    assert np.array_equal(homes.counts.sum(axis=2) @ sizes, persons.counts.sum(axis=(1, 2)))
    assert np.allclose(homes.estimate.sum(axis=2) @ sizes, persons.estimate.sum(axis=(1, 2)))
    assert persons.counts.min() >= 0
    assert persons.counts.sum() == release.scope.dataspace.n
    assert release.results[0].agreeing == (5, 5)
    assert isinstance(release.scope.dataspace, LinkedDataspace)


def test_a_folder_is_read_back_and_everything_in_it_follows(tmp_path):
    release = released(plan_of(TABLES, adjacency="exchange", derived=["type"]))
    release.save(tmp_path / "release")
    files = {file.name for file in (tmp_path / "release").iterdir()}
    assert {"zone-sex-age.csv", "units-zone-size-type.csv", "linked-measurements.csv"} <= files
    again = semidp.Release.load(tmp_path / "release")
    assert np.array_equal(
        again["units:zone-size-type"].counts, release["units:zone-size-type"].counts
    )
    document = json.loads((tmp_path / "release" / "release.json").read_text())
    found = recheck(again, document, tmp_path / "release")
    assert found.disagreements == ()
    assert again.other_adjacency_guarantee is not None
    page = (tmp_path / "release" / "report.html").read_text()
    assert page.count("Published counts: units by state by zone by size by type") == 1
    assert "How members and units agree" in page
    assert "does not protect" in page


def test_a_count_that_was_changed_is_found(tmp_path):
    release = released(plan_of(TABLES, derived=["type"]))
    table = release.results[0].units[0]
    # another type of as many units: all exact totals stay, and sizes agree with persons
    zone, size = np.argwhere(table.counts.sum(axis=2) > 0)[0]
    table.counts[zone, size] = table.counts[zone, size][::-1] + np.array([1, -1])
    release.save(tmp_path / "release")
    again = semidp.Release.load(tmp_path / "release")
    document = json.loads((tmp_path / "release" / "release.json").read_text())
    assert recheck(again, document, tmp_path / "release").disagreements
    table.counts[0, 0, 0] += 1
    release.save(tmp_path / "other")
    with pytest.raises(
        InputError, match="'units-zone-size-type' does not add up to the exact totals"
    ):
        semidp.Release.load(tmp_path / "other")


def test_plans_are_written_and_read():
    plan = plan_of(TABLES, exact=["units:zone", "sex"], derived=["type"], least=0)
    assert Plan.from_toml(plan.to_toml()) == plan
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.units is not None
    assert plan.units.to_json()["derived"] == ["type"]


def test_files_give_the_same_numbers_as_data_frames(tmp_path):
    persons, homes = homes_and_persons()
    paths = []
    for name, columns in (("persons", persons), ("homes", homes)):
        path = tmp_path / f"{name}.csv"
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    plan = plan_of(TABLES, derived=["type"])
    from_files = semidp.run(plan, LinkedData(*paths), SeededRandomness(3))
    assert np.array_equal(from_files.results[0].noisy, released(plan).results[0].noisy)


def test_a_ledger_is_charged_once_for_both_kinds(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.json", semidp.Budget.zcdp(2))
    plan = plan_of(TABLES, derived=["type"])
    persons, homes = homes_and_persons()
    options = semidp.RunOptions(randomness=SeededRandomness(1), ledger=ledger)
    release = semidp.run(plan, LinkedData(persons, homes), options)
    assert release.ledger is not None
    assert len(ledger.own_charges) == 1
    semidp.run(plan, LinkedData(persons, homes), options)
    with pytest.raises(BudgetExceeded, match="budget"):
        semidp.run(plan, LinkedData(persons, homes), options)


def changed(kind, **columns):
    persons, homes = homes_and_persons()
    data = {"persons": dict(persons), "homes": dict(homes)}
    data[kind] |= columns
    return data["persons"], data["homes"]


def _first(values, value):
    result = np.array(values, dtype=object)
    result[0] = value
    return result


PERSONS, HOMES = homes_and_persons()
BAD = {
    "names no unit": changed("persons", home=_first(PERSONS["home"], "elsewhere")),
    "names a unit twice": changed("homes", home=_first(HOMES["home"], "h1")),
    "missing values among the members": changed("persons", home=_first(PERSONS["home"], None)),
    "missing values among the units": changed("homes", home=_first(HOMES["home"], None)),
    "has no member": changed(
        "persons", home=np.where(PERSONS["home"] == "h0", "h1", PERSONS["home"])
    ),
    "more members than declared": changed(
        "persons", home=np.where(np.arange(len(PERSONS["home"])) < 9, "h1", PERSONS["home"])
    ),
    "another 'tenure' than its unit": changed(
        "persons", tenure=np.array(["own"] * len(PERSONS["home"]))
    ),
    "has a value that is not a declared level": changed(
        "homes", type=np.array(["castle"] * len(HOMES["home"]))
    ),
}


@pytest.mark.parametrize("said", BAD)
def test_records_that_contradict_the_link_are_refused_in_a_sentence(said, tmp_path):
    tables, exact = TABLES, ["units:zone"]
    if "tenure" in said:
        tables, exact = (
            [["zone", "sex"], ["units:zone", "size", "tenure"]],
            [("units:zone", "tenure")],
        )
    ledger = Ledger.create(tmp_path / "ledger.json", semidp.Budget.zcdp(2))
    plan = plan_of(tables, exact, derived=[] if "tenure" in said else ["type"], least=1, most=9)
    if "more members" in said or "no unit" in said or "missing" in said:
        plan = plan_of(tables, exact, derived=["type"], least=0)
    with pytest.raises(DataError) as refusal:
        semidp.run(plan, LinkedData(*BAD[said]), semidp.RunOptions(ledger=ledger))
    words = str(refusal.value)
    assert said in words or "level" in words
    assert "h1" not in words
    assert not ledger.own_charges


def test_what_is_not_built_is_refused_in_a_sentence():
    persons, homes = homes_and_persons()
    with pytest.raises(Refused, match="publish them exactly"):
        released(plan_of([["zone", "sex"], ["units:zone", "size", "tenure"]]))
    with pytest.raises(InputError, match="at least one table of members and one of units"):
        plan_of([["zone", "sex"]])
    with pytest.raises(InputError, match="pure epsilon"):
        plan_of(TABLES, budget=semidp.Budget.pure(1))
    with pytest.raises(Refused, match="is derived from the members"):
        released(plan_of([["zone", "type"], ["units:zone", "size"]], derived=["type"]))
    with pytest.raises(Refused, match="depends on members"):
        released(plan_of(TABLES, exact=["units:zone", "units:size"], derived=["type"]))
    with pytest.raises(InputError, match="two sources"):
        semidp.run(plan_of(TABLES, derived=["type"]), persons)
    with pytest.raises(InputError, match="0 or 1"):
        plan_of(TABLES, least=2)
    with pytest.raises(InputError, match="member or a unit"):
        plan_of(TABLES, protect="household")
    with pytest.raises(InputError, match="home"):
        semidp.run(plan_of(TABLES), LinkedData({"sex": ["f"]}, homes))


def test_standard_errors_and_intervals_are_true_after_the_agreement():
    persons, homes = homes_and_persons(60)
    plan = plan_of(
        [["zone", "sex"], ["units:zone", "size"]],
        adjacency="exchange",
        budget=semidp.Budget.zcdp("1/4"),
    )
    prepared = semidp.prepare(plan, LinkedData(persons, homes))
    (mechanism,), values = prepared.mechanisms, reveal(prepared.values[0])
    space, agreement, draws = mechanism.space, mechanism.agreement, 600
    truth = [agreement.residuals(*space.split(values.astype(float)))]
    noisy = values + mechanism.noises(draws, SeededRandomness(9))
    for place, kind in enumerate(space.kinds):
        view = kind.views[0]
        exact = sum_residuals(kind.residuals, truth[0][place], view)
        errors = []
        for one in noisy:
            parts = agreement.residuals(*space.split(one.astype(float)))
            errors.append(sum_residuals(kind.residuals, parts[place], view) - exact)
        variances = agreement.variances(place, 0)
        variance = kind.trim(variances, view)
        ratio = np.var(errors, axis=0) / variance
        assert abs(float(ratio.mean()) - 1) < 0.05
        assert np.abs(np.mean(errors, axis=0)).max() < 5 * float(np.sqrt(variance.max() / draws))
        half = kind.trim(LinkedIntervals(mechanism).compute_half_widths(place, variances), view)
        covered = float((np.abs(errors) <= half).mean())
        assert 0.94 < covered < 0.96
        # a twin whose errors are a tenth too small must be caught
        assert not 0.94 < float((np.abs(errors) <= 0.9 * half).mean()) < 0.96


def test_nothing_is_claimed_under_other_totals_or_other_numbers():
    release = released(plan_of(TABLES, derived=["type"]))
    with pytest.raises(Refused, match="not known here"):
        release.under(["sex"])
    with pytest.raises(Refused, match="not known here"):
        release.under([], 7)
    assert release.also_known() == ({}, 0)
    (mechanism,) = release.mechanisms
    with pytest.raises(Refused, match="no other number"):
        mechanism.under(Ball(7))
    other = release.other_adjacency_guarantee
    assert other is not None
    assert float(other.tradeoff.rho) < 1  # one member is exchanged, where any two were protected


@pytest.mark.parametrize(
    "told",
    [
        {"link": "home"},
        {"protect": "member"},
        {"least": 0},
        {"derived": ["type"]},
        {"aggregate": {"kids": "count(*)"}},
        {"quarters": {"tenure": ["rent"]}},
        {"top_code": {"size": 3}},
    ],
    ids=str,
)
def test_what_is_about_units_is_refused_without_them(told):
    with pytest.raises(InputError, match="works only with units="):
        semidp.release(
            {"sex": [*"ffm"]}, semidp.table("sex"), levels={"sex": ["f", "m"]}, rho=1, **told
        )


@pytest.mark.parametrize("linked_first", [False, True])
def test_members_alone_and_linked_members_are_not_added_up_in_any_order(tmp_path, linked_first):
    persons, homes = homes_and_persons()
    tenure = dict(zip(homes["home"], homes["tenure"], strict=True))
    alone = {"tenure": [tenure[home] for home in persons["home"]], "sex": persons["sex"]}
    request = semidp.publish.TableRequest(["tenure", "sex"], semidp.Budget.zcdp("1/2"))
    plain = Plan([request], [], features=[TENURE, SEX], adjacency=2)
    linked = plan_of([["tenure", "sex"], ["units:tenure", "size"]], ["units:tenure"])
    asked = [(plain, alone), (linked, LinkedData(persons, homes))]
    if linked_first:
        asked.reverse()
    ledger = Ledger.create(tmp_path / "ledger.json", semidp.Budget.zcdp(10))
    options = semidp.RunOptions(randomness=SeededRandomness(1), ledger=ledger)
    semidp.run(*asked[0], options)
    # The first says nothing of units, so that what both promise together is not known.
    with pytest.raises(Refused, match="use another ledger"):
        semidp.run(*asked[1], options)
    assert len(ledger.own_charges) == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("protect", ["member", "unit"])
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_a_second_linked_charge_keeps_whom_the_ledger_is_about(tmp_path, adjacency, protect):
    plan = plan_of(
        [["tenure", "sex"], ["units:tenure", "size"]],
        ["units:tenure"],
        adjacency=adjacency,
        protect=protect,
    )
    ledger = Ledger.create(tmp_path / "ledger.json", semidp.Budget.zcdp(10))
    options = semidp.RunOptions(randomness=SeededRandomness(1), ledger=ledger)
    for count in (1, 2):
        release = semidp.run(plan, LinkedData(*homes_and_persons()), options)
        account = ledger.account()
        assert len(account.charges) == count
        assert account.adjacency == release.guarantee.adjacency
        assert account.semi_first().implied_rho() == count


def test_a_workbook_and_the_files_of_exact_totals(tmp_path):
    folder = tmp_path / "out"
    plan = plan_of(TABLES, exact=("units:zone", "sex"), protect="unit")
    released(plan).save(folder, form="xlsx")
    again = semidp.Release.load(folder)
    document = json.loads((folder / "release.json").read_text())
    assert recheck(again, document, folder).disagreements == ()
    persons, homes = homes_and_persons()
    sexes = (folder / "exact-sex.csv").read_text().splitlines()
    assert sexes == ["sex,count", *(f"{sex},{(persons['sex'] == sex).sum()}" for sex in "fm")]
    zones = (folder / "exact-units-state-zone.csv").read_text().splitlines()
    assert zones[0] == "state,zone,count"
    assert sum(int(line.rpartition(",")[2]) for line in zones[1:]) == len(homes["home"])
    # another number in such a file is found
    (folder / "exact-sex.csv").write_text("sex,count\nf,1\nm,2\n")
    with pytest.raises(InputError, match="was changed after"):
        semidp.Release.load(folder)
    # even where the list of files is changed to match
    document["files"]["exact-sex.csv"] = digest(folder / "exact-sex.csv")
    found = recheck(again, document, folder).disagreements
    assert any("exact-sex.csv" in sentence for sentence in found)

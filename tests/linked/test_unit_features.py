"""Features of units that are computed from their members: what a plan may ask for, and what it may
not.
"""

import json

import numpy as np
import pytest
from attrs import evolve

import semidp
from semidp.errors import DataError, InputError, SchemaError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.plan import LinkedUnits, Plan
from semidp.publish.product_estimates import sum_residuals
from semidp.publish.sources.duck_files import aggregated_columns
from semidp.publish.sources.linked_records import Joining, LinkedData, open_linked
from semidp.publish.survey import computed_features, with_units
from tests.linked.test_command import command, files  # noqa: F401 - a fixture
from tests.linked.test_release import AGES, SEX, homes_and_persons

CHILDREN = semidp.Feature("children", ["0", "1", "2", "3", "4"])
COUNTED = "count(*) filter (where age < 18)"


def plan_of(
    aggregates,
    features=(CHILDREN,),
    tables=(["zone", "sex"], ["units:zone", "size", "children"]),
    read_as=(),
    **units,
):
    features = [AGES, SEX, *features]
    requests = [semidp.publish.TableRequest(names) for names in tables]
    asked = Plan(requests, ["units:zone"], features, read_as=read_as)
    computed = computed_features(aggregates, features)
    linked = LinkedUnits("home", "member", **{"most": 6, **units}, features=computed)
    return with_units(asked, linked).with_budget(semidp.Budget.zcdp(1))


def prepared(plan, data=None):
    return semidp.prepare(plan, LinkedData(*(homes_and_persons() if data is None else data)))


def counted_children(persons, homes):
    zones = sorted(set(homes["zone"]))
    table = np.zeros((len(zones), 6, 5), dtype=int)
    for home, zone in zip(homes["home"], homes["zone"], strict=True):
        inside = persons["home"] == home
        children = int((persons["age"][inside] < 18).sum())
        table[zones.index(zone), int(inside.sum()) - 1, children] += 1
    return table


def test_an_aggregate_is_counted_as_by_hand():
    persons, homes = homes_and_persons()
    ready = prepared(plan_of({"children": COUNTED}))
    values, (mechanism,) = reveal(ready.values[0]), ready.mechanisms
    units = mechanism.space.units
    _, of_units = mechanism.agreement.residuals(*mechanism.space.split(values.astype(float)))
    (table,) = [
        units.restore_full_table(sum_residuals(units.residuals, of_units, view), view)
        for view in units.views
    ]
    assert np.allclose(table, counted_children(persons, homes))
    assert "children" in ready.scope.dataspace.link.derived
    # it costs what a declared type costs: two members move, and four units are composed otherwise
    assert ready.scope.dataspace.reach.derived_units == 4


def test_files_compare_as_numbers_what_data_frames_do(files):  # noqa: F811
    plan = plan_of(
        {"children": COUNTED, "oldest": "max(age)"},
        (CHILDREN, semidp.Feature("oldest", bins=[0, 9, 50, "inf"])),
        read_as={"age": "integer"},
    )
    with pytest.raises(InputError, match="does not say whether 'age' holds numbers or text"):
        semidp.prepare(
            evolve(plan, read_as={}), LinkedData(files / "persons.csv", files / "homes.csv")
        )
    from_frames = semidp.run(plan, LinkedData(*homes_and_persons()), SeededRandomness(3))
    from_files = semidp.run(
        plan, LinkedData(files / "persons.csv", files / "homes.csv"), SeededRandomness(3)
    )
    assert np.array_equal(from_files.results[0].noisy, from_frames.results[0].noisy)


def test_a_unit_without_members_has_the_value_of_no_record():
    persons, homes = homes_and_persons()
    kept = persons["home"] != "h0"
    data = ({name: column[kept] for name, column in persons.items()}, homes)
    ready = prepared(plan_of({"children": COUNTED}, least=0), data)
    assert ready.scope.dataspace.link.sizes[0] == "0"
    with pytest.raises(DataError, match="missing"):
        prepared(plan_of({"children": "sum(1) filter (where age < 18)"}, least=0), data)


def test_plans_have_unit_features():
    plan = plan_of({"children": COUNTED})
    document = plan.to_json()
    assert document["unit_feature"] == [
        {"name": "children", "levels": list("01234"), "aggregate": COUNTED}
    ]
    assert all(entry["name"] != "children" for entry in document["feature"])
    assert Plan.from_toml(plan.to_toml()) == plan
    assert Plan.from_json(json.loads(json.dumps(document))) == plan


def test_a_release_says_that_nothing_is_promised_about_it(tmp_path):
    plan = plan_of({"children": COUNTED})
    release = semidp.run(plan, LinkedData(*homes_and_persons()), SeededRandomness(2))
    release.save(tmp_path / "release")
    assert (
        "Nothing is promised about children of units"
        in (tmp_path / "release" / "report.html").read_text()
    )
    again = semidp.Release.load(tmp_path / "release")
    assert np.array_equal(
        again["units:zone-size-children"].counts, release["units:zone-size-children"].counts
    )


def test_values_outside_the_levels_are_refused_before_anything_is_charged(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.json", semidp.Budget.zcdp(2))
    plan = plan_of({"children": "max(age)"})
    with pytest.raises(DataError) as refusal:
        semidp.run(plan, LinkedData(*homes_and_persons()), semidp.RunOptions(ledger=ledger))
    assert "children" in str(refusal.value)
    # the sentence names the declared levels and no other number
    assert not set("56789") & set(str(refusal.value))
    assert not ledger.own_charges


NO_AGGREGATES = {
    "age": "aggregates nothing",
    "1": "aggregates nothing",
    "abs(age)": "aggregates nothing",
    "count(*) + age": "one expression with a value a unit",
    "first(age)": "no order",
    "mode(age)": "no order",
    "string_agg(sex, ',')": "no order",
    "count(*) + random()": "no order",
    "count(*) + (select count(*) from members)": "one expression",
    "count(*) over ()": "one expression",
    "count(*) from homes --": "one expression",
    "count(*)) from members; drop table members; select (1": "one expression",
    "max(home)": "not a column of members besides the link",
    "max(agee)": "did you mean",
    "max(members.age)": "one expression",
    "count(*), 1": "one expression",
    "max(": "one expression",
    "sum(sex)": "reads 'sex' as a number",
    "main.count(*)": "one expression",
    "max(read_text('x.csv'))": "one expression|no order",
    "max(age) filter (where age < 'x' || random())": "no order",
    "count(*) filter (where age < " + "1 + " * 4000 + "1)": "characters",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("aggregate", NO_AGGREGATES)
def test_what_is_no_aggregate_of_the_members_of_one_unit_is_refused(aggregate):
    with pytest.raises(InputError, match=NO_AGGREGATES[aggregate]) as refusal:
        prepared(plan_of({"children": aggregate}))
    assert str(refusal.value).count("\n") == 0


def test_wrong_plans_are_one_sentence():
    with pytest.raises(InputError, match="needs the levels"):
        plan_of({"children": COUNTED}, features=())
    with pytest.raises(InputError, match="call an aggregate otherwise"):
        plan_of({"size": "count(*)"}, features=(semidp.Feature("size", ["1", "2"]),))
    document = plan_of({"children": COUNTED}).to_json()
    del document["units"], document["unit_table"]
    with pytest.raises(InputError, match="give \\[units\\]"):
        Plan.from_json(document)
    with pytest.raises(InputError, match="an aggregate"):
        Plan.from_json({"units": {}, "unit_feature": [{"name": "a", "levels": ["1"]}]})
    with pytest.raises((InputError, SchemaError), match="aggregate"):
        Plan.from_json(
            {"units": {}, "unit_feature": [{"name": "a", "levels": ["1"], "aggregate": 3}]}
        )
    persons, homes = homes_and_persons()
    homes["children"] = np.zeros(len(homes["home"]), dtype=int)
    with pytest.raises(InputError, match="of their own"):
        prepared(plan_of({"children": COUNTED}), (persons, homes))


def test_columns_are_found_in_any_capitals():
    assert aggregated_columns(
        {"a": "count_if(AGE < 3) + max(Sex = 'f')"}, ["age", "Sex", "other"]
    ) == ["age", "Sex"]


def test_the_command_takes_aggregates(files, capsys):  # noqa: F811
    asked = (
        "--units homes.csv --link home --protect member --most-members 6 --table zone,sex --table"
        " units:zone,size,children --exact units:zone --levels sex=f,m --levels children=0,1,2,3,4"
        " --rho 1 "
    )
    words = f"{asked} --set 'aggregate=children={COUNTED}' --out release"
    code, _, err = command(words, capsys)
    assert code == 0, err
    plan = json.loads((files / "release" / "release.json").read_text())["plan"]
    assert plan["unit_feature"][0]["aggregate"] == COUNTED
    code, _, err = command(f"{asked} --set aggregate=children --out other", capsys)
    assert code == 2
    assert "NAME=" in err


def derived(folder, aggregate, others, declared):
    """What an aggregate makes of the first of two homes; None where it is refused."""
    lines = ["home,x", "1,30", "1,9", "1,900719925.5", "1,0.1", *(f"2,{x}" for x in others)]
    (folder / "persons.csv").write_text("\n".join(lines) + "\n")
    (folder / "homes.csv").write_text("home,zone\n1,a\n2,b\n")
    data = LinkedData(folder / "persons.csv", folder / "homes.csv")
    aggregates = {"made": aggregate}
    joining = Joining("home", 1, 9, aggregates=aggregates, declared=declared)
    try:
        with open_linked(data, joining, ["zone"]) as both:
            return dict(both.units.paths(["zone", "made"], null_level="none"))["a"]
    except (InputError, DataError):
        return None


AGGREGATES = {
    "sum(x)": "900719964.6",
    "max(x)": None,
    "max(x) > 30": "true",
    "min(x) = 0.1": "true",
    "avg(x) < 30": "false",
    "median(x)": "19.5",
    "count(x)": "4",
    "count_if(x < 10)": "2",
    "count(*) FILTER (WHERE x = '9')": "1",
    "bool_or(x = 900719925.50)": "true",
}


@pytest.mark.few(3)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_no_member_of_another_unit_decides_how_members_are_read(tmp_path, aggregate):
    """A column became text or numbers by all its values: max(x) was 9 or 900719925.5."""
    answers = {}
    for declared in ({}, {"x": "decimal"}):
        for others in (["52"], ["52.5"], ["n/a"], ["007"]):
            found = derived(tmp_path, aggregate, others, declared)
            if found is not None:
                answers.setdefault(str(declared), set()).add(found)
    assert answers.get("{}", {None}) == {AGGREGATES[aggregate]}
    assert all(len(values) == 1 for values in answers.values())

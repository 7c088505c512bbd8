"""Microdata: one release in two phases, whose bins follow from what was published."""

import itertools
import json
import subprocess
import sys
import tracemalloc
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import semidp as sd
from semidp import Budget, Feature, InputError, Plan, RunOptions
from semidp.cli import run as run_command
from semidp.errors import Refused
from semidp.inference.records import shrinkage
from semidp.inference.records.record_knowledge import estimate_errors
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, phases
from semidp.publish.level_bins import Microdata, count_bins, group_neighbors, pool_rare_levels
from semidp.publish.written_values import read_rules


def people(records=2000, seed=1):
    source = np.random.default_rng(seed)
    age = source.integers(0, 40, records)
    job = np.where(age < 12, "none", source.choice(["farm", "mine", "shop", "sea"], records))
    sex = source.choice(["f", "m"], records)
    return {"age": age.astype(str), "job": job, "sex": sex}


FEATURES = [
    Feature("age", [str(age) for age in range(40)]),
    Feature("job", ["none", "farm", "mine", "shop", "sea"]),
    Feature("sex", ["f", "m"]),
]


def plan_with(exact=(), budget=None, adjacency="worst-case", **more):
    asked = Microdata(["age", "job", "sex"], budget or Budget.zcdp("0.1"), ordered=["age"])
    return Plan([], exact, FEATURES, adjacency=adjacency, microdata=asked, **more)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("exact", "adjacency", "budget"),
    [
        ((), "worst-case", Budget.zcdp("0.1")),
        (["sex"], "exchange", Budget.gdp(1)),
        (["sex", "job"], "worst-case", Budget.approximate(1, "1e-6")),
        (["age", "job", "sex"], "exchange", Budget.zcdp("0.1")),
    ],
)
def test_a_release_is_charged_once_and_holds_what_it_states(tmp_path, exact, adjacency, budget):
    ledger = sd.Ledger.create(tmp_path / "ledger.json", Budget.zcdp(10))
    options = RunOptions(ledger=ledger, out=tmp_path / "release")
    done = sd.run(plan_with(exact, budget, adjacency), people(), options)
    (charge,) = ledger.own_account().charges
    assert charge.is_for(done.guarantee)
    stated = done.guarantee.tradeoff
    if budget.rho is not None:
        assert stated.rho == budget.rho
    else:
        # Both phases are Gaussian: their squares add up to no more than the budget holds.
        epsilon = budget.epsilon or 1
        assert stated.delta(epsilon) <= float(budget.tradeoff().delta(epsilon))
    loaded = sd.Release.load(tmp_path / "release")
    assert loaded.plan == done.plan
    records = loaded.records(randomness=SeededRandomness(1), seconds=2)
    assert set(records.columns) == {"age", "job", "sex"}
    made, truth = records.to_dict(), people()
    for name in exact:
        assert sorted(made[name]) == sorted(truth[name])


def test_the_independent_checker_confirms_it(tmp_path):
    sd.run(plan_with(["sex"]), people(), RunOptions(out=tmp_path / "release"))
    program = Path(sd.__file__).parent / "checker" / "semidp_check.py"
    found = subprocess.run(
        [sys.executable, program, tmp_path / "release"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0
    assert found.stdout.startswith("confirmed")


def test_releases_with_other_bins_are_not_combined():
    one, other = (sd.run(plan_with(["sex"]), people(), SeededRandomness(at)) for at in (1, 2))
    assert one.plan.features != other.plan.features
    with pytest.raises(InputError, match="other bins of 'age': the bins of microdata follow"):
        sd.combine(one, other)


def test_nothing_is_claimed_of_other_datasets_than_were_promised(tmp_path):
    """Bins that noise made say nothing of what other bins would cost under other totals."""
    done = sd.run(plan_with(["sex"]), people(), SeededRandomness(1))
    assert done.other_adjacency_guarantee is None
    assert done.also_known()[0] == {}
    prepared = sd.prepare(plan_with(["sex"]), people())
    assert prepared.other_adjacency_guarantee is prepared.naive_tradeoff is None
    with pytest.raises(Refused, match="the bins of these microdata follow from noise"):
        done.under([])
    plan = Plan([TableRequest(["job", "sex"], Budget.zcdp(1))], ["job"], FEATURES)
    table = sd.run(plan, people(), SeededRandomness(2))
    both = sd.combine(done, table)
    assert both.stated is None
    assert "its query was not recorded" in both.scope.warnings[-1]
    done.save(tmp_path / "done")
    assert run_command(["guarantee", str(tmp_path / "done")]) == 0
    assert run_command(["show", str(tmp_path / "done")]) == 0


def test_a_release_whose_bins_cost_nothing_still_states_what_was_charged(tmp_path):
    few = {"age": ["0", "1", "2", "2"], "sex": ["f", "m", "f", "m"]}
    features = [Feature("age", "012"), Feature("sex", "fm")]
    asked = Microdata(["age", "sex"], Budget.zcdp("0.05"), ordered=["age"])
    plan = Plan([], ["sex"], features, adjacency="exchange", microdata=asked)
    ledger, folder = sd.Ledger.create(tmp_path / "ledger.json", Budget.zcdp(1)), tmp_path / "done"
    options = RunOptions(randomness=SeededRandomness(9), ledger=ledger, out=folder)
    done = sd.run(plan, few, options)
    assert [mechanism.name for mechanism in done.mechanisms] == ["discrete gaussian", "no noise"]
    assert done.guarantee.tradeoff.rho == asked.budget.rho
    assert ledger.own_account().charges[0].is_for(done.guarantee)
    assert run_command(["show", str(folder)]) == run_command(["check", str(folder)]) == 0
    document = json.loads((folder / "release.json").read_text())
    document |= {"guarantee": {"kind": "zcdp", "rho": "0.0001"}, "epsilon": 0.1}
    (folder / "release.json").write_text(json.dumps(document))
    assert run_command(["show", str(folder)]) == 1
    assert run_command(["check", str(folder)]) == 2


def test_the_twin_of_a_charge_is_another_charge(tmp_path):
    """A charge for other totals, or another budget, is not taken for that of a release."""
    ledger = sd.Ledger.create(tmp_path / "ledger.json", Budget.zcdp(10))
    sd.run(plan_with(["sex"]), people(), RunOptions(ledger=ledger, out=tmp_path / "one"))
    (charge,) = ledger.own_account().charges
    other = sd.run(plan_with(["sex"]), people(seed=2))
    twice = sd.run(plan_with(["sex"], Budget.zcdp("0.2")), people())
    assert not charge.is_for(other.guarantee)
    assert not charge.is_for(twice.guarantee)


def test_bins_follow_from_what_was_published():
    """Two datasets with the same noisy counts get the same bins: only those are looked at."""
    done = sd.run(plan_with(), people(), SeededRandomness(1))
    again = sd.run(plan_with(), people(), SeededRandomness(1))
    assert done.plan == again.plan
    assert done.plan.features != sd.run(plan_with(), people(), SeededRandomness(2)).plan.features


def test_bins_of_neighbors_and_of_rare_levels():
    counts = np.array([50.0, 1, 2, 1, 40, 3, 3])
    assert group_neighbors(counts, 3) == sorted(group_neighbors(counts, 3))
    placed = pool_rare_levels(counts, 3, 10.0)
    assert placed[0] != placed[4]
    assert len({placed[at] for at in (1, 2, 3, 5, 6)}) == 1
    order = np.random.default_rng(1).permutation(7)
    moved = pool_rare_levels(counts[order], 3, 10.0)
    assert len(set(moved)) == len(set(placed))
    assert count_bins(1000, 1.0) > count_bins(1000, 10.0)


def test_rules_become_structural_zeros():
    start, end = (Feature(name, ["1", "2", "3"]) for name in ("start", "end"))
    zeros = read_rules(["start <= end"], [start, end])
    forbidden = {(z["start"][0], e) for z in (zero.to_json() for zero in zeros) for e in z["end"]}
    assert forbidden == {("2", "1"), ("3", "1"), ("3", "2")}
    retired = Feature("retired", ["no", "yes"])
    age = Feature("age", bins=[0, 45, 55, 120])
    (zero,) = read_rules(["retired implies age >= 50"], [retired, age])
    # Somebody of 45 to 55 may be 50 or older.
    assert zero.to_json() == {"age": [age.levels[0]], "retired": ["yes"]}
    for wrong, words in (
        ("age", "not understood"),
        ("retired ~ 1", "not understood"),
        ("age =< retired", "not understood"),
        ("town = 1 implies age >= 50", "names 'town'"),
        ("age >= 0 implies age <= 3", "one column twice"),
        ("age <= grade", "names 'grade'"),
        ("age >= 50", "write A implies B"),
        ("age <= age", "with itself"),
    ):
        with pytest.raises(InputError, match=words):
            read_rules([wrong], [retired, age])
    with pytest.raises(InputError, match="rules are a list"):
        read_rules("retired implies age >= 50", [retired, age])


def test_records_keep_rules_and_data_that_break_one_are_refused():
    data = people()
    levels = {feature.name: feature.levels for feature in FEATURES}
    settings = {"levels": levels, "exact": ["sex"], "rho": 1, "ordered": ["age"]}
    done = sd.microdata(data, rules=["age < 12 implies job = none"], **settings)
    made = done.records(seconds=3).to_dict()
    pairs = zip(made["age"], made["job"], strict=True)
    assert all(job == "none" for age, job in pairs if int(age) < 12)
    with pytest.raises(sd.SemidpError, match="contradict a rule"):
        sd.microdata(data, rules=["age < 20 implies job = none"], **settings)


def test_records_with_rules_are_near_their_tables(monkeypatch):
    """Targets keep the rules, too: without that, records are pulled to where none may be."""
    draw = np.random.default_rng(2)
    start = draw.integers(1, 13, 2400)
    end = np.minimum(12, start + draw.integers(0, 2, 2400))
    data = {"start": start, "end": end, "sex": draw.choice(["f", "m"], 2400)}
    levels = {"start": range(1, 13), "end": range(1, 13), "sex": ["f", "m"]}
    settings = {"levels": levels, "rules": ["start <= end"], "ordered": ["start", "end"]}
    done = sd.microdata(data, rho="0.2", randomness=SeededRandomness(1), **settings)

    def find_farthest():
        made = done.records(randomness=SeededRandomness(1), seconds=60)
        return max(distance.rms for distance in made.distances)

    assert find_farthest() < 1.7
    monkeypatch.setattr(shrinkage, "forbidden_cells", lambda *_: ())
    assert find_farthest() > 2


def test_what_is_not_built_is_refused():
    with pytest.raises(InputError, match="no pure epsilon"):
        sd.microdata(people(), levels_from_data=True, epsilon=1)
    with pytest.raises(InputError, match="no setting"):
        sd.microdata(people(), levels_from_data=True, rho=1, levles={})
    with pytest.raises(InputError, match="did you mean 'rules'"):
        sd.microdata(people(), levels_from_data=True, rho=1, rule=["age"])
    with pytest.raises(InputError, match="target= are a list"):
        sd.microdata(people(), levels_from_data=True, rho=1, target="age")
    with pytest.raises(InputError, match="two columns"):
        sd.microdata(people(), ["age"], levels_from_data=True, rho=1)
    with pytest.raises(InputError, match="leave linked units"):
        sd.microdata(people(), rho=1, units="homes.csv", link="home", most_members=4)


def test_linked_files_are_refused_in_a_sentence(capsys):
    for option in ("--units", "--link"):
        words = ["microdata", "people.csv", option, "homes.csv", "--rho", "1", "--out", "made.csv"]
        assert run_command(words) != 0
        assert "records of one file: leave linked units out" in capsys.readouterr().err


def test_what_the_second_phase_would_refuse_is_refused_before_the_charge(tmp_path):
    ledger = sd.Ledger.create(tmp_path / "ledger.json", Budget.zcdp(10))
    levels = {feature.name: feature.levels for feature in FEATURES}
    settings = {"rho": 1, "ledger": ledger, "ordered": ["age"]}
    nobody = {name: [] for name in levels}
    with pytest.raises(sd.SemidpError, match="no records"):
        sd.microdata(nobody, levels=levels, **settings)
    data = people(50)
    clash = {"age": data["age"], "age_bins": data["job"]}
    of_clash = {"age": levels["age"], "age_bins": levels["job"]}
    with pytest.raises(InputError, match="rename that column"):
        sd.microdata(clash, levels=of_clash, **settings)
    many = {"age": range(20_000), "job": range(10_000)}
    with pytest.raises(InputError, match="too many to count"):
        sd.microdata({"age": ["1"], "job": ["1"]}, levels=many, **settings)
    assert not ledger.own_account().charges


def test_the_second_phase_is_a_function_of_what_the_first_published():
    """Data with the same one-way counts and the same random words get the same bins and noise,
    whatever their pairs are; data with other counts do not, so that the test can fail.
    """
    data = people()
    shuffled = {**data, "job": np.random.default_rng(3).permutation(data["job"])}
    one, other = (
        sd.run(plan_with(["sex"]), each, SeededRandomness(1)) for each in (data, shuffled)
    )
    assert one.plan == other.plan
    assert one.guarantee.tradeoff == other.guarantee.tradeoff
    assert any(
        not np.array_equal(first.estimate, second.estimate)
        for first, second in zip(one.tables, other.tables, strict=True)
    )
    older = {**data, "age": np.where(data["age"] < "2", "39", data["age"])}
    assert sd.run(plan_with(["sex"]), older, SeededRandomness(1)).plan != one.plan


def test_a_run_killed_between_the_phases_is_resumed_and_charged_once(tmp_path, monkeypatch):
    data = people(300)
    lines = ["age,job,sex", *(",".join(row) for row in zip(*data.values(), strict=True))]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    ledger = tmp_path / "ledger.json"
    sd.Ledger.create(ledger, Budget.zcdp(10))
    words = ["microdata", str(tmp_path / "people.csv"), "--levels-from-data", "--rho", "1"]
    words += ["--ledger", str(ledger), "--out", str(tmp_path / "made.csv"), "--quiet"]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(phases.PairsToCome, "prepare_pairs", die)
        assert run_command(words) != 0
    release = str(tmp_path / "made_release")
    assert not Path(release).exists()
    resumed = ["resume", release, str(tmp_path / "people.csv"), "--ledger", str(ledger), "--quiet"]
    assert run_command(resumed) == 0
    (charge,) = sd.Ledger(ledger).own_account().charges
    assert charge.is_for(sd.Release.load(release).guarantee)


def test_the_report_says_how_good_records_are():
    done = sd.run(plan_with(["sex"]), people(), SeededRandomness(1))
    page = done.report_html()
    assert "How good is it?" in page
    errors = estimate_errors(done)
    assert set(errors.columns) == {"age", "job"}
    assert set(errors.pairs) == {("age", "job"), ("age", "sex"), ("job", "sex")}
    assert ("age", "job") not in errors.weak
    less = estimate_errors(sd.run(plan_with(["sex"], Budget.zcdp(10)), people()))
    assert sum(less.pairs.values()) < 0.5 * sum(errors.pairs.values())


def test_errors_of_three_columns_are_those_of_records_if_pairs_say_all():
    """Within a third over three draws. If pairs leave few combinations, records are closer than
    stated; a parity, which no pair shows, is farther off.
    """
    names, stated, apart = ["x", "y", "z"], defaultdict(list), defaultdict(list)
    draw = np.random.default_rng(1)
    x, y, noise = draw.integers(0, 6, 4000), draw.integers(0, 6, 4000), draw.integers(0, 2, 4000)
    many, others = draw.binomial(5, 0.3, (2, 4000))
    features = [Feature(name, [*"012345"]) for name in names]
    kinds = {
        "chain": (x, (x + many + others) % 6, (x + many) % 6),
        "few": (x, (y + (x + 2 * noise) * noise) % 6, (x + 2 * noise) % 6),
        "parity": (x, y, (x + y) % 6),
    }
    for seed, (kind, columns) in itertools.product(range(3), kinds.items()):
        data = {name: column.astype(str) for name, column in zip(names, columns, strict=True)}
        asked = Microdata(names, Budget.zcdp(1))
        done = sd.run(Plan([], [], features, microdata=asked), data, SeededRandomness(seed))
        made = done.records(randomness=SeededRandomness(seed), seconds=20).to_dict()
        count = [Counter(zip(*each.values(), strict=True)) for each in (data, made)]
        wrong = (count[0] - count[1]) + (count[1] - count[0])
        apart[kind].append(sum(wrong.values()) / 4000)
        stated[kind].append(estimate_errors(done).three_columns)
    assert 0.67 < np.mean(stated["chain"]) / np.mean(apart["chain"]) < 1.5
    assert np.mean(stated["few"]) > np.mean(apart["few"])
    assert np.mean(apart["parity"]) > 1.5 * np.mean(stated["parity"])


@pytest.mark.long
def test_errors_that_the_report_estimates_are_those_of_the_records():
    """On average over draws, within a third; at another budget they are others."""
    truth, estimated = [], []
    data = people(3000)
    for seed in range(12):
        done = sd.run(plan_with(["sex"], Budget.zcdp("0.5")), data, SeededRandomness(seed))
        made = done.records(randomness=SeededRandomness(seed), seconds=20).to_dict()
        count = [Counter(zip(each["job"], each["sex"], strict=True)) for each in (data, made)]
        apart = (count[0] - count[1]) + (count[1] - count[0])
        truth.append(sum(apart.values()) / 3000)
        estimated.append(estimate_errors(done).pairs["job", "sex"])
    assert 0.67 < np.mean(estimated) / np.mean(truth) < 1.5
    assert not 0.67 < 3 * np.mean(estimated) / np.mean(truth) < 1.5


def test_the_first_phase_measures_what_gets_bins():
    """Levels in order get a share for spreading records, others one for as many as may be rare."""
    columns = [*"abcde"]
    sizes = dict(zip(columns, [2, 3, 80, 80, 2], strict=True))
    features = [Feature(name, [str(at) for at in range(size)]) for name, size in sizes.items()]
    data = {name: np.arange(2000) % size for name, size in sizes.items()}
    shares = {}
    for rho in ("0.1", 300, 10**6):
        asked = Microdata(columns, Budget.zcdp(rho), ordered=["c"])
        done = sd.run(Plan([], [], features, microdata=asked), data)
        alone = [request for request in done.plan.requests if len(request.features) == 1]
        shares[rho] = {each.features[0]: each.budget.rho / asked.budget.rho for each in alone}
    assert set(shares["0.1"]) == {"c", "d"}
    assert 0.01 < shares["0.1"]["d"] < shares["0.1"]["c"]
    # With less noise hardly a level can be rare, and with little no column gets bins.
    assert set(shares[300]) == {"c"}
    assert shares[10**6] == {}


def test_pairs_keep_most_of_a_budget_that_few_columns_share():
    """Two columns of many levels, ordered or not, leave something for their one pair."""
    features = [Feature(name, [str(at) for at in range(300)]) for name in "ab"]
    data = {name: np.arange(600) % 300 for name in "ab"}
    for ordered in ([], ["a"], ["a", "b"]):
        asked = Microdata([*"ab"], Budget.zcdp(1), ordered=ordered)
        done = sd.run(Plan([], [], features, microdata=asked), data, SeededRandomness(1))
        spent = [request.budget.rho for request in done.plan.requests]
        assert sum(spent) == 1
        assert 0.1 < spent[-1] < 0.9


def test_levels_that_noise_hides_get_little():
    """More levels than records: to measure them well is out of reach, and pairs keep the budget."""
    features = [Feature("income", [str(at) for at in range(3000)]), *FEATURES]
    data = {**people(), "income": (np.arange(2000) % 3000).astype(str)}
    asked = Microdata(["income", "age", "job", "sex"], Budget.zcdp(1), ordered=["income", "age"])
    done = sd.run(Plan([], [], features, microdata=asked), data, SeededRandomness(1))
    assert 0.3 < done.plan.requests[-1].budget.rho < 0.9


def test_numbers_without_an_order_are_pointed_out():
    settings = {"rho": 1, "levels_from_data": True}
    done = sd.microdata(people(300), **settings)
    assert any(words.startswith("The levels of age are numbers") for words in done.scope.warnings)
    assert not sd.microdata(people(300), ordered=["age"], **settings).scope.warnings


def test_columns_of_many_bins_take_little_memory():
    """Each level lies in one bin or between two: no table has a cell for each level and bin."""
    levels, bins = 40_000, 20_000
    groups = np.arange(levels) // 2
    counts = np.ones(levels), np.full(3, levels / 3)
    coarse = np.full((bins, 3), 2 / 3)
    tracemalloc.start()
    fine = shrinkage.spread_pair(
        coarse, (groups, np.arange(3)), counts, (True, False), np.full((levels, 3), True)
    )
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert np.allclose(fine, 1 / 3)


def test_several_records_of_a_person_are_protected_together():
    data = people(500) | {"who": [f"p{number // 2}" for number in range(500)]}
    levels = {feature.name: feature.levels for feature in FEATURES}
    one = sd.microdata(data, ["age", "job", "sex"], levels=levels, rho=1)
    both = sd.microdata(data, ["age", "job", "sex"], levels=levels, rho=1, id="who", most=2)
    assert both.scope.adjacency.a == 2 * one.scope.adjacency.a


def test_shares_of_the_phases_add_up():
    done = sd.run(plan_with(["sex"]), people(), SeededRandomness(1))
    spent = sum((request.budget.rho for request in done.plan.requests), Fraction(0))
    assert spent == Fraction(1, 10)


def test_the_command_writes_records_and_release(tmp_path):
    lines = ["age,job,sex"]
    data = people(300)
    lines += [",".join(row) for row in zip(*data.values(), strict=True)]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "made.csv"
    words = ["microdata", str(tmp_path / "people.csv"), "--exact", "sex", "--levels-from-data"]
    words += ["--rho", "1", "--ordered", "age", "--out", str(out), "--seconds", "2", "--quiet"]
    ended = subprocess.run([sys.executable, "-m", "semidp", *words], check=False)
    assert ended.returncode == 0
    assert len(out.read_text().splitlines()) == 301
    about = json.loads((tmp_path / "made.about.json").read_text())
    assert about["records"] == 300
    assert (tmp_path / "made_release" / "release.json").exists()


@pytest.mark.long
@pytest.mark.parametrize("exact", [["sex"], ["age"]])
def test_show_finds_nothing_wrong_wherever_the_exact_column_stands(tmp_path, exact):
    """The order of the columns is that of the data, whatever is exact."""
    done = sd.microdata(
        people(300), exact=exact, rho=1, levels_from_data=True, out=tmp_path / "made"
    )
    assert done.private
    assert run_command(["show", str(tmp_path / "made")]) == 0


def test_errors_of_more_levels_than_records_are_those_of_the_records():
    """Nothing exceeds 200%, and records keep the bins that pairs are measured on."""
    draw = np.random.default_rng(1)
    levels = [str(number) for number in range(4000)]
    features = [Feature("code", levels), Feature("kind", [*"abc"])]
    code = np.minimum(draw.geometric(0.002, 2000), 4000) - 1
    data = {"code": code.astype(str), "kind": draw.choice([*"abc"], 2000)}
    asked = Microdata(["code", "kind"], Budget.zcdp(1), ordered=["code"])
    done = sd.run(Plan([], [], features, microdata=asked), data, SeededRandomness(1))
    (feature,) = [one for one in done.plan.features if "code" in one.names]
    bins = {path[-1]: path[0] for path in feature.paths()}
    made = done.records(randomness=SeededRandomness(1), seconds=20).to_dict()
    apart = {}
    for name, place in (("column", dict(zip(levels, levels, strict=True))), ("pair", bins)):
        count = []
        for each in (data, made):
            kinds = each["kind"] if name == "pair" else [""] * 2000
            count.append(
                Counter((place[at], kind) for at, kind in zip(each["code"], kinds, strict=True))
            )
        wrong = (count[0] - count[1]) + (count[1] - count[0])
        apart[name] = sum(wrong.values()) / 2000
    errors = estimate_errors(done)
    assert 0.67 < errors.columns["code"] / apart["column"] < 1.5
    assert 0.67 < errors.pairs["code", "kind"] / apart["pair"] < 1.5
    few = {name: values[:30] for name, values in data.items()}
    loud = Microdata(["code", "kind"], Budget.zcdp("0.1"), ordered=["code"])
    noisy = estimate_errors(sd.run(Plan([], [], features, microdata=loud), few))
    assert max(*noisy.columns.values(), *noisy.pairs.values()) <= 2


def test_intervals_of_bins_come_from_the_tables_that_were_measured_on_them():
    """Rare levels are those that noise made rare, so their own noise has no mean of 0."""
    draw = np.random.default_rng(1)
    data = {
        "code": np.minimum(draw.geometric(0.08, 3000), 60).astype(str),
        "kind": draw.choice([*"abcdefgh"], 3000),
    }
    features = [Feature("code", [str(at) for at in range(1, 61)]), Feature("kind", [*"abcdefgh"])]
    asked = Microdata(["code", "kind"], Budget.zcdp("0.1"))
    done = sd.run(Plan([], [], features, microdata=asked), data, SeededRandomness(1))
    assert done["code"].schema.size < done["code_bins-kind"].schema.size
    (rare,) = {name for name in done["code"].to_dict()["code_bins"] if "rare levels" in name}
    answer = done.interval({"code_bins": rare}, draws=99)
    named = done.interval({"code_bins": rare}, draws=99, table="code_bins-kind")
    assert answer.value == named.value
    with pytest.raises(InputError, match="no table 'code' with code_bins"):
        done.interval({"code_bins": rare}, table="code")
    assert done.interval({"code": "60"}, draws=99).standard_error > 0

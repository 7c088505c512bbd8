"""Group quarters: units in no table, without a bound; sizes agree with the members of counted
units.
"""

import json
import shlex

import numpy as np
import pytest

import semidp
from semidp.cli import run
from semidp.errors import DataError, InputError, Refused, SemidpError
from semidp.inference.records.record_writing import linked_records
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import list_axes
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.linked_products import linked_space
from semidp.promise.spaces.adjacency import Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.linked import Link, LinkedDataspace, Quarters
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.plan import LinkedUnits, Plan
from semidp.publish.product_estimates import spread_residual
from semidp.publish.recheck import recheck
from semidp.publish.results.published_table import FitKind
from semidp.publish.sources.linked_records import LinkedData
from semidp.publish.statistics.tables.linked_fitting import fitted_kinds, refuse_unfitted
from semidp.publish.survey import with_units
from tests.linked.test_agreement import PLACES, SEX, TENURE, Dense, population

KINDS = Feature("quarters", ["hall", "home", "ward"])
LIVING = 1  # the place of "home"
TRACTS = (["tract", "quarters", "sex"], ["tract", "size"])
CASES = {
    "tracts": ((PLACES,), [], [["tract"]], *TRACTS),
    "states exact": ((PLACES,), [["state"]], [["tract"]], *TRACTS),
    "quarters exact": ((PLACES,), [["quarters"]], [["tract"]], *TRACTS),
    "both exact": ((PLACES,), [["state", "quarters"]], [["tract"]], *TRACTS),
    "quarters by sex": ((PLACES,), [["quarters", "sex"]], [["tract"]], *TRACTS),
    "states and sexes": (
        (PLACES,),
        [["state"], ["sex"]],
        [["county"]],
        TRACTS[0],
        ["county", "size"],
    ),
    "tenure": (
        (PLACES, TENURE),
        [],
        [["county", "tenure"]],
        ["county", "tenure", "quarters"],
        ["county", "tenure", "size"],
    ),
    "a kind with nobody": ((PLACES,), [["quarters"]], [["tract"]], *TRACTS),
}


def linked(name, seed=5, most=4):
    own, exact, exact_units, table, unit_table = CASES[name]
    units, members = population(seed, 0, most, own)
    random = np.random.default_rng(seed)
    shape = (*members.counts.shape[:-1], 3, 2)
    counts = np.zeros(shape, dtype=np.int64)
    counts[..., LIVING, :] = members.counts
    # quarters hold many, and not in every place
    inside = random.integers(0, 30, shape) * (random.random(shape) < 0.5)
    inside[..., LIVING, :] = 0
    if name == "a kind with nobody":
        inside[..., 2, :] = 0
    everybody = Table(Schema([*own, KINDS, SEX]), counts + inside)
    public = LinkedDataspace.joining(
        Dataspace.from_table(everybody, [Margin(*names) for names in exact]),
        Dataspace.from_table(units, [Margin(*names) for names in exact_units]),
        Link("member", 0, most, ("size", "type"), quarters=Quarters("quarters", ["hall", "ward"])),
    )
    space = linked_space(public, Exchange(public.reach.members), [table], [unit_table])
    return space, space.measure([everybody.margin(table)], [units.margin(unit_table)])


class DenseQuarters(Dense):
    """The same with members of counted units alone: an even share of all, and what is their own."""

    def _row(self, equation, entry):
        row = super()._row(equation, entry)
        residuals = self.mechanism.members.space.residuals
        public = self.agreement.public
        axis = [feature.name for feature in public.schema.features].index("quarters")
        view = tuple(1 if place == axis else depth for place, depth in enumerate(equation.members))
        at = list_axes(view).index(axis)
        kinds = residuals.shape(view)[at]
        row[self._at("member", equation.members, entry, residuals)] = 1 / kinds
        row[self._at("member", view, (*entry[:at], LIVING, *entry[at:]), residuals)] = 1
        return row


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CASES)
def test_the_correction_is_constrained_least_squares_and_errors_follow(name):
    space, values = linked(name)
    mechanism = LinkedMechanism.calibrate(space, Budget.zcdp("1/50"))
    dense = DenseQuarters(mechanism)
    members, units = space.split(values + mechanism.noise(SeededRandomness(3)))
    before = dense.vector(
        {**space.members.exact_residuals, **space.members.split_residuals(members)},
        {**space.units.exact_residuals, **space.units.split_residuals(units)},
    )
    after = dense.vector(*mechanism.agreement.residuals(members, units))
    assert np.abs(dense.constraint @ before).max() > 0.5
    assert np.abs(after - (before - dense.gain @ (dense.constraint @ before))).max() < 1e-7
    covariance = dense.covariance - dense.gain @ dense.constraint @ dense.covariance
    kind, smaller = space.members, 0
    (view,) = kind.views
    rows = np.zeros((int(np.prod(kind.residuals.shape(view))), dense.size))
    for small in kind.needed_residuals:
        place = dense.slices["member", small]
        for entry, unit in enumerate(np.eye(place.stop - place.start)):
            spread = spread_residual(
                kind.residuals, unit.reshape(kind.residuals.shape(small)), small, view
            )
            rows[:, place.start + entry] = spread.ravel()
    found = kind.trim(mechanism.agreement.variances(0, 0), view).ravel()
    assert np.allclose(found, np.diag(rows @ covariance @ rows.T), rtol=1e-6, atol=1e-6)
    smaller += int(
        (found < kind.trim(mechanism.members.cell_variances(0), view).ravel() - 1e-9).any()
    )
    assert smaller


@pytest.mark.few(1)
@pytest.mark.parametrize("rho", ["1/50", "5"])
@pytest.mark.parametrize("name", CASES)
def test_whole_numbers_agree_with_the_members_of_counted_units(name, rho):
    agreed = 0
    for seed in range(3):
        space, values = linked(name, seed)
        mechanism = LinkedMechanism.calibrate(space, Budget.zcdp(rho))
        refuse_unfitted(mechanism)
        residuals = mechanism.agreement.residuals(
            *space.split(values + mechanism.noise(SeededRandomness(seed)))
        )
        ((members, how),), ((units, also),) = fitted_kinds(
            mechanism, residuals, ([FitKind.integer], [FitKind.integer]), silent
        )
        assert (how.kind, also.kind) == ("integer", "integer")
        assert min(members.min(), units.min()) >= 0
        (view,), (unit_view,) = space.members.views, space.units.views
        for margin in space.dataspace.published_totals:
            shared = tuple(map(min, view, margin.view))
            grid = space.members.schema.grid
            assert np.array_equal(
                grid.sum(members, shared, view), grid.sum(margin.counts, shared, margin.view)
            )
        (equation,) = mechanism.agreement.deepest
        by_kind = tuple(
            max(pair)
            for pair in zip(equation.members, space.members.schema.view(["quarters"]), strict=True)
        )
        persons = space.members.schema.grid.sum(members, by_kind, view)
        at = list_axes(by_kind).index(
            [part.name for part in space.members.schema.features].index("quarters")
        )
        living = np.take(persons, LIVING, axis=at)
        homes = space.units.schema.grid.sum(units, equation.sizes, unit_view)
        place = list_axes(equation.sizes).index(space.dataspace.size_axis)
        assert np.array_equal(
            living, np.moveaxis(homes, place, -1) @ mechanism.agreement.sizes.astype(int)
        )
        assert members.sum() == space.dataspace.n
        agreed += living.size
    assert agreed >= 9


# --- releases -------------------------------------------------------------------------------------


def town(seed=1):
    """Homes with up to four persons, and two dormitories that hold more than any home may."""
    random = np.random.default_rng(seed)
    sizes = [*random.integers(0, 5, 100).tolist(), 30, 12]
    homes = {
        "home": np.arange(102),
        "zone": np.array(["n", "s"])[np.arange(102) % 2],
        "unittype": np.array([0] * 100 + [1, 2]),
        "tenure": np.array(["own", "rent", "none"])[[*(np.arange(100) % 2).tolist(), 2, 2]],
    }
    persons = {
        "home": np.repeat(np.arange(102), sizes),
        "sex": random.choice(["f", "m"], sum(sizes)),
    }
    return persons, homes


UNITTYPE = semidp.Feature("unittype", ["0", "1", "2"])
ASKED = (["zone", "unittype", "sex"], ["units:zone", "size"])


def plan_of(
    tables=ASKED, exact=("units:zone",), quarters=None, protect="member", least=0, **features
):
    declared = [semidp.Feature("sex", ["f", "m"]), features.get("unittype", UNITTYPE)]
    asked = Plan(
        [semidp.publish.TableRequest(names) for names in tables],
        exact,
        declared,
        adjacency="exchange",
    )
    kinds = {"unittype": ["1", "2"]} if quarters is None else quarters
    linked = LinkedUnits("home", protect, 4, least, quarters=kinds)
    return with_units(asked, linked).with_budget(Budget.zcdp(1))


def released(plan, data=None, **options):
    chosen = semidp.RunOptions(randomness=SeededRandomness(2), **options)
    return semidp.run(plan, LinkedData(*(town() if data is None else data)), chosen)


def test_a_release_counts_homes_alone_and_everybody_else_too(tmp_path):
    release = released(plan_of())
    homes, persons = release["units:zone-size"], release["zone-unittype-sex"]
    assert release.scope.dataspace.units.n == 100
    assert np.array_equal(homes.counts @ np.arange(5), persons.counts[:, 0].sum(axis=1))
    assert np.allclose(homes.estimate @ np.arange(5), persons.estimate[:, 0].sum(axis=1))
    assert persons.counts.sum() == len(town()[0]["home"])
    assert release.results[0].agreeing == (2, 2)
    release.save(tmp_path / "release")
    page = (tmp_path / "release" / "report.html").read_text()
    assert "live in group quarters" in page
    assert "members who live in no quarters in 2 of 2 places" in page
    again = semidp.Release.load(tmp_path / "release")
    document = json.loads((tmp_path / "release" / "release.json").read_text())
    assert recheck(again, document, tmp_path / "release").disagreements == ()
    with pytest.raises(Refused, match="group quarters"):
        linked_records(again, SeededRandomness(1))


def test_quarters_have_no_bound_on_alike_members():
    """A population of members is refused; these members, and a population of homes, are not."""
    release = released(plan_of())
    members = next(table for table in release.tables if table.counted == "member")
    homes = next(table for table in release.tables if table.counted == "unit")
    with pytest.raises(Refused, match="group quarters may have any number of members"):
        release.intervals(members.name, sampling=True)
    assert release.intervals(members.name, randomness=SeededRandomness(1)).cluster == 1
    found = release.intervals(homes.name, sampling=True, randomness=SeededRandomness(1))
    assert (found.cluster, found.exact) == (1, True)


def test_the_type_of_the_column_does_not_matter():
    persons, homes = town()
    first = released(plan_of()).results[0].noisy
    for kind in (float, str, np.int8):
        data = persons, {**homes, "unittype": homes["unittype"].astype(kind)}
        assert np.array_equal(released(plan_of(), data).results[0].noisy, first)


def test_plans_keep_quarters():
    plan = plan_of()
    assert plan.to_json()["units"]["quarters"] == {"unittype": ["1", "2"]}
    assert Plan.from_toml(plan.to_toml()) == plan


def changed(**columns):
    persons, homes = town()
    return persons, {**homes, **columns}


REFUSED = {
    "protect members": lambda: plan_of(protect="unit"),
    "declare least = 0": lambda: plan_of(least=1),
    "in tables of members alone": lambda: released(
        plan_of([["zone", "sex"], ["units:zone", "size"]])
    ),
    "tables of members alone": lambda: released(
        plan_of([ASKED[0], ["units:zone", "unittype", "size"]])
    ),
    "all levels of 'unittype' but one": lambda: released(plan_of(quarters={"unittype": ["1"]})),
    "is no level of 'unittype'": lambda: released(plan_of(quarters={"unittype": ["1", "2", "3"]})),
    "no column": lambda: released(
        plan_of(), ({**town()[0]}, {k: v for k, v in town()[1].items() if k != "unittype"})
    ),
    "one column and its levels": lambda: plan_of(quarters={"unittype": ["1"], "zone": ["n"]}),
    "each once": lambda: plan_of(quarters={"unittype": ["1", "1"]}),
    "missing values": lambda: released(
        plan_of(), changed(unittype=np.array([*(["0"] * 100), "1", None], dtype=object))
    ),
    "more members than declared": lambda: released(
        plan_of(), changed(unittype=np.zeros(102, dtype=int))
    ),
    "leave it out of theirs": lambda: released(
        plan_of(), ({**town()[0], "unittype": np.zeros(len(town()[0]["home"]))}, town()[1])
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_no_promise_is_known_for_is_one_sentence(said):
    with pytest.raises(SemidpError) as refusal:
        REFUSED[said]()
    assert said in str(refusal.value)
    assert isinstance(refusal.value, (DataError, InputError, Refused))


def test_nothing_is_charged_where_quarters_are_refused(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.json", Budget.zcdp(2))
    with pytest.raises(DataError):
        released(plan_of(), changed(unittype=np.zeros(102, dtype=int)), ledger=ledger)
    assert not ledger.own_charges


def test_the_command_takes_quarters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, columns in zip(("persons", "homes"), town(), strict=True):
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    words = (
        "release persons.csv --units homes.csv --link home --protect member --set least=0 --most-members 4"
        " --set quarters=unittype=1,2 --table zone,unittype,sex --table units:zone,size --exact"
        " units:zone --levels sex=f,m --levels unittype=0,1,2 --rho 1 --out release"
    )
    assert run(shlex.split(words)) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "none of them is of unittype 1, 2" in said
    assert "who live in no quarters in 2 of 2 places" in said
    assert (
        run(
            shlex.split(words.replace("--set least=0 ", "").replace("--out release", "--out other"))
        )
        == 2
    )
    assert "declare least = 0" in capsys.readouterr().err

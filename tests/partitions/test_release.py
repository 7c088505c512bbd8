"""A release part by part: one guarantee, exact totals, tables that add up across parts, and what is
refused.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from semidp import (
    Budget,
    DataError,
    Feature,
    InputError,
    Ledger,
    Margin,
    Outcome,
    Plan,
    Refused,
    Release,
    Table,
    prepare,
    run,
)
from semidp.promise.documents import digest, read_document
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import Schema
from semidp.publish import GroupRequest, TableRequest
from semidp.publish.recheck import disagreements
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.statistics.tables import part_steps
from tests.partitions.conftest import FEATURES, PATHS, plan, records, run_partitioned


def whole(release: Release, name: str) -> Table:
    """Put a table together from its parts."""
    assert release.partition is not None
    parts = [release.part(*part.path)[name] for part in release.partition.parts]
    schema = Schema(FEATURES).restrict(parts[0].schema.names)
    axis = schema.axis("county")
    return Table(schema, np.concatenate([part.counts for part in parts], axis=axis))


EXACT = [
    (),
    ("state",),
    ("sex",),
    ("county",),
    ("tract", "age"),
    (["state", "sex"],),
    ("state", "sex", "age"),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("exact", EXACT, ids=str)
@pytest.mark.parametrize("depth", ["state", "county"])
def test_every_total_is_exact_and_everything_adds_up(
    exact, depth: str, people, tmp_path: Path
) -> None:
    truth = Table.from_frame(people, Schema(FEATURES))
    release = run_partitioned(plan(exact), people, tmp_path / "release", depth)
    found = {"tract-sex": whole(release, "tract-sex")} | (
        {"county-age": whole(release, "county-age")} if depth == "state" else {}
    )
    (result,) = release.results
    found |= {table.name: Table(table.schema, table.counts) for table in result.held_tables()}
    checked = 0
    for table in found.values():
        assert table.n == truth.n
        for margin in exact:
            names = [name for name in Margin.from_names(margin).names if name in table.schema.names]
            if names:
                assert table.margin(names) == truth.margin(names)
                checked += 1
        for other in found.values():
            shared = [name for name in table.schema.names if name in other.schema.names]
            if shared:
                assert table.margin(shared) == other.margin(shared)
                checked += 1
    assert checked > 8
    assert disagreements(release, read_document(tmp_path / "release" / "release.json")) == ()


@pytest.mark.long
def test_the_guarantee_and_the_noise_are_those_of_the_whole_product(people, tmp_path: Path) -> None:
    asked = plan()
    ordinary = prepare(asked, people)
    release = run_partitioned(asked, people, tmp_path / "release", "state")
    assert release.guarantee == ordinary.guarantee
    (result,) = release.results
    assert isinstance(ordinary.mechanisms[0], ResidualMechanism)
    assert result.residuals.sigma2 == ordinary.mechanisms[0].sigma2
    errors = [ordinary.mechanisms[0].table_errors(number) for number in range(3)]
    tracts = np.concatenate(
        [
            release.part(part.path[-1])["tract-sex"].standard_errors
            for part in release.partition.parts
        ]
    )
    inhabited = tracts > 0  # nobody lives in state 04, as the exact totals say
    assert np.allclose(tracts[inhabited], errors[0][inhabited])
    assert not errors[0][~inhabited].any()
    assert release.part("04")["tract-sex"].counts.sum() == 0
    assert result.noise.expected_l2 == pytest.approx(ordinary.mechanisms[0].expected_l2)


@pytest.mark.long
def test_estimates_are_unbiased_and_vary_as_stated(people, tmp_path: Path) -> None:
    """80 releases, seeds fixed: means within five standard errors of the truth, variances as
    stated, and a twin.
    """
    draws, truth = 80, Table.from_frame(people, Schema(FEATURES)).margin(["tract", "sex"]).counts
    asked, found = plan(), []
    for seed in range(draws):
        place, randomness = tmp_path / str(seed), SeededRandomness(seed)
        done = run_partitioned(asked, people, place, "state", randomness=randomness)
        found.append(np.asarray(done["tract-sex"].estimate))
    errors = prepare(asked, people).mechanisms[0].table_errors(0)  # type: ignore[attr-defined]
    inhabited = errors > 0
    means, spreads = np.mean(found, axis=0)[inhabited], np.var(found, axis=0)[inhabited]
    off = np.abs(means - truth[inhabited]) / (errors[inhabited] / np.sqrt(draws))
    ratio = spreads / errors[inhabited] ** 2
    assert off.max() < 5
    assert 0.5 < np.mean(ratio) < 1.5
    assert 0.3 < ratio.min() <= ratio.max() < 2.2
    assert np.mean(ratio * 2) > 1.5  # noise of twice the variance would be seen


@pytest.mark.long
def test_one_job_two_jobs_and_the_order_of_parts_give_the_same_release(
    people_file: Path, tmp_path: Path
) -> None:
    def made(name: str, **how) -> dict[str, list]:
        release = run_partitioned(
            plan(), people_file, tmp_path / name, "state", randomness=SeededRandomness(5), **how
        )
        assert not release.private
        tables = {
            f"{part.folder}/{table}": found
            for part in release.partition.parts
            for table, found in release.part(*part.path).items()
        }
        tables |= {
            table.name: table for result in release.results for table in result.held_tables()
        }
        return {
            key: [table.counts.tolist(), table.estimate.tolist()] for key, table in tables.items()
        }

    one = made("one")
    assert len(one) == 8 + 3
    assert made("two", jobs=2) == one
    assert made("csv", form="csv") == one


@pytest.mark.long
def test_a_table_with_a_budget_of_its_own(people, tmp_path: Path) -> None:
    tables = [
        TableRequest(["tract", "sex"], Budget.gdp(1), name="sexes"),
        TableRequest(["county", "age"], Budget.zcdp("1/2"), name="ages", fit="none"),
    ]
    release = run_partitioned(
        Plan(tables, ["state"], FEATURES), people, tmp_path / "release", "state"
    )
    assert [result.name for result in release.results] == ["sexes", "ages"]
    assert (
        release.guarantee
        == prepare(
            Plan(
                [
                    TableRequest(["tract", "sex"], Budget.gdp(1), mechanism="auto", name="sexes"),
                    *tables[1:],
                ],
                ["state"],
                FEATURES,
            ),
            people,
        ).guarantee
    )
    part = release.part("01")
    assert part["sexes"].counts.dtype.kind == "i"
    assert part["ages"].fitted.kind == "none"
    assert np.allclose(part["ages"].counts, part["ages"].estimate)
    assert disagreements(release, read_document(tmp_path / "release" / "release.json")) == ()


@pytest.mark.long
def test_it_reads_back_the_same_and_a_changed_file_is_refused(
    people, tmp_path: Path, reported: None
) -> None:
    place = tmp_path / "release"
    made = run_partitioned(plan(), people, place, "state")
    read = Release.load(place)
    assert read.guarantee == made.guarantee
    assert read.partition == made.partition
    assert read.results[0].blocks is not None
    assert {key: table.counts.tolist() for key, table in read.part("02").items()} == {
        key: table.counts.tolist() for key, table in made.part("02").items()
    }
    with pytest.raises(InputError, match="no part '99' of state"):
        read.part("99")
    page = (place / "report.html").read_text()
    assert "Parts: one for every state" in page
    assert "state=02" in page
    for victim in (place / "state=02" / "tract-sex.parquet", place / "state-sex.parquet"):
        content = victim.read_bytes()
        victim.write_bytes(content[:9] + bytes([content[9] ^ 1]) + content[10:])
        with pytest.raises(InputError, match=f"{victim.name} was changed"):
            Release.load(place)
        victim.write_bytes(content)
    assert Release.load(place).part("02")


def test_counts_that_do_not_add_up_are_found(people, tmp_path: Path) -> None:
    """A part that was tampered with, digests and all, contradicts the tables above it."""
    place = tmp_path / "release"
    run_partitioned(plan(), people, place, "state", form="csv")
    victim = place / "state=02" / "county-age.csv"
    lines = victim.read_text().splitlines()
    cells = lines[1].split(",")
    cells[-1] = str(int(cells[-1]) + 1)
    victim.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    parts = json.loads((place / "parts.json").read_text())
    next(part for part in parts if part["folder"] == "state=02")["files"]["county-age.csv"] = (
        digest(victim)
    )
    (place / "parts.json").write_text(json.dumps(parts))
    document = json.loads((place / "release.json").read_text())
    document["files"]["parts.json"] = digest(place / "parts.json")
    (place / "release.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="'county-age' does not add up to the exact totals"):
        Release.load(place)


def test_records_that_change_meanwhile_fail_the_release_and_no_number_is_quoted(
    people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = part_steps.Reader.tables

    def moved(self, features):
        found = tables(self, features)
        if len(self.schema.features[0].levels) == len(PATHS):
            return found
        counts = found[0].counts.copy()
        counts.flat[0] += 1
        return [Table(found[0].schema, counts), *found[1:]]

    monkeypatch.setattr(part_steps.Reader, "tables", moved)
    with pytest.raises(DataError, match="do not add up to what was read first") as caught:
        run_partitioned(plan(), people, tmp_path / "release", "state")
    assert not any(character.isdigit() for character in str(caught.value))
    assert not (tmp_path / "release").exists()


def test_what_cannot_be_released_part_by_part_is_refused_in_a_sentence(
    people, tmp_path: Path
) -> None:
    def refused(asked: Plan, match: str, partition: str = "state", **how) -> None:
        with pytest.raises((InputError, Refused), match=match):
            run_partitioned(asked, how.pop("data", people), tmp_path / "x", partition, **how)
        assert not list(tmp_path.glob("*x*"))

    table = [TableRequest(["tract", "sex"], Budget.gdp(1))]
    for mechanism in ("l2", "knorm"):
        refused(
            Plan([TableRequest(["tract"], Budget.pure(1), mechanism)], [], FEATURES),
            "no part can draw its own",
        )
    refused(
        Plan([TableRequest(["tract"], Budget.gdp(1), "lattice")], [], FEATURES),
        "no part can draw its own",
    )
    refused(Plan([TableRequest(["tract", "sex"])], [], FEATURES), "no privacy budget")
    refused(Plan(table, [], FEATURES), "not a depth of a nested feature", "tract")
    refused(Plan(table, [], FEATURES), "not a depth of a nested feature", "sex")
    refused(
        Plan([TableRequest(["state", "sex"], Budget.gdp(1))], ["county"], FEATURES),
        "no table is finer",
    )
    refused(Plan(table, [], FEATURES), "give a file or an address", jobs=2)
    refused(Plan(table, [], FEATURES), "at least 1", jobs=0)
    refused(Plan(table, [], FEATURES), "of memory", memory=1000)


def test_tables_that_are_too_large_to_be_put_together_are_refused(
    people, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(part_steps, "MOST_TOGETHER", 10)
    with pytest.raises(Refused, match="cells are too many for that"):
        run_partitioned(
            Plan([TableRequest(["tract"], Budget.pure(1))], [], FEATURES),
            people,
            tmp_path / "x",
            "state",
        )
    assert not list(tmp_path.glob("*x*"))


@pytest.mark.long
def test_every_table_is_found_whole_by_its_name_and_by_its_features(people, tmp_path: Path) -> None:
    made = run_partitioned(plan(), people, tmp_path / "release", "state")
    read = Release.load(tmp_path / "release")
    for release in (made, read):
        assert [table.name for table in release.tables] == ["tract-sex", "county-age", "sex-age"]
        assert release["tract-sex"].counts.shape == (14, 2)
        for name in ("tract-sex", "county-age"):
            assert np.array_equal(release[name].counts, whole(release, name).counts)
            assert release[name].keeps(release.scope.dataspace)
            assert release[name].fitted.kind == "integer"
        assert release.table(["age", "county", "state"]) is release["county-age"]
        # a table at the cut that nobody asked for
        assert release["state-sex"].counts.sum() == len(people["sex"])
    part = read.part("01")["tract-sex"]
    assert np.array_equal(
        read["tract-sex"].standard_errors[: len(part.counts)], part.standard_errors
    )
    assert np.array_equal(read["tract-sex"].half_widths[: len(part.counts)], part.half_widths)
    victim = tmp_path / "release" / "state=02" / "tract-sex.parquet"
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(InputError, match="was changed after"):
        _ = Release.load(tmp_path / "release")["tract-sex"].counts


@pytest.mark.long
def test_other_statistics_are_carried_out_in_one_piece_beside_the_parts(
    people, tmp_path: Path
) -> None:
    outcome = GroupRequest("mean", Outcome("income", 0, 10, 10), [["state"]], Budget.gdp(50))
    asked = Plan([*plan().requests, outcome], ["state", "sex"], FEATURES)
    data = {**people, "income": [number % 11 for number in range(len(people["sex"]))]}
    place = tmp_path / "release"
    made = run_partitioned(asked, data, place, "state", randomness=SeededRandomness(3))
    whole_piece = run(asked, data, SeededRandomness(3))
    assert made.guarantee == whole_piece.guarantee
    read = Release.load(place)
    for release in (made, read):
        assert [result.name for result in release.results] == [
            request.name for request in asked.requests
        ]
        (group,) = release.groups
        values = group.to_json()
        assert values["noise"] == whole_piece.groups[0].to_json()["noise"]
    assert disagreements(read, read_document(place / "release.json")) == ()


def test_labels_become_folders_that_every_file_system_has(tmp_path: Path) -> None:
    labels = ["a/b", "c:d=e", "..", "ü %", "x" * 60, ".hidden"]
    places = Feature.from_paths(
        ["place", "spot"], [(label, f"{label} {spot}") for label in labels for spot in "12"]
    )
    people = {
        "place": [*labels] * 8,
        "spot": [f"{label} {1 + n % 2}" for n in range(8) for label in labels],
        "sex": [*"fmf"] * 16,
    }
    asked = Plan(
        [TableRequest(["spot", "sex"], Budget.gdp(1))], ["place"], [places, Feature("sex", "fm")]
    )
    release = run_partitioned(asked, people, tmp_path / "release", "place", form="csv")
    folders = [part.folder for part in release.partition.parts]
    assert folders[:4] == ["place=a%2Fb", "place=c%3Ad%3De", "place=%2E.", "place=%C3%BC %25"]
    assert {path.name for path in (tmp_path / "release").iterdir() if path.is_dir()} == set(folders)
    assert (
        (tmp_path / "release" / folders[0] / "table.csv")
        .read_text()
        .splitlines()[1]
        .startswith("a/b,a/b 1,f,")
    )
    assert (
        disagreements(
            Release.load(tmp_path / "release"), read_document(tmp_path / "release" / "release.json")
        )
        == ()
    )
    long = Feature.from_paths(["place", "spot"], [("x" * 300, "1"), ("x" * 300, "2")])
    with pytest.raises(InputError, match="folders of their own"):
        run_partitioned(
            Plan([TableRequest(["spot"], Budget.gdp(1))], ["place"], [long]),
            {"place": ["x" * 300] * 2, "spot": ["1", "2"]},
            tmp_path / "long",
            "place",
        )
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


@pytest.mark.long
def test_a_column_that_only_the_finest_depth_has(tmp_path: Path) -> None:
    """Where the data hold tracts alone, parts are found by them."""
    data = records(200)
    del data["state"], data["county"]
    release = run_partitioned(plan(("state",)), data, tmp_path / "release", "state")
    assert release.part("03")["tract-sex"].counts.sum() == sum(
        tract == "03a1" for tract in data["tract"]
    )


@pytest.mark.long
def test_counts_and_conditions_reach_every_part(tmp_path: Path) -> None:
    data = {**records(300), "people": [2] * 300}
    asked = plan(("state",), count="people", where="age <> 'o'")
    release = run_partitioned(asked, data, tmp_path / "release", "state")
    kept = [state for state, age in zip(data["state"], data["age"], strict=True) if age != "o"]
    for part in release.partition.parts:
        assert release.part(*part.path)["county-age"].counts.sum() == 2 * kept.count(part.path[0])


def test_the_ledger_is_charged_once_and_only_when_nothing_foreseeable_can_fail(
    people, tmp_path: Path
) -> None:
    Ledger.create(tmp_path / "ledger.json", Budget.gdp(10))
    ledger = Ledger(tmp_path / "ledger.json")
    with pytest.raises(InputError):
        run_partitioned(plan(), people, tmp_path / "x", "state", memory=1000, ledger=ledger)
    assert not ledger.account().charges
    release = run_partitioned(plan(), people, tmp_path / "release", "state", ledger=ledger)
    assert len(ledger.account().charges) == 1
    assert release.ledger is not None


def test_nothing_confidential_is_left_in_the_folder(people, tmp_path: Path) -> None:
    """The measured numbers of a part differ from its counts as the noise says, and no file holds
    the counts.
    """
    run_partitioned(plan(()), people, tmp_path / "release", "state")
    names = sorted(
        path.relative_to(tmp_path / "release").as_posix()
        for path in (tmp_path / "release").rglob("*")
    )
    assert names == sorted(
        [
            *("parts.json", "product-measurements.parquet", "release.json", "report.html"),
            *("sex-age.parquet", "state-age.parquet", "state-sex.parquet"),
            *(f"state={state}" for state in ("01", "02", "03", "04")),
            *(
                f"state={state}/{name}.parquet"
                for state in ("01", "02", "03", "04")
                for name in ("county-age", "product-measurements", "tract-sex")
            ),
        ]
    )

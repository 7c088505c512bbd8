"""Releases of the same records, combined: the formula, the truth by simulation, and what is
refused.
"""

import itertools
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp
from semidp import Budget, Feature, Plan, Release, combine
from semidp.cli import run
from semidp.errors import InputError, Refused
from semidp.inference.combined import combination
from semidp.inference.combined.combination import Combination
from semidp.inference.combined.releases_together import find_combination
from semidp.promise import SeededRandomness
from semidp.promise.tradeoff.budget import gaussian
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.function import Order
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.pipeline import prepare
from tests.combining.dense import null_space
from tests.redrawn import redrawn

RECORDS = 400


def people(seed: int = 0, records: int = RECORDS) -> dict[str, list[str]]:
    rng = np.random.default_rng(seed)
    columns = {"sex": "fm", "region": "nsw", "age": "abcd"}
    return {name: rng.choice([*levels], records).tolist() for name, levels in columns.items()}


def table(
    exact: list[Any], features: list[str], budget: Budget, seed: int | None = None, **more: Any
) -> Release:
    plan = Plan([TableRequest(features, budget, **more)], exact, levels_from_data=True)
    return semidp.run(plan, people(), None if seed is None else SeededRandomness(seed))


def product(
    exact: list[Any], tables: list[list[str]], budget: Budget, seed: int | None = None
) -> Release:
    requests = [TableRequest(features) for features in tables]
    plan = Plan([TablesRequest(requests, budget)], exact, levels_from_data=True)
    return semidp.run(plan, people(), None if seed is None else SeededRandomness(seed))


def test_two_tables_of_one_kind_are_averaged_by_precision() -> None:
    first = table(["sex"], ["sex", "region"], Budget.zcdp("0.02"), mechanism="gaussian")
    second = table(["sex"], ["sex", "region"], Budget.zcdp("0.08"), mechanism="gaussian")
    both = combine(first, second).tables[0]
    weights = [1 / release.tables[0].standard_errors ** 2 for release in (first, second)]
    expected = sum(
        w * release.tables[0].estimate for w, release in zip(weights, (first, second), strict=True)
    )
    np.testing.assert_allclose(both.estimate, expected / sum(weights), atol=1e-9)
    np.testing.assert_allclose(both.standard_errors, 1 / np.sqrt(sum(weights)), rtol=1e-9)


L2 = (Budget.pure("0.1"), "l2")
LATTICE = (Budget.zcdp("0.005"), "lattice")
KNORM = (Budget.pure("0.1"), "knorm")
GAUSSIAN = (Budget.zcdp("0.005"), "gaussian")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (L2, L2),
        pytest.param(LATTICE, LATTICE, marks=pytest.mark.long),
        (L2, GAUSSIAN),
        pytest.param(KNORM, GAUSSIAN, marks=pytest.mark.long),
    ],
    ids=["l2", "lattice", "both", "knorm"],
)
def test_noise_in_the_directions_of_the_totals_alone_is_averaged_by_precision(
    one: tuple[Budget, str], other: tuple[Budget, str]
) -> None:
    """l2 and lattice noise keep the exact totals: the average has the announced error, and half of
    it is caught.
    """
    data = people()
    truth = np.zeros((2, 3))
    np.add.at(
        truth,
        (
            ["fm".index(sex) for sex in data["sex"]],
            ["nsw".index(place) for place in data["region"]],
        ),
        1,
    )
    prepared = []
    for budget, mechanism in (one, other):
        request = TableRequest(["sex", "region"], budget, mechanism=mechanism)
        prepared.append(prepare(Plan([request], ["sex", "region"], levels_from_data=True), data))
    ratios = []
    for seed in range(60):
        first = redrawn(prepared[0], 2 * seed)
        second = redrawn(prepared[1], 2 * seed + 1)
        both = combine(first, second).tables[0]
        errors = both.estimate - truth
        ratios.append(np.square(errors / both.standard_errors).mean())
    precision = sum(1 / release.tables[0].standard_errors ** 2 for release in (first, second))
    # K-norm noise is rounded in other directions than it is drawn in: a little is left that no
    # weights take away.
    part = 1e-3 if KNORM in (one, other) else 1e-9
    np.testing.assert_allclose(both.standard_errors, 1 / np.sqrt(precision), rtol=part)
    # The table has two free directions, so that the mean of 60 squares has a standard deviation of
    # about 0.13.
    assert abs(np.mean(ratios) - 1) < 0.6
    assert abs(np.mean(ratios) * 4 - 1) > 0.6


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_no_cell_is_worse_than_in_the_better_release(seed: int) -> None:
    first = product([["sex"]], [["sex", "region"], ["sex", "age"]], Budget.gdp("0.5"))
    second = table(
        ["region"], [["region", "age"], ["sex", "region", "age"]][seed % 2], Budget.zcdp("0.1")
    )
    third = table(["age"], ["sex", "age"], Budget.pure("0.5"), mechanism="laplace")
    both = combine(first, second, third)
    compared = 0
    for one in both.tables:
        for release in (first, second, third):
            for published in release.tables:
                if published.schema.names == one.schema.names:
                    assert (one.standard_errors <= published.standard_errors + 1e-9).all()
                    compared += one.schema.size
        public = both.scope.dataspace.restrict_features(one.schema.names)
        for margin in public.margins:
            axes = tuple(
                axis for axis, name in enumerate(one.schema.names) if name not in margin.names
            )
            np.testing.assert_allclose(
                one.estimate.sum(axis=axes), public.value(margin).counts, atol=1e-8
            )
            assert (one.counts.sum(axis=axes) == public.value(margin).counts).all()
    assert compared > 20


def test_one_release_beside_one_that_says_nothing_is_itself() -> None:
    """Its own estimates and standard errors, from its measurement alone."""
    first = product([["sex"], ["region"]], [["sex", "region"], ["region", "age"]], Budget.gdp(1))
    exact = table(["sex"], ["sex"], Budget.gdp(1))
    both = combine(first, exact)
    names = {one.schema.names: one for one in both.tables}
    for published in first.tables:
        one = names[published.schema.names]
        np.testing.assert_allclose(one.estimate, published.estimate, atol=1e-9)
        np.testing.assert_allclose(one.standard_errors, published.standard_errors, rtol=1e-9)


@pytest.mark.long
def test_errors_are_as_large_as_stated_and_a_wrong_scale_is_caught() -> None:
    """300 pairs, 24 cells: the mean square of standardised errors is 1 ± 0.15 with probability
    above 1 - 1e-6.
    """
    truth = np.zeros((2, 3, 4))
    columns = people()
    for sex, region, age in zip(columns["sex"], columns["region"], columns["age"], strict=True):
        truth["fm".index(sex), "nsw".index(region), "abcd".index(age)] += 1
    squares, inside = [], []
    for seed in range(150):
        first = product([["sex"]], [["sex", "region"], ["sex", "age"]], Budget.gdp("0.5"), seed)
        second = table([["region"]], ["sex", "region", "age"], Budget.zcdp("0.05"), 10_000 + seed)
        both = combine(first, second)
        one = next(one for one in both.tables if len(one.schema.names) == 3)
        order = [one.schema.names.index(name) for name in ("sex", "region", "age")]
        standardised = (np.transpose(one.estimate, order) - truth) / np.transpose(
            one.standard_errors, order
        )
        squares.append(np.square(standardised).mean())
        weights = np.zeros(one.schema.shape)
        weights[0, 0, 0] = weights[1, 2, 3] = 1
        value, error = both.estimate({one.name: weights})
        inside.append(
            abs(value - (weights * np.transpose(truth, np.argsort(order))).sum()) < 1.96 * error
        )
    assert abs(np.mean(squares) - 1) < 0.15
    assert abs(np.mean(squares) * 1.3 - 1) > 0.15
    assert 0.86 < np.mean(inside) <= 1.0


NEST = {"x": "a", "y": "a", "z": "b", "u": "b", "v": "b", "w": "c"}


def nested(request: Any, exact: list[str]) -> Release:
    """People in six counties of three states, of unequal size."""
    rng = np.random.default_rng(5)
    counties = rng.choice([*NEST], 500).tolist()
    columns = {"county": counties, "state": [NEST[county] for county in counties]}
    columns["age"] = rng.choice([*"pqr"], 500).tolist()
    plan = Plan([request], exact, levels_from_data=True, nests=[semidp.Nest(["state", "county"])])
    return semidp.run(plan, columns)


@pytest.mark.long
def test_nested_releases_are_combined_at_every_depth() -> None:
    budget = Budget.zcdp("0.5")
    fine, coarse, by_age = (
        TableRequest(names) for names in (["county", "age"], ["state"], ["state", "age"])
    )
    releases = [
        nested(TablesRequest([TableRequest(["county"]), by_age], budget), ["age"]),
        nested(TablesRequest([fine, coarse], budget), ["age"]),
        nested(TableRequest(["county", "age"], budget, mechanism="gaussian"), ["state"]),
        nested(TableRequest(["state", "age"], budget, mechanism="gaussian"), ["age"]),
    ]
    both = combine(*releases)
    compared = 0
    for one in both.tables:
        for release in releases:
            for published in release.tables:
                if published.schema.names == one.schema.names:
                    assert (one.standard_errors <= published.standard_errors + 1e-9).all()
                    compared += 1
    assert compared == 6
    tables = {one.schema.names: one for one in both.tables}
    by_county = tables["state", "county"].estimate
    np.testing.assert_allclose(
        np.add.reduceat(by_county, [0, 2, 5]), tables["state",].estimate, atol=1e-8
    )
    assert not tables["state",].standard_errors.any()  # the third release published it exactly


@pytest.mark.few(2)
@pytest.mark.parametrize("number", range(4))
def test_a_nested_release_alone_is_what_it_published(number: int) -> None:
    """Beside a release that measured nothing, the estimates and errors are its own."""
    budget = Budget.zcdp("0.5")
    fine, coarse = TableRequest(["county", "age"]), TableRequest(["state"])
    requests = [
        TablesRequest([TableRequest(["county"]), TableRequest(["state", "age"])], budget),
        TablesRequest([fine, coarse], budget),
        TableRequest(["county", "age"], budget, mechanism="gaussian"),
        TableRequest(["state", "age"], budget, mechanism="gaussian"),
    ]
    release, nothing = (
        nested(requests[number], ["age"]),
        nested(TableRequest(["age"], budget), ["age"]),
    )
    tables = {one.schema.names: one for one in combine(release, nothing).tables}
    for published in release.tables:
        one = tables[published.schema.names]
        np.testing.assert_allclose(one.estimate, published.estimate, atol=1e-9)
        np.testing.assert_allclose(
            one.standard_errors, published.standard_errors, rtol=1e-9, atol=1e-12
        )


def test_the_guarantee_is_that_of_all_together() -> None:
    """A × U under exact A has Δ2² = 8 in the ball; with another release's exact B it is 18."""
    first = table(["sex"], ["sex", "age"], Budget.zcdp("0.1"), mechanism="gaussian")
    second = table(["region"], ["region", "age"], Budget.zcdp("0.1"), mechanism="gaussian")
    both = combine(first, second)
    assert both.stated is not None
    assert both.guarantee.adjacency.a == 3
    rho = float(both.guarantee.tradeoff.rho)
    assert rho == pytest.approx(2 * 0.1 * 18 / 8, rel=1e-6)


def several_promises() -> dict[str, Release]:
    """Releases of the same records: nothing exact, any a records, exchanges."""
    both = ["sex", "region"]
    asked: dict[str, tuple[list[Any], Budget, dict[str, Any]]] = {
        "one record": ([], Budget.gdp(1), {}),
        "one person": ([], Budget.gdp(1), {"id": "number"}),
        "exchange of nothing": ([], Budget.gdp(1), {"adjacency": "exchange"}),
        "any two": (["sex"], Budget.gdp(1), {}),
        "any three": (both, Budget.zcdp(1), {}),
        "exchange": (["sex"], Budget.gdp(1), {"adjacency": "exchange"}),
        "exchange of both": (both, Budget.zcdp(1), {"adjacency": "exchange"}),
    }
    records = {**people(), "number": list(map(str, range(RECORDS)))}
    releases = {}
    for seed, (name, (exact, budget, more)) in enumerate(asked.items()):
        plan = Plan([TableRequest(both, budget)], exact, levels_from_data=True, **more)
        releases[name] = semidp.run(plan, records, SeededRandomness(seed))
    return releases


def test_the_guarantee_does_not_depend_on_the_order() -> None:
    """Exchange beside one record with nothing exact was stated in one order and not in the
    other.
    """
    releases, found = several_promises(), Counter[str]()
    for one, other in itertools.combinations(releases.values(), 2):
        forth, back = combine(one, other).stated, combine(other, one).stated
        assert (forth is None) == (back is None)
        found["stated" if forth else "not stated"] += 1
        if forth and back:
            assert forth.adjacency == back.adjacency
            assert {*forth.dataspace.margins} == {*back.dataspace.margins}
            assert forth.tradeoff.compare(back.tradeoff) is Order.EQUAL
    # Only any a records beside exchanges do not add up: two of the one, two of the other.
    assert found == {"stated": 17, "not stated": 4}
    # By group privacy one record alone adds up with exchanges, which change two records here.
    together = combine(releases["one record"], releases["exchange"]).guarantee
    assert together.adjacency == releases["exchange"].guarantee.adjacency
    grouped = compose(releases["exchange"].guarantee.tradeoff, gaussian(1).group(2))
    assert together.tradeoff.compare(grouped) in (Order.EQUAL, Order.STRONGER)
    alone = compose(releases["exchange"].guarantee.tradeoff, gaussian(1))
    assert together.tradeoff.compare(alone) in (Order.EQUAL, Order.WEAKER)


def test_features_may_stand_in_another_order_in_a_union() -> None:
    """Tables of ward and sex were not known again where the other release named sex first."""
    people = {
        "ward": [*"aabb"] * 9,
        "sex": [*"fmmf"] * 9,
        "ill": [*"ynyy"] * 9,
        "age": [*range(36)],
    }
    tables = semidp.release(
        people,
        semidp.table("ward", "sex"),
        semidp.table("ward", "ill"),
        exact=["ward"],
        levels={"sex": ["f", "m"], "ill": ["n", "y"]},
        mu=1,
    )
    means = semidp.release(people, semidp.mean("age", by="sex", bounds=(0, 40)), mu=1)
    forth, back = combine(tables, means).stated, combine(means, tables).stated
    assert forth is not None
    assert back is not None
    assert forth.tradeoff.compare(back.tradeoff) is Order.EQUAL


def test_rounding_of_k_norm_noise_is_in_the_errors() -> None:
    """The covariance of the stated law, dense: weights on both releases, each with its own
    covariance.
    """
    exact, features = ["sex", "region"], ["sex", "region"]
    norm = table(exact, features, Budget.pure(2), 1, mechanism="knorm")
    other = table(exact, features, Budget.zcdp("0.5"), 2, mechanism="gaussian")
    both = combine(norm, other)
    source = find_combination(both)
    assert isinstance(source, Combination)
    weights = np.random.default_rng(4).normal(size=(5, 2, 3))
    noise = source.weigh_noise({0: weights})
    stated = noise.covariance
    drawn = np.cov(noise.draw(20_000, SeededRandomness(5)).T)
    size = np.sqrt(np.outer(np.diag(stated), np.diag(stated)))
    # Rounding to whole numbers adds at most 1/12 a coordinate: a part of the variance of noise this
    # small.
    before = source.answer.weighted_sum({0: source.weights({0: weights[:1]})[0][0]}).variances[0, 0]
    assert stated[0, 0] > 1.004 * before
    assert (np.abs(drawn - stated) < 0.08 * size).all()
    assert (np.abs(1.2 * drawn - stated) > 0.08 * size).any()
    for number in range(5):
        error = both.estimate({both.tables[0].name: weights[number]})[1]
        assert error**2 == pytest.approx(stated[number, number], rel=1e-9)
    cells = np.eye(6).reshape(6, 2, 3)
    expected = np.sqrt(np.diag(source.weigh_noise({0: cells}).covariance)).reshape(2, 3)
    np.testing.assert_allclose(both.tables[0].standard_errors, expected, rtol=1e-9)


def test_whatever_cannot_be_combined_is_refused(tmp_path: Path) -> None:
    first = table(["sex"], ["sex", "region"], Budget.gdp(1))
    with pytest.raises(InputError, match="at least two releases"):
        combine(first)
    with pytest.raises(InputError, match="the same measurement stands in two"):
        combine(first, first)
    plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex"], levels_from_data=True)
    fewer, others = (semidp.run(plan, people(*which)) for which in ((0, 300), (1, RECORDS)))
    for other in (fewer, others):
        with pytest.raises(InputError, match="not of the same records"):
            combine(first, other)
    uneven = Feature.from_paths(
        ["state", "county"], [("a", "x"), ("a", "y"), ("b", "u"), ("b", "v"), ("b", "w")]
    )
    places = {"state": [*"ab"] * 20, "county": [*"xuyvxw"] * 6 + [*"xuyv"]}
    asked = Plan([TableRequest(["county"], Budget.pure(1), mechanism="knorm")], ["state"], [uneven])
    with pytest.raises(Refused, match="not alike in every direction"):
        combine(*(semidp.run(asked, places) for _ in range(2)))


@pytest.mark.long
def test_the_command_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = table(["sex"], ["sex", "region"], Budget.gdp(1))
    second = product(["region"], [["sex", "region"], ["sex", "age"]], Budget.gdp(1))
    first.save(tmp_path / "march")
    second.save(tmp_path / "june")
    out = tmp_path / "both"
    words = ["combine", str(tmp_path / "march"), str(tmp_path / "june"), "--out", str(out)]
    assert run(words) == 0
    captured = capsys.readouterr()
    assert "sex × region" in captured.out
    assert "of the same records was checked" in captured.err
    header, *rows = (out / "sex-age.csv").read_text().splitlines()
    assert header == "sex,age,estimate,standard_error,estimate_low,estimate_high,count"
    assert len(rows) == 8
    assert run(words) == 2
    assert run([*words, "--force", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["combination"] == 2
    shutil.copytree(tmp_path / "march", tmp_path / "copy")
    assert (
        run(
            [
                "combine",
                str(tmp_path / "march"),
                str(tmp_path / "copy"),
                "--out",
                str(tmp_path / "x"),
            ]
        )
        == 2
    )
    assert "name each release once" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_tree_beyond_a_dense_block_is_combined() -> None:
    """2,500 places: twice the same kind of table, so that every error is that of one over the root
    of two.
    """
    places = [f"{state:02}" for state in range(50) for _ in range(50)]
    columns = {"state": places, "place": [f"{number:04}" for number in range(2500)]}
    columns["sex"] = [*"fm"] * 1250
    request = TableRequest(["place", "sex"], Budget.zcdp("0.5"), mechanism="gaussian")
    nests = [semidp.Nest(["state", "place"])]
    plan = Plan([request], ["place"], levels_from_data=True, nests=nests)
    first, second = (semidp.run(plan, columns, SeededRandomness(seed)) for seed in (1, 2))
    both = combine(first, second).tables[0]
    np.testing.assert_allclose(
        both.standard_errors, first.tables[0].standard_errors / np.sqrt(2), rtol=1e-9
    )
    mean = (first.tables[0].estimate + second.tables[0].estimate) / 2
    np.testing.assert_allclose(both.estimate, mean, atol=1e-8)


def test_features_that_zeros_couple_are_refused_where_they_have_too_many_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sexes and ages are coupled by a zero, 8 cells; regions stay outside of the block."""
    zero = semidp.StructuralZero.from_pattern({"sex": "f", "age": "a"})
    features = [Feature("sex", "fm"), Feature("age", "abcd"), Feature("region", "nsw")]
    columns = {
        "sex": [*"mfmmf"] * 20,
        "age": [*"abcdd"] * 20,
        "region": [*"nsnwnsww"] * 12 + [*"nsw"] + ["w"],
    }
    request = TableRequest(["sex", "age", "region"], Budget.zcdp("0.5"), mechanism="gaussian")
    plan = Plan([request], [], features, structural_zeros=[zero])
    releases = [semidp.run(plan, columns, SeededRandomness(seed)) for seed in (1, 2)]
    both = combine(*releases).tables[0]
    np.testing.assert_allclose(
        both.estimate, sum(one.tables[0].estimate for one in releases) / 2, atol=1e-8
    )
    monkeypatch.setattr(combination, "MOST_COUPLED", 7)
    with pytest.raises(Refused, match="couple 8 cells here, and at most 7 are combined"):
        combine(*releases)


AGES = [Feature("sex", "fm"), Feature("region", "nsw"), Feature("age", "abcd")]


def without_c(exact: list[str], tables: list[list[str]], seed: int) -> Release:
    """Tables of people of whom nobody has age c, which only a release with exact ages shows."""
    rng = np.random.default_rng(3)
    columns = {
        "sex": rng.choice([*"fm"], 200).tolist(),
        "region": rng.choice([*"nsw"], 200).tolist(),
    }
    columns["age"] = rng.choice([*"abd"], 200).tolist()
    plan = Plan(
        [TablesRequest([TableRequest(names) for names in tables], Budget.gdp(1))], exact, AGES
    )
    return semidp.run(plan, columns, SeededRandomness(seed))


def dense_rows(
    release: Release, names: tuple[str, ...]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Every residual as drawn: its design on all cells by these features, its values and their
    variances.
    """
    mechanism, sizes = (
        release.mechanisms[0],
        {feature.name: len(feature.levels) for feature in AGES},
    )
    space = mechanism.space
    rows = []
    for view, part in space.parts.items():
        lengths = space.residuals.shape(view)
        inside = dict(zip(space.schema.list_view_names(view), lengths, strict=True))
        design = np.ones((1, 1))
        for name in names:
            size, length = sizes[name], inside.get(name)
            if length is None:
                matrix = np.ones((1, size))
            else:
                # The release itself may have left age c out.
                left = [level for level in range(size) if length == size or level != 2]
                matrix = (np.eye(length) - 1 / length) @ np.eye(size)[left]
            design = np.kron(design, matrix)
        # Values stand in the order of the release's own schema.
        order = np.argsort([names.index(name) for name in inside])
        scales = space.scales[part].astype(float)
        columns = [release.results[0].noisy[part] / scales, mechanism.variances[part] / scales**2]
        values, variances = (
            np.transpose(column.reshape(lengths), order).ravel() for column in columns
        )
        rows.append((design, values, variances))
    return rows


def test_a_level_that_another_release_shows_to_be_empty_leaves_the_contrasts() -> None:
    """The contrasts of four ages keep their mean over four, though one age is known to be empty
    (dense, 1e-9).
    """
    first = without_c(["sex"], [["region", "age"], ["sex", "age"]], 1)
    second = without_c(["age"], [["sex", "age"], ["sex", "region"]], 2)
    both = combine(first, second)
    source = find_combination(both)
    assert source is not None
    schema = source.dataspace.schema
    names = schema.names
    rows = [row for release in (first, second) for row in dense_rows(release, names)]
    design = np.concatenate([row for row, _, _ in rows])
    values, variances = (np.concatenate([row[place] for row in rows]) for place in (1, 2))
    exact, targets = [np.ones((1, 24))], [np.array([200.0])]
    for total in source.dataspace.published_totals:
        parts = [
            np.eye(size) if depth else np.ones((1, size))
            for depth, size in zip(total.view, schema.shape, strict=True)
        ]
        exact.append(np.kron(np.kron(parts[0], parts[1]), parts[2]))
        targets.append(total.counts.ravel().astype(float))
    # Nobody has age c: every such cell is zero.
    empty = np.zeros(schema.shape, dtype=bool)
    empty[tuple(2 if name == "age" else slice(None) for name in names)] = True
    exact.append(np.eye(24)[empty.ravel()])
    targets.append(np.zeros(int(empty.sum())))
    restrictions, target = np.concatenate(exact), np.concatenate(targets)
    start = np.linalg.lstsq(restrictions, target, rcond=None)[0]
    basis = null_space(restrictions)
    reduced = design @ basis
    inverse = np.linalg.pinv(reduced.T @ (reduced / variances[:, None]), rcond=1e-11)
    estimate = start + basis @ inverse @ reduced.T @ ((values - design @ start) / variances)
    compared = 0
    for one in both.tables:
        summed = tuple(axis for axis, name in enumerate(names) if name not in one.schema.names)
        np.testing.assert_allclose(
            one.estimate, estimate.reshape(schema.shape).sum(axis=summed), atol=1e-8
        )
        for cell in np.ndindex(one.schema.shape):
            weight = np.zeros(one.schema.shape)
            weight[cell] = 1
            row = np.broadcast_to(np.expand_dims(weight, summed), schema.shape).ravel() @ basis
            assert one.standard_errors[cell] == pytest.approx(
                np.sqrt(row @ inverse @ row), abs=1e-8
            )
            compared += 1
    assert compared == 12 + 8 + 6
    assert any("Among" in repr(part.observed.query) for part in source.evidence)


def test_a_nested_feature_with_an_empty_level_is_combined_at_all_depths() -> None:
    """Next to the nested feature that is the tree, another one of which nobody has a level (dense,
    1e-8).
    """
    towns = [("n", "n1"), ("n", "n2"), ("n", "n3"), ("s", "s1"), ("s", "s2")]
    jobs = [("food", "baker"), ("food", "cook"), ("metal", "smith"), ("metal", "welder")]
    features = [
        Feature.from_paths(["region", "town"], towns),
        Feature.from_paths(["trade", "job"], jobs),
    ]
    rng = np.random.default_rng(5)
    live, work = rng.integers(0, 5, 90), rng.choice([0, 2, 3], 90)
    data = {
        "region": [towns[one][0] for one in live],
        "town": [towns[one][1] for one in live],
        "trade": [jobs[one][0] for one in work],
        "job": [jobs[one][1] for one in work],
    }
    cells = {"town": np.eye(5), "region": np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]])}
    levels = {"job": np.eye(4), "trade": np.array([[1, 1, 0, 0], [0, 0, 1, 1]])}
    asked = [("town", "trade"), ("region", "job"), ("town", "job")]
    designs = [np.kron(cells[one], levels[other]) for one, other in asked]
    releases = []
    for seed, names in enumerate(asked):
        request = TableRequest(names, Budget.zcdp("0.2"), "gaussian")
        plan = Plan([request], ["job"], features)
        releases.append(semidp.run(plan, data, SeededRandomness(seed)))
    values = [np.asarray(release.results[0].noisy).ravel() for release in releases]
    scale = [1 / np.sqrt(release.mechanisms[0].variance) for release in releases]
    restrictions = np.kron(np.ones((1, 5)), np.eye(4))
    empty = np.eye(20)[1::4]
    exact = np.concatenate([restrictions, empty])
    target = np.concatenate([np.bincount(work, minlength=4), np.zeros(5)])
    start, basis = np.linalg.lstsq(exact, target, rcond=None)[0], null_space(exact)
    weighed = np.concatenate([part * size for part, size in zip(designs, scale, strict=True)])
    seen = np.concatenate([part * size for part, size in zip(values, scale, strict=True)])
    moved = np.linalg.lstsq(weighed @ basis, seen - weighed @ start, rcond=None)[0]
    estimate = start + basis @ moved
    both = combine(*releases)
    assert [table.schema.shape for table in both.tables] == [(5, 2), (2, 4), (5, 4)]
    for table, design in zip(both.tables, designs, strict=True):
        np.testing.assert_allclose(table.estimate.ravel(), design @ estimate, atol=1e-8)

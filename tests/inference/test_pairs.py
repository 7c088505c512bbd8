"""Every pair at once: the adjustment against its definition and under the worst dependence, and
what is left out.
"""

import itertools

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from semidp import Budget, Feature, Plan, run
from semidp.errors import InputError, Refused
from semidp.inference.paired_tests import adjusted_p_values, choose_draws, every_pair, pairs_section
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest

pytestmark = pytest.mark.pictures


def test_adjusted_p_values_are_those_of_the_step_up_rule() -> None:
    """Reject the k smallest, k the largest with p_(k) <= k q / (m c): for every q the same as
    adjusted <= q.
    """
    source, checked = np.random.default_rng(1), 0
    for _ in range(40):
        p = source.random(int(source.integers(1, 9))) ** 3
        m = len(p)
        harmonic = sum(1 / k for k in range(1, m + 1))
        adjusted = adjusted_p_values(p)
        np.testing.assert_allclose(adjusted, false_discovery_control(p, method="by"))
        for q in (0.01, 0.05, 0.2, 0.7):
            fits = [k for k in range(1, m + 1) if np.sort(p)[k - 1] <= k * q / (m * harmonic)]
            cut = np.sort(p)[max(fits) - 1] if fits else -1.0
            np.testing.assert_array_equal(adjusted <= q, p <= cut)
            checked += 1
    assert checked == 160


def worst_case(m: int, q: float, source: np.random.Generator) -> np.ndarray:
    """p-values, each uniform, as dependent as can be: k of them fall together just below k q / m,
    for one random k.
    """
    p = source.uniform(q, 1, m)
    sizes = np.arange(1, m + 1)
    chosen = source.choice(m + 1, p=[*(q / sizes), 1 - (q / sizes).sum()])
    if chosen < m:
        k = chosen + 1
        p[source.choice(m, k, replace=False)] = source.uniform((k - 1) * q / m, k * q / m, k)
    return p


def test_the_false_discovery_rate_holds_under_the_worst_dependence_and_a_simpler_rule_fails() -> (
    None
):
    source, m, q, runs = np.random.default_rng(2), 10, 0.1, 6000
    harmonic = sum(1 / k for k in range(1, m + 1))
    ours = simpler = 0
    for _ in range(runs):
        adjusted = adjusted_p_values(worst_case(m, q, source))
        ours += bool((adjusted <= q).any())
        simpler += bool((adjusted / harmonic <= q).any())  # Benjamini and Hochberg
    assert ours / runs <= q + 0.02
    assert simpler / runs > 2.5 * q


def data(n: int = 400) -> dict[str, list[str]]:
    source = np.random.default_rng(3)
    a = source.integers(0, 3, n)
    b = np.where(source.random(n) < 0.6, a, source.integers(0, 3, n))
    c, d = source.integers(0, 2, n), source.integers(0, 4, n)
    return {
        name: [f"{name}{value}" for value in values]
        for name, values in zip("abcd", (a, b, c, d), strict=True)
    }


def test_every_pair_of_several_tables_once() -> None:
    tables = [TableRequest(list(pair)) for pair in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "d"))]
    plan = Plan([TablesRequest(tables, Budget.gdp(1))], ["a", "b", "c", "d"])
    release = run(plan, data(), SeededRandomness(1))
    found = every_pair(release, draws=1999, randomness=SeededRandomness(1))
    assert [{test.rows, test.columns} for test in found.tests] == [
        {*"ab"},
        {*"bc"},
        {*"ac"},
        {*"ad"},
    ]
    assert [(test.rows, test.columns) for test in found.discoveries] == [("a", "b")]
    assert found.features == ("a", "b", "c", "d")
    assert found.to_json()["tests"][0]["discovery"] is True
    axes = found.plot().axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c", "d"]
    assert len(axes.lines[0].get_xdata()) == 2  # one discovery, drawn on both sides of the diagonal


def test_pairs_without_exact_totals_are_named_and_ordered_ones_are_trends() -> None:
    features = [
        Feature(name, [f"{name}{k}" for k in range(size)]) for name, size in (("b", 3), ("d", 4))
    ]
    plan = Plan(
        [TableRequest(["a", "b", "d"], Budget.gdp("0.2"))], ["a"], features, levels_from_data=True
    )
    release = run(plan, data(), SeededRandomness(1))
    found = every_pair(release, ordered=["a", "b"], draws=999)
    assert [(one, other) for one, other, _ in found.untested] == [("b", "d")]
    assert "totals of b and of d are both noisy" in found.untested[0][2]
    assert found.tests[0].noisy_totals == ("b",)
    assert found.tests[0].degrees == 1
    with pytest.raises(InputError, match="no pair of published features has z"):
        every_pair(release, ordered=["z"])
    with pytest.raises(InputError, match="between 0 and 1"):
        every_pair(release, fdr=2)
    alone = Plan([TableRequest(["b", "d"], Budget.gdp("0.2"))], [], features)
    with pytest.raises(Refused, match="no pair of features can be tested"):
        every_pair(run(alone, data(), SeededRandomness(1)))


def test_draws_suffice_for_a_single_discovery() -> None:
    for pairs, fdr in itertools.product((1, 10, 100, 500), (0.05, 0.01)):
        least = 1 / (1 + choose_draws(pairs, fdr))
        assert adjusted_p_values([least, *[1.0] * (pairs - 1)])[0] <= fdr


def test_the_report_draws_the_matrix_where_it_is_asked_for() -> None:
    plan = Plan(
        [TableRequest(["a", "b", "c"], Budget.gdp(2))], ["a", "b", "c"], levels_from_data=True
    )
    release = run(plan, data(), SeededRandomness(1))
    answer = every_pair(release, draws=999, randomness=SeededRandomness(1))
    section = pairs_section(answer)
    assert section.rows[0][0] == "a × b"
    assert section.rows[0][3] == "associated"
    assert len(section.rows) == 3
    page = release.report_html(further=[section])
    assert section.heading in page
    assert "a × b" in page
    # The twin: the report as it is written beside a release has no tests.
    assert section.heading not in release.report_html()

"""Large tables, large numbers, limits, progress, and what a fit refuses."""

import inspect
import subprocess
import sys
import typing

import numpy as np
import pytest

from semidp.errors import InputError
from semidp.promise.schema.margins import Grid, is_within_view, join, junction_order, meet
from semidp.promise.schema.schema import StructuralZero, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.fitting.real import Infeasible, pose, project
from semidp.publish.fitting.tables import Fit, fit_table
from tests.fit.cases import least_loss, margins_exact, schema_of, space_of, totals_of


def sparse(shape: tuple[int, ...], seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(1.0, 1.0, shape))


@pytest.mark.parametrize(
    ("shape", "margins"),
    [
        ((300, 300), "A B"),
        ((50, 20, 10), "A B C"),
        ((30, 40, 10), "AB BC"),
        ((20, 20, 20, 2), "A B"),
    ],
)
def test_large_tables_come_close_to_the_real_valued_bound(
    shape: tuple[int, ...], margins: str
) -> None:
    hidden = sparse(shape)
    noisy = hidden + np.rint(np.random.default_rng(4).normal(0.0, 8.0**0.5, shape))
    space = space_of(hidden, margins)
    fit = fit_table(noisy, space)
    assert fit.counts is not None
    assert margins_exact(fit.counts, space)
    assert 0 < fit.gap < 0.05
    assert fit.optimal == (margins != "A B C")


def test_a_table_that_may_not_be_optimal_says_how_far_it_is() -> None:
    hidden = sparse((50, 20, 10))
    fit = fit_table(
        hidden + np.random.default_rng(4).normal(0.0, 3.0, hidden.shape), space_of(hidden, "A B C")
    )
    assert not fit.optimal
    assert fit.method == "nested flows"
    assert fit.note.startswith("Closer tables may exist, but their loss is at most 0.")


@pytest.mark.parametrize("margins", ["", "A", "A B"])
@pytest.mark.parametrize("offset", [10**9, -(10**12), 2**55])
def test_an_offset_beyond_any_count_changes_nothing(margins: str, offset: int) -> None:
    """A constant in every cell is fixed by n; the small differences on top of it still decide,
    exactly.
    """
    rng = np.random.default_rng(5)
    hidden = rng.poisson(0.7, (3, 3))
    noise = rng.integers(-6, 7, (3, 3))
    space = space_of(hidden, margins)
    fit = fit_table(hidden + noise + offset, space)
    assert fit.counts is not None
    assert margins_exact(fit.counts, space)
    assert float(((fit.counts - hidden - noise) ** 2).sum()) == least_loss(hidden + noise, space)


@pytest.mark.parametrize("margins", ["", "A", "A B", "AB BC", "A B C", "AB BC AC"])
def test_huge_counts_and_huge_noise(margins: str) -> None:
    rng = np.random.default_rng(6)
    hidden = rng.integers(0, 10**15, (4, 3, 3))
    space = space_of(hidden, margins)
    for scale in (1.0, 1e9, 1e16):
        fit = fit_table(
            hidden + np.rint(rng.normal(0.0, scale, hidden.shape)).astype(np.int64), space
        )
        if fit.counts is None:
            assert margins == "AB BC AC"  # floating point programs cannot hold such totals exactly
        else:
            assert margins_exact(fit.counts, space)


def test_noise_that_dwarfs_the_counts() -> None:
    hidden = sparse((40, 30))
    for margins in ("A B", "A"):
        space = space_of(hidden, margins)
        fit = fit_table(np.random.default_rng(7).normal(0.0, 1e6, hidden.shape), space)
        assert fit.counts is not None
        assert margins_exact(fit.counts, space)
        assert fit.optimal


def test_no_records_at_all() -> None:
    for margins in ("", "A", "A B", "A B C", "AB BC AC"):
        space = space_of(np.zeros((2, 2, 2), dtype=np.int64), margins)
        fit = fit_table(np.full((2, 2, 2), 1.5), space)
        assert fit.counts is not None
        assert not fit.counts.any()
        assert fit.loss == fit.bound == 18.0


def test_a_table_that_the_margins_fix_comes_back() -> None:
    hidden = np.arange(6).reshape(2, 3)
    fit = fit_table(hidden + 100.0, space_of(hidden, "AB"))
    assert np.array_equal(fit.counts, hidden)


HALVES = [{"A": "0", "B": "0", "C": "0"}, {"A": "0", "B": "1", "C": "1"}]
HALVES += [{"A": "1", "B": "0", "C": "1"}, {"A": "1", "B": "1", "C": "0"}]


def test_where_only_halves_add_up_the_table_is_real_valued_and_says_so() -> None:
    """Two records in the four cells of even parity: one half each is the only solution, whole
    numbers have none.
    """
    schema = schema_of((2, 2, 2), [StructuralZero.from_pattern(zero) for zero in HALVES])
    ones = {Margin(name): Table(schema.restrict([name]), [1, 1]) for name in "ABC"}
    fit = fit_table(np.zeros((2, 2, 2)), Dataspace.from_totals(schema, ones))
    assert fit.counts is None
    assert fit.values is not None
    assert fit.values[0, 0, 1] == pytest.approx(0.5)
    assert not fit.optimal
    assert "No table of whole numbers" in fit.note


def infeasible(
    shape: tuple[int, ...], zeros: list[dict[str, str]], totals: dict[str, list[int]]
) -> Dataspace:
    schema = schema_of(shape, [StructuralZero.from_pattern(zero) for zero in zeros])
    return Dataspace.from_totals(
        schema,
        {
            Margin(*names): Table(schema.restrict(names), np.array(counts))
            for names, counts in totals.items()
        },
    )


@pytest.mark.parametrize(
    "space",
    [
        infeasible((2, 2), [{"A": "0", "B": "0"}], {"A": [3, 1], "B": [3, 1]}),
        infeasible((2, 2), [{"A": "0", "B": "0"}, {"A": "0", "B": "1"}], {"A": [1, 1]}),
        infeasible((2, 2, 2), [{"A": "0", "B": "0"}], {"A": [3, 1], "B": [3, 1], "C": [2, 2]}),
        infeasible(
            (2, 2, 2), [], {"AB": [[1, 0], [0, 1]], "BC": [[1, 0], [0, 1]], "AC": [[0, 1], [1, 0]]}
        ),
        infeasible(
            (2, 2, 2), [], {"AB": [[9, 1], [1, 9]], "BC": [[9, 1], [1, 9]], "AC": [[1, 9], [9, 1]]}
        ),
    ],
    ids=["two-way", "row", "three-way", "closed", "triangle"],
)
def test_totals_that_no_table_has_are_refused(space: Dataspace) -> None:
    with pytest.raises(Infeasible, match="no table of nonnegative counts has the published totals"):
        fit_table(np.ones(space.schema.shape), space)


def test_a_confidential_table_is_not_accepted() -> None:
    hidden = np.array([[1, 2], [3, 4]])
    space = space_of(hidden, "A B")
    assert "Table" not in str(typing.get_type_hints(fit_table)["noisy"])
    assert next(iter(inspect.signature(fit_table).parameters)) == "noisy"
    with pytest.raises(InputError, match="a table of counts is not accepted"):
        fit_table(Table(schema_of((2, 2)), hidden), space)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noisy": np.zeros((2, 3))}, "shape"),
        ({"noisy": np.array([[0.0, np.nan], [0.0, 0.0]])}, "finite"),
        ({"noisy": np.array([[0.0, np.inf], [0.0, 0.0]])}, "finite"),
        ({"noisy": np.full((2, 2), 2.0**60)}, "below 2"),
        ({"noisy": np.full((2, 2), 2**63, dtype=np.uint64)}, "below 2"),
        ({"noisy": np.array([["1", "2"], ["3", "4"]])}, "array of noisy numbers"),
        ({"dataspace": Dataspace.from_description("state totals")}, "description"),
        ({"time_limit": 0.0}, "positive"),
        ({"time_limit": float("nan")}, "positive"),
    ],
)
def test_what_is_not_legal_is_said(change: dict[str, typing.Any], message: str) -> None:
    given = {
        "noisy": np.zeros((2, 2)),
        "dataspace": space_of(np.array([[1, 2], [3, 4]]), "A B"),
    } | change
    with pytest.raises(InputError, match=message):
        fit_table(given.pop("noisy"), given.pop("dataspace"), **given)


def test_progress_is_told() -> None:
    hidden = sparse((8, 7, 6))
    heard: list[str] = []
    fit_table(
        hidden - 0.3,
        space_of(hidden, "A B C"),
        progress=lambda task, done, total: heard.append(task),
    )
    assert {"nesting flows", "fitting whole numbers", "improving the table"} <= set(heard)


@pytest.mark.long
def test_a_long_integer_program_reports_every_second_and_keeps_its_limit() -> None:
    hidden = sparse((14, 14, 14))
    noisy = hidden + np.random.default_rng(8).normal(0.0, 10.0, hidden.shape)
    heard: list[float] = []

    def listen(task: str, done: float, total: float | None) -> None:
        if task == "solving an integer program":
            heard.append(done)

    fit = fit_table(noisy, space_of(hidden, "AB BC AC"), time_limit=2.5, progress=listen)
    assert heard
    assert isinstance(fit, Fit)
    assert fit.counts is None or margins_exact(fit.counts, space_of(hidden, "AB BC AC"))


def test_a_projection_that_runs_out_of_time_has_a_bound_below_every_loss() -> None:
    hidden = sparse((20, 20, 5))
    noisy = hidden + np.random.default_rng(9).normal(0.0, 1e5, hidden.shape)
    problem = pose(Grid.flat(hidden.shape), noisy, totals_of(hidden, [(1, 1, 0), (0, 1, 1)]))
    early = project(problem, deadline=0.0)
    assert not early.has_met_totals
    assert early.bound <= project(problem).bound * (1 + 1e-9)


@pytest.mark.parametrize(
    ("families", "decomposable"),
    [
        ([(0,), (1,), (2,)], True),
        ([(0, 1), (1, 2), (2, 3)], True),
        ([(0, 1), (0, 2), (0, 3)], True),
        ([(0, 1), (2, 3), (1, 2), (3, 4)], True),
        ([(0, 1), (1, 2), (0, 2)], False),
        ([(0, 1), (1, 2), (2, 3), (0, 3)], False),
        ([(0, 1), (1, 2), (0, 2), (3,)], False),
    ],
)
def test_an_order_of_flows_exists_where_margins_are_decomposable(
    families: list[tuple[int, ...]], decomposable: bool
) -> None:
    views = [tuple(int(axis in family) for axis in range(5)) for family in families]
    order = junction_order(views)
    assert (order is not None) == decomposable
    for step in range(1, len(order or [])):
        assert order is not None
        shared = meet(order[step], join(*order[:step]))
        assert any(is_within_view(shared, one) for one in order[:step])


def test_importing_the_fits_brings_no_solver() -> None:
    code = (
        "import sys, semidp.publish.fitting; print(sorted({'ortools', 'highspy', 'scipy.optimize'} &"
        " set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.long
def test_the_highspy_package_stays_out() -> None:
    """It cannot share a process with ortools; SciPy's own HiGHS can."""
    code = (
        "import sys, numpy as np; from tests.fit.cases import space_of; from"
        " semidp.publish import fit_table\nones = np.ones((2, 2, 2), dtype=int)\nfor margins in ('A B', 'AB BC AC'):"
        " fit_table(ones + .5, space_of(ones, margins))\nprint('ortools' in sys.modules, 'highspy'"
        " in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]

"""Noise of residuals, of one kind of records and of linked ones: errors and guarantees by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest

from semidp.errors import Refused
from semidp.promise.mechanisms import mechanism, residual_noise
from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.residual_noise import ResidualNoise
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.linked_products import linked_space
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.linked import Link, LinkedDataspace
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian


def make_space():
    """Residuals of two tables that share a feature; their entries are residuals times 2, 3 and 6."""
    schema = Schema([Feature("sex", "fm"), Feature("region", "nsw"), Feature("age", "yo")])
    table = Table(schema, np.arange(12).reshape(2, 3, 2) + 5)
    public = Dataspace.from_table(table, [Margin("sex")])
    return product_space(public, Ball(2), [["sex", "region"], ["region", "age"]])


def make_nested_space():
    """Counties of states of different sizes: entries of one residual have different scales."""
    paths = [("A", "a1"), ("A", "a2"), ("A", "a3"), ("B", "b1"), ("B", "b2")]
    county = Feature.from_paths(["state", "county"], paths)
    table = Table(Schema([county, Feature("age", "yo")]), np.arange(10).reshape(5, 2) + 5)
    return product_space(Dataspace.from_table(table, []), Ball(1), [["county", "age"]])


def make_linked_space():
    zone, sex = Feature("zone", "ab"), Feature("sex", "fm")
    persons = Table(Schema([zone, sex]), [[3, 2], [1, 4]])
    homes = Table(Schema([zone, Feature("size", "123")]), [[1, 2, 0], [0, 1, 1]])
    public = LinkedDataspace.joining(
        Dataspace.from_table(persons, []),
        Dataspace.from_table(homes, [Margin("zone")]),
        Link("member", 1, 3),
    )
    return linked_space(public, Exchange(2), [["zone", "sex"]], [["zone", "size"]])


@pytest.mark.parametrize("make", [make_space, make_nested_space])
def test_errors_of_centered_entries_are_those_of_the_projection(make):
    space = make()
    noise = ResidualNoise.from_precision(space, Fraction(1), "rounded")
    entries = len(noise.variances)
    projection = np.array([space.project(unit) for unit in np.eye(entries)]).T
    covariance = (projection * noise.variances) @ projection.T
    assert noise.standard_errors() == pytest.approx(np.sqrt(np.diag(covariance)))
    assert noise.variance == pytest.approx(np.trace(covariance) / space.dimension)
    weights = np.linspace(-1, 2, entries)
    expected = math.sqrt(weights @ covariance @ weights)
    assert noise.standard_error(weights) == pytest.approx(expected)


@pytest.mark.parametrize("law", ["discrete", "rounded"])
def test_linked_noise_spends_half_of_its_precision_on_each_kind(law):
    space = make_linked_space()
    noise = LinkedNoise.from_precision(space, Fraction(1, 2), law)
    assert noise.members.precision == noise.units.precision == Fraction(1, 4)
    stated = Fraction(1, 4) if law == "discrete" else Fraction(1, 2)
    assert noise.tradeoff == (ZCDP(stated) if law == "discrete" else Gaussian(stated))
    squares = sum(part.expected_l2**2 for part in noise.parts)
    assert noise.variance == pytest.approx(squares / space.dimension)


def test_a_joint_cost_is_confirmed_by_coarser_arithmetic():
    space = make_space()
    noise = ResidualNoise.from_precision(space, Fraction(1), "rounded")
    joint = Fraction(space.costs.joint(noise.sigma2))
    bound = residual_noise._bound_joint_cost(space, noise.sigma2)
    assert joint * (1 + Fraction(1, 10**7)) < bound < joint * (1 + Fraction(1, 10**5))


def test_noise_that_whole_numbers_might_not_hold_is_refused():
    """Residuals are measured times their scales, and so is their noise."""
    space = make_space()
    for bits in range(60, 200):
        try:
            noise = ResidualNoise.from_precision(space, Fraction(1, 2**bits), "rounded")
        except Refused:
            break
        scales = {view: space.residuals.largest_scale(view) for view in noise.sigma2}
        largest = max(square * scales[view] ** 2 for view, square in noise.sigma2.items())
        assert largest <= mechanism._LARGEST_SCALE**2
    assert 60 < bits < 199

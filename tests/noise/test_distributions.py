"""The one-dimensional samplers have exactly the law they state, on every path, and the tests would
notice if not.
"""

import tracemalloc
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

from semidp.errors import InputError, Refused
from semidp.promise.noise import rejection
from semidp.promise.noise.distributions import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    sample_each,
)
from semidp.promise.noise.inversion import GaussianLaw, GeometricLaw, Inversion
from semidp.promise.noise.randomness import SeededRandomness, Stream

SCALES = [Fraction(3, 10), Fraction(1), Fraction(5, 2), Fraction(20), Fraction(1000)]
KINDS = [DiscreteGaussian, RoundedGaussian, DiscreteLaplace]


def of_scale(kind, scale: Fraction):
    return kind(scale) if kind is DiscreteLaplace else kind(scale**2)


def support(noise) -> np.ndarray:
    reach = int(12 * noise.variance**0.5) + 5
    return np.arange(-reach, reach + 1)


def agrees(fits, draws: np.ndarray, noise, smallest: float) -> bool:
    k = support(noise)
    inside = np.abs(draws) <= k[-1]
    return fits(
        np.bincount(draws[inside] + k[-1], minlength=k.size),
        noise.pmf(k),
        int((~inside).sum()),
        smallest,
    )


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_stated_probabilities_and_not_those_of_a_scale_off_by_a_tenth(
    fits, kind, scale
) -> None:
    noise = of_scale(kind, scale)
    draws = noise.sample(200_000, SeededRandomness(11))
    assert agrees(fits, draws, noise, smallest=1000)
    assert agrees(fits, draws, noise, smallest=20)
    for wrong in (scale * Fraction(9, 10), scale * Fraction(11, 10)):
        assert not agrees(fits, draws, of_scale(kind, wrong), smallest=1000)


@pytest.mark.few(1)
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_holds_when_short_words_force_the_refinement(fits, kind, scale) -> None:
    noise = of_scale(kind, scale)
    table = Inversion(noise, guide_bits=3, word_bits=5)
    assert np.mean(table.guide < 0) >= 0.25
    # Every draw takes ball arithmetic here; the Gaussian needs fewer of them than the Laplace to
    # tell scales apart.
    draws = table.draw(
        5000 if scale == 1000 and kind is not DiscreteLaplace else 10_000,
        Stream(SeededRandomness(12)),
    )
    assert agrees(fits, draws, noise, smallest=400)
    for wrong in (scale * Fraction(9, 10), scale * Fraction(11, 10)):
        assert not agrees(fits, draws, of_scale(kind, wrong), smallest=400)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [Fraction(2000), Fraction(10**6), Fraction(2) ** 40], ids=str)
def test_large_scales_need_no_large_table(fits, kind, scale) -> None:
    noise = of_scale(kind, scale)
    draws = noise.sample(100_000, SeededRandomness(13)).astype(float)
    unit = mpmath.mpf(scale.numerator)
    edges = np.linspace(-4, 4, 41)
    if kind is DiscreteLaplace:
        below = [float(mpmath.exp(z) / 2 if z < 0 else 1 - mpmath.exp(-z) / 2) for z in edges]
    else:
        below = [float(mpmath.ncdf(z)) for z in edges]
    probabilities = np.diff(np.array([0.0, *below, 1.0]))
    for factor, expected in ((1.0, True), (0.9, False), (1.1, False)):
        observed = np.bincount(np.searchsorted(edges, draws / (float(unit) * factor)), minlength=42)
        assert fits(observed, probabilities) is expected
    # Neighbouring integers are equally likely: the last two bits are uniform.
    assert fits(np.bincount(draws.astype(np.int64) & 3, minlength=4), np.full(4, 0.25))


def quantile_by_mpmath(law, u: mpmath.mpf) -> int:
    """Return the k with F(k-1) <= u < F(k), from formulas of F that share nothing with the
    package.
    """
    k = 0
    while mp_cdf(law, k) <= u:
        k += 1
    while mp_cdf(law, k - 1) > u:
        k -= 1
    return k


def mp_cdf(law, k: int) -> mpmath.mpf:
    return mp_cdf_at(law, k, mpmath.mp.prec)


@cache
def mp_cdf_at(law, k: int, _precision: int) -> mpmath.mpf:
    mp = mpmath.mp
    if isinstance(law, GaussianLaw):
        s2 = mp.mpf(law.sigma2.numerator) / law.sigma2.denominator
        reach = 200
        weights = [mp.exp(-mp.mpf(j * j) / (2 * s2)) for j in range(-reach, reach + 1)]
        return mp.fsum(weights[: max(0, k + reach + 1)]) / mp.fsum(weights)
    if isinstance(law, RoundedGaussian):
        return mp.ncdf(
            (k + mp.mpf(1) / 2) / mp.sqrt(mp.mpf(law.sigma2.numerator) / law.sigma2.denominator)
        )
    s = mp.mpf(law.scale.numerator) / law.scale.denominator
    if isinstance(law, DiscreteLaplace):
        tail = mp.exp(-(k + 1) / s) if k >= 0 else mp.exp(k / s)
        tail /= 1 - mp.exp(-1 / s)
        total = (1 + mp.exp(-1 / s)) / (1 - mp.exp(-1 / s))
        return tail / total if k < 0 else 1 - tail / total
    if law.size is None:
        return 1 - mp.exp(-(k + 1) / s) if k >= 0 else mp.mpf(0)
    top = [mp.exp(-j / s) for j in range(law.size)]
    return mp.fsum(top[: max(0, k + 1)]) / mp.fsum(top)


FIVE_LAWS = [
    GaussianLaw(Fraction(9, 4)),
    RoundedGaussian(Fraction(9, 4)),
    DiscreteLaplace(Fraction(3, 2)),
    GeometricLaw(Fraction(3, 2)),
    GeometricLaw(Fraction(3), 8),
]


@pytest.mark.parametrize("law", FIVE_LAWS, ids=lambda law: type(law).__name__)
def test_every_boundary_is_decided_exactly_where_the_words_of_the_table_end(law, scripted) -> None:
    # Exactness is this: U in [0, 1) goes to the k with F(k-1) <= U < F(k). It is tested 2^-128 to
    # either side of F(k).
    table = Inversion(law)
    with mpmath.workprec(320):
        for k, floor in enumerate(table.floors.tolist(), start=table.first):
            boundary = mp_cdf(law, k) * 2**128
            word, rest = divmod(int(mpmath.floor(boundary)), 2**64)
            assert word == floor
            if not 0 < rest < 2**64 - 1 or floor in (0, 2**64 - 1):
                continue
            for step, value in ((-1, k), (1, k + 1)):
                leading = np.array([word >> 48], dtype=np.uint16)
                source = scripted([(word << 16) % 2**64, rest + step])
                assert table.resolve(leading, Stream(source)).tolist() == [value]


@pytest.mark.parametrize("law", FIVE_LAWS, ids=lambda law: type(law).__name__)
def test_all_short_words_enumerated_give_the_certified_probabilities(law, scripted) -> None:
    # 2^6 words of six bits, each followed by one of eight further words: all of U on a grid,
    # against mpmath.
    table = Inversion(law, guide_bits=3, word_bits=6)
    with mpmath.workprec(200):
        for word in range(64):
            for further in range(8):
                source = scripted([(word % 8) << 61, (further << 61) + 12345])
                value = table.resolve(np.array([word >> 3], dtype=np.uint16), Stream(source))[0]
                in_guide = table.guide[word >> 3]
                assert in_guide < 0 or in_guide + table.first == value
                u = (mpmath.mpf(word) + mpmath.mpf((further << 61) + 12345) / 2**64) / 64
                expected = quantile_by_mpmath(law, u)
                # Where the word alone decides, the further bits are not read: any U of that word
                # gives the same value.
                assert value == expected, (word, further)


@pytest.mark.parametrize("law", FIVE_LAWS[:4], ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("tail", [5, 2**63 + 1])
def test_the_tails_beyond_the_table_have_their_true_probability(law, tail, scripted) -> None:
    table = Inversion(law)
    with mpmath.workprec(400):
        upper = 2**64 - 1
        value = table.resolve(
            np.array([2**16 - 1], dtype=np.uint16), Stream(scripted([upper, upper - tail, 7]))
        )[0]
        assert value == quantile_by_mpmath(
            law, 1 - mpmath.mpf(tail + 1) / 2**128 + mpmath.mpf(7) / 2**192
        )
        if table.first < 0:
            value = table.resolve(np.array([0], dtype=np.uint16), Stream(scripted([0, tail, 7])))[0]
            assert value == quantile_by_mpmath(law, mpmath.mpf(tail) / 2**128)
            # A word of zeros says nothing about a tail without end: more words are asked for.
            value = table.resolve(
                np.array([0], dtype=np.uint16), Stream(scripted([0, 0, 0, tail]))
            )[0]
            assert value < table.first - 1


@pytest.mark.parametrize("kind", [DiscreteGaussian, RoundedGaussian])
def test_many_laws_with_few_draws_each_keep_their_own(fits, kind) -> None:
    """Drawn together without a table each: every law has its probabilities, and not those of its
    neighbour.
    """
    scales = [Fraction(1), Fraction(11, 10), Fraction(20), Fraction(22)]
    laws = [kind(scale**2) for scale in scales]
    which = np.tile(np.arange(4), 40_000)
    draws = sample_each(laws, which, SeededRandomness(15))
    for number, law in enumerate(laws):
        mine = draws[which == number]
        assert agrees(fits, mine, law, smallest=400)
        assert not agrees(fits, mine, laws[number ^ 1], smallest=400)
    with pytest.raises(InputError, match="1/16"):
        sample_each([kind(Fraction(1, 100))], np.array([0]), SeededRandomness(1))


@pytest.mark.parametrize("kind", [DiscreteGaussian, RoundedGaussian])
def test_floats_decide_for_many_laws_as_ball_arithmetic_does(kind, monkeypatch) -> None:
    squares = [Fraction(variance) for variance in (1, 7, 10**4)] * 400
    variance = np.array([float(square) for square in squares])
    x, accepted = kind.attempts(squares, variance, Stream(SeededRandomness(16)))
    monkeypatch.setattr(rejection, "TOLERANCE", 2.0)
    again = kind.attempts(squares, variance, Stream(SeededRandomness(16)))
    assert np.array_equal(again[0], x)
    assert np.array_equal(again[1], accepted)
    assert 0.5 < accepted.mean() < 1


@pytest.mark.parametrize("kind", [DiscreteGaussian, RoundedGaussian])
def test_floats_decide_as_ball_arithmetic_does(kind, monkeypatch) -> None:
    noise = kind(Fraction(10**8))
    by_floats = noise.sample(3000, SeededRandomness(14))
    monkeypatch.setattr(rejection, "TOLERANCE", 2.0)
    assert np.array_equal(noise.sample(3000, SeededRandomness(14)), by_floats)


def test_the_exponential_is_as_precise_as_it_is_proved_to_be() -> None:
    x = np.concatenate([np.linspace(0, 48, 4001), np.random.default_rng(3).exponential(3, 4000)])
    with mpmath.workprec(120):
        true = [mpmath.exp(-mpmath.mpf(v)) for v in x]
        error = max(
            abs(mpmath.mpf(got) / want - 1)
            for got, want in zip(rejection.exp_minus(x), true, strict=True)
        )
    assert error < 2.0**-34
    assert rejection.exp_minus(np.array([-1.0, 1e9])).tolist() == [
        1.0,
        pytest.approx(np.exp(-48.0)),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "scale", [Fraction(3, 10), Fraction(1), Fraction(5, 2), Fraction(20)], ids=str
)
def test_pmf_and_variance_are_accurate(kind, scale) -> None:
    noise = of_scale(kind, scale)
    with mpmath.workprec(200):
        k = [-40, -31, -7, -3, -2, -1, 0]
        true = [float(mp_cdf(noise, j) - mp_cdf(noise, j - 1)) for j in k]
        assert noise.pmf(k) == pytest.approx(np.array(true), rel=1e-12, abs=1e-300)
        assert np.array_equal(noise.pmf(k), noise.pmf([-j for j in k]))
    j = np.arange(-2000, 2001)
    assert noise.pmf(j).sum() == pytest.approx(1, rel=1e-13)
    assert (noise.pmf(j) * j.astype(float) ** 2).sum() == pytest.approx(noise.variance, rel=1e-12)
    assert noise.pmf(0).shape == ()
    with pytest.raises(InputError, match="whole numbers"):
        noise.pmf(0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_chunks(kind) -> None:
    noise = kind(Fraction(9))
    assert noise.sample(0, SeededRandomness(1)).shape == (0,)
    assert noise.sample((3, 0), SeededRandomness(1)).shape == (3, 0)
    assert noise.sample((), SeededRandomness(1)).shape == ()
    many = noise.sample((3, 33_333), SeededRandomness(1))
    assert many.shape == (3, 33_333)
    assert many.dtype == np.int64
    assert np.array_equal(many, noise.sample((3, 33_333), SeededRandomness(1)))
    for size in (-1, 2.5, True, (3, -1)):
        with pytest.raises(InputError, match="size of a sample"):
            noise.sample(size, SeededRandomness(1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "a lot", True])
def test_a_scale_is_a_number_above_zero(kind, bad) -> None:
    with pytest.raises(InputError, match=r"scale|sigma2"):
        kind(bad)


@pytest.mark.parametrize("kind", KINDS)
def test_scales_that_would_overflow_are_refused_and_tiny_ones_give_zero(kind) -> None:
    with pytest.raises(Refused, match="64 bits"):
        kind(Fraction(4) ** 50)
    largest = kind(Fraction(2) ** 50).sample(10_000, SeededRandomness(1))
    assert np.abs(largest).max() < 2**56
    assert not kind(Fraction(1, 10**9)).sample(1000, SeededRandomness(1)).any()


def test_noise_that_does_not_fit_is_refused_not_wrapped(scripted) -> None:
    # 2^-2^14 or so is the probability of this; the words say it happened.
    noise = DiscreteLaplace(Fraction(2) ** 50)
    words = [2**64 - 1] * 3000
    with pytest.raises(Refused, match="64 bits"):
        noise.sample(1, scripted(words))


def test_memory_does_not_grow_with_the_sample_beyond_the_result() -> None:
    noise = DiscreteGaussian(Fraction(4))
    noise.sample(1, SeededRandomness(1))
    tracemalloc.start()
    try:
        noise.sample(4_000_000, SeededRandomness(1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 4_000_000 + 2_000_000


def test_parameters_are_kept_exactly_and_equal_values_share_a_table() -> None:
    assert DiscreteGaussian(0.1).sigma2 == Fraction(1, 10)
    assert DiscreteGaussian(Fraction(1, 10)) == DiscreteGaussian("0.1")
    assert hash(RoundedGaussian(Fraction(6))) == hash(RoundedGaussian(6))

"""Words are fresh, forks and threads share none, and a seeded source cannot be mistaken for a
secure one.
"""

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from semidp.errors import InputError
from semidp.promise.noise.distributions import DiscreteGaussian, RoundedGaussian
from semidp.promise.noise.randomness import (
    SeededRandomness,
    Stream,
    SystemRandomness,
    generator,
    uniforms,
)

pytestmark = pytest.mark.system_randomness


def test_the_operating_systems_words_are_uniform_and_never_repeat(fits) -> None:
    source = SystemRandomness()
    words = source.words(100_000)
    assert source.secure
    assert words.dtype == np.uint64
    assert np.unique(words).size == words.size  # 10^5 words collide with probability 3e-10
    assert fits(np.bincount(words.view(np.uint8), minlength=256), np.full(256, 1 / 256))


def test_the_operating_systems_source_draws_the_discrete_gaussian(fits) -> None:
    noise = DiscreteGaussian(Fraction(4))
    draws = noise.sample(100_000, SystemRandomness())
    k = np.arange(-20, 21)
    observed = np.bincount(draws + 20, minlength=41)
    assert fits(observed, noise.pmf(k))
    assert not fits(observed, DiscreteGaussian(Fraction(121, 25)).pmf(k))


def test_a_seed_repeats_and_says_that_it_is_not_private() -> None:
    one, two = SeededRandomness(5), SeededRandomness(5)
    assert np.array_equal(one.words(10), two.words(10))
    assert not np.array_equal(one.words(10), SeededRandomness(5).words(10))
    assert not np.array_equal(SeededRandomness(5).words(10), SeededRandomness(6).words(10))
    assert one.secure is False
    assert "NOT PRIVATE" in repr(one)
    assert not isinstance(one, SystemRandomness)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7", None])
def test_a_seed_is_a_whole_number(seed) -> None:
    with pytest.raises(InputError, match="seed must be a whole number"):
        SeededRandomness(seed)


def test_a_stream_hands_out_every_word_of_its_source_at_most_once() -> None:
    class Counting:
        secure = False
        last = 0

        def words(self, count: int) -> np.ndarray:
            self.last += count
            return np.arange(self.last - count, self.last, dtype=np.uint64)

    stream = Stream(Counting())
    parts = [stream.words(n) for n in (1, 3, 60, 1000, 0, 8191, 8192, 20_000, 1, 5)]
    words = np.concatenate([part.copy() for part in parts])
    assert np.unique(words).size == words.size
    assert stream.word() not in words


def test_uniforms_lie_strictly_between_zero_and_one(fits, scripted) -> None:
    u = uniforms(100_000, SeededRandomness(1))
    assert fits(np.bincount((u * 64).astype(int), minlength=64), np.full(64, 1 / 64))
    ends = uniforms(2, scripted([0, 2**64 - 1]))
    assert 0 < ends[0] < 2.0**-52
    assert 1 - 2.0**-52 < ends[1] < 1


def test_each_generator_has_a_key_of_its_own() -> None:
    source = SeededRandomness(1)
    first, second = generator(source).normal(size=4), generator(source).normal(size=4)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, generator(SeededRandomness(1)).normal(size=4))
    assert not np.array_equal(
        generator(SystemRandomness()).normal(size=4), generator(SystemRandomness()).normal(size=4)
    )


def test_threads_draw_different_noise_of_the_right_law(fits) -> None:
    # Each thread builds tables of its own at the same time: flint has one precision for all of
    # them.
    def work(i: int) -> tuple[np.ndarray, np.ndarray]:
        noise = RoundedGaussian(Fraction(40 + i, 7))
        draws = noise.sample(20_000, SystemRandomness())
        return draws, noise.pmf(np.arange(-30, 31))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(16)))
    for draws, pmf in results:
        assert fits(np.bincount(draws + 30, minlength=61), pmf)
    assert len({draws.tobytes() for draws, _ in results}) == len(results)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system cannot fork")
def test_a_fork_shares_no_noise_and_does_not_wait_for_a_lost_thread() -> None:
    # In a process of its own: the child is forked while another thread holds the lock that guards
    # flint's precision.
    script = textwrap.dedent("""
        import os, threading, warnings
        from fractions import Fraction
        from semidp.promise import DiscreteGaussian
        from semidp.promise.noise.randomness import SystemRandomness
        from semidp.promise.ball_arithmetic import precision

        warnings.simplefilter("ignore")
        source, noise = SystemRandomness(), DiscreteGaussian(Fraction(10**6))
        noise.sample(10, source)
        held, done = threading.Event(), threading.Event()

        def hold():
            with precision(80):
                held.set()
                done.wait()

        threading.Thread(target=hold).start()
        held.wait()
        children = []
        for _ in range(2):
            reader, writer = os.pipe()
            if os.fork() == 0:
                new = DiscreteGaussian(Fraction(10**6) + 1).sample(4, source)
                os.write(writer, f"{noise.sample(8, source).tolist()} {new.size}".encode())
                os._exit(0)
            children.append(reader)
        done.set()
        print(noise.sample(8, source).tolist(), 4)
        for reader in children:
            os.wait()
            print(os.read(reader, 10_000).decode())
        """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.endswith("] 4") for line in lines)
    assert len(set(lines)) == 3

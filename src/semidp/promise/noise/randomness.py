"""Where random bits come from: the operating system, or a seed for tests and studies.

A source hands out independent uniform 64-bit words; everything in `noise` is a function of
such words. What the words are turned into lives in the other modules of this package.
"""

import hashlib
import json
import os
from typing import Protocol

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError

Words = NDArray[np.uint64]


class Randomness(Protocol):
    """A source of independent uniform 64-bit words.

    `secure` says whether a release drawn from it may be called private.
    """

    @property
    def secure(self) -> bool:
        """Whether nobody can predict the words."""

    def words(self, count: int) -> Words:
        """Return `count` fresh words, independent of every word returned before."""

    def part(self, *key: str) -> "Randomness":
        """Return the source of one part of the work, named by its key: a request, a partition."""


@frozen
class SystemRandomness:
    """The operating system's generator (``getrandom``), read in bulk. The default, and the only
    secure source.

    Nothing is kept between two calls, so it may be shared by threads and survives a fork.

    Examples
    --------
    >>> SystemRandomness().words(3).shape, SystemRandomness().secure
    ((3,), True)
    """

    secure = True
    """The operating system's words cannot be predicted."""

    def words(self, count: int) -> Words:
        """Return `count` fresh words."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def part(self, *key: str) -> "SystemRandomness":
        """Return this source: its words never come twice, whatever they are for."""
        return self


@frozen
class SeededRandomness:
    """Words that anybody who knows the seed can repeat: for tests and studies, **never private**.

    A release drawn from it carries that mark (its `secure` is False). Two sources with one seed
    give the same words.

    Examples
    --------
    >>> source = SeededRandomness(7)
    >>> source
    SeededRandomness(seed=7, NOT PRIVATE)
    >>> bool((source.words(2) == SeededRandomness(7).words(2)).all()), source.secure
    (True, False)
    >>> one, other = source.part("table", "north"), source.part("table", "south")
    >>> bool((one.words(2) == other.words(2)).any())
    False
    """

    seed: int
    key: tuple[str, ...] = field(default=(), repr=False)
    _bits: np.random.BitGenerator = field(init=False, repr=False, eq=False)

    secure = False
    """Anybody who knows the seed knows the noise."""

    def __attrs_post_init__(self) -> None:
        """Start the generator."""
        if not is_whole(self.seed) or self.seed < 0:
            raise InputError(f"a seed must be a whole number, 0 or more, not {self.seed!r}")
        seed: int | np.random.SeedSequence = int(self.seed)
        # A part has a sequence of its own, spawned from the seed by the hash of its key.
        if self.key:
            hashed = hashlib.sha256(json.dumps(self.key).encode()).digest()
            spawn_key = np.frombuffer(hashed, dtype=np.uint32).tolist()
            seed = np.random.SeedSequence(int(self.seed), spawn_key=spawn_key)
        object.__setattr__(self, "_bits", np.random.PCG64(seed))

    def __repr__(self) -> str:
        """Text with the mark that this source is not private."""
        return f"SeededRandomness(seed={self.seed}, NOT PRIVATE)"

    def words(self, count: int) -> Words:
        """Return the next `count` words."""
        return np.asarray(self._bits.random_raw(count), dtype=np.uint64)

    def part(self, *key: str) -> "SeededRandomness":
        """Return the source of one part: its words depend on the seed and the key, and on nothing
        drawn before.
        """
        return SeededRandomness(self.seed, (*self.key, *key))


def is_whole(number: object) -> bool:
    """Whether a number is an integer of Python or numpy, and no bool.

    >>> is_whole(3), is_whole(np.int64(3)), is_whole(True), is_whole(3.0)
    (True, True, False, False)
    """
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


class Stream:
    """Words of a source, fetched in bulk and handed out in small numbers.

    It lives for one call of a sampler and is never shared, so a fork or a second thread cannot
    see its words.
    """

    _SMALLEST, _LARGEST = 1 << 6, 1 << 13

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._words: Words = np.empty(0, dtype=np.uint64)
        self._used = 0
        self._bulk = self._SMALLEST

    def words(self, count: int) -> Words:
        """Return the next `count` words."""
        if count >= self._LARGEST:
            return self._randomness.words(count)
        if self._used + count > self._words.size:
            self._bulk = min(max(2 * self._bulk, count), self._LARGEST)
            self._words = self._randomness.words(self._bulk)
            self._used = 0
        self._used += count
        return self._words[self._used - count : self._used]

    def word(self) -> int:
        """Return one word as a Python integer."""
        return int(self.words(1)[0])


def uniforms(count: int, randomness: Randomness) -> NDArray[np.float64]:
    """Return `count` floats, uniform on the midpoints of 2^52 equal parts of (0, 1).

    Never 0 and never 1, so logarithms and quantiles are finite. For ideal-arithmetic
    mechanisms only: what is computed from these floats is not exact.

    Examples
    --------
    >>> u = uniforms(1000, SeededRandomness(1))
    >>> bool(u.min() > 0 and u.max() < 1)
    True
    """
    # The midpoints just below 1 have no double of their own and round to 1: keep 52 bits, whose
    # midpoints all have one.
    leading = randomness.words(count) >> np.uint64(12)
    return (leading.astype(np.float64) + 0.5) * 2.0**-52


def generator(randomness: Randomness) -> np.random.Generator:
    """Return a numpy generator keyed with 128 fresh bits of `randomness`: the counter-based Philox
    4×64.

    It serves mechanisms whose claim is for ideal arithmetic (gamma radii, directions on a sphere).
    Philox passes the statistical tests, but it is not a cipher: an exact claim draws its words from
    `randomness` itself instead.

    Examples
    --------
    >>> bool(0 < generator(SeededRandomness(1)).gamma(3.0))
    True
    """
    return np.random.Generator(np.random.Philox(key=randomness.words(2)))

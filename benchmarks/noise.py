"""Exact noise side by side with OpenDP and PyDP, on the same machine in the same run; and whether
time grows linearly.

OpenDP runs in the interpreter named by SEMIDP_PEERS_PYTHON, at its vectorised interface: one
discrete Gaussian (or Laplace) measurement on a vector of integers. Both sides use the operating
system's randomness, and both are exact. PyDP adds noise to one integer at a time (it has no call
for many), and its noise is a rounded approximation.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from semidp.promise.noise.distributions import DiscreteGaussian, DiscreteLaplace
from semidp.promise.noise.lattice import LatticeGaussian
from semidp.promise.noise.randomness import SystemRandomness

COUNTS = 1_000_000
SIDE = 1000
SIGMAS = (2, 20)
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
LINEAR_TARGET = 2

OPENDP = """
import json, sys, time
import opendp.prelude as dp

dp.enable_features("contrib")
make, scale, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
domain = dp.vector_domain(dp.atom_domain(T="i64"))
if make == "gaussian":
    measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)
else:
    measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale)
data = [0] * count
measurement(data[:1000])
start = time.perf_counter()
measurement(data)
print(json.dumps(count / (time.perf_counter() - start)))
"""


PYDP = """
import json, sys, time
from pydp.algorithms.numerical_mechanisms import GaussianMechanism, LaplaceMechanism

make, scale, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
if make == "gaussian":
    mechanism = GaussianMechanism.create_from_standard_deviation(scale)
else:
    mechanism = LaplaceMechanism(1 / scale, 1.0)
data = [0] * count
start = time.perf_counter()
noisy = [mechanism.add_noise(value) for value in data]
print(json.dumps(count / (time.perf_counter() - start)))
"""
PEERS = {"OpenDP": OPENDP, "PyDP": PYDP}
DISTRIBUTIONS = {"OpenDP": "opendp", "PyDP": "python-dp"}


class PeerMissing(Exception):
    """A peer cannot be run; the message says what to do."""


def peer_rate(peer: str, make: str, scale: int, count: int) -> float:
    """Return a peer's draws per second."""
    python = os.environ.get("SEMIDP_PEERS_PYTHON")
    if not python:
        raise PeerMissing("set SEMIDP_PEERS_PYTHON to an interpreter that has opendp and python-dp")
    command = [python, "-c", PEERS[peer], make, str(scale), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"{peer} did not run: {done.stderr.strip().splitlines()[-1]}")
    return float(json.loads(done.stdout))


def peer_version(peer: str) -> str:
    """Return a peer with its version, as it is installed in the peers' environment."""
    code = f"from importlib.metadata import version; print(version({DISTRIBUTIONS[peer]!r}))"
    python = os.environ.get("SEMIDP_PEERS_PYTHON")
    done = (
        subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if python
        else None
    )
    return f"{peer} {done.stdout.strip()}".strip() if done is not None else peer


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the middle of several timings, after one run that fills the caches."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sorted(times)[repeats // 2]


def against(
    peer: str,
    name: str,
    target: float,
    make: str,
    scale: int,
    cells: int,
    work: Callable[[], object],
) -> dict:
    """Compare rates per cell."""
    try:
        ratio = cells / seconds(work) / peer_rate(peer, make, scale, COUNTS)
    except PeerMissing as missing:
        return {
            "name": f"{name}: not measured, {missing}",
            "ratio": 0.0,
            "target": f"≥ {target:g}",
            "ok": False,
        }
    return {"name": name, "ratio": ratio, "target": f"≥ {target:g}", "ok": ratio >= target}


def linear(name: str, draw: Callable[[int], Callable[[], object]]) -> dict:
    """Compare the time per cell at the largest size with that at the smallest."""
    each = [seconds(draw(size), 3 if size > 10**6 else 15) / size for size in SIZES]
    ratio = each[-1] / each[0]
    return {
        "name": f"{name}, time per cell 10^7 / 10^4",
        "ratio": ratio,
        "target": f"≤ {LINEAR_TARGET}",
        "ok": ratio <= LINEAR_TARGET,
    }


def run() -> list[dict]:
    """Measure everything."""
    system = SystemRandomness()
    rows, named = [], {peer: peer_version(peer) for peer in PEERS}
    for sigma in SIGMAS:
        gaussian, laplace = DiscreteGaussian(Fraction(sigma) ** 2), DiscreteLaplace(Fraction(sigma))
        lattice = LatticeGaussian(SIDE, SIDE, Fraction(sigma) ** 2)
        cases = [
            (
                "OpenDP",
                "discrete Gaussian on 10^6 counts",
                100,
                "gaussian",
                partial(gaussian.sample, COUNTS, system),
            ),
            (
                "OpenDP",
                "discrete Laplace on 10^6 counts",
                100,
                "laplace",
                partial(laplace.sample, COUNTS, system),
            ),
            (
                "OpenDP",
                "lattice Gaussian on 1000 x 1000, per cell",
                5,
                "gaussian",
                partial(lattice.sample, system),
            ),
            (
                "PyDP",
                "discrete Gaussian on 10^6 counts",
                10,
                "gaussian",
                partial(gaussian.sample, COUNTS, system),
            ),
            (
                "PyDP",
                "discrete Laplace on 10^6 counts",
                10,
                "laplace",
                partial(laplace.sample, COUNTS, system),
            ),
        ]
        for peer, name, target, make, work in cases:
            label = f"{name}, scale {sigma}, vs {named[peer]}"
            rows.append(against(peer, label, target, make, sigma, COUNTS, work))
    noise = DiscreteGaussian(Fraction(4))
    rows.append(linear("discrete Gaussian", lambda size: lambda: noise.sample(size, system)))
    rows.append(linear("lattice Gaussian", lattice_of))
    return rows


def lattice_of(size: int) -> Callable[[], object]:
    """Return the drawing of a square table of about `size` cells."""
    side = round(size**0.5)
    noise = LatticeGaussian(side, side, Fraction(4))
    return lambda: noise.sample(SystemRandomness())


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name']:80} {row['ratio']:10.4g}  target {row['target']} "
            f" {'ok' if row['ok'] else 'MISSED'}"
        )

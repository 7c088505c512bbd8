"""One precision for all threads: curves and samplers take turns, since error bounds of samplers
depend on it.
"""

import threading

from flint import ctx

from semidp.promise import zcdp
from semidp.promise.ball_arithmetic import precision


def test_a_curve_waits_while_a_sampler_works() -> None:
    done = threading.Event()

    def curve() -> None:
        zcdp("2.56").epsilon("1e-10")
        done.set()

    with precision(777):
        other = threading.Thread(target=curve)
        other.start()
        assert not done.wait(0.3)
        assert ctx.prec == 777
    other.join(30)
    assert done.is_set()

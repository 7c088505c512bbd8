"""Integer fits under three or more families of sums: nested flows, then larger moves while they help.

Such tables are not flows, and the best one is hard to find; but fixing the joint counts of all families but one
leaves a flow, which is solved exactly. Proofs and odd cases by integer programming live in `programs`.
"""

import time

from semidp.errors import InputError
from semidp.fit.flows import Layout, transport
from semidp.fit.problem import Counts, Floats, Problem, Sums, pose, running_order
from semidp.fit.real import Projection
from semidp.progress import Progress, silent


def nested(problem: Problem, target: Floats, progress: Progress = silent) -> Counts | None:
    """Return a table that meets all sums, close to the real table `target`; None where the nesting does not work.

    The joint counts of the first two families are a flow; with them fixed, so are those of the first three, and so
    on. Each step is feasible where the margins are decomposable and no cell is declared impossible.

    >>> import numpy as np
    >>> from semidp.fit.problem import pose
    >>> table = np.arange(8).reshape(2, 2, 2)
    >>> problem = pose(table + 0.1, None, [Sums.over(table, (axis,)) for axis in range(3)])
    >>> bool((nested(problem, table + 0.0) == table).all())
    True
    """
    order = running_order([sums.axes for sums in problem.sums])
    if order is None:
        return None
    known = problem.sums[order[0]]
    for step, index in enumerate(order[1:], start=2):
        progress("nesting flows", step - 1, len(order))
        family = problem.sums[index]
        joint = tuple(sorted({*known.axes, *family.axes}))
        last = step == len(order)
        noisy = problem.noisy if last else Sums(joint, known.totals).of(target)
        allowed = problem.allowed if last else Sums(joint, known.totals).of(problem.allowed) > 0
        try:
            counts, _ = transport(pose(noisy, allowed, (known, family)), progress=progress)
        except InputError:
            return None
        known = Sums(joint, counts)
    return known.totals


def improve(
    problem: Problem, start: Projection, counts: Counts, deadline: float, progress: Progress = silent
) -> Counts:
    """Return a table that no move improves: a move refits one family's sums with all others' joint counts fixed.

    >>> import numpy as np
    >>> from semidp.fit.problem import pose
    >>> from semidp.fit.real import project
    >>> table = np.array([[[2, 0], [0, 2]], [[0, 2], [2, 0]]])
    >>> problem = pose(table + 0.1, None, [Sums.over(table, (axis,)) for axis in range(3)])
    >>> improve(problem, project(problem), table[::-1], time.monotonic() + 10).tolist() == table.tolist()
    True
    """
    moves = []
    for one, family in enumerate(problem.sums):
        others = {axis for other, sums in enumerate(problem.sums) if other != one for axis in sums.axes}
        if not (set(family.axes) <= others and len(others) == counts.ndim):
            moves.append((family, tuple(sorted(others))))
    idle, turn = 0, 0
    while idle < len(moves) and time.monotonic() < deadline:
        family, fixed = moves[turn % len(moves)]
        turn += 1
        progress("improving the table", turn, None)
        layout = Layout.of(counts.shape, fixed, family.axes)
        flow = layout.flow(problem, start.levels, Sums.over(counts, fixed).totals, family.totals)
        better, gain, _ = flow.improved(layout.fold(counts), 1)
        counts = layout.unfold(better)
        idle = 0 if gain else idle + 1
    return counts

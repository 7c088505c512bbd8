"""Groups whose counts are public: the levels of each, and what was measured by sets of them."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from semidp.errors import InputError
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.outcome_spaces import GroupedSpace, answered_cells
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.spread import FromNoise, NoisyPart

By = Sequence[Margin | str] | Margin | str
"""The groups: a feature or a margin, or several."""


@dataclass(frozen=True, eq=False)
class ByBlocks(FromNoise):
    """What was measured by sets of groups whose counts are public; a set may be left out where
    there is one.
    """

    mechanism: Mechanism
    measurement: Measurement

    def _noisy_parts(self) -> Iterable[NoisyPart | None]:
        return (self,)

    @property
    def space(self) -> GroupedSpace:
        """The groups, and what the noise is calibrated to."""
        raise NotImplementedError

    def groups(self, block: Margin | None = None) -> tuple[tuple[str, ...], ...]:
        """Return the levels of each group of a set, in the order of its cells; of those who
        answered, where no others are measured.
        """
        schema, block = self._public(block)
        if not block.names:
            return (("all",),)
        part = schema.restrict(block.names)
        paths = [feature.paths() for feature in part.features]
        # Cells come in the schema's order, but a row's levels in the block's, which is what its
        # columns are headed by.
        places = [
            (part.axis(name), part.feature(name).names.index(name)) for name in self.columns(block)
        ]
        cells = list(np.ndindex(*part.shape))
        if self.space.answered is not None:
            held = answered_cells(schema, block, self.space.answered)
            cells = list(itertools.compress(cells, held.tolist()))
        return tuple(
            tuple(paths[axis][index[axis]][depth] for axis, depth in places) for index in cells
        )

    def columns(self, block: Margin | None = None) -> tuple[str, ...]:
        """Return the names of what a group's levels are: the set's features, a nested one with its
        whole path. That everybody answered is no level.
        """
        schema, block = self._public(block)
        names = [name for name in block.names if name != self.space.answered]
        own_names = {name: schema.feature(name).names for name in names}
        return tuple(
            dict.fromkeys(
                part for name, path in own_names.items() for part in path[: path.index(name) + 1]
            )
        )

    def _public(self, block: Margin | None) -> tuple[Schema, Margin]:
        schema = self.space.dataspace.schema
        return schema, self.space.blocks[self._number(block)]

    def _number(self, block: Margin | None) -> int:
        blocks = self.space.blocks
        if block is None and len(blocks) == 1:
            return 0
        if block not in blocks:
            raise InputError(f"say by which groups: {', '.join(map(str, blocks))}")
        return blocks.index(block)


def normalize_blocks(by: By) -> tuple[Margin, ...]:
    """Return the sets of groups that `by` names.

    >>> normalize_blocks("ward"), normalize_blocks(["ward", Margin("sex", "age")])
    ((Margin('ward'),), (Margin('ward'), Margin('sex', 'age')))
    """
    several = (by,) if isinstance(by, (Margin, str)) else by
    return tuple(block if isinstance(block, Margin) else Margin(block) for block in several)

"""Exchange adjacency: one person changes, and others hand over the published values that the person
takes.

`Blocks` holds the published blocks of a dataspace: which spaces have such blocks, and how many
records an exchange moves. `assess.adjacent_datasets` executes the definition on small datasets;
norms are in `promise.sensitivity`.
"""

from functools import cached_property
from typing import Self

import numpy as np
from attrs import frozen

from semidp.errors import Refused
from semidp.promise.schema.features import ANSWERED_SUFFIX
from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Totals,
    View,
    is_within_view,
    list_axes,
    meet,
)
from semidp.promise.spaces.dataspace import Datasets, Dataspace, require_counts
from semidp.promise.spaces.structure import Structure


@frozen(slots=False, eq=False)
class Blocks:
    """The published blocks of a dataspace, no feature in two of them.

    X and Y are exchanges of each other if one arises from the other as follows. One person goes
    from x to a possible y. For every block in which their published tuples differ, one other record
    that has y's whole tuple there (the carrier, read before any change; one record may serve
    several blocks) takes x's leaf on the features of the block whose published nodes differ, and
    keeps all else. Nobody else changes.

    Features that the published counts leave no choice are not part of a block: x and y agree on
    them.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns"), Feature("ill", "yn")])
    >>> table = Table(schema, np.full((2, 2, 2), 1))
    >>> blocks = Blocks.from_dataspace(
    ...     Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    ... )
    >>> blocks.count, blocks.reach
    (2, 3)
    """

    dataspace: Dataspace
    structure: Structure

    @classmethod
    def from_dataspace(cls, dataspace: Datasets) -> Self:
        """Return the blocks; refuse margins that overlap, and structural zeros or answers that tie
        a block to another feature.
        """
        public = require_counts(dataspace)
        blocks = cls(public, Structure.from_dataspace(public))
        blocks._refuse_answers()
        views = [margin.view for margin in blocks.margins]
        for position, one in enumerate(views):
            for other in views[:position]:
                shared = list_axes(meet(one, other))
                if shared:
                    name = public.schema.features[shared[0]].name
                    raise Refused(
                        "exchange adjacency needs exact totals that share no feature, and"
                        f" {name!r} is in two of them: publish one joint total, or leave"
                        " ⟨adjacency exchange⟩ out"
                    )
        if blocks._zeros_tie():
            raise Refused(
                "exchange adjacency needs every combination of levels below the published counts to"
                " be possible, and structural zeros tie a published margin to something else:"
                " protect a number of records instead"
            )
        return blocks

    def _refuse_answers(self) -> None:
        """Refuse a feature with exact counts of who has a value of it.

        A carrier who takes over an answer has a level afterwards, so a table changes by more than
        the person's own change.
        """
        published = {name for margin in self.dataspace.margins for name in margin.names}
        for name in self.dataspace.schema.names:
            if f"{name}{ANSWERED_SUFFIX}" in published:
                raise Refused(
                    f"an exchange would give or take the {name!r} of others, too, since the number"
                    " who have one is exact: leave it out of tables, or protect any records that"
                    " change together instead (⟨adjacency worst-case⟩)"
                )

    @property
    def margins(self) -> tuple[Totals, ...]:
        """Blocks: the published margins, cut down to where they leave a choice."""
        return self.structure.essential

    @property
    def count(self) -> int:
        """q, the number of blocks with two levels of positive count."""
        return len(self.margins)

    @property
    def reach(self) -> int:
        """The most records that one exchange changes: q + 1, all of them if there are fewer, 0
        without freedom.
        """
        free = bool(self.structure.varying) or self.count
        return min(self.count + 1, self.structure.n) if free else 0

    @cached_property
    def axes(self) -> frozenset[int]:
        """The features that lie in a block."""
        return frozenset(axis for margin in self.margins for axis in list_axes(margin.view))

    def _zeros_tie(self) -> bool:
        """Whether the cells that can occur are fewer than: all below the blocks, times what zeros
        leave of the rest.
        """
        schema, grid = self.structure.schema, self.structure.grid
        zeros = [schema.view(dict(zero.levels)) for zero in schema.structural_zeros]
        if all(self._is_separate_zero(view) for view in zeros):
            return False
        if not grid.holds(LARGEST_MASK):
            return True
        inhabited = grid.find_inhabited_cells(None, self.structure.margins)
        if inhabited is None:
            inhabited = np.ones(grid.shape, dtype=bool)
        possible = inhabited & schema.possible_cells
        # No tie: what can occur is the product of the cells of the blocks and of what zeros leave
        # outside them.
        outside = possible.any(axis=tuple(self.axes), keepdims=True)
        return bool((possible != (inhabited & outside)).any())

    def _is_separate_zero(self, zero: View) -> bool:
        """Whether a structural zero lies inside one margin, where it is an empty cell, or touches
        no block.
        """
        inside = any(is_within_view(zero, margin.view) for margin in self.structure.margins)
        return inside or self.axes.isdisjoint(list_axes(zero))

"""Parts that are all measured before any is written: work and steps that assembled and linked
tables share.

A part is measured and stored. When all parts are, their measurements are put together and the
tables are fitted as in one piece. Then each part is written with its rows of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.publish.results.cells import Columns
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.parts import STATE, Part, PartTable, PartTask
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.tables.by_parts.assembled_published import AssembledTables
from semidp.publish.statistics.tables.by_parts.linked_parts_published import LinkedPartsTables
from semidp.publish.statistics.tables.by_parts.part_measurement import (
    store_once,
    stored_measurement,
)

Whole = TypeVar("Whole", AssembledTables, LinkedPartsTables)
"""The result of all parts, of which each part holds its rows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredFirstWork(ABC):
    """Work of one part: measure it at first, and write its rows once the tables of all parts are
    fitted.

    Parameters
    ----------
    request
        What is asked for.
    rows, measured
        What is written; None while the part is only measured.
    """

    request: Request
    rows: tuple[PublishedTable, ...] | None = field(default=None, repr=False)
    measured: Columns | None = field(default=None, repr=False)

    @property
    @abstractmethod
    def has_noise(self) -> bool:
        """Whether anything is measured in the part. Nothing is where it can hold no record."""

    @property
    @abstractmethod
    def measurements(self) -> str:
        """Name of the file with the measurement, without its ending."""

    @abstractmethod
    def measure_noisy_counts(self, task: PartTask, source: Any) -> Columns | None:
        """Count the records of the part and return the counts with noise; None where there is no
        noise.

        Records are counted even where nobody can be, so that some which appear there are refused.
        """

    def measurement_path(self, task: PartTask) -> Path:
        """Return the path of the stored measurement of a part."""
        return stored_measurement(task.work, self.request, task.path)

    def is_measured(self, task: PartTask) -> bool:
        """Whether an earlier attempt has stored the measurement. A part that can hold no record
        needs none.
        """
        return not self.has_noise or self.measurement_path(task).exists()

    def reads(self, task: PartTask) -> bool:
        """Whether the part is still to be measured."""
        if self.rows is not None:
            return False
        return not (self.has_noise and self.measurement_path(task).exists())

    def measure(self, task: PartTask, source: Any, attempt: Path) -> None:
        """Count the records of a part and store the counts with noise, unless an earlier attempt
        did.
        """
        # A second draw would be another measurement, which nobody was charged for.
        if not self.reads(task):
            return
        columns = self.measure_noisy_counts(task, source)
        if columns is not None:
            store_once(task, columns, self.measurement_path(task), attempt)

    def write(self, task: PartTask, attempt: Path) -> list[PartTable]:
        """Write the rows of the part and its measurement; return how its tables came out."""
        assert self.rows is not None, "rows are written after they were fitted"
        for table in self.rows:
            table.columns().write(attempt / f"{table.name}.{task.form}")
        if self.measured is not None:
            self.measured.write(attempt / f"{self.measurements}.{task.form}")
        return [PartTable.from_table(table) for table in self.rows]


class MeasuredFirstSteps(ABC, Generic[Whole]):
    """A request whose parts are measured before its tables are fitted in one piece.

    Parameters
    ----------
    mechanism
        Its noise: that of the whole.
    values
        The residuals at the cut and above, which are measured before the parts.
    """

    stems: Sequence[str] = ()
    is_fitted_jointly = True

    def __init__(self, mechanism: Mechanism, values: NDArray[np.int64]) -> None:
        self.mechanism = mechanism
        self.values = values
        self._noisy = values[:0]
        self._private = False
        self._done: Whole | None = None

    @abstractmethod
    def measuring(self, node: int) -> MeasuredFirstWork:
        """Return the work of measuring one part."""

    @abstractmethod
    def assemble_measurement(self, work: Path) -> NDArray[np.int64]:
        """Return the measurement of the whole, read from what all parts have stored in the folder
        of the unfinished release.
        """

    @abstractmethod
    def fit_tables(self, measured: Measurement, stored: Path, progress: Progress) -> Whole:
        """Return the tables of the whole, fitted as in one piece.

        A search may end elsewhere when a run is resumed, and parts that are written hold the first
        result. So the fits are stored in a file, and read from it where it exists.
        """

    def foreseen(self) -> list[str]:
        """Return nothing: all is published as in a release without parts."""
        return []

    def begin(self, noisy: NDArray[np.int64], private: bool) -> None:
        """Take the measurement that was made before the parts."""
        if noisy.shape != self.values.shape or noisy.dtype != np.int64:
            raise ValueError("the measurements are not those of the plan")
        self._noisy, self._private = noisy, private

    def part_work(self, node: int) -> MeasuredFirstWork:
        """Return the work of one part: measure it, or write its rows once the tables are fitted."""
        work = self.measuring(node)
        if self._done is None:
            return work
        rows = tuple(self._done.rows(node))
        return replace(work, rows=rows, measured=self._done.measured_columns(node))

    def settle(self, number: int, work: Path, progress: Progress) -> None:
        """Put the measurements of all parts together and fit the tables as in one piece, or read
        the stored fits.
        """
        vector = self.assemble_measurement(work)
        measured = self.mechanism.restore_measurement(vector, self._private)
        self._done = self.fit_tables(measured, work / STATE / f"fit-{number}.npz", progress)

    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> Whole:
        """Return what is published, when all parts are written."""
        assert self._done is not None, "published after it was fitted"
        return replace(self._done, parts=tuple(parts))

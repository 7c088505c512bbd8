"""What a release publishes of a level total. How it is rechecked is what all results have from
`Published`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.publish.results.cells import Columns, Form
from semidp.publish.statistics.protocol.results import Published, mechanism_fields

if TYPE_CHECKING:
    from tests.toy.level_totals.request import LevelTotalRequest


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelTotal(Published):
    """One published total.

    What it says in a report, on the terminal and in a forecast comes with the protocols of words:
    their methods belong here and in `request`, and nowhere else.
    """

    key: ClassVar[str] = "level_totals"

    request: "LevelTotalRequest"
    total: float
    standard_error: float

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return one row: the total, its standard error, and the measurement as drawn."""
        row = {"total": self.total, "standard_error": self.standard_error}
        numbers = {name: np.array([value]) for name, value in row.items()}
        (file,) = self.request.files
        meanings = {"total": "the sum of the places of all records' levels"}
        return {file: Columns({}, {**numbers, "noisy": self.noisy}, meanings)}

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the file."""
        return {**super().to_json(), "feature": self.request.feature}


def published_total(
    request: "LevelTotalRequest", mechanism: Mechanism, measured: Measurement
) -> LevelTotal:
    """Return the total with the standard error of its noise."""
    return LevelTotal(
        request=request,
        total=float(measured.projected[0]),
        standard_error=float(mechanism.standard_errors()[0]),
        noisy=measured.noisy,
        **mechanism_fields(request.name, mechanism, measured.private),
    )

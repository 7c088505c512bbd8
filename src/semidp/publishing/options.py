"""How a plan is carried out: one value of options for the command, for `semidp.release` and for Python.

What is published is in the plan; nothing here changes what a release guarantees.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semidp.accounting.ledger import Ledger
from semidp.core.progress import Progress, silent
from semidp.errors import InputError
from semidp.noise.randomness import Randomness, SystemRandomness
from semidp.output.cells import Form, form_named
from semidp.output.presentation import AS_USUAL, Presentation
from semidp.output.workbooks import check_installed


def _nothing_to_finish(folder: Path, passing: Collection[str]) -> None:
    """Leave a folder as it was written."""


def _nobody_told(sentences: Sequence[str]) -> None:
    """Say nothing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RunOptions:
    """How a plan is carried out.

    Parameters
    ----------
    randomness
        Where random words come from; the operating system unless given. Any other marks the release not private.
    ledger
        Charged with the composed guarantee before any noise is drawn: a `Ledger`, or the path of one.
    label
        What the ledger calls the charge; what is released, unless given.
    memory
        The bytes that may be used, by all workers together; all of the machine unless given.
    form
        How tables are written: CSV or Parquet. What their size suggests unless given, and Parquet by parts.
    progress
        Told what is going on.
    out
        The folder to write: whole, or not at all. Without it nothing is written, and `Release.save` may do so later.
    force
        Replace a release at `out`.
    inputs
        Files that are still needed, which a folder that is replaced must not hold.
    finish
        What is done to the folder before it takes its place, such as to sign it; it is told of files that will not be
        part of it.
    tell
        Told, before anything is charged, which levels look alike, and for which tables whole numbers with all totals
        may not be found.
    jobs
        By parts: the number of worker processes; with 1 parts are carried out here. With more, the data must be a file
        or an address.
    presentation
        What is said beside the numbers and how they are shown: ``title``, ``contact``, ``notes``, ``round_to``,
        ``mark_below``, and ``workbook`` for an Excel file of all tables; a mapping of those that are given.
    resume
        By parts: go on with a release that ended before it was whole. What was measured is not measured again, and
        nothing is charged again. The plan and the public totals must be the same, and so must the records: nothing is
        kept that could tell, and with others in part of the release one person could be in what two measurements say.
        A ledger that was not charged for it yet is charged first. `Release.discard_unfinished` removes such a release.

    Examples
    --------
    >>> RunOptions(jobs=2).resume
    False
    >>> RunOptions(ledger=3)
    Traceback (most recent call last):
    semidp.errors.InputError: a ledger is a Ledger or the path of one, not 3
    """

    randomness: Randomness | None = None
    ledger: Ledger | Path | str | None = None
    label: str | None = None
    memory: int | None = None
    form: Form | str | None = None
    progress: Progress = silent
    out: Path | str | None = None
    force: bool = False
    inputs: Iterable[str | Path] = ()
    finish: Callable[[Path, Collection[str]], None] = _nothing_to_finish
    tell: Callable[[Sequence[str]], None] = _nobody_told
    jobs: int = 1
    resume: bool = False
    presentation: Presentation | Mapping[str, Any] = AS_USUAL

    def __post_init__(self) -> None:
        if not isinstance(self.ledger, (Ledger, Path, str, type(None))):
            raise InputError(f"a ledger is a Ledger or the path of one, not {self.ledger!r}")
        if self.presented.workbook:
            check_installed()

    @classmethod
    def of(cls, value: "RunOptions | Randomness | None") -> "RunOptions":
        """Return options; where only a source of random words is given, all others are as usual."""
        if isinstance(value, RunOptions):
            return value
        # Randomness is a protocol: whoever has `secure` says where words come from.
        if value is not None and not hasattr(value, "secure"):
            raise InputError(f"options are RunOptions(...) or a source of randomness, not {value!r}")
        return cls(randomness=value)

    @property
    def words(self) -> Randomness:
        """The source of random words."""
        return SystemRandomness() if self.randomness is None else self.randomness

    @property
    def book(self) -> Ledger | None:
        """The ledger that is charged."""
        return Ledger(self.ledger) if isinstance(self.ledger, (Path, str)) else self.ledger

    @property
    def presented(self) -> Presentation:
        """How the release is presented."""
        given = self.presentation
        return given if isinstance(given, Presentation) else Presentation.of(given)

    @property
    def written_as(self) -> Form | None:
        """How tables are written, where that is said."""
        return None if self.form is None else form_named(self.form)

    def refuse_parts(self) -> None:
        """Refuse what only a release by parts has a use for."""
        if self.jobs != 1 or self.resume:
            raise InputError("jobs and resume are for a release by parts: give partition too")

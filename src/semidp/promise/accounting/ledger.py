"""A ledger: a locked file that adds up what releases of the same data spend, and enforces their
budget.

It is charged before noise is drawn. Two processes may use it at once, and a killed process leaves
the file as it was before or after the charge, never in between. Every charge carries the hash
of all before it, so one that is changed or removed shows. If a charge brings further exact
statistics, all before it are recomputed under the union, from what they recorded, and the new
curves are appended with it: nothing is rewritten. `account` adds charges up.

A charge pays for one measurement. Beside the charges the file records, for each run, its latest
session and the digest of what it measured, so no copy of an unfinished run draws again.
"""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from semidp.errors import InputError, SemidpError
from semidp.promise.accounting.account import Account, Charge, state_guarantee
from semidp.promise.accounting.periods import EXAMPLES, Periods
from semidp.promise.accounting.series import Series, SeriesAccount
from semidp.promise.files import hold_lock, real_path, replace_file
from semidp.promise.guarantee import Guarantee, read_document, space_document, space_from
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.composition import tradeoff_from_json

SCHEMA_VERSION = 3
"""The version of the file. No other is read."""

PATIENCE = 60.0
"""Seconds to wait for a ledger that another process holds."""

_AT_ONCE = 0.5  # seconds before reporting that it waits


@frozen
class Session:
    """A process at work on a run, which may outlast it and be resumed by a later session.

    The ledger records the latest session of a run. Only the folder that names this session, or a
    copy that is resumed before any other, can go on.

    Parameters
    ----------
    run
        Random name of the run; charged once.
    earlier
        Names of the earlier sessions, as the folder of the run notes them.
    measured
        Digest of the measurement, if the run has completed it.
    name
        Random name of this session, which the folder must note before the charge.
    place
        The folder that will hold the release; None if it is not written.
    """

    run: str = field(factory=lambda: secrets.token_hex(8))
    earlier: tuple[str, ...] = ()
    measured: str | None = None
    name: str = field(factory=lambda: secrets.token_hex(8))
    place: str | None = None


class Ledger:
    """A file that records what was spent on one dataset under one invariant.

    Parameters
    ----------
    path
        A file that `Ledger.create` made.
    waiting
        Called with a sentence when another process holds the ledger and this one waits.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> import tempfile
    >>> from semidp.promise.tradeoff.budget import zcdp
    >>> folder = tempfile.TemporaryDirectory()
    >>> book = Ledger.create(Path(folder.name) / "ledger.json", Budget.zcdp(1))
    >>> guarantee = Guarantee(Dataspace.from_description("state totals"), Ball(2), zcdp("0.4"))
    >>> (
    ...     book.charge(guarantee, "first table")["number"],
    ...     book.charge(guarantee, "second table")["number"],
    ... )
    (1, 2)
    >>> book.total().tradeoff
    ZCDP(rho=Fraction(4, 5))
    >>> book.charge(guarantee, "third table")
    Traceback (most recent call last):
    semidp.errors.BudgetExceeded: charging 'third table' would exceed the ledger's budget of rho = 1
    ...
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, waiting: Callable[[str], None] | None = None) -> None:
        self.waiting = waiting
        # of the charges that this object has made, or was about to make
        self._made: list[str] = []
        self._recorded: set[str] = set()
        # A link to a ledger is that ledger: it must share its lock, and a charge must not replace
        # the link by a copy.
        self.path = real_path(path)
        if not self.path.exists():
            raise InputError(
                f"there is no ledger at {path}: create it once with its budget, by"
                " Ledger.create(path, budget)",
                needs="ledger",
            )

    @classmethod
    def create(
        cls,
        path: str | Path,
        budget: Budget,
        dataspace: Datasets | None = None,
        adjacency: Adjacency | None = None,
        series: Series | None = None,
    ) -> "Ledger":
        """Make a new, empty ledger; refuse to overwrite one.

        Parameters
        ----------
        path
            The file to make.
        budget
            What may be spent in total.
        dataspace, adjacency
            The invariant: both, or neither to use those of the first charge.
        series
            Releases of several periods, each about its own data: what is declared of all of them.
            The budget is then what one person may lose over all periods.
        """
        path = real_path(path)
        if series is not None:
            if dataspace is not None:
                raise InputError("a series declares its exact totals, and takes no dataspace")
            SeriesAccount(budget, series)  # refuses what cannot be kept
        if (dataspace is None) != (adjacency is None):
            raise InputError("give a ledger both a dataspace and an adjacency, or neither")
        # checked before the lock, too: its file would stay next to a file that is not a ledger
        if os.path.lexists(path):
            raise InputError(f"{path} already exists: a ledger is never overwritten")
        with _hold_lock(path):
            if path.exists():
                raise InputError(f"{path} already exists: a ledger is never overwritten")
            _write(path, _create_document(path, budget, dataspace, adjacency, series))
        return cls(path)

    def charge(
        self,
        guarantee: Guarantee,
        label: str,
        measured: Sequence[Mapping[str, Any]] = (),
        session: Session | None = None,
        period: str | None = None,
    ) -> dict[str, Any]:
        """Record that a mechanism is about to run; return the entry once it is safely on disk.

        Parameters
        ----------
        guarantee
            What the mechanism satisfies. If it is about other pairs than the ledger, it is
            recomputed for those of the union from `measured`; otherwise a guarantee for one
            record with nothing exact is grouped.
        label
            A description of the release for readers of the ledger.
        measured
            The `record` of each mechanism. Without it the charge can never be recomputed.
        session
            The session that will draw the noise. Its run is charged once: a later session of the
            same run gets the entry of the first, unless another copy of the run went on meanwhile.
            `finish` records what it measured.
        period
            Of a series: the period of the data, such as ``2026Q3``; see `Periods.from_text`.

        Returns
        -------
        dict
            What a release keeps: the number of its charge, its label, and the hash of it and of all
            before it.

        Raises
        ------
        BudgetExceeded
            If all charges together would no longer fit the budget. Nothing is recorded then.
        Refused
            If the guarantee is about other data, or a charge cannot be recomputed under the
            union.
        """
        with _hold_lock(self.path, self.waiting):
            document = _document(self.path)
            before = _account(document, self.path)
            # A run that was killed after its charge, and goes on now, has paid already.
            number = None if session is None else _find_charge_number(document, session.run)
            if session is not None and number is not None:
                # Through JSON and back, since that is how the file holds the curve that is
                # compared.
                stated = json.loads(json.dumps(guarantee.tradeoff.to_json()))
                if document["charges"][number - 1]["tradeoff"] != stated:
                    raise InputError(
                        f"the ledger {self.path} was charged another guarantee for the same run"
                    )
                _take_over(document, session)
                _write(self.path, document)
                return _build_release_entry(document, number)
            charged: Account | None
            periods: Periods | None = None
            if isinstance(before, SeriesAccount):
                periods = _read_periods(before, period)
                charged = before.accounts.get(periods)
                account = before.add_charge(guarantee, label, measured, periods).accounts[periods]
            else:
                charged, account = before, before.add_charge(guarantee, label, measured)
            assert account.dataspace is not None, "there is a charge"
            assert account.adjacency is not None, "there is a charge"
            _name_pairs(document, guarantee.dataspace, guarantee.adjacency, self.path)
            under = _name_pairs(document, account.dataspace, account.adjacency, self.path)
            entry = {**evolve(account.charges[-1], periods=periods).to_json(), "under": under}
            now = (account.dataspace, account.adjacency)
            if (
                charged is not None
                and charged.charges
                and now != (charged.dataspace, charged.adjacency)
            ):
                entry["rebased"] = [charge.spent.to_json() for charge in account.charges[:-1]]
            _append(document, entry, None if session is None else session.run)
            if session is not None:
                runs = document.setdefault("runs", {})
                runs[session.run] = {"session": session.name, "measured": None}
                if session.place is not None:
                    runs[session.run]["place"] = session.place
            # An interrupted write leaves a name too many, which `own_charges` drops. The other
            # order could lose the name of a charge that was made.
            name = document["charges"][-1]["nonce"]
            self._made.append(name)
            _write(self.path, document)
            self._recorded.add(name)
        return _build_release_entry(document, len(document["charges"]))

    def take_over(self, session: Session) -> None:
        """Make a session the latest of its charged run; refuse an outdated copy of the
        run.
        """
        with _hold_lock(self.path, self.waiting):
            document = _document(self.path)
            _account(document, self.path)  # refuses a file that was changed
            _take_over(document, session)
            _write(self.path, document)

    def finish(self, session: Session, measured: str) -> None:
        """Record what the run of a session measured, before anything of it is published.

        Parameters
        ----------
        session
            The session that `charge` was given.
        measured
            Digest of the measurement. Finishing again with the same one changes nothing.

        Raises
        ------
        InputError
            If another copy of the run was resumed or finished since the session began.
        """
        with _hold_lock(self.path, self.waiting):
            document = _document(self.path)
            _account(document, self.path)  # refuses a file that was changed
            finished = evolve(session, earlier=(session.name,), measured=measured)
            _take_over(document, finished)
            document["runs"][session.run]["measured"] = measured
            _write(self.path, document)

    def write_off(self, place: str | None = None, run: str | None = None) -> list[int]:
        """Record that the charges of unfinished runs for a folder, or of one run, will never become
        a release; return their numbers. They stay charged.
        """
        numbers = []
        with _hold_lock(self.path, self.waiting):
            document = _document(self.path)
            _account(document, self.path)  # refuses a file that was changed
            for name, recorded in document.get("runs", {}).items():
                is_meant = name == run or (place is not None and recorded.get("place") == place)
                number = _find_charge_number(document, name)
                # One that was measured is a release, unless it is named: it never got in place.
                is_open = recorded["measured"] is None or name == run
                if is_meant and is_open and "written_off" not in recorded and number is not None:
                    recorded["written_off"] = True
                    numbers.append(number)
            if numbers:
                _write(self.path, document)
        return sorted(numbers)

    @property
    def own_charges(self) -> tuple[str, ...]:
        """The charges that this object has made, by their random names.

        The file is asked, so the answer is right even if a charge was interrupted, and does
        not count the charges of other processes.
        """
        if not self._made:
            return ()
        recorded = self._read_names()
        return tuple(name for name in self._made if recorded is None or name in recorded)

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last charge of this object failed while it was written, and the file cannot
        be asked.
        """
        doubtful = bool(self._made) and self._made[-1] not in self._recorded
        return doubtful and self._read_names() is None

    def _read_names(self) -> set[str] | None:
        """The random names of all charges; None if the file cannot be read."""
        try:
            charges = _document(self.path)["charges"]
            return {entry["nonce"] for entry in charges if "nonce" in entry}
        except (SemidpError, KeyError, TypeError):
            return None

    def account(self) -> Account | SeriesAccount:
        """Return the content of the file. That takes no lock: a charge replaces the whole file at
        once.

        Raises
        ------
        InputError
            If the file holds no ledger, or charges that do not follow from each other.
        """
        return _account(_document(self.path), self.path)

    def own_account(self) -> Account:
        """Return the content of a ledger about one dataset; refuse a series, whose releases are
        about several.
        """
        account = self.account()
        if isinstance(account, SeriesAccount):
            raise InputError(f"the ledger {self.path} is of a series: ask its account().total()")
        return account

    def series_account(self) -> SeriesAccount:
        """Return the content of the ledger of a series; refuse any other."""
        account = self.account()
        if not isinstance(account, SeriesAccount):
            raise InputError(f"the ledger {self.path} is not of a series")
        return account

    def total(self) -> Guarantee | None:
        """Return the guarantee of everything charged, Semi-DP first; None before the first
        charge.
        """
        account = self.own_account()
        return state_guarantee(account, account.semi_first())

    def composition_first(self) -> Guarantee | None:
        """Return the guarantee of everything charged, composition first: for comparison, it is
        never stronger.
        """
        account = self.own_account()
        return state_guarantee(account, account.composition_first())


@contextlib.contextmanager
def _hold_lock(path: Path, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the ledger's lock. It is a file of its own, because the ledger itself is replaced by
    every charge.

    The file stays: were it removed, two processes could each hold a lock of that name.
    """
    file = path.with_name(f".{path.name}.lock")
    with contextlib.ExitStack() as held:
        try:
            try:
                held.enter_context(hold_lock(file, _AT_ONCE, path))
            except TimeoutError:
                if waiting:
                    waiting(
                        f"another process holds the ledger {path}: waiting for up to {PATIENCE:g}"
                        " seconds"
                    )
                held.enter_context(hold_lock(file, PATIENCE, path))
        except TimeoutError:
            raise InputError(
                f"another process has held the ledger {path} for {PATIENCE:g} seconds: nothing was"
                " charged; try again"
            ) from None
        except OSError as error:
            reason = (error.strerror or "unknown reason").lower()
            raise InputError(f"cannot lock {path}: {reason}") from None
        yield


def _document(path: Path) -> dict[str, Any]:
    document = read_document(path, "a ledger")
    if document.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise InputError(
            f"the ledger {path} was written by another version of semidp: use it with that version"
        )
    return document


def _account(document: Mapping[str, Any], path: Path) -> Account | SeriesAccount:
    """Return the account of a file; refuse one whose hashes do not fit."""
    try:
        budget, name = Budget.from_json(document["budget"]), document["id"]
        spaces = _read_spaces(document, path)
        opened = _read_pairs(document["under"], spaces)
        charged = _read_charges(document, spaces, path)
        accounts = {}
        for periods, (charges, pairs) in charged.items():
            accounts[periods] = Account(budget, *pairs, tuple(charges.values()), name, opened)
        if document.get("series") is None:
            # a ledger about one dataset
            space, adjacency = opened or (None, None)
            empty = Account(budget, space, adjacency, (), name, opened)
            return accounts.get(None, empty)
        ordered = dict[int, Charge]()
        for charges, _ in charged.values():
            ordered |= charges
        return SeriesAccount(
            budget,
            Series.from_json(document["series"]),
            {periods: account for periods, account in accounts.items() if periods is not None},
            tuple(ordered[number] for number in sorted(ordered)),
            name,
        )
    except SemidpError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError):
        raise InputError(f"{path} does not hold a ledger") from None


_Charged = dict[Periods | None, tuple[dict[int, Charge], tuple[Datasets, Adjacency]]]


def _read_charges(
    document: Mapping[str, Any], spaces: Mapping[str, Datasets], path: Path
) -> _Charged:
    """Return the charges of each set of data by their numbers, with the pairs that they are about
    together. A ledger that is not of a series has one such set, without periods.
    """
    charged: _Charged = {}
    head, of_series = _genesis(document), document.get("series") is not None
    runs = document.get("runs", {})
    for run in runs.values():
        texts = run["session"], run["measured"] or "", run.get("place", "out")
        is_text = all(isinstance(text, str) for text in texts)
        if not is_text or "\0" in texts[-1] or not Path(texts[-1]).name:
            raise TypeError("a run has its latest session, what it measured, and its folder")
    for number, entry in enumerate(document["charges"], start=1):
        head = _head(head, entry)
        if entry["head"] != head:
            raise InputError(
                f"{path} was changed: charge {number} does not follow from what is before it"
            )
        run = runs.get(entry.get("nonce"))
        named = None if run is None else {**run, "name": entry["nonce"]}
        charge = evolve(Charge.from_entry(entry, spaces), run=named)
        if (charge.periods is not None) != of_series:
            raise TypeError("the charges of a series have their periods, and no others")
        charges = charged[charge.periods][0] if charge.periods in charged else {}
        # New curves of earlier charges stand in a later entry, so no entry or hash changes.
        if "rebased" in entry:
            curves = zip(charges.items(), map(tradeoff_from_json, entry["rebased"]), strict=True)
            charges = {key: evolve(one, group=1, counted=curve) for (key, one), curve in curves}
        # The last charge is about all that is exact.
        pairs = _read_pairs(entry["under"], spaces)
        if pairs is None:
            raise TypeError("a charge names its pairs")
        charged[charge.periods] = {**charges, number: charge}, pairs
    return charged


def _read_spaces(document: Mapping[str, Any], path: Path) -> dict[str, Datasets]:
    spaces = {}
    for digest, value in document["dataspaces"].items():
        spaces[digest] = space_from(value, path)
    if any(space.digest != digest for digest, space in spaces.items()):
        raise InputError(f"{path} was changed: what it says is published does not fit its digest")
    return spaces


def _read_periods(account: SeriesAccount, period: str | None) -> Periods:
    """Return the periods that are charged."""
    if period is None:
        raise InputError(
            f"this ledger is of a series by {account.series.unit}: name the period of the data",
            needs="period",
            names=(EXAMPLES[account.series.unit],),
        )
    return Periods.from_text(period, account.series.unit)


def _read_pairs(
    under: Mapping[str, Any] | None, spaces: Mapping[str, Datasets]
) -> tuple[Datasets, Adjacency] | None:
    """Dataspace and adjacency that an entry names; None if it names none."""
    if not under:
        return None
    dataspace = spaces[under["dataspace"]]
    return dataspace, Adjacency.from_json(under["adjacency"])


def _create_document(
    path: Path,
    budget: Budget,
    dataspace: Datasets | None,
    adjacency: Adjacency | None,
    series: Series | None,
) -> dict[str, Any]:
    """Return the file of a ledger without charges."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "id": secrets.token_hex(16)}
    document |= {"budget": budget.to_json(), "under": None, "charges": [], "dataspaces": {}}
    if series is not None:
        document["series"] = series.to_json()
    if dataspace is not None and adjacency is not None:
        document["under"] = _name_pairs(document, dataspace, adjacency, path)
    return document


def _name_pairs(
    document: dict[str, Any], dataspace: Datasets, adjacency: Adjacency, path: Path
) -> dict[str, Any]:
    """Return a dataspace, which the document then holds once, and an adjacency as an entry names
    them.
    """
    document["dataspaces"].setdefault(dataspace.digest, space_document(dataspace, path))
    return {"dataspace": dataspace.digest, "adjacency": adjacency.to_json()}


def _append(document: dict[str, Any], entry: dict[str, Any], run_name: str | None = None) -> None:
    """Add an entry behind all others, which stay as they are.

    Its ``nonce`` is the name of the run that is charged, or else a random one: no two entries are
    alike, and a run that goes on after a kill finds its charge.
    """
    charges = document["charges"]
    before = charges[-1]["head"] if charges else _genesis(document)
    new = {**entry, "nonce": secrets.token_hex(8) if run_name is None else run_name}
    charges.append({**new, "head": _head(before, new)})


def _find_charge_number(document: Mapping[str, Any], run_name: str) -> int | None:
    """Return the number of the charge that was made for a run; None if there is none."""
    names = [entry.get("nonce") for entry in document["charges"]]
    return names.index(run_name) + 1 if run_name in names else None


def _take_over(document: dict[str, Any], session: Session) -> None:
    """Make a session the latest of its run; refuse a copy of the run that was left behind."""
    recorded = document.get("runs", {}).get(session.run)
    if recorded is not None and "written_off" in recorded:
        raise InputError("this run was written off: discard what is left of it")
    if (
        recorded is None
        or recorded["session"] not in session.earlier
        or recorded["measured"] not in (None, session.measured)
    ):
        raise InputError(
            "another copy of this run was resumed or finished, and its charge pays for one"
            " measurement: discard this copy"
        )
    recorded["session"] = session.name


def _build_release_entry(document: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the entry that a release keeps of its charge."""
    entry = document["charges"][number - 1]
    kept: dict[str, Any] = {"ledger": document["id"], "number": number}
    for key in ("label", "time", "tradeoff", "group", "head"):
        kept[key] = entry[key]
    return kept


def _genesis(document: Mapping[str, Any]) -> str:
    """Return the hash that the first charge follows: what the ledger was opened with."""
    opened = {key: document[key] for key in ("schema_version", "id", "budget", "under")}
    if "series" in document:
        opened["series"] = document["series"]
    return _sha256("", opened)


def _head(before: str, entry: Mapping[str, Any]) -> str:
    content = {key: value for key, value in entry.items() if key != "head"}
    return _sha256(before, content)


def _sha256(before: str, value: Any) -> str:
    """Hash a JSON value in one fixed form, behind another hash."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def _write(path: Path, document: Mapping[str, Any]) -> None:
    # The file is replaced, and a second hard link would keep the old one with its unspent budget.
    if path.exists() and path.stat().st_nlink > 1:
        raise InputError(
            f"the ledger {path} has a second name (a hard link), which would keep the old charges:"
            " remove that name, or make it a symbolic link"
        )
    replace_file(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")

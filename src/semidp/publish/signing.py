"""Signatures in the format of minisign: of release folders, to prove who made every file and that
none was changed; and of plans, which are approved before the data are read.

``SHA256SUMS`` lists every file of a folder with its hash, and ``SHA256SUMS.minisig`` signs that
list, so ``minisign -Vm SHA256SUMS -p KEY`` and ``sha256sum -c SHA256SUMS`` verify a folder
without semidp. Keys are read by py-minisign, an optional package.

``semidp plan sign`` writes next to a plan file ``PLAN.approval``, a document with the full content
of the plan once its files are read (features, exact totals, requests, budgets, and how records are
read), and ``PLAN.approval.minisig``. A run compares its plan with that document, whatever its
options were.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from semidp.errors import InputError, MissingExtra
from semidp.promise.documents import digest, from_json, is_litter, read_plain
from semidp.promise.files import may_exist, path_beside, replace_file
from semidp.promise.guarantee import Scope
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.level_bins import Microdata
from semidp.publish.plan import Plan
from semidp.publish.plan_changes import best_answered, calibrate_separately, solve_target_errors
from semidp.publish.results.published_table import exact_totals
from semidp.publish.settings import Given, list_file_settings
from semidp.publish.statistics.parts import refuse_changed

SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.minisig"


class Signer:
    """A secret key of minisign that is ready to sign; the password is asked only if the key is
    encrypted.
    """

    def __init__(self, path: Path, password: Callable[[], str]) -> None:
        self._key = _key(_minisign().SecretKey, path, "secret")
        if self._key.is_encrypted():
            secret = password()
            try:
                self._key.decrypt(secret)
            except ValueError:
                raise InputError(f"the password for the secret key {path} is wrong") from None

    def sign(self, folder: Path, passing: Collection[str] = ()) -> None:
        """Write the list of all files of a folder and its signature, without files that will be
        removed.
        """
        names = sorted(_names(folder) - {*passing})
        # A line break in a name would add a line of its own to the list that is signed.
        odd = [name for name in names if not name.isprintable()]
        if odd:
            raise InputError(
                f"the file {odd[0]!r} has a name that a list of hashes cannot hold: name it"
                " otherwise"
            )
        sums = "".join(f"{digest(folder / name)}  {name}\n" for name in names).encode()
        (folder / SUMS).write_bytes(sums)
        self.sign_file(folder / SUMS)

    def sign_file(self, path: Path) -> None:
        """Write the signature of one file next to it."""
        signature = bytes(self._key.sign(read_plain(path))) + b"\n"
        signature_path(path).write_bytes(signature)


def signature_path(path: Path) -> Path:
    """Return where minisign looks for the signature of a file."""
    return path.with_name(f"{path.name}.minisig")


def make_keys(secret: Path, ask_password: Callable[[], str]) -> Path:
    """Write a new secret key, which only its owner may read, and its public key next to it; return
    the path of the latter. Without a password the secret key is stored as it is.
    """
    public = path_beside(secret, f"{secret.name}.pub")
    for path in (secret, public):
        if may_exist(path):
            raise InputError(f"{path} is there already, and a key is not replaced")
    pair = _minisign().KeyPair.generate()
    password = ask_password()
    if password:
        pair.secret_key.encrypt(password)
    try:
        # Made for its owner alone from the start; a later change would come too late.
        number = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(bytes(pair.secret_key))
        public.write_bytes(bytes(pair.public_key))
    except OSError:
        raise InputError(f"cannot write the keys {secret} and {public}") from None
    return public


def verify_file(path: Path, public_key: Path) -> bytes:
    """Return the content of a file; refuse one that the public key has not signed in this form."""
    minisign = _minisign()
    key = _key(minisign.PublicKey, public_key, "public")
    try:
        content, signature = (read_plain(each) for each in (path, signature_path(path)))
    except OSError:
        raise InputError(
            f"there is no {path} with its signature: semidp plan sign makes it"
        ) from None
    try:
        key.verify(content, minisign.Signature.from_bytes(signature))
    except ValueError:
        raise InputError(f"the signature of {path} is not one of the key {public_key}") from None
    return content


def verify(folder: Path, public_key: Path) -> None:
    """Refuse a folder unless the public key of a file has signed the list of its files, and they
    are those listed.
    """
    minisign = _minisign()
    key = _key(minisign.PublicKey, public_key, "public")
    try:
        sums, signature = (read_plain(folder / name, folder) for name in (SUMS, SIGNATURE))
    except OSError:
        raise InputError(f"{folder} is not signed: it has no {SUMS} with its signature") from None
    try:
        key.verify(sums, minisign.Signature.from_bytes(signature))
        listed = {}
        for line in sums.decode().splitlines():
            hashed, _, name = line.partition("  ")
            listed[name] = hashed
    except ValueError:
        raise InputError(f"the signature of {folder} is not one of the key {public_key}") from None
    files = _names(folder)
    # A file that was not signed is refused like one that is missing: readers would take it for a
    # part of the release.
    if files != listed.keys():
        name = min(files ^ listed.keys())
        raise InputError(
            f"{folder} {'holds' if name in files else 'lacks'} {name!r}, against what was signed"
        )
    refuse_changed(folder, listed, "it was signed")


def _key(kind: Any, path: Path, name: str) -> Any:
    try:
        return kind.from_bytes(read_plain(path))
    except OSError:
        raise InputError(f"cannot read the {name} key {path}") from None
    except InputError:
        raise
    except ValueError:
        raise InputError(f"{path} holds no {name} key of minisign") from None


def _names(folder: Path) -> set[str]:
    """Return every file of a folder and its parts, as seen from there, but for the signature and
    what file browsers leave there.
    """
    # A link to a folder counts as a file: what it leads to could change after the signature.
    below = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if (not path.is_dir() or path.is_symlink()) and not is_litter(path)
    }
    return below - {SUMS, SIGNATURE}


def _minisign() -> Any:
    try:
        import minisign
    except ImportError:
        raise MissingExtra(
            "signatures need the package py-minisign: pip install 'semidp[sign]'"
        ) from None
    return minisign


FORM = "semidp-approval-1"
"""What the document calls itself; another number where its keys change their meaning."""

FREE = ("label", "write", "agency", "sign", "memory")
"""Settings of a plan file that are not approved with it: they change neither how records are read
nor the text next to the numbers."""


def approval_path(plan: Path) -> Path:
    """Return the path of the approval of a plan file."""
    return plan.with_name(f"{plan.name}.approval")


def describe_approved(plan: Plan, given: Given) -> dict[str, Any]:
    """Return the approved content as plain values: the plan and its settings.

    >>> from semidp import Budget
    >>> from semidp.publish import TableRequest
    >>> plan = Plan([TableRequest(["sex"], Budget.gdp(1))], ["sex"])
    >>> approved = describe_approved(plan, Given({"title": "Health", "memory": "8GB"}))
    >>> approved["settings"], approved["plan"]["invariants"]
    ({'title': 'Health'}, [['sex']])
    """
    settings: dict[str, Any] = {}
    for name, row in list_file_settings().items():
        value = given[name]
        if name in FREE or value in (row.default, None, False, (), []):
            continue
        # A path says nothing about what is in the file.
        settings[name] = digest(Path(value)) if name == "map" else value
    return {"form": FORM, "plan": _plain(plan.to_json()), "settings": _plain(settings)}


def sign_plan(
    path: Path, plan: Plan, given: Given, signer: Signer, totals: Dataspace | None, *, force: bool
) -> dict[str, Any]:
    """Write the approval of a plan file and its signature; return the document.

    Parameters
    ----------
    path
        The plan file.
    plan, given
        What it says.
    signer
        The key.
    totals
        The exact totals that data must have (default: any).
    force
        Replace an earlier approval.
    """
    for request in plan.requests:
        if request.budget is None and not request.has_targets:
            raise InputError(
                f"the plan gives {request.name!r} no budget, so an approval would approve any:"
                " write the budget into the plan"
            )
    document = describe_approved(plan, given)
    if totals is not None:
        document["totals"] = _plain(list(_list_totals(totals)))
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    place = approval_path(path)
    replace_file(place, text, force=force)
    signer.sign_file(place)
    return document


class Approval:
    """An approval whose signature was verified.

    Parameters
    ----------
    path
        The plan file next to which it is.
    key
        The public key.
    """

    def __init__(self, path: Path, key: Path) -> None:
        self.place = approval_path(path)
        self._key = key
        signed = verify_file(self.place, key)
        try:
            self.document = from_json(signed)
            is_readable = self.document["form"] == FORM and isinstance(self.document["plan"], dict)
        except (ValueError, KeyError, TypeError):
            is_readable = False
        if not is_readable:
            raise InputError(
                f"{self.place} is not an approval of this version: sign the plan again"
            )

    def check_plan(self, plan: Plan, given: Given | None = None) -> None:
        """Refuse a plan other than the signed one; without settings only the plan is compared."""
        asked = describe_approved(plan, Given({}) if given is None else given)
        keys = ("plan",) if given is None else ("plan", "settings")
        for key in keys:
            signed, current = self.document[key], asked[key]
            for name in sorted({*signed, *current}):
                if signed.get(name) != current.get(name):
                    raise InputError(
                        f"{name!r} is not what the key {self._key} has approved: carry the plan out"
                        " as it was signed, or have it signed again"
                    )

    def check_totals(self, dataspace: Dataspace) -> None:
        """Refuse exact totals that the approval does not name, where it names any."""
        named = self.document.get("totals")
        if named is None:
            return
        for total in _plain(list(_list_totals(dataspace))):
            if total not in named:
                features = " × ".join(total["features"]) or "the number of records"
                raise InputError(
                    f"the exact totals by {features} are not those that the key {self._key} has"
                    " approved: these data are not the ones that the approval is about"
                )

    def check_release(self, asked: Plan, released: Plan, scope: Scope, *, by_parts: bool) -> None:
        """Refuse a release whose plan or exact totals are not those approved.

        Parameters
        ----------
        asked
            The plan that was approved.
        released, scope
            The plan of the release, and what is public about it.
        by_parts
            Whether it was released by parts.
        """
        self.check_plan(_restore_asked(asked, released, scope, by_parts))
        self.check_totals(scope.dataspace)


def _restore_asked(asked: Plan, released: Plan, scope: Scope, by_parts: bool) -> Plan:
    """Return the plan of a release without what followed from public numbers: budgets that target
    errors needed, tables measured apart, the tables and bins of microdata. The plan as it is where
    something does not follow.
    """
    if asked.microdata is not None:
        return _restore_microdata(asked, asked.microdata, released)
    if released.to_json() == asked.to_json():
        return released
    targets_met = solve_target_errors(asked, scope, by_parts)
    planned, planned_scope = calibrate_separately(targets_met, scope)
    planned = best_answered(planned, planned_scope)[0]
    follows = evolve(released, requests=planned.requests).to_json() == released.to_json()
    return evolve(released, requests=asked.requests) if follows else released


def _restore_microdata(asked: Plan, microdata: Microdata, released: Plan) -> Plan:
    """Return the plan of microdata without its tables, bins, and the features that bins order."""
    spent, allowed = released.budget, microdata.phases_budget
    is_within = (
        spent is not None
        and spent.kind == allowed.kind
        and (spent.rho or spent.mu or 0) <= (allowed.rho or allowed.mu or 0)
    )
    features = {feature.name: feature for feature in released.features}
    columns = {*microdata.columns}
    for name in columns & features.keys():
        columns |= {*features[name].names}
    of_columns = all(
        bool(request.tables) and columns.issuperset(request.features)
        for request in released.requests
    )
    same_levels = all(
        feature.name in features and {*feature.levels} == {*features[feature.name].levels}
        for feature in asked.features
    )
    if released.microdata is None or not (is_within and of_columns and same_levels):
        return released
    return evolve(
        released,
        requests=asked.requests,
        features=asked.features,
        nests=asked.nests,
        microdata=evolve(released.microdata, ordered=microdata.ordered),
    )


def _list_totals(dataspace: Dataspace) -> Iterator[dict[str, Any]]:
    """Yield the number of records, and every exact margin, with its cells in one order."""
    for kind in dataspace.kinds:
        yield {"of": kind, "features": [], "cells": [[dataspace.for_kind(kind).n]]}
    for total in exact_totals(dataspace):
        columns = total.columns()
        names = sorted(columns.labels)
        labels = [columns.labels[name].column(columns.rows).tolist() for name in names]
        (counts,) = columns.numbers.values()
        # Levels without a record need not be listed.
        cells = [row for row in zip(*labels, counts.tolist(), strict=True) if row[-1]]
        yield {"of": total.kind, "features": names, "cells": sorted(map(list, cells))}


def approved_lines(plan: Plan, document: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Describe an approval for a terminal."""
    margins = [str(margin) for margin in plan.invariants]
    rows = [("exact", "; ".join(margins) or "the number of records")]
    for request in plan.requests:
        spent = "as its target errors need" if request.budget is None else str(request.budget)
        rows.append(("with noise", f"{request.name} ({', '.join(request.features)}): {spent}"))
    if plan.microdata is not None:
        columns = ", ".join(plan.microdata.columns)
        rows.append(("with noise", f"microdata ({columns}): {plan.microdata.budget}"))
    rows.append(("adjacency", str(plan.adjacency)))
    if "totals" in document:
        rows.append(("data", f"those with the {len(document['totals'])} totals that are named"))
    else:
        rows.append(("data", "any: the approval names exact totals by their features alone"))
    if plan.levels_from_data:
        rows.append(("warning", "levels that the plan does not declare are read from the data"))
    return rows


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))

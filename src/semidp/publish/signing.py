"""Signatures of release folders, in the format of minisign: who made every file of a folder, and
that none was changed.

``SHA256SUMS`` lists every file with its hash, and ``SHA256SUMS.minisig`` signs that list, so that
``minisign -Vm SHA256SUMS -p KEY`` and ``sha256sum -c SHA256SUMS`` verify a folder without semidp.
Keys are read by py-minisign, an optional package.
"""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from semidp.errors import InputError, MissingExtra
from semidp.promise.documents import digest, read_plain
from semidp.promise.files import may_exist
from semidp.publish.statistics.parts import refuse_changed

SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.minisig"


class Signer:
    """A secret key of minisign that is ready to sign; the password is asked only where the key is
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
        """Write the list of all files of a folder, and its signature; but for files that will be
        gone by then.
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
        """Write the signature of one file beside it."""
        signature = bytes(self._key.sign(read_plain(path))) + b"\n"
        signature_path(path).write_bytes(signature)


def signature_path(path: Path) -> Path:
    """Return where minisign looks for the signature of a file."""
    return path.with_name(f"{path.name}.minisig")


def make_keys(secret: Path, password: str) -> Path:
    """Write a new secret key, which only its owner may read, and its public key beside it; return
    where that is. Without a password the secret key is stored as it is.
    """
    public = secret.with_name(f"{secret.name}.pub")
    for path in (secret, public):
        if may_exist(path):
            raise InputError(f"{path} is there already, and a key is not replaced")
    pair = _minisign().KeyPair.generate()
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
    """Return what is in a file; refuse one that the public key has not signed as it is."""
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
    """Return every file of a folder and its parts, as seen from there, but for the signature."""
    # A link to a folder counts as a file: what it leads to could change after the signature.
    below = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
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

"""Signatures of release folders, in the format of minisign: who made every file of a folder, and
that none was changed.

``SHA256SUMS`` lists every file with its hash, and ``SHA256SUMS.minisig`` signs that list, so that
``minisign -Vm SHA256SUMS -p KEY`` and ``sha256sum -c SHA256SUMS`` verify a folder without semidp.
Keys are read by py-minisign, an optional package.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from semidp.errors import InputError, MissingExtra
from semidp.promise.documents import digest, read_plain
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
        (folder / SIGNATURE).write_bytes(bytes(self._key.sign(sums)) + b"\n")


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

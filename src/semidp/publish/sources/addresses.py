"""Database addresses: what tells them from files, and texts without the passwords that they may
hold.
"""

import os
import re
from urllib.parse import SplitResult, unquote, urlsplit

from semidp.errors import InputError

FILE_SCHEMES = ("duckdb", "sqlite")  # their addresses are paths
_MALFORMED = "the database address is malformed: write it as postgres://user@host:5432/database"
_SECRET = re.compile(r"(passw(or)?d|passphrase|pwd|secret|token|(private|access)_key)\s*=", re.I)
_KEYS = re.compile(r"\b(host|server|user|uid|dbname|database)\s*=", re.I)
# A scheme, or a user where the scheme was forgotten; one letter is a drive of Windows.
_BEFORE = re.compile(r"(?<![\w+.%-])[\w+.%-]{2,}:(?=//|\S*@|/[^/\s:]*:\S)")
_HIDDEN = "***"


def is_address(data: str) -> bool:
    """Whether a text is meant as a database address, well formed or not, and not as a file.

    >>> [is_address(data) for data in ("postgres://me@host/db", "postgres:/me:x@host/db", "p.csv")]
    [True, True, False]
    """
    return "://" in data or (mask_passwords(data) != data and not os.path.lexists(data))


def address_parts(address: str) -> SplitResult:
    """Return the parts of a database address; refuse one that may hold a password."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        raise InputError(_MALFORMED) from None
    if ":" in unquote(parts.netloc.rpartition("@")[0]) or _SECRET.search(unquote(address)):
        raise InputError(
            "the database address holds a password: leave it out, and set SEMIDP_PASSWORD instead"
        )
    # A slash, a ? or a # in a password ends the part of the address in which passwords are found.
    cut_short = "@" in parts.path + parts.query + parts.fragment
    if "://" not in address or (cut_short and parts.scheme not in FILE_SCHEMES):
        raise InputError(_MALFORMED)
    return parts


def mask_passwords(text: str) -> str:
    """Return a text without the rest of an address that `address_parts` refuses, or of keys such as
    ``host=h password=x``.

    >>> mask_passwords("semidp release postgres://me:x@host/db")
    'semidp release postgres:***'
    >>> mask_passwords("cannot open postgres://me@host:5432/db")
    'cannot open postgres://me@host:5432/db'
    """
    before = _BEFORE.search(text)
    if before is not None:
        try:
            address_parts(text[before.start() :])
        except InputError:
            return text[: before.end()] + _HIDDEN
    secret = _SECRET.search(text) if _KEYS.search(text) else None
    return text if secret is None else text[: secret.end()] + _HIDDEN

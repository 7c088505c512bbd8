"""Values as JSON and TOML: one codec, texts read strictly and written plainly, and the files that
hold them.

A class that inherits from `Encodable` needs no JSON code of its own. Exact numbers are text, arrays
are lists, and a field that is None if None is its default is left out. Regular files of a folder
are read whole, in blocks for a digest, or as a document.
"""

import csv
import functools
import hashlib
import json
import math
import os
import re
import stat
import tomllib
import types
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
import numpy as np

from semidp.errors import InputError
from semidp.promise.exact import exact, plain
from semidp.promise.system import open_for_reading

T = TypeVar("T", bound="Encodable")


class Encodable:
    """A frozen value that is written as JSON by its fields, and read back by their types.

    A field that is None by default is left out if it is None. Keys that no field has are
    ignored, so an entry may say more than its value. A class that writes another form
    overrides `to_json` and `from_json`; values that hold it follow.

    Attributes
    ----------
    json_keys
        Keys of fields whose key differs from their name; a field with the key None is not written.

    Examples
    --------
    >>> @attrs.frozen
    ... class Step(Encodable):
    ...     size: Fraction
    ...     label: str | None = None
    >>> Step(Fraction(1, 2)).to_json(), Step.from_json({"size": "0.5"})
    ({'size': '0.5'}, Step(size=Fraction(1, 2), label=None))
    """

    __slots__ = ()
    json_keys: ClassVar[Mapping[str, str | None]] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values, by their keys."""
        cls: Any = type(self)
        kind = _kind(cls)
        document: dict[str, Any] = {} if kind is None else {"kind": kind}
        for name, (key, is_optional) in _written_fields(cls).items():
            value = getattr(self, name)
            if value is not None or not is_optional:
                document[key] = encode(value)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; a `TypeError` or `KeyError` if it is something else."""
        if not isinstance(document, Mapping):
            raise TypeError(f"{cls.__name__} is read from an object")
        target = _find_class(cls, document)
        return target(**decode_fields(target, document))


def decode_fields(cls: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the written fields of a class, by name, from a document of its keys."""
    types_by_name = _field_types(cls)
    values = {}
    for name, (key, is_optional) in _written_fields(cls).items():
        if key in document or not is_optional:
            values[name] = decode(types_by_name[name], document[key])
    return values


def encode(value: object) -> Any:
    """Return a value in JSON form; infinity, which JSON lacks, becomes None.

    >>> encode({"rho": Fraction(1, 3), "counts": np.array([1, 2]), "kinds": ("a", None)})
    {'rho': '1/3', 'counts': [1, 2], 'kinds': ['a', None]}
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Fraction):
        return plain(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): encode(part) for key, part in value.items()}
    if isinstance(value, Collection):
        return [encode(part) for part in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def decode(form: Any, value: Any) -> Any:
    """Return the value of a type, as an annotation names it, from what `encode` wrote.

    >>> decode(tuple[Fraction, ...], ["1/3", "2"])
    (Fraction(1, 3), Fraction(2, 1))
    >>> decode(int | None, "3")
    Traceback (most recent call last):
    TypeError: int | None is expected
    """
    origin, inner = get_origin(form), get_args(form)
    if form is Any:
        return value
    if origin is Literal and value in inner:
        return value
    if origin in (Union, types.UnionType):
        return _decode_union(form, inner, value)
    if origin is np.ndarray:
        return np.array(value, dtype=get_args(inner[1])[0])
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {decode(inner[0], key): decode(inner[1], part) for key, part in value.items()}
    if origin in (tuple, list, Sequence, frozenset) and isinstance(value, list | tuple):
        return _decode_list(origin, inner, value)
    if isinstance(form, type):
        return _decode_class(form, value)
    raise TypeError(f"{_name(form)} is expected")


def _decode_union(form: Any, inner: Sequence[Any], value: Any) -> Any:
    if value is None and type(None) in inner:
        return None
    for one in inner:
        try:
            return decode(one, value)
        except (TypeError, KeyError):
            continue
    raise TypeError(f"{_name(form)} is expected")


def _decode_list(origin: Any, inner: Sequence[Any], value: Sequence[Any]) -> Any:
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(decode(one, part) for one, part in zip(inner, value, strict=True))
    parts = [decode(inner[0], part) for part in value]
    return origin(parts) if origin in (tuple, frozenset) else parts


def _decode_class(form: type, value: Any) -> Any:
    reader = getattr(form, "from_json", None)
    if reader is not None:
        return reader(value)
    if issubclass(form, Enum):
        return form(value)
    if form is Fraction:
        return exact(value)
    if form is float and type(value) is int:
        return float(value)
    if type(value) is not form:
        raise TypeError(f"{form.__name__} is expected")
    return value


def _name(form: Any) -> str:
    return str(form).replace("typing.", "")


def _find_class(cls: type[T], document: Mapping[str, Any]) -> type[T]:
    """Return the class that a document names by its kind, among a class and those below it."""
    subclasses = cls.__subclasses__()
    if not subclasses or "kind" not in document:
        return cls
    for one in subclasses:
        # attrs makes a class with slots anew; the one before it stays until garbage is collected
        if "__attrs_attrs__" in vars(one) and _kind(one) == document["kind"]:
            return one
        subclasses.extend(one.__subclasses__())
    raise TypeError(f"{cls.__name__} has no kind {str(document['kind'])[:40]!r}")


def _kind(cls: Any) -> str | None:
    """Return the name of a class among those that share a base; a field may be called kind, too."""
    kind = getattr(cls, "kind", None)
    return None if kind is None or "kind" in _written_fields(cls) else str(kind)


@functools.cache
def _written_fields(cls: Any) -> dict[str, tuple[str, bool]]:
    """Return the key of each written field, and whether it is left out if it is None."""
    defaults = {one.name: one.default for one in attrs.fields(cls) if one.init}
    keys = {name: cls.json_keys.get(name, name) for name in defaults}
    return {name: (key, defaults[name] is None) for name, key in keys.items() if key is not None}


@functools.cache
def _field_types(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def from_json(content: bytes | str) -> Any:
    """Return the value of a JSON text; a `ValueError` if it is invalid or nested too
    deeply.

    A repeated key is refused: readers differ in which of the two they take. JSON has no NaN and no
    infinity, and numbers beyond floating point are refused, so every value that is read can be
    compared and used in arithmetic. Exact numbers are written as text.

    >>> from_json("[" * 100000)
    Traceback (most recent call last):
    ValueError: nested too deeply
    >>> from_json('{"epsilon": 9, "epsilon": 1}')
    Traceback (most recent call last):
    ValueError: a key stands twice
    >>> from_json('{"loss": NaN}')
    Traceback (most recent call last):
    ValueError: NaN is no number of JSON
    """
    try:
        value = json.loads(
            content,
            object_pairs_hook=_refuse_duplicate_keys,
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_parse_finite_int,
        )
        if _SURROGATE.search(content if isinstance(content, str) else content.decode()):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a character") from None
    return value


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice")
    return document


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _parse_finite_int(text: str) -> int:
    _finite(text)
    return int(text)


def from_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML text; a `ValueError` if it is invalid or nested too
    deeply.

    >>> from_toml("count = 'people'")
    {'count': 'people'}
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def toml_text(document: Mapping[str, Any]) -> str:
    """Write plain values as TOML: first single values, then each list of mappings as an array of
    tables.

    >>> print(toml_text({"count": "people", "feature": [{"name": "sex", "levels": ["f", "m"]}]}))
    count = "people"
    <BLANKLINE>
    [[feature]]
    name = "sex"
    levels = ["f", "m"]
    <BLANKLINE>
    """
    arrays = {key: value for key, value in document.items() if _is_array_of_tables(value)}
    lines = [_toml_pair(key, value) for key, value in document.items() if key not in arrays]
    for key, entries in arrays.items():
        for entry in entries:
            pairs = [_toml_pair(name, item) for name, item in entry.items()]
            lines += ["", f"[[{key}]]", *pairs]
    return "\n".join(lines).lstrip("\n") + "\n"


def _is_array_of_tables(value: object) -> bool:
    """Whether a value is a list of mappings, which TOML writes as tables."""
    if not value or not isinstance(value, list):
        return False
    return all(isinstance(entry, Mapping) for entry in value)


def _toml_pair(key: str, value: object) -> str:
    letters = key.replace("_", "").replace("-", "")
    if not (key.isascii() and letters.isalnum()):
        key = json.dumps(key, ensure_ascii=False)
    return f"{key} = {_toml_value(value)}"


def _toml_value(value: object) -> str:
    # JSON's strings, numbers, truth values and lists are TOML's too.
    if isinstance(value, Mapping):
        pairs = [_toml_pair(name, item) for name, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


LARGEST = 2**30
"""Bytes of the largest file that is read whole."""

_BLOCK = 2**22  # bytes of a file that are hashed at once


def read_plain(path: Path, within: Path | None = None) -> bytes:
    """Return the content of a regular file. Pipes and devices, which may never end, and files that
    are too large are refused.

    It must not lead out of the folder `within` by a link. What cannot be read is an `OSError`.

    >>> read_plain(Path(os.devnull))
    Traceback (most recent call last):
    semidp.errors.InputError: /dev/null is not a regular file
    """
    with open(regular_file(path, within), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # A file may grow while it is read, so its size is no limit by itself.
        content = file.read(LARGEST + 1) if size <= LARGEST else b""
        if max(size, len(content)) > LARGEST:
            raise InputError(
                f"{path} is larger than {LARGEST >> 20} MB, which no such file that semidp"
                " writes is"
            )
        return content


def regular_file(path: Path, within: Path | None = None) -> int:
    """Open a regular file of any size for reading, as `read_plain` does, and return its
    handle.
    """
    if within is not None and not Path(os.path.realpath(path)).is_relative_to(
        os.path.realpath(within)
    ):
        raise InputError(f"{path} is a link that leads out of its folder")
    handle = open_for_reading(path)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a regular file")
    return handle


def digest(path: Path, within: Path | None = None, most: int = 64 * LARGEST) -> str:
    """Return the SHA-256 of a regular file of at most `most` bytes, read in parts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "x").write_bytes(b"abc")
    ...     digest(Path(folder) / "x")[:8]
    'ba7816bf'
    """
    hashed = hashlib.sha256()
    with open(regular_file(path, within), "rb") as file:
        if os.fstat(file.fileno()).st_size > most:
            raise InputError(
                f"{path} is larger than {most >> 20} MB, which no such file that semidp writes is"
            )
        while block := file.read(_BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def read_csv(path: Path | str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a small CSV file of public values, without spaces around
    cells.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "areas.csv").write_text("name, ward\\nnorth, a\\n")
    ...     read_csv(f"{folder}/areas.csv")
    (['name', 'ward'], [['north', 'a']])
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = [list(map(str.strip, line)) for line in csv.reader(file, strict=True)]
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error):
        raise InputError(f"{path} is not a CSV file in UTF-8") from None
    header, *body = [line for line in lines if any(line)] or [[]]
    if len({*header}) < len(header) or not all(header):
        raise InputError(f"{path} needs a header of different names")
    for number, line in enumerate(body, 2):
        if len(line) != len(header):
            raise InputError(f"line {number} of {path} has not as many values as there are columns")
    return header, body


def read_document(path: Path) -> Mapping[str, Any]:
    """Return the JSON object that a file holds, and nothing if there is no such file.

    >>> read_document(Path("nowhere.json"))
    {}
    """
    try:
        document = from_json(read_plain(path)) if is_plain_file(path) else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def is_litter(path: Path) -> bool:
    """Whether a file is one that file browsers of macOS and Windows leave in folders.

    >>> is_litter(Path("release/.DS_Store")), is_litter(Path("release/sex.csv"))
    (True, False)
    """
    return path.name.lower() in (".ds_store", "thumbs.db", "desktop.ini")


def is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()

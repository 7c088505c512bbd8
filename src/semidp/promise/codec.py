"""One codec for values: plain JSON from the fields of a value, and the value back from it.

A class that inherits `Encodable` writes no JSON by hand. Exact numbers are text, arrays are lists,
and classes that share a base are told apart by their ``kind``.
"""

import dataclasses
import functools
import types
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from fractions import Fraction
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

from semidp.promise.exact import exact, plain

T = TypeVar("T", bound="Encodable")


class Encodable:
    """A frozen value that is written as JSON by its fields, and read back by their types.

    A field that is None by default is left out where it is None. Keys that no field has are
    ignored, so that an entry may say more than its value. A class that writes another form
    overrides `to_json` and `from_json`; values that hold it follow.

    Attributes
    ----------
    json_keys
        Keys of fields whose key is not their name; a field with the key None is not written.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
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
        """Read what `to_json` wrote; a `TypeError` or `KeyError` where it is something else."""
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
    """Return a value as JSON has it.

    >>> encode({"rho": Fraction(1, 3), "counts": np.array([1, 2]), "kinds": ("a", None)})
    {'rho': '1/3', 'counts': [1, 2], 'kinds': ['a', None]}
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Enum):
        return value.value
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
        if _kind(one) == document["kind"]:
            return one
        subclasses.extend(one.__subclasses__())
    raise TypeError(f"{cls.__name__} has no kind {str(document['kind'])[:40]!r}")


def _kind(cls: Any) -> str | None:
    """Return the name of a class among those that share a base; a field may be called kind, too."""
    kind = getattr(cls, "kind", None)
    return None if kind is None or "kind" in _written_fields(cls) else str(kind)


@functools.cache
def _written_fields(cls: Any) -> dict[str, tuple[str, bool]]:
    """Return the key of each written field, and whether it is left out where it is None."""
    if attrs.has(cls):
        defaults = {one.name: one.default for one in attrs.fields(cls) if one.init}
    else:
        defaults = {one.name: one.default for one in dataclasses.fields(cls) if one.init}
    keys = {name: cls.json_keys.get(name, name) for name in defaults}
    return {name: (key, defaults[name] is None) for name, key in keys.items() if key is not None}


@functools.cache
def _field_types(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)

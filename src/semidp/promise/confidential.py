"""Confidential values: what was read from data, closed until a mechanism adds noise to it.

Nothing can be computed, compared, printed, stored or sent with such a value by accident. `reveal`
opens it, and a test lists the modules that may use it. This does not prove that nothing leaks: a
type cannot see how an opened value is used.
"""

from typing import Any, Generic, NoReturn, TypeVar, cast, overload

from semidp.errors import SemidpError

T = TypeVar("T")

REFUSING = (
    *("__array__", "__array_ufunc__", "__array_function__", "__bool__", "__eq__", "__ne__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__iter__", "__len__", "__getitem__"),
    *("__contains__", "__int__", "__float__", "__complex__", "__index__", "__hash__", "__str__"),
    *("__format__", "__bytes__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
)
"""The operations that a confidential value refuses."""


class ConfidentialValueError(SemidpError, TypeError):
    """Only a mechanism may do this with a confidential value."""


class Confidential(Generic[T]):
    """A value that was read from data. It has no public accessor.

    >>> count = Confidential(41)
    >>> count
    <confidential>
    >>> f"{count}"
    Traceback (most recent call last):
    semidp.promise.confidential.ConfidentialValueError: a confidential value leaves only through a
    mechanism
    """

    __slots__ = ("__value",)

    def __init__(self, value: T) -> None:
        object.__setattr__(self, "_Confidential__value", value)

    def __setattr__(self, name: str, value: object) -> None:
        _refuse()

    def __getattr__(self, name: str) -> NoReturn:
        _refuse()

    def __repr__(self) -> str:
        # Tracebacks and debuggers call it: it reveals nothing, and does not fail.
        return "<confidential>"


def _refuse(*values: object, **named: object) -> NoReturn:
    raise ConfidentialValueError("a confidential value leaves only through a mechanism")


for _name in REFUSING:
    setattr(Confidential, _name, _refuse)


@overload
def reveal(value: Confidential[T]) -> T: ...
@overload
def reveal(value: T) -> T: ...
def reveal(value: Any) -> Any:
    """Return the content of a confidential value; other values are returned as they are.

    Only readers and mechanisms import it (`tests/laws/test_confidential.py` lists them).

    >>> reveal(Confidential(41)) + 1, reveal(1)
    (42, 1)
    """
    if isinstance(value, Confidential):
        return cast(Any, value)._Confidential__value
    return value

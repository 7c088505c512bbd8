"""dp-accounting events as JSON: what other tools can write and ``semidp guarantee --event`` reads.

An event is an object with the name of its class and its fields, as `dp_accounting.DpEvent.to_named_tuple` names them.
"""

from collections.abc import Mapping
from typing import Any

from semidp.errors import InputError

_DEEPEST = 30


def event_to_json(event: Any) -> dict[str, Any]:
    """Return a dp-accounting event as plain values.

    >>> from semidp.accounting import dp_sgd
    >>> event_to_json(dp_sgd(1.1, 0.01, 500))["count"]
    500
    """
    import attr
    from dp_accounting import dp_event

    if not isinstance(event, dp_event.DpEvent):
        raise InputError("give a dp_accounting.DpEvent; dp_sgd(noise_multiplier, sample_rate, steps) builds one")

    def plain(value: Any) -> Any:
        if isinstance(value, dp_event.DpEvent):
            return event_to_json(value)
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    fields = {field.name: plain(getattr(event, field.name)) for field in attr.fields(type(event))}
    return {"class_name": type(event).__name__, **fields}


def event_from_json(value: Any) -> Any:
    """Read what `event_to_json` wrote.

    >>> event_from_json({"class_name": "GaussianDpEvent", "noise_multiplier": 1.1})
    GaussianDpEvent(noise_multiplier=1.1)
    >>> event_from_json({"class_name": "GaussianDpEvent", "sigma": 1.1})
    Traceback (most recent call last):
    semidp.errors.InputError: a GaussianDpEvent has the fields noise_multiplier, not sigma
    """
    return _read(value, 0)


def _read(value: Any, depth: int) -> Any:
    import attr
    from dp_accounting import dp_event

    if depth > _DEEPEST:
        raise InputError(f"an event is composed at most {_DEEPEST} deep")
    if isinstance(value, list):
        return [_read(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError("the fields of an event are numbers, lists and events")
        return value
    name = value.get("class_name")
    kind = getattr(dp_event, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, dp_event.DpEvent) and kind is not dp_event.DpEvent):
        raise InputError("an event has the class_name of a dp-accounting event, such as GaussianDpEvent")
    known = [field.name for field in attr.fields(kind)]
    given = {str(key): item for key, item in value.items() if key not in ("class_name", "module_name")}
    if not {*given} <= {*known}:
        raise InputError(f"a {name} has the fields {', '.join(known)}, not {', '.join(sorted({*given} - {*known}))}")
    fields = {key: _read(item, depth + 1) for key, item in given.items()}
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        raise InputError(f"a {name} needs the fields {', '.join(known)}, with values that it allows") from None

"""The file of legal holds, `cordwood-holds.json`: Cordwood's own; Kafka ignores it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields

from cordwood.model.errors import ConfigError, CorruptError, UnsupportedVersionError
from cordwood.model.hold import Hold

_VERSION = 1
_FIELDS = frozenset(field.name for field in fields(Hold))
_REMEDY = (
    "Put back a copy of it, such as that of another log directory of the broker; if there is no "
    "hold, remove it"
)


def build_holds(holds: Iterable[Hold]) -> bytes:
    """The bytes of the file, in the order given."""
    document = {"version": _VERSION, "holds": [asdict(hold) for hold in holds]}
    return json.dumps(document, indent=1).encode() + b"\n"


def parse_holds(data: bytes) -> tuple[Hold, ...]:
    """The holds of a file; every byte has to be as `build_holds` may write it.

    Raises:
        UnsupportedVersionError: a later release wrote it.
        CorruptError: it is no such file.
    """
    try:
        document = json.loads(data)
        version, listed = document["version"], document["holds"]
        if version != _VERSION:
            raise UnsupportedVersionError(f"version {version!r} of the legal holds")
        holds = tuple([_hold(each) for each in listed])
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise CorruptError(f"not a file of legal holds ({error})", remedy=_REMEDY) from error
    if len({hold.id for hold in holds}) < len(holds):
        raise CorruptError("two legal holds have one id", remedy=_REMEDY)
    return holds


def _hold(value: dict[str, object]) -> Hold:
    """A hold of its JSON object.

    Raises:
        TypeError, ConfigError: it is none.
    """
    if set(value) != _FIELDS:
        raise TypeError(f"fields {sorted(value)} instead of {sorted(_FIELDS)}")
    partition, created_ms = value["partition"], value["created_ms"]
    texts = [value[name] for name in ("id", "topic", "reason", "by")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"a text is none in {value!r}")
    if type(created_ms) is not int or (partition is not None and type(partition) is not int):
        raise TypeError(f"a number is none in {value!r}")
    name, topic, reason, by = map(str, texts)
    return Hold(
        id=name, topic=topic, partition=partition, reason=reason, by=by, created_ms=created_ms
    )

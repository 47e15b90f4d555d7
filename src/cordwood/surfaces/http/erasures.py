"""The request of an erasure as it travels to a broker: the body of `POST /erasures/start`.

Keys and salts are hexadecimal. They are in the body, which is not logged.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar

from cordwood.cleanup.erasure.criteria import SALT_BYTES, Criteria, Target, parse_target
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.model.errors import ConfigError
from cordwood.surfaces.http.body import read_json

T = TypeVar("T")

_ID: Final = re.compile(r"erasure-[0-9a-f]{12}", re.ASCII)


def build_erasure(request: EraseRequest) -> bytes:
    """The body for a request of the command; where things are, the broker knows."""
    value: dict[str, Any] = {
        "id": request.id,
        "topics": [str(target) for target in request.targets],
        "keys": sorted(key.hex() for key in request.criteria.keys),
        "where": request.criteria.where,
        "salt": request.salt.hex(),
        "ledger_salt": request.ledger_salt.hex(),
        "reason": request.reason,
        "operator": request.operator,
        "dry_run": request.dry_run,
        "max_extra_bytes": request.max_extra_bytes,
    }
    return json.dumps(value).encode()


def parse_erasure(body: bytes, *, now_ms: int) -> EraseRequest:
    """The request in a body; its time is the broker's.

    Raises:
        ConfigError: it is none, or has neither keys nor an expression, or both, or an expression
            that is not allowed.
    """
    fields = _Fields.of(read_json(body))
    where, extra = fields.text_or_none("where"), fields.number_or_none("max_extra_bytes")
    keys = frozenset(map(fields.unhex, fields.texts("keys")))
    salts = [fields.unhex(fields.text(name)) for name in ("salt", "ledger_salt")]
    if any(len(salt) != SALT_BYTES for salt in salts):
        raise fields.wrong(f"a salt is not of {SALT_BYTES} bytes")
    if not _ID.fullmatch(fields.text("id")):
        raise fields.wrong("its id is none that a command gives")
    if not fields.texts("topics"):
        raise fields.wrong("no topic")
    request = EraseRequest(
        log_dirs=(),
        targets=fields.targets("topics"),
        criteria=Criteria(keys=keys, where=where),
        resolve=lambda _: None,
        now_ms=now_ms,
        id=fields.text("id"),
        salt=salts[0],
        ledger_salt=salts[1],
        reason=fields.text("reason"),
        operator=fields.text("operator"),
        dry_run=fields.flag("dry_run"),
        max_extra_bytes=extra,
    )
    if bool(keys) == (where is not None):
        raise ConfigError("give the records to erase either by keys or by an expression")
    return request


class _Fields:
    """The fields of an object of JSON, of the kinds that they are to have."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    @classmethod
    def of(cls, value: Any) -> _Fields:
        """Raises ConfigError if the value is no object."""
        if not isinstance(value, dict):
            raise cls.wrong("it is no object")
        return cls(value)

    @staticmethod
    def wrong(what: str) -> ConfigError:
        """The error to be raised."""
        return ConfigError(f"not the request of an erasure: {what}")

    def text(self, name: str) -> str:
        """A text."""
        return self._of(name, str, "a text")

    def text_or_none(self, name: str) -> str | None:
        """A text, or null."""
        return None if self._value(name) is None else self.text(name)

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        found = self._of(name, list, "a list of texts")
        if not all(isinstance(each, str) for each in found):
            raise self.wrong(f"{name} is not a list of texts")
        return found

    def flag(self, name: str) -> bool:
        """True or false."""
        return self._of(name, bool, "true or false")

    def number_or_none(self, name: str) -> int | None:
        """A number of 63 bits that is not negative, or null."""
        if self._value(name) is None:
            return None
        number = self._of(name, int, "a number")
        if isinstance(number, bool) or not 0 <= number < 1 << 63:
            raise self.wrong(f"{name} is not a number from 0 to 2^63-1")
        return number

    def targets(self, name: str) -> tuple[Target, ...]:
        """A list of topics and partitions, each once."""
        try:
            return tuple(dict.fromkeys(map(parse_target, self.texts(name))))
        except ValueError as error:
            raise self.wrong(str(error)[:300]) from error

    def unhex(self, text: str) -> bytes:
        """The bytes that hexadecimal digits stand for."""
        try:
            return bytes.fromhex(text)
        except ValueError as error:
            raise self.wrong(f"not hexadecimal digits ({error})") from error

    def _value(self, name: str) -> Any:
        if name not in self._values:
            raise self.wrong(f"{name} is missing")
        return self._values[name]

    def _of(self, name: str, kind: type[T], what: str) -> T:
        value = self._value(name)
        if not isinstance(value, kind):
            raise self.wrong(f"{name} is not {what}")
        return value

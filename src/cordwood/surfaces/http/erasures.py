"""The request of an erasure as it travels to a broker: the body of `POST /erasures/start`.

Keys and salts are hexadecimal. They are in the body, which is not logged.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from cordwood.cleanup.erasure.criteria import SALT_BYTES, Criteria, parse_target
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.model.errors import ConfigError

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
        ConfigError: it is none, or has neither keys nor an expression, or both.
    """
    try:
        value = json.loads(body)
        keys = frozenset(bytes.fromhex(each) for each in value["keys"])
        where, extra = value["where"], value["max_extra_bytes"]
        salts = [bytes.fromhex(value[name]) for name in ("salt", "ledger_salt")]
        if any(len(salt) != SALT_BYTES for salt in salts):
            raise ValueError(f"a salt is not of {SALT_BYTES} bytes")
        if not _ID.fullmatch(value["id"]):
            raise ValueError(f"id {value['id']!r}")
        if not value["topics"]:
            raise ValueError("no topic")
        request = EraseRequest(
            log_dirs=(),
            targets=tuple(dict.fromkeys(parse_target(str(each)) for each in value["topics"])),
            criteria=Criteria(keys=keys, where=None if where is None else str(where)),
            resolve=lambda _: None,
            now_ms=now_ms,
            id=value["id"],
            salt=salts[0],
            ledger_salt=salts[1],
            reason=str(value["reason"]),
            operator=str(value["operator"]),
            dry_run=value["dry_run"] is True,
            max_extra_bytes=None if extra is None else int(extra),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"not the request of an erasure ({error!r})") from error
    if bool(keys) == (where is not None):
        raise ConfigError("give the records to erase either by keys or by an expression")
    return request

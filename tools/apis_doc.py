"""Writes docs/apis.md from the handlers and from the table of what is not served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from cordwood.protocol.apis import APIS
from cordwood.serving.api import Api
from cordwood.serving.registry import apis_with_modules

BROKER: Final = "cordwood.broker.handlers"
CONTROLLER: Final = "cordwood.controller.handlers"

PAGE = Path(__file__).resolve().parent.parent / "docs" / "apis.md"

INTRODUCTION = """\
# APIs

<!-- Written by tools/apis_doc.py from src/cordwood: change it there. -->

The APIs of `cordwood serve`, by Kafka's API keys. ApiVersions lists exactly these. Produce
is advertised from version 0 on, as Kafka does, for old librdkafka clients; versions below 3 are not
answered.

| key | API | versions | handler |
| --- | --- | --- | --- |
"""

AT_CONTROLLERS = """
## At the listener of a controller

Brokers and other nodes send these to a controller (`process.roles` with `controller`); what clients
ask, brokers forward in an Envelope.

| key | API | versions | handler |
| --- | --- | --- | --- |
"""

LEDGER = """
## Not served

| key | API | why |
| --- | --- | --- |
"""


_SHARE = "share groups are not supported (KIP-932)"
_STREAMS = "streams groups are not supported; Kafka Streams uses classic groups (KIP-1071)"
_QUORUM = "a controller here is the only voter of its quorum"
_TELEMETRY = "Kafka advertises it only if a plugin receives client metrics (KIP-714)"

UNSERVED: Final[Mapping[int, str]] = {
    51: "there is no authentication: passwords would have no use",
    52: _QUORUM,
    53: _QUORUM,
    54: _QUORUM,
    70: _QUORUM,
    71: _TELEMETRY,
    72: _TELEMETRY,
    76: _SHARE,
    77: _SHARE,
    78: _SHARE,
    79: _SHARE,
    80: _QUORUM,
    81: _QUORUM,
    82: _QUORUM,
    83: _SHARE,
    84: _SHARE,
    85: _SHARE,
    86: _SHARE,
    87: _SHARE,
    88: _STREAMS,
    89: _STREAMS,
    90: _SHARE,
    91: _SHARE,
    92: _SHARE,
    93: _STREAMS,
}
"""APIs that neither brokers nor controllers serve, and why; ApiVersions does not name them."""


def page() -> str:
    """The text of the page."""
    of_brokers, of_controllers = _by_key(BROKER), _by_key(CONTROLLER)
    unserved = UNSERVED | dict.fromkeys(
        of_controllers.keys() - of_brokers.keys(), "served at the listener of a controller"
    )
    parts = (
        INTRODUCTION,
        _rows(of_brokers.values()),
        AT_CONTROLLERS,
        _rows(of_controllers.values()),
        LEDGER,
        [f"| {key} | {APIS[key].name} | {why} |" for key, why in sorted(unserved.items())],
    )
    return "".join(part if isinstance(part, str) else "\n".join(part) + "\n" for part in parts)


def _by_key(package: str) -> Mapping[int, tuple[Api[Any], ModuleType]]:
    found = {api.key: (api, module) for api, module in apis_with_modules(package)}
    return dict(sorted(found.items()))


def _rows(apis: Iterable[tuple[Api[Any], ModuleType]]) -> list[str]:
    return [
        f"| {api.key} | {api.name} | {api.min_version} to {api.max_version} | "
        f"`{module.__name__.rpartition('.')[2]}.py`: {_first_line(module)} |"
        for api, module in apis
    ]


def _first_line(module: ModuleType) -> str:
    line = (module.__doc__ or "").splitlines()[0]
    return line.partition(": ")[2].rstrip(".") or line.rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

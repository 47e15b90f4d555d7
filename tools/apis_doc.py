"""Writes docs/apis.md from the handlers and from the table of what is not served."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordwood.broker.handlers import served_apis
from cordwood.broker.unserved import UNSERVED
from cordwood.controller_apis.apis import controller_apis
from cordwood.protocol.apis import APIS
from cordwood.serving.api import Api

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

CONTROLLER = """
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


def page() -> str:
    """The text of the page."""
    modules = _modules("cordwood.broker.handlers.")
    served = _rows(served_apis(), modules)
    at_controllers = _rows(controller_apis(), {**modules, **_modules("cordwood.controller_apis.")})
    unserved = [f"| {key} | {APIS[key].name} | {why} |" for key, why in sorted(UNSERVED.items())]
    parts = (INTRODUCTION, served, CONTROLLER, at_controllers, LEDGER, unserved)
    return "".join(part if isinstance(part, str) else "\n".join(part) + "\n" for part in parts)


def _rows(apis: Mapping[int, Api[Any]], modules: Mapping[int, Any]) -> list[str]:
    return [
        f"| {api.key} | {api.name} | {api.min_version} to {api.max_version} | "
        f"`{modules[api.key].__name__.rpartition('.')[2]}.py`: {_first_line(modules[api.key])} |"
        for _, api in sorted(apis.items())
    ]


def _modules(package: str) -> dict[int, Any]:
    """The module of each API's handler, in a package that is imported."""
    served_apis()
    controller_apis()
    return {
        api.key: module
        for name, module in sorted(sys.modules.items())
        if name.startswith(package)
        for api in (*getattr(module, "APIS", ()), *_single(module))
    }


def _single(module: object) -> tuple[object, ...]:
    api = getattr(module, "API", None)
    return () if api is None else (api,)


def _first_line(module: object) -> str:
    line = (module.__doc__ or "").splitlines()[0]
    return line.partition(": ")[2].rstrip(".") or line.rstrip(".")


if __name__ == "__main__":
    importlib.invalidate_caches()
    PAGE.write_text(page(), encoding="utf-8")

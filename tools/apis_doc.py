"""Writes docs/apis.md from the handlers and from the table of what is not served."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from cordwood.broker.handlers import served_apis
from cordwood.broker.unserved import UNSERVED
from cordwood.protocol.apis import APIS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "apis.md"

INTRODUCTION = """\
# APIs

<!-- Written by tools/apis_doc.py from src/cordwood/broker: change it there. -->

The APIs of `cordwood serve`, by Kafka's API keys. ApiVersions lists exactly these. Produce
is advertised from version 0 on, as Kafka does, for old librdkafka clients; versions below 3 are not
answered.

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
    modules = {
        api.key: module
        for module in _handlers()
        for api in (*getattr(module, "APIS", ()), *_single(module))
    }
    served = [
        f"| {api.key} | {api.name} | {api.min_version} to {api.max_version} | "
        f"`{modules[api.key].__name__.rpartition('.')[2]}.py`: {_first_line(modules[api.key])} |"
        for api in sorted(served_apis().values())
    ]
    unserved = [f"| {key} | {APIS[key].name} | {why} |" for key, why in sorted(UNSERVED.items())]
    return INTRODUCTION + "\n".join(served) + "\n" + LEDGER + "\n".join(unserved) + "\n"


def _handlers() -> list[object]:
    served_apis()
    return [m for n, m in sorted(sys.modules.items()) if n.startswith("cordwood.broker.handlers.")]


def _single(module: object) -> tuple[object, ...]:
    api = getattr(module, "API", None)
    return () if api is None else (api,)


def _first_line(module: object) -> str:
    line = (module.__doc__ or "").splitlines()[0]
    return line.partition(": ")[2].rstrip(".") or line.rstrip(".")


if __name__ == "__main__":
    importlib.invalidate_caches()
    PAGE.write_text(page(), encoding="utf-8")

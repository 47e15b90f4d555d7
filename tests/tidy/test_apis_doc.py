"""The page of APIs is that of the handlers, and says of every API of Kafka's what becomes of it."""

from __future__ import annotations

import runpy
from pathlib import Path

from cordwood.broker.handlers import served_apis
from cordwood.controller.handlers import controller_apis
from cordwood.protocol.apis import APIS

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "apis_doc.py"))


def test_the_page_is_up_to_date() -> None:
    text = TOOL["PAGE"].read_text(encoding="utf-8")
    assert text == TOOL["page"](), "run python tools/apis_doc.py"


def test_every_api_is_served_or_in_the_ledger_and_none_is_both() -> None:
    served, unserved = {*served_apis(), *controller_apis()}, set(TOOL["UNSERVED"])
    assert not served & unserved, "served: remove the key from tools/apis_doc.py"
    missing = "not served: add the key and the reason to tools/apis_doc.py"
    assert not set(APIS) - served - unserved, missing
    assert served | unserved == set(APIS), "not an API of Kafka 4.4"

"""The page of APIs is that of the handlers, and says of every API of Kafka's what becomes of it."""

from __future__ import annotations

import runpy
from pathlib import Path

from cordwood.broker.handlers import served_apis
from cordwood.broker.unserved import UNSERVED
from cordwood.protocol.apis import APIS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "apis_doc.py"))
    text = tool["PAGE"].read_text(encoding="utf-8")
    assert text == tool["page"](), "run python tools/apis_doc.py"


def test_every_api_is_served_or_in_the_ledger_and_none_is_both() -> None:
    served = set(served_apis())
    assert not served & set(UNSERVED), "served: remove the key from broker/unserved.py"
    missing = "not served: add the key and the reason to broker/unserved.py"
    assert not set(APIS) - served - set(UNSERVED), missing
    assert served | set(UNSERVED) == set(APIS), "not an API of Kafka 4.3"

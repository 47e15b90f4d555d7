"""The table of the client's requests by error code is that of its code."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "client_doc.py"))
    text = tool["PAGE"].read_text(encoding="utf-8")
    assert text == tool["page"](), "run python tools/client_doc.py"

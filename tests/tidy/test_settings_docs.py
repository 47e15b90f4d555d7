from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TEST = re.compile(r"`(tests/[a-z_/]+\.py)::(\w+)`")


def test_the_page_of_settings_is_that_of_the_table() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "configuration_doc.py"))
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == tool["page"](), "run python tools/configuration_doc.py"


def test_every_row_on_older_kafkas_names_a_test_that_is_there() -> None:
    page = (ROOT / "docs" / "kafka-versions.md").read_text()
    lines = page[page.index("## Where older descriptions") :].splitlines()
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert rows
    for row in rows:
        named = _TEST.findall(row)
        assert named, row
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(), (path, name)

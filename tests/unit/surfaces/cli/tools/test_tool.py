"""Output of a tool, for the document of a run that has none of its own."""

from __future__ import annotations

import io
import json

import pytest

from cordwood.surfaces.cli.tools.tool import Terminal


@pytest.mark.parametrize(("count", "first"), [(2, 0), (1500, 500)])
def test_the_last_of_what_is_said_is_kept_once_there_is_a_document(count: int, first: int) -> None:
    out = io.BytesIO()
    terminal = Terminal(stdout=out, stderr=io.BytesIO())
    terminal.error("no document is wanted yet")
    terminal.print_json()
    lines = [f"record {number} is lost" for number in range(count)]
    for line in lines:
        terminal.error(line)
    terminal.complete_json(None, 0)
    terminal.flush()
    assert json.loads(out.getvalue())["messages"] == lines[first:]

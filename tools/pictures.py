"""Draws docs/pictures/look.svg: what `cordwood explain` prints on the log directory in examples/.

The command runs as from a shell, at the moment of examples/made_at, in a terminal of 80 columns.

usage: python tools/pictures.py
"""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from support.in_terminal import in_terminal

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "pictures" / "look.svg"
COLUMNS: Final = 80
# A picture fetches nothing: the reader has a monospaced font.
_FETCHED: Final = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)


def picture() -> str:
    """The picture as SVG."""
    now_ms = (ROOT / "examples" / "made_at").read_text(encoding="utf-8").strip()
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(ROOT / "examples" / "kafka-logs.tar.xz") as archive:
            archive.extractall(directory, filter="data")
        shown = in_terminal(
            ["explain", "kafka-logs", "--defaults", "--now", now_ms],
            columns=COLUMNS,
            cwd=Path(directory),
        )
    assert shown.code == 0, shown.stderr
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(
        Text.from_ansi("\n".join(["$ cordwood explain kafka-logs --defaults", *shown.lines]))
    )
    drawn = _FETCHED.sub("", console.export_svg(title="cordwood", unique_id="look"))
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")

"""A terminal in memory: what its screen shows after all that was written to it."""

from __future__ import annotations

import io
import re

_CONTROL = re.compile(r"\x1b\[(?P<numbers>[0-9;?]*)(?P<letter>[A-Za-z])")


class FakeTerminal(io.StringIO):
    """Understands what rich writes: line feeds, returns, lines erased, the cursor moved up."""

    def __init__(self, *, columns: int) -> None:
        super().__init__()
        self.columns = columns

    def isatty(self) -> bool:
        """Returns True."""
        return True

    def lines(self) -> list[str]:
        """The lines that are shown, without those at the end that are empty."""
        rows, row, column = [""], 0, 0
        text, place = self.getvalue(), 0
        while place < len(text):
            control = _CONTROL.match(text, place)
            if control is not None:
                place = control.end()
                number = int(control["numbers"] or 1) if control["numbers"].isdigit() else 1
                if control["letter"] == "A":
                    row = max(0, row - number)
                elif control["letter"] == "K":
                    rows[row], column = "", 0
                continue
            letter = text[place]
            place += 1
            if letter == "\n":
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            elif letter == "\r":
                column = 0
            else:
                rows[row] = rows[row][:column].ljust(column) + letter + rows[row][column + 1 :]
                column += 1
        while rows and not rows[-1].strip():
            rows.pop()
        return [each.rstrip() for each in rows]

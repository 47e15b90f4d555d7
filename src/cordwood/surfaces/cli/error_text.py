"""The text and the exit code of an error that a command did not expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FAILED: Final = 1
USAGE: Final = 2
DEBUG_VARIABLE: Final = "CORDWOOD_DEBUG"


def command_name(arguments: Sequence[str]) -> str:
    """The command's name for the start of messages."""
    first = next((each for each in arguments if not each.startswith("-")), "")
    return f"cordwood {first}".rstrip()


def text_and_code(name: str, error: Exception) -> tuple[str, int]:
    """The text that users see of an error that a command did not expect, and the exit code."""
    from cordwood.model.errors import (  # noqa: PLC0415  # a command starts without them
        CordwoodError,
        MissingExtraError,
    )
    from cordwood.model.extras import extra_of  # noqa: PLC0415

    if isinstance(error, ImportError):
        error = extra_of(error, what=name) or error
    if isinstance(error, CordwoodError):
        text = str(error)
    elif isinstance(error, OSError):
        text = os_error_text(error)
    else:
        text = (
            f"unexpected error, a bug of Cordwood: {type(error).__name__}: {error}. Run the "
            f"command again with {DEBUG_VARIABLE}=1 in the environment to see where"
        )
    return text, USAGE if isinstance(error, MissingExtraError) else FAILED


def os_error_text(error: OSError) -> str:
    """The system's error text, with the file concerned."""
    reason = error.strerror or str(error) or type(error).__name__
    name = error.filename
    if isinstance(name, bytes):
        name = name.decode(errors="surrogateescape")
    return f"{name}: {reason}" if isinstance(name, str) else reason

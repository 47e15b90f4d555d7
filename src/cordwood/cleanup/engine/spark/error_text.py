"""Texts of Spark's errors, also when the virtual machine that has them is gone."""

from __future__ import annotations


def text_of(error: BaseException) -> str:
    """The text of an error; of one that its virtual machine does not give any more, its kind.

    Py4J asks the virtual machine for the text of a Java exception, and raises without an answer.
    """
    try:
        return str(error)
    except Exception:  # of Py4J, or of the socket
        return f"{type(error).__name__}, of which the virtual machine says no more: it has ended"


def first_line_of(error: BaseException) -> str:
    """The first line of an error's text that says anything: Py4J's own does not."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (telling or lines or [type(error).__name__])[0].lstrip(": ")

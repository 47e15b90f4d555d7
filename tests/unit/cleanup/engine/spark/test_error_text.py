"""Errors about a Spark that does not answer."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from cordwood.cleanup.engine.spark.error_text import first_line_of, sql_error, text_of
from cordwood.cleanup.engine.spark.session import starting_runner
from cordwood.model.errors import ConfigError, CordwoodError, EngineError


class JavaError(Exception):
    """Error like Py4J's: its text is asked of the virtual machine."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_error_of_a_virtual_machine_that_has_gone_has_a_text() -> None:
    assert text_of(JavaError()).startswith("JavaError, of which the virtual machine says no more")
    assert first_line_of(JavaError()).startswith("JavaError")


def test_the_first_line_that_says_anything_is_taken() -> None:
    text = "An error occurred while calling None.x.\n: org.x.SparkException: no master\n\tat y"
    assert first_line_of(RuntimeError(text)) == "org.x.SparkException: no master"
    assert first_line_of(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize(
    ("master", "what"),
    [
        ("spark://127.0.0.1:{port}", "Spark master"),
        ("spark://127.0.0.1:{port},127.0.0.1:{port}", "Spark master"),
        ("k8s://https://127.0.0.1:{port}", "Kubernetes"),
        ("k8s://127.0.0.1:{port}", "Kubernetes"),
        ("sc://127.0.0.1:{port}", "Spark Connect server"),
        ("spark://127.0.0.1:no", "Spark master"),
    ],
)
def test_a_master_that_nobody_answers_for_is_named_at_once(master: str, what: str) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = master.format(port=free.getsockname()[1])
        with (
            pytest.raises(EngineError, match=f"no {what} answers at {address}: "),
            starting_runner(address) as started,
        ):
            started()


class AnalysisException(Exception):
    """Error of the name that PySpark's has."""


class ParseException(AnalysisException):
    """Error of the name that PySpark's has."""


TASK = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    '  File "records.py", line 9, in read\n{last}\n'
)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            ParseException(
                "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 "
                "(line 1, pos 0)\n\n== SQL ==\nselec 1\n^^^\n"
            ),
            ConfigError,
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. (line 1, position 1)",
        ),
        (
            AnalysisException(
                "[MISSING_AGGREGATION] The expression is not grouped.\nAdd it. SQLSTATE: 42803; "
                "line 2 pos 7;\n'Project ['a]\n+- Relation\n"
            ),
            ConfigError,
            "[MISSING_AGGREGATION] The expression is not grouped. Add it. (line 2, position 8)",
        ),
        (
            RuntimeError(
                "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n"
                "== SQL (line 2, position 2) ==\n 1/0\n ^^^\n"
            ),
            CordwoodError,
            "[DIVIDE_BY_ZERO] Division by zero. (line 2, position 2)",
        ),
        (
            RuntimeError(
                TASK.format(last="cordwood.storage.reading.x.BadBatchError: /a-0/0.log: CRC at 17")
            ),
            CordwoodError,
            "/a-0/0.log: CRC at 17",
        ),
        (
            AnalysisException(
                "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: "
                + TASK.format(last="cordwood.model.errors.ConfigError: option topics: none")
            ),
            ConfigError,
            "option topics: none",
        ),
        (
            RuntimeError(
                TASK.format(last="PermissionError: [Errno 13] Permission denied: '/a-0/0.log'")
            ),
            CordwoodError,
            "/a-0/0.log: Permission denied",
        ),
        (
            RuntimeError(TASK.format(last="pyarrow.lib.ArrowInvalid: too large")),
            EngineError,
            "Spark failed the query: pyarrow.lib.ArrowInvalid: too large",
        ),
        (
            RuntimeError("An error occurred while calling o1.sql.\n: java.lang.OutOfMemoryError"),
            EngineError,
            "Spark failed the query: java.lang.OutOfMemoryError",
        ),
    ],
)
def test_the_error_of_a_query_is_one_line_with_its_place(
    error: Exception, kind: type[CordwoodError], text: str
) -> None:
    found = sql_error(error)
    assert (type(found), str(found)) == (kind, text)

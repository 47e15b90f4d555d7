"""Errors about a Spark that does not answer."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from cordwood.cleanup.engine.spark.error_text import first_line_of, text_of
from cordwood.cleanup.engine.spark.session import starting_runner
from cordwood.model.errors import EngineError


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

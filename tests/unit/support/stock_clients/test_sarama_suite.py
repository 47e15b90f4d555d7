"""Outcomes of Sarama's tests, as they are parsed."""

from __future__ import annotations

from support.stock_clients.sarama_suite import outcomes_of


def test_a_test_that_the_program_does_not_end_has_failed() -> None:
    ran = outcomes_of(
        [
            {"Action": "start"},
            {"Action": "run", "Test": "TestA"},
            {"Action": "run", "Test": "TestB"},
            {"Action": "output", "Test": "TestB", "Output": "waits\n"},
            {"Action": "pass", "Test": "TestA"},
            {"Action": "output", "Output": "panic: test timed out\n"},
            {"Action": "fail"},
        ]
    )
    assert ran.outcomes == {"TestA": "pass", "TestB": "fail"}
    assert ran.tail(ran.named("fail")) == "=== TestB\nwaits"
    assert ran.said == "panic: test timed out\n"

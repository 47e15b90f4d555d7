"""tools/report_card.py: what it makes of the results of test runs, without running any."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CARD: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "report_card.py"))
Case, Result = CARD["Case"], CARD["Result"]

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="5">
<testcase classname="tests.compat.test_clients_python" name="test_does[cordwood-aiokafka-group]"/>
<testcase classname="tests.compat.test_clients_python" name="test_does[kafka-aiokafka-group]">
<skipped type="pytest.skip" message="no Java: install it">where</skipped></testcase>
<testcase classname="tests.compat.test_clients_python" name="test_does[cordwood-kafka-python-x]">
<failure message="AssertionError: 1 is not 2&#10;assert 1 == 2">trace</failure></testcase>
<testcase classname="tests.compat.test_clients_python"
 name="test_does[cordwood-confluent-kafka-consumer-protocol-group]"/>
<testcase classname="tests.compat.test_clients_python" name="test_does[cordwood-confluent-kafka-x]">
<error message="failed on setup">trace</error></testcase>
</testsuite></testsuites>
"""


def test_a_junit_file_tells_what_passed_failed_and_was_skipped_and_why() -> None:
    cases = CARD["junit_cases"](JUNIT)
    assert [(case.outcome, case.why) for case in cases] == [
        ("passed", ""),
        ("skipped", "no Java: install it"),
        ("failed", "AssertionError: 1 is not 2"),
        ("passed", ""),
        ("failed", "failed on setup"),
    ]
    assert cases[0].name == "test_clients_python::test_does[cordwood-aiokafka-group]"


def test_cases_go_to_the_client_with_the_longest_name_that_begins_their_id() -> None:
    checks = CARD["_checks"]()["python"]
    found = CARD["split_by_client"](CARD["junit_cases"](JUNIT), checks.clients)
    assert {key: len(cases) for key, cases in found.items()} == {
        ("aiokafka", "cordwood"): 1,
        ("aiokafka", "kafka"): 1,
        ("kafka-python", "cordwood"): 1,
        ("confluent-kafka (librdkafka)", "cordwood"): 1,
        ("confluent-kafka (librdkafka), KIP-848", "cordwood"): 1,
    }
    whole = CARD["split_by_client"](
        [Case(name="test_x[kafka-codec_gzip]", outcome="passed")], {"": "go"}
    )
    assert list(whole) == [("go", "kafka")]


@pytest.mark.parametrize("missing", ["kafka", "cordwood"])
def test_a_run_without_a_test_of_a_client_at_a_broker_is_no_result(missing: str) -> None:
    checks = CARD["_checks"]()["go"]
    cases = [
        Case(name=f"test_x[{broker}-codec_gzip]", outcome="passed")
        for broker in ("cordwood", "kafka")
    ]
    assert [each.broker for each in checks.results_of(cases)] == ["cordwood", "kafka"]
    left = [case for case in cases if missing not in case.name]
    left.append(Case(name="::tests.compat.test_clients_go", outcome="failed", why="no module"))
    with pytest.raises(CARD["NoCaseError"], match=f"no test of franz-go at {missing}: no module"):
        checks.results_of(left)


def test_a_go_program_tells_its_tests_without_their_parts() -> None:
    cases = CARD["go_cases"](
        {"TestB": "skip", "TestA": "fail", "TestA/part": "fail", "TestC": "pass"},
        {
            "TestA": "=== RUN TestA\n  a_test.go:7: no leader\n--- FAIL: TestA\n",
            "TestB": "no docker\n",
        },
    )
    assert [(case.name, case.outcome, case.why) for case in cases] == [
        ("TestA", "failed", "a_test.go:7: no leader"),
        ("TestB", "skipped", "no docker"),
        ("TestC", "passed", ""),
    ]


def result(broker: str, *cases: Any, own: bool = True) -> Any:
    return Result(client="Sarama", version="1.2", broker=broker, is_own_suite=own, cases=cases)


def test_the_page_has_a_row_for_each_client_and_broker_and_a_reason_for_what_did_not_pass() -> None:
    skipped = Case(name="TestB", outcome="skipped", why="no `docker`")
    failed = [Case(name=f"Test{n}", outcome="failed", why="x") for n in range(5)]
    text = CARD["page"]([result("kafka", skipped), result("cordwood", skipped, *failed)])
    own, _, same = text.partition("## The same checks")
    assert (
        "| Sarama | 1.2 | Cordwood | 0 | 5 | 1 |\n| Sarama | 1.2 | Kafka 4.3 | 0 | 0 | 1 |\n" in own
    )
    assert "- Sarama at kafka, skipped: `TestB`: `no 'docker'`\n" in own
    assert "failed: `Test0`, `Test1`, `Test2` and 2 more: `x`\n" in own
    assert CARD["NONE"] in same


def test_results_are_kept_a_file_for_each_client_and_broker(tmp_path: Path) -> None:
    found = [result("cordwood", Case(name="a", outcome="passed")), result("kafka")]
    CARD["_save"](found, tmp_path)
    CARD["_save"](found[:1], tmp_path)
    assert CARD["saved"](tmp_path) == found
    names = {"suite-sarama-cordwood.json", "suite-sarama-kafka.json"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_every_client_that_is_checked_has_a_version_and_a_module_of_tests() -> None:
    for name, checks in CARD["_checks"]().items():
        assert (ROOT / "tests" / "compat" / checks.module).exists(), name
        assert set(checks.clients.values()) == set(checks.versions), name
    assert CARD["_named_in"]("go/go.mod", "github.com/twmb/franz-go")[0].isdigit()
    assert CARD["_named_in"]("js/package.json", "kafkajs")[0].isdigit()


def test_an_unknown_client_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        CARD["main"](["telegraph"])
    assert "no client is named telegraph" in capsys.readouterr().err

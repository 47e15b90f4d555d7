"""Requests that no client of the HTTP endpoint should send: wrong requests, never an error here."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.scrape import Probe, probed

_ERASURE: dict[str, Any] = {
    "id": "erasure-0123456789ab",
    "topics": ["orders"],
    "keys": ["00"],
    "where": None,
    "salt": "00" * 32,
    "ledger_salt": "00" * 32,
    "reason": "",
    "operator": "",
    "dry_run": True,
    "max_extra_bytes": None,
}
_GETS = ("/", "/broker", "/metrics", "/clock", "/health")
_QUESTIONS = ("/cleaner", "/explain", "/whatif", "/trash", "/holds", "/erasures")
_POSTS = ("/holds/add", "/holds/release", "/trash/restore", "/trash/empty", "/clock/advance")
_PARAMETERS = {
    "topic": "orders",
    "partition": "0",
    "id": "h1",
    "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "hold": "h2",
    "reason": "r",
    "by": "b",
    "set": "orders:retention.ms=1",
    "days": "7",
    "groups": "false",
    "older_than_ms": "1",
    "dry_run": "true",
    "ms": "0",
    "wait": "false",
}
_VALUES = st.one_of(
    st.sampled_from(
        [
            b"",
            b"-1",
            b"9" * 5000,
            b"1e400",
            b"NaN",
            b"\xff",
            b"\0",
            b"../..",
            b"*[",
            b"a:b:c",
            b"\n",
        ]
    ),
    st.binary(max_size=20),
)
_NUMBERS = ["1e400", "-1e400", "NaN", "Infinity", "-1", "1.5", "true", "9" * 5000, f"{2**63}"]
_OTHERS = ["null", '"x"', '"\\ud800"', '"\\u0000"', "[]", "{}", "[[]]", '["\\ud800"]', "[1]", '""']


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    with RunningBroker({}, engine=NoEngine) as broker, probed(broker) as found:
        yield found


def _erasure(**fields: str) -> bytes:
    texts = {name: json.dumps(value) for name, value in _ERASURE.items()} | fields
    return ("{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}").encode()


def _erroneous(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 20 + b"]" * 20,
        b'{"id":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        b"9" * 500_000,
        b'"' + b"\\" * 999_999,
        b'{"keys":[],"keys":[]}',
        b"\xff\xfe{}",
        b"",
        b"1",
        b"1e400",
        b"\x00",
        *(_erasure(**{name: text}) for name in _ERASURE for text in ("1e400", "NaN")),
    ],
    ids=lambda body: repr(body[:24]) + str(len(body)),
)
def test_a_body_that_is_not_the_json_that_is_expected_is_a_wrong_request(
    body: bytes, probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    answer = probe.ask("/erasures/start", "POST", body=body)
    assert answer.status == 400, answer
    assert "not " in answer.text
    assert _erroneous(caplog) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(name=st.sampled_from(sorted(_ERASURE)), text=st.sampled_from([*_NUMBERS, *_OTHERS]))
def test_a_field_of_another_kind_is_a_wrong_request(
    probe: Probe, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    answer = probe.ask("/erasures/start", "POST", body=_erasure(**{name: text}))
    assert answer.status in {200, 400, 409}, answer
    assert _erroneous(caplog) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400)
@given(
    path=st.sampled_from([*_GETS, *_QUESTIONS, *_POSTS]),
    names=st.lists(st.sampled_from(sorted(_PARAMETERS)), max_size=4),
    wrong=st.dictionaries(st.sampled_from(sorted(_PARAMETERS)), _VALUES, max_size=2),
)
def test_parameters_of_any_bytes_are_answered_or_refused(
    probe: Probe,
    caplog: pytest.LogCaptureFixture,
    path: str,
    names: list[str],
    wrong: dict[str, bytes],
) -> None:
    given_ = {name: _PARAMETERS[name].encode() for name in names} | wrong
    query = "&".join(f"{name}={quote_from_bytes(value)}" for name, value in given_.items())
    answer = probe.ask(f"{path}?{query}", "POST" if path in _POSTS else "GET")
    assert answer.status in {200, 400, 403, 404}, (path, query, answer)
    assert _erroneous(caplog) == []

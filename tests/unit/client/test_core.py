from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cordwood.client.core import (
    Address,
    BrokerEndpoint,
    ClientCore,
    ClientSettings,
    Close,
    Effect,
    Exchange,
    Once,
    Open,
    Pause,
    Resolve,
    Steps,
    api_name,
    resolve_addresses,
)
from cordwood.client.errors import (
    BadAddressError,
    DisconnectedError,
    NobodyListensError,
    NotSupportedError,
    RefusedError,
    TimedOutError,
)
from cordwood.testing.manual_clock import ManualClock

METADATA, VOTE, API_VERSIONS = 3, 52, 18
ADDRESSES = [Address("localhost", "127.0.0.1", 9092), Address("10.0.0.1", "10.0.0.1", 9093)]


class Driver:
    """Carries out effects from tables: which ports listen, and what connections answer."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.effects: list[Effect] = []
        self.listening = {9092}
        self.refusing: set[int] = set()
        self.refusing_until_s = float("inf")
        self.versions = {METADATA: (0, 9), API_VERSIONS: (0, 4)}
        self.handshake_error = 0
        self.failures: list[Exception] = []

    def run(self, steps: Steps[Any]) -> Any:
        try:
            effect = next(steps)
            while True:
                self.effects.append(effect)
                try:
                    result = self._result(effect)
                except (DisconnectedError, TimedOutError) as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as end:
            return end.value

    def _result(self, effect: Effect) -> Any:
        match effect:
            case Open():
                if (
                    effect.port in self.refusing
                    and self.clock.monotonic_s() < self.refusing_until_s
                ):
                    return None
                return effect.port in self.listening
            case Once():
                return self.run(effect.steps)
            case Pause():
                self.clock.advance(int(effect.seconds * 1000))
            case Exchange() if effect.request.api_key == API_VERSIONS:
                keys = [
                    SimpleNamespace(api_key=key, min_version=low, max_version=high)
                    for key, (low, high) in self.versions.items()
                ]
                return SimpleNamespace(error_code=self.handshake_error, api_keys=keys)
            case Exchange():
                if self.failures:
                    raise self.failures.pop(0)
                return ("answer", effect.connection, effect.request.version)
        return None

    def of(self, kind: type) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def driver(clock: ManualClock) -> Driver:
    return Driver(clock)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def core(clock: ManualClock, warnings: list[str]) -> ClientCore:
    settings = ClientSettings(bootstrap_servers="", api_timeout_ms=5_000)
    return ClientCore(settings, ADDRESSES, warn=warnings.append, clock=clock)


def resolved(text: str, known: dict[str, str], warnings: list[str]) -> list[Address]:
    steps = resolve_addresses(text, warn=warnings.append)
    try:
        effect = next(steps)
        while True:
            assert isinstance(effect, Resolve)
            effect = steps.send(known.get(effect.host))
    except StopIteration as end:
        found: list[Address] = end.value
        return found


def test_addresses_are_hosts_with_ports(warnings: list[str]) -> None:
    known = {"127.0.0.1": "127.0.0.1", "a": "127.0.0.2"}
    assert resolved("127.0.0.1:9092, PLAINTEXT://a:1,", known, warnings) == [
        Address("127.0.0.1", "127.0.0.1", 9092),
        Address("a", "127.0.0.2", 1),
    ]
    assert not warnings


def test_an_address_without_a_port_is_refused_in_kafkas_words(warnings: list[str]) -> None:
    with pytest.raises(BadAddressError, match=r"^Invalid url in bootstrap\.servers: localhost$"):
        resolved("localhost", {}, warnings)


def test_an_unresolved_address_is_a_warning_and_one_must_be_resolved(warnings: list[str]) -> None:
    known = {"127.0.0.1": "127.0.0.1"}
    found = resolved("no.such.invalid:1,127.0.0.1:2", known, warnings)
    assert found == [Address("127.0.0.1", "127.0.0.1", 2)]
    assert warnings == [
        "Couldn't resolve server no.such.invalid:1 from bootstrap.servers as DNS resolution "
        "failed for no.such.invalid"
    ]
    with pytest.raises(BadAddressError, match="No resolvable bootstrap urls"):
        resolved("no.such.invalid:1", known, warnings)


def test_a_call_uses_the_highest_version_in_common(core: ClientCore, driver: Driver) -> None:
    assert driver.run(core.call("metadata", {})) == ("answer", 1, 9)
    assert driver.run(core.call("metadata", {}, version_max=7)) == ("answer", 1, 7)
    driver.versions[METADATA] = (0, 99)
    assert driver.run(core.versions(-1))[METADATA] == (0, 9)
    with pytest.raises(NotSupportedError, match="The node does not support VOTE"):
        driver.run(core.call("vote", {}))


def test_a_connection_is_opened_once(core: ClientCore, driver: Driver) -> None:
    for _ in range(3):
        driver.run(core.call("metadata", {}))
    assert [(each.connection, each.ip, each.port) for each in driver.of(Open)] == [
        (1, "127.0.0.1", 9092)
    ]


def test_the_second_address_is_tried_when_the_first_does_not_listen(
    core: ClientCore, driver: Driver, warnings: list[str]
) -> None:
    driver.listening = {9093}
    assert driver.run(core.connected(None, core.deadline(), "listNodes")) == -2
    assert warnings == [
        "[AdminClient clientId=adminclient-1] Connection to node -1 (localhost/127.0.0.1:9092) "
        "could not be established. Node may not be available."
    ]


def test_attempts_to_connect_back_off_until_the_deadline(core: ClientCore, driver: Driver) -> None:
    driver.listening = set()
    with pytest.raises(TimedOutError, match=r"Timed out waiting for a node assignment\. Call: x"):
        driver.run(core.call("metadata", {}, name="x"))
    pauses = [each.seconds for each in driver.of(Pause)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 0.45])


@pytest.fixture
def impatient(clock: ManualClock) -> ClientCore:
    settings = ClientSettings(bootstrap_servers="", api_timeout_ms=60_000, refused_ms=1_500)
    return ClientCore(settings, ADDRESSES, warn=lambda _: None, clock=clock)


def test_addresses_that_all_refuse_the_first_connection_are_said_to_at_once(
    impatient: ClientCore, driver: Driver, clock: ManualClock
) -> None:
    driver.listening, driver.refusing = set(), {9092, 9093}
    began_s = clock.monotonic_s()
    with pytest.raises(NobodyListensError, match=r"no broker listens at .*:9092, .*:9093"):
        driver.run(impatient.call("metadata", {}))
    assert 1.5 <= clock.monotonic_s() - began_s <= 2.0


def test_a_broker_that_starts_within_that_time_is_reached(
    impatient: ClientCore, driver: Driver, clock: ManualClock
) -> None:
    driver.refusing, driver.refusing_until_s = {9092, 9093}, clock.monotonic_s() + 1.0
    assert driver.run(impatient.connected(None, impatient.deadline(), "listNodes")) == -1
    assert len(driver.of(Open)) > 2


@pytest.mark.parametrize("reached", [False, True])
def test_a_cluster_that_was_reached_or_may_be_is_waited_for_as_long_as_kafka_does(
    impatient: ClientCore, driver: Driver, clock: ManualClock, *, reached: bool
) -> None:
    if reached:
        driver.run(impatient.call("metadata", {}))
        driver.failures = [DisconnectedError("gone")]
        driver.refusing = {9092, 9093}
    else:
        driver.listening, driver.refusing = set(), {9092}  # of 9093 nothing comes back
    with pytest.raises(TimedOutError, match="Timed out waiting for a node assignment"):
        driver.run(impatient.call("metadata", {}))
    assert clock.monotonic_s() >= 60.0


def test_a_lost_connection_is_opened_again(core: ClientCore, driver: Driver) -> None:
    driver.failures = [DisconnectedError("gone")]
    assert driver.run(core.call("metadata", {})) == ("answer", 2, 9)
    assert driver.of(Close) == [Close(1)]
    assert driver.of(Pause) == [Pause(0.1)]


def test_a_call_that_fails_until_its_deadline_raises_the_last_error(
    core: ClientCore, driver: Driver
) -> None:
    driver.failures = [TimedOutError(str(number)) for number in range(1_000)]
    with pytest.raises(TimedOutError, match=r"^7$"):
        driver.run(core.call("metadata", {}))


def test_no_answer_is_waited_for_after_the_deadline(
    core: ClientCore, driver: Driver, clock: ManualClock
) -> None:
    end = core.deadline()
    clock.advance(4_000)
    driver.run(core.call("metadata", {}, deadline=end))
    assert [each.timeout_s for each in driver.effects if isinstance(each, Open | Exchange)] == [
        1.0,
        1.0,
        1.0,
    ]
    driver.effects.clear()
    driver.run(core.call("metadata", {}, deadline=end, timeout_ms=7_000))
    assert [each.timeout_s for each in driver.of(Exchange)] == [7.0]


def test_a_connection_opened_again_by_another_call_is_kept(
    core: ClientCore, driver: Driver
) -> None:
    driver.run(core.call("metadata", {}))
    first, second = core.call("metadata", {}), core.call("metadata", {})
    assert isinstance(next(first), Exchange)
    assert isinstance(next(second), Exchange)
    # Both lose connection 1; the first call has connected again when the second one hears of it.
    assert first.throw(DisconnectedError("gone")) == Close(1)
    assert isinstance(first.send(None), Pause)
    once = first.send(None)
    assert isinstance(once, Once)
    assert driver.run(once.steps)
    assert second.throw(DisconnectedError("gone")) == Close(1)
    assert isinstance(second.send(None), Pause)
    exchange = second.send(None)
    assert isinstance(exchange, Exchange)
    assert exchange.connection == 2


def test_a_handshake_without_an_answer_closes_the_connection(
    core: ClientCore, driver: Driver
) -> None:
    steps = core.connected(None, core.deadline(), "listNodes")
    once = next(steps)
    assert isinstance(once, Once)
    assert next(once.steps) == Open(1, "127.0.0.1", 9092, 5.0)
    assert isinstance(once.steps.send(True), Exchange)
    assert once.steps.throw(TimedOutError("silence")) == Close(1)
    with pytest.raises(StopIteration) as end:
        once.steps.send(None)
    assert end.value.value is False


def test_a_refused_handshake_closes_the_connection(core: ClientCore, driver: Driver) -> None:
    driver.handshake_error = 35
    with pytest.raises(RefusedError, match="The version of API is not supported"):
        driver.run(core.call("metadata", {}))
    assert driver.of(Close) == [Close(1)]


def test_brokers_are_those_of_the_last_answer(core: ClientCore, driver: Driver) -> None:
    with pytest.raises(RefusedError, match="Node 77 is not known"):
        driver.run(core.call("metadata", {}, node_id=77))
    core.learn([BrokerEndpoint(77, "127.0.0.1", 9092)])
    assert driver.run(core.call("metadata", {}, node_id=77)) == ("answer", 1, 9)


def test_apis_are_named_as_kafka_writes_them() -> None:
    assert (api_name(32), api_name(9999)) == ("DescribeConfigs", None)

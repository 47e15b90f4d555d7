"""The client at a broker that is not ready yet, that moves, or whose answers are lost.

`EarlyBroker` is a proxy before a running broker, which advertises the proxy's address. A script
decides what happens to the next requests of an API; others are passed on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

import pytest

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.consumer import Consumer
from cordwood.client.coordinator import fetch_committed
from cordwood.client.errors import ClientError, RefusedError
from cordwood.client.groups import Groups
from cordwood.client.offsets import EARLIEST, LATEST, Offsets
from cordwood.client.partitioner import partition_of
from cordwood.client.producer import Producer, ProducerRecord, ProducerSettings
from cordwood.client.retry import RULES, Action
from cordwood.client.settings import ClientSettings
from cordwood.client.transactions import (
    describe_producers,
    describe_transaction,
    terminate_transaction,
)
from cordwood.format.messages.message import Request
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.apis import APIS
from cordwood.protocol.data import (
    DeleteRecordsRequest,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
)
from cordwood.protocol.headers import parse_start, response_header
from cordwood.protocol.messages import encode, response_codec
from cordwood.protocol.requests import RequestReader
from cordwood.serving.error_answers import error_answer
from cordwood.testing.broker import RunningBroker
from cordwood.testing.manual_clock import ManualClock
from support.group_member import member_of
from support.no_engine import NoEngine

LOST = -100
"""An entry of a script: the request is carried out, and the connection ends without an answer."""


class CarriedOut(NamedTuple):
    """An entry of a script: the request is carried out, and answered with an error nonetheless."""

    code: int


Entry = int | CarriedOut


class EarlyBroker:
    """A broker that answers as a script says; a context manager."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{port}"
        advertised = {"advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}"}
        self.broker = RunningBroker({**(properties or {}), **advertised}, engine=NoEngine)
        self._script: dict[str, list[Entry]] = {}
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        self.broker.start()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.broker.stop()

    def say(self, **script: Sequence[Entry]) -> None:
        """Sets the next answers of each API: error codes, `CarriedOut`, or `LOST`."""
        self._script = {api: list(entries) for api, entries in script.items()}

    @property
    def unsaid(self) -> dict[str, list[Entry]]:
        """The entries for which no request has come."""
        return {api: entries for api, entries in self._script.items() if entries}

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, port = self.broker.bootstrap_servers.split(":")
                server = socket.create_connection((host, int(port)))
                self._sockets += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError, EOFError):
            while True:
                frame = _frame(client)
                header = parse_start(memoryview(frame))
                entries = self._script.get(APIS[header.api_key].snake_name)
                entry = entries.pop(0) if entries else 0
                if not isinstance(entry, CarriedOut) and entry not in {0, LOST}:
                    client.sendall(_sized(_refusal(frame, entry)))
                    continue
                server.sendall(_sized(frame))
                if _wants_answer(frame):
                    answer = _frame(server)
                    if entry == LOST:
                        return
                    if isinstance(entry, CarriedOut):
                        answer = _refusal(frame, entry.code)
                    client.sendall(_sized(answer))


def _refusal(frame: bytes, code: int) -> bytes:
    view = memoryview(frame)
    header = parse_start(view)
    request = RequestReader(header.api_key, header.api_version).read(view, header.body_at)
    fields = error_answer(header.api_key, header.api_version, request, code, None)
    assert fields is not None, "the answer can say it"
    codec = response_codec(header.api_key, header.api_version)
    return response_header(header.correlation_id, flexible=codec.is_flexible) + encode(
        codec, fields
    )


def _wants_answer(frame: bytes) -> bool:
    view = memoryview(frame)
    header = parse_start(view)
    if header.api_key != 0:
        return True
    request = RequestReader(header.api_key, header.api_version).read(view, header.body_at)
    return bool(request.acks)


def _sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _frame(source: socket.socket) -> bytes:
    return _exactly(source, int.from_bytes(_exactly(source, 4), "big"))


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


LOADING, UNAVAILABLE, ELSEWHERE = 14, 15, 16
NOT_LEADER, DENIED, NOT_ENOUGH_REPLICAS, UNKNOWN = 6, 29, 19, -1
GIVEN_UP = (Action.AGAIN, Action.METADATA, Action.NEW_EPOCH, Action.DIVIDE)
COORDINATION = (LOADING, UNAVAILABLE, ELSEWHERE)
QUICK = ProducerSettings(retry_backoff_ms=1)


@pytest.fixture(scope="module")
def early() -> Iterator[EarlyBroker]:
    with EarlyBroker({"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def cluster(early: EarlyBroker) -> Iterator[ClusterClient]:
    settings = ClientSettings(
        bootstrap_servers=early.bootstrap_servers, api_timeout_ms=20_000, retry_backoff_ms=1
    )
    with ClusterClient(settings, warn=pytest.fail) as found:
        yield found
    assert not early.unsaid


def refuse(record: ProducerRecord, error: ClientError) -> None:
    pytest.fail(f"{record}: {error.described}")


def values(cluster: ClusterClient, topic: str) -> list[bytes | None]:
    consumer = Consumer(cluster=cluster)
    tp = TopicPartition(topic, 0)
    end = Offsets(cluster).list_offsets({tp: LATEST})[tp]
    assert isinstance(end, int)
    consumer.assign({tp: EARLIEST})
    found: list[bytes | None] = []
    while consumer.positions[tp] < end:
        found += [each.record.value for each in consumer.poll(5_000)]
    return found


def send(cluster: ClusterClient, topic: str, *sent: bytes) -> None:
    producer = Producer(cluster, QUICK, refuse)
    for value in sent:
        producer.send(ProducerRecord(topic, None, value))
        producer.flush()


def retried(api: str, *actions: Action) -> list[int]:
    return [int(code) for code, action in RULES[api].actions.items() if action in actions]


def test_a_record_waits_for_a_producer_id(early: EarlyBroker, cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("identity")
    early.say(init_producer_id=[*COORDINATION, LOST])
    send(cluster, "identity", b"1")
    assert values(cluster, "identity") == [b"1"]


@pytest.mark.parametrize("code", retried("produce", Action.AGAIN, Action.METADATA))
def test_a_batch_is_sent_again_after_each_retriable_error(
    early: EarlyBroker, cluster: ClusterClient, code: int
) -> None:
    topic = f"batch-{code}"
    Admin(cluster).create_topic(topic)
    early.say(produce=[code, code])
    send(cluster, topic, b"1", b"2")
    assert values(cluster, topic) == [b"1", b"2"]


def test_a_batch_whose_answer_was_lost_is_there_once(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    Admin(cluster).create_topic("once")
    early.say(produce=[LOST, LOST])
    send(cluster, "once", b"1", b"2", b"3")
    assert values(cluster, "once") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("code", retried("produce", Action.NEW_EPOCH))
def test_a_producer_that_the_broker_has_forgotten_begins_an_epoch(
    early: EarlyBroker, cluster: ClusterClient, code: int
) -> None:
    topic = f"epoch-{code}"
    Admin(cluster).create_topic(topic)
    producer = Producer(cluster, QUICK, refuse)
    for value in (b"1", b"2"):
        producer.send(ProducerRecord(topic, None, value))
        producer.flush()
        early.say(produce=[code])
    producer.send(ProducerRecord(topic, None, b"3"))
    producer.flush()
    assert values(cluster, topic) == [b"1", b"2", b"3"]


def test_a_batch_that_the_broker_has_already_is_delivered(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    Admin(cluster).create_topic("already")
    early.say(produce=[int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)])
    send(cluster, "already", b"1")


@pytest.mark.parametrize(
    "answers",
    [
        [LOST],
        [LOST, DENIED],
        [CarriedOut(NOT_LEADER), NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS],
        *([CarriedOut(code)] for code in (UNKNOWN, *retried("produce", *GIVEN_UP))),
    ],
    ids=str,
)
def test_a_record_after_one_whose_fate_is_unknown_is_no_duplicate(
    early: EarlyBroker, cluster: ClusterClient, answers: list[int | CarriedOut]
) -> None:
    settings = ProducerSettings(retries=len(answers) - 1, retry_backoff_ms=1)
    require_first_lost(early, cluster, settings, answers)


def test_a_record_after_one_whose_time_is_over_is_no_duplicate(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    answers = [CarriedOut(ErrorCode.REQUEST_TIMED_OUT)]
    require_first_lost(early, cluster, ProducerSettings(delivery_timeout_ms=0), answers)


def require_first_lost(
    early: EarlyBroker,
    cluster: ClusterClient,
    settings: ProducerSettings,
    answers: Sequence[int | CarriedOut],
) -> None:
    """The first of three records is reported as lost, and all are in the log."""
    topic = f"unresolved-{uuid4()}"
    Admin(cluster).create_topic(topic)
    lost: list[bytes | None] = []
    producer = Producer(cluster, settings, lambda record, _: lost.append(record.value))
    early.say(produce=answers)
    for value in (b"1", b"2", b"3"):
        producer.send(ProducerRecord(topic, None, value))
        producer.flush()
    assert lost == [b"1"]
    assert values(cluster, topic) == [b"1", b"2", b"3"]


def test_a_partition_that_is_gone_is_one_without_a_leader(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    admin, topic = Admin(cluster), "fewer"
    admin.create_topic(topic, partitions=2)
    lost: list[ClientError] = []
    settings = ProducerSettings(retry_backoff_ms=1, delivery_timeout_ms=500)
    producer = Producer(cluster, settings, lambda _, error: lost.append(error))
    key = next(key for key in (b"%d" % number for number in range(99)) if partition_of(key, 2))
    producer.send(ProducerRecord(topic, key, b"1"))
    producer.flush()
    admin.delete_topics([topic])
    admin.create_topic(topic, partitions=1)
    producer.send(ProducerRecord(topic, key, b"2"))
    producer.flush()
    (error,) = lost
    assert str(error).startswith("Expiring 1 record(s) for fewer-1:")
    for _ in range(3):
        producer.send(ProducerRecord(topic, key, b"3"))
    producer.flush()
    assert values(cluster, topic) == [b"3"] * 3


class Moved(ClusterClient):
    """Partition 1 is led elsewhere, until the client has asked by whom so many times."""

    asks_to_go = 0
    asks = 0

    def call(self, request: Request[Any], **options: Any) -> Any:
        answer = super().call(request, **options)
        if isinstance(request, MetadataRequest):
            self.asks += 1
        if not isinstance(request, FetchRequest) or self.asks >= self.asks_to_go:
            return answer
        (topic,) = answer.responses
        busy = [each for each in topic.partitions if each.partition_index == 0]
        moved = FetchResponse.PartitionData(partition_index=1, error_code=NOT_LEADER)
        of_topic = FetchResponse.FetchableTopicResponse(
            topic_id=topic.topic_id, partitions=[*busy, moved]
        )
        return FetchResponse(responses=[of_topic])


def test_a_partition_that_has_moved_is_found_while_another_is_busy(early: EarlyBroker) -> None:
    clock, topic = ManualClock(), "moved"
    quiet, busy = TopicPartition(topic, 1), TopicPartition(topic, 0)
    keys = {partition_of(b"%d" % number, 2): b"%d" % number for number in range(99)}
    settings = ClientSettings(bootstrap_servers=early.bootstrap_servers)
    with Moved(settings, warn=pytest.fail) as cluster:
        Admin(cluster).create_topic(topic, partitions=2)
        producer = Producer(cluster, QUICK, refuse)
        producer.send(ProducerRecord(topic, keys[1], b""))
        consumer = Consumer(cluster=cluster, clock=clock)
        consumer.assign({busy: 0, quiet: 0})
        cluster.asks, cluster.asks_to_go = 0, 3
        asked = []
        for _ in range(9):
            producer.send(ProducerRecord(topic, keys[0], b""))
            producer.flush()
            assert {each.partition for each in consumer.poll(10_000)} == {busy}
            asked.append(cluster.asks)
            clock.advance(50)
            if cluster.asks == 3:
                break
        # At once, and then once in `retry.backoff.ms`, which is 100.
        assert asked == [1, 1, 2, 2, 3]
        assert quiet in {each.partition for each in consumer.poll(10_000)}


def test_a_record_that_may_not_be_sent_is_lost_at_once(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    Admin(cluster).create_topic("denied")
    lost: list[str] = []
    producer = Producer(cluster, QUICK, lambda _, error: lost.append(error.java_class))
    early.say(produce=[DENIED])
    producer.send(ProducerRecord("denied", None, b"1"))
    producer.flush()
    assert lost == ["org.apache.kafka.common.errors.TopicAuthorizationException"]


def test_records_are_lost_when_their_time_is_over(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    Admin(cluster).create_topic("late")
    lost: list[str] = []
    settings = ProducerSettings(delivery_timeout_ms=0)
    producer = Producer(cluster, settings, lambda _, error: lost.append(str(error)))
    early.say(init_producer_id=[LOADING])
    producer.send(ProducerRecord("late", None, b"1"))
    producer.flush()
    (text,) = lost
    assert text.startswith("Expiring 1 record(s) for late-0:")
    assert text.endswith(" ms has passed since batch creation")


@pytest.mark.parametrize("code", [*retried("fetch", Action.AGAIN, Action.METADATA), LOST])
def test_records_are_fetched_again_after_each_error_of_a_leader(
    early: EarlyBroker, cluster: ClusterClient, code: int
) -> None:
    topic = f"fetched-{code}"
    Admin(cluster).create_topic(topic)
    send(cluster, topic, b"1")
    early.say(fetch=[code])
    assert values(cluster, topic) == [b"1"]


@pytest.mark.parametrize("api", ["list_offsets", "delete_records", "describe_producers"])
def test_leaders_are_asked_again(early: EarlyBroker, cluster: ClusterClient, api: str) -> None:
    topic = f"led-{api}".replace("_", "-")
    Admin(cluster).create_topic(topic)
    send(cluster, topic, b"1")
    tp = TopicPartition(topic, 0)
    codes = retried(api, Action.AGAIN, Action.METADATA)
    early.say(**{api: [*codes[:4], LOST]})
    if api == "list_offsets":
        assert Offsets(cluster).list_offsets({tp: LATEST}) == {tp: 1}
    elif api == "delete_records":
        assert Offsets(cluster).delete_records({tp: 1}) == {tp: 1}
    else:
        (found,) = describe_producers(cluster, [tp]).values()
        assert not isinstance(found, RefusedError)
        assert len(found) == 1


class Leaderless(ClusterClient):
    """Partition 1 has no leader any more: its leader says so first, if it is asked to delete."""

    is_leaderless = False
    time = ManualClock()

    def call(self, request: Request[Any], **options: Any) -> Any:
        answer = super().call(request, **options)
        if isinstance(request, DeleteRecordsRequest):
            self.is_leaderless = True
            changed = ("error_code", NOT_LEADER)
        elif isinstance(request, MetadataRequest) and self.is_leaderless:
            changed = ("leader_id", -1)
            self.time.advance(25_000)
        else:
            return answer
        for partition in answer.topics[0].partitions:
            if partition.partition_index == 1:
                setattr(partition, *changed)
        return answer


def test_a_partition_without_a_leader_does_not_hide_the_results_of_others(
    early: EarlyBroker,
) -> None:
    settings = ClientSettings(bootstrap_servers=early.bootstrap_servers, retry_backoff_ms=1)
    led, leaderless, missing = (TopicPartition("leaderless", number) for number in (0, 1, 2))
    with Leaderless(settings, warn=pytest.fail, clock=Leaderless.time) as cluster:
        Admin(cluster).create_topic("leaderless", partitions=2)
        offsets = Offsets(cluster)
        deleted = offsets.delete_records({missing: 0, leaderless: 0, led: 0})
        assert outcomes(deleted) == [(missing, "3"), (leaderless, "5"), (led, 0)]
        found = offsets.list_offsets({missing: LATEST, leaderless: LATEST, led: LATEST})
        assert outcomes(found) == [(missing, "3"), (leaderless, "5"), (led, 0)]
        with pytest.raises(RefusedError, match="There is no leader"):
            offsets.leaders([led, leaderless])


def outcomes(
    found: Mapping[TopicPartition, int | RefusedError],
) -> list[tuple[TopicPartition, int | str]]:
    return [
        (tp, str(one.code) if isinstance(one, RefusedError) else one) for tp, one in found.items()
    ]


def test_a_group_waits_for_its_coordinator(early: EarlyBroker, cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("grouped")
    send(cluster, "grouped", b"1")
    tp = TopicPartition("grouped", 0)
    early.say(
        find_coordinator=[UNAVAILABLE, LOADING, LOST],
        join_group=[*COORDINATION, LOST],
        sync_group=[LOADING, ELSEWHERE, LOST],
        offset_fetch=[*COORDINATION, LOST],
        offset_commit=[*COORDINATION, int(ErrorCode.REQUEST_TIMED_OUT), LOST],
    )
    member = member_of(cluster, "early", "grouped")
    while not member.poll(1_000):
        pass
    member.close()
    early.say()
    assert fetch_committed(cluster, "early", None)[tp].offset == 1


LONGER_THAN_A_POLL = 12
"""Attempts that take two seconds with their back-off, which begins at 1 ms."""


@pytest.mark.parametrize("code", [LOADING, ELSEWHERE])
def test_a_member_joins_for_no_longer_than_the_poll(
    early: EarlyBroker, cluster: ClusterClient, code: int
) -> None:
    topic = f"slowly-joined-{code}"
    Admin(cluster).create_topic(topic)
    send(cluster, topic, b"1")
    member = member_of(cluster, topic, topic)
    early.say(join_group=[code] * LONGER_THAN_A_POLL)
    assert member.poll(50) == []
    early.say()
    while not member.poll(1_000):
        pass
    member.close()


def test_a_member_that_cannot_read_its_partitions_joins_again_after_a_back_off(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    attempts: list[int] = []

    def topics() -> list[str]:
        attempts.append(1)
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    member = member_of(cluster, "without-topic", "none")
    member.topics = topics
    assert member.poll(50) == []
    assert 1 < len(attempts) < LONGER_THAN_A_POLL


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_a_commit_shows_to_be_fenced_reads_nothing_before_it_has_joined(
    early: EarlyBroker, cluster: ClusterClient, code: ErrorCode
) -> None:
    topic = f"fenced-{code.name}"
    Admin(cluster).create_topic(topic)
    send(cluster, topic, b"1")
    warned: list[str] = []
    member = member_of(cluster, topic, topic)
    member.warn = warned.append
    while not member.poll(1_000):
        pass
    send(cluster, topic, b"2")
    member._committed_s -= 60
    early.say(offset_commit=[int(code)], join_group=[LOADING])
    assert member.poll(0) == []
    assert len(warned) == 1
    if code == ErrorCode.ILLEGAL_GENERATION:
        found: list[bytes | None] = []
        while len(found) < 2:
            found += [each.record.value for each in member.poll(1_000)]
        assert found == [b"1", b"2"], "nothing was committed"
    else:
        assert member._member_id == ""
        early.say()
    member.close()


@pytest.mark.parametrize("code", [UNAVAILABLE, DENIED])
def test_a_member_that_is_closed_looks_for_its_coordinator_once(
    early: EarlyBroker, cluster: ClusterClient, code: int
) -> None:
    topic = f"closed-{code}"
    Admin(cluster).create_topic(topic)
    send(cluster, topic, b"1")
    member = member_of(cluster, topic, topic)
    member.auto_commit = False
    while not member.poll(1_000):
        pass
    cluster._coordinators.clear()
    early.say(find_coordinator=[code, code])
    member.close()
    assert early.unsaid == {"find_coordinator": [code]}
    early.say()


def test_offsets_are_committed_before_a_member_rejoins(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    Admin(cluster).create_topic("rejoined")
    send(cluster, "rejoined", b"1")
    member = member_of(cluster, "rejoining", "rejoined")
    while not member.poll(1_000):
        pass
    member._heard_s -= 60
    early.say(heartbeat=[*COORDINATION, int(ErrorCode.REBALANCE_IN_PROGRESS)])
    assert member.poll(0) == []
    assert member.consumer.positions == {TopicPartition("rejoined", 0): 1}
    member.close()


def test_groups_are_looked_after_where_their_coordinator_is(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    Admin(cluster).create_topic("looked-after")
    groups, tp = Groups(cluster), TopicPartition("looked-after", 0)
    several = [*COORDINATION, LOST]
    early.say(
        offset_commit=several,
        consumer_group_describe=several,
        describe_groups=several,
        list_groups=[LOADING, UNAVAILABLE, LOST],
    )
    groups.alter_offsets("kept", {tp: 1})
    assert groups.describe("kept").state == "Empty"
    assert "kept" in {group.group_id for group in Admin(cluster).groups()}
    early.say(offset_delete=list(COORDINATION), delete_groups=list(COORDINATION))
    groups.delete_offsets("kept", [tp])
    groups.alter_offsets("kept", {tp: 1})
    groups.delete("kept")


def test_transactions_are_looked_after_where_their_coordinator_is(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    several = [*COORDINATION, int(ErrorCode.CONCURRENT_TRANSACTIONS), LOST]
    early.say(init_producer_id=several, describe_transactions=[*COORDINATION, LOST])
    terminate_transaction(cluster, "tx")
    assert describe_transaction(cluster, "tx").state == "Empty"


def test_topics_are_changed_once_there_is_a_controller(
    early: EarlyBroker, cluster: ClusterClient
) -> None:
    admin = Admin(cluster)
    early_codes = [int(ErrorCode.NOT_CONTROLLER), int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
    early.say(create_topics=early_codes, create_partitions=early_codes, delete_topics=early_codes)
    admin.create_topic("changed")
    admin.create_partitions({"changed": 2})
    admin.delete_topics(["changed"])
    early.say(create_topics=[DENIED])
    with pytest.raises(RefusedError, match="Topic authorization failed"):
        admin.create_topic("changed")

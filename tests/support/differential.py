"""One script of requests against two brokers, answer by answer.

The script is drawn while the first broker answers, and kept with the answers; then another broker
is asked the same. What must differ is made alike on both sides before comparing: topic ids, session
ids, cluster ids, ports and paths, times of the broker's own clock, throttling, free disk space.

A request refers to what a broker chose by itself through `Chosen`, which each side looks up in what
its own answers.
"""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from cordwood.format.batch_header import HEADER_BYTES, LOG_APPEND_TIME, TIMESTAMP_TYPE_BIT
from cordwood.format.record_batch import RecordBatch, iter_batches
from support.applied import wait_until_applied
from support.kafka import poll_until
from support.wire import (
    API_KEYS,
    NO_UUID,
    ConnectionClosedError,
    Plain,
    Wire,
    request_body,
)

CLOSED: Final = {"connection": "closed"}
PENDING_ERRORS: Final = ("coordinator_not_available", "coordinator_load_in_progress")
SETTLE_SECONDS: Final = 0.03
SETTLE_SECONDS_MAX: Final = 120
FILES_SECONDS_MAX: Final = 60  # what is in files soon, not at once, as the epoch of a new leader
NEAR_NOW_MS: Final = 15 * 60 * 1000

# Answers that speak of the broker's process, disk or moment. What is blanked is not compared.
_BLANK: Final = frozenset(
    {"throttle_time_ms", "cluster_id", "host", "port", "total_bytes"}
    | {"usable_bytes", "broker_epoch", "session_id", "log_end_offset"}
    | {"finalized_features_epoch", "client_instance_id", "push_interval_ms"}
    | {"replica_directory_id", "last_fetch_timestamp", "last_caught_up_timestamp"}
    | {"subscription_id"}
)
_MUTATIONS: Final = frozenset(
    {"create_topics", "delete_topics", "create_partitions", "alter_configs", "alter_client_quotas"}
    | {"incremental_alter_configs", "elect_leaders", "update_features", "alter_replica_log_dirs"}
    | {"alter_partition_reassignments", "end_txn", "init_producer_id", "add_partitions_to_txn"}
)
# Settings that say where a broker listens.
_OF_THE_PLACE: Final = ("listeners", "advertised.listeners", "controller.quorum.voters")


class Side(Protocol):
    """Values that a broker chose, as a request may refer to them."""

    topic_ids: dict[str, uuid.UUID]
    sessions: dict[int, int]
    producers: dict[str, tuple[int, int]]

    @property
    def root(self) -> str:
        """The directory with the broker's data."""


class Chosen(Protocol):
    """A value that each side finds for itself."""

    def resolve(self, side: Side) -> object:
        """The value on that side."""


@dataclass(frozen=True, slots=True)
class TopicId:
    """The id of the topic of that name; of one that was never seen, an id that nothing has."""

    name: str

    def resolve(self, side: Side) -> uuid.UUID:
        """The id that the broker gave."""
        return side.topic_ids.get(self.name, uuid.UUID(int=0xABCDEF << 64 | len(self.name)))


@dataclass(frozen=True, slots=True)
class Session:
    """The id of a fetch session."""

    slot: int

    def resolve(self, side: Side) -> int:
        """The id that the broker gave, or one that it never gives."""
        return side.sessions.get(self.slot, 7)


@dataclass(frozen=True, slots=True)
class ProducerId:
    """The id of an idempotent producer."""

    slot: str

    def resolve(self, side: Side) -> int:
        """The id that the broker gave, or one that is far away."""
        return side.producers.get(self.slot, (777_000, 0))[0]


@dataclass(frozen=True, slots=True)
class UnderRoot:
    """A path of the broker's data."""

    path: str

    def resolve(self, side: Side) -> str:
        """The path on that side."""
        return side.root + self.path


@dataclass(frozen=True, slots=True)
class Step:
    """A request: `values` may hold `Chosen`; `raw` replaces the bytes after the header.

    `remember` says what to note of the answer: a producer's or a session's slot.
    """

    api: str
    version: int
    values: Mapping[str, Any]
    raw: bytes | None = None
    remember: tuple[str, Any] | None = None

    def __str__(self) -> str:
        body = json.dumps(self.values, default=repr, ensure_ascii=False)
        return f"{self.api} v{self.version} {body if self.raw is None else self.raw!r}"


@dataclass(slots=True)
class Exchange:
    """A request, and the answer made alike."""

    step: Step
    answer: Any


@dataclass(slots=True)
class Broker:
    """One of the two brokers.

    `port` is where it listens; `data` its only log directory; `start_ms` the wall clock when the
    script began, to which times of the broker's own clock are relative; `left_out` the names of
    settings that the other broker does not have, which are left out of answers; `reworded` what is
    replaced in texts, since the brokers say it in other words.
    """

    port: int
    data: Path
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    sessions: dict[int, int] = field(default_factory=dict)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    names: dict[uuid.UUID, str] = field(default_factory=dict)
    cluster_id: str = ""
    left_out: frozenset[str] = frozenset()
    reworded: Sequence[tuple[re.Pattern[str], str]] = ()
    wire: Wire = field(init=False)

    def __post_init__(self) -> None:
        self.wire = Wire(self.port)

    def find_cluster_id(self) -> str:
        """The id of the broker's cluster, asked for once."""
        self.cluster_id = self.cluster_id or self.wire.ask("describe_cluster", 0)["cluster_id"]
        return self.cluster_id

    @property
    def root(self) -> str:
        """The directory with the broker's data, as the broker names it."""
        return str(self.data)

    def ask(self, step: Step) -> Any:
        """The answer, not yet made alike, or `CLOSED`."""
        values = resolved(step.values, self)
        body = request_body_of(step, values)
        key = API_KEYS[step.api]
        try:
            if step.api == "produce" and step.raw is None and values.get("acks") == 0:
                # There is no answer; the next one shows whether the connection lives.
                self.wire.tell_raw(key, step.version, body)
                self.wire.ask("api_versions", 0)
                return {}
            answer = self.wire.ask_raw(key, step.version, body)
        except ConnectionClosedError:
            self.wire.close()
            return dict(CLOSED)
        self._note(step, answer)
        return answer

    def settled(self, step: Step) -> Any:
        """The answer once the broker has become ready for it, its consequences in effect."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            answer = self.ask(step)
            if not _is_pending(step, answer) or time.monotonic() > deadline:
                break
            time.sleep(SETTLE_SECONDS)
        if step.api in _MUTATIONS:
            self.wait_for_leaders()
        return answer

    def wait_for_leaders(self) -> None:
        """Waits until the change is applied and the metadata's partitions are served."""
        wait_until_applied(self.port)
        poll_until(self._all_lead, timeout_s=SETTLE_SECONDS_MAX, what="partitions get leaders")

    def _all_lead(self) -> bool:
        topics = self.wire.ask("metadata", 12, {"topics": None})["topics"]
        for topic in topics:
            if topic["topic_id"] not in self.names:
                self.names[topic["topic_id"]] = topic["name"]
            self.topic_ids[topic["name"]] = topic["topic_id"]
        asked = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": p["partition_index"], "timestamp": -1}
                    for p in topic["partitions"]
                ],
            }
            for topic in topics
        ]
        answer = self.wire.ask("list_offsets", 7, {"replica_id": -1, "topics": asked})
        errors = (p["error_code"] for topic in answer["topics"] for p in topic["partitions"])
        return not any(error in _NOT_YET for error in errors)

    def _note(self, step: Step, answer: Plain) -> None:
        if step.api == "create_topics" and step.version >= 7:
            for topic in answer["topics"]:
                if topic["error_code"] == "none" and topic["topic_id"] != NO_UUID:
                    self.topic_ids[topic["name"]] = topic["topic_id"]
                    self.names[topic["topic_id"]] = topic["name"]
        if step.remember is None:
            return
        kind, slot = step.remember
        if kind == "producer" and answer["error_code"] == "none":
            self.producers[slot] = (answer["producer_id"], answer["producer_epoch"])
        elif kind == "session" and answer.get("session_id"):
            self.sessions[slot] = answer["session_id"]


_NOT_YET: Final = ("not_leader_or_follower", "unknown_topic_or_partition", "leader_not_available")


def _is_pending(step: Step, answer: Any) -> bool:
    if step.api in ("create_topics", "delete_topics", "produce", "fetch"):
        return False
    text = json.dumps(answer, default=str)
    return any(f'"{error}"' in text for error in (*PENDING_ERRORS, "concurrent_transactions"))


def request_body_of(step: Step, values: Mapping[str, Any]) -> bytes:
    """The bytes of a request after its header."""
    if step.raw is not None:
        return step.raw
    return request_body(API_KEYS[step.api], step.version, values)


def resolved(value: Any, side: Side) -> Any:
    """The value with everything `Chosen` found on that side."""
    if isinstance(value, Mapping):
        return {key: resolved(item, side) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolved(item, side) for item in value]
    if hasattr(value, "resolve"):
        return value.resolve(side)
    return value


class Likener:
    """Makes an answer of one broker such that the other's can be compared with it."""

    def __init__(self, broker: Broker, times: frozenset[int]) -> None:
        self._broker = broker
        self._times = times
        self._words = [
            (re.compile(re.escape(str(broker.data.resolve()))), "<data>"),
            (re.compile(re.escape(str(broker.data))), "<data>"),
            (re.compile(re.escape(str(broker.data.parent))), "<root>"),
            (re.compile(re.escape(broker.find_cluster_id())), "<cluster id>"),
            (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
            (re.compile(r"should be within \[-?\d+, (-?)\d+\]"), r"should be within <times>\1"),
            *broker.reworded,
        ]
        # A time close to now in hexadecimal: what comes before its last four hours may change
        # while a script is run.
        now_ms = broker.clock_ms()
        near = {(now_ms + way * NEAR_NOW_MS) >> 24 for way in (-1, 1)}
        begins = "|".join(f"{each:010x}" for each in sorted(near))
        self._time_bytes = re.compile(f"(?:{begins}).{{6}}")

    def alike(self, step: Step, answer: Any) -> Any:
        """The answer without what must differ."""
        return self._alike(step.api, "", answer)

    def _alike(self, api: str, name: str, value: Any) -> Any:
        if name in _BLANK or (api == "describe_quorum" and name == "high_watermark"):
            return value if value in (0, None, "") and name == "session_id" else "<any>"
        if name == "records" and value is not None:
            return [batch_alike(batch, self) for batch in batches_of(value)]
        if isinstance(value, Mapping):
            return {key: self._alike(api, key, item) for key, item in value.items()}
        if api == "fetch" and name == "responses":
            value = [
                {"topic": topic.get("topic", topic.get("topic_id")), "partitions": partition}
                for topic in value
                for partition in topic["partitions"]
            ]
        if isinstance(value, list):
            items = [
                self._alike(api, name, item)
                for item in value
                if not (_is_of_place(api, item) or self._is_left_out(item))
            ]
            return sorted(items, key=_sort_key)
        return self._value_alike(name, value)

    def _is_left_out(self, item: Any) -> bool:
        is_setting = isinstance(item, Mapping) and "config_source" in item
        return is_setting and item["name"] in self._broker.left_out

    def _value_alike(self, name: str, value: Any) -> Any:
        if isinstance(value, uuid.UUID):
            return self._topic(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self.time_alike(value)
        if isinstance(value, str):
            is_prose = name == "documentation" and value
            return "<in other words>" if is_prose else self._text(value)
        return value

    def time_alike(self, value: int) -> int | str:
        """A time of the broker's own clock as such; all else as it is."""
        if value in self._times or abs(value - self._broker.clock_ms()) > NEAR_NOW_MS:
            return value
        return "<now>"

    def bytes_alike(self, value: str) -> str:
        """Hexadecimal bytes that name topics by id, and times, in a coordinator's record."""
        value = self._time_bytes.sub("<now>", value)
        for topic_id, name in self._broker.names.items():
            value = value.replace(topic_id.hex, f"<id of {name}>")
        return value

    def _topic(self, value: uuid.UUID) -> str:
        if value == NO_UUID:
            return "<no id>"
        return f"<id of {self._broker.names.get(value, '?')}>"

    def _text(self, value: str) -> str:
        for found, instead in self._words:
            value = found.sub(instead, value)
        for topic_id, name in self._broker.names.items():
            encoded = kafka_uuid(topic_id)
            if encoded in value:
                value = value.replace(encoded, f"<id of {name}>")
        return value


def _is_of_place(api: str, item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    if api == "list_groups":
        # Whether Kafka shows a group of which no offset was taken is a matter of other writes.
        return item.get("group_id") == "verbose"
    return api == "describe_configs" and item.get("name") in _OF_THE_PLACE


def kafka_uuid(value: uuid.UUID) -> str:
    """A UUID as Kafka prints it: URL-safe base 64 without padding. Source: Uuid.toString."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def _sort_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def batches_of(records: bytes) -> Iterator[RecordBatch | bytes]:
    """The whole batches, then what is left of a cut one."""
    position = 0
    for position, batch in iter_batches(records):
        assert isinstance(batch, RecordBatch), "a message of an old format was fetched"
        yield batch
        position += batch.size_bytes  # noqa: PLW2901
    if position < len(records):
        yield records[position:]


def batch_alike(batch: RecordBatch | bytes, likener: Likener) -> Any:
    """The fields and the unpacked payload of a batch, its broker's own times as such."""
    if isinstance(batch, bytes):
        return _cut_alike(batch)
    header: dict[str, Any] = batch.header._asdict()
    payload = batch.payload() if batch.codec else batch.raw[HEADER_BYTES:]
    if batch.timestamp_type == LOG_APPEND_TIME:
        header["max_timestamp"] = likener.time_alike(batch.max_timestamp)
        header["crc"] = "<crc>"
    if batch.header.base_timestamp != likener.time_alike(batch.header.base_timestamp):
        header |= {"base_timestamp": "<now>", "max_timestamp": "<now>", "crc": "<crc>"}
    if batch.codec:
        # Another library packs the same records into other bytes.
        header |= {"crc": "<crc>", "batch_length": "<packed>"}
    return {**header, "payload": bytes(payload).hex()}


def _cut_alike(batch: bytes) -> dict[str, Any]:
    attributes = int.from_bytes(batch[21:23], "big")
    if attributes & 0x07:
        return {"cut": "<packed>"}
    if attributes & TIMESTAMP_TYPE_BIT:
        return {"cut": [batch[:17].hex(), batch[21:35].hex(), batch[43:].hex()]}
    return {"cut": batch.hex()}


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers that should be one."""

    number: int
    step: Step
    expected: Any
    found: Any

    def __str__(self) -> str:
        lines = [f"request {self.number}: {self.step}"]
        lines += (f"  {line}" for line in differing_lines(self.expected, self.found))
        return "\n".join(lines)


def differing_lines(expected: Any, found: Any, path: str = "") -> list[str]:
    """Differences between two values, a line for each place: path, expected, found."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        lines = []
        for key in sorted({*expected, *found}):
            lines += differing_lines(
                expected.get(key, "<missing>"), found.get(key, "<missing>"), f"{path}.{key}"
            )
        return lines
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        lines = []
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            lines += differing_lines(one, other, f"{path}[{index}]")
        return lines
    if expected == found:
        return []
    return [f"{path or '.'}: Kafka {expected!r}", f"{' ' * len(path)}  here  {found!r}"]


@dataclass(slots=True)
class Transcript:
    """Requests to the first broker, its answers, and the end of its logs."""

    seed: int
    exchanges: list[Exchange]
    logs: dict[str, Any]
    times: frozenset[int]


def record(broker: Broker, seed: int, steps: Script) -> Transcript:
    """Draws a script while `broker` answers it."""
    exchanges = []
    for step in steps:
        answer = broker.settled(step)
        steps.learn(step, answer)
        exchanges.append(Exchange(step, answer))
    likener = Likener(broker, steps.times)
    for exchange in exchanges:
        exchange.answer = likener.alike(exchange.step, exchange.answer)
    return Transcript(seed, exchanges, logs_of(broker, likener), steps.times)


class Script(Protocol):
    """Requests, each of which may depend on the first broker's answers to those before."""

    @property
    def times(self) -> frozenset[int]:
        """The timestamps of the records drawn so far, in ms."""

    def __iter__(self) -> Iterator[Step]:
        """The requests."""

    def learn(self, step: Step, answer: Any) -> None:
        """Takes notice of an answer."""


def replay(
    broker: Broker,
    transcript: Transcript,
    *,
    differences_max: int = 20,
) -> list[Difference]:
    """Asks another broker the same; the answers that differ, and at the end the logs that do."""
    likener = Likener(broker, transcript.times)
    differences: list[Difference] = []
    for number, exchange in enumerate(transcript.exchanges):
        found = _answer_like(broker, likener, exchange)
        if not agree(exchange.answer, found):
            differences.append(Difference(number, exchange.step, exchange.answer, found))
            if len(differences) >= differences_max:
                return differences
    deadline = time.monotonic() + FILES_SECONDS_MAX
    while (logs := logs_of(broker, likener)) != transcript.logs and time.monotonic() < deadline:
        time.sleep(SETTLE_SECONDS)
    if logs != transcript.logs:
        end = Step("fetch", 0, {"all": "logs at the end"})
        differences.append(Difference(len(transcript.exchanges), end, transcript.logs, logs))
    return differences


def agree(expected: Any, found: Any) -> bool:
    """True if they are equal, but that any error may stand for a fault of Kafka's own."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        if expected.get("error_code") == "unknown_server_error" != found.get("error_code"):
            return found.get("error_code") != "none"
        return expected.keys() == found.keys() and all(
            agree(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(agree, expected, found))
    return bool(expected == found)


def _answer_like(broker: Broker, likener: Likener, exchange: Exchange) -> Any:
    return likener.alike(exchange.step, broker.settled(exchange.step))


def report(seed: int, differences: Sequence[Difference]) -> str:
    """The differences in words, with the seed that draws the same script again."""
    return "\n".join([f"seed {seed}: {len(differences)} answers differ", *map(str, differences)])


def logs_of(broker: Broker, likener: Likener) -> dict[str, Any]:
    """Every partition's offsets, batches and segments, by `<topic>-<partition>`."""
    logs = {}
    for topic in broker.wire.ask("metadata", 12, {"topics": None})["topics"]:
        for partition in topic["partitions"]:
            name, index = topic["name"], partition["partition_index"]
            logs[f"{name}-{index}"] = _log_of(broker, likener, name, index)
    return logs


def _log_of(broker: Broker, likener: Likener, topic: str, index: int) -> dict[str, Any]:
    def offset_at(timestamp: int) -> Any:
        partitions = [{"partition_index": index, "timestamp": timestamp}]
        asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
        return broker.wire.ask("list_offsets", 7, asked)["topics"][0]["partitions"][0]

    start, end = offset_at(-2), offset_at(-1)
    batches: list[Any] = []
    position = start["offset"]
    while position < end["offset"]:
        fetched = _fetch(broker, topic, index, position)
        whole = [b for b in batches_of(fetched or b"") if isinstance(b, RecordBatch)]
        if not whole:
            break
        position = whole[-1].next_offset
        for batch in whole:
            likened = batch_alike(batch, likener)
            if topic.startswith("__"):
                # Whatever refers to many partitions is written in the order of a hash map.
                pairs = ((each.key or b"", each.value or b"") for each in batch.iter_records())
                likened["payload"] = sorted(
                    (key.hex(), likener.bytes_alike(value.hex())) for key, value in pairs
                )
            batches.append(likened)
    return {
        "start": start["offset"],
        "end": end["offset"],
        "batches": batches,
        "files": files_of(broker.data / f"{topic}-{index}"),
    }


def files_of(directory: Path) -> dict[str, list[str]]:
    """The segments that a partition's directory holds, and the lines of its leader epochs."""
    epochs = directory / "leader-epoch-checkpoint"
    return {
        "segments": sorted(path.name for path in directory.glob("*.log")),
        "epochs": epochs.read_text().splitlines() if epochs.exists() else [],
    }


def _fetch(broker: Broker, topic: str, index: int, offset: int) -> bytes | None:
    partition = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    answer = broker.wire.ask(
        "fetch",
        12,
        {
            "max_bytes": 1 << 22,
            "topics": [{"topic": topic, "partitions": [partition]}],
            "session_epoch": -1,
        },
    )
    fetched: bytes | None = answer["responses"][0]["partitions"][0]["records"]
    return fetched

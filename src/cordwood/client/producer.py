"""Sends records: batches by partition, sent when they are full or old enough; one at a time.

Idempotent as Kafka's producer is where acks=all. Failures are reported record by record.

Source: org.apache.kafka.clients.producer.KafkaProducer, internals.Sender, RecordAccumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cordwood.client.admin import Admin, TopicFacts
from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError, RefusedError, TimedOutError
from cordwood.client.partitioner import partition_of
from cordwood.format.compression import Codec
from cordwood.format.record_batch import HEADER_BYTES, Header, Record, build_batch
from cordwood.model.clock import Clock, SystemClock, pause
from cordwood.model.error_codes import ErrorCode
from cordwood.model.rng import Rng, SystemRng

_RECORD_OVERHEAD_BYTES = 21
_METADATA_RETRY_S = 0.1
_ACKS = {"0": 0, "1": 1, "-1": -1, "all": -1}


class TooLargeError(ClientError):
    """A record that no request may hold."""

    java_class = "org.apache.kafka.common.errors.RecordTooLargeException"


class InvalidTopicsError(ClientError):
    """A topic that cannot be."""

    java_class = "org.apache.kafka.common.errors.InvalidTopicException"


class ProducerRecord(NamedTuple):
    """What is to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def size_bound_bytes(self) -> int:
        """The most bytes that a batch of it alone takes.

        Source: AbstractRecords.estimateSizeInBytesUpperBound.
        """
        size = HEADER_BYTES + _RECORD_OVERHEAD_BYTES + _sized(self.key) + _sized(self.value)
        size += _varint_bytes(len(self.headers))
        for header in self.headers:
            size += _sized(header.key.encode()) + _sized(header.value)
        return size


Failed = Callable[[ProducerRecord, ClientError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Kafka's settings of the same names; times in ms, sizes in bytes."""

    acks: str = "all"
    codec: Codec = Codec.NONE
    batch_bytes: int = 16_384
    linger_ms: int = 5
    retries: int = (1 << 31) - 1
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    max_block_ms: int = 60_000
    max_request_bytes: int = 1_048_576
    buffer_memory_bytes: int = 33_554_432
    idempotent: bool = True


@dataclass(slots=True)
class _Batch:
    records: list[ProducerRecord] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    size_bytes: int = HEADER_BYTES
    begun_s: float = 0.0


class Producer:
    """Sends records on a cluster that the caller closes; `failed` is called for lost ones."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        failed: Failed,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._settings = settings
        self._failed = failed
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._acks = _ACKS[settings.acks]
        self._topics: dict[str, TopicFacts] = {}
        self._batches: dict[tuple[str, int], _Batch] = {}
        self._sticky: dict[str, int] = {}
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[tuple[str, int], int] = {}

    def send(self, record: ProducerRecord) -> None:
        """Takes a record; it goes out with its batch, or `failed` is called for it."""
        try:
            self._require_size(record)
            topic = self._topic(record.topic)
        except ClientError as error:
            self._failed(record, error)
            return
        partition = self._partition(record, topic)
        batch = self._batches.get((record.topic, partition))
        size = record.size_bound_bytes - HEADER_BYTES
        if batch is not None and batch.size_bytes + size > self._settings.batch_bytes:
            self._send_batch(record.topic, partition)
            batch = None
            if record.key is None:
                self._sticky.pop(record.topic, None)
                partition = self._partition(record, topic)
                batch = self._batches.get((record.topic, partition))
        if batch is None:
            batch = _Batch(begun_s=self._clock.monotonic_s())
            self._batches[record.topic, partition] = batch
        batch.records.append(record)
        batch.timestamps.append(self._clock.now_ms())
        batch.size_bytes += size

    def due_s(self) -> float | None:
        """How long the oldest batch may still wait for more records; None without one."""
        if not self._batches:
            return None
        oldest = min(batch.begun_s for batch in self._batches.values())
        return max(0.0, oldest + self._settings.linger_ms / 1000 - self._clock.monotonic_s())

    def flush_due(self) -> None:
        """Sends what has waited long enough."""
        if self.due_s() == 0.0:
            self.flush()

    def flush(self) -> None:
        """Sends everything, and waits for the answers."""
        for topic, partition in list(self._batches):
            self._send_batch(topic, partition)

    def _require_size(self, record: ProducerRecord) -> None:
        size = record.size_bound_bytes
        if size > self._settings.max_request_bytes:
            raise TooLargeError(
                f"The message is {size} bytes when serialized which is larger than "
                f"{self._settings.max_request_bytes}, which is the value of the max.request.size "
                "configuration."
            )
        if size > self._settings.buffer_memory_bytes:
            raise TooLargeError(
                f"The message is {size} bytes when serialized which is larger than the total "
                "memory buffer you have configured with the buffer.memory configuration."
            )

    def _topic(self, name: str) -> TopicFacts:
        """The topic, waiting for it to appear as long as max.block.ms says."""
        known = self._topics.get(name)
        if known is not None:
            return known
        end = self._clock.monotonic_s() + self._settings.max_block_ms / 1000
        while True:
            try:
                (topic,) = self._admin.topics([name], create=True)
            except RefusedError as error:
                if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise InvalidTopicsError(f"Invalid topics: [{name}]") from error
            else:
                if topic.partitions and all(p.leader >= 0 for p in topic.partitions):
                    self._topics[name] = topic
                    return topic
            if self._clock.monotonic_s() >= end:
                raise TimedOutError(
                    f"Topic {name} not present in metadata after {self._settings.max_block_ms} ms."
                )
            pause(_METADATA_RETRY_S)

    def _partition(self, record: ProducerRecord, topic: TopicFacts) -> int:
        count = len(topic.partitions)
        if record.key is not None:
            return partition_of(record.key, count)
        if record.topic not in self._sticky:
            self._sticky[record.topic] = self._rng.below(count)
        return self._sticky[record.topic]

    def _send_batch(self, topic: str, partition: int) -> None:
        batch = self._batches.pop((topic, partition))
        self._deliver(topic, partition, batch.records, batch.timestamps)

    def _deliver(
        self,
        topic: str,
        partition: int,
        records: Sequence[ProducerRecord],
        timestamps: Sequence[int],
    ) -> None:
        """Sends a batch until it is in, refused for good, or has been tried often enough."""
        attempts = self._settings.retries
        while True:
            try:
                refusal = self._try(topic, partition, records, timestamps)
            except ClientError as error:
                self._fail(records, error)
                return
            if refusal is None:
                return
            if refusal.code == ErrorCode.MESSAGE_TOO_LARGE and len(records) > 1:
                half = len(records) // 2
                self._deliver(topic, partition, records[:half], timestamps[:half])
                self._deliver(topic, partition, records[half:], timestamps[half:])
                return
            if not ErrorCode.of(refusal.code).is_retriable or attempts <= 0:
                self._fail(records, *refusal.errors)
                return
            attempts -= 1
            pause(self._settings.retry_backoff_ms / 1000)
            self._topics.pop(topic, None)

    def _fail(self, records: Sequence[ProducerRecord], *errors: ClientError) -> None:
        for index, record in enumerate(records):
            self._failed(record, errors[index] if len(errors) > 1 else errors[0])

    def _try(
        self,
        topic: str,
        partition: int,
        records: Sequence[ProducerRecord],
        timestamps: Sequence[int],
    ) -> _Refusal | None:
        facts = self._topic(topic)
        place = (topic, partition)
        sequence = self._sequences.get(place, 0)
        producer_id, epoch = self._identity()
        raw = build_batch(
            [
                Record(index, timestamps[index], record.key, record.value, record.headers)
                for index, record in enumerate(records)
            ],
            base_offset=0,
            codec=self._settings.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
        data = {"index": partition, "records": raw}
        answer = self._cluster.call(
            "produce",
            {
                "transactional_id": None,
                "acks": self._acks,
                "timeout_ms": self._settings.request_timeout_ms,
                "topic_data": [
                    {"name": topic, "topic_id": facts.topic_id, "partition_data": [data]}
                ],
            },
            node_id=facts.partitions[partition].leader,
            is_answered=self._acks != 0,
            timeout_ms=max(self._settings.request_timeout_ms, 1),
        )
        refusal = None if answer is None else _refusal(answer, len(records))
        if refusal is None and producer_id >= 0:
            self._sequences[place] = (sequence + len(records)) & 0x7FFFFFFF
        return refusal

    def _identity(self) -> tuple[int, int]:
        if self._acks != -1 or not self._settings.idempotent:
            return -1, -1
        if self._producer is None:
            answer = self._cluster.call(
                "init_producer_id",
                {"transactional_id": None, "transaction_timeout_ms": (1 << 31) - 1},
            )
            if answer.error_code:
                raise RefusedError(int(answer.error_code))
            self._producer = (answer.producer_id, answer.producer_epoch)
        return self._producer


class _Refusal(NamedTuple):
    """An error code, with one error for all records or one for each."""

    code: int
    errors: Sequence[ClientError]


def _refusal(answer: Any, records: int) -> _Refusal | None:
    """What a Produce answer says of its only partition.

    Source: Sender.failBatch.
    """
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    code = int(partition.error_code)
    if not code:
        return None
    message = getattr(partition, "error_message", None)
    messages = {
        error.batch_index: error.batch_index_error_message
        for error in getattr(partition, "record_errors", ())
    }
    if not messages:
        return _Refusal(code, [RefusedError(code, message)])
    rest = ClientError(
        "Failed to append record because it was part of a batch which had one more more invalid "
        "records"
    )
    own_code = code if len(messages) == 1 else ErrorCode.INVALID_RECORD
    errors = [
        RefusedError(own_code, messages[index] or message) if index in messages else rest
        for index in range(records)
    ]
    return _Refusal(code, errors)


def _sized(data: bytes | None) -> int:
    return 1 if data is None else len(data) + _varint_bytes(len(data))


def _varint_bytes(number: int) -> int:
    return max(1, (number << 1).bit_length() + 6) // 7 if number else 1

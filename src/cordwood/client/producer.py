"""Sends records: batches by partition, sent when they are full or old enough; one at a time.

Idempotent as Kafka's producer is where acks=all. Failures are reported record by record.

Source: org.apache.kafka.clients.producer.KafkaProducer, internals.Sender, RecordAccumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.client.admin import Admin, TopicFacts
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import (
    ClientError,
    DisconnectedError,
    RefusedError,
    TimedOutError,
    require,
)
from cordwood.client.partitioner import partition_of
from cordwood.client.retry import Action, Backoff, action
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.model.clock import Clock, SystemClock, pause
from cordwood.model.error_codes import ErrorCode
from cordwood.model.rng import Rng, SystemRng
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import (
    InitProducerIdRequest,
    ProduceRequest,
    ProduceResponse,
)

_RECORD_OVERHEAD_BYTES = 21
_EPOCH_MAX = (1 << 15) - 1
_ACKS = {"0": 0, "1": 1, "-1": -1, "all": -1}


class TooLargeError(ClientError):
    """A record that no request may hold."""

    java_class = "org.apache.kafka.common.errors.RecordTooLargeException"


class InvalidTopicsError(ClientError):
    """A topic that cannot be."""

    java_class = "org.apache.kafka.common.errors.InvalidTopicException"


class ProducerRecord(NamedTuple):
    """A record to send."""

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
    retry_backoff_max_ms: int = 1_000
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    max_block_ms: int = 60_000
    max_request_bytes: int = 1_048_576
    buffer_memory_bytes: int = 33_554_432
    idempotent: bool = True

    def backoff(self) -> Backoff:
        """The times between attempts."""
        return Backoff(first_ms=self.retry_backoff_ms, max_ms=self.retry_backoff_max_ms)


@dataclass(slots=True)
class _Batch:
    records: list[ProducerRecord] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    size_bytes: int = HEADER_BYTES
    begun_s: float = 0.0

    def part(self, start: int, end: int) -> _Batch:
        """Records `start` to `end`, exclusive, as a batch of the same age."""
        return _Batch(self.records[start:end], self.timestamps[start:end], begun_s=self.begun_s)


class _Failure(NamedTuple):
    """Why an attempt has not delivered a batch, and what follows.

    There is one error for all records or one for each. `retries` limits those attempts that sent
    the batch.
    """

    follows: Action | None
    errors: Sequence[ClientError]
    is_sent: bool = True


class Producer:
    """Sends records on a cluster that the caller closes; `failed` is called for lost ones."""

    def __init__(
        self,
        cluster: ClusterClient,
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
        """The time until the oldest batch is due; None without a batch."""
        if not self._batches:
            return None
        oldest = min(batch.begun_s for batch in self._batches.values())
        return max(0.0, oldest + self._settings.linger_ms / 1000 - self._clock.monotonic_s())

    def flush_due(self) -> None:
        """Sends the batches that have waited for linger.ms."""
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
        retries = self._cluster.retries(self._settings.max_block_ms / 1000)
        while True:
            topic = self._look_up(name)
            if topic is not None:
                return topic
            if not retries.wait():
                raise TimedOutError(
                    f"Topic {name} not present in metadata after {self._settings.max_block_ms} ms."
                )

    def _look_up(self, name: str) -> TopicFacts | None:
        """The topic as a broker knows it now; None if it is not there yet.

        Raises:
            ClientError: it cannot be used.
        """
        try:
            (topic,) = self._admin.topics([name], create=True, is_single=True)
        except (DisconnectedError, TimedOutError):
            return None
        except RefusedError as error:
            if error.code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise InvalidTopicsError(f"Invalid topics: [{name}]") from error
            if action("metadata", error.code) is None:
                raise
            return None
        if not topic.partitions:
            return None
        self._topics[name] = topic
        return topic

    def _partition(self, record: ProducerRecord, topic: TopicFacts) -> int:
        if record.key is not None:
            return partition_of(record.key, len(topic.partitions))
        every = [p.partition for p in topic.partitions]
        if self._sticky.get(record.topic) not in every:
            led = [p.partition for p in topic.partitions if p.leader >= 0] or every
            self._sticky[record.topic] = led[self._rng.below(len(led))]
        return self._sticky[record.topic]

    def _send_batch(self, topic: str, partition: int) -> None:
        self._deliver(topic, partition, self._batches.pop((topic, partition)))

    def _deliver(self, topic: str, partition: int, batch: _Batch) -> None:
        """Sends a batch until it is in, refused for good, or has been tried often enough."""
        attempts = self._settings.retries
        backoff = self._settings.backoff()
        end_s = batch.begun_s + self._settings.delivery_timeout_ms / 1000
        was_sent = False
        while True:
            failure = self._try(topic, partition, batch)
            if failure is None:
                return
            if failure.follows is Action.DIVIDE and len(batch.records) > 1:
                half = len(batch.records) // 2
                self._deliver(topic, partition, batch.part(0, half))
                self._deliver(topic, partition, batch.part(half, len(batch.records)))
                return
            was_sent = was_sent or failure.is_sent
            attempts -= failure.is_sent
            is_late = self._clock.monotonic_s() >= end_s
            if failure.follows in {None, Action.DIVIDE} or is_late or attempts < 0:
                break
            if failure.follows is Action.NEW_EPOCH:
                self._next_epoch()
            pause(backoff.next_s())
        errors = failure.errors
        if is_late and failure.follows is not None and not failure.is_sent:
            errors = [self._expired(topic, partition, batch)]
        if was_sent:
            # The log may have the batch whatever the answers were. The broker would take the next
            # batch for it, and acknowledge records that it drops, if the sequences were the same.
            self._next_epoch()
        for index, record in enumerate(batch.records):
            self._failed(record, errors[index] if len(errors) > 1 else errors[0])

    def _expired(self, topic: str, partition: int, batch: _Batch) -> TimedOutError:
        """The text is that of Sender.sendProducerData."""
        passed_ms = int((self._clock.monotonic_s() - batch.begun_s) * 1000)
        return TimedOutError(
            f"Expiring {len(batch.records)} record(s) for {topic}-{partition}:{passed_ms} ms has "
            "passed since batch creation"
        )

    def _try(self, topic: str, partition: int, batch: _Batch) -> _Failure | None:
        """Sends a batch once, to the leader that is known; None if it was delivered."""
        try:
            facts = self._topics.get(topic) or self._look_up(topic)
            leader = None if facts is None else facts.leader_of(partition)
            if facts is None or leader is None:
                self._topics.pop(topic, None)
                waiting = RefusedError(ErrorCode.LEADER_NOT_AVAILABLE)
                return _Failure(Action.METADATA, [waiting], is_sent=False)
            producer = self._identity()
        except RefusedError as error:
            return _Failure(action("init_producer_id", error.code), [error], is_sent=False)
        except (DisconnectedError, TimedOutError) as error:
            return _Failure(Action.AGAIN, [error], is_sent=False)
        except ClientError as error:
            return _Failure(None, [error], is_sent=False)
        sequence = self._sequences.get((topic, partition), 0)
        try:
            data = ProduceRequest.PartitionProduceData(
                index=partition, records=self._built(batch, *producer, sequence)
            )
            answer = self._produce(facts, leader, data)
        except (DisconnectedError, TimedOutError) as error:
            self._topics.pop(topic, None)
            return _Failure(Action.METADATA, [error])
        except ClientError as error:
            return _Failure(None, [error])
        failure = None if answer is None else _failure(answer, len(batch.records))
        if failure is not None and failure.follows is Action.METADATA:
            self._topics.pop(topic, None)
        if failure is not None and failure.follows is not Action.DELIVERED:
            return failure
        if producer[0] >= 0:
            self._sequences[topic, partition] = (sequence + len(batch.records)) & 0x7FFFFFFF
        return None

    def _built(self, batch: _Batch, producer_id: int, epoch: int, sequence: int) -> bytes:
        return build_batch(
            [
                Record(index, batch.timestamps[index], record.key, record.value, record.headers)
                for index, record in enumerate(batch.records)
            ],
            base_offset=0,
            codec=self._settings.codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if producer_id >= 0 else -1,
        )

    def _produce(
        self, facts: TopicFacts, leader: int, data: ProduceRequest.PartitionProduceData
    ) -> ProduceResponse:
        """The answer to a Produce request with the data of one partition."""
        return self._cluster.call(
            ProduceRequest(
                acks=self._acks,
                timeout_ms=self._settings.request_timeout_ms,
                topic_data=[
                    ProduceRequest.TopicProduceData(
                        name=facts.name, topic_id=facts.topic_id or ZERO_UUID, partition_data=[data]
                    )
                ],
            ),
            node_id=leader,
            is_answered=self._acks != 0,
            is_single=True,
            timeout_ms=max(self._settings.request_timeout_ms, 1),
        )

    def _identity(self) -> tuple[int, int]:
        """The producer id and epoch, -1 without idempotence.

        Raises:
            RefusedError: no broker gives one.
            DisconnectedError: no broker answers.
            TimedOutError: no broker answers.
        """
        if self._acks != -1 or not self._settings.idempotent:
            return -1, -1
        if self._producer is None:
            answer = self._cluster.call(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=(1 << 31) - 1),
                is_single=True,
            )
            require(int(answer.error_code))
            self._producer = (answer.producer_id, answer.producer_epoch)
        return self._producer

    def _next_epoch(self) -> None:
        """Begins the sequences of all partitions at 0, in the next epoch.

        Source: TransactionManager.bumpIdempotentProducerEpoch.
        """
        self._sequences.clear()
        if self._producer is not None:
            producer_id, epoch = self._producer
            self._producer = None if epoch == _EPOCH_MAX else (producer_id, epoch + 1)


def _failure(answer: ProduceResponse, records: int) -> _Failure | None:
    """The failure in a Produce answer, which has one partition; None without one.

    Source: Sender.failBatch.
    """
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    code = partition.error_code
    if not code:
        return None
    message = partition.error_message
    messages = {
        error.batch_index: error.batch_index_error_message for error in partition.record_errors
    }
    if not messages:
        return _Failure(action("produce", code), [RefusedError(code, message)])
    rest = ClientError(
        "Failed to append record because it was part of a batch which had one more more invalid "
        "records"
    )
    own_code = code if len(messages) == 1 else ErrorCode.INVALID_RECORD
    errors = [
        RefusedError(own_code, messages[index] or message) if index in messages else rest
        for index in range(records)
    ]
    return _Failure(action("produce", code), errors)


def _sized(data: bytes | None) -> int:
    return 1 if data is None else len(data) + _varint_bytes(len(data))


def _varint_bytes(number: int) -> int:
    return max(1, (number << 1).bit_length() + 6) // 7 if number else 1

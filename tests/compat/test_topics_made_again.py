"""Topics that are deleted, made again and written to at once: no record is refused."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = [f"again-{number}" for number in range(6)]
#: More than a broker deletes before it answers.
PARTITIONS = 12
ROUNDS = 4


def test_no_record_is_refused_by_topics_that_were_deleted_and_made_again(stock_broker: str) -> None:
    admin = AdminClient({"bootstrap.servers": stock_broker})
    told: Counter[str] = Counter()

    def delivered(error: KafkaError | None, _message: Message) -> None:
        told["written" if error is None else error.name()] += 1

    for number in range(ROUNDS):
        if number:
            for deletion in admin.delete_topics(TOPICS).values():
                deletion.result()
        wanted = [NewTopic(name, num_partitions=PARTITIONS) for name in TOPICS]
        for creation in admin.create_topics(wanted).values():
            creation.result()
        producer = Producer({"bootstrap.servers": stock_broker, "retries": 0, "linger.ms": 0})
        for name in TOPICS:
            producer.produce(name, b"value", on_delivery=delivered)
        assert producer.flush(60) == 0
    assert told == {"written": ROUNDS * len(TOPICS)}

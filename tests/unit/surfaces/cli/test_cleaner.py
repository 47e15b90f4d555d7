"""`cordwood cleaner` against a running broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner, Result

from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.brokers import AddressedBroker
from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.cleaner_bench import until
from support.in_process_engine import CompiledEngine
from support.ports import free_port
from support.scrape import Probe, probed

COMPACT = {
    "cleanup.policy": "compact",
    "segment.ms": "60000",
    "min.cleanable.dirty.ratio": "0.01",
    "message.timestamp.type": "LogAppendTime",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(log_dir=tmp_path, engine=CompiledEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def run(probe: Probe, *arguments: str) -> Result:
    wide = {"COLUMNS": "200"}
    result = CliRunner(env=wide).invoke(app, ["cleaner", "--url", probe.url, *arguments])
    assert result.exit_code == 0, result.output
    return result


def create(broker: RunningBroker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new = [NewTopic(topic, 1, 1, config=COMPACT) for topic in topics]
    for done in admin.create_topics(new).values():
        done.result()


def produce(broker: RunningBroker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
    for value in values:
        producer.produce(topic, value, key=b"k")
        assert producer.flush(30) == 0


def test_a_broker_without_compacted_topics_shows_threads_and_engine(probe: Probe) -> None:
    broker_line, *lines = run(probe).stdout.splitlines()
    assert broker_line.startswith("Broker: 1 of cluster ")
    assert lines == [
        "Cleaner: 1 of 1 threads run",
        "Engine:  in process",
        "No compacted partitions.",
    ]


def test_partitions_are_shown_with_why_they_are_cleaned_or_not(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "table", "users")
    produce(broker, "table", *[b"%d" % number for number in range(10)])
    produce(broker, "users", b"v")
    assert "all but the active segment is clean" in unwrapped(run(probe, "--status"))
    broker.advance(minutes=2, compact=False)
    produce(broker, "table", b"last")
    broker.advance(minutes=2)
    text = unwrapped(run(probe))
    assert re.search(r"table-0 idle 0 0\.00 \d+s ago all but the active segment is clean", text)
    # It may have begun before the clock was advanced, which then counts.
    assert re.search(r"Last runs .* table-0 \d+[sm] ago cleaned \d+\.\ds 700 70", text)


def test_a_partition_that_failed_is_shown_with_the_reason(
    broker: RunningBroker, probe: Probe
) -> None:
    create(broker, "table")
    log = broker.broker.replicas.logs.require(TopicPartition("table", 0))
    broker.node.cleaner.manager.mark_uncleanable(log, "the disk says no")
    text = unwrapped(run(probe))
    assert "table-0 uncleanable" in text
    assert "the disk says no" in text


def test_a_glob_leaves_out_other_topics(broker: RunningBroker, probe: Probe) -> None:
    create(broker, "table", "users")
    assert "users-0" not in run(probe, "--topic", "t*").stdout
    found = json.loads(run(probe, "--topic", "u*", "--json").stdout)
    assert [each["topic"] for each in found["partitions"]] == ["users"]
    assert found["metrics"]


def test_where_nothing_answers_it_says_what_to_start() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(app, ["cleaner", "--url", url])
    assert result.exit_code == 1
    assert f"cordwood cleaner: nothing answers at {url}" in result.output


def unwrapped(result: Result) -> str:
    return " ".join(result.output.split())


def test_open_transaction_in_the_way_is_named(broker: RunningBroker, probe: Probe) -> None:
    create(broker, "table")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}
    producer = Producer(
        settings | {"transactional.id": "orders-7", "transaction.timeout.ms": "900000"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("table", b"%d" % number, key=b"k")
    assert producer.flush(30) == 0
    broker.advance(minutes=2, compact=False)
    produce(broker, "table", b"v")
    said = unwrapped(run(probe))
    assert re.search(
        r"offset is 0: the transaction of producer \d+ \('orders-7'\) is open; it began 2m", said
    )
    (partition,) = json.loads(run(probe, "--topic", "table", "--json").stdout)["partitions"]
    (found,) = partition["open_transactions"]
    assert (found["transactional_id"], found["start_offset"]) == ("orders-7", 0)
    labels = {
        "topic": "table",
        "partition": "0",
        "producer_id": str(found["producer_id"]),
        "transactional_id": "orders-7",
    }
    assert probe.scrape().value("cordwood_log_open_transaction_seconds", **labels) >= 120
    producer.commit_transaction(30)
    (partition,) = json.loads(run(probe, "--topic", "table", "--json").stdout)["partitions"]
    assert partition["open_transactions"] == []
    assert probe.scrape().labels("cordwood_log_open_transaction_seconds") == []


def test_what_is_due_is_shown_with_its_order_and_whether_it_grows(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.loads(run(probe, "--json").stdout)
    now_ms = answer["now_ms"]
    growth = {"since_ms": now_ms - 720_000, "bytes_then": 1 << 30, "bytes_now": 3 << 30}
    row = {"topic": "a", "partition": 0, "state": "idle", "due": True, "reason": "it is dirty"}
    row |= {"log_dir": "/a", "policy": "compact", "checkpoint": None, "log_end_offset": 7}
    answer |= {
        "partitions": [row | {"uncleanable": None, "last_cleaned_ms": None}],
        "order": ["a-0"],
        "order_by": "freed",
        "backlog": {
            "logs": 1,
            "bytes_to_read": 5 << 30,
            "bytes_freed": 2 << 30,
            "bytes_per_s": 10 << 20,
            "seconds_left": 512.0,
            "growth": growth,
        },
    }
    monkeypatch.setattr(AddressedBroker, "document", lambda *_, **__: answer)
    lines = run(probe).stdout.splitlines()
    assert lines[-3:] == [
        "Next: a-0 (by what is freed for each byte that is read)",
        "Due: 1 log, 5.0G to read, about 2.0G to be freed, 8m32s left at 10.0M/s",
        "Behind: records arrive faster than they are cleaned: the dirty bytes of what is due were "
        "1.0G 12m ago, and are 3.0G",
    ]
    little = {"bytes_freed": None, "bytes_per_s": None, "seconds_left": None, "growth": None}
    answer |= {"order_by": "ratio", "backlog": answer["backlog"] | little}
    assert run(probe).stdout.splitlines()[-2:] == ["Next: a-0", "Due: 1 log, 5.0G to read"]


def test_the_order_of_a_running_broker_can_be_changed(broker: RunningBroker, probe: Probe) -> None:
    def order() -> str:
        return str(json.loads(run(probe, "--json").stdout)["order_by"])

    def alter(value: str) -> None:
        entry = ConfigEntry(
            "cordwood.cleaner.order", value, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()

    assert order() == "ratio"
    alter("freed")
    until(lambda: order() == "freed")
    with pytest.raises(KafkaException, match="String must be one of: ratio, freed"):
        alter("newest")
    assert order() == "freed"

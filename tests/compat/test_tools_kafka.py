"""Cordwood's command line tools print what Kafka's print, for the same broker and flags.

Each row of the table is a command line that Kafka's tool runs, and then Cordwood's, against the
same broker, which is of the tool's version: Kafka 4.4, and each night Kafka 4.3 as well. `%` at the
start of a name stands for a prefix that is each side's own, so that both may create the same
topics. The output is compared without prefixes, times, ids, Java's stack traces, and the usage that
follows a refused command line. Rows of a group are run in their order; those of another group find
none of their topics.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from cordwood.surfaces.cli.tools.table import options
from support.applied import wait_until_applied
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3, KAFKA_4_4, KAFKA_VERSIONS
from support.kafka_tools import KafkaTools, ToolResult
from support.side_by_side import changes_metadata, own_tools


class Case(NamedTuple):
    """A command line: words divided by blanks, with `'…'` around those that hold some.

    The word BROKER stands for the broker's address, which `bootstrap` puts at the end.

    `stdin` is what the tool reads. `ordered` is False where Kafka's own order is that of a hash
    of names that differ between the sides: lines are then sorted. Files are those of `FILES`, by
    name, as `@name`. Rows that are `slow` are run by `make nightly` alone, rows that are `newest`
    not with Kafka 4.3, whose tool has no such command or another text. With `is_lossy`, records are
    lost, after which Kafka's tool exits with 0 and Cordwood's with 1.
    """

    line: str
    stdin: bytes = b""
    ordered: bool = True
    bootstrap: bool = True
    slow: bool = False
    newest: bool = False
    is_lossy: bool = False


FILES: Mapping[str, str] = {
    "topic.properties": "segment.bytes = 1048576\nretention.bytes=2097152\n",
    "empty.properties": "",
    "delete.json": """{"version": 1, "partitions": [
        {"topic": "%b", "partition": 0, "offset": 2}, {"topic": "%a", "partition": 3, "offset": -1}
    ]}""",
    "delete-bad.json": """{"partitions": [
        {"topic": "%b", "partition": 0, "offset": 99}]}""",
    "delete-twice.json": """{"partitions": [
        {"topic": "%b", "partition": 0, "offset": 1}, {"topic": "%b", "partition": 0, "offset": 1}
    ]}""",
    "delete-version.json": '{"version": 2, "partitions": []}',
    "delete-empty.json": "{}",
    "delete-no-offset.json": '{"partitions": [{"topic": "%b", "partition": 0}]}',
    "delete-types.json": '{"partitions": [{"topic": "%b", "partition": "0", "offset": 1}]}',
    "plan.csv": "%b,0,1\n",
    "plan-of-other.csv": "%other,%b,0,1\n",
    "reader.properties": "parse.key=true\nkey.separator==\n",
    "formatter.properties": "print.key=true\nkey.separator=\\ -> \n",
}

SETUP: Sequence[str] = (
    "topics --create --topic seventeen --partitions 17 --if-not-exists",
    "topics --create --topic same-a --config retention.ms=1000 --if-not-exists",
    "topics --create --topic same-b --if-not-exists",
    "topics --create --topic same-c --if-not-exists",
)
"""What there is before all rows, for both sides."""

TOPICS: Sequence[Case] = (
    Case("topics", bootstrap=False),
    Case("topics --list", bootstrap=False),
    Case("topics --list --describe"),
    Case("topics --foo"),
    Case("topics --list --topic"),
    Case("topics --create"),
    Case("topics --list --topic % --topic x"),
    Case("topics --create --topic %a --partitions 3"),
    Case("topics --create --topic %a --partitions 3"),
    Case("topics --create --topic %a --if-not-exists"),
    Case("topics --create --topic %b.c_d --config cleanup.policy=compact --config segment.ms=9000"),
    Case("topics --create --topic %e --replica-assignment 1,1"),
    Case("topics --create --topic %e2 --replica-assignment 1:1"),
    Case("topics --create --topic %e3 --replica-assignment 1,7"),
    Case("topics --create --topic %e4 --replica-assignment 1,x"),
    Case("topics --create --topic %e5 --replica-assignment 1,1:2"),
    Case("topics --create --topic %e6 --replica-assignment 1 --partitions 2"),
    Case("topics --create --topic %f --partitions 0"),
    Case("topics --create --topic %f --partitions x"),
    Case("topics --create --topic %f --replication-factor 3"),
    Case("topics --create --topic %f --replication-factor 0"),
    Case("topics --create --topic %f --config foo=1"),
    Case("topics --create --topic %f --config retention.ms=x"),
    Case("topics --create --topic %f --config retention.ms"),
    Case("topics --create --topic %f --config cleanup.policy=shred"),
    Case("topics --create --topic %f/g"),
    Case("topics --create --topic ''"),
    Case("topics --create --topic .."),
    Case("topics --create --topic %f --if-exists"),
    Case("topics --list --topic %.*"),
    Case("topics --list --topic %a,%e --exclude-internal"),
    Case("topics --list --topic %none"),
    Case("topics --list --topic '['"),
    Case("topics --describe --topic %a"),
    Case("topics --describe --topic %b.c_d"),
    Case("topics --describe --topic %.*", ordered=False),
    Case("topics --describe --topic %.* --topics-with-overrides", ordered=False),
    Case("topics --describe --topic %.* --under-replicated-partitions"),
    Case("topics --describe --topic %a --at-min-isr-partitions"),
    Case("topics --describe --topic %.* --unavailable-partitions"),
    Case("topics --describe --topic %.* --under-min-isr-partitions"),
    Case("topics --describe --topic %a --under-min-isr-partitions --topics-with-overrides"),
    Case("topics --describe --topic %a --partition-size-limit-per-response 1"),
    Case("topics --describe --topic %none"),
    Case("topics --describe --topic %none --if-exists"),
    Case("topics --describe --if-exists"),
    Case("topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ"),
    Case("topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ --if-exists"),
    Case("topics --describe --topic-id x"),
    Case("topics --alter --topic %a --partitions 5"),
    Case("topics --alter --topic %a --partitions 5"),
    Case("topics --alter --topic %a --partitions 2"),
    Case("topics --alter --topic %a"),
    Case("topics --alter --topic %none --partitions 5"),
    Case("topics --alter --topic %none --partitions 5 --if-exists"),
    Case("topics --alter --topic %e --partitions 3 --replica-assignment 1,1,1"),
    Case("topics --alter --topic %e --partitions 4 --replica-assignment 1,1"),
    Case("topics --describe --topic %[ae]", ordered=False),
    Case("topics --delete --topic %none"),
    Case("topics --delete --topic %none --if-exists"),
    Case("topics --delete --topic %a --delete-config x"),
    Case("topics --delete --topic %.*"),
    Case("topics --list --topic %.*"),
)

CONFIGS: Sequence[Case] = (
    Case("configs", bootstrap=False),
    Case("configs --describe --topic %a", bootstrap=False),
    Case("configs --bogus"),
    Case("configs --describe --alter --topic %a"),
    Case("configs --describe"),
    Case("configs --topic %a"),
    Case("configs --describe --topic %a --add-config a=b"),
    Case("configs --describe --entity-type nonsense", newest=True),
    Case("configs --describe --entity-type topics --entity-type topics"),
    Case("configs --describe --entity-type topics --entity-type users"),
    Case("configs --describe --entity-type topics --topic %a"),
    Case("configs --describe --entity-type topics --entity-default"),
    Case("configs --describe --broker x"),
    Case("configs --describe --broker-logger x"),
    Case("configs --describe --entity-type broker-loggers"),
    Case("configs --alter --topic %a"),
    Case("configs --alter --entity-type topics --add-config a=b"),
    Case("configs --alter --entity-type users --add-config a=b"),
    Case("configs --alter --topic %a --add-config a=b --add-config-file x"),
    Case("configs --describe --ip not-a-host.invalid"),
    Case("topics --create --topic %a --config retention.ms=5000"),
    Case("configs --describe --topic %a"),
    Case("configs --describe --topic %a --all"),
    Case("configs --describe --topic %none"),
    Case("configs --describe --topic %none --all"),
    Case("configs --describe --topic %/bad"),
    Case("configs --describe --entity-type topics --entity-name %a"),
    Case("configs --alter --topic %a --add-config segment.ms=7000,cleanup.policy=[compact,delete]"),
    Case("configs --describe --topic %a"),
    Case("configs --alter --topic %a --delete-config segment.ms,retention.ms"),
    Case("configs --alter --topic %a --delete-config nonsense"),
    Case("configs --describe --topic %a"),
    Case("configs --alter --topic %a --add-config segment.ms", newest=True),
    Case("configs --alter --topic %a --add-config segment.ms=x"),
    Case("configs --alter --topic %a --add-config segment.ms=-1"),
    Case("configs --alter --topic %a --add-config nonsense=1"),
    Case("configs --alter --topic %a --add-config cleanup.policy=[shred]"),
    Case("configs --alter --topic %a --add-config 'a b=1'"),
    Case("configs --alter --topic %none --add-config segment.ms=1000"),
    Case("configs --alter --topic %a --add-config-file @topic.properties"),
    Case("configs --describe --topic %a"),
    Case("configs --describe --broker 1"),
    Case("configs --describe --broker 1 --all"),
    Case("configs --describe --broker 9"),
    Case("configs --describe --broker-defaults"),
    Case("configs --describe --entity-type brokers"),
    Case("configs --alter --broker 1 --add-config log.cleaner.threads=2"),
    Case("configs --describe --broker 1"),
    Case("configs --alter --broker 1 --delete-config log.cleaner.threads"),
    Case("configs --alter --broker-defaults --add-config log.cleaner.backoff.ms=20000"),
    Case("configs --describe --broker-defaults"),
    Case("configs --describe --entity-type brokers --entity-default"),
    Case("configs --alter --broker-defaults --delete-config log.cleaner.backoff.ms"),
    Case("configs --alter --broker 1 --add-config node.id=2"),
    Case("configs --alter --broker 1 --add-config log.cleaner.threads=x"),
    Case("configs --alter --broker-defaults --add-config log.cleaner.threads=900"),
    Case("configs --describe --broker-logger 1"),
    Case("configs --alter --broker-logger 1 --add-config kafka.log.LogCleaner=INFO"),
    Case("configs --alter --broker-logger 1 --add-config %no.such.logger=INFO"),
    Case("configs --alter --broker-logger 1 --add-config kafka.log.LogManager=LOUD"),
    Case("configs --alter --client-metrics %m --add-config interval.ms=30000"),
    Case("configs --describe --client-metrics %m"),
    Case("configs --describe --client-metrics %none"),
    Case("configs --alter --client-metrics %m --add-config interval.ms=3"),
    Case("configs --alter --client-metrics %m --delete-config interval.ms"),
    Case("configs --alter --group %g --add-config consumer.session.timeout.ms=50000"),
    Case("configs --describe --group %g"),
    Case("configs --describe --group %g --all"),
    Case("configs --describe --group %none"),
    Case("configs --alter --group %g --add-config consumer.session.timeout.ms=5"),
    Case("configs --alter --group %g --add-config nonsense=5"),
    Case("configs --alter --group %g --delete-config consumer.session.timeout.ms"),
    Case("configs --alter --user %u --add-config producer_byte_rate=1024,consumer_byte_rate=2e7"),
    Case("configs --alter --user %u --client %c --add-config request_percentage=200"),
    Case("configs --alter --client %c --add-config controller_mutation_rate=10.5"),
    Case("configs --describe --user %u"),
    Case("configs --describe --user %u --client %c"),
    Case("configs --describe --client %c"),
    Case("configs --describe --entity-type users --entity-name %u --entity-type clients"),
    Case("configs --describe --user %none"),
    Case("configs --alter --user %u --add-config producer_byte_rate=x"),
    Case("configs --alter --user %u --add-config producer_byte_rate=-1"),
    Case("configs --alter --user %u --add-config nonsense=1", newest=True),
    Case("configs --alter --client %c --add-config nonsense=1", newest=True),
    Case("configs --alter --user %u --delete-config nonsense", newest=True),
    Case("configs --alter --user %u --add-config one=1,two=2,three=3,two=4", newest=True),
    Case("configs --alter --client %c --delete-config SCRAM-SHA-256,b,a,b,c", newest=True),
    Case("configs --alter --client %c --delete-config SCRAM-SHA-256", newest=True),
    Case("configs --alter --user %u --delete-config producer_byte_rate,consumer_byte_rate"),
    Case("configs --alter --user %u --delete-config producer_byte_rate"),
    Case("configs --alter --user %u --client %c --delete-config request_percentage"),
    Case("configs --alter --client %c --delete-config controller_mutation_rate"),
    Case("configs --alter --user-defaults --add-config producer_byte_rate=1000000000"),
    Case("configs --describe --user-defaults"),
    Case("configs --alter --ip 127.0.0.9 --add-config connection_creation_rate=100"),
    Case("configs --describe --ip 127.0.0.9"),
    Case("configs --alter --ip 127.0.0.9 --add-config producer_byte_rate=100"),
    Case("configs --alter --ip 127.0.0.9 --delete-config producer_byte_rate"),
    Case("configs --alter --user %u --add-config SCRAM-SHA-256=[iterations=8192,password=secret]"),
    Case("configs --describe --user %u"),
    Case("configs --alter --user %u --add-config SCRAM-SHA-256=[iterations=1,password=secret]"),
    Case("configs --alter --user %u --add-config SCRAM-SHA-256=[secret]"),
    Case("configs --alter --user-defaults --add-config SCRAM-SHA-256=[password=secret]"),
    Case("configs --alter --user %u --delete-config SCRAM-SHA-256"),
    Case("configs --alter --user %u --delete-config SCRAM-SHA-512"),
    Case("topics --delete --topic %a"),
)

ALL_COLUMNS = (
    "--formatter-property print.partition=true --formatter-property print.offset=true "
    "--formatter-property print.epoch=true --formatter-property print.delivery=true "
    "--formatter-property print.headers=true --formatter-property print.key=true"
)
#: By default a request is given up after 1.5 s, and sent again with a warning.
PRODUCE = "console-producer --request-timeout-ms 60000 --topic"
CONSUME = "console-consumer --timeout-ms 900 --from-beginning --topic"
#: A member of a group waits for its coordinator and its partitions first, and what it has read is
#: committed: the row cannot be run again with more time. Where a row ends by a number of records,
#: the time-out is never waited for.
CONSUME_IN_GROUP = CONSUME.replace("900", "120000")
CONSUME_REST_IN_GROUP = CONSUME.replace("900", "10000")

CONSOLE: Sequence[Case] = (
    Case("console-producer", bootstrap=False),
    Case("console-producer --topic %a", bootstrap=False),
    Case("console-producer --topic %a --bootstrap-server nonsense", bootstrap=False),
    Case("console-producer"),
    Case("console-producer --foo"),
    Case(f"{PRODUCE} %a --batch-size x", b"a\n"),
    Case(f"{PRODUCE} %a --compression-codec bogus", b"a\n"),
    Case(f"{PRODUCE} %a --request-required-acks 7", b"a\n"),
    Case(f"{PRODUCE} %a --property parse.key=true --reader-property parse.key=true", b"a\n"),
    Case(f"{PRODUCE} %a --command-property x=y --producer-property x=y", b"a\n"),
    Case(f"{PRODUCE} %a --command-config x --producer.config x", b"a\n"),
    Case(f"{PRODUCE} %a --reader-property headers.delimiter=,", b"a\n"),
    Case(f"{PRODUCE} %a --reader-property null.marker=:", b"a\n"),
    Case("topics --create --topic %a"),
    Case(f"{PRODUCE} %a", b"one\ntwo\n\nfour\r\nfive"),
    Case(f"{PRODUCE} %a --property parse.key=true", b"k\tv\n\tempty key\nk2\tv\tw\n"),
    Case(f"{PRODUCE} %a --reader-property parse.key=true", b"no key here\n"),
    Case(
        f"{PRODUCE} %a --reader-property parse.key=true --reader-property ignore.error=true",
        b"no key here\nk\tv\n",
    ),
    Case(
        f"{PRODUCE} %a --reader-property parse.headers=true --reader-property parse.key=true",
        b"h1:v1,h2:v2\tkey\tvalue\nh:\tk\tv\n",
    ),
    Case(f"{PRODUCE} %a --reader-property parse.headers=true", b"h1\tvalue\n"),
    Case(
        f"{PRODUCE} %a --reader-property parse.headers=true --reader-property parse.key=true "
        "--reader-property null.marker=NULL --reader-property headers.separator=; "
        "--reader-property headers.key.separator== --reader-property key.separator=| "
        "--reader-property headers.delimiter=/",
        b"a=1;b=NULL/NULL|value\nNULL/k|NULL\n",
    ),
    Case(
        f"{PRODUCE} %a --reader-property parse.headers=true --reader-property null.marker=NULL",
        b"NULL:1\tvalue\n",
    ),
    Case(f"{PRODUCE} %a --compression-codec", b"gzipped\n" * 9),
    Case(f"{PRODUCE} %a --compression-codec lz4", b"lz4\n" * 9),
    Case(f"{PRODUCE} %a --compression-codec snappy", b"snappy\n" * 9),
    Case(f"{PRODUCE} %a --compression-codec zstd --sync", b"zstd\n" * 3),
    Case(f"{PRODUCE} %a --request-required-acks 0", b"acks 0\n"),
    Case(f"{PRODUCE} %a --request-required-acks 1", b"acks 1\n"),
    Case(f"{PRODUCE} %a --producer-property acks=all", b"acks all\n"),
    Case(f"{PRODUCE} %a --max-partition-memory-bytes 100", b"small batches\n" * 20),
    Case(f"{PRODUCE} %a --reader-config @reader.properties", b"k=v\n"),
    Case(f"{PRODUCE} %a", "zürich 東京\n".encode()),
    Case(f"{PRODUCE} %a", b"not utf-8: \xff\xfe\n"),
    Case(f"{PRODUCE} %none --max-block-ms 500", b"a\nb\n", slow=True, is_lossy=True),
    Case(f"{PRODUCE} %none --max-block-ms 500 --sync", b"a\nb\n"),
    Case(f"{PRODUCE} %/bad --sync", b"a\n"),
    Case("topics --create --topic %small --config max.message.bytes=120"),
    Case(f"{PRODUCE} %small", b"x" * 200 + b"\n", is_lossy=True),
    Case(f"{PRODUCE} %small", b"y\n" * 30),
    Case(f"{PRODUCE} %small --sync", b"x" * 200 + b"\n"),
    Case(f"{PRODUCE} %small --max-memory-bytes 20000", b"x" * 30000 + b"\n", is_lossy=True),
    Case(f"{PRODUCE} %small", b"x" * 1100000 + b"\n", is_lossy=True),
    Case("topics --create --topic %compact --config cleanup.policy=compact"),
    Case(f"{PRODUCE} %compact", b"a\n", is_lossy=True),
    Case(f"{PRODUCE} %compact", b"a\nb\n", is_lossy=True),
    Case("topics --create --topic %three --partitions 3"),
    Case(f"{PRODUCE} %three --reader-property parse.key=true", b"a\t1\nbb\t2\nccc\t3\ndddd\t4\n"),
    Case("console-consumer", bootstrap=False),
    Case("console-consumer --topic %a", bootstrap=False),
    Case("console-consumer"),
    Case("console-consumer --foo"),
    Case("console-consumer --topic %a --include %a"),
    Case("console-consumer --include %a --partition 0"),
    Case("console-consumer --topic %a --partition 0 --offset 1 --from-beginning"),
    Case("console-consumer --topic %a --offset 1"),
    Case("console-consumer --topic %a --partition 0 --offset -1"),
    Case("console-consumer --topic %a --partition 0 --group g"),
    Case("console-consumer --topic %a --group g --command-property group.id=h"),
    Case("console-consumer --topic %a --consumer-property a=b --command-property group.id=h"),
    Case("console-consumer --topic %a --property a=b --formatter-property group.id=h"),
    Case("console-consumer --topic % --from-beginning --command-property auto.offset.reset=none"),
    Case("console-consumer --topic %a --formatter x.Y"),
    Case("console-consumer --topic %a --isolation-level foo"),
    Case(f"{CONSUME} %a"),
    Case(f"{CONSUME} %a {ALL_COLUMNS}"),
    Case(f"{CONSUME} %small", slow=True),
    Case(f"{CONSUME} %compact"),
    Case(f"{CONSUME} %three {ALL_COLUMNS}", ordered=False),
    Case(f"{CONSUME} %a --max-messages 2"),
    Case(f"{CONSUME} %a --max-messages 0"),
    Case(f"{CONSUME} %a --property print.key=true --max-messages 1"),
    Case(f"{CONSUME} %a --consumer-property client.id=x --max-messages 1"),
    Case(
        f"{CONSUME} %a --formatter-property print.value=false --formatter-property print.key=true "
        "--formatter-property null.literal=NONE --max-messages 9"
    ),
    Case(
        f"{CONSUME} %a --formatter-property print.value=false --formatter-property "
        "print.offset=true --formatter-property line.separator=; --max-messages 9"
    ),
    Case(f"{CONSUME} %a --formatter-property print.value=false --max-messages 9"),
    Case(
        f"{CONSUME} %a --formatter-property key.separator=| --formatter-property "
        "headers.separator=& --formatter-property print.headers=true --max-messages 99"
    ),
    Case(f"{CONSUME} %a --formatter-config @formatter.properties --max-messages 9"),
    Case(f"{CONSUME} %a --value-deserializer x.Y --max-messages 1"),
    Case(
        f"{CONSUME} %a --value-deserializer "
        "org.apache.kafka.common.serialization.StringDeserializer --max-messages 9"
    ),
    Case(
        f"{CONSUME} %a --value-deserializer "
        "org.apache.kafka.common.serialization.LongDeserializer --max-messages 9"
    ),
    Case(
        f"{CONSUME} %a --value-deserializer org.apache.kafka.common.serialization.LongDeserializer "
        "--skip-message-on-error",
        slow=True,
    ),
    Case(
        f"{CONSUME} %a --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter", slow=True
    ),
    Case(f"{CONSUME} %a --isolation-level read_committed --max-messages 3"),
    Case(f"{CONSUME} %/bad"),
    Case(f"{CONSUME} %none", slow=True),
    Case("console-consumer --timeout-ms 900 --topic %a", slow=True),
    Case("console-consumer --timeout-ms 900 --topic %a --partition 0"),
    Case("console-consumer --timeout-ms 900 --topic %a --partition 0 --offset 3 --max-messages 2"),
    Case("console-consumer --timeout-ms 900 --topic %a --partition 0 --offset latest", slow=True),
    Case("console-consumer --timeout-ms 900 --topic %a --partition 0 --offset earliest", slow=True),
    Case("console-consumer --timeout-ms 900 --topic %a --partition 0 --offset 9999"),
    Case("console-consumer --timeout-ms 900 --topic %a --partition 7", slow=True),
    Case(
        "console-consumer --timeout-ms 900 --include '%(compact|three)' --from-beginning",
        ordered=False,
    ),
    Case(f"{CONSUME_IN_GROUP} %a --group %g --max-messages 3"),
    Case(f"{CONSUME_IN_GROUP} %a --group %g --max-messages 3"),
    Case(f"{CONSUME_REST_IN_GROUP} %a --group %g"),
    Case(f"{CONSUME_REST_IN_GROUP} %a --group %g", slow=True),
    Case(f"{CONSUME_IN_GROUP} %a --command-property group.id=%g2 --max-messages 2"),
    Case(f"{CONSUME_IN_GROUP} %a --group %g2 --max-messages 1"),
    Case("topics --delete --topic %.*"),
)

OFFSETS: Sequence[Case] = (
    Case("get-offsets", bootstrap=False),
    Case("get-offsets --topic %a", bootstrap=False),
    Case("get-offsets --topic %a --bootstrap-server x", bootstrap=False),
    Case("get-offsets --foo"),
    Case("get-offsets --topic %none"),
    Case("topics --create --topic %a --partitions 12 --config segment.bytes=1048576"),
    Case("topics --create --topic %b"),
    Case("get-offsets --topic %a"),
    Case("get-offsets --topic %b --time -3"),
    Case(f"{PRODUCE} %a --reader-property parse.key=true", b"a\t1\nb\t2\nc\t3\nd\t4\na\t5\n"),
    # A record a batch: the size of a batch depends on the time between its records.
    Case(f"{PRODUCE} %b --sync --timeout 0", b"1\n2\n3\n"),
    Case("get-offsets --topic %a"),
    Case("get-offsets --topic %.*"),
    Case("get-offsets --topic %a,%b --partitions 0,1"),
    Case("get-offsets --topic %a --partitions x"),
    Case("get-offsets --topic-partitions %a --topic %a"),
    Case("get-offsets --topic-partitions %a:3,%b:-1,%a:9-"),
    Case("get-offsets --topic-partitions %[ab]:0-2"),
    Case("get-offsets --topic-partitions %a:x"),
    Case("get-offsets --topic '['"),
    Case("get-offsets --topic %.* --time -1"),
    Case("get-offsets --topic %.* --time -2"),
    Case("get-offsets --topic %.* --time -4"),
    Case("get-offsets --topic %.* --time -5"),
    Case("get-offsets --topic %.* --time -6"),
    Case("get-offsets --topic %.* --time earliest"),
    Case("get-offsets --topic %.* --time 0"),
    Case("get-offsets --topic %.* --time 9999999999999"),
    Case("get-offsets --topic %.* --time soon"),
    Case("get-offsets --topic %.* --exclude-internal-topics"),
    Case("delete-records", bootstrap=False),
    Case("delete-records"),
    Case("delete-records --foo"),
    Case("delete-records --offset-json-file @delete.json", ordered=False),
    Case("get-offsets --topic %.* --time -2"),
    Case("delete-records --offset-json-file @delete-bad.json"),
    Case("delete-records --offset-json-file @delete-twice.json"),
    Case("delete-records --offset-json-file @delete-version.json"),
    Case("delete-records --offset-json-file @delete-empty.json"),
    Case("delete-records --offset-json-file @delete-no-offset.json"),
    Case("delete-records --offset-json-file @delete-types.json"),
    Case("delete-records --offset-json-file @topic.properties"),
    Case("log-dirs"),
    Case("log-dirs --describe", bootstrap=False),
    Case("log-dirs --foo"),
    Case("log-dirs --describe --topic-list %b"),
    Case("log-dirs --describe --topic-list %none --broker-list 1"),
    Case("log-dirs --describe --broker-list 1,5"),
    Case("log-dirs --describe --broker-list x"),
    Case("log-dirs --describe --topic-list seventeen"),
    Case("topics --describe --topic seventeen|same-.*"),
    Case("topics --list --topic seventeen|same-.*"),
    Case("topics --delete --topic %.*"),
)

CLUSTER: Sequence[Case] = (
    Case("cluster", bootstrap=False),
    Case("cluster cluster-id", bootstrap=False),
    Case("cluster nonsense"),
    Case("cluster cluster-id"),
    Case("cluster cluster-id --config @empty.properties"),
    Case("cluster cluster-id --config @empty.properties -c @empty.properties"),
    Case("cluster list-endpoints"),
    Case("cluster list-endpoints --include-fenced-brokers"),
    Case("cluster unregister"),
    Case("cluster unregister --id x"),
    Case("cluster unregister --id 9"),
    Case("cluster unregister-controller", newest=True),
    Case("cluster unregister-controller --id x", newest=True),
    Case("cluster unregister-controller --id 9", newest=True),
    Case("cluster api-versions", bootstrap=False, newest=True),
    Case("cluster api-versions --config @empty.properties", newest=True),
    Case("cluster api-versions", newest=True),
    Case("broker-api-versions", bootstrap=False),
    Case("broker-api-versions --foo"),
    Case("broker-api-versions", newest=True),
)

RESET = "consumer-groups --reset-offsets --group %g"

CONSUMER_GROUPS: Sequence[Case] = (
    Case("consumer-groups", bootstrap=False, newest=True),
    Case("consumer-groups --list", bootstrap=False),
    Case("consumer-groups --validate-regex a.*", bootstrap=False),
    Case("consumer-groups --group %g"),
    Case("consumer-groups --list --describe --group %g"),
    Case("consumer-groups --describe --group %g --members --state"),
    Case("consumer-groups --describe --group %g --state Stable"),
    Case("consumer-groups --delete --group %g --topic %a"),
    Case("consumer-groups --list --group %g"),
    Case("consumer-groups --describe --group %g --topic %a"),
    Case(f"{RESET} --topic %a --to-latest --execute --dry-run"),
    Case(f"{RESET} --topic %a --to-latest --to-earliest --execute"),
    Case(f"{RESET} --to-latest --dry-run"),
    Case("consumer-groups --describe --group %none"),
    Case("consumer-groups --describe --group %none --members"),
    Case("consumer-groups --describe --group %none --state"),
    Case("consumer-groups --delete --group %none"),
    Case("topics --create --topic %a --partitions 3"),
    Case("topics --create --topic %b"),
    Case(f"{PRODUCE} %a --reader-property parse.key=true", b"a\t1\nb\t2\nc\t3\nd\t4\na\t5\n"),
    Case(f"{PRODUCE} %b", b"1\n2\n3\n4\n5\n"),
    Case(f"{CONSUME_IN_GROUP} %b --group %g --max-messages 3"),
    Case("groups", bootstrap=False),
    Case("groups --list", bootstrap=False),
    Case("groups --consumer"),
    Case("groups --list --group-type nonsense"),
    Case("groups --list --group-type share"),
    Case("groups --list --share"),
    Case("groups --list --streams"),
    Case("groups --list --consumer --share"),
    Case("groups --list --streams --group-type classic"),
    Case("groups --list --protocol %none"),
    Case("consumer-groups --describe --group %g"),
    Case("consumer-groups --describe --group %g --offsets --verbose"),
    Case("consumer-groups --describe --group %g --members"),
    Case("consumer-groups --describe --group %g --members --verbose"),
    Case("consumer-groups --describe --group %g --state"),
    Case("consumer-groups --describe --group %g --state --verbose"),
    Case("consumer-groups --describe --group %g --group %none"),
    Case(f"{RESET} --topic %b --to-earliest"),
    Case(f"{RESET} --topic %b --to-earliest --dry-run"),
    Case(f"{RESET} --topic %b --to-earliest --execute"),
    Case("consumer-groups --describe --group %g"),
    Case(f"{RESET} --topic %a --to-latest --execute", ordered=False),
    Case("consumer-groups --describe --group %g --verbose"),
    Case(f"{RESET} --topic %b --to-offset 2 --execute"),
    Case(f"{RESET} --topic %b --to-offset 99 --execute", newest=True),
    Case(f"{RESET} --topic %b --to-offset x --execute"),
    Case(f"{RESET} --topic %b --shift-by -2 --execute"),
    Case(f"{RESET} --topic %b --shift-by -9 --dry-run", newest=True),
    Case(f"{RESET} --topic %b:0 --to-current --dry-run"),
    Case(f"{RESET} --topic %b:7 --to-current --dry-run"),
    Case(f"{RESET} --topic %b:x --to-current --dry-run"),
    Case(f"{RESET} --topic %b:0:1 --to-current --dry-run"),
    Case(f"{RESET} --topic %b --to-datetime 2020-01-01T00:00:00.000 --dry-run"),
    Case(f"{RESET} --topic %b --to-datetime 2099-01-01T00:00:00.000 --dry-run"),
    Case(f"{RESET} --topic %b --to-datetime 2020-01-01 --dry-run"),
    Case(f"{RESET} --topic %b --by-duration P1D --dry-run"),
    Case(f"{RESET} --topic %b --by-duration PT0S --dry-run"),
    Case(f"{RESET} --all-topics --to-earliest --dry-run", ordered=False),
    Case(f"{RESET} --topic %b --to-earliest --dry-run --export"),
    Case(f"{RESET} --all-topics --from-file @plan.csv --dry-run"),
    Case(f"{RESET} --all-topics --from-file @plan-of-other.csv --dry-run", newest=True),
    Case(
        "consumer-groups --reset-offsets --group %new --topic %b --to-latest --execute",
    ),
    Case("consumer-groups --reset-offsets --group %new --topic %a --shift-by 1 --execute"),
    Case("consumer-groups --describe --group %new"),
    Case("consumer-groups --delete-offsets --group %g --topic %b"),
    Case("consumer-groups --delete-offsets --group %g --topic %a:0,1"),
    Case("consumer-groups --delete-offsets --group %g --topic %b:7"),
    Case("consumer-groups --delete-offsets --group %none --topic %b"),
    Case("consumer-groups --describe --group %g"),
    Case("consumer-groups --delete --group %g"),
    Case("consumer-groups --delete --group %g --group %new", ordered=False),
    Case("topics --delete --topic %.*"),
)

TRANSACT = "transactions --bootstrap-server BROKER"

TRANSACTIONS: Sequence[Case] = (
    Case("transactions", bootstrap=False),
    Case("transactions list", bootstrap=False),
    Case(TRANSACT, bootstrap=False),
    Case(f"{TRANSACT} describe", bootstrap=False),
    Case(f"{TRANSACT} describe-producers --topic %a", bootstrap=False),
    Case(f"{TRANSACT} list", bootstrap=False),
    Case(f"{TRANSACT} list --transactional-id-pattern %.*", bootstrap=False),
    Case(f"{TRANSACT} describe --transactional-id %none", bootstrap=False),
    Case("topics --create --topic %a"),
    Case(f"{TRANSACT} describe-producers --topic %a --partition 0", bootstrap=False),
    Case(f"{PRODUCE} %a --request-required-acks 1", b"1\n"),
    Case(f"{TRANSACT} describe-producers --topic %a --partition 0", bootstrap=False),
    Case(f"{TRANSACT} abort --topic %a", bootstrap=False),
    Case(f"{TRANSACT} abort --topic %a --partition 0", bootstrap=False),
    Case(f"{TRANSACT} abort --topic %a --partition 0 --start-offset 7", bootstrap=False),
    Case(f"{TRANSACT} find-hanging", bootstrap=False),
    Case(f"{TRANSACT} find-hanging --partition 0", bootstrap=False),
    Case(f"{TRANSACT} find-hanging --topic %a", bootstrap=False),
    Case(f"{TRANSACT} find-hanging --topic %a --partition 0", bootstrap=False),
    Case(f"{TRANSACT} find-hanging --broker-id 1", bootstrap=False),
    Case(f"{TRANSACT} forceTerminateTransaction", bootstrap=False),
    Case("topics --delete --topic %a"),
)

QUORUM = "metadata-quorum --bootstrap-server BROKER"

METADATA_QUORUM: Sequence[Case] = (
    Case("metadata-quorum", bootstrap=False),
    Case("metadata-quorum describe --status", bootstrap=False),
    Case(QUORUM, bootstrap=False),
    Case(f"{QUORUM} --bootstrap-controller BROKER describe", bootstrap=False),
    Case(f"{QUORUM} rename", bootstrap=False),
    Case(f"{QUORUM} describe", bootstrap=False),
    Case(f"{QUORUM} describe --status --replication", bootstrap=False),
    Case(f"{QUORUM} describe --status --human-readable", bootstrap=False),
    Case(f"{QUORUM} describe --status", bootstrap=False),
    Case(f"{QUORUM} describe --replication", bootstrap=False),
    Case(f"{QUORUM} describe --replication --human-readable", bootstrap=False),
)

GROUPS: Mapping[str, Sequence[Case]] = {
    "topics": TOPICS,
    "configs": CONFIGS,
    "console": CONSOLE,
    "offsets": OFFSETS,
    "cluster": CLUSTER,
    "consumer-groups": CONSUMER_GROUPS,
    "transactions": TRANSACTIONS,
    "metadata-quorum": METADATA_QUORUM,
}


TOOLS_OF_FLAGS: Final = (
    "topics",
    "configs",
    "console-producer",
    "console-consumer",
    "get-offsets",
    "log-dirs",
    "delete-records",
    "consumer-groups",
    "groups",
    "broker-api-versions",
)
"""The tools whose `--help` is a table of all flags."""

KAFKA_PREFIX, OWN_PREFIX = "zqk", "zqc"

_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]", re.MULTILINE)
_TOPIC_ID = re.compile(r"(TopicId: )[\w-]{22}")
_FLAG = re.compile(r"^(?:\* )?--([a-z][\w.-]*)", re.MULTILINE)
_USAGE = re.compile(r"^(Option(?: \(\* = required\))? +Description|Usage: |usage: )")
_ASIDE = re.compile(
    r"The consumer rebalance protocol \(KIP-848\) is production-ready!"
    r"|\[TIME\] WARN .*The metadata response from the cluster reported a recoverable issue"
    r"|\[TIME\] WARN .*Got error produce response"
    r"|\[TIME\] ERROR .*Metadata response reported invalid topics"
)
# Of the metadata quorum, whose log grows all the time: offsets and times, and so widths of columns.
_HIGH_WATERMARK = re.compile(r"^(HighWatermark: +)\d+$", re.MULTILINE)
_REPLICAS = re.compile(r"^NodeId .*|^\d+ .*\t(?:Leader|Follower|Observer) *\t$", re.MULTILINE)
_NUMBER = re.compile(r"\b\d+( ms ago)?(?= *\t)")
_BLANKS = re.compile(r" *\t")
# The tool of groups says on stdout what the trace on stderr begins with.
_GROUPS_ERROR = "Error: Executing consumer group command failed"
_EXECUTION = re.compile(r"^java\.util\.concurrent\.ExecutionException: .*$", re.MULTILINE)
_LOGGED_CLASS = re.compile(r"(ERROR )[\w.$]+(?:Exception|Error): ")
_TRACE = re.compile(
    r"^(\tat |Caused by: |\t?\.\.\. \d+ more"
    r"|(?!java\.util\.concurrent\.ExecutionException)"
    r"(?:Exception in thread .*|java\.[\w.$]+|joptsimple\.[\w.$]+|net\.sourceforge\.[\w.$]+"
    r"|org\.apache\.kafka\.[\w.$]+|com\.fasterxml\.[\w.$]+)(?:Exception|Error|Invalid\w+|Regex\w+)"
    r"(?:: .*)?$)"
)


_READS: Final = re.compile(r" --(list|describe)\b")
_LOOKS_AGAIN: Final = 3
#: How long a consumer waits for a record, where both sides differ: each time longer.
_PATIENCE_MS: Final = (6_000, 60_000)
_TIMEOUT: Final = re.compile(r"(?<= --timeout-ms )\d+")
_IN_GROUP: Final = re.compile(r" --group | group\.id=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Output of both sides for a command line, made comparable."""

    case: Case
    kafka: ToolResult
    own: ToolResult

    @property
    def is_equal(self) -> bool:
        """True if exit code and all that was printed agree, but for the code after lost records."""
        if self.case.is_lossy:
            codes = (self.kafka.code, self.own.code)
            return codes == (0, 1) and self.kafka == self.own._replace(code=0)
        return self.kafka == self.own

    def __str__(self) -> str:
        sides = (("Kafka", self.kafka), ("Cordwood", self.own))
        return f"$ {self.case.line}\n" + "\n".join(
            f"--- {name}: exit code {said.code}\n{said.out}--- {name}, stderr:\n{said.err}"
            for name, said in sides
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides, a broker, and the files that command lines name."""

    tools: KafkaTools
    bootstrap: str
    files: Mapping[str, Path]
    tag: str = ""

    def set_up(self) -> None:
        """Makes what there is before all rows."""
        for line in SETUP:
            tool, *args = shlex.split(line)
            done = self.tools.run(tool, *args, "--bootstrap-server", self.bootstrap)
            assert done.code == 0, done.out + done.err
        wait_until_applied(int(self.bootstrap.rpartition(":")[2]))

    def compare(self, case: Case) -> Comparison:
        """Runs one row on both sides.

        What a row changes is applied by the broker before the next row runs. A row that changes
        nothing is run again on both sides while they differ: each side has changed its own topics.
        So is a consumer without a group, with more time: it ends when no record has come for its
        time-out, which on a busy machine may be before the first.
        """
        compared = self._compare_once(case)
        for again in _again(case):
            if compared.is_equal:
                break
            compared = self._compare_once(again)
        return compared

    def _compare_once(self, case: Case) -> Comparison:
        # A consumer waits until no record has come for its time-out: the two wait side by side.
        if case.line.startswith("console-"):
            with ThreadPoolExecutor(1) as beside:
                kafka = beside.submit(self._kafka, case)
                compared = Comparison(case=case, own=self._own(case), kafka=kafka.result())
        else:
            compared = Comparison(case=case, kafka=self._kafka(case), own=self._own(case))
        if changes_metadata(case.line):
            wait_until_applied(int(self.bootstrap.rpartition(":")[2]))
        return compared

    def _kafka(self, case: Case) -> ToolResult:
        prefix = KAFKA_PREFIX + self.tag
        tool, *args = self._words(case, prefix)
        said = self.tools.run(tool, *args, stdin=_own_names(case.stdin, prefix))
        return comparable(said, prefix, ordered=case.ordered)

    def _own(self, case: Case) -> ToolResult:
        prefix = OWN_PREFIX + self.tag
        tool, *args = self._words(case, prefix)
        said = own_tools(tool, args, _own_names(case.stdin, prefix))
        return comparable(said, prefix, ordered=case.ordered)

    def _words(self, case: Case, prefix: str) -> list[str]:
        words = []
        for word in shlex.split(case.line):
            file = self.files.get(word.removeprefix("@")) if word.startswith("@") else None
            if file is not None:
                own = file.with_name(f"{prefix}-{file.name}")
                own.write_bytes(_own_names(file.read_bytes(), prefix))
                words.append(str(own))
            elif word == "BROKER":
                words.append(self.bootstrap)
            else:
                words.append(word.replace("%", prefix))
        if case.bootstrap:
            words += ["--bootstrap-server", self.bootstrap]
        return words


def _again(case: Case) -> list[Case]:
    """The rows to run while the sides differ."""
    if _READS.search(case.line):
        return [case] * _LOOKS_AGAIN
    if _IN_GROUP.search(case.line) or not _TIMEOUT.search(case.line):
        return []
    return [case._replace(line=_TIMEOUT.sub(str(ms), case.line)) for ms in _PATIENCE_MS]


def _own_names(data: bytes, prefix: str) -> bytes:
    return data.replace(b"%", prefix.encode())


def comparable(said: ToolResult, prefix: str, *, ordered: bool) -> ToolResult:
    """The output of a side without parts that may differ."""
    out = _TOPIC_ID.sub(r"\1ID", said.out.replace(prefix, "%"))
    out = _REPLICAS.sub(_without_offsets, _HIGH_WATERMARK.sub(r"\1N", out))
    if not ordered:
        out = "\n".join(sorted(out.splitlines()))
    err = _errors(said.err.replace(prefix, "%"))
    if _GROUPS_ERROR in out:
        err = _EXECUTION.sub("", err).strip("\n")
    return ToolResult(said.code, out, err)


def _without_offsets(row: re.Match[str]) -> str:
    """A row of kafka-metadata-quorum, or its header: the node's id is all of its numbers."""
    first, _, rest = row[0].partition("\t")
    return _BLANKS.sub("\t", f"{first}\t{_NUMBER.sub('N', rest)}")


def _errors(text: str) -> str:
    lines = []
    text = re.sub(r"adminclient-\d+", "adminclient-N", text)
    for line in _STAMP.sub("[TIME]", text).splitlines():
        if _USAGE.match(line):
            break
        if line and not _TRACE.match(line) and not _ASIDE.match(line):
            lines.append(_LOGGED_CLASS.sub(r"\1", line))
    return "\n".join(lines)


pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]


@pytest.fixture(
    scope="module", params=[KAFKA_4_4, pytest.param(KAFKA_4_3, marks=pytest.mark.nightly)]
)
def sides(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sides]:
    version: str = request.param
    root = tmp_path_factory.mktemp("tools")
    files = {name: root / name for name in FILES}
    for name, path in files.items():
        path.write_text(FILES[name])
    with KafkaTools(version) as tools, RealKafka(root / "kafka", version=version) as kafka:
        kafka.start()
        sides = Sides(tools=tools, bootstrap=kafka.bootstrap_servers, files=files)
        sides.set_up()
        yield sides


@pytest.mark.parametrize("group", GROUPS)
def test_tools_answer_as_kafkas_do(sides: Sides, group: str) -> None:
    _compare(sides, [case for case in GROUPS[group] if not case.slow])


@pytest.mark.nightly
@pytest.mark.parametrize("group", GROUPS)
def test_tools_answer_as_kafkas_do_in_all_rows(sides: Sides, group: str) -> None:
    _compare(replace(sides, tag="all"), GROUPS[group])


@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_the_tools_of_a_version_share_a_virtual_machine(version: str) -> None:
    with KafkaTools(version) as tools:
        said = [tools.run("topics", *words) for words in (["--version"], ["--bogus"])]
        assert tools.started == 1
    assert [each.code for each in said] == [0, 1]
    assert version in said[0].out
    assert "bogus is not a recognized option" in said[1].err


@pytest.mark.parametrize("tool", TOOLS_OF_FLAGS)
def test_every_flag_of_kafkas_tool_is_known(tools_4_4: KafkaTools, tool: str) -> None:
    said = tools_4_4.run(tool, "--help")
    flags = set(_FLAG.findall(said.out + said.err))
    assert "bootstrap-server" in flags
    assert flags <= {option.name for option in options(tool)}


def _compare(sides: Sides, cases: Sequence[Case]) -> None:
    is_newest = sides.tools.version == KAFKA_4_4
    compared = [sides.compare(case) for case in cases if is_newest or not case.newest]
    different = [str(one) for one in compared if not one.is_equal]
    assert not different, "\n\n".join(different)

"""Groups that expire beside running ones, until Spark has compacted the last trace of them away.

Seen by Kafka's own tools: its consumer groups command, and its dump of the offsets' log.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cordwood.queries.http_client import ask
from cordwood.surfaces.cli.dump_log import dump_log
from support.kafka import poll_until
from support.kafka_tools import KafkaTools
from support.served import ServedBroker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("kafka_jars")]

TOPIC = "prices"
RECORDS = 20
PROTOCOLS = ("classic", "consumer")
EXPIRING = {f"expiring-{protocol}" for protocol in PROTOCOLS}
RUNNING = {f"running-{protocol}" for protocol in PROTOCOLS}
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
RETENTION_MS = 7 * DAY_MS
CHECK_MS = 10 * MINUTE_MS
SEGMENT_MS = HOUR_MS
DELETE_RETENTION_MS = DAY_MS
PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "offsets.retention.minutes": str(RETENTION_MS // MINUTE_MS),
    "offsets.retention.check.interval.ms": str(CHECK_MS),
    "log.roll.ms": str(SEGMENT_MS),
    "log.cleaner.delete.retention.ms": str(DELETE_RETENTION_MS),
    "log.cleaner.min.cleanable.ratio": "0.01",
    # The log is compacted when the clock has been moved, and not while a tool reads its files.
    "log.cleaner.backoff.ms": str(HOUR_MS),
    # The records of the topic are older than all retention when the clock has been moved.
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
}
_PAUSE_S = 0.05
_WAIT_S = 180
#: A record in Kafka's dump: the type of its key, its group, and the value.
_RECORD = re.compile(
    r'^\| .* key: {"type":"(\d+)","data":{"group(?:Id)?":"([^"]+)".* payload: (.*)$', re.MULTILINE
)
_COMMIT, _CLASSIC_GROUP, _CONSUMER_GROUP = "1", "2", "3"


class Live:
    """A member that commits higher and higher offsets; stays while the broker is restarted."""

    def __init__(self, servers: str, protocol: str) -> None:
        self.group = f"running-{protocol}"
        self.accepted = 0
        self._still = threading.Lock()
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": self.group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=self.group, daemon=True)

    def __enter__(self) -> Self:
        self._consumer.subscribe([TOPIC])
        self._thread.start()
        self.commits_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def commits_more(self) -> None:
        """Returns when the broker has accepted a commit that was sent after this call."""
        before = self.accepted
        poll_until(
            # The one that is under way may have been sent before.
            lambda: self.accepted >= before + 2,
            timeout_s=_WAIT_S,
            what=f"commits of {self.group}",
        )

    @contextmanager
    def still(self) -> Iterator[int]:
        """A block without commits; its value is the last committed offset."""
        with self._still:
            poll_until(self._commit, timeout_s=_WAIT_S, what=f"a commit of {self.group}")
            yield self.accepted

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE_S):
            with self._still:
                self._consumer.poll(0)
                self._commit()

    def _commit(self) -> bool:
        wanted = [TopicPartition(TOPIC, 0, self.accepted + 1)]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return False  # not a member yet, or the broker is away: the same offset again
        if any(each.error is not None for each in done):
            return False
        self.accepted += 1
        return True


#: The offset of each group that expires, and the group itself.
EXPIRED_KEYS = {
    *((group, _COMMIT) for group in EXPIRING),
    ("expiring-classic", _CLASSIC_GROUP),
    ("expiring-consumer", _CONSUMER_GROUP),
}


class Dump(NamedTuple):
    """The keys, as in `EXPIRED_KEYS`, of records of groups that expire."""

    values: set[tuple[str, str]]
    tombstones: set[tuple[str, str]]


class Case:
    """The broker, the running groups, and Kafka's tools."""

    def __init__(self, broker: ServedBroker, tools: KafkaTools, live: list[Live]) -> None:
        self.broker = broker
        self.tools = tools
        self.live = live

    def tool(self, name: str, *args: str, stdin: bytes = b"") -> str:
        servers = ("--bootstrap-server", self.broker.bootstrap_servers)
        said = self.tools.run(name, *servers, *args, stdin=stdin)
        assert said.code == 0, said
        return said.out

    def listed(self) -> set[str]:
        return set(self.tool("consumer-groups", "--list").split())

    def described(self) -> dict[str, int]:
        """The committed offset of each group."""
        out = self.tool("consumer-groups", "--describe", "--all-groups")
        rows = [line.split() for line in out.splitlines()]
        return {row[0]: int(row[3]) for row in rows if row[1:3] == [TOPIC, "0"] and row[3] != "-"}

    def newest_commits_are_described(self) -> dict[str, int]:
        """The same, of a moment without commits; the running groups have their newest."""
        with ExitStack() as stack:
            newest = {each.group: stack.enter_context(each.still()) for each in self.live}
            found = self.described()
        assert {group: found[group] for group in RUNNING} == newest
        return found

    def move_clock(self, ms: int, *, compact: bool) -> None:
        ask(self.broker.url, f"/clock/advance?ms={ms}&wait={str(compact).lower()}", "POST")

    def roll_and_compact(self) -> int:
        """The next commits roll the segment, which is compacted.

        Returns how many commits each group made meanwhile, at least.
        """
        self.move_clock(SEGMENT_MS + MINUTE_MS, compact=False)
        for each in self.live:
            each.commits_more()
        before = [each.accepted for each in self.live]
        self.move_clock(MINUTE_MS, compact=True)
        return min(
            each.accepted - accepted for each, accepted in zip(self.live, before, strict=True)
        )

    def dump(self, capsys: pytest.CaptureFixture[bytes]) -> Dump:
        """The findings of Kafka's tool in the log; ours prints the same.

        The newest commit of each running group is there.
        """
        with ExitStack() as stack:
            newest = {each.group: stack.enter_context(each.still()) for each in self.live}
            logs = sorted((self.broker.log_dir / "__consumer_offsets-0").glob("*.log"))
            args = ("--offsets-decoder", "--files", ",".join(str(log) for log in logs))
            theirs = self.tools.run("dump-log", *args)
            capsys.readouterr()
            assert dump_log(list(args)) == theirs.code == 0
        ours = capsys.readouterr()
        assert (ours.out.decode(), ours.err.decode()) == (theirs.out, theirs.err)
        values: set[tuple[str, str]] = set()
        tombstones: set[tuple[str, str]] = set()
        commits: dict[str, int] = {}
        for kind, group, payload in _RECORD.findall(theirs.out):
            (tombstones if payload == "<DELETE>" else values).add((group, kind))
            if kind == _COMMIT and group in RUNNING:
                commits[group] = json.loads(payload)["data"]["offset"]
        assert commits == newest
        return Dump(*({key for key in keys if key[0] in EXPIRING} for keys in (values, tombstones)))


@pytest.fixture
def case(tmp_path: Path, tools: KafkaTools) -> Iterator[Case]:
    """Groups of both protocols: empty ones with an offset, and running ones."""
    with ExitStack() as stack:
        broker = stack.enter_context(ServedBroker(tmp_path / "logs", PROPERTIES))
        case = Case(broker, tools, [])
        case.tool("topics", "--create", "--topic", TOPIC)
        case.tool("console-producer", "--topic", TOPIC, stdin=b"1.5\n" * RECORDS)
        for protocol in PROTOCOLS:
            case.tool(
                *("console-consumer", "--topic", TOPIC, "--from-beginning"),
                *("--max-messages", str(RECORDS), "--group", f"expiring-{protocol}"),
                *("--command-property", f"group.protocol={protocol}"),
            )
        case.live += [
            stack.enter_context(Live(broker.bootstrap_servers, protocol)) for protocol in PROTOCOLS
        ]
        yield case


def test_expired_groups_leave_tombstones_that_spark_compacts_away_beside_running_groups(
    case: Case, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert case.newest_commits_are_described().keys() == EXPIRING | RUNNING
    case.move_clock(RETENTION_MS - HOUR_MS, compact=False)
    found = case.newest_commits_are_described()
    assert {group: found.get(group) for group in EXPIRING} == dict.fromkeys(EXPIRING, RECORDS)
    first = case.dump(capsysbinary)
    assert first.values >= EXPIRED_KEYS
    assert not first.tombstones & EXPIRED_KEYS

    case.move_clock(HOUR_MS + CHECK_MS, compact=False)
    assert case.newest_commits_are_described().keys() == RUNNING
    assert case.listed() == RUNNING
    expired = case.dump(capsysbinary)
    assert expired.values >= EXPIRED_KEYS
    assert expired.tombstones >= EXPIRED_KEYS

    meanwhile = case.roll_and_compact()
    assert meanwhile > 0, "the running groups committed while Spark started and compacted"
    assert ask(case.broker.url, "/cleaner")["engine"]["pid"], "Spark has compacted it"
    compacted = case.dump(capsysbinary)
    assert compacted.values == set()
    assert compacted.tombstones >= EXPIRED_KEYS

    case.move_clock(DELETE_RETENTION_MS, compact=False)
    case.roll_and_compact()
    assert case.dump(capsysbinary) == Dump(values=set(), tombstones=set())
    newest = case.newest_commits_are_described()
    assert newest.keys() == RUNNING

    assert case.broker.stop() == 0
    case.broker.start()
    again = case.newest_commits_are_described()
    assert again.keys() == case.listed() == RUNNING
    assert all(again[group] > newest[group] for group in RUNNING)

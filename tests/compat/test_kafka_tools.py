"""The tools of Kafka 4.4 print the same at a real Kafka 4.4 and at Cordwood."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from cordwood.testing.broker import RunningBroker
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.side_by_side import (
    Line,
    Station,
    kafkas_tools,
    run_lines,
    same_properties,
)

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

B: Final = "--bootstrap-server {broker}"
RECORDS: Final = b"".join(b"k%d:value %d\n" % (i % 5, i) for i in range(20))
KEYED: Final = "--reader-property parse.key=true --reader-property key.separator=:"
#: By default a request is given up after 1.5 s, and sent again with a warning.
PRODUCE: Final = "console-producer --request-timeout-ms 60000"
#: A consumer commits when it ends, and not as often as it takes five seconds: the sizes of the
#: offsets' topic are compared.
IN_GROUP: Final = "--command-property auto.commit.interval.ms=3600000 --group"
COUNTED: Final = ((r"\d+(\.\d+)?", "<number>"),)
QUORUM: Final = (
    (r"((?:LeaderEpoch|HighWatermark|LogEndOffset|Lag|MaxFollower\w+): +)-?\d+", r"\1<number>"),
    (r"^(\d+\s+\S+)\s+\d+\s+\d+\s+\d+\s+\d+", r"\1 <numbers>"),
    (r"CurrentVoters: .*", "CurrentVoters: <voters>"),
    (r"CurrentObservers: .*", "CurrentObservers: <observers>"),
    (r"[\w-]{22}", "<id>"),
    (r" +|\t+", " "),
)
PLACE: Final = ((r"^  (?:advertised\.)?listeners=.*\n|^  controller\.quorum\.voters=.*\n", ""),)
#: The real Kafka's quorum is one of the old kind: its voters are in its settings.
#: Features of which no level is served are not advertised: groups of later kinds.
FEATURES: Final = (
    (r"Epoch: \d+", ""),
    (r"(kraft.version.*Level:) \d", r"\1 <number>"),
    (r"Feature: (?:share|streams)\.version .*\n", ""),
)
IDS: Final = ((r"\b[\w-]{22}\b", "<id>"), (r"[ \t]+", " "))

LINES: Final = (
    Line(f"topics --create --topic plain --partitions 2 {B}"),
    Line(f"topics --create --topic dense --partitions 1 --config cleanup.policy=compact {B}"),
    Line(f"topics --create --topic stamped --config message.timestamp.type=LogAppendTime {B}"),
    Line(f"topics --create --topic plain {B}"),
    Line(f"topics --create --topic plain --if-not-exists {B}"),
    Line(f"topics --create --topic bad/name {B}"),
    Line(f"topics --create --topic many --replication-factor 3 {B}"),
    Line(f"topics --create --topic odd --config no.such=1 {B}"),
    Line(f"topics --create --topic placed --replica-assignment 1,1,1 {B}"),
    Line(f"topics --list {B}"),
    Line(f"topics --describe {B}", ordered=False),
    Line(f"topics --describe --topic dense {B}"),
    Line(f"topics --describe --topics-with-overrides {B}", ordered=False),
    Line(f"topics --describe --under-replicated-partitions {B}"),
    Line(f"topics --describe --unavailable-partitions {B}"),
    Line(f"topics --describe --topic none {B}"),
    Line(f"topics --alter --topic placed --partitions 4 {B}"),
    Line(f"topics --alter --topic placed --partitions 2 {B}"),
    # A record a batch: the size of a batch depends on the time between its records.
    Line(
        f"{PRODUCE} --topic dense --sync --timeout 0 {KEYED} {B}",
        stdin=RECORDS,
    ),
    Line(
        f"{PRODUCE} --topic stamped --sync --timeout 0 {KEYED} {B}",
        stdin=RECORDS,
    ),
    Line(f"{PRODUCE} --topic plain {KEYED} {B}", stdin=b"a:1\n"),
    Line(
        f"console-consumer --topic dense --from-beginning --max-messages 20 {IN_GROUP} first"
        f" --formatter-property print.key=true --formatter-property print.offset=true"
        f" --formatter-property print.partition=true --formatter-property print.headers=true {B}"
    ),
    Line(f"console-consumer --topic dense --partition 0 --offset 15 --max-messages 5 {B}"),
    *(
        Line(f"get-offsets {time} {B}", ordered=False)
        for time in (
            "",
            "--topic dense",
            "--topic dense --time latest",
            "--topic dense --time earliest",
            "--topic plain --time max-timestamp",
            "--topic dense --time earliest-local",
            "--topic dense --time latest-tiered",
            "--topic dense --time -1",
            "--topic dense --time -2",
            "--topic plain --time -3",
            "--topic dense --time 0",
            "--topic dense --time 99999999999999",
            "--topic dense --time nonsense",
            "--topic-partitions dense:0,plain:0-2",
            "--topic dense --partitions 0,7",
            "--topic none",
            "--exclude-internal-topics",
        )
    ),
    Line(f"log-dirs --describe {B}", ordered=False),
    Line(f"log-dirs --describe --topic-list dense,none {B}"),
    Line(f"log-dirs --describe --broker-list 1,2 {B}"),
    Line(f"cluster cluster-id {B}"),
    Line(f"cluster list-endpoints {B}", changes=((r"127.0.0.1 \d+ +", "<broker> "),)),
    Line(f"cluster unregister --id 9 {B}"),
    Line(f"delete-records --offset-json-file {{logs}}/../delete.json {B}", ordered=False),
    Line(f"delete-records --offset-json-file {{logs}}/../bad.json {B}", ordered=False),
    Line(f"get-offsets --topic plain --time earliest {B} --partitions 0"),
    Line(f"configs --describe --all --topic dense {B}"),
    Line(f"configs --describe --topic dense {B}"),
    Line(f"configs --describe --all --broker 1 {B}", changes=PLACE),
    Line(f"configs --describe --broker 1 {B}"),
    Line(f"configs --describe --broker-defaults {B}"),
    Line(f"configs --alter --broker 1 --add-config log.cleaner.threads=2 {B}"),
    Line(f"configs --alter --broker-defaults --add-config log.retention.ms=700000000 {B}"),
    Line(f"configs --describe --broker 1 --all {B}", changes=PLACE),
    Line(f"configs --alter --broker 1 --add-config log.dirs=/x {B}"),
    Line(f"configs --alter --topic dense --add-config retention.ms=5,segment.ms=7 {B}"),
    Line(f"configs --alter --topic dense --add-config retention.ms=abc {B}"),
    Line(f"configs --alter --topic dense --delete-config retention.ms,segment.ms {B}"),
    Line(f"configs --describe --topic dense {B}"),
    Line(
        f"configs --alter --entity-type users --entity-name a --add-config"
        f" producer_byte_rate=1000000 {B}"
    ),
    Line(f"configs --describe --entity-type users {B}"),
    Line(f"configs --describe --entity-type clients --entity-default {B}"),
    Line(f"consumer-groups --list {B}"),
    Line(
        f"console-consumer --topic dense --from-beginning --max-messages 20 {IN_GROUP} readers {B}"
    ),
    Line(f"consumer-groups --list {B}"),
    Line(f"consumer-groups --list --state {B}"),
    Line(f"consumer-groups --describe --group readers {B}"),
    Line(f"consumer-groups --describe --group readers --state {B}"),
    Line(f"consumer-groups --describe --group readers --members {B}"),
    Line(f"consumer-groups --describe --group none {B}"),
    Line(
        f"consumer-groups --reset-offsets --group readers --topic dense --to-offset 3 --execute {B}"
    ),
    Line(f"consumer-groups --reset-offsets --group readers --topic dense --to-earliest {B}"),
    Line(f"consumer-groups --delete-offsets --group readers --topic dense {B}"),
    Line(f"consumer-groups --delete --group readers {B}"),
    Line(f"consumer-groups --delete --group readers {B}"),
    Line(f"org.apache.kafka.tools.FeatureCommand {B} describe", changes=FEATURES),
    Line(f"org.apache.kafka.tools.MetadataQuorumCommand {B} describe --status", changes=QUORUM),
    Line(
        f"org.apache.kafka.tools.MetadataQuorumCommand {B} describe --replication",
        changes=QUORUM,
    ),
    Line(
        f"org.apache.kafka.tools.LeaderElectionCommand {B} --election-type preferred"
        " --all-topic-partitions"
    ),
    Line(
        f"org.apache.kafka.tools.LeaderElectionCommand {B} --election-type unclean"
        " --topic dense --partition 0"
    ),
    Line(
        f"org.apache.kafka.tools.LeaderElectionCommand {B} --election-type preferred"
        " --topic none --partition 0"
    ),
    Line(f"org.apache.kafka.tools.reassign.ReassignPartitionsCommand {B} --list"),
    Line(
        f"org.apache.kafka.tools.reassign.ReassignPartitionsCommand {B} --verify"
        " --reassignment-json-file {logs}/../reassign.json"
    ),
    Line(
        f"org.apache.kafka.tools.reassign.ReassignPartitionsCommand {B} --execute"
        " --reassignment-json-file {logs}/../reassign.json"
    ),
    Line(f"org.apache.kafka.tools.ClientMetricsCommand {B} --list"),
    Line(
        f"org.apache.kafka.tools.ClientMetricsCommand {B} --alter --name m --metrics"
        " org.apache.kafka.producer. --interval 60000"
    ),
    Line(f"org.apache.kafka.tools.ClientMetricsCommand {B} --describe --name m"),
    Line(f"org.apache.kafka.tools.ClientMetricsCommand {B} --list"),
    Line(f"org.apache.kafka.tools.ClientMetricsCommand {B} --delete --name m"),
    Line(f"org.apache.kafka.tools.GroupsCommand {B} --list"),
    Line(
        f"org.apache.kafka.tools.VerifiableProducer {B} --topic plain --max-messages 10"
        " --acks -1 --value-prefix 1 --repeating-keys 3",
        changes=((r'"avg_throughput":[\d.]+', ""), (r'"partition":\d,?', "")),
        ordered=False,
    ),
    Line(
        f"org.apache.kafka.tools.VerifiableConsumer {B} --topic plain --group-id verifiers"
        " --max-messages 10 --reset-policy earliest",
        changes=((r'"(?:count|minOffset|maxOffset|offset)":\d+', ""),),
        ordered=False,
    ),
    Line(
        "producer-perf-test --topic plain --num-records 500 --record-size 100"
        " --throughput -1 --producer-props bootstrap.servers={broker} acks=-1",
        changes=((r"\d+(?:\.\d+)?(?= records/sec| MB/sec| ms)", "<number>"),),
    ),
    Line(f"transactions list {B}", changes=IDS),
    Line(f"transactions describe-producers --topic dense --partition 0 {B}", changes=IDS),
    Line(f"topics --delete --topic placed {B}"),
    Line(f"topics --delete --topic placed {B}"),
    Line(f"topics --delete --topic placed --if-exists {B}"),
    Line(f"topics --list {B}"),
)
FILES: Final = {
    "delete.json": '{"partitions": [{"topic": "plain", "partition": 0, "offset": -1},'
    ' {"topic": "stamped", "partition": 0, "offset": 7}], "version": 1}',
    "bad.json": '{"partitions": [{"topic": "dense", "partition": 0, "offset": 3},'
    ' {"topic": "stamped", "partition": 0, "offset": 700}], "version": 1}',
    "reassign.json": '{"partitions": [{"topic": "plain", "partition": 0, "replicas": [1]}],'
    ' "version": 1}',
}
VERSIONS: Final = Line(f"broker-api-versions {B}")


def with_files(logs: Path) -> Path:
    for name, text in FILES.items():
        (logs.parent / name).write_text(text)
    return logs


@pytest.fixture(scope="module")
def stations(
    tmp_path_factory: pytest.TempPathFactory, tools_4_4: KafkaTools
) -> tuple[Station, Station]:
    """Runs all commands at both."""
    root = tmp_path_factory.mktemp("tools")
    lines = list(dict.fromkeys((*numbered(LINES), VERSIONS)))
    with RealKafka(root / "kafka", version=KAFKA_4_4, release="4.3") as kafka:
        kafka.start_without_cleaning()
        one = Station("Kafka", kafka.bootstrap_servers, with_files(kafka.log_dirs[0]))
        run_lines(one, lines, kafkas_tools(tools_4_4))
        properties = same_properties(kafka)
        kafka.stop()
        logs = root / "cordwood" / "data"
        logs.mkdir(parents=True)
        with RunningBroker(properties, log_dir=logs) as running:
            other = Station("Cordwood", running.bootstrap_servers, with_files(logs))
            run_lines(other, lines, kafkas_tools(tools_4_4))
    return one, other


def numbered(lines: tuple[Line, ...]) -> list[Line]:
    """The commands, those that come again with more blanks at the end."""
    seen: dict[str, int] = {}
    result = []
    for line in lines:
        seen[line.text] = seen.get(line.text, -1) + 1
        result.append(line._replace(text=line.text + " " * seen[line.text]))
    return result


@pytest.mark.parametrize("line", numbered(LINES), ids=lambda line: line.text[:90])
def test_a_tool_says_the_same_at_both(stations: tuple[Station, Station], line: Line) -> None:
    kafka, cordwood = stations
    assert cordwood.said[line.text] == kafka.said[line.text]


def versions_of(said: str) -> dict[str, str]:
    found = re.findall(r"^\t(\w+)\((\d+)\): ([^\[,\n]+)", said, re.MULTILINE)
    return {f"{name}({key})": versions.strip() for name, key, versions in found}


def not_served() -> set[str]:
    """The APIs that the page says are not served."""
    page = (Path(__file__).parents[2] / "docs" / "apis.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", page.partition("## Not served")[2], re.MULTILINE)
    return {f"{name}({key})" for key, name in rows}


def test_the_versions_advertised_are_kafkas(stations: tuple[Station, Station]) -> None:
    kafka, cordwood = (versions_of(station.said[VERSIONS.text].out) for station in stations)
    assert len(kafka) > 60
    differing = {api for api, versions in kafka.items() if cordwood.get(api) != versions}
    assert differing - not_served() == set()
    assert {cordwood[api] for api in differing} == {"UNSUPPORTED"}

"""Each tool on a running broker: what it does, its JSON, and its words when it cannot.

What the tools print is compared with Kafka's, row by row, in tests/compat/test_tools_kafka.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from cordwood import __version__
from cordwood.broker.broker import Broker
from cordwood.format.record_batch import Record, build_batch
from cordwood.surfaces.cli.tools import configs
from cordwood.surfaces.cli.tools.config_texts import parse_added, split_settings
from cordwood.surfaces.cli.tools.table import TOOLS
from cordwood.surfaces.cli.tools.topics import parse_configs
from cordwood.testing.broker import RunningBroker
from support.ports import free_port

Run = Callable[..., Any]

# These have commands, and show a short usage as Kafka's do.
WITH_COMMANDS = ("cluster", "features", "metadata-quorum", "storage", "transactions")
PLAIN = [tool for tool in TOOLS if tool not in WITH_COMMANDS]


def document(said: Any) -> Any:
    assert said.code == 0, said.err
    return json.loads(said.out)


@pytest.mark.parametrize("tool", TOOLS)
def test_help_names_each_flag_and_shows_examples(run_alone: Run, tool: str) -> None:
    said = run_alone(f"{tool} --help")
    assert (said.code, said.err) == (0, "")
    assert f"Usage: cordwood {tool} [OPTION]..." in said.out
    assert f"Examples:\n  cordwood {tool} " in said.out
    assert "--json" in said.out
    assert all(len(line) <= 100 for line in said.out.splitlines())


@pytest.mark.parametrize("tool", TOOLS)
def test_version_is_cordwoods(run_alone: Run, tool: str) -> None:
    assert run_alone(f"{tool} --version").out == f"{__version__}\n"


@pytest.mark.parametrize("tool", PLAIN)
def test_without_flags_the_usage_is_shown(run_alone: Run, tool: str) -> None:
    said = run_alone(tool)
    assert (said.code, said.out) == (1, "")
    assert f"Usage: cordwood {tool}" in said.err


@pytest.mark.parametrize("tool", PLAIN)
def test_an_unknown_flag_is_told(run_alone: Run, tool: str) -> None:
    said = run_alone(f"{tool} --foo")
    assert said.code == 1
    assert "foo is not a recognized option" in said.err.splitlines()[0]


@pytest.mark.parametrize("tool", sorted({*WITH_COMMANDS} - {"features"}))
def test_a_tool_with_commands_shows_a_short_usage(run_alone: Run, tool: str) -> None:
    said = run_alone(tool)
    assert (said.code, said.out) == (1, "")
    usage, error = said.err.splitlines()
    assert usage.startswith(f"usage: cordwood {tool} ")
    assert error == f"cordwood {tool}: error: too few arguments"


def test_features_says_what_is_wrong_in_one_line_as_kafkas_tool(run_alone: Run) -> None:
    said = run_alone("features")
    assert (said.code, said.out) == (1, "")
    assert said.err == "Command line error: too few arguments. Type --help for help.\n"


def test_a_broker_that_is_not_there_is_told_in_kafkas_words(run_alone: Run, tmp_path: Path) -> None:
    quick = tmp_path / "quick.properties"
    quick.write_text("default.api.timeout.ms=50\n")
    address = f"127.0.0.1:{free_port()}"
    said = run_alone(f"topics --list --bootstrap-server {address} --command-config {quick}")
    assert said.code == 1
    assert said.out == (
        "Error while executing topic command : Timed out waiting for a node assignment. Call: "
        "listTopics\n"
    )
    assert f"(/{address}) could not be established. Node may not be available." in said.err


def test_a_dead_port_is_told_within_two_seconds(run_alone: Run) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = run_alone(f"topics --list --bootstrap-server {address}")
    assert said.code == 1
    assert f"no broker listens at {address}: the connection is refused" in said.out
    assert f"cordwood serve --port {address.rpartition(':')[2]}" in said.out
    # A second of refusals, each with Kafka's warning; a minute has more than sixty.
    assert 3 <= said.err.count("could not be established") < 12


def test_durations_and_sizes_are_sent_as_kafka_takes_them() -> None:
    texts = split_settings("retention.ms=1d,retention.bytes=10GB,cleanup.policy=[compact,delete]")
    options = configs.USAGE.parse(["--add-config", "retention.ms=7d,segment.bytes=1M"])
    assert parse_added(options) == {"retention.ms": "604800000", "segment.bytes": "1048576"}
    assert texts["retention.ms"] == "1d", "only what is set is changed"
    assert parse_configs(["retention.ms=12h", "cleanup.policy=compact"]) == {
        "retention.ms": "43200000",
        "cleanup.policy": "compact",
    }


def test_other_security_than_none_is_refused(run_alone: Run, tmp_path: Path) -> None:
    secure = tmp_path / "secure.properties"
    secure.write_text("security.protocol=SASL_SSL\n")
    said = run_alone(f"topics --list --bootstrap-server a:1 --command-config {secure}")
    assert said.code == 1
    assert said.err == "security.protocol=SASL_SSL: SASL_SSL is not supported: use PLAINTEXT\n"


def test_a_file_that_is_not_there_is_told(run_alone: Run) -> None:
    said = run_alone("topics --list --bootstrap-server a:1 --command-config /no/such/file")
    assert (said.code, said.err) == (1, "/no/such/file (No such file or directory)\n")


def test_topics(run: Run) -> None:
    assert document(run("topics -B --create --topic t --partitions 2 --json")) == {"created": "t"}
    assert document(run("topics -B --list --topic t --json")) == {"topics": ["t"]}
    (topic,) = document(run("topics -B --describe --topic t --json"))["topics"]
    assert [p["partition"] for p in topic["partitions"]] == [0, 1]
    assert topic["partitions"][0]["leader"] == topic["partitions"][0]["isr"][0]
    assert run("topics -B --alter --topic t --partitions 3").code == 0
    assert run("topics -B --describe --topic t").out.count("\tPartition: ") == 3
    assert run("topics -B --delete --topic t").code == 0
    assert run("topics -B --describe --topic t --if-exists").out == ""
    assert run("topics -B --describe --topic t").out == (
        "Error while executing topic command : Topic 't' does not exist as expected\n"
    )


def test_configs(run: Run) -> None:
    run("topics -B --create --topic c")
    changed = document(run("configs -B --alter --topic c --add-config retention.ms=9 --json"))
    assert changed["set"] == {"retention.ms": "9"}
    (entity,) = document(run("configs -B --describe --topic c --json"))["entities"]
    assert [(c["name"], c["value"]) for c in entity["configs"]] == [("retention.ms", "9")]
    assert run("configs -B --describe --topic c").out == (
        "Dynamic configs for topic c are:\n"
        "  retention.ms=9 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=9}\n"
    )
    assert document(run("configs -B --describe --topic none --json")) == {"entities": []}
    run("configs -B --alter --user u --add-config producer_byte_rate=1e7")
    assert run("configs -B --describe --user u").out.startswith(
        "Quota configs for user-principal 'u' are producer_byte_rate=1.0E7\n"
    )


def test_producing_and_consuming(run: Run) -> None:
    run("topics -B --create --topic pc")
    assert run(
        "console-producer -B --topic pc --reader-property parse.key=true "
        "--reader-property null.marker=NULL",
        b"k\tv\nNULL\t\xc3\xa4\n",
    ) == (0, "", "")
    said = run("console-consumer -B --topic pc --from-beginning --max-messages 2 --json")
    first, second = map(json.loads, said.out.splitlines())
    assert (first["key"], first["value"], first["offset"]) == ("k", "v", 0)
    assert (second["key"], second["value"], second["timestampType"]) == (None, "ä", "CreateTime")
    assert said.err == "Processed a total of 2 messages\n"


def test_a_record_that_is_lost_is_printed_and_ends_in_exit_code_1(run: Run) -> None:
    run("topics -B --create --topic lossy --config max.message.bytes=150")
    said = run("console-producer -B --topic lossy", b"1\n" + b"x" * 400 + b"\n2\n")
    assert said.code == 1
    assert said.err.endswith(
        "ERROR Error when sending message to topic lossy with key: null, value: 400 bytes with "
        "error: (org.apache.kafka.clients.producer.internals.ErrorLoggingCallback)\n"
        "org.apache.kafka.common.errors.RecordTooLargeException: The request included a message "
        "larger than the max message size the server will accept.\n"
    )
    read = run("console-consumer -B --topic lossy --from-beginning --max-messages 2")
    assert read.out == "1\n2\n"


def test_a_group_goes_on_where_it_was(run: Run) -> None:
    run("topics -B --create --topic gr")
    run("console-producer -B --topic gr", b"1\n2\n3\n")
    consume = "console-consumer -B --topic gr --from-beginning --group g --max-messages"
    assert run(f"{consume} 2").out == "1\n2\n"
    assert run(f"{consume} 1").out == "3\n"
    listed = document(run("groups -B --list --consumer --json"))
    assert {"group": "g", "type": "Classic", "protocol": "consumer"} in listed
    (group,) = document(run("consumer-groups -B --describe --group g --json"))
    assert (group["state"], group["offsets"][0]["lag"]) == ("Empty", 0)
    reset = "consumer-groups -B --reset-offsets --group g --topic gr --to-earliest --execute"
    assert document(run(f"{reset} --json"))[0]["newOffset"] == 0
    assert run(f"{consume} 1").out == "1\n"
    assert document(run("consumer-groups -B --delete --group g --json"))["deleted"] == ["g"]


def test_committed_offsets_are_shown_as_json(run: Run) -> None:
    run("topics -B --create --topic co")
    run("console-producer -B --topic co", b"1\n2\n")
    run("console-consumer -B --topic co --from-beginning --group committer --max-messages 2")
    said = run(
        "console-consumer -B --topic __consumer_offsets --from-beginning --timeout-ms 300 "
        "--formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    )
    shown = [json.loads(text) for text in said.out.replace('}{"key"', '}\n{"key"').splitlines()]
    (committed,) = [one for one in shown if one["key"]["data"]["topic"] == "co"]
    assert committed["key"] == {
        "type": 1,
        "data": {"group": "committer", "topic": "co", "partition": 0},
    }
    assert committed["value"]["data"]["offset"] == 2


def test_offsets_log_dirs_and_deletion(run: Run, tmp_path: Path) -> None:
    run("topics -B --create --topic of")
    run("console-producer -B --topic of", b"1\n2\n3\n")
    assert document(run("get-offsets -B --topic of --json")) == [
        {"topic": "of", "partition": 0, "offset": 3}
    ]
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "of", "partition": 0, "offset": 2}]}')
    assert document(run(f"delete-records -B --offset-json-file {file} --json")) == [
        {"topic": "of", "partition": 0, "lowWatermark": 2}
    ]
    assert run("get-offsets -B --topic of --time earliest").out == "of:0:2\n"
    (broker,) = document(run("log-dirs -B --describe --topic-list of --json"))["brokers"]
    (partition,) = broker["logDirs"][0]["partitions"]
    assert partition["partition"] == "of-0"
    assert partition["size"] > 0


def test_the_cluster_and_its_versions(run: Run) -> None:
    cluster_id = document(run("cluster cluster-id -B --json"))["clusterId"]
    assert run("cluster cluster-id -B").out == f"Cluster ID: {cluster_id}\n"
    (endpoint,) = document(run("cluster list-endpoints -B --json"))
    assert (endpoint["type"], endpoint["fenced"]) == ("broker", False)
    (node,) = document(run("broker-api-versions -B --json"))
    assert {"key": 3, "name": "Metadata", "min": 0, "max": 13} in node["apis"]
    assert document(run("cluster api-versions -B --json")) == [node]
    shown = run("cluster api-versions -B").out
    assert shown == run("broker-api-versions -B").out
    assert "\tMetadata(3): 0 to 13 [usable: 13],\n" in shown


def test_producers_of_a_partition(run: Run) -> None:
    run("topics -B --create --topic tx")
    run("console-producer -B --topic tx", b"1\n")
    (producer,) = document(
        run("transactions -B describe-producers --topic tx --partition 0 --json")
    )
    assert (producer["lastSequence"], producer["currentTransactionStartOffset"]) == (0, "None")
    assert document(run("transactions -B list --transactional-id-pattern none.* --json")) == []


@pytest.mark.parametrize("command", ["cluster", "transactions"])
def test_a_command_that_is_none_is_refused(run_alone: Run, command: str) -> None:
    assert "error: too few arguments" in run_alone(command).err
    assert "invalid choice: 'nonsense'" in run_alone(f"{command} nonsense").err


def test_a_tool_imports_no_more_than_it_needs() -> None:
    program = (
        "import sys\n"
        "from cordwood.surfaces.cli.main import app\n"
        "try:\n"
        "    app(['topics', '--list'])\n"
        "except SystemExit as stop:\n"
        "    code = stop.code\n"
        "heavy = ('numba', 'numpy', 'pandas', 'pyarrow', 'pyspark', 'rich')\n"
        "print(code, [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "1 []\n", done.stderr


def test_a_reader_that_has_had_enough_ends_the_tool_quietly() -> None:
    program = f"{sys.executable} -m cordwood topics --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}
    assert done.stderr == ""


def test_a_transaction_that_is_open_is_found_and_aborted(run: Run, broker: RunningBroker) -> None:
    run("topics -B --create --topic hangs --config retention.ms=-1")

    def leave_open(served: Broker) -> None:
        log = served.replicas.log("hangs", 0)
        record = Record(0, 1_700_000_000_000, b"k", b"v")
        log.append_as_follower(
            build_batch(
                [record],
                base_offset=0,
                producer_id=7,
                producer_epoch=3,
                base_sequence=0,
                is_transactional=True,
            )
        )
        log.maybe_update_high_watermark(1)

    broker.call(leave_open)
    (blocks,) = document(run("transactions -B blocking --topic hangs --json"))
    assert (blocks["partition"], blocks["startOffset"], blocks["heldBack"]) == (0, 0, 1)
    assert (blocks["producerId"], blocks["transactionalId"]) == (7, "None")
    assert run("transactions -B blocking").out.splitlines()[-1] == (
        "hangs-0 from offset 0: no coordinator knows the transaction of producer 7. End it with: "
        "abort --topic hangs --partition 0 --start-offset 0"
    )
    for scope in ("--topic hangs", "--topic hangs --partition 0", "--broker-id 1"):
        (found,) = document(run(f"transactions -B find-hanging {scope} --json"))
        assert (found["topic"], found["partition"], found["startOffset"]) == ("hangs", 0, 0)
        assert (found["producerId"], found["producerEpoch"]) == (7, 3)
    never = "--max-transaction-timeout 2000000000"
    assert document(run(f"transactions -B find-hanging --topic hangs {never} --json")) == []
    abort = "transactions -B abort --topic hangs --partition 0"
    assert "must be identified either with --start-offset" in run(abort).err
    assert run(f"{abort} --start-offset 5").err == (
        "Could not find any open transactions starting at offset 5 on partition hangs-0\n"
    )
    assert run(f"{abort} --start-offset 0") == (0, "", "")
    assert document(run("transactions -B find-hanging --topic hangs --json")) == []
    assert document(run("transactions -B blocking --json")) == []
    assert broker.call(lambda served: served.replicas.log("hangs", 0).last_stable_offset) == 2
    named = "--producer-id 7 --producer-epoch 2 --coordinator-epoch 0"
    assert run(f"{abort} {named}").code == 1


def test_a_consumer_without_a_group_is_named_as_kafka_names_it(run: Run) -> None:
    said = run("console-consumer -B --topic absent --from-beginning --timeout-ms 500")
    assert "[Consumer clientId=console-consumer, groupId=null] " in said.err


def test_forced_end_of_a_transaction_fences_its_producer(run: Run, broker: RunningBroker) -> None:
    run("topics -B --create --topic forced")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = Producer(settings | {"transactional.id": "forced-1"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("forced", b"v")
    assert producer.flush(30) == 0
    said = run("transactions -B forceTerminateTransaction --transactionalId forced-1")
    assert said == (0, "", "")
    assert document(run("transactions -B blocking --topic forced --json")) == []
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(30)
    assert refused.value.args[0].code() == KafkaError._FENCED
    said = run("transactions -B forceTerminateTransaction")
    assert said.code == 1
    assert "argument --transactionalId is required" in said.err


def test_transaction_that_its_coordinator_knows_is_shown_with_what_ends_it(
    run: Run, broker: RunningBroker
) -> None:
    run("topics -B --create --topic held")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = Producer(settings | {"transactional.id": "orders-7"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("held", b"v")
    assert producer.flush(30) == 0
    (blocks,) = document(run("transactions -B blocking --topic held --json"))
    assert (blocks["transactionalId"], blocks["transactionState"]) == ("orders-7", "Ongoing")
    assert blocks["timeoutMs"] == 60_000
    assert (
        "held-0 from offset 0: orders-7 commits or aborts it, or its coordinator aborts it in "
        in (run("transactions -B blocking --topic held --partition 0").out)
    )
    producer.abort_transaction(30)
    assert document(run("transactions -B blocking --topic held --json")) == []
    assert run("transactions -B blocking --partition 0").code == 1


def test_what_was_done_to_topics_is_in_the_document(run: Run) -> None:
    assert document(run("topics -B --create --topic done --json")) == {"created": "done"}
    assert document(run("topics -B --alter --topic done --partitions 3 --json")) == {
        "altered": ["done"],
        "partitions": 3,
    }
    assert document(run("topics -B --delete --topic done --json")) == {"deleted": ["done"]}
    said = run("topics -B --delete --topic done --json")
    assert said.code == 1
    assert json.loads(said.out)["exit_code"] == 1
    assert "Topic 'done' does not exist as expected" in json.loads(said.out)["error"]

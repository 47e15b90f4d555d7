"""Delays of other clients during one client's large request: Cordwood beside a real Kafka.

    .venv/bin/python benchmarks/bench_stalls.py            # all cases, both brokers
    .venv/bin/python benchmarks/bench_stalls.py --no-kafka --cases create-2500,metadata-names

For each case one connection sends large requests. Meanwhile a steady client sends a small request
every few milliseconds, and a member of a group with a short session sends heartbeats. The table has
the time until the large request was answered, the median, the 99th percentile and the maximum of
the steady client's latencies, how often the member was evicted, and the longest turn of Cordwood's
event loop (its own metric), which a Kafka does not have.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch
from support.kafka import RealKafka
from support.served import ServedBroker
from support.wire import API_KEYS, Wire, request_body, request_frame

SESSION_MS = 1000
HEARTBEAT_S = 0.3
STEADY_S = 0.005
ANSWER_S = 300.0
PROPERTIES = {
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
}
_LONGEST = re.compile(r"^cordwood_event_loop_longest_turn_seconds (\S+)$", re.MULTILINE)

Frames = Sequence[bytes]


@dataclass(frozen=True)
class Figures:
    """One case at one broker; times in ms."""

    case: str
    side: str
    answered_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    requests: int
    evicted: int
    longest_turn_ms: float | None


def frame(api: str, version: int, values: dict[str, Any]) -> bytes:
    key = API_KEYS[api]
    return request_frame(key, version, 7, "large", request_body(key, version, values))


def raw_frame(api: str, version: int, body: bytes) -> bytes:
    return request_frame(API_KEYS[api], version, 7, "large", body)


# ---- the large requests


def new_topic(name: str, partitions: int) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


def create(name: str, *partitions: int) -> Frames:
    topics = [new_topic(f"{name}-{i}", count) for i, count in enumerate(partitions)]
    return [frame("create_topics", 7, {"topics": topics, "timeout_ms": 120_000})]


def invalid_topics(count: int) -> Frames:
    topics = [new_topic(f"bad name {i}", 1) for i in range(count)]
    return [frame("create_topics", 7, {"topics": topics, "timeout_ms": 120_000})]


def more_partitions(name: str, count: int) -> Frames:
    topics = [{"name": name, "count": count, "assignments": None}]
    return [frame("create_partitions", 3, {"topics": topics, "timeout_ms": 120_000})]


def delete(*names: str) -> Frames:
    topics = [{"name": name} for name in names]
    return [frame("delete_topics", 6, {"topics": topics, "timeout_ms": 120_000})]


def empty_names(count: int) -> Frames:
    # Version 1: each name is its length in two bytes.
    return [raw_frame("metadata", 1, struct.pack(">i", count) + bytes(2 * count))]


def distinct_names(count: int) -> Frames:
    names = b"".join(struct.pack(">h", 8) + b"%08d" % i for i in range(count))
    return [raw_frame("metadata", 4, struct.pack(">i", count) + names + b"\0")]


def all_topics() -> Frames:
    return [frame("metadata", 12, {"topics": None})]


def describe_configs(names: Sequence[str]) -> Frames:
    resources = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names
    ]
    wanted = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    return [frame("describe_configs", 4, wanted)]


def alter_configs(names: Sequence[str]) -> Frames:
    resources = [
        {
            "resource_type": 2,
            "resource_name": name,
            "configs": [{"name": "retention.ms", "config_operation": 0, "value": "3600000"}],
        }
        for name in names
    ]
    return [frame("incremental_alter_configs", 1, {"resources": resources})]


def bomb(codec: Codec, megabytes: int) -> Frames:
    now_ms = int(time.time() * 1000)
    records = [Record(i, now_ms, None, bytes(1 << 20)) for i in range(megabytes)]
    batch = bytes(build_batch(records, base_offset=0, codec=codec))
    data = {"index": 0, "records": batch}
    topics = [{"name": "steady", "partition_data": [data]}]
    return [frame("produce", 9, {"acks": 1, "timeout_ms": 30_000, "topic_data": topics})] * 4


def offsets_of_wide() -> Frames:
    wanted = {"group_id": "large", "topics": None}
    return [frame("offset_fetch", 8, {"groups": [wanted], "require_stable": False})]


def unknown_partitions(count: int) -> Frames:
    asked = [{"partition_index": i, "timestamp": -1} for i in range(count)]
    topics = [{"name": "wide", "partitions": asked}]
    return [frame("list_offsets", 6, {"replica_id": -1, "topics": topics})]


def cases(scale: float) -> dict[str, Callable[[], Frames]]:
    """The cases by name, in their order: later ones use topics that earlier ones made."""

    def n(count: int) -> int:
        return max(1, round(count * scale))

    small = [f"small-{i}" for i in range(n(1000))]
    wide = n(2500)
    return {
        "create-2500": lambda: create("large", wide),
        "create-1000x1": lambda: create("small", *[1] * len(small)),
        "create-wide": lambda: [*create("w", wide), *more_partitions("w-0", 2 * wide)],
        "invalid-9000": lambda: invalid_topics(n(9000)),
        "metadata-all": all_topics,
        "metadata-names": lambda: empty_names(n(10_000_000)),
        "metadata-distinct": lambda: distinct_names(n(200_000)),
        "describe-configs-2000": lambda: describe_configs((small * 2000)[: n(2000)]),
        "alter-configs-1000": lambda: alter_configs(small),
        "bomb-zstd": lambda: bomb(Codec.ZSTD, n(100)),
        "bomb-gzip": lambda: bomb(Codec.GZIP, n(100)),
        "list-offsets": lambda: unknown_partitions(n(500_000)),
        "offset-commit": lambda: [
            frame(
                "offset_commit",
                8,
                {
                    "group_id": "large",
                    "generation_id_or_member_epoch": -1,
                    "topics": [
                        {
                            "name": "large-0",
                            "partitions": [
                                {"partition_index": i, "committed_offset": 1} for i in range(wide)
                            ],
                        }
                    ],
                },
            )
        ],
        "offset-fetch": offsets_of_wide,
        "describe-log-dirs": lambda: [frame("describe_log_dirs", 4, {"topics": None})],
        "delete-records": lambda: [
            frame(
                "delete_records",
                2,
                {
                    "timeout_ms": 30_000,
                    "topics": [
                        {
                            "name": "large-0",
                            "partitions": [
                                {"partition_index": i, "offset": -1} for i in range(wide)
                            ],
                        }
                    ],
                },
            )
        ],
        "delete-many": lambda: delete("large-0", "w-0", *small),
    }


# ---- those who notice


class Steady(threading.Thread):
    """Asks for one partition's end offset every few milliseconds."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.latencies_s: list[float] = []
        self._port = port
        self._ended = threading.Event()
        topics = [{"name": "steady", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        self._frame = frame("list_offsets", 6, {"replica_id": -1, "topics": topics})

    def run(self) -> None:
        due = time.perf_counter()
        with _connected(self._port) as sock:
            while not self._ended.wait(max(0.0, due - time.perf_counter())):
                sock.sendall(self._frame)
                _skip_answer(sock)
                # From when it was due: a stall counts for each request that it held up.
                self.latencies_s.append(time.perf_counter() - due)
                due += STEADY_S

    def stop(self) -> None:
        self._ended.set()
        self.join()


class Member(threading.Thread):
    """The member of a group; counts how often it was no member any more."""

    def __init__(self, port: int, group: str) -> None:
        super().__init__(daemon=True)
        self.evicted = 0
        self._group = group
        self._wire = Wire(port, timeout_s=ANSWER_S)
        self._ended = threading.Event()
        self._generation, self._member_id = 0, ""
        self._sent_s = 0.0
        self._join()

    def _join(self) -> None:
        joining = {
            "group_id": self._group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        while True:
            found = self._wire.ask("find_coordinator", 2, {"key": self._group, "key_type": 0})
            if found["error_code"] == "none":
                joined = self._wire.ask("join_group", 3, joining)
                if joined["error_code"] == "none":
                    break
            time.sleep(0.1)
        self._member_id, self._generation = joined["member_id"], joined["generation_id"]
        assignment = {"member_id": self._member_id, "assignment": b""}
        self._sent_s = time.perf_counter()
        self._ask("sync_group", 2, {"assignments": [assignment]})

    def _ask(self, api: str, version: int, values: dict[str, Any]) -> str:
        own = {
            "group_id": self._group,
            "generation_id": self._generation,
            "member_id": self._member_id,
        }
        return str(self._wire.ask(api, version, own | values)["error_code"])

    def run(self) -> None:
        answered = time.perf_counter()
        while not self._ended.wait(HEARTBEAT_S):
            last_sent, self._sent_s = self._sent_s, time.perf_counter()
            found = self._ask("heartbeat", 2, {})
            if found not in {"none", "rebalance_in_progress"}:
                # A member that sent nothing for a whole session has to go: on a busy machine this
                # thread may have been late. Otherwise it is the broker's doing.
                if self._sent_s - last_sent < SESSION_MS / 1000:
                    self.evicted += 1
                    gap_s = self._sent_s - answered
                    print(f"  evicted: {found}, {gap_s:.2f} s after the last answer")
                self._join()
            answered = time.perf_counter()

    def stop(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def _skip_answer(sock: socket.socket) -> int:
    """Reads an answer, and gives how many bytes it had; 0 if the connection was closed."""
    head = b""
    while len(head) < 4:
        part = sock.recv(4 - len(head))
        if not part:
            return 0
        head += part
    (size,) = struct.unpack(">i", head)
    left, buffer = size, bytearray(1 << 18)
    while left:
        count = sock.recv_into(buffer, min(left, len(buffer)))
        if not count:
            return 0
        left -= count
    return int(size)


# ---- one case


def run_case(name: str, frames: Frames, side: str, port: int, http_port: int | None) -> Figures:
    _reset_longest(http_port)
    steady, member = Steady(port), Member(port, f"watching-{name}")
    steady.start()
    member.start()
    time.sleep(0.2)
    begun = time.perf_counter()
    try:
        for each in frames:
            with _connected(port) as sock:
                sock.sendall(each)
                _skip_answer(sock)
    except OSError as error:
        print(f"{side} {name}: {error}", file=sys.stderr)
    answered_s = time.perf_counter() - begun
    time.sleep(1.5 * SESSION_MS / 1000)  # an eviction comes when the session is over
    longest = _longest(http_port)
    steady.stop()
    member.stop()
    taken = sorted(steady.latencies_s)
    return Figures(
        case=name,
        side=side,
        answered_ms=1000 * answered_s,
        p50_ms=1000 * taken[len(taken) // 2],
        p99_ms=1000 * taken[min(len(taken) - 1, len(taken) * 99 // 100)],
        max_ms=1000 * taken[-1],
        requests=len(taken),
        evicted=member.evicted,
        longest_turn_ms=longest,
    )


def _scrape(http_port: int | None) -> str:
    if http_port is None:
        return ""
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def _reset_longest(http_port: int | None) -> None:
    """A scrape begins a new period of the longest turn."""
    _scrape(http_port)


def _longest(http_port: int | None) -> float | None:
    found = _LONGEST.search(_scrape(http_port))
    return None if found is None else 1000 * float(found[1])


def prepare(port: int) -> None:
    with Wire(port, timeout_s=ANSWER_S) as wire:
        wire.ask(
            "create_topics",
            7,
            {"topics": [new_topic("steady", 1)], "timeout_ms": 30_000},
        )
        while True:
            topics = [{"name": "steady", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
            found = wire.ask("list_offsets", 6, {"replica_id": -1, "topics": topics})
            if found["topics"][0]["partitions"][0]["error_code"] == "none":
                return
            time.sleep(0.05)


def measure(
    side: str, port: int, http_port: int | None, names: Sequence[str] | None, scale: float
) -> Iterator[Figures]:
    prepare(port)
    for name, frames in cases(scale).items():
        if names is None or name in names:
            yield run_case(name, frames(), side, port, http_port)


HEAD = (
    f"{'case':22} {'side':9} {'answered':>10} {'p50':>8} {'p99':>9} {'max':>9} {'n':>6} "
    f"{'evicted':>7} {'turn':>9}"
)


def row(f: Figures) -> str:
    turn = "" if f.longest_turn_ms is None else f"{f.longest_turn_ms:9.1f}"
    return (
        f"{f.case:22} {f.side:9} {f.answered_ms:10.1f} {f.p50_ms:8.2f} {f.p99_ms:9.2f} "
        f"{f.max_ms:9.1f} {f.requests:6} {f.evicted:7} {turn}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-kafka", action="store_true", help="Cordwood alone")
    parser.add_argument("--no-cordwood", action="store_true", help="Kafka alone")
    parser.add_argument("--cases", help="names, with commas between; all if not given")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    parser.add_argument("--log", action="store_true", help="print the broker's warnings")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    names = options.cases.split(",") if options.cases else None
    found: list[Figures] = []
    print("times in ms; steady client: one small request every 5 ms")
    print(HEAD, flush=True)

    def show(figures: Iterator[Figures]) -> None:
        for each in figures:
            found.append(each)
            print(row(each), flush=True)

    with tempfile.TemporaryDirectory(prefix="bench-stalls-") as work:
        if not options.no_cordwood:
            with ServedBroker(Path(work) / "cordwood", PROPERTIES, flags=()) as broker:
                show(measure("cordwood", broker.port, broker.http_port, names, options.scale))
                if options.log:
                    print(
                        *(line for line in broker.log.splitlines() if " INFO " not in line),
                        sep="\n",
                    )
        if not options.no_kafka:
            with RealKafka(Path(work) / "kafka", properties=PROPERTIES) as kafka:
                kafka.start()
                show(measure("kafka", kafka.port, None, names, options.scale))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()

"""A walk through retention and compaction with command line tools, and what is seen on the way.

Two topics, `products.prices-retention` and `products.prices-compaction`, are made, written, cleaned
and looked at: what tools print, which files a partition's directory holds, what checkpoints say. A
`Stage` is the broker, or the three brokers, on which it happens and the passing of time there; what
it noted is compared with what a real Kafka's stage did, kept by `tools/record_walkthrough.py`.

Source: Kafka's documentation of log compaction and of retention, by example.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cordwood.model.clock import pause
from support.applied import wait_until_applied
from support.kafka import read_checkpoint
from support.side_by_side import Line, Run, Station, answer_of, changes_metadata

RETENTION: Final = "products.prices-retention"
COMPACTION: Final = "products.prices-compaction"
DELETION: Final = "products.prices-deletion"
LAG_SECONDS: Final = 1.2
"""Longer than the maximum compaction lag of the walk: the next record begins a segment."""

#: The broker's settings, beside those of every test: looks often, deletes files late.
PROPERTIES: Final = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "60000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}

#: The same for three brokers, with the cluster's own topics on all of them.
OF_THREE_BROKERS: Final = {
    **PROPERTIES,
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}

_B: Final = "--bootstrap-server {broker}"
_KEYED: Final = "--reader-property parse.key=true --reader-property key.separator=:"
_SHOWN: Final = (
    "--formatter-property print.key=true --formatter-property print.offset=true"
    " --formatter-property print.partition=true"
)
# Which of three partitions gets records without keys is the producer's whim.
_ANY_PARTITION: Final = (
    (rf"({RETENTION}):\d:(\d+)", r"\1:<any>:\2"),
    (rf"({RETENTION}|{COMPACTION})-\d(?=\.?$)", r"\1-<any>"),
    # Advice that only Kafka's own client gives.
    (r"^.*consumer rebalance protocol \(KIP-848\).*\n", ""),
)
_DUMPED: Final = (
    (r"(crc|CreateTime): ?\d+", r"\1: <any>"),
    # Timestamps lie closer to the horizon, or less close, and take more or fewer bytes.
    (r"OptionalLong\[\d+\](.*) size: \d+", r"OptionalLong[<any>]\1 size: <any>"),
    (r"(?<=producerId: )\d+", "<any>"),
)


class Stage(ABC):
    """Brokers, tools, and time; what is noted is seen at the first broker.

    Every broker has a replica of each partition. With several brokers, their ids are noted as
    letters, in the order in which a tool shows them: which broker gets which partition is drawn.
    """

    def __init__(self, stations: Sequence[Station], run: Run) -> None:
        self.station = stations[0]
        self.replicas = len(stations)
        self._logs = [each.logs for each in stations]
        self._ports = [int(each.bootstrap.rpartition(":")[2]) for each in stations]
        self._run = run
        self.notes: list[str] = []

    @abstractmethod
    def pass_seconds(self, seconds: float, until: Callable[[], bool]) -> None:
        """Lets time pass, and what is due by then happen: `until` is true then."""

    @property
    def text(self) -> str:
        """All that was noted."""
        return "\n".join(self.notes)

    def say(self, text: str, *, stdin: str = "", ordered: bool = True) -> None:
        """Runs a tool, and notes the command and what it printed."""
        patterns = (*_ANY_PARTITION, *_DUMPED)
        line = Line(f"{text} {_B}" if "dump-log" not in text else text, stdin.encode(), ordered)
        line = line._replace(changes=patterns)
        tool, *words = self.station.words(line)
        said = answer_of(self.station, line, self._run(tool, words, line.stdin))
        if self.replicas > 1:
            said = said._replace(out=_with_letters(said.out))
        self.notes.append(f"$ {text}")
        self.notes += [f"  < {typed}" for typed in stdin.splitlines()]
        for part in (said.out, said.err):
            self.notes += [f"  {shown}".rstrip() for shown in part.splitlines() if shown.strip()]
        self.notes.append("")
        if changes_metadata(text):
            for port in self._ports:
                wait_until_applied(port)

    def files(self, partition: str) -> list[str]:
        """The files of a partition's directory."""
        return sorted(path.name for path in (self.station.logs / partition).iterdir())

    def list_files(self, partition: str, *, shown: str = "") -> None:
        """Notes the files of a partition's directory.

        A segment that was rolled gets its indexes when they are first asked for, which in Kafka is
        a matter of its background threads: those of an active segment that is not the first are
        left out.
        """
        active = self.active_base(partition)
        lazy = {f"{active:020}.index", f"{active:020}.timeindex"} if active else set()
        self.notes.append(f"$ ls {shown or partition}")
        self.notes += [f"  {name}" for name in self.files(partition) if name not in lazy]
        self.notes.append("")

    def show_checkpoints(self, partition: str, *, shown: str = "") -> None:
        """Notes the leader epochs, the recovery point and the log start offset."""
        self.notes.append(f"$ checkpoints of {shown or partition}")
        epochs = self.station.logs / partition / "leader-epoch-checkpoint"
        self.notes.append(f"  leader epochs: {epochs.read_text().split()}")
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            lines = read_checkpoint(self.station.logs / name)
            self.notes.append(f"  {name}: {lines.get(partition)}")
        self.notes.append("")

    def has_deleted(self, partition: str) -> bool:
        """True while every replica has files on their way out."""
        return all(_has_deleted(logs / partition) for logs in self._logs)

    def has_removed(self, partition: str) -> bool:
        """True when no replica has files on their way out."""
        return not any(_has_deleted(logs / partition) for logs in self._logs)

    def active_base(self, partition: str) -> int:
        """The base offset of the active segment."""
        return _active_base(self.station.logs / partition)

    def is_cleaned(self, partition: str) -> bool:
        """True when compaction has come as far as it can, in every replica."""
        return all(
            read_checkpoint(logs / "cleaner-offset-checkpoint").get(partition)
            == _active_base(logs / partition)
            for logs in self._logs
        )

    def checkpointed(self, partition: str, offset: int) -> bool:
        """True when the recovery point is in its checkpoint, of every replica."""
        return all(
            read_checkpoint(logs / "recovery-point-offset-checkpoint").get(partition) == offset
            for logs in self._logs
        )


def _has_deleted(directory: Path) -> bool:
    return any(path.name.endswith(".deleted") for path in directory.iterdir())


def _active_base(directory: Path) -> int:
    return max(int(path.stem) for path in directory.glob("*.log"))


def _with_letters(text: str) -> str:
    """Broker ids in a description of partitions as letters, the first that is shown as `a`."""
    letters: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        ids = found[2].split(",")
        return found[1] + ",".join(
            letters.setdefault(each, chr(ord("a") + len(letters))) for each in ids
        )

    return re.sub(r"((?:Leader|Replicas|Isr): )(\d+(?:,\d+)*)", named, text)


def full_partition(logs: Path, topic: str) -> str:
    """The one partition of the topic that has records."""
    sizes = {
        path.name: sum(log.stat().st_size for log in path.glob("*.log"))
        for path in logs.glob(f"{topic}-*")
        if re.fullmatch(rf"{re.escape(topic)}-\d+", path.name)
    }
    (found,) = [name for name, size in sizes.items() if size]
    return found


def walk(stage: Stage) -> None:
    """The whole walk."""
    walk_retention(stage)
    walk_compaction(stage)
    walk_tombstone(stage)
    walk_deletion(stage)


def walk_retention(stage: Stage) -> None:
    """Segments whose newest record is a minute old are deleted, the active one too."""
    stage.say(
        f"topics --create --topic {RETENTION} --partitions 3 --replication-factor {stage.replicas}"
    )
    stage.say(f"topics --describe --topic {RETENTION}")
    prices = "cola 2\ncoffee pads 8\ntea 3\nenergy drink 5\n"
    stage.say(f"console-producer --topic {RETENTION}", stdin=prices)
    partition = full_partition(stage.station.logs, RETENTION)
    shown = f"{RETENTION}-<any>"
    stage.list_files(partition, shown=shown)
    stage.say(
        f"console-consumer --topic {RETENTION} --from-beginning --max-messages 4 --group readers"
    )
    stage.say(f"get-offsets --topic {RETENTION}", ordered=False)
    stage.say(f"configs --alter --topic {RETENTION} --add-config retention.ms=60000")
    stage.say(f"configs --describe --topic {RETENTION}")
    stage.pass_seconds(62, lambda: stage.has_deleted(partition))
    stage.list_files(partition, shown=shown)
    stage.pass_seconds(2, lambda: stage.checkpointed(partition, 4))
    stage.show_checkpoints(partition, shown=shown)
    stage.say(f"get-offsets --topic {RETENTION} --time earliest", ordered=False)
    stage.say(f"get-offsets --topic {RETENTION} --time latest", ordered=False)
    stage.pass_seconds(62, lambda: stage.has_removed(partition))
    stage.list_files(partition, shown=shown)
    stage.say(f"configs --alter --topic {RETENTION} --delete-config retention.ms")
    stage.say(f"configs --describe --topic {RETENTION}")


def walk_compaction(stage: Stage) -> None:
    """Walks through compaction: only the newest record of a key stays, below the active segment."""
    stage.say(
        f"topics --create --topic {COMPACTION} --partitions 3"
        f" --replication-factor {stage.replicas} --config cleanup.policy=compact"
    )
    stage.say(f"topics --describe --topic {COMPACTION}")
    stage.say(f"console-producer --topic {COMPACTION}", stdin="cola 2\n")
    _put(stage, "cola:2", "coffee pads:10", "tea:4", "energy drink:5")
    for index in range(3):
        _dump(stage, f"{COMPACTION}-{index}")
    partition = f"{COMPACTION}-0"
    _put(stage, "energy drink:3")
    _dump(stage, partition)
    stage.say(f"configs --alter --topic {COMPACTION} --add-config max.compaction.lag.ms=1000")
    stage.say(f"configs --describe --topic {COMPACTION}")
    _put_and_clean(stage, "energy drink:6")
    _put_and_clean(stage, "energy drink:5", "energy drink:6")
    stage.say(
        f"console-consumer --topic {COMPACTION} --partition 0 --offset earliest"
        f" --max-messages 3 {_SHOWN}"
    )
    stage.pass_seconds(62, lambda: stage.has_removed(partition))
    stage.list_files(partition)


def walk_tombstone(stage: Stage) -> None:
    """A record without a value takes its key along, and goes itself some time later."""
    stage.say(f"configs --alter --topic {COMPACTION} --add-config delete.retention.ms=3000")
    _put_and_clean(stage, "energy drink:NULL", extra="--reader-property null.marker=NULL")
    _put_and_clean(stage, "water:1")
    stage.pass_seconds(4, lambda: True)
    _put_and_clean(stage, "water:2")
    stage.say(
        f"console-consumer --topic {COMPACTION} --partition 0 --offset earliest"
        f" --max-messages 1 {_SHOWN}"
    )


def walk_deletion(stage: Stage) -> None:
    """Records up to an offset are deleted at once for readers."""
    stage.say(
        f"topics --create --topic {DELETION} --partitions 1 --replication-factor {stage.replicas}"
    )
    stage.say(f"console-producer --topic {DELETION} {_KEYED}", stdin="a:1\nb:2\nc:3\nd:4\n")
    for name, topic in (("delete.json", DELETION), ("refused.json", COMPACTION)):
        (stage.station.logs.parent / name).write_text(
            f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 3}}]}}'
        )
        stage.say(f"delete-records --offset-json-file {{logs}}/../{name}")
    stage.say(f"get-offsets --topic {DELETION} --time earliest")
    stage.say(
        f"console-consumer --topic {DELETION} --from-beginning --max-messages 1"
        f" --group readers {_SHOWN}"
    )
    stage.pass_seconds(2, lambda: stage.checkpointed(f"{DELETION}-0", 4) or True)
    for topic in (RETENTION, COMPACTION, DELETION):
        stage.say(f"topics --delete --topic {topic}")
    stage.say("topics --list --exclude-internal")


def _put(stage: Stage, *records: str, extra: str = "") -> None:
    command = f"console-producer --topic {COMPACTION} {_KEYED} {extra}".rstrip()
    stage.say(command, stdin="".join(f"{record}\n" for record in records))


def _put_and_clean(stage: Stage, *records: str, extra: str = "") -> None:
    """Writes into a segment of its own, and looks when the others have been compacted."""
    partition = f"{COMPACTION}-0"
    pause(LAG_SECONDS)
    _put(stage, *records, extra=extra)
    stage.pass_seconds(15, lambda: stage.is_cleaned(partition))
    stage.list_files(partition)
    _dump(stage, partition)


def _dump(stage: Stage, partition: str) -> None:
    """Notes what every segment holds."""
    for name in stage.files(partition):
        if name.endswith(".log"):
            stage.say(f"dump-log --print-data-log --files {{logs}}/{partition}/{name}")

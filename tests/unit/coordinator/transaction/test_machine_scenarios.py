"""Scenarios of transactions in text files: each event, and the effects that it must have.

`python tests/unit/coordinator/transaction/test_machine_scenarios.py FILE...` writes the effects of
today into files, to be reviewed line by line.

A file starts with a comment on what it shows. Then come cases: an event, `----`, and the effects
that the state machine returns: records, answers, timers, and the markers that are due when the
records are committed. The transactional id is x unless `id=` says otherwise.

Requests; NAME stands for the request in the answers (fields are `name=value`). `spare=7` is the
producer id that an event has which needs one. With `append=not-available` or
`append=not-coordinator` its records are not written:

    init NAME      InitProducerId: producer=ID:EPOCH, timeout (ms), spare
    add NAME       AddPartitionsToTxn: producer, partitions=t:0,1;u:2, version
    commit NAME    EndTxn: producer, version, spare
    abort NAME     as commit
    timeout NAME   the transaction has been open for too long: producer, spare
    expire NAME    it is time to remove transactional ids
    written        the markers of a transaction are written: producer=ID:EPOCH of the markers

Other commands:

    version N      the finalized transaction.version is N from now on, 2 at first
    epoch N        the producer of x has that epoch, as after many transactions
    replicated     records are committed by `committed` from now on
    committed      all records are committed
    advance MS     time passes; timers that are due then happen
    show           prints the transactions; those that are not committed too
    load           the coordinator loads the records, and continues with what it finds

Answers that do not wait for the commit are `at once`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from cordwood.coordinator.effects import Answer, Effects, ReplyTo, SetTimer
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.transaction import events, records
from cordwood.coordinator.transaction.machine import Prepared, TransactionStateMachine
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.requests import (
    EndAnswer,
    EndRequest,
    InitProducerIdAnswer,
    InitProducerIdRequest,
)
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.coordinator.transaction.transaction import Transaction
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.group_scenarios.notation import parse_partitions, partitions_text
from support.scenario_files import parse, rewritten

BEGUN_MS: Final = 1_000_000
_FAILURES: Final = {
    "not-available": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "not-coordinator": ErrorCode.NOT_COORDINATOR,
}

Fields = Mapping[str, str]


class NamedReply(ReplyTo[Any]):
    """Receiver of the answer to a request of a scenario."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda _: None)
        self.name = name


class Run:
    """A state machine, the timers it has set, and the records it has written."""

    def __init__(self) -> None:
        self.version = 2
        self.now_ms = BEGUN_MS
        self.written: list[TransactionRecord] = []
        self.committed = 0
        self.is_replicated = False
        self.machine = TransactionStateMachine(
            TransactionSettings(), lambda: self.version, NamedReply("markers")
        )
        self.timeline = Timeline()
        self.state = self.machine.new_state(0, self.timeline)
        self._timers: dict[object, tuple[int, SetTimer]] = {}
        self._requests: Mapping[str, Callable[[str, Fields], events.TransactionEvent]] = {
            "init": self._init,
            "add": self._add,
            "commit": lambda name, fields: self._end(name, fields, commit=True),
            "abort": lambda name, fields: self._end(name, fields, commit=False),
            "timeout": self._timeout,
            "expire": lambda name, _: events.ExpireIds(reply_to=NamedReply(name)),
            "written": self._markers_written,
        }
        self._commands: Mapping[str, Callable[..., Iterator[str]]] = {
            "version": self._set_version,
            "epoch": self._set_epoch,
            "replicated": self._replicate,
            "committed": self._commit,
            "advance": self._advance,
            "show": self._show,
            "load": self._load,
        }

    def run(self, command: str) -> Iterator[str]:
        """The effects of a command, as text."""
        name, *words = command.split()
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        operands = [word for word in words if "=" not in word]
        if name in self._requests:
            failure = _FAILURES.get(fields.pop("append", ""))
            event = self._requests[name](operands[0] if operands else "", fields)
            yield from self._handle(event, failure)
        else:
            yield from self._commands[name](*operands)

    # ---- requests

    def _init(self, name: str, fields: Fields) -> events.InitProducerId:
        producer_id, epoch = _producer(fields)
        request = InitProducerIdRequest(
            transactional_id=fields.get("id", "x"),
            timeout_ms=int(fields.get("timeout", "60000")),
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return events.InitProducerId(
            transactional_id=fields.get("id", "x"),
            request=request,
            spare_producer_id=_spare(fields),
            reply_to=NamedReply(name),
        )

    def _add(self, name: str, fields: Fields) -> events.AddPartitions:
        producer_id, epoch = _producer(fields)
        return events.AddPartitions(
            transactional_id=fields.get("id", "x"),
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=tuple(
                TopicPartition(topic, number)
                for topic, numbers in parse_partitions(fields["partitions"])
                for number in numbers
            ),
            client_version=self._client_version(fields),
            reply_to=NamedReply(name),
        )

    def _end(self, name: str, fields: Fields, *, commit: bool) -> events.EndTransaction:
        producer_id, epoch = _producer(fields)
        request = EndRequest(
            transactional_id=fields.get("id", "x"),
            producer_id=producer_id,
            producer_epoch=epoch,
            commit=commit,
            client_version=self._client_version(fields),
        )
        return events.EndTransaction(
            request=request, spare_producer_id=_spare(fields), reply_to=NamedReply(name)
        )

    def _timeout(self, name: str, fields: Fields) -> events.TimedOut:
        return events.TimedOut(
            transactional_id=fields.get("id", "x"),
            producer_id=_producer(fields)[0],
            spare_producer_id=_spare(fields),
            reply_to=NamedReply(name),
        )

    def _markers_written(self, _name: str, fields: Fields) -> events.MarkersWritten:
        producer_id, epoch = _producer(fields)
        return events.MarkersWritten(
            transactional_id=fields.get("id", "x"),
            producer_id=producer_id,
            producer_epoch=epoch,
            prepared_ms=self.now_ms,
        )

    def _client_version(self, fields: Fields) -> int:
        return int(fields.get("version", "2" if self.version == 2 else "0"))

    # ---- what the runtime does

    def _handle(self, event: Any, failure: ErrorCode | None = None) -> Iterator[str]:
        """Handles an event with a log that takes the records, or refuses them with an error."""
        self.timeline.begin()
        effects = self.machine.handle(self.state, event, self.now_ms)
        if failure is not None and effects.records:
            self.timeline.revert()
            yield from (f"not written: {_record(each)}" for each in effects.records)
            error = CoordinatorRequestError(failure)
            if effects.on_failure is not None:
                yield from self._handle(effects.on_failure(error))
            else:
                yield f"refuse {event.reply_to.name}"
            return
        for record in effects.records:
            records.encode(record)
            self.machine.replay(self.state, [record], len(self.written), -1)
            self.written.append(record)
        self.timeline.end(len(self.written))
        if not self.is_replicated:
            self.committed = len(self.written)
        self.timeline.commit(self.committed)
        yield from (_record(each) for each in effects.records)
        yield from self._timed(effects)
        at_once = "" if effects.answers_wait else "at once "
        yield from (f"{at_once}{_answer(each)}" for each in effects.answers)
        yield from map(_markers, effects.when_committed)

    def _timed(self, effects: Effects[TransactionRecord]) -> Iterator[str]:
        for timer in effects.timers:
            assert isinstance(timer, SetTimer)
            self._timers[timer.key] = self.now_ms + timer.delay_ms, timer
            yield f"timer {timer.key} in {timer.delay_ms}"

    # ---- other commands

    def _set_version(self, version: str) -> Iterator[str]:
        self.version = int(version)
        yield from ()

    def _set_epoch(self, epoch: str) -> Iterator[str]:
        known = self.state.transactions.get("x")
        assert known is not None, "no transaction of x"
        record = TransactionRecord("x", replace(known, producer_epoch=int(epoch)))
        self.machine.replay(self.state, [record], len(self.written), -1)
        self.written.append(record)
        self.committed = len(self.written)
        yield from ()

    def _replicate(self) -> Iterator[str]:
        self.is_replicated = True
        yield from ()

    def _commit(self) -> Iterator[str]:
        self.committed = len(self.written)
        self.timeline.commit(self.committed)
        yield from ()

    def _advance(self, ms: str) -> Iterator[str]:
        self.now_ms += int(ms)
        for key, (due_ms, timer) in list(self._timers.items()):
            if due_ms <= self.now_ms:
                del self._timers[key]
                yield f"due {key}"
                yield from self._handle(timer.event)

    def _show(self) -> Iterator[str]:
        for name in self.state.ids():
            latest, known = self.state.transactions.get(name), self.state.committed(name)
            yield f"{name} {_transaction(known)}"
            if latest is not known:
                yield f"{name} not committed: {_transaction(latest)}"

    def _load(self) -> Iterator[str]:
        self.timeline = Timeline()
        self.state = self.machine.new_state(0, self.timeline)
        self._timers.clear()
        for number, record in enumerate(self.written):
            if number >= self.committed:
                self.timeline.begin()
            self.machine.replay(self.state, [records.decode(*records.encode(record))], number, -1)
            if number >= self.committed:
                self.timeline.end(number + 1)
        for event in self.machine.on_loaded(self.state, self.now_ms):
            yield from self._handle(event)


def _producer(fields: Fields) -> tuple[int, int]:
    if "producer" not in fields:
        return -1, -1
    producer_id, _, epoch = fields["producer"].partition(":")
    return int(producer_id), int(epoch)


def _spare(fields: Fields) -> int | None:
    return int(fields["spare"]) if "spare" in fields else None


def _transaction(known: Transaction | None) -> str:
    if known is None:
        return "none"
    numbers: dict[str, list[int]] = {}
    for each in known.partitions:
        numbers.setdefault(each.topic, []).append(each.partition)
    words = [known.state.kafka_name, f"{known.producer_id}:{known.producer_epoch}"]
    if known.next_producer_id != -1:
        words.append(f"next={known.next_producer_id}")
    if known.partitions:
        words.append(partitions_text(numbers.items()))
    if known.start_ms != -1:
        words.append(f"since={known.start_ms - BEGUN_MS}")
    return " ".join([*words, f"updated={known.update_ms - BEGUN_MS}"])


def _record(record: TransactionRecord) -> str:
    return f"record {record.transactional_id} {_transaction(record.transaction)}"


def _answer(answer: Answer) -> str:
    assert isinstance(answer.reply_to, NamedReply)
    return " ".join(["answer", answer.reply_to.name, *_words(answer.value)])


def _words(value: object) -> list[str]:
    if isinstance(value, events.NeedsProducerId):
        return ["needs a producer id"]
    if isinstance(value, InitProducerIdAnswer | EndAnswer):
        words = [ErrorCode.of(value.error_code).name]
        if value.producer_id != -1:
            words.append(f"{value.producer_id}:{value.producer_epoch}")
        return words
    assert isinstance(value, int)
    return [ErrorCode.of(value).name]


def _markers(answer: Answer) -> str:
    assert isinstance(answer.value, Prepared)
    transaction = answer.value.transaction
    return f"markers {transaction.transactional_id} {_transaction(transaction)}"


SCENARIOS = Path(__file__).with_name("scenarios")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_events_of_a_scenario_have_the_effects_that_it_names(path: Path) -> None:
    _, cases = parse(path.read_text(encoding="utf-8"))
    run = Run()
    for case in cases:
        assert list(run.run(case.command)) == case.expected, case.command


if __name__ == "__main__":
    for scenario in sys.argv[1:]:
        text = Path(scenario).read_text(encoding="utf-8")
        Path(scenario).write_text(rewritten(text, Run().run))

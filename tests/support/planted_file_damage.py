"""More of `support.planted_damage`: producers, transactions, and the files beside logs."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from support.planted_damage import (
    ATTRIBUTES,
    COUNT,
    EPOCH,
    PRODUCER,
    RECORDS,
    SEGMENT_SUFFIXES,
    SEQUENCE,
    Change,
    Found,
    Unknowable,
    Verdict,
    Victim,
    base_of,
    crc,
    damages,
    found,
    get,
    is_abort,
    is_control,
    last_of,
    put,
    sealed,
)

# ---- producers


def _of_producer(v: Victim, *, is_last: bool = False) -> tuple[int, int, bytes]:
    """A data batch of a producer that another of its batches follows: segment, number, bytes."""
    seen: dict[int, tuple[int, int, bytes]] = {}
    chosen = None
    for base in v.bases:
        for number, batch in enumerate(v.batches(base)):
            producer = get(batch, PRODUCER, "q")
            if producer < 0 or is_control(batch):
                continue
            if producer in seen and base >= v.before_middle and chosen is None:
                before = seen[producer]
                if before[0] >= v.before_middle and get(before[2], SEQUENCE, "i") > 0:
                    chosen = before
            seen[producer] = base, number, batch
    if is_last:
        return max(seen.values(), key=lambda each: base_of(each[2]))
    assert chosen is not None, "no producer has two batches in the second half"
    return chosen


def _changed(v: Victim, at: int, layout: str, value: int, *, is_last: bool = False) -> Found:
    base, number, batch = _of_producer(v, is_last=is_last)
    v.replace(base, number, sealed(put(batch, at, layout, get(batch, at, layout) + value)))
    return found("producer-sequence", v.file(base), base_of(batch))


@damages(".log", "a sequence made larger, CRC right", "producers")
def _(v: Victim) -> Verdict:
    return _changed(v, SEQUENCE, "i", 1)


@damages(".log", "a sequence made smaller, CRC right", "producers")
def _(v: Victim) -> Verdict:
    return _changed(v, SEQUENCE, "i", -1)


@damages(".log", "a sequence set to zero, CRC right", "producers")
def _(v: Victim) -> Verdict:
    _, _, batch = _of_producer(v)
    return _changed(v, SEQUENCE, "i", -get(batch, SEQUENCE, "i"))


@damages(".log", "the last sequence of a producer changed, CRC right", "producers")
def _(v: Victim) -> Verdict:
    return _changed(v, SEQUENCE, "i", 2, is_last=True)


@damages(".log", "a producer's epoch made newer, CRC right", "producers")
def _(v: Victim) -> Verdict:
    return _changed(v, EPOCH, "h", 1)


@damages(".log", "a batch given to an unknown producer, CRC right", "producers")
def _(v: Victim) -> Verdict:
    base, number, batch = _of_producer(v)
    v.replace(base, number, sealed(put(batch, PRODUCER, "q", 987_654)))
    return found("producer-sequence")


@damages(".log", "a batch given to no producer, CRC right", "producers")
def _(v: Victim) -> Verdict:
    base, number, batch = _of_producer(v)
    batch = put(put(batch, EPOCH, "h", -1), SEQUENCE, "i", -1)
    attributes = get(batch, ATTRIBUTES, "h") & ~0x10
    v.replace(base, number, sealed(put(put(batch, PRODUCER, "q", -1), ATTRIBUTES, "h", attributes)))
    return found("producer-sequence")


# ---- markers


def _marker(v: Victim, *, abort: bool) -> tuple[int, int, bytes]:
    for base in v.bases[len(v.bases) // 2 - 1 :]:
        for number, batch in enumerate(v.batches(base)):
            if is_control(batch) and is_abort(batch) == abort:
                return base, number, batch
    raise AssertionError("the log has no such marker")


def _without_marker(v: Victim, *, abort: bool) -> Verdict:
    base, number, batch = _marker(v, abort=abort)
    batches = v.batches(base)
    v.write(base, [*batches[:number], *batches[number + 1 :]])
    return found("offsets-missing", v.file(base), base_of(batch))


@damages(".log", "a COMMIT marker removed", "transactions")
def _(v: Victim) -> Verdict:
    return _without_marker(v, abort=False)


@damages(".log", "an ABORT marker removed", "transactions")
def _(v: Victim) -> Verdict:
    return _without_marker(v, abort=True)


@damages(".log", "a COMMIT marker made an ABORT, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=False)
    v.replace(base, number, sealed(put(batch, RECORDS + 7, "h", 0)))
    return found("txn-index-missing", v.file(base, ".txnindex"), base_of(batch))


@damages(".log", "an ABORT marker made a COMMIT, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=True)
    v.replace(base, number, sealed(put(batch, RECORDS + 7, "h", 1)))
    return found("txn-index-entry", v.file(base, ".txnindex"), base_of(batch))


@damages(".log", "a marker of an unknown type, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=False)
    v.replace(base, number, sealed(put(batch, RECORDS + 7, "h", 9)))
    return found("control-batch", v.file(base), base_of(batch))


@damages(".log", "a marker of an older epoch, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=False)
    v.replace(base, number, sealed(put(batch, EPOCH, "h", get(batch, EPOCH, "h") - 1)))
    return found("marker-order", v.file(base), base_of(batch))


@damages(".log", "a marker of a newer coordinator, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=False)
    at = len(batch) - 5
    v.replace(base, number, sealed(put(batch, at, "i", get(batch, at, "i") + 5)))
    return found("marker-order snapshot-content")


@damages(".log", "a marker of another producer, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=False)
    v.replace(base, number, sealed(put(batch, PRODUCER, "q", 987_654)))
    return found("snapshot-content marker-missing txn-index-entry")


@damages(".log", "a marker that counts two records, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=False)
    v.replace(base, number, sealed(put(batch, COUNT, "i", 2)))
    return found("control-batch record-format batch-count", v.file(base), base_of(batch))


@damages(".log", "data of a transaction made plain, CRC right", "transactions")
def _(v: Victim) -> Verdict:
    base, number, batch = _marker(v, abort=True)
    producer = get(batch, PRODUCER, "q")
    data = [
        (at, n, each)
        for at in v.bases
        for n, each in enumerate(v.batches(at))
        if get(each, PRODUCER, "q") == producer
    ]
    place = data.index((base, number, batch))
    first = place
    while first and not is_control(data[first - 1][2]):
        first -= 1
    at, n, each = data[first]
    attributes = get(each, ATTRIBUTES, "h") & ~0x10
    v.replace(at, n, sealed(put(each, ATTRIBUTES, "h", attributes)))
    return found("txn-index-entry snapshot-content")


# ---- files of entries


def _entry_damages(suffix: str, size: int, wrong_size: str, order: str) -> None:
    """The damages that are alike for the three indexes."""

    @damages(suffix, "cut inside an entry", "transactions" if suffix == ".txnindex" else "")
    def _(v: Victim) -> Verdict:
        path = v.with_suffix(suffix)
        path.write_bytes(path.read_bytes()[:-3])
        return found(wrong_size, path)

    @damages(suffix, "extended with bytes", "transactions" if suffix == ".txnindex" else "")
    def _(v: Victim) -> Verdict:
        path = v.with_suffix(suffix)
        path.write_bytes(path.read_bytes() + b"\1\2\3")
        return found(wrong_size, path)

    @damages(suffix, "two entries exchanged", "transactions" if suffix == ".txnindex" else "")
    def _(v: Victim) -> Verdict:
        path = _with_entries(v, suffix, 2 * size)
        data = path.read_bytes()
        path.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])
        return found(order, path)

    @damages(suffix, "an entry written twice", "transactions" if suffix == ".txnindex" else "")
    def _(v: Victim) -> Verdict:
        path = _with_entries(v, suffix, size)
        data = path.read_bytes()
        path.write_bytes(data[:size] + data)
        return found(order, path)


def _with_entries(v: Victim, suffix: str, size: int) -> Path:
    files = [path for path in sorted(v.log.glob(f"*{suffix}")) if path.stat().st_size >= size]
    return files[len(files) // 2]


_entry_damages(".index", 8, "index-size", "offset-index-order")
_entry_damages(".timeindex", 12, "index-size", "time-index-order")
_entry_damages(".txnindex", 34, "txn-index-format", "txn-index-format txn-index-order")


def _removed(suffix: str) -> Change:
    def change(v: Victim) -> Verdict:
        v.file(v.middle, suffix).unlink()
        return found("index-missing", v.file(v.middle, suffix))

    return change


def _edited(
    suffix: str, size: int, edit: Callable[[bytes], bytes], rules: str, *, is_last: bool = False
) -> Change:
    def change(v: Victim) -> Verdict:
        path = _with_entries(v, suffix, size)
        data = path.read_bytes()
        if is_last:
            path.write_bytes(data[:-size] + edit(data[-size:]))
        else:
            path.write_bytes(edit(data[:size]) + data[size:])
        return found(rules, path)

    return change


def _unknowable(suffix: str, edit: Callable[[bytes], bytes], why: str) -> Change:
    def change(v: Victim) -> Verdict:
        path = v.with_suffix(suffix)
        path.write_bytes(edit(path.read_bytes()))
        return Unknowable(why)

    return change


def _from_segment(suffix: str, rules: str) -> Change:
    def change(v: Victim) -> Verdict:
        files = [path for path in sorted(v.log.glob(f"*{suffix}")) if path.stat().st_size]
        files[-1].write_bytes(files[0].read_bytes())
        return found(rules, files[-1])

    return change


_EITHER = "leader-epochs-content leader-epochs-order"
_SPARSE = "an index has an entry for some batches only"
_OFFSET = "offset-index-entry offset-index-beyond offset-index-order"
_TIME = "time-index-entry time-index-beyond time-index-order"
_TXN = "txn-index-entry txn-index-missing txn-index-format txn-index-order"

for _kind, _what, _change in (
    (".index", "removed", _removed(".index")),
    (".index", "emptied", _unknowable(".index", lambda _: b"", _SPARSE)),
    (".index", "its last entry removed", _unknowable(".index", lambda data: data[:-8], _SPARSE)),
    (".index", "its first entry removed", _unknowable(".index", lambda data: data[8:], _SPARSE)),
    (".index", "a position changed", _edited(".index", 8, lambda e: put(e, 4, "i", 5), _OFFSET)),
    (
        ".index",
        "an offset changed",
        _edited(".index", 8, lambda e: put(e, 0, "i", get(e, 0, "i") - 1), _OFFSET),
    ),
    (
        ".index",
        "an entry beyond the log added",
        _edited(
            ".index", 8, lambda e: e + struct.pack(">ii", 1 << 30, 1 << 30), _OFFSET, is_last=True
        ),
    ),
    (".index", "that of another segment", _from_segment(".index", _OFFSET)),
    (".timeindex", "removed", _removed(".timeindex")),
    (".timeindex", "emptied", _edited(".timeindex", 12, lambda _: b"", _TIME, is_last=True)),
    (
        ".timeindex",
        "its last entry removed",
        _edited(".timeindex", 12, lambda _: b"", _TIME, is_last=True),
    ),
    (
        ".timeindex",
        "a timestamp changed",
        _edited(".timeindex", 12, lambda e: put(e, 0, "q", get(e, 0, "q") - 7), _TIME),
    ),
    (
        ".timeindex",
        "the last timestamp changed",
        _edited(
            ".timeindex", 12, lambda e: put(e, 0, "q", get(e, 0, "q") + 7), _TIME, is_last=True
        ),
    ),
    (
        ".timeindex",
        "an entry beyond the log added",
        _edited(
            ".timeindex",
            12,
            lambda e: e + struct.pack(">qi", get(e, 0, "q") + 9, 1 << 30),
            _TIME,
            is_last=True,
        ),
    ),
    (".timeindex", "that of another segment", _from_segment(".timeindex", _TIME)),
):
    damages(_kind, _what)(_change)


def _txn(what: str, edit: Callable[[bytes], bytes], rules: str = _TXN) -> None:
    damages(".txnindex", what, "transactions")(_edited(".txnindex", 34, edit, rules))


_txn("an entry removed", lambda _: b"", "txn-index-missing")
_txn("a producer changed", lambda e: put(e, 2, "q", 987_654))
_txn("a first offset made smaller", lambda e: put(e, 10, "q", get(e, 10, "q") - 1))
_txn("a first offset made larger", lambda e: put(e, 10, "q", get(e, 10, "q") + 1))
_txn("a last offset changed", lambda e: put(e, 18, "q", get(e, 18, "q") - 1))
_txn("a last stable offset made smaller", lambda e: put(e, 26, "q", get(e, 26, "q") - 1))
_txn("a last stable offset made larger", lambda e: put(e, 26, "q", get(e, 26, "q") + 1))
_txn("a version changed", lambda e: put(e, 0, "h", 7))
_txn(
    "an entry without a transaction added",
    lambda e: put(put(e, 18, "q", get(e, 10, "q")), 2, "q", 5) + e,
)
damages(".txnindex", "that of another segment", "transactions")(_from_segment(".txnindex", _TXN))


@damages(".txnindex", "removed", "transactions")
def _(v: Victim) -> Verdict:
    path = v.with_suffix(".txnindex")
    path.unlink()
    return found("txn-index-missing", path)


# ---- producer snapshots


def _snapshot(
    what: str,
    edit: Callable[[bytes], bytes],
    rules: str = "snapshot-content",
    *,
    needs: str = "producers",
    at_end: bool = False,
) -> None:
    """Another first entry, with a right CRC."""

    def change(v: Victim) -> Verdict:
        files = [path for path in sorted(v.log.glob("*.snapshot")) if path.stat().st_size > 10]
        path = files[-1 if at_end else len(files) // 2]
        data = path.read_bytes()
        entries = edit(data[10:56]) + data[56:]
        body = struct.pack(">i", len(entries) // 46) + entries
        path.write_bytes(data[:2] + struct.pack(">I", crc(body)) + body)
        return found(rules, path)

    damages(".snapshot", what, needs)(change)


def _plus(at: int, layout: str, by: int) -> Callable[[bytes], bytes]:
    return lambda entry: put(entry, at, layout, get(entry, at, layout) + by)


_snapshot("a sequence made larger, CRC right", _plus(10, "i", 3))
_snapshot("a sequence made smaller, CRC right", _plus(10, "i", -1))
_snapshot("a sequence at the log's end changed, CRC right", _plus(10, "i", 1), at_end=True)
_snapshot("an epoch changed, CRC right", _plus(8, "h", 1))
_snapshot("a last offset made smaller, CRC right", _plus(14, "q", -1))
_snapshot("an offset delta changed, CRC right", _plus(22, "i", 1))
_snapshot("a timestamp changed, CRC right", _plus(26, "q", 1))
_snapshot("a coordinator epoch changed, CRC right", _plus(34, "i", 5), needs="transactions")
_snapshot("a transaction opened, CRC right", lambda e: put(e, 38, "q", 1), needs="transactions")
_snapshot("a producer changed, CRC right", _plus(0, "q", 987_654))
_snapshot("a producer added, CRC right", lambda e: e + put(e, 0, "q", 987_654))


@damages(".snapshot", "a producer without a transaction removed, CRC right", "producers")
def _(v: Victim) -> Verdict:
    path = v.file(v.middle, ".snapshot")
    entries = path.read_bytes()[10:]
    entries = entries[46:]
    body = struct.pack(">i", len(entries) // 46) + entries
    path.write_bytes(path.read_bytes()[:2] + struct.pack(">I", crc(body)) + body)
    return Unknowable("a producer expires")


@damages(".snapshot", "removed")
def _(v: Victim) -> Verdict:
    v.file(v.middle, ".snapshot").unlink()
    return Unknowable("a broker reads the log instead")


@damages(".snapshot", "cut")
def _(v: Victim) -> Verdict:
    path = v.file(v.middle, ".snapshot")
    path.write_bytes(path.read_bytes()[:-1])
    return found("snapshot-format", path)


@damages(".snapshot", "extended")
def _(v: Victim) -> Verdict:
    path = v.file(v.middle, ".snapshot")
    path.write_bytes(path.read_bytes() + b"\0" * 46)
    return found("snapshot-format", path)


@damages(".snapshot", "a byte flipped")
def _(v: Victim) -> Verdict:
    path = v.file(v.middle, ".snapshot")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    return found("snapshot-format", path)


@damages(".snapshot", "that of another partition", "producers")
def _(v: Victim) -> Verdict:
    path = v.file(v.middle, ".snapshot")
    entry = struct.pack(">qhiqiqiq", 4_711, 0, 5, 3, 0, 0, -1, -1)
    body = struct.pack(">i", 1) + entry
    path.write_bytes(struct.pack(">hI", 1, crc(body)) + body)
    return found("snapshot-content", path, v.middle)


@damages(".snapshot", "renamed beyond the log's end")
def _(v: Victim) -> Verdict:
    end = last_of(v.last()) + 1
    v.file(v.middle, ".snapshot").rename(v.file(end + 5, ".snapshot"))
    return found("offsets-missing", v.file(v.bases[-1]), end)


@damages(".snapshot", "that of an earlier segment", "producers")
def _(v: Victim) -> Verdict:
    files = sorted(v.log.glob("*.snapshot"))
    files[-1].write_bytes(files[0].read_bytes())
    return found("snapshot-content", files[-1])


# ---- leader epochs


def _epochs(v: Victim) -> tuple[Path, list[list[int]]]:
    path = v.log / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()[2:]
    return path, [[int(word) for word in line.split()] for line in lines]


def _write_epochs(path: Path, entries: list[list[int]]) -> None:
    lines = "".join(f"{epoch} {start}\n" for epoch, start in entries)
    path.write_text(f"0\n{len(entries)}\n{lines}")


def _epoch(
    what: str,
    edit: Callable[[Victim, list[list[int]]], list[list[int]]],
    rules: str = "leader-epochs-content",
    needs: str = "",
) -> None:
    def change(v: Victim) -> Verdict:
        path, entries = _epochs(v)
        _write_epochs(path, edit(v, entries))
        return found(rules, path)

    damages("leader-epoch-checkpoint", what, needs)(change)


_epoch(
    "an epoch changed",
    lambda _, e: [[e[0][0] + 40, e[0][1]], *e[1:]],
    _EITHER,
)
_epoch("all entries removed", lambda _, __: [])
_epoch(
    "an entry too many",
    lambda v, e: [*e, [e[-1][0] + 1, v.middle]],
    _EITHER,
)
_epoch("an entry beyond the log's end", lambda v, e: [*e, [e[-1][0] + 1, last_of(v.last()) + 9]])
_epoch("an entry twice", lambda _, e: [e[0], *e], "leader-epochs-order")
_epoch(
    "the only epoch made to begin later",
    lambda v, e: [[e[0][0], v.middle], *e[1:]],
    _EITHER,
    "golden",
)


@damages("leader-epoch-checkpoint", "an epoch made to begin inside a batch")
def _(v: Victim) -> Verdict:
    path, entries = _epochs(v)
    batch = next(b for b in reversed(v.batches(v.bases[-1])) if last_of(b) > base_of(b))
    if batch == v.last():
        entries = [each for each in entries if each[1] <= base_of(batch)]
        _write_epochs(path, [*entries, [entries[-1][0] + 1, last_of(batch)]])
    else:
        _write_epochs(path, [*entries, [entries[-1][0] + 1, last_of(batch)]])
    return found(_EITHER, path)


@damages("leader-epoch-checkpoint", "the epoch of no batch changed", "epochs")
def _(v: Victim) -> Verdict:
    path, entries = _epochs(v)
    end = last_of(v.last()) + 1
    entries = [each for each in entries if each[1] < end]
    _write_epochs(path, [*entries, [entries[-1][0] + 7, end]])
    return Unknowable("a leader that has written nothing leaves no other trace")


@damages("leader-epoch-checkpoint", "a later epoch removed", "epochs")
def _(v: Victim) -> Verdict:
    path, entries = _epochs(v)
    _write_epochs(path, entries[:1])
    return found("leader-epochs-content", path, entries[1][1])


@damages("leader-epoch-checkpoint", "two epochs exchanged", "epochs")
def _(v: Victim) -> Verdict:
    path, entries = _epochs(v)
    _write_epochs(path, [entries[1], entries[0], *entries[2:]])
    return found("leader-epochs-order", path)


@damages("leader-epoch-checkpoint", "a later epoch made to begin earlier", "epochs")
def _(v: Victim) -> Verdict:
    path, entries = _epochs(v)
    starts = [base_of(b) for base in v.bases for b in v.batches(base)]
    before = next(one for one, two in pairwise(starts) if two == entries[1][1])
    _write_epochs(path, [entries[0], [entries[1][0], before], *entries[2:]])
    return found("leader-epochs-content", path, before)


def _file(
    name: str, what: str, edit: Callable[[str], str | None], verdict: Verdict, needs: str = ""
) -> None:
    """A text of the partition or of the log directory; None removes it."""

    def change(v: Victim) -> Verdict:
        path = v.log / name if (v.log / name).exists() else v.root / name
        text = edit(path.read_text() if path.exists() else "0\n0\n")
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)
        return verdict

    damages(name, what, needs)(change)


_EPOCHS = "leader-epoch-checkpoint"
_file(_EPOCHS, "removed", lambda _: None, found("leader-epochs-content", _EPOCHS))
_file(_EPOCHS, "cut", lambda text: text[:3], found("leader-epochs-format", _EPOCHS))
_file(_EPOCHS, "another version", lambda t: "1" + t[1:], found("leader-epochs-format", _EPOCHS))
_file(_EPOCHS, "no text", lambda _: "\x00\x01\x02", found("leader-epochs-format", _EPOCHS))

# ---- partition.metadata and meta.properties

_METADATA = "partition.metadata"
_file(_METADATA, "removed", lambda _: None, found("partition-metadata", _METADATA))
_file(_METADATA, "cut", lambda text: text[:15], found("partition-metadata", _METADATA))
_file(_METADATA, "no text", lambda _: "?", found("partition-metadata", _METADATA))
_file(
    _METADATA,
    "another topic id, without a metadata log",
    lambda _: "version: 0\ntopic_id: m8yCKPtj-67ToAczzdCnyQ",
    Unknowable("only the cluster's metadata have the ids of topics"),
)
_PROPERTIES = "meta.properties"
_file(_PROPERTIES, "removed", lambda _: None, found("meta-properties", _PROPERTIES))
_file(
    _PROPERTIES,
    "another node id",
    lambda text: text.replace("node.id=", "node.id=4"),
    Unknowable("only the broker's own settings have it"),
)
_file(
    _PROPERTIES,
    "no node id",
    lambda text: text.replace("node.id=", "mode.id="),
    found("refused"),
)
_file(
    ".kafka_cleanshutdown",
    "removed",
    lambda _: None,
    Unknowable("a broker that was killed leaves none"),
)


# ---- checkpoints of the log directory


def _line(offset: Callable[[Victim], int]) -> Callable[[Victim], str]:
    def text(v: Victim) -> str:
        topic, partition = v.name.rsplit("-", 1)
        return f"0\n1\n{topic} {partition} {offset(v)}\n"

    return text


def _checkpoint(name: str, what: str, text: Callable[[Victim], str], verdict: Verdict) -> None:
    def change(v: Victim) -> Verdict:
        (v.root / name).write_text(text(v))
        return verdict

    damages(name, what)(change)


_HARMLESS = {
    "recovery-point-offset-checkpoint": "a broker reads more of the log when it starts",
    "replication-offset-checkpoint": "the high watermark rises again",
    "cleaner-offset-checkpoint": "a compaction begins further back",
}
for _name, _why in _HARMLESS.items():
    _checkpoint(_name, "an older offset", _line(lambda v: v.bases[1]), Unknowable(_why))
    _file(_name, "removed", lambda _: None, Unknowable(_why))

for _name in (*_HARMLESS, "log-start-offset-checkpoint"):
    _wrong = found("checkpoint-format", _name)
    _beyond = _line(lambda v: last_of(v.last()) + 2)
    _checkpoint(_name, "an offset beyond the log's end", _beyond, found("checkpoint-bounds", _name))
    _checkpoint(_name, "a count that is wrong", lambda _: "0\n2\na 0 1\n", _wrong)
    _checkpoint(_name, "another version", lambda _: "5\n0\n", _wrong)
    _checkpoint(_name, "no text", lambda _: "\x00\x01\x02", _wrong)
    _checkpoint(_name, "a line that is cut", lambda _: "0\n1\nlog\n", _wrong)

_STARTS = "log-start-offset-checkpoint"
_checkpoint(
    _STARTS,
    "an offset inside the log",
    _line(lambda v: v.middle + 1),
    found("leader-epochs-content", "leader-epoch-checkpoint"),
)


@damages(_STARTS, "the line removed of a log with deleted records", "deleted")
def _(v: Victim) -> Verdict:
    (v.root / _STARTS).write_text("0\n0\n")
    return found("leader-epochs-content", "leader-epoch-checkpoint")


@damages(_STARTS, "removed, of a log with deleted records", "deleted")
def _(v: Victim) -> Verdict:
    (v.root / _STARTS).unlink()
    return found("leader-epochs-content", "leader-epoch-checkpoint")


@damages("directory", "the segments of another partition, of another length", "golden")
def _(v: Victim) -> Verdict:
    _take_other(v)
    newest = max(int(path.stem) for path in v.log.glob("*.log"))
    v.file(newest).write_bytes(b"")
    return found("offsets-missing offset-index-beyond time-index-beyond")


@damages("directory", "the segments of another partition, as long and as old", "golden as long")
def _(v: Victim) -> Verdict:
    end = last_of(v.last())
    _take_other(v)
    other = Victim(v.root, v.name, v.other)
    assert other.bases[0] == v.bases[0]
    assert last_of(other.last()) == end
    return Unknowable("they are a sound log, and keys are not compared with partitions")


def _take_other(v: Victim) -> None:
    for path in v.log.iterdir():
        if path.suffix in SEGMENT_SUFFIXES:
            path.unlink()
    for path in v.other.iterdir():
        if path.suffix in SEGMENT_SUFFIXES:
            shutil.copy2(path, v.log / path.name)


# ---- logs that have been compacted


def _remove_segment(v: Victim, base: int) -> None:
    for suffix in SEGMENT_SUFFIXES:
        v.file(base, suffix).unlink(missing_ok=True)


@damages(".log", "a segment above the cleaner's checkpoint removed", "compacted above")
def _(v: Victim) -> Verdict:
    _remove_segment(v, v.bases[-2])
    return found("offsets-missing", v.file(v.bases[-3]), v.bases[-2])


@damages(".log", "a batch above the cleaner's checkpoint removed", "compacted")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.bases[-1])
    v.write(v.bases[-1], [batches[0], *batches[2:]])
    return found("offsets-missing", v.file(v.bases[-1]), base_of(batches[1]))


@damages(".log", "a compacted segment removed, its indexes left", "compacted")
def _(v: Victim) -> Verdict:
    v.file(v.middle).unlink()
    return found("log-missing", v.file(v.middle), v.middle)


@damages(".log", "a compacted segment removed", "compacted plain")
def _(v: Victim) -> Verdict:
    _remove_segment(v, v.middle)
    return Unknowable("all its records may have been superseded", "offsets-unknown")


@damages(".log", "a compacted batch removed", "compacted plain")
def _(v: Victim) -> Verdict:
    batches = v.batches(v.middle)
    v.write(v.middle, [*batches[:1], *batches[2:]])
    return Unknowable("all its records may have been superseded", "offsets-unknown")


@damages(".log", "the last batch of a producer removed from a compacted segment", "compacted ended")
def _(v: Victim) -> Verdict:
    newest = max(v.log.glob("*.snapshot")).read_bytes()
    lasts = {get(newest, at + 14, "q") for at in range(10, len(newest), 46)}
    for base in v.bases[:-1]:
        for number, batch in enumerate(v.batches(base)):
            if last_of(batch) in lasts and get(batch, PRODUCER, "q") >= 0:
                batches = v.batches(base)
                v.write(base, [*batches[:number], *batches[number + 1 :]])
                return found("producer-batch-missing", None, last_of(batch))
    raise AssertionError("no producer has ended below the active segment")


@damages(".log", "a sequence changed in a compacted segment, CRC right", "compacted producers")
def _(v: Victim) -> Verdict:
    base, number, batch = _last_of_pair(v)
    v.replace(base, number, sealed(put(batch, SEQUENCE, "i", get(batch, SEQUENCE, "i") + 90_000)))
    return found("producer-sequence", v.file(base), base_of(batch))


def _last_of_pair(v: Victim) -> tuple[int, int, bytes]:
    """A batch of a producer that has another one in front of it."""
    seen = set()
    for base in v.bases:
        for number, batch in enumerate(v.batches(base)):
            producer = get(batch, PRODUCER, "q")
            if producer in seen and not is_control(batch):
                return base, number, batch
            if producer >= 0 and not is_control(batch):
                seen.add(producer)
    raise AssertionError("no producer has two batches")


@damages(".snapshot", "a sequence changed in a compacted log, CRC right", "compacted producers")
def _(v: Victim) -> Verdict:
    path = max(v.log.glob("*.snapshot"))
    data = path.read_bytes()
    body = put(data[6:], 14, "i", get(data[6:], 14, "i") + 1)
    path.write_bytes(data[:2] + struct.pack(">I", crc(body)) + body)
    return found("snapshot-content", path)


@damages(".txnindex", "an entry removed in a compacted log", "compacted transactions")
def _(v: Victim) -> Verdict:
    path = max(v.log.glob("*.txnindex"))
    path.write_bytes(path.read_bytes()[34:])
    return found("txn-index-missing", path)


@damages(".txnindex", "a last stable offset made larger in a compacted log", "compacted open")
def _(v: Victim) -> Verdict:
    path = max(v.log.glob("*.txnindex"))
    data = path.read_bytes()
    path.write_bytes(put(data, 26, "q", get(data, 26, "q") + 1))
    return found("txn-index-entry", path)


@damages(".txnindex", "a first offset made larger in a compacted log", "compacted transactions")
def _(v: Victim) -> Verdict:
    path = max(v.log.glob("*.txnindex"))
    data = path.read_bytes()
    path.write_bytes(put(data, 10, "q", get(data, 18, "q")))
    return found("txn-index-entry", path)


@damages("leader-epoch-checkpoint", "the first of several epochs made to begin later", "epochs")
def _(v: Victim) -> Verdict:
    path, entries = _epochs(v)
    _write_epochs(path, [[entries[0][0], entries[0][1] + 2], *entries[1:]])
    return Unknowable("a broker that is killed may forget a log start offset")

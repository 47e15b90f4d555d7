"""Planted damages of every kind of file: each is found at its place, or named as unknowable."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cordwood.cleanup.verification.directories import verify
from cordwood.format.compression import Codec
from cordwood.model.clock import FixedClock
from cordwood.model.errors import CordwoodError
from support import planted_file_damage
from support.golden import Golden
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.planted_damage import DAMAGES, Damage, Found, Unknowable, Verdict, Victim

assert planted_file_damage.__doc__, "it has added its damages"

DOCS = Path(__file__).parents[4] / "docs" / "design" / "damages.md"


def own_log() -> LogBuilder:
    """Producers, transactions, leader epochs and all codecs, never compacted."""
    log = LogBuilder("own-0", index_interval_bytes=150)
    coordinator = 2
    for segment in range(6):
        for number in range(10):
            codec = list(Codec)[number % 5]
            time = NOW_MS + 10 * log.next_offset
            log.batch([(b"a", b"x" * 30), (b"b", b"y")], codec=codec, timestamp=time)
            log.put(b"i", b"idempotent", producer=(1, 0), timestamp=time + 5)
        for producer in ((7, 1), (8, 3), (9, 2)):
            log.put(b"t", b"1", producer=producer, transactional=True)
            log.put(b"t", b"2", producer=producer, transactional=True)
        for producer in ((7, 1), (8, 3), (9, 2)):
            log.marker(producer, commit=producer[0] == 7, coordinator_epoch=coordinator)
        log.roll()
        if segment % 2:
            log.new_leader_epoch()
    for number in range(12):
        log.batch([(b"k%d" % number, b"v"), (b"l", b"w")], timestamp=NOW_MS + 10_000 + number)
    return log


def compacted_log() -> LogBuilder:
    """Two segments with gaps, and an aborted transaction while another is open; three without."""
    log = LogBuilder("compacted-0")
    for segment in range(5):
        for number in range(4):
            log.batch([(b"k%d" % number, b"v"), (b"l", b"w")])
            if segment < 2:
                log.skip(3)
        if segment == 1:
            log.put(b"t", b"1", producer=(7, 0), transactional=True)
            log.put(b"t", b"1", producer=(8, 0), transactional=True)
            log.marker((8, 0), commit=False)
            log.cleaner_checkpoint = log.next_offset
        log.roll()
    log.marker((7, 0), commit=True)
    return log


@dataclass(frozen=True, slots=True)
class Source:
    """A log to be damaged, and what damages can be done to it."""

    directory: str
    name: str
    has: frozenset[str]


PLAIN = frozenset({"", "start", "create time"})
GOLDEN, BYTES = PLAIN | {"golden"}, frozenset({"uncompressed"})
#: Its offsets are those of the partition whose segments it gets.
AS_LONG = GOLDEN | {"golden as long"}
SOURCES = (
    Source("before", "one-key-0", AS_LONG | BYTES),
    Source("before", "idempotent-0", AS_LONG | BYTES | {"producers"}),
    Source("before", "transactions-0", GOLDEN | {"producers", "transactions"}),
    Source("own", "own-0", PLAIN | {"producers", "transactions", "epochs"}),
    Source("before", "delete-records-0", AS_LONG - {"start"} | BYTES | {"deleted"}),
    Source("before", "transactions-gone-0", GOLDEN | {"producers", "transactions"}),
    Source("before", "codec-gzip-0", GOLDEN),
    Source("before", "codec-zstd-0", GOLDEN),
    Source("before", "mixed-codecs-0", GOLDEN),
    Source("before", "retention-time-0", AS_LONG | BYTES),
    Source("before", "log-append-time-0", AS_LONG - {"create time"} | BYTES),
    Source("after-2", "one-key-0", frozenset({"compacted", "compacted plain"})),
    Source(
        "after-2",
        "transactions-0",
        frozenset({"compacted", "compacted transactions", "compacted producers"}),
    ),
    Source("after-2", "idempotent-0", frozenset({"compacted", "compacted ended"})),
    Source("own", "compacted-0", frozenset({"compacted above", "compacted open"})),
)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log_dir(
        tmp_path_factory.mktemp("own"), [own_log(), compacted_log(), LogBuilder("other-0")]
    )


@dataclass(frozen=True, slots=True)
class Logs:
    golden: Path
    own: Path

    def victim(self, source: Source, root: Path) -> Victim:
        """A copy of a log in a log directory of its own."""
        where = self.own if source.directory == "own" else self.golden / source.directory
        root.mkdir()
        for path in where.iterdir():
            if path.is_file():
                shutil.copy2(path, root / path.name)
        shutil.copytree(where / source.name, root / source.name)
        other = "headers-0" if source.directory != "own" else "other-0"
        return Victim(root, source.name, where / other)


@pytest.fixture(scope="module")
def logs(golden_a: Golden, own: Path) -> Logs:
    return Logs(golden_a.root, own)


def findings(root: Path) -> tuple[bool, list[tuple[str, str, int | None]]]:
    """Whether it is sound, and each finding's rule, file and offset."""
    try:
        result = verify([root], clock=FixedClock(NOW_MS))
    except CordwoodError:
        return False, [("refused", "", None)]
    listed = [*result.findings, *(each for log in result.logs for each in log.findings)]
    return result.is_sound, [(each.rule.code, Path(each.path).name, each.offset) for each in listed]


def is_found(verdict: Verdict, found: list[tuple[str, str, int | None]]) -> bool:
    assert isinstance(verdict, Found)
    return any(
        rule in verdict.rules and verdict.file in {None, file} and verdict.offset in {None, offset}
        for rule, file, offset in found
    )


def cases() -> Iterator[object]:
    """Each damage with one log, and nightly with every other one that it can be done to."""
    for damage in DAMAGES:
        fits = [source for source in SOURCES if damage.needs in source.has]
        for number, source in enumerate(fits):
            marks = [pytest.mark.nightly] if number else []
            name = f"{damage.file}-{damage.what}-{source.name}"
            yield pytest.param(damage, source, id=name, marks=marks)


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: f"{each.directory}-{each.name}")
def test_what_is_to_be_damaged_is_sound(logs: Logs, tmp_path: Path, source: Source) -> None:
    victim = logs.victim(source, tmp_path / "log-dir")
    is_sound, found = findings(victim.root)
    assert is_sound
    notes = set() if source.has >= PLAIN else {"offsets-unknown"}
    assert {rule for rule, _, _ in found} <= notes


@pytest.mark.parametrize(("damage", "source"), list(cases()))
def test_a_damage_is_found_at_its_place_or_is_unknowable(
    logs: Logs, tmp_path: Path, damage: Damage, source: Source
) -> None:
    victim = logs.victim(source, tmp_path / "log-dir")
    verdict = damage.change(victim)
    is_sound, found = findings(victim.root)
    listed, reasons = documented()[damage.file]
    assert (damage.what in listed) == isinstance(verdict, Found)
    if isinstance(verdict, Unknowable):
        assert reasons[damage.what] == verdict.why
        assert is_sound, f"it is found: {found}"
        assert verdict.note is None or verdict.note in {rule for rule, _, _ in found}
    else:
        assert not is_sound, f"{verdict} is not found: {found}"
        assert is_found(verdict, found), f"{verdict}, and not {found}"


@functools.cache
def documented() -> dict[str, tuple[list[str], dict[str, str]]]:
    """The table of docs/design/damages.md, by kind of file: damage found and not found."""
    lines = DOCS.read_text().splitlines()
    first = lines.index("| file | found | not found, and why |") + 2
    rows = {}
    for line in itertools.takewhile(lambda each: each.startswith("|"), lines[first:]):
        file, found, unknowable = (cell.strip() for cell in line.strip("|").split("|"))
        reasons = dict(each.split(": ") for each in unknowable.split("; ") if each)
        rows[file.strip("`")] = (found.split("; ") if found else [], reasons)
    return rows


def test_the_documentation_lists_each_damage() -> None:
    listed = {
        (file, what)
        for file, (found, unknowable) in documented().items()
        for what in (*found, *unknowable)
    }
    assert listed == {(each.file, each.what) for each in DAMAGES}


def test_there_are_damages_enough() -> None:
    assert len({(each.file, each.what) for each in DAMAGES}) == len(DAMAGES) > 100

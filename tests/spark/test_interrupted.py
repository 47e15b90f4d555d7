"""`cordwood clean` on Spark, cut off while it puts segments in place; and what Spark cannot do."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.format.record_batch import iter_batches
from support.clean import digest_tree, run_clean
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.spark_servers import standalone_cluster

pytestmark = pytest.mark.spark

_SECONDS_MAX = 600
# So small an index makes a group of every segment.
OPTIONS = [
    *("--set", "t:cleanup.policy=compact", "--set", "t:segment.index.bytes=100"),
    *("--force", "--master", "local[2]"),
]
SLOWLY = ["--throttle", "300K"]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of thirty segments each, nearly all of them to be rewritten."""
    rng = random.Random(3)
    made = []
    for name in ("t-0", "t-1"):
        log = LogBuilder(name)
        for number in range(30):
            for _ in range(25):
                keys = [b"k%d" % rng.randrange(4_000) for _ in range(20)]
                log.batch([(key, rng.randbytes(60)) for key in keys])
            log.put(b"only-%d" % number, None)
            log.roll()
        log.put(b"end", b"v")
        made.append(log)
    return write_log_dir(tmp_path_factory.mktemp("interrupted") / "before", made)


@pytest.fixture(scope="module")
def undisturbed(before: Path) -> dict[str, str]:
    root = shutil.copytree(before, before.parent / "undisturbed")
    run_clean([root], *OPTIONS, now_ms=NOW_MS)
    return contents(root)


def contents(root: Path) -> dict[str, str]:
    """The digest of every file, whenever it was written."""
    return {name: facts.split(" ")[0] for name, facts in digest_tree(root).items()}


def command(root: Path, options: Sequence[str]) -> list[str]:
    return [
        *(sys.executable, "-m", "cordwood", "clean", str(root), "--now", str(NOW_MS), "--json"),
        *(*OPTIONS, *options),
    ]


def cut_off(root: Path, *, after_groups: int, with_signal: int) -> tuple[int, str]:
    """Cleans, and sends a signal once so many groups are being put in place; (exit code, words)."""
    process = subprocess.Popen(
        command(root, SLOWLY), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + _SECONDS_MAX
    try:
        while groups_of(root) < after_groups:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no group was put in place in time"
            time.sleep(0.002)
        process.send_signal(with_signal)
        _, words = process.communicate(timeout=_SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    return process.returncode, words


def groups_of(root: Path) -> int:
    """The number of groups in the journal of the first partition."""
    try:
        return (root / "t-0" / "cordwood.round").read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("after_groups", [pytest.param(1, marks=pytest.mark.nightly), 12])
def test_killed_while_it_commits_the_next_run_ends_as_an_undisturbed_one(
    before: Path, undisturbed: dict[str, str], tmp_path: Path, after_groups: int
) -> None:
    root = shutil.copytree(before, tmp_path / "logs")
    code, _ = cut_off(root, after_groups=after_groups, with_signal=signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert (root / "t-0" / "cordwood.round").exists()
    # At once, while the virtual machine of the dead driver may still be there.
    run_clean([root], *OPTIONS, now_ms=NOW_MS)
    assert contents(root) == undisturbed
    once = digest_tree(root)
    run_clean([root], *OPTIONS, now_ms=NOW_MS)
    assert digest_tree(root) == once


def records(root: Path) -> dict[str, list[tuple[int, bytes | None, bytes | None]]]:
    """Records of each partition for a consumer: (offset, key, value)."""
    return {
        name: [
            (record.offset, record.key, record.value)
            for path in sorted((root / name).glob("*.log"))
            for _, batch in iter_batches(path.read_bytes())
            for record in batch.records()
        ]
        for name in ("t-0", "t-1")
    }


@pytest.mark.parametrize(
    "with_signal", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_interrupted_it_leaves_whole_segments_and_the_next_run_cleans_the_rest(
    before: Path, undisturbed: dict[str, str], tmp_path: Path, with_signal: int
) -> None:
    root = shutil.copytree(before, tmp_path / "logs")
    code, words = cut_off(root, after_groups=3, with_signal=with_signal)
    assert code == 128 + with_signal
    assert words.endswith("; replaced segments are kept, the next run continues\n")
    halfway = records(root)
    assert not [p for p in root.rglob("*") if p.suffix in {".cleaned", ".swap"}]
    run_clean([root], *OPTIONS, now_ms=NOW_MS)
    done = records(before.parent / "undisturbed")
    assert records(root) == done
    for name, found in halfway.items():
        assert set(done[name]) <= set(found) <= set(records(before)[name])
    # The other partition may be at its end already, or not have begun: tasks start when they start.
    watched = set(halfway["t-0"])
    assert set(done["t-0"]) < watched < set(records(before)["t-0"])
    assert undisturbed


def test_damaged_partition_ends_with_1_and_the_others_are_done(
    before: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    root = shutil.copytree(before, tmp_path / "logs")
    damaged = sorted((root / "t-0").glob("*.log"))[20]
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    partition = contents(root / "t-0")
    done = subprocess.run(
        command(root, []), capture_output=True, text=True, check=False, timeout=_SECONDS_MAX
    )
    assert done.returncode == 1
    report = json.loads(done.stdout)
    found = {p["partition"]: (p["status"], p["reason"]) for p in report["partitions"]}
    assert found[0] == ("failed", f"{damaged}: a batch whose CRC does not match at byte 0")
    assert found[1][0] == "cleaned"
    assert contents(root / "t-0") == partition
    assert contents(root / "t-1") == {
        name.removeprefix("t-1/"): digest
        for name, digest in undisturbed.items()
        if name.startswith("t-1/")
    }


def test_connect_server_that_does_not_answer_is_named(before: Path, tmp_path: Path) -> None:
    root = shutil.copytree(before, tmp_path / "logs")
    untouched = contents(root)
    done = subprocess.run(
        command(root, ["--master", "sc://127.0.0.1:1"]),
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    assert done.returncode == 1
    assert "no Spark Connect server answers at sc://127.0.0.1:1" in done.stderr
    document = json.loads(done.stdout)
    assert "no Spark Connect server answers at sc://127.0.0.1:1" in document["error"]
    assert document["exit_code"] == 1
    assert contents(root) == untouched


def test_workers_that_cannot_see_the_directory_are_found_before_anything_is_touched(
    before: Path, tmp_path: Path
) -> None:
    """They look for a file that only the driver knows: here the driver looks through a link."""
    root = shutil.copytree(before, tmp_path / "logs")
    untouched = contents(root)
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from cordwood.cleanup.engine.spark import engine as engines, session\n"
        "from cordwood.model.errors import EngineError\n"
        "with session.spark_runner(sys.argv[1]) as spark:\n"
        "    engine = engines.SparkEngine(spark, slots=2)\n"
        "    engine.require_visible([Path(sys.argv[2])])\n"
        "    unseen = Path('/proc/self/cwd')\n"
        "    class Elsewhere(type(unseen)):\n"
        "        def resolve(self, strict=False):\n"
        "            return self\n"
        "    try:\n"
        "        engine.require_visible([Elsewhere(unseen)])\n"
        "    except EngineError as error:\n"
        "        print(error)\n"
    )
    with standalone_cluster(tmp_path) as address:
        done = subprocess.run(
            [sys.executable, "-c", program, address, str(root)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS_MAX,
            cwd=tmp_path,
        )
    assert "a Spark worker cannot see /proc/self/cwd" in done.stdout, done.stderr[-2000:]
    assert contents(root) == untouched

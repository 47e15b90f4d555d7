"""`cordwood clean` of an archive on an S3 server, and a SIGKILL at any request.

The driver, a worker of Spark, or the server dies. Each log is then as it was, as retention left it,
or as the whole cleaning did, and the next run ends where an undisturbed one ends.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cordwood.storage.archives.archive import Archive
from cordwood.storage.objects.object_store import ObjectStore
from support.archives import archived, contents, restored, s3_options
from support.golden import Golden
from support.object_storage.faults import PASS, Fault, ProxiedRequest
from support.object_storage.proxy import FaultProxy
from support.object_storage.server import ACCESS_KEY, REGION, SECRET_KEY, ObjectStorageServer

pytestmark = pytest.mark.spark

#: Compacted, deleted and both, with transactions, markers, tombstones and a codec.
TOPICS = ("compact-and-delete", "retention-time", "transactions", "tombstones-gone", "codec-lz4")
VICTIMS = ("driver", "worker", "server")

State = dict[str, dict[str, bytes]]


class Place:
    """Archives of the same log directory, one a run, and the states in which a log may be."""

    def __init__(self, server: ObjectStorageServer, golden: Golden, directory: Path) -> None:
        self.server = server
        self.now_ms = golden.cleaned_at_ms
        self.directory = directory
        self._source = golden.root / "before"
        self._runs = 0
        self.before = self.state(self.archive())
        self.final, self.requests = self._undisturbed()
        self.retained, _ = self._undisturbed("--retention-only")

    def archive(self) -> Archive:
        """A new bucket with the directory archived."""
        self._runs += 1
        bucket = f"kill-{os.urandom(3).hex()}-{self._runs}"
        self.server.make_bucket(bucket)
        archive = Archive(ObjectStore(f"s3://{bucket}/a", s3_options(self.server.url)))
        archived(archive, self._source, has_active=True, topics=TOPICS)
        return archive

    def state(self, archive: Archive) -> State:
        """The files of each partition, restored."""
        into = self.directory / f"restored-{os.urandom(4).hex()}"
        report = restored(archive, into, options=s3_options(self.server.url))
        assert report.is_complete, report
        found: State = {}
        for name, content in contents(into).items():
            partition, _, file = name.partition("/")
            if file.endswith((".log", ".index", ".timeindex", ".txnindex")):
                found.setdefault(partition, {})[file] = content
        return found

    def clean(self, archive: Archive, endpoint: str, *options: str) -> subprocess.Popen[bytes]:
        """The command, in a process group of its own."""
        environment = os.environ | {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
        }
        command = [sys.executable, "-m", "cordwood", "clean", archive.url, "--defaults", "--yes"]
        return subprocess.Popen(
            [*command, "--now", str(self.now_ms), *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _undisturbed(self, *options: str) -> tuple[State, int]:
        archive = self.archive()
        with FaultProxy(self.server.port) as proxy:
            self.finish(self.clean(archive, proxy.url, *options))
            requests = len(proxy.exchanges)
        return self.state(archive), requests

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for a command that must succeed."""
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output.decode()[-3000:]


@pytest.fixture(scope="module")
def place(
    object_storage: ObjectStorageServer,
    golden_a: Golden,
    tmp_path_factory: pytest.TempPathFactory,
) -> Place:
    return Place(object_storage, golden_a, tmp_path_factory.mktemp("kill"))


class Killing:
    """A plan without faults that does something once, at a request."""

    def __init__(self, number: int, kill: Callable[[], None]) -> None:
        self._number = number
        self._kill = kill
        self.is_done = False

    def __call__(self, request: ProxiedRequest) -> Fault:
        if request.number >= self._number and not self.is_done:
            self.is_done = True
            self._kill()
        return PASS


def workers_of(group: int) -> Iterator[int]:
    """The processes of Spark's Python workers in a process group."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            command = (entry / "cmdline").read_bytes()
            if os.getpgid(pid) == group and b"pyspark" in command and b"daemon" in command:
                yield pid


@pytest.mark.parametrize(
    "seed",
    [
        *range(3),
        *(
            pytest.param(seed, marks=[pytest.mark.nightly, pytest.mark.rotated])
            for seed in range(3, 103)
        ),
    ],
)
def test_each_log_is_as_it_was_or_as_it_shall_be(place: Place, seed: int) -> None:
    rng, archive = random.Random(seed), place.archive()
    victim, number = VICTIMS[seed % 3], rng.randrange(place.requests)
    process: subprocess.Popen[bytes] | None = None

    def kill() -> None:
        assert process is not None
        if victim == "driver":
            os.killpg(process.pid, signal.SIGKILL)
        elif victim == "server":
            place.server.kill()
            place.server.start()
        else:
            for pid in list(workers_of(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    plan = Killing(number, kill)
    with FaultProxy(place.server.port, plan) as proxy:
        process = place.clean(archive, proxy.url)
        process.communicate(timeout=300)
    assert plan.is_done
    if victim == "server":
        assert process.returncode == 0
    found = place.state(archive)
    for partition, files in found.items():
        known = [place.before[partition], place.retained[partition], place.final[partition]]
        assert files in known, f"{partition} is a mixture after {victim} died at {number}"
    place.finish(place.clean(archive, place.server.url))
    assert place.state(archive) == place.final

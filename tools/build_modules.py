"""Compiles the modules of the request path with mypyc, into a copy of the package.

DIRECTORY gets a copy of `cordwood` in which each of `MODULES` has an extension module beside its
source; Python imports that one. The copy is for this machine's Python. A copy of the same source
is left as it is.

The sources stay plain Python: where they are not compiled (no C compiler, no mypy in the
environment of a build), they run as they are. Both forms pass the same tests.

usage: build_modules.py DIRECTORY
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "cordwood"
#: The code of all modules is in one extension module of this name; theirs load it.
GROUP = "cordwood"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))

MODULES = (
    "broker/broker_context.py",
    "broker/coordinator_answer.py",
    "broker/coordinators/topic_log.py",
    "broker/coordinators/transaction_verification.py",
    "broker/delayed_fetch.py",
    "broker/delayed_operations.py",
    "broker/delayed_produce.py",
    "broker/handlers/fetch.py",
    "broker/handlers/fetch_response.py",
    "broker/handlers/offset_commit.py",
    "broker/handlers/produce.py",
    "broker/handlers/produce_checks.py",
    "broker/metrics.py",
    "broker/partition.py",
    "broker/reading.py",
    "broker/replica_manager.py",
    "controller/controller_context.py",
    "coordinator/deferred_answers.py",
    "coordinator/group/change.py",
    "coordinator/group/machine.py",
    "coordinator/group/offset_changes.py",
    "coordinator/group/offset_fetch.py",
    "coordinator/group/offset_records.py",
    "coordinator/group/offset_requests.py",
    "coordinator/group/offsets.py",
    "coordinator/group/records.py",
    "coordinator/group/service.py",
    "coordinator/group/shard.py",
    "coordinator/led_partitions.py",
    "coordinator/runtime.py",
    "coordinator/timeline.py",
    "coordinator/transaction/ending.py",
    "coordinator/transaction/machine.py",
    "coordinator/transaction/queries.py",
    "coordinator/transaction/records.py",
    "coordinator/transaction/service.py",
    "coordinator/transaction/shard.py",
    "coordinator/transaction/transaction.py",
    "format/batch_header.py",
    "format/java_map.py",
    "format/offset_commit.py",
    "format/record.py",
    "format/record_batch.py",
    "format/record_bound.py",
    "format/transaction_log_value.py",
    "format/varint.py",
    "protocol/headers.py",
    "protocol/requests.py",
    "purgatory/purgatory.py",
    "serving/api.py",
    "serving/connection.py",
    "serving/dispatch.py",
    "serving/frames.py",
    "serving/request_context.py",
    "serving/request_metrics.py",
    "serving/session.py",
    "storage/append/batch_analysis.py",
    "storage/append/payload.py",
    "storage/append/record_conversion.py",
    "storage/append/record_rules.py",
    "storage/append/record_walk.py",
    "storage/append/validator.py",
    "storage/log/append_result.py",
    "storage/log/log_offsets.py",
    "storage/log/log_reader.py",
    "storage/log/partition_log.py",
    "storage/producers/append_producers.py",
    "storage/producers/producer_append.py",
    "storage/producers/producer_entry.py",
    "storage/producers/producer_state.py",
    "storage/producers/verifications.py",
    "storage/reading/batch_heads.py",
    "storage/segment/index_files.py",
    "storage/segment/index_search.py",
    "storage/segment/log_segment.py",
    "storage/segment/offset_index.py",
    "storage/segment/resources.py",
    "storage/segment/segment_index.py",
    "storage/segment/segment_indexes.py",
    "storage/segment/segment_list.py",
    "storage/segment/time_index.py",
)

_DIGEST = "digest"
# Other modules are not judged here. Libraries that an environment for builds lacks have no types.
_MYPY_SETTINGS = "[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n"


def _digest() -> str:
    digest = hashlib.sha256(f"{sys.version} {SUFFIX}".encode() + Path(__file__).read_bytes())
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in {".py", ".so"}:
            digest.update(path.relative_to(SOURCE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _require_compiler() -> None:
    """Looks for the C compiler before all modules are translated for it, which takes a minute.

    Raises:
        FileNotFoundError: it is missing.
    """
    command = shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or ""))
    if command and shutil.which(command[0]) is None:
        raise FileNotFoundError(f"the C compiler {command[0]!r} is not there")


def _compile() -> None:
    """Compiles the copy in the working directory.

    Raises:
        SystemExit: a module does not pass mypy.
        Exception: the C compiler has failed, or is missing.
    """
    from mypyc.build import mypycify  # noqa: PLC0415  # optional, in the environment of a build
    from setuptools import Distribution  # noqa: PLC0415

    Path("mypy.ini").write_text(_MYPY_SETTINGS)
    # mypy looks for its settings, and mypyc for its own, in the working directory.
    names = [f"cordwood/{module}" for module in MODULES]
    options = ["--config-file=mypy.ini", "--cache-dir=build/mypy"]
    extensions = mypycify([*options, *names], group_name=GROUP, opt_level="3", debug_level="0")
    distribution = Distribution({"name": GROUP, "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.inplace = True  # type: ignore[attr-defined]
    command.ensure_finalized()
    command.run()


def build(directory: Path) -> bool:
    """Makes the copy, unless it is there; returns whether it was made.

    Raises:
        SystemExit, Exception: as `_compile`; nothing is left.
    """
    wanted = _digest()
    stamp = directory / _DIGEST
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    _require_compiler()
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(SOURCE, directory / "cordwood", ignore=shutil.ignore_patterns("__pycache__"))
    before = Path.cwd()
    try:
        os.chdir(directory)
        _compile()
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        os.chdir(before)
    shutil.rmtree(directory / "build", ignore_errors=True)
    made = [Path("cordwood", module).with_suffix(SUFFIX) for module in MODULES]
    missing = [str(path) for path in made if not (directory / path).exists()]
    assert not missing, f"not compiled: {missing}"
    stamp.write_text(wanted)
    return True


def main(directory: Path) -> int:
    """Builds; returns the exit code."""
    try:
        is_new = build(directory.absolute())
    except (Exception, SystemExit) as error:  # of mypy, of the C compiler, of the disk
        print(f"the request path is not compiled: {type(error).__name__}: {error}")
        return 1
    if is_new:
        print(f"compiled {len(MODULES)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""House rules as tests. Each failure says what to do; nothing here imports the product."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "cordwood"
SUPPORT = ROOT / "tests" / "support"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
ARCHITECTURE_LINES_MAX = 160

#: Lines of code: without signature, docstrings, comments and blank lines. Files have no limit, so
#: that a class is whole in one file.
FUNCTION_LINES_MAX = 60
CLASS_LINES_MAX = 450

#: What is longer, its limit, and why it is not divided.
LONG: dict[str, tuple[int, str]] = {
    "format/native/source/rebuild.py:assemble": (70, "one loop of compiled code"),
}

# Modules that reach outside by importing these, or by calling these methods of a path.
GUARDED_IMPORTS = {
    *("os", "shutil", "mmap", "fcntl", "tempfile", "subprocess", "signal", "io"),
    *("time", "random", "secrets", "uuid"),
}
GUARDED_METHODS = {
    *("open", "read_bytes", "read_text", "write_bytes", "write_text"),
    *("unlink", "rmdir", "mkdir", "touch", "chmod", "symlink_to", "hardlink_to"),
}

# Of these, what changes files. Only the file system layer may, so that a test can make each fail.
WRITING_METHODS = {
    *("write_bytes", "write_text", "unlink", "rmdir", "mkdir", "touch", "chmod", "rename"),
    *("symlink_to", "hardlink_to", "fsync", "ftruncate"),
}
FILE_SYSTEM_LAYER = "storage/filesystem.py"

# What a module calls the file system that it was given, or what has one: asking these is no
# reaching outside.
FILE_SYSTEMS = {
    *("OS", "fs", "self.fs", "self._fs", "self._base", "log_dir.fs", "self._resources.fs"),
    *("LogSegment", "Controller"),
}

# Files that this layer opened, whose methods are its own.
FILES = FILE_SYSTEMS | {"file", "self._file", "self.context.fs", "self._context.fs"}

#: Every exception there is: module -> (what it uses, why it may). `cordwood.testing` is free: it
#: makes directories and threads for tests, and nothing else imports it.
OUTSIDE: dict[str, tuple[set[str], str]] = {
    "storage/filesystem.py": (
        {"os", "shutil", "fcntl", "open", "unlink", "mkdir", "rmdir", "chmod"},
        "the one place that changes files for good, and takes the `.lock` of a log directory",
    ),
    "storage/overlay_filesystem.py": ({"os"}, "the system's words for errors"),
    "storage/read_only.py": ({"os"}, "the system's words for errors"),
    "storage/archives/archive_filesystem.py": (
        {"os"},
        "the system's words for errors, and the user of this process",
    ),
    "storage/archives/object_file.py": ({"os"}, "the system's words for errors"),
    "metadata/replay.py": ({"read_bytes"}, "reads the metadata log, by a passed function"),
    "format/native/form.py": (
        {"open", "os", "read_bytes"},
        "asks which kernels this processor and installation have",
    ),
    "model/clock.py": ({"time"}, "the one place that asks for the time"),
    "model/rng.py": ({"random", "uuid"}, "the one place that draws lots for storage"),
    "configs/table.py": ({"read_text"}, "reads the table of settings that ships with it"),
    "model/environment.py": ({"os"}, "the one place that sets variables of the environment"),
    "model/error_codes.py": ({"read_text"}, "reads the table of errors that ships with it"),
    "protocol/apis.py": ({"read_text"}, "reads the schemas of messages that ship with it"),
    "serving/transport.py": ({"os"}, "sends files to sockets"),
    "cleanup/access/announcements.py": ({"uuid"}, "names no other task uses"),
    "cleanup/engine/child_session.py": (
        {"os", "signal", "read_bytes"},
        "finds and ends the processes of a child that is gone",
    ),
    "cleanup/engine/run_directory.py": (
        {"fcntl", "open", "os", "shutil", "tempfile"},
        "temporary files of a run, of no use after it",
    ),
    "cleanup/engine/spark_child.py": (
        {"open", "os", "read_bytes", "subprocess"},
        "starts Spark's process, listens to it and ends it",
    ),
    "surfaces/cli/erase.py": ({"secrets"}, "draws the name and the salts of an erasure"),
    "surfaces/cli/places.py": (
        {"os", "secrets"},
        "a name that no other file has; the system's words for errors",
    ),
    "surfaces/doctor/gather.py": (
        {"os", "read_bytes", "subprocess"},
        "asks the system for limits, mounts and users, and Java for its version",
    ),
    "surfaces/metrics/job_run.py": ({"read_text"}, "reads the file that it replaces, whole"),
    "surfaces/cli/sql.py": ({"tempfile"}, "where Spark's tasks write a result"),
    "surfaces/cli/user.py": ({"os"}, "asks for the user's name"),
    "surfaces/cli/clean_estimate.py": ({"secrets"}, "draws the secrets of key hashes"),
    "surfaces/cli/apply_erasures.py": ({"secrets"}, "draws the name and the salts of an erasure"),
    "cleanup/engine/publisher.py": ({"uuid"}, "names no other attempt uses"),
    "cleanup/engine/spark/child.py": ({"os"}, "the process that Spark runs in"),
    "cleanup/engine/spark/job.py": ({"uuid"}, "names no other run uses"),
    "cleanup/engine/spark/archive_maker.py": (
        {"fcntl", "open", "os", "signal", "subprocess"},
        "writes the user's cache, in a process of its own and in bounded time",
    ),
    "cleanup/engine/spark/class_archive.py": ({"os", "read_text"}, "finds the user's cache"),
    "cleanup/engine/spark/daemon.py": ({"os", "open"}, "gives its place to another process"),
    "cleanup/engine/spark/machine.py": (
        {"os", "open", "read_bytes", "read_text", "shutil", "signal", "subprocess"},
        "finds Java, starts and ends the virtual machine",
    ),
    "cleanup/engine/spark/runner.py": ({"os"}, "how many processors there are"),
    "cleanup/engine/spark/session.py": (
        {"os", "tempfile", "open"},
        "hides what the virtual machine prints",
    ),
    "cleanup/engine/spark/warm_daemon.py": ({"os"}, "takes the place of another process"),
    "frames/decoding/avro_values.py": ({"io"}, "bytes in memory as the stream that fastavro reads"),
    "queries/settings.py": ({"read_text"}, "reads the files that options name, whole"),
    "surfaces/cli/entry.py": (
        {"io", "open", "os"},
        "ends the process when the reader of a pipe is gone",
    ),
    "model/held_signals.py": ({"signal"}, "holds signals back while a step is done"),
    "surfaces/cli/docs.py": ({"read_text"}, "reads the pages that are installed"),
    "surfaces/cli/first_process.py": ({"os", "signal"}, "does the duties of process 1"),
    "surfaces/cli/service_manager.py": ({"os"}, "the number of this process"),
    "surfaces/cli/stopping.py": ({"os", "signal"}, "ends the process when a signal says so"),
    "serving/frames.py": ({"mmap"}, "memory for large requests that is taken up as bytes come"),
    "surfaces/cli/serve.py": (
        {"os", "read_bytes", "signal"},
        "reads server.properties and the service manager's variables; stops in order when told to",
    ),
    "storage/append/payload.py": ({"mmap"}, "memory for batches that is taken up as it is filled"),
    "surfaces/cli/dump_log.py": ({"os", "open"}, "goes quiet when the reader of a pipe is gone"),
    "surfaces/cli/screen.py": ({"os"}, "a handle on standard error that Spark does not silence"),
    "surfaces/cli/tools/cluster_up.py": (
        {"os", "signal", "tempfile"},
        "stops the nodes in order at a signal; their files are of no use after that",
    ),
    "surfaces/local_cluster/child_process.py": (
        {"open", "os", "signal", "subprocess"},
        "starts the nodes of a local cluster, reads their logs, and ends them",
    ),
    "surfaces/local_cluster/kafka_installation.py": ({"os", "shutil"}, "finds Java"),
    "surfaces/local_cluster/local_node.py": ({"os"}, "the environment of a node"),
    "queries/identity.py": ({"os"}, "the number of this process"),
    "surfaces/dump/files.py": ({"os"}, "the working directory, for absolute names"),
    "storage/archives/staging.py": ({"os", "tempfile"}, "keeps a file here until it is put"),
}

# Modules of format that parse no file of their own: no page is theirs.
FORMAT_TOOLS = {
    "file_names.py": "names alone",
    "byte_reader.py": "a cursor",
    "columns.py": "arrays to and from entries of any index",
    "java_map.py": "an order",
    "properties.py": "texts of settings",
    "record_longs.py": "values of headers of records",
}

# Written so that this file does not contain them.
MARKERS = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b"
)


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def _parsed(top: Path) -> dict[str, ast.Module]:
    """Every module below a directory by its path there."""
    return {
        str(path.relative_to(top)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(top.rglob("*.py"))
    }


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _draws_ids(tree: ast.Module) -> bool:
    """Whether a module makes a UUID by chance; the type alone reaches nothing."""
    names = {"uuid1", "uuid4"}
    return any(
        (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and names & {alias.name for alias in node.names})
        for node in ast.walk(tree)
    )


def _reaches(tree: ast.Module) -> set[str]:
    """The guarded things that a module uses."""
    found = {name for name in _imports(tree) if name in GUARDED_IMPORTS}
    if "uuid" in found and not _draws_ids(tree):
        found.remove("uuid")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in GUARDED_METHODS:
            if ast.unparse(node.value) not in FILE_SYSTEMS:
                found.add(node.attr)
        elif isinstance(node, ast.Name) and node.id == "open":
            found.add(node.id)
    return found


def _code_lines(node: Definition, lines: list[str]) -> int:
    """Lines of code in the body of a function or a class."""
    docstrings: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, Definition) and ast.get_docstring(inner) is not None:
            first = inner.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    numbers = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    texts = [lines[number - 1].strip() for number in numbers if number not in docstrings]
    return sum(bool(text) and not text.startswith("#") for text in texts)


@functools.cache
def _lengths(top: Path) -> dict[str, tuple[int, int]]:
    """The lines of code of every function and class, and the limit of its kind."""
    found: dict[str, tuple[int, int]] = {}
    for name, tree in _parsed(top).items():
        lines = (top / name).read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree):
            if isinstance(node, Definition):
                limit = CLASS_LINES_MAX if isinstance(node, ast.ClassDef) else FUNCTION_LINES_MAX
                key = f"{name}:{node.name}"
                longest = max(_code_lines(node, lines), found.get(key, (0, 0))[0])
                found[key] = longest, limit
    return found


@pytest.mark.parametrize("top", [PACKAGE, SUPPORT], ids=["cordwood", "support"])
def test_no_function_or_class_is_too_long_to_read(top: Path) -> None:
    lengths, longer = _lengths(top), LONG if top == PACKAGE else {}
    assert lengths
    long = {
        name: length
        for name, (length, limit) in lengths.items()
        if length > longer.get(name, (limit, ""))[0]
    }
    assert not long, (
        f"over {FUNCTION_LINES_MAX} lines of code in a function or {CLASS_LINES_MAX} in a class: "
        f"{long}. Divide it by what its parts are about; do not divide a class over files"
    )


def test_what_may_be_longer_still_is() -> None:
    lengths = _lengths(PACKAGE)
    for name, (limit, reason) in LONG.items():
        assert name in lengths, f"{name} is gone: take it out of LONG in this test"
        length, usual = lengths[name]
        assert length > usual, f"{name} has {length} lines of code: take it out of LONG"
        assert length > limit - 10, f"{name} has {length} lines of code: lower its limit in LONG"
        assert reason, f"{name} in LONG needs a reason"


@pytest.mark.parametrize("top", [PACKAGE, SUPPORT], ids=["cordwood", "support"])
def test_every_module_says_what_it_is(top: Path) -> None:
    silent = [name for name, tree in _parsed(top).items() if not ast.get_docstring(tree)]
    assert not silent, (
        f"no docstring: {silent}. Say in a line what the module gives, then its rules, then the "
        "classes of Kafka's that it mirrors (Source: ...)"
    )


def test_only_listed_modules_reach_outside() -> None:
    for name, tree in _parsed(PACKAGE).items():
        if name.startswith("testing/"):
            continue
        new = _reaches(tree) - OUTSIDE.get(name, (set(), ""))[0]
        assert not new, (
            f"{name} uses {sorted(new)}. Call cordwood.storage.filesystem or cordwood.model.clock "
            "instead, or take what is needed as an argument. If neither will do, add it to OUTSIDE "
            "in this test with the reason"
        )


def test_only_the_file_system_layer_changes_files() -> None:
    for name, tree in _parsed(PACKAGE).items():
        if name.startswith("testing/") or name == FILE_SYSTEM_LAYER:
            continue
        calls = [
            ast.unparse(node.func)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in WRITING_METHODS
            and ast.unparse(node.func.value) not in FILES
        ]
        assert not calls, (
            f"{name} changes files by {calls}. Call a FileSystem that is passed in, or OS of "
            f"{FILE_SYSTEM_LAYER}: there is no exception to this rule"
        )


def test_only_access_to_logs_differs_for_running_and_stopped_brokers() -> None:
    access = PACKAGE / "cleanup" / "access"
    named = [path for word in ("online", "offline") for path in PACKAGE.rglob(f"*{word}*.py")]
    assert not [path for path in named if not path.is_relative_to(access)]


def test_every_exception_is_still_needed() -> None:
    for name, (uses, reason) in OUTSIDE.items():
        assert name in _parsed(PACKAGE), f"{name} is gone: take it out of OUTSIDE in this test"
        spare = uses - _reaches(_parsed(PACKAGE)[name])
        assert not spare, f"{name} no longer uses {sorted(spare)}: take it out of OUTSIDE"
        assert reason, f"{name} in OUTSIDE needs a reason"


def test_the_architecture_is_short() -> None:
    lines = ARCHITECTURE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= ARCHITECTURE_LINES_MAX, (
        f"docs/architecture.md has {len(lines)} lines, more than {ARCHITECTURE_LINES_MAX}: "
        "move details to the docstrings or to docs/design"
    )


def test_the_architecture_names_existing_paths_and_functions() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    references = re.findall(r"`([\w/.]+/|[\w/.]+\.(?:py|md|tsv))(?::([\w.]+))?`", page)
    assert len(references) > 50, "the page names few paths: does the pattern match them?"
    for path, name in references:
        found = [top / path for top in (PACKAGE, ROOT) if (top / path).exists()]
        assert found, f"docs/architecture.md names {path}, which is missing"
        if name:
            assert name in _definitions(found[0]), f"docs/architecture.md: no {name} in {path}"


def _definitions(path: Path) -> set[str]:
    """The functions, classes and methods of a file, methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, Definition):
            names.add(node.name)
            names.update(
                f"{node.name}.{each.name}" for each in node.body if isinstance(each, Definition)
            )
    return names


def test_every_format_has_a_page() -> None:
    pages = "".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/format").glob("*.md"))
    )
    for name in _parsed(PACKAGE):
        folder, _, file = name.rpartition("/")
        if folder == "format" and file != "__init__.py" and file not in FORMAT_TOOLS:
            assert f"`{name}`" in pages, (
                f"no page in docs/format names `{name}`: write one (bytes, limits, who writes it, "
                "who repairs it), list it in docs/format/README.md, or say in FORMAT_TOOLS of this "
                "test why it needs none"
            )


def test_every_page_of_a_format_is_listed_and_complete() -> None:
    listed = (ROOT / "docs/format/README.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs/format").glob("*.md")):
        if path.name == "README.md":
            continue
        page = path.read_text(encoding="utf-8")
        assert f"({path.name})" in listed, f"list {path.name} in docs/format/README.md"
        for part in ("| module |", "| Kafka |", "| written by |"):
            assert part in page, f"docs/format/{path.name} has no row {part!r}"


def test_links_between_pages_lead_somewhere() -> None:
    others = (ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md", SUPPORT / "README.md")
    for path in [*sorted((ROOT / "docs").rglob("*.md")), *others]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                where = path.relative_to(ROOT)
                assert (path.parent / target).exists(), f"{where} links to {target}: not there"


def test_no_marker_is_left_over() -> None:
    tops = [ROOT / name for name in ("src", "tests", "tools", "benchmarks", "docs")]
    for paths in [ROOT.glob("*"), *(top.rglob("*") for top in tops)]:
        for path in sorted(paths):
            if path.suffix not in {".py", ".md", ".toml", ".yml"}:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                assert not MARKERS.search(line), (
                    f"{path.relative_to(ROOT)}:{number}: do it now, or take it out: {line.strip()}"
                )


#: Parsed or compared whole: `output` of typer's Result has standard error between the lines, and
#: there a broker in the same process may warn at any time.
PARSED_OUTPUT = re.compile(
    r"loads\(.*\.output\)|\.output(?: [=!]= |\.(?:splitlines|startswith|endswith|partition)\()"
)


def test_what_a_test_parses_is_standard_output_alone() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__) or "CliRunner" not in text:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            assert not PARSED_OUTPUT.search(line), (
                f"{path.relative_to(ROOT)}:{number}: take stdout, not output: {line.strip()}"
            )

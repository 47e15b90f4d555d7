"""A virtual machine with a SparkContext: it starts beside other work, and ends at once.

For a local master the virtual machine and Spark's Python daemon start together, and this process
imports meanwhile what it needs of PySpark. For another master PySpark starts the virtual machine.

Source: org.apache.spark.api.python.PythonGatewayServer, pyspark.java_gateway.launch_gateway,
org.apache.spark.launcher.JavaModuleOptions.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import pwd
import shutil
import signal
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cordwood.cleanup.engine.child_session import end_session, members
from cordwood.cleanup.engine.spark import class_archive
from cordwood.cleanup.engine.spark.daemon import WARM_DAEMON
from cordwood.cleanup.engine.spark.error_text import first_line_of
from cordwood.model.clock import SystemClock, pause
from cordwood.model.environment import environment_variables
from cordwood.model.errors import EngineError

JVM_HEAP = "1g"
_GATEWAY: Final = "org.apache.spark.api.python.PythonGatewayServer"
_GATEWAY_S: Final = 600.0
_LOOK_S: Final = 0.01
_SOCKET_ADDRESS_BYTES: Final = 104
#: What this process needs for a first job of a compaction.
IMPORTS: Final = ("cordwood.cleanup.engine.spark.engine",)
_OPENED: Final = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
_LOCAL_PROPERTIES: Final = (
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
#: Options of each virtual machine, a local one or one that PySpark starts.
JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    # Its counters would be a file in the system's directory for temporary files.
    "-XX:-UsePerfData",
    # The JVM only moves blocks between sockets and files: a quick start beats a hot loop.
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.level=OFF",
)


def find_java() -> str:
    """The path of the program `java` that starts Spark's virtual machine.

    Raises:
        EngineError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        raise EngineError(
            "compaction runs on Spark, which needs Java 17 or newer; none was found. Install it "
            "(Debian: openjdk-17-jre-headless) or set JAVA_HOME"
        )
    return java


def has_java() -> bool:
    """Whether there is one."""
    try:
        find_java()
    except EngineError:
        return False
    return True


def local_command() -> class_archive.Command:
    """Options of a virtual machine for a local master.

    Raises:
        EngineError: there is no Java, or no Spark.
    """
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    options = [*JAVA_OPTIONS, *opened, *_LOCAL_PROPERTIES]
    return class_archive.Command(find_java(), options, sorted(_spark_home().glob("jars/*.jar")))


def _name_user(jvm: Any) -> None:
    """Gives Hadoop a name for a user without one, as containers have: it ends without a name.

    Source: org.apache.hadoop.security.UserGroupInformation.getLoginUser, which asks the virtual
    machine, and this the system, whatever variables say.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(str(os.geteuid())))


class Machine:
    """The virtual machine of one SparkContext, with the processes that it starts.

    Use: `launch`, if the master is local; `context`; `stop`, in any case.
    """

    def __init__(
        self,
        directory: Path,
        *,
        jvm_heap: str = JVM_HEAP,
        leads_session: bool = False,
        locks: Sequence[int] = (),
        imports: Sequence[str] = IMPORTS,
    ) -> None:
        """Prepares.

        Args:
            directory: for all temporary files, its own and those of its processes.
            jvm_heap: the largest heap of the virtual machine.
            leads_session: whether this process was started as the leader of a process session of
                its own; the virtual machine then belongs to that. Else it leads one itself, and
                signals that a terminal or `timeout` sends to this process's group do not reach it.
            locks: descriptors of locks of run directories that the virtual machine holds as well.
            imports: modules that this process imports, after PySpark, while a virtual machine for
                a local master starts.
        """
        self._directory = directory
        self._jvm_heap = jvm_heap
        self._leads_session = leads_session
        self._locks = locks
        self._imports = imports
        self._archive: class_archive.ClassArchive | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self._others: tuple[Any, Any] | None = None
        self._context: Any = None

    # ---- start

    def launch(self, *, archive_at_exit: Path | None = None) -> None:
        """Starts the virtual machine for a local master, and returns at once.

        Args:
            archive_at_exit: where the virtual machine writes the classes that it has loaded, when
                `exit` ends it.

        Raises:
            EngineError: there is no Java.
        """
        command = local_command()
        self._daemon = self._popen([sys.executable, "-m", f"{__package__}.warm_daemon"])
        if archive_at_exit is not None:
            self._launch(command, [f"-XX:ArchiveClassesAtExit={archive_at_exit}"])
        else:
            self._archive = class_archive.find(command)
            self._launch(command, [] if self._archive is None else self._archive.flags)
        threading.Thread(
            target=_import_all, args=(self._imports,), name="import-pyspark", daemon=True
        ).start()

    def _launch(self, command: class_archive.Command, flags: Sequence[str]) -> None:
        own = [f"-Xmx{self._jvm_heap}", f"-Djava.io.tmpdir={self._directory}"]
        self._process = self._popen([*command.words([*own, *flags]), _GATEWAY])

    def _popen(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self._directory / "output").open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=os.environ | self._environment(),
                start_new_session=not self._leads_session,
                pass_fds=self._locks,
            )

    def _environment(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(_spark_home()),
            "SPARK_LOCAL_DIRS": str(self._directory),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._directory / "gateway"),
            WARM_DAEMON: str(self._directory / "daemon"),
            # As Spark starts its daemon.
            "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        }

    def context(self, master: str) -> Any:
        """The SparkContext, when it has started.

        Raises:
            EngineError: Spark does not start.
        """
        # Another Spark of this process must not find them later, nor those below.
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        try:
            from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # takes a while to import

            self._others = _taken_from_pyspark()
            conf = SparkConf().setMaster(master).setAppName("cordwood")
            for key, value in _settings(master, self._directory).items():
                conf.set(key, value)
            with environment_variables(python):
                self._gateway = self._connect() if self._process else self._launch_by_pyspark(conf)
                _convert_no_numpy()
                _silence_py4j()
                _name_user(self._gateway.jvm)
                with _signals_kept():
                    self._context = SparkContext(conf=conf, gateway=self._gateway)
            self._context.setLogLevel("OFF")
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(f"Spark did not start on {master}: {first_line_of(error)}") from error
        return self._context

    def _launch_by_pyspark(self, conf: Any) -> Any:
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

        given = {
            # The program that builds the virtual machine's command line is one itself.
            "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
            "SPARK_LOCAL_DIRS": str(self._directory),
        }
        options = f'{" ".join(JAVA_OPTIONS)} "-Djava.io.tmpdir={self._directory}"'
        conf.set("spark.driver.memory", self._jvm_heap)
        conf.set("spark.driver.extraJavaOptions", options)
        kwargs = {"start_new_session": not self._leads_session, "pass_fds": self._locks}
        with environment_variables(given):
            return launch_gateway(conf, popen_kwargs=kwargs)

    def _connect(self) -> Any:
        """PySpark's end of the connection to the virtual machine."""
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

        port, secret = self._gateway_address()
        given = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        with environment_variables(given):
            gateway = launch_gateway()
        gateway.proc = self._process
        return gateway

    def _gateway_address(self) -> tuple[int, str]:
        """Waits for the file in which the virtual machine says where it can be reached.

        Raises:
            EngineError: it has ended, or takes too long.
        """
        assert self._process is not None, "it was launched"
        path = self._directory / "gateway"
        clock = SystemClock()
        deadline = clock.monotonic_s() + _GATEWAY_S
        while not path.exists():
            if self._process.poll() is not None:
                if self._archive is None:
                    raise EngineError(f"Spark's virtual machine has ended: {self._last_words()}")
                self._archive.discard()
                self._launch(self._archive.command, [])
                self._archive = None
            if clock.monotonic_s() > deadline:
                raise EngineError(f"Spark's virtual machine is silent for {_GATEWAY_S:.0f} s")
            pause(_LOOK_S)
        data = path.read_bytes()
        port, size = struct.unpack(">ii", data[:8])
        return port, data[8 : 8 + size].decode()

    def _last_words(self) -> str:
        lines = (self._directory / "output").read_text("utf-8", "replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "it has printed nothing")

    # ---- end

    def exit(self) -> None:
        """Ends the session and the virtual machine in order, so that it writes its classes."""
        assert self._process is not None, "it was launched"
        assert self._process.stdin is not None, "a pipe"
        self._context.stop()
        self._context = None
        self._process.stdin.close()
        self._process.wait()

    def stop(self) -> None:
        """Ends the session, then the virtual machine, at once: it has nothing to write any more."""
        started = [each for each in (self._process, self._daemon) if each is not None]
        if not started and self._gateway is not None:
            started = [self._gateway.proc]
        try:
            if self._context is not None and self._is_alive():
                if self._process is not None:
                    _end_unheard(self._context)
                with suppress(Exception):  # of Py4J: it is ended in any case
                    self._context.stop()
        finally:
            if self._gateway is not None:
                _release_nothing(self._gateway)
            leaders = {os.getsid(0)} if self._leads_session else {each.pid for each in started}
            for leader in leaders if started else ():
                end_session(leader, sparing=os.getpid())
            for each in started:
                if each.stdin is not None:
                    with suppress(OSError):
                        each.stdin.close()
                each.wait()
            if self._others is not None:
                _forget(self._gateway, self._others)

    def _is_alive(self) -> bool:
        process = self._gateway.proc
        leader = os.getsid(0) if self._leads_session else process.pid
        return process.pid in members(leader)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Undoes that a SparkContext handles SIGINT, when the main thread makes it."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _end_unheard(context: Any) -> None:
    """Leaves nothing for `stop` to wait for: nobody else knows of a local context.

    The server of PySpark's accumulators takes up to a second to end, in a thread of its own now,
    and would print that its client, the virtual machine, has gone.
    """
    context._jsc = None
    server, context._accumulatorServer = context._accumulatorServer, None
    server.handle_error = lambda *_: None
    threading.Thread(target=server.shutdown, name="end-accumulators", daemon=True).start()


def _silence_py4j() -> None:
    """Has Py4J log nothing: what matters it raises as well.

    Its thread that releases objects logs an error with a traceback, in part as the root logger, if
    the virtual machine ends meanwhile.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _release_nothing(gateway: Any) -> None:
    """Has Py4J not tell the virtual machine, which is about to end, of objects that are gone here.

    For each it would make a connection, and log with a traceback that nobody answers.
    """
    gateway._gateway_client.is_connected = False


def _taken_from_pyspark() -> tuple[Any, Any]:
    """Takes the virtual machine of a session of this process that has ended away from PySpark.

    PySpark would make the next configuration and the next context there, whatever it is given.
    """
    from pyspark import SparkContext  # noqa: PLC0415  # loaded by now

    others = SparkContext._gateway, SparkContext._jvm
    if SparkContext._active_spark_context is None:
        SparkContext._gateway = SparkContext._jvm = None
    return others


def _forget(gateway: Any, others: tuple[Any, Any]) -> None:
    """Makes the next session of this process use another virtual machine, if there was one."""
    from pyspark import SparkContext  # noqa: PLC0415  # loaded by now

    with suppress(Exception):  # of Py4J: nobody is at the other end any more, if anybody ever was
        gateway.close(keep_callback_server=False, close_callback_server_connections=True)
    SparkContext._gateway, SparkContext._jvm = others  # PySpark's, which it never resets itself


def _convert_no_numpy() -> None:
    """Has Py4J not ask whether arguments are numpy's, for which PySpark imports its own tests."""
    from py4j import protocol  # noqa: PLC0415  # loaded by now

    protocol.INPUT_CONVERTER[:] = [
        each for each in protocol.INPUT_CONVERTER if "Numpy" not in type(each).__name__
    ]


def _import_all(modules: Sequence[str]) -> None:
    with suppress(ImportError):  # it is raised again where the module is used
        for name in ("pyspark", *modules):
            importlib.import_module(name)


def _settings(master: str, directory: Path) -> dict[str, str]:
    host = driver_host(master)
    return {
        "spark.ui.enabled": "false",
        **({} if host is None else {"spark.driver.host": host}),
        "spark.python.worker.reuse": "true",
        # Over TCP each task begins with a wait of 40 ms for a delayed acknowledgement.
        "spark.python.unix.domain.socket.enabled": str(takes_sockets(master, directory)).lower(),
        # Identities of keys are as good as random: compressing them costs and gains nothing.
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.python.daemon.module": "cordwood.cleanup.engine.spark.daemon",
        "spark.task.maxFailures": "4",
        # Spark makes this directory, `spark-warehouse` where it runs by default.
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }


def driver_host(master: str) -> str | None:
    """The driver's address for workers; None if Spark finds it, or its settings have it.

    Source: spark.driver.host and SPARK_LOCAL_IP of Spark's page on configuration.
    """
    if master.startswith("local"):
        return "127.0.0.1"
    # Of several masters, the first.
    first = urlsplit(master.partition(",")[0])
    name = first.hostname or ""
    is_here = name in {"localhost", "::1"} or name.startswith("127.")
    return "localhost" if first.scheme == "spark" and is_here else None


def takes_sockets(master: str, directory: Path) -> bool:
    """Whether Spark's sockets can be in the directory: their addresses have 104 bytes or more."""
    longest = len(os.fsencode(directory)) + len("/.") + len(str(uuid.UUID(int=0))) + len(".sock")
    return master.startswith("local") and longest < _SOCKET_ADDRESS_BYTES


def _spark_home() -> Path:
    """The installation of Spark that `SPARK_HOME` names, or the one that is part of PySpark."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineError("PySpark is not installed")
    return Path(spec.origin).parent

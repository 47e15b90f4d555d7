"""The DAG of examples/: the commands of docs/tasks/airflow.md, in order, with the right exit code.

Airflow is not installed: two classes stand in for its own. `tests/test_pages.py` runs the commands.
"""

from __future__ import annotations

import runpy
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.pages import DOCS, session
from support.sessions import placed

DAG_FILE = Path(__file__).resolve().parents[1] / "examples" / "airflow_dag.py"


@dataclass(eq=False)
class Dag:
    """Stands for airflow.sdk.DAG."""

    dag_id: str
    schedule: str
    start_date: Any
    catchup: bool
    max_active_runs: int
    default_args: dict[str, Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass(eq=False)
class BashTask:
    """Stands for Airflow's BashOperator: a command, and the tasks that run before it."""

    made: ClassVar[list[BashTask]] = []
    task_id: str
    bash_command: str
    skip_on_exit_code: int = 99
    after: list[BashTask] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.made.append(self)

    def __rshift__(self, later: BashTask) -> BashTask:
        later.after.append(self)
        return later


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[BashTask]:
    """The tasks of the DAG, as its file makes them."""
    modules = {name: ModuleType(name) for name in ("airflow", "airflow.sdk")}
    below = "airflow.providers", ".standard", ".operators", ".bash"
    for count in range(1, len(below) + 1):
        modules["".join(below[:count])] = ModuleType("".join(below[:count]))
    vars(modules["airflow.sdk"])["DAG"] = Dag
    vars(modules["".join(below)])["BashOperator"] = BashTask
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(BashTask, "made", [])
    runpy.run_path(str(DAG_FILE))
    return BashTask.made


def test_the_tasks_are_the_commands_of_the_page_one_after_the_other(tasks: list[BashTask]) -> None:
    commands = [each.text for each in session(DOCS / "tasks" / "airflow.md")]
    assert [each.bash_command for each in tasks] == commands
    assert [each.after for each in tasks] == [[], tasks[:1], tasks[1:2]]


def test_a_directory_in_use_ends_with_the_exit_code_that_skips_the_task(
    tasks: list[BashTask], tmp_path: Path
) -> None:
    clean = tasks[0]
    log_dir = tmp_path / "var" / "lib" / "kafka" / "backup"
    _, *arguments = shlex.split(placed(clean.bash_command, tmp_path))
    with RunningBroker(log_dir=log_dir):
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == clean.skip_on_exit_code, done.output

"""A DAG of Airflow 3 that cleans the copy of a broker's log directory every night, and verifies it.

What a cleaning removes is kept for a week, and deleted only if the directory is sound.
docs/tasks/airflow.md explains it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

LOG_DIR = "/var/lib/kafka/backup"
TRASH = "/var/lib/trash"
#: The command: a path, if it is installed in an environment of its own.
CORDWOOD = "cordwood"
#: The exit code of `cordwood` for a directory that a broker, or another cleaning, uses.
IN_USE = 3

with DAG(
    dag_id="clean_kafka_backup",
    schedule="15 3 * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001  # the time zone is Airflow's own
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
) as dag:
    clean = BashOperator(
        task_id="clean",
        bash_command=f"{CORDWOOD} clean {LOG_DIR} --retention-only --trash {TRASH}",
        skip_on_exit_code=IN_USE,
    )
    verify = BashOperator(task_id="verify", bash_command=f"{CORDWOOD} verify {LOG_DIR}")
    empty = BashOperator(
        task_id="empty_trash",
        bash_command=f"{CORDWOOD} trash empty {TRASH} --older-than 7d",
    )
    clean >> verify >> empty

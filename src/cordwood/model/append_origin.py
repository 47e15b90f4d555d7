"""The origin of an append, which decides how much of it is validated.

Source: org.apache.kafka.storage.internals.log.AppendOrigin.
"""

from __future__ import annotations

import enum


class AppendOrigin(enum.Enum):
    """The origin of records."""

    REPLICATION = "replication"
    """From the leader, or from disk: checked when they were first written."""
    COORDINATOR = "coordinator"
    """From a group or transaction coordinator: without sequences, with control records."""
    CLIENT = "client"
    """From a producer: everything is checked."""
    RAFT_LEADER = "raft leader"
    """From the leader of the metadata log, which gives out offsets itself."""

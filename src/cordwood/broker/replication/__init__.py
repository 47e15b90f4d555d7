"""Replicas of a partition: what its leader and its followers do, as state machines without I/O."""

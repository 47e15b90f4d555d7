"""Retention and compaction of logs: capture, plan, execute, commit."""

"""Access to logs: captures, commits, offline and online."""

"""Logs that grow as streams: how far one has read, what it may read next, and what it has lost."""

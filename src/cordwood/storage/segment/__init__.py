"""One segment: its files, indexes and recovery."""

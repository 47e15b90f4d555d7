"""Access to logs that a broker serves: they are cleaned in parallel with appends and reads."""

"""Schedules of cleanings: order, threads, quarantine, and runs over log directories."""

"""Coordinators: state machines whose state is the records of a partition, and their runtime."""

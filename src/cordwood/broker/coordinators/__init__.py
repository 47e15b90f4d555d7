"""Coordinators in a broker: their logs, the metadata they see, markers of transactions."""

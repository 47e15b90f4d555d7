"""Brokers of a mixed cluster that die and lose their leaderships, while clients are at work."""

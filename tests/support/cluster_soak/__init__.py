"""Brokers of a mixed cluster that die and lose their leaderships, while producers write."""

"""Assignors of consumer groups whose assignment the broker computes (KIP-848)."""

"""Idempotence and transactions: what a log knows of its producers."""

"""Guarantees of every history: one class for each."""

"""Estimates of compactions from a sample of their batches."""

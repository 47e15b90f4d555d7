"""Logs as tables: records of segments as Arrow batches, and as DataFrames of Spark."""

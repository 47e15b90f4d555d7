"""Shared helpers of Cordwood's tests, tools and benchmarks; not part of the package."""

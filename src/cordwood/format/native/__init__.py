"""Parsing of batches and records in native code, compiled from Python by numba.

Only `cordwood.cleanup` imports this package at import time, because numba takes a second and
100 MiB to load: `cordwood.storage` imports it inside functions, when it has much to read. Every
function has a twin in plain Python, and tests compare the two.
"""

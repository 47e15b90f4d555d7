"""Bytes to values and back, pure: memoryview in, values out."""

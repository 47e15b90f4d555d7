"""Copies logs to archives in object storage, and back."""

"""The rules of cleanup: which records and segments go, when, and why they stay."""

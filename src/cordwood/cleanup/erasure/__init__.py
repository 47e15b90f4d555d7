"""Erasure of records by key or predicate: search, rewrite by offsets, report, ledger."""

"""Loads from a seed on brokers that are killed, stopped, suspended and filled, and their judges.

A load writes, reads and commits while things happen to the brokers; at the end judges, which are
pure functions of reports, compare what was acknowledged with what is there.
"""

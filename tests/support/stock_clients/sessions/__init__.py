"""Transactional clients in Python, each in a process of its own, so that it can be killed."""

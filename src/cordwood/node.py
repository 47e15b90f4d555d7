"""Composition root: builds a broker from its settings, starts and stops its parts."""

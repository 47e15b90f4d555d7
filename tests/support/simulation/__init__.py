"""A cluster in one process whose time, network, disks and failures come from one seed.

`docs/design/simulation.md` describes the actors, the faults and the checkers.
"""

"""The batch and record walks at native speed, compiled by numba from Python.

Nothing outside `cordwood.cleanup` imports this package, because numba takes a second and 100 MiB to
load. Every function here has a plain twin in `cordwood.format` that tests compare it with.
"""

"""The batch and record walks at native speed, compiled by numba from Python.

Nothing outside `cordwood.cleanup` imports this package when it is imported itself, because numba
takes a second and 100 MiB to load: `cordwood.storage` does so inside functions, once there is much
to read. Every function here has a plain twin that tests compare it with.
"""

"""The kernels: Python that numba compiles, either ahead of time or when they are called.

To be imported by `cordwood.format.native.kernels` and by the build alone, because numba takes a
second and 100 MiB to load. A new kernel is written here and named in `kernels`.
"""

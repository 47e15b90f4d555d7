"""Parsing of batches and records in native code, written in Python that is compiled.

`kernels` has the functions, `source` is what they are compiled from, and the other modules are the
layouts of their arguments. Every kernel has a twin in plain Python, and tests compare the two.
Storage imports `kernels` inside functions, when it has much to read: numpy takes 0.1 s to load, and
numba, where it is needed, a second and 100 MiB.
"""

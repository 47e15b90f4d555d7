"""A base installation: a program before which the packages of all extras are hidden."""

from __future__ import annotations

from cordwood.model.extras import PACKAGES, SPARK

HIDDEN = (*PACKAGES[SPARK], "py4j", "grpc", "google.protobuf", "llvmlite")

#: The beginning of a program that finds none of the packages.
HIDE = f"""
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *rest):
        return None if name in {HIDDEN} else self.finder.find_spec(name, *rest)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""

"""`cordwood` whose broker compacts in its own process, without Spark; run as a module."""

from __future__ import annotations

from cordwood.node import node
from cordwood.surfaces.cli.entry import main
from support.in_process_engine import CompiledEngine

if __name__ == "__main__":
    node.spark_engine = CompiledEngine
    main()

"""The process Spark forks its Python workers from, with the native code loaded before the fork.

Workers then share its memory, and none of them spends seconds on the same imports.

Source: pyspark.daemon.
"""

import pyspark.daemon

import cordwood.cleanup.tasks

if __name__ == "__main__":
    assert cordwood.cleanup.tasks is not None
    pyspark.daemon.manager()

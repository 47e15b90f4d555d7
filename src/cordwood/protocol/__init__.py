"""Messages of Kafka's wire protocol: bytes to values and back, no I/O."""

from __future__ import annotations

import sys


def _import_kio() -> None:
    """Imports kio without hypothesis, for which it makes strategies wherever that is installed.

    A broker in somebody's tests would wait a third of a second for them.
    """
    if "hypothesis" in sys.modules or "kio" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # Python's way to say: not here
    try:
        import kio.static.primitive  # noqa: F401, PLC0415
    finally:
        del sys.modules["hypothesis"]


_import_kio()

"""What `cordwood --version` prints, found without loading numpy or typer: a tenth of a second."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from cordwood import __version__
from cordwood.format.native import form
from cordwood.network.form import request_path_form


def version_text() -> str:
    """The version, and which forms of the code that has two run here."""
    forms = f"kernels: {kernels_form()}; request path: {request_path_form()}"
    return f"cordwood {__version__} ({forms})"


def kernels_form() -> str:
    """As `form.form_here`; the compiled form is looked at, not loaded."""
    if find_spec("numpy") is None:
        return "none"
    if os.environ.get(form.VARIABLE) != form.NUMBA and _is_current() and _can_run():
        return form.COMPILED
    return form.NUMBA if find_spec("numba") is not None else "none"


def _is_current() -> bool:
    """Whether there is a compiled form whose code has the digest of this source as a constant."""
    compiled = find_spec(f"{form.__package__}.{form.MODULE}")
    if compiled is None or compiled.origin is None:
        return False
    return form.source_digest().to_bytes(8, "little") in Path(compiled.origin).read_bytes()


def _can_run() -> bool:
    return form._processor_flags() >= form._INSTRUCTIONS

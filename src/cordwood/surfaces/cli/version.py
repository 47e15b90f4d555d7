"""Output of `cordwood --version`, without loading numpy or typer: a tenth of a second."""

from __future__ import annotations

from cordwood import __version__
from cordwood.format.native.form import form_without_loading
from cordwood.serving.compiled_form import request_path_form


def version_text() -> str:
    """The version, and which forms of the code that has two run here."""
    forms = f"kernels: {form_without_loading()}; request path: {request_path_form()}"
    return f"cordwood {__version__} ({forms})"

"""The published JSON schemas of what commands print."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema

_ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = _ROOT / "docs" / "schemas"
TOOL = runpy.run_path(str(_ROOT / "tools" / "json_schemas.py"))
"""The tool that writes them."""


def require_fit(command: str, document: Any) -> None:
    """Requires that what a command prints is as its schema says.

    Raises:
        ValidationError: it is not.
    """
    schema = json.loads((SCHEMAS / TOOL["file_name"](command)).read_text(encoding="utf-8"))
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)

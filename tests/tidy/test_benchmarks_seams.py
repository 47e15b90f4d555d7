"""Benchmarks measure the product from outside: what they rely on is public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OWN = {"self", "cls"}
#: Python's own names.
PUBLIC = {"_exit"}


def _private_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_private = node.attr.startswith("_") and not node.attr.startswith("__")
            if is_private and node.attr not in PUBLIC and ast.unparse(node.value) not in OWN:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name.startswith("_"):
                    yield f"line {node.lineno}: {alias.name} of {node.module}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"setattr", "getattr"}:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.name)
def test_a_benchmark_uses_no_private_name_and_replaces_nothing(path: Path) -> None:
    found = list(_private_names(ast.parse(path.read_text(encoding="utf-8"))))
    assert not found, (
        f"benchmarks/{path.name} relies on {found}: a later change renames it unnoticed. Give the "
        "product a public way to say what the benchmark has to know"
    )

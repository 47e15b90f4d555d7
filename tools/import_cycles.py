"""Finds import cycles between the files of a package: `python tools/import_cycles.py [DIRECTORY]`.

Every import counts: at the top of a file, inside a function, under TYPE_CHECKING, and a call of
`import_module` with a constant name. Files that import each other cannot be read, tested or moved
one by one, whenever the import is executed. Break a cycle by moving the shared part to a file that
both import, or by passing in from above what a lower file needs; never by importing later.

An import of a package means its `__init__.py`; the packages above it are not counted, for Python
imports these for every file.

Exit status: 0 when there is no cycle; 1 when there are some, each printed as its shortest circle
of imports with the line of each; 2 when there is nothing to check.
"""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "cordwood"


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a file of the package by another."""

    importer: str
    line: int
    imported: str


Graph = Mapping[str, Mapping[str, Import]]
"""The files by path below the package's parent, each with the first import of each other file."""


def read_graph(package: Path) -> Graph:
    """The imports between all files of a package, which is a directory with an `__init__.py`."""
    top = package.resolve().parent
    files = {
        path.relative_to(top).as_posix(): path for path in sorted(package.resolve().rglob("*.py"))
    }
    modules = {_module_name(file): file for file in files}
    graph: dict[str, dict[str, Import]] = {}
    for file, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        found: dict[str, Import] = {}
        for name, line in _imported_names(tree, _package_of(file)):
            imported = _file_of(name, modules)
            if imported is not None and (imported not in found or line < found[imported].line):
                found[imported] = Import(file, line, imported)
        graph[file] = found
    return graph


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _package_of(file: str) -> str:
    """The package that relative imports of a file start from."""
    return file.rpartition("/")[0].replace("/", ".")


def _imported_names(tree: ast.Module, package: str) -> Iterator[tuple[str, int]]:
    """Every name that is imported, in full, with its line; `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            for alias in node.names:
                yield base if alias.name == "*" else f"{base}.{alias.name}", alias.lineno
        elif isinstance(node, ast.Call) and _calls_import_module(node):
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, node.lineno


def _calls_import_module(node: ast.Call) -> bool:
    function = ast.unparse(node.func).rpartition(".")[2]
    return function in {"import_module", "__import__"} and bool(node.args)


def _file_of(name: str, modules: Mapping[str, str]) -> str | None:
    """The file of a module, or of the module that a name is imported from; None for others."""
    return modules.get(name) or modules.get(name.rpartition(".")[0])


def find_components(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one file, or of one that imports itself.

    Tarjan's algorithm, without recursion, so that no depth of imports is too deep.
    """
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    components: list[list[str]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = lowest[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            file, rest = work[-1]
            following = next((n for n in rest if n not in index or n in on_stack), None)
            if following is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[file])
                if lowest[file] == index[file]:
                    start = stack.index(file)
                    members, stack[start:] = stack[start:], []
                    on_stack.difference_update(members)
                    if len(members) > 1 or file in graph[file]:
                        components.append(sorted(members))
            elif following in index:
                lowest[file] = min(lowest[file], index[following])
            else:
                index[following] = lowest[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(graph[following])))
    return components


def shortest_cycle(graph: Graph, component: list[str]) -> list[Import]:
    """The shortest circle of imports within a strongly connected component."""
    cycles = [_cycle_from(graph, start, set(component)) for start in component]
    return min(cycles, key=len)


def _cycle_from(graph: Graph, start: str, component: set[str]) -> list[Import]:
    """The shortest circle from a file back to it, breadth first."""
    came_by: dict[str, Import] = {}
    waiting = deque([start])
    while waiting:
        for imported, found in graph[waiting.popleft()].items():
            if imported == start:
                cycle = [found]
                while cycle[-1].importer != start:
                    cycle.append(came_by[cycle[-1].importer])
                return cycle[::-1]
            if imported in component and imported not in came_by:
                came_by[imported] = found
                waiting.append(imported)
    raise AssertionError(f"{start} is in no cycle of {sorted(component)}")


def main(arguments: list[str]) -> int:
    package = Path(arguments[0]) if arguments else PACKAGE
    graph = read_graph(package)
    if not graph:
        print(f"no Python files in {package}", file=sys.stderr)
        return 2
    components = find_components(graph)
    for component in components:
        cycle = shortest_cycle(graph, component)
        print(f"import cycle ({len(component)} files import each other):")
        for step in cycle:
            print(f"  {step.importer}:{step.line} -> {step.imported}")
        spare = sorted(set(component) - {step.importer for step in cycle})
        if spare:
            print(f"  and, in longer cycles: {', '.join(spare)}")
    return 1 if components else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

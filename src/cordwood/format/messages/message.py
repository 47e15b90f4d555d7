"""The base of the typed messages: one class for all versions of a message or of a struct in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class _MessageType(type):
    """Makes slots of the annotated fields."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _MessageType:
        namespace["__slots__"] = tuple(namespace.get("__annotations__", ()))
        return super().__new__(mcs, name, bases, namespace)


class Message(metaclass=_MessageType):
    """A message or a struct of one, with a slot for each field of any version.

    A field that the version read lacks holds its default. What was read is not to be changed:
    defaults are shared.
    """

    def get(self, name: str, default: Any = None) -> Any:
        """A field by name, as a mapping would give it: writers take both."""
        return getattr(self, name, default)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values of the fields."""
        return ((name, getattr(self, name)) for name in type(self).__annotations__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(other, name) == value for name, value in self.items())

    def __hash__(self) -> int:
        return hash(
            tuple(tuple(value) if isinstance(value, list) else value for _, value in self.items())
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in self.items())})"

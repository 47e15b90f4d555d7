"""The base of the typed messages: one class for all versions of a message or of a struct in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, cast, dataclass_transform

from cordwood.format.messages.schema import Field, MessageSchema
from cordwood.format.messages.source import Source
from cordwood.model.pauses import in_steps

P = ParamSpec("P")
M = TypeVar("M", bound="Message")
R = TypeVar("R", bound="Message")


@dataclass_transform(kw_only_default=True)
class Message:
    """A message or a struct of one, with a slot for each field of any version.

    Fields are given by keyword. One that is left out has its default, or is null where the schema
    has none and the field can be null; one that the version read lacks has its default. Defaults
    are shared: they, and what was read, are not changed.
    """

    __slots__: ClassVar[tuple[str, ...]] = ()
    schema_fields: ClassVar[tuple[Field, ...]] = ()
    structs: ClassVar[dict[str, type[Message]]] = {}
    """The classes of a message and of all structs in it, by name."""

    def __init__(self, **values: Any) -> None:
        """Compiles the class's own constructor, which takes this one's place."""
        made = type(self)
        made.__init__ = _compiled(made, "__init__")  # type: ignore[method-assign]
        made.__init__(self, **values)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values of the fields."""
        return ((name, getattr(self, name)) for name in self.__slots__)

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


class Request(Message, Generic[R]):
    """A request, which a message of the class `R` answers."""

    __slots__: ClassVar[tuple[str, ...]] = ()


def message_type(schema: MessageSchema) -> type[Message]:
    """The class of a message; those of its structs are attributes of it."""
    structs: dict[str, type[Message]] = {}
    base = Request if schema.name.endswith("Request") else Message
    made = _class(schema.name, schema.name, schema.fields, structs, base)
    for name, struct in structs.items():
        if struct is not made:
            setattr(made, name, struct)
    return made


def _class(
    name: str,
    message: str,
    fields: Sequence[Field],
    structs: dict[str, type[Message]],
    base: type[Message] = Message,
) -> type[Message]:
    attributes = {
        "__slots__": tuple(field.attribute for field in fields),
        "__qualname__": name if name == message else f"{message}.{name}",
        "schema_fields": tuple(fields),
        "structs": structs,
    }
    structs[name] = made = type(name, (base,), attributes)
    for field in fields:
        if field.kind == "struct" and field.struct not in structs:
            _class(field.struct, message, field.fields, structs)
    return made


def message_of(made: type[Message], values: Mapping[str, Any]) -> Message:
    """The message with those fields by name; structs may be mappings, too."""
    given = {}
    for field in made.schema_fields:
        if field.attribute not in values:
            continue
        value = given[field.attribute] = values[field.attribute]
        if field.kind == "struct" and value is not None:
            struct = made.structs[field.struct]
            given[field.attribute] = (
                [_struct_of(struct, each) for each in in_steps(value, every=16)]
                if field.is_array
                else _struct_of(struct, value)
            )
    return made(**given)


def _struct_of(struct: type[Message], value: Any) -> Any:
    return message_of(struct, value) if isinstance(value, Mapping) else value


def default_struct(struct: type[Message]) -> Message:
    """The instance of a struct that is shared as the default of fields."""
    found = _DEFAULTS.get(struct)
    if found is None:
        found = _DEFAULTS[struct] = struct()
    return found


_DEFAULTS: dict[type[Message], Message] = {}


def maker(made: Callable[P, M]) -> Callable[P, M]:
    """A function that makes messages of the class `made` as a call of it does, but faster.

    Python puts the fields into a dict, and takes them out again, when a class is called.
    """
    return cast("Callable[P, M]", _compiled(cast("type[Message]", made), "make"))


def _compiled(made: type[Message], name: str) -> Any:
    """`__init__` or `make`: a function with a keyword for each field, compiled."""
    context: dict[str, Any] = {"new": object.__new__, "made": made}
    parameters = ["self"] if name == "__init__" else []
    if made.schema_fields:
        parameters.append("*")
    for field in made.schema_fields:
        context[f"default_{field.attribute}"] = _default(made, field)
        parameters.append(f"{field.attribute}=default_{field.attribute}")
    source = Source(f"def {name}({', '.join(parameters)}):")
    if name == "make":
        source.add("self = new(made)")
    source.add(*(f"self.{field.attribute} = {field.attribute}" for field in made.schema_fields))
    source.add("return" if name == "__init__" else "return self")
    exec(compile(source.text(), f"<{made.__qualname__}>", "exec"), context)  # noqa: S102  # ours
    return context[name]


def _default(made: type[Message], field: Field) -> Any:
    default = field.default
    if default is None or (field.can_be_null and field.default_text is None):
        return None
    if field.is_array:
        return ()
    if field.kind == "struct":
        return default_struct(made.structs[field.struct])
    return default

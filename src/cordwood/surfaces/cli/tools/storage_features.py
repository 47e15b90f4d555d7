"""`cordwood storage version-mapping` and `feature-dependencies`: what releases and levels bring.

Source: kafka.tools.StorageTool (4.4.0); KIP-1022.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cordwood.metadata.feature_levels import METADATA_VERSION
from cordwood.metadata.releases import (
    LATEST_RELEASE,
    RELEASES,
    UNSTABLE_RELEASE,
    FeatureLevelError,
    UnsupportedLevelError,
    needed_levels,
    release_levels,
    release_name,
    release_of,
)
from cordwood.queries.storage import FeatureNeeds, ReleaseFeatures
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.tool import Terminal, ToolError

_SHORT_MIN, _SHORT_MAX = -(1 << 15), (1 << 15) - 1


def show_mapping(options: Options, terminal: Terminal) -> int:
    """Prints the levels of features that a release brings; returns the exit code.

    Raises:
        ToolError: there is no such release.
    """
    text = options.value("release-version") or LATEST_RELEASE
    release = named_release(text, (*RELEASES, UNSTABLE_RELEASE))
    levels = release_levels(release)
    if options.has("json"):
        terminal.document(ReleaseFeatures(release=release, features=levels))
        return 0
    for name, level in levels.items():
        terminal.line(f"{name}={level}" + f" ({text})" * (name == METADATA_VERSION))
    return 0


def show_needs(
    options: Options,
    terminal: Terminal,
    *,
    parse: Callable[[str], tuple[str, int]] | None = None,
    no_level: str | None = None,
) -> int:
    """Prints what each level of a feature needs of others; returns the exit code.

    Args:
        options: with the values of `--feature`.
        terminal: to print to.
        parse: gives the name and the level of such a value; as kafka-storage if None.
        no_level: the text for a `level` that the feature `name` does not have; that of
            kafka-storage if None.

    Raises:
        ToolError: a feature or a level is not known.
    """
    found = []
    for text in options.values("feature"):
        name, level = (parse or _name_and_level)(text)
        try:
            needs = needed_levels(name, level)
        except UnsupportedLevelError as error:
            raise ToolError((no_level or str(error)).format(name=name, level=level)) from error
        except FeatureLevelError as error:
            raise ToolError(str(error)) from error
        found.append(FeatureNeeds(feature=name, level=level, needs=needs))
        if not options.has("json"):
            _show_need(found[-1], terminal)
    if options.has("json"):
        terminal.document(found)
    return 0


def _show_need(found: FeatureNeeds, terminal: Terminal) -> None:
    said = _with_release(found.feature, found.level)
    if not found.needs:
        terminal.line(f"{said} has no dependencies.")
        return
    terminal.line(f"{said} requires:")
    for name, level in found.needs.items():
        terminal.line(f"    {_with_release(name, level)}")


def _with_release(name: str, level: int) -> str:
    return f"{name}={level}" + (f" ({release_name(level)})" if name == METADATA_VERSION else "")


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals:
        raise ToolError(
            f"Invalid feature format: {text}. Expected format: 'feature=version' (e.g. "
            "'group.version=1')"
        )
    number = java_short(level)
    if number is None:
        raise ToolError(f"Invalid version format: {level} for feature {name}")
    return name, number


def java_short(text: str) -> int | None:
    """The number that a text is, None if it is no Java short."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(text) if _SHORT_MIN <= int(text) <= _SHORT_MAX else None


def named_release(text: str, known: Sequence[str]) -> str:
    """The release among `known` that `text` names.

    Raises:
        ToolError: it names none.
    """
    release = text if text in known else release_of(text)
    if release is None:
        raise ToolError(
            f"Unknown metadata.version '{text}'. Supported metadata.version are: {', '.join(known)}"
        )
    return release

"""`cordwood docs`: the pages, and where they, the examples and the files to deploy with are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

import cordwood
from cordwood.model.documents import ABSENT
from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.command import command, print_document
from cordwood.surfaces.cli.tables import Column, output_width, print_table

EPILOG = """\b
Examples:
  cordwood docs                     the pages, and where they are
  cordwood docs install             a page
  cordwood docs design/cleanup | less
  cordwood docs clean --path        the file of a page

\b
Exit codes: 0 done; 2 there is no such page, or usage."""

_COLUMNS = (Column("page"), Column("about", is_prose=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: its path in the documentation without `.md`, its heading, its file.

    It has the `text` only where that is shown.
    """

    page: str
    title: str
    file: str
    text: str | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """The directories of what is installed, and the pages, unless only these are asked for."""

    docs: str
    examples: str
    packaging: str
    pages: Sequence[Page] | None = field(default=None, metadata=ABSENT)


@command("docs")
def docs_command(
    page: Annotated[
        str | None,
        typer.Argument(metavar="PAGE", help="A page, such as install, or commands/clean."),
    ] = None,
    path: Annotated[
        bool, typer.Option("--path", help="Print where it is, and nothing else.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists the pages of the documentation, and shows one.

    On a terminal a page is shown by the pager, elsewhere it is printed as Markdown.
    """
    directory = installed("docs")
    if page is None:
        _list(directory, path=path, as_json=as_json)
        return
    found = _named(page, _pages(directory))
    text = Path(found.file).read_text(encoding="utf-8")
    if as_json:
        print_document(found if path else replace(found, text=text))
    elif path:
        typer.echo(found.file)
    elif output_width() is None:
        typer.echo(text, nl=False)
    else:
        console = Console()
        with console.pager():
            console.print(Markdown(text))


def installed(name: str) -> Path:
    """The directory `docs`, `examples` or `packaging`: in a wheel's package, or in the checkout.

    Raises:
        ConfigError: neither.
    """
    package = Path(cordwood.__file__).parent
    checkouts = (each for each in package.parents if (each / "pyproject.toml").is_file())
    for place in (package, *checkouts):
        if (place / name).is_dir():
            return place / name
    raise ConfigError(f"there is no {name} beside {package}: install Cordwood with pip")


def _list(directory: Path, *, path: bool, as_json: bool) -> None:
    examples, packaging = installed("examples"), installed("packaging")
    pages = _pages(directory)
    if as_json:
        print_document(
            Documentation(
                docs=str(directory),
                examples=str(examples),
                packaging=str(packaging),
                pages=None if path else pages,
            )
        )
    elif path:
        typer.echo(directory)
    else:
        typer.echo(f"Pages:     {directory}")
        typer.echo(f"Examples:  {examples}")
        typer.echo(f"Packaging: {packaging}")
        typer.echo("")
        print_table("", _COLUMNS, [(each.page, each.title) for each in pages])


def _pages(directory: Path) -> list[Page]:
    """All pages, those of no folder first."""
    files = sorted(directory.rglob("*.md"), key=lambda file: (len(file.parents), file))
    return [
        Page(
            page=file.relative_to(directory).with_suffix("").as_posix(),
            title=_title(file),
            file=str(file),
        )
        for file in files
    ]


def _title(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    heading = next((line for line in lines if line.startswith("# ")), file.stem)
    return heading.removeprefix("# ").replace("`", "")


def _named(typed: str, pages: list[Page]) -> Page:
    """The page of a name; the folder may be left out where one page has the name.

    Raises:
        ConfigError: none, or several.
    """
    name = typed.removesuffix(".md").removeprefix("docs/")
    found = [each for each in pages if each.page == name]
    found = found or [each for each in pages if each.page.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{typed}: there are {', '.join(each.page for each in found)}")
    names = [each.page for each in pages] + [each.page.rpartition("/")[2] for each in pages]
    close = get_close_matches(name, names, n=1)
    advice = f"did you mean {close[0]}?" if close else "`cordwood docs` lists all"
    raise ConfigError(f"there is no page {typed}: {advice}")

"""`cordwood docs`: the pages, and where they, the examples and the files to deploy with are."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.markdown import Markdown

import cordwood
from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.command import command
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


class _Page(NamedTuple):
    """A page: its path in the documentation without `.md`, its heading, its file."""

    name: str
    title: str
    file: Path


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
    text = found.file.read_text(encoding="utf-8")
    if as_json:
        rest = {} if path else {"text": text}
        typer.echo(json.dumps({**_facts(found), **rest}))
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
        document = {"docs": str(directory), "examples": str(examples), "packaging": str(packaging)}
        rest = {} if path else {"pages": [_facts(each) for each in pages]}
        typer.echo(json.dumps({**document, **rest}))
    elif path:
        typer.echo(directory)
    else:
        typer.echo(f"Pages:     {directory}")
        typer.echo(f"Examples:  {examples}")
        typer.echo(f"Packaging: {packaging}")
        typer.echo("")
        print_table("", _COLUMNS, [(each.name, each.title) for each in pages])


def _pages(directory: Path) -> list[_Page]:
    """All pages, those of no folder first."""
    files = sorted(directory.rglob("*.md"), key=lambda file: (len(file.parents), file))
    return [
        _Page(file.relative_to(directory).with_suffix("").as_posix(), _title(file), file)
        for file in files
    ]


def _title(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    heading = next((line for line in lines if line.startswith("# ")), file.stem)
    return heading.removeprefix("# ").replace("`", "")


def _named(typed: str, pages: list[_Page]) -> _Page:
    """The page of a name; the folder may be left out where one page has the name.

    Raises:
        ConfigError: none, or several.
    """
    name = typed.removesuffix(".md").removeprefix("docs/")
    found = [each for each in pages if each.name == name]
    found = found or [each for each in pages if each.name.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{typed}: there are {', '.join(each.name for each in found)}")
    names = [each.name for each in pages] + [each.name.rpartition("/")[2] for each in pages]
    close = get_close_matches(name, names, n=1)
    advice = f"did you mean {close[0]}?" if close else "`cordwood docs` lists all"
    raise ConfigError(f"there is no page {typed}: {advice}")


def _facts(page: _Page) -> dict[str, str]:
    return {"page": page.name, "title": page.title, "file": str(page.file)}

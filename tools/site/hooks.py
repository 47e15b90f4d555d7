"""Hooks for MkDocs (`hooks` of mkdocs.yml): the search of the site works from files, too.

MkDocs's own search fetches its index, which a browser refuses for a page that was opened from a
disk. The index is written as a script here, and `search.js` beside this file searches it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


def on_post_build(config: Mapping[str, str]) -> None:
    """Replaces the files of MkDocs's search that fetch by ones that a page includes.

    Args:
        config: MkDocs's configuration; `site_dir` is the directory of the built site.
    """
    search = Path(config["site_dir"]) / "search"
    index = (search / "search_index.json").read_text(encoding="utf-8")
    (search / "search_index.js").write_text(f"var searchIndex = {index};\n", encoding="utf-8")
    for name in ("search_index.json", "worker.js"):
        (search / name).unlink()
    shutil.copy(Path(__file__).with_name("search.js"), search / "main.js")

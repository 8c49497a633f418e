"""Hooks of the documentation site (`make docs`).

The site is built from `docs/` and from the pages at the root of the repository (README, ARCHITECTURE, …), which are its
pages, too.  Links are written as they work in a checkout; here they are turned into links of the site, and one that
leads nowhere is an error.  After the build no page may load anything from another host.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "LICENSE.txt",
}
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
LOADED = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", re.IGNORECASE
)


def on_files(files: Any, config: Any) -> Any:
    """The pages of the root beside those of `docs/`."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links between files of the repository as links between pages of the site."""
    uri = page.file.src_uri
    at_root = {site: name for name, site in PAGES.items()}
    here = posixpath.dirname(at_root.get(uri, f"docs/{uri}"))

    def linked(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target:
            return match[0]
        name = posixpath.normpath(posixpath.join(here, target))
        site = PAGES.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else None)
        if site is None:
            raise PluginError(f"{uri}: {target} is no page of the site; write it as code instead of a link")
        return f"{match[1]}{posixpath.relpath(site, posixpath.dirname(uri) or '.')}{match[3]}"

    return LINK.sub(linked, markdown).replace("```python\n>>>", "```pycon\n>>>")


def on_post_build(config: Any) -> None:
    """The site works without a network."""
    for path in Path(config["site_dir"]).rglob("*.html"):
        outside = LOADED.search(path.read_text(encoding="utf-8"))
        if outside:
            raise PluginError(f"{os.fspath(path)} loads {outside[1]}; the site has to work without a network")

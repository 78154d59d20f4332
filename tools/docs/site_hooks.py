"""MkDocs hooks: pages that live outside docs/, and links that leave it.

CONTRIBUTING.md, SECURITY.md and CHANGELOG.md stay in the repository's root and also appear on the site. A link to any
other file of the repository becomes a link to it on the host that `repo_url` names, or plain text without one.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
WIDE = (
    "benchmarks/index.md",
)  # pages whose tables need the room of the table of contents
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(
            File.generated(
                config, page, content=relinked(text, ".", page, config.repo_url)
            )
        )
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Rewrite the links of a page that leave docs/, and make room for wide tables."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    if page.file.src_uri in PAGES.values():
        return markdown
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))
    return relinked(markdown, folder, page.file.src_uri, config.repo_url)


def relinked(markdown: str, folder: str, page: str, repository: str | None) -> str:
    """A page with links that work on the site.

    Args:
        markdown: the page's source.
        folder: where the source lies in the repository.
        page: the page's path on the site.
        repository: the repository's address, if there is one.
    """

    def replace(found: re.Match[str]) -> str:
        text, link, anchor = found[1], found[2], found[3] or ""
        target = posixpath.normpath(posixpath.join(folder, link))
        if target.startswith("docs/") or target in PAGES:
            there = PAGES.get(target, target.removeprefix("docs/"))
            return f"[{text}]({os.path.relpath(there, posixpath.dirname(page) or '.')}{anchor})"
        if not (ROOT / target).exists():
            return found[0]  # MkDocs names it as broken
        return (
            f"[{text}]({repository}/blob/main/{target}{anchor})" if repository else text
        )

    return LINK.sub(replace, markdown)

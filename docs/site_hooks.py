"""Hooks of the documentation site: reference pages from the code, and links that leave docs/.

mkdocs.yml names this file. No generated page is committed.
"""

from __future__ import annotations

import json
import posixpath
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from mkdocs.structure.files import File

from clients.configuration.settings_reference import settings
from cmfl.commands.application import application

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "tests/README.md": "project/testing.md",
}
"""Pages of the repository outside docs/, and their addresses on the site."""
SETTINGS = "<!-- settings -->"
"""Place of the tables of all settings on a page."""
_NAMED_FENCE = re.compile(r"^(```\w+) \S+$", re.MULTILINE)
"""A block with a name for the tests, which the site's Markdown does not accept."""
_LINK = re.compile(r"!?\[(?P<label>[^\]]*)\]\((?P<path>(?!\w+:)[^)#\s]+)(?P<anchor>#[^)]*)?\)")

_MOVED = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="TARGET">
<meta name="robots" content="noindex">
<script>location.replace("TARGET" + location.hash)</script>
<meta http-equiv="refresh" content="1; url=TARGET">
<p>This page has moved: <a href="TARGET">TARGET</a></p>
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated page of each experiment to the section Results."""
    (results,) = (section["Results"] for section in config.nav or () if "Results" in section)
    listed = sorted(Path(config.docs_dir, "results").glob("*.md"))
    results += [page for path in listed if (page := f"results/{path.name}") not in results]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated references, and the repository's pages outside docs/."""
    pages = {
        "reference/commands.md": commands_page(),
        "reference/rest.md": rest_page(),
        "reference/contract.md": contract_page(),
    }
    for source, page in OUTSIDE.items():
        if files.get_file_from_path(page) is None:
            pages[page] = (ROOT / source).read_text("utf-8")
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: object) -> str:
    """Point links between files of the repository to their pages on the site.

    A link to a file that is not on the site becomes plain text.
    """
    address = page.file.src_uri
    is_generated = page.file.generated_by is not None
    sources = {on_site: source for source, on_site in OUTSIDE.items()} if is_generated else {}
    source = sources.get(address, f"docs/{address}")

    def mended(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
        target = OUTSIDE.get(path, path.removeprefix("docs/"))
        file = files.get_file_from_path(target)
        if file is None or file.inclusion.is_excluded():
            return link["label"] if (ROOT / path).exists() else link[0]
        start = posixpath.dirname(address) or "."
        return link[0].replace(f"({link['path']}", f"({posixpath.relpath(target, start)}")

    if SETTINGS in markdown:
        markdown = markdown.replace(SETTINGS, settings_tables())
    return _LINK.sub(mended, _NAMED_FENCE.sub(r"\1", markdown))


def on_post_build(config: MkDocsConfig) -> None:
    """Write a page at each old address of mkdocs.yml that leads to the new one."""
    site = Path(config.site_dir)
    for old, new in config.extra["redirects"].items():
        address, page = (
            Path(name.replace("README", "index")).with_suffix(".html") for name in (old, new)
        )
        if not (site / page).is_file() or (site / address).exists():
            raise ValueError(
                f"redirects: {old} to {new}: the page is missing, or the old one there"
            )
        (site / address).parent.mkdir(parents=True, exist_ok=True)
        target = posixpath.relpath(page, address.parent)
        (site / address).write_text(_MOVED.replace("TARGET", target), "utf-8")


def settings_tables() -> str:
    """Return every setting of a run, a table for each section, from the schema."""
    sections: dict[str, list[str]] = {}
    for row in settings():
        section, _, key = row["name"].rpartition(".")
        value = row["default"]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        default = "required" if row["is_needed"] else "" if value in (None, {}) else f"`{text}`"
        line = f"| `{key}` | {default} | {_plain(row['may_be'])} | {_plain(row['sentence'])} |"
        sections.setdefault(f"`[{section}]`" if section else "Top level", []).append(line)
    lines = []
    for heading, rows in sections.items():
        head = "| key | default | values | meaning |"
        lines += [f"## {heading}", "", head, "| --- | --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def commands_page() -> str:
    """Return the reference of the command line, from the commands themselves."""
    lines = ["# Commands", "", "Generated from the help of each command.", ""]
    root = typer.main.get_command(application())
    for words, command in _commands(root, ("cmfl",)):
        lines += [f"## {' '.join(words)}", "", _plain(command.help or ""), ""]
        parameters = [p for p in command.params if not getattr(p, "hidden", False)]
        rows = [_parameter_row(p) for p in parameters if p.name not in {"help", "args"}]
        if rows:
            lines += ["| option | meaning | default |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _commands(
    command: click.Command, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    children: dict[str, click.Command] | None = getattr(command, "commands", None)
    if children is None:
        yield words, command
        return
    for name in sorted(children):
        if not children[name].hidden:
            yield from _commands(children[name], (*words, name))


def _parameter_row(parameter: click.Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.opts if name.startswith("-"))
    shown = names or f"`{(parameter.name or '').upper()}`"
    value = parameter.default
    default = "" if value is None or callable(value) or value in ([], False) else f"`{value}`"
    default = "required" if parameter.required else default
    return f"| {shown} | {_plain(getattr(parameter, 'help', None) or '')} | {default} |"


def _plain(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.replace("|", "\\|").replace("<", "&lt;")).strip()


def rest_page() -> str:
    """Return the reference of the REST service, from docs/openapi.json."""
    document: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text("utf-8"))
    guide = "[Serve history](../how-to/serve-history.md)"
    lines = ["# REST", "", f"Generated from `docs/openapi.json`. {guide} explains it.", ""]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}", "", operation.get("description", ""), ""]
            parameters = operation.get("parameters", [])
            if parameters:
                lines += ["| parameter | in | meaning |", "| --- | --- | --- |"]
                lines += [
                    f"| `{p['name']}` | {p['in']} | {_plain(p.get('description', ''))} |"
                    for p in parameters
                ]
                lines.append("")
            answers = ", ".join(sorted(operation["responses"]))
            lines += [f"Answers: {answers}.", ""]
    return "\n".join(lines)


def contract_page() -> str:
    """Return the reference of the contract: its interface, and the sizes of the artefact."""
    contracts = resources.files("contracts")
    artefact = json.loads((contracts / "artifacts" / "committee_ledger.json").read_text("utf-8"))
    source = (contracts / "ICommitteeLedger.vyi").read_text("utf-8")
    text = "Functions, events and structs of `contracts/ICommitteeLedger.vyi`."
    lines = ["# Contract", "", text, ""]
    for kind in ("function", "event"):
        lines += [f"## {kind.capitalize()}s", "", f"| {kind} | arguments |", "| --- | --- |"]
        for entry in artefact["abi"]:
            if entry["type"] == kind:
                arguments = (f"`{value['type']} {value['name']}`" for value in entry["inputs"])
                lines.append(f"| `{entry['name']}` | {', '.join(arguments)} |")
        lines.append("")
    return "\n".join([*lines, "## Interface", "", "```python", source.rstrip(), "```", ""])

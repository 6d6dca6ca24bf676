"""Hooks of the documentation site: reference pages made from the code, and links out of docs/.

mkdocs runs `on_files` and `on_page_markdown` (see mkdocs.yml). No generated page is committed.
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
    **{f"{name.upper()}.md": f"{name}.md" for name in ("contributing", "changelog", "security")},
    "README.md": "index.md",
}
SETTINGS = "<!-- settings -->"
"""Place of the tables of all settings on a page."""
_NAMED_FENCE = re.compile(r"^(```\w+) \S+$", re.MULTILINE)
"""A block with a name for the tests, which the site's Markdown does not accept."""
_LINK = re.compile(r"\]\((?P<up>(?:\.\./)+)(?P<target>[^)#\s]*)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated references, and the pages that lie beside docs/."""
    pages = {
        "reference/commands.md": commands_page(),
        "reference/rest.md": rest_page(),
        "reference/contract.md": contract_page(),
    }
    for name, page in OUTSIDE.items():
        if name != "README.md":
            text = (ROOT / name).read_text("utf-8")
            for linked, its_page in OUTSIDE.items():
                text = text.replace(f"]({linked})", f"]({its_page})")
            pages[page] = text.replace("](docs/", "](")
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Point links that leave docs/ to their page on the site, or make plain text of them."""

    def mended(match: re.Match[str]) -> str:
        folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
        path = posixpath.normpath(posixpath.join(folder, match["up"] + match["target"]))
        if path.startswith("docs/"):
            return match[0]
        if path not in OUTSIDE:
            raise ValueError(f"{page.file.src_uri}: no page of the site for the link to {path}")
        start = posixpath.dirname(page.file.src_uri) or "."
        return f"]({posixpath.relpath(OUTSIDE[path], start)}{match['anchor'] or ''})"

    if SETTINGS in markdown:
        markdown = markdown.replace(SETTINGS, settings_tables())
    return _LINK.sub(mended, _NAMED_FENCE.sub(r"\1", markdown))


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
    lines = ["# Commands", "", "Made from the commands' own help.", ""]
    root = typer.main.get_command(application())
    for words, command in _commands(root, ("cmfl",)):
        lines += [f"## {' '.join(words)}", "", _plain(command.help or ""), ""]
        parameters = [p for p in command.params if not getattr(p, "hidden", False)]
        rows = [_parameter_row(p) for p in parameters if p.name not in {"help", "args"}]
        if rows:
            lines += ["| option | what | default |", "| --- | --- | --- |", *rows, ""]
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
    text = "Made from `docs/openapi.json`; [service](../service.md) explains it."
    lines = ["# REST", "", text, ""]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}", "", operation.get("description", ""), ""]
            parameters = operation.get("parameters", [])
            if parameters:
                lines += ["| parameter | in | what |", "| --- | --- | --- |"]
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

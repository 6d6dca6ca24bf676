"""The page at /docs: the OpenAPI document as plain HTML, with nothing fetched from elsewhere."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { background: #f4f4f4; padding: 0.75rem; overflow-x: auto; max-height: 24rem; }
h2 { border-top: 1px solid #ccc; padding-top: 1rem; } h3 { margin-bottom: 0; }
table { border-collapse: collapse; } td, th { text-align: left; padding: 0.1rem 1rem 0.1rem 0; }
@media (prefers-color-scheme: dark) {
  body { background: #111; color: #eee; } pre { background: #222; } a { color: #8cf; } }
"""


def docs_page(document: dict[str, Any]) -> str:
    """Return the page.

    Args:
        document: OpenAPI, as the app serves it.
    """
    info = document["info"]
    paragraphs = "".join(f"<p>{_prose(part)}</p>" for part in info["description"].split("\n\n"))
    body = "".join(
        f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>"
        + "".join(
            _operation(method, path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if tag["name"] in operation["tags"]
        )
        for tag in document["tags"]
    )
    title = escape(info["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{title} {escape(info['version'])}</h1>{paragraphs}"
        f'<p>For programs: <a href="/openapi.json">/openapi.json</a></p>{body}</html>'
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one['in'])}"
        f"<td>{_prose(one.get('description', ''))}</tr>"
        for one in operation.get("parameters", [])
    )
    answers = "".join(
        f"<tr><td>{escape(status)}<td>{escape(answer['description'])}</tr>"
        for status, answer in operation["responses"].items()
    )
    success = min(operation["responses"])
    answered = operation["responses"][success]["content"]
    example = answered.get("application/json", {}).get("example", ", ".join(answered))
    return (
        f"<h3>{escape(operation['summary'])}</h3>"
        f"<p><code>{method.upper()} {escape(path)}</code></p>"
        f"<p>{_prose(operation.get('description', ''))}</p>"
        f"<table>{rows}</table><table>{answers}</table>"
        f"<details><summary>Example</summary><pre>{escape(json.dumps(example, indent=1))}</pre>"
        "</details>"
    )


def _prose(text: str) -> str:
    """Return text as HTML, with what stands between back quotes as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))

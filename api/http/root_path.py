"""The path below which a reverse proxy serves the service, in the links of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json, to_jsonable_python

if TYPE_CHECKING:
    from starlette.requests import Request

LINKS = "links"


def root_path_of(request: Request) -> str:
    """Return the path without a slash at its end; empty without a proxy, and for a store."""
    app: Any = request.scope.get("app")
    return str(app.state.settings.root_path) if hasattr(app, "openapi") else ""


def to_rooted_json(request: Request, answer: object) -> bytes:
    """Return an answer as JSON, with its links below the service's root path."""
    root = root_path_of(request)
    return to_json(_rooted(to_jsonable_python(answer), root) if root else answer)


def _rooted(value: Any, root: str) -> Any:
    if isinstance(value, list):
        return [_rooted(each, root) for each in value]
    if not isinstance(value, dict):
        return value
    rooted = {name: _rooted(each, root) for name, each in value.items()}
    links = rooted.get(LINKS)
    if isinstance(links, dict):
        rooted[LINKS] = {
            name: f"{root}{link}" if isinstance(link, str) and link.startswith("/v1/") else link
            for name, link in links.items()
        }
    return rooted

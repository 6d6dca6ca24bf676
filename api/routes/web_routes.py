"""The dashboard's files: pages that read only this service.

The files are served from a table of the package's own, so no path of a request reaches the file
system. The policy below lets a page load scripts and styles from this service alone and talk to it
alone; no text of a record can become markup or script.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from api.http.encoded_answer import CHANGING, is_known

WEB = Path(__file__).parent.parent / "web"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": CHANGING,
}
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file with its media type and its strong entity tag, the sha256 of the bytes."""

    body: bytes
    media_type: str
    tag: str


@cache
def web_files() -> dict[str, WebFile]:
    """Return all files of the dashboard by their paths below `/dashboard/`, read once."""
    paths = {
        path.relative_to(WEB).as_posix(): path
        for path in sorted(WEB.rglob("*"))
        if path.is_file() and path.suffix in MEDIA_TYPES
    }
    return {name: _web_file(path) for name, path in paths.items()}


def _web_file(path: Path) -> WebFile:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return WebFile(body, MEDIA_TYPES[path.suffix], tag)


@router.get("/")
@router.get("/dashboard")
def to_dashboard() -> Response:
    """Redirect to the dashboard."""
    return RedirectResponse("/dashboard/", status_code=307, headers={"Cache-Control": CHANGING})


@router.get("/dashboard/{name:path}")
def dashboard(request: Request, name: str) -> Response:
    """Answer with one of the dashboard's files.

    Raises:
        HTTPException: there is no such file.
    """
    file = web_files().get(name or "index.html")
    if file is None:
        raise HTTPException(404)
    headers = HEADERS | {"ETag": file.tag}
    if is_known(request.headers.get("if-none-match"), file.tag):
        return Response(status_code=304, headers=headers)
    return Response(file.body, 200, headers, file.media_type)

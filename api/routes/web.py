"""The dashboard's files: pages that read this service and nothing else.

What is served is the table of files that the package holds, so no path of a request ever reaches
the file system. The policy below lets a page load scripts and styles from here alone and talk to
here alone; nothing of what a record says can become markup or script.
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
    """A file as it is sent.

    Attributes:
        body: its bytes.
        media_type: by its suffix.
        tag: its strong entity tag, the sha256 of the bytes.
    """

    body: bytes
    media_type: str
    tag: str


@cache
def web_files() -> dict[str, WebFile]:
    """Return all files of the dashboard by their paths below `/dashboard/`, read once."""
    found = {
        path.relative_to(WEB).as_posix(): path
        for path in sorted(WEB.rglob("*"))
        if path.is_file() and path.suffix in MEDIA_TYPES
    }
    return {name: _web_file(path) for name, path in found.items()}


def _web_file(path: Path) -> WebFile:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return WebFile(body, MEDIA_TYPES[path.suffix], tag)


@router.get("/")
@router.get("/dashboard")
def to_dashboard() -> Response:
    """Lead to the dashboard."""
    return RedirectResponse("/dashboard/", status_code=307, headers={"Cache-Control": CHANGING})


@router.get("/dashboard/{name:path}")
def dashboard(request: Request, name: str) -> Response:
    """Answer with one of the dashboard's files.

    Raises:
        HTTPException: there is no such file.
    """
    found = web_files().get(name or "index.html")
    if found is None:
        raise HTTPException(404)
    headers = HEADERS | {"ETag": found.tag}
    if is_known(request.headers.get("if-none-match"), found.tag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, 200, headers, found.media_type)

"""The dashboard's files: pages that read only this service.

The files are served from a table, so no path of a request reaches the file system. The page names
its scripts and styles below the digest of all files, where they never change, so that a browser
requests each of them once. The policy lets a page load scripts and styles only from this service,
and connect only to it; no text of a record can become markup or script.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from api.http.answers import CHANGING, IMMUTABLE, is_known, root_path_of

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
HEADERS = {"Content-Security-Policy": POLICY, "Cross-Origin-Resource-Policy": "same-origin"}
"""Headers of every file, besides those of `SafeHeaders`."""
PAGE, REFERENCE = "index.html", "docs.html"
_BEFORE_A_NAME = re.compile(rb'(?:src|href)="(?=(?:js|style|vendor)/|icon\.svg)')
_router = APIRouter(include_in_schema=False)
ROUTES = _router.routes


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file as it is served, with a strong entity tag of its sha256."""

    body: bytes
    media_type: str
    tag: str
    cache: str = CHANGING


@cache
def web_files() -> dict[str, WebFile]:
    """Return all files of the dashboard by their paths below `/dashboard/`, read once."""
    paths = {
        path.relative_to(WEB).as_posix(): path
        for path in sorted(WEB.rglob("*"))
        if path.is_file() and path.suffix in MEDIA_TYPES
    }
    files = {name: _web_file(path.read_bytes(), path.suffix) for name, path in paths.items()}
    all_tags = "".join(f"{name} {file.tag}\n" for name, file in files.items())
    folder = f"{hashlib.sha256(all_tags.encode()).hexdigest()[:32]}/"
    below = rb"\g<0>" + folder.encode()
    pages = {
        name: _web_file(_BEFORE_A_NAME.sub(below, files.pop(name).body), ".html")
        for name in (PAGE, REFERENCE)
    }
    unchanging = {f"{folder}{name}": replace(file, cache=IMMUTABLE) for name, file in files.items()}
    return {**pages, **files, **unchanging}


def _web_file(body: bytes, suffix: str) -> WebFile:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return WebFile(body, MEDIA_TYPES[suffix], tag)


@_router.get("/")
@_router.get("/dashboard")
@_router.get("/docs")
def redirect(request: Request) -> Response:
    """Redirect to the dashboard, or to the REST reference."""
    page = REFERENCE if request.scope["route"].path == "/docs" else ""
    path = f"{root_path_of(request)}/dashboard/{page}"
    return RedirectResponse(path, status_code=307, headers={"Cache-Control": CHANGING})


@_router.get("/dashboard/{name:path}")
def dashboard(request: Request, name: str) -> Response:
    """Answer with one of the dashboard's files, or 404."""
    file = web_files().get(name or PAGE)
    if file is None:
        raise HTTPException(404)
    headers = HEADERS | {"ETag": file.tag, "Cache-Control": file.cache}
    if is_known(request, file.tag):
        return Response(status_code=304, headers=headers)
    return Response(file.body, 200, headers, file.media_type)

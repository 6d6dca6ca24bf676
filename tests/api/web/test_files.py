"""The dashboard's files: complete, unable to run anybody's text, and told to load nothing else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import httpx
import pytest

from api.routes.web import WEB, web_files
from tests.api.conftest import refused

OWN = sorted(
    path
    for path in WEB.rglob("*")
    if path.suffix in {".js", ".css", ".html"} and "vendor" not in path.parts
)


def test_the_root_leads_to_the_dashboard(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 307
    assert answer.headers["location"] == "/dashboard/"
    assert client.get("/dashboard").headers["location"] == "/dashboard/"
    assert client.get("/docs").headers["location"] == "/dashboard/docs.html"


def test_a_page_may_load_and_ask_its_own_service_alone(client: httpx.Client) -> None:
    answer = client.get("/dashboard/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def test_what_the_page_names_never_changes_and_it_names_everything_so(client: httpx.Client) -> None:
    page = client.get("/dashboard/")
    assert page.headers["cache-control"] == "no-cache"
    named = re.findall(r'(?:src|href)="([^"/#.][^"]*)"', page.text)
    (folder,) = {name.partition("/")[0] for name in named}
    assert {name.partition("/")[2] for name in named} >= {
        "js/main.js",
        "style/base.css",
        "icon.svg",
    }
    for name in named:
        answer = client.get(f"/dashboard/{name}")
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        same = client.get(f"/dashboard/{name.partition('/')[2]}")
        assert (same.content, same.headers["cache-control"]) == (answer.content, "no-cache")
    other = ("0" if folder[0] != "0" else "1") + folder[1:]
    refused(client.get(f"/dashboard/{other}/js/main.js"), 404)


def test_another_byte_moves_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = web_files()
    shutil.copytree(WEB, tmp_path / "web")
    with (tmp_path / "web" / "js" / "dom.js").open("a") as file:
        file.write("\n")
    monkeypatch.setattr("api.routes.web.WEB", tmp_path / "web")
    after = web_files.__wrapped__()
    assert len(after) == len(before)
    assert all(file.cache == "no-cache" for name, file in after.items() if name in before)


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2Froutes%2Fweb.py", "%2e%2e/app.py", "js", "js/", "vendor/README.md"]
)
def test_what_is_no_file_of_the_dashboard_is_not_served(client: httpx.Client, name: str) -> None:
    refused(client.get(f"/dashboard/{name}"), 404)


def test_every_file_that_a_file_names_is_served() -> None:
    found = web_files()
    for path in OWN:
        named = re.findall(
            r"""(?:from|src=|href=)\s*"((?:\.{1,2}/)*[\w-][\w./-]*\.(?:js|css|svg))\"""",
            path.read_text(),
        )
        for name in named:
            target = (path.parent / name).resolve().relative_to(WEB).as_posix()
            assert target in found, f"{path.name} names {name}"


def test_no_text_can_become_markup_or_script() -> None:
    text = "\n".join(path.read_text() for path in OWN)
    doors = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|createContextualFragment|DOMParser"
        r"|setHTML|\beval\b|new Function|import\(|style=|\son\w+=\"|<style|<script>|javascript:"
    )
    assert re.findall(doors, text) == []
    elsewhere = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"]*", text)
    assert set(elsewhere) <= {"http://www.w3.org/2000/svg"}

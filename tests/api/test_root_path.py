"""Behind a proxy that removes a path: each link, redirect and server of an answer has the path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from api.client import Service
from api.settings import Settings
from tests.api.conftest import read, refused, serving
from tests.api.proxying import proxied
from tests.cmfl.commands.conftest import succeeds

ROOT = "/audit/of-the.ledger"


@pytest.fixture(scope="module")
def outside(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = Settings(home=home, root_path=ROOT, mailbox=str(tmp_path_factory.mktemp("mail")))
    with serving(settings) as service, proxied(service, ROOT) as url:
        origin = url.removesuffix(ROOT)
        with httpx.Client(base_url=origin, trust_env=False, verify=False, timeout=60) as client:
            yield client


def links_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [link for each in value for link in links_in(each)]
    if not isinstance(value, dict):
        return []
    own = list(value.get("links", {}).values())
    return own + [link for each in value.values() for link in links_in(each)]


def test_every_link_of_every_answer_is_reached_through_the_proxy(outside: httpx.Client) -> None:
    seen: set[str] = set()
    waiting = {f"{ROOT}/v1/status", f"{ROOT}/v1/chains"}
    while waiting:
        path = waiting.pop()
        seen.add(path)
        if path.endswith("/events"):
            with outside.stream("GET", path) as stream:
                assert stream.status_code == 200, path
            continue
        answer = outside.get(path)
        assert answer.status_code == 200, (path, answer.text)
        for link in links_in(answer.json()):
            assert link.startswith(f"{ROOT}/v1/"), (path, link)
            waiting |= {link} - seen
    assert {"rounds", "clients", "deployments", "federation", "votes", "verifications"} <= {
        path.rpartition("/")[2] for path in seen
    }


def test_redirects_and_servers_have_the_path(outside: httpx.Client) -> None:
    assert outside.get(f"{ROOT}/").headers["location"] == f"{ROOT}/dashboard/"
    assert outside.get(f"{ROOT}/docs").headers["location"] == f"{ROOT}/dashboard/docs.html"
    assert outside.get(f"{ROOT}/openapi.json").json()["servers"] == [{"url": ROOT}]
    told = refused(outside.get(f"{ROOT}/v1/blobs/{'0' * 64}"), 404, "blob-not-found")
    assert told["instance"] == f"{ROOT}/v1/blobs/{'0' * 64}"


def test_without_a_path_nothing_is_added(client: httpx.Client, root: str) -> None:
    assert "servers" not in client.get("/openapi.json").json()
    assert read(client, root)["links"]["self"] == root


def test_the_client_and_the_command_line_read_through_the_proxy(outside: httpx.Client) -> None:
    url = str(outside.base_url).rstrip("/") + ROOT
    with Service(url) as service:
        (chain,) = service.chains()["chains"]
        (run, *_) = service.deployments(chain["name"])["deployments"]
        rounds = service.deployment(chain["name"], run["address"]).rounds(limit=50)["rounds"]
    listed = succeeds("rounds", "list", "--api", url, "--json").json
    assert json.dumps(rounds[0]["links"]) in json.dumps(listed)


@pytest.mark.parametrize("path", ["ledger", "/ledger/", "//ledger", "/a/../b", "/a b", "/é", "/."])
def test_a_path_that_is_none_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="root_path"):
        Settings(home=tmp_path, root_path=path)

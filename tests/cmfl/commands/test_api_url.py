"""`--api URL`: a service tells what a home tells, and what it proves is held against one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.settings import Settings
from tests.api.conftest import deployments, read, serving
from tests.cmfl.commands.conftest import ROUNDS, SHARED, cmfl, first_decided, refusal, succeeds

pytestmark = SHARED

TOKEN = "a-token-that-this-test-has-made-up"


@pytest.fixture(scope="module")
def api(service: httpx.Client) -> tuple[str, str]:
    return "--api", str(service.base_url)


@pytest.fixture(scope="module")
def kept(head: str) -> tuple[str, str]:
    return "--head", head


def test_the_same_text_is_printed_of_service_and_home(home: Path, api: tuple[str, str]) -> None:
    asked = ("rounds", "list", "--status", "decided", "--since-block", 3, "--until", 2**32 - 1)
    remote, own = succeeds(*asked, *api), succeeds(*asked, "--home", home)
    assert sorted(remote.out.splitlines()) == sorted(own.out.splitlines())


def test_a_service_reports_runs_as_far_as_it_knows_them(home: Path, api: tuple[str, str]) -> None:
    (own,) = succeeds("runs", "list", "--home", home, "--json").json
    assert succeeds("runs", "list", *api, "--json").json == [own | {"configuration": None}]
    people = succeeds("runs", "list", *api).out
    assert f"runs of {api[1].rstrip('/')}" in people
    assert "The service has no runs on the memory ledger" in people
    shown = succeeds("runs", "show", "run", *api, "--json").json
    settings, chain = shown.pop("settings"), shown.pop("chain")
    assert shown == own | {"configuration": None}
    claims = {"claimed": own["head"], "head": None}
    assert chain == {"outcome": "not_asked", "round": own["rounds"], **claims}
    here = succeeds("runs", "show", "run", "--home", home, "--json").json["settings"]
    same = settings.keys() & here.keys()
    assert {"seed", "protocol.clients", "malice.members.silent", "training.path"} <= same
    assert {name: settings[name] for name in same} == {name: here[name] for name in same}
    people = succeeds("runs", "show", "run", *api).out
    assert f"audit --api {api[1].rstrip('/')} --rpc-url URL --chain-id" in people
    assert "serves no run 'other'; it serves run" in refusal("runs", "show", "other", *api)
    assert "--rpc-url and --api" in refusal("runs", "show", "run", *api, "--rpc-url", "http://y")


def test_a_proof_from_a_service_needs_a_head_or_contract(
    home: Path, api: tuple[str, str], kept: tuple[str, str], node: tuple[object, ...]
) -> None:
    number = first_decided(home)
    asked = ("verify", "client", "--round", number, "--client", 3)
    own = succeeds(*asked, "--home", home).out.splitlines()[0]
    for trusted in (kept, node):
        assert succeeds(*asked, *api, *trusted).out.splitlines()[0] == own
    nothing = cmfl(*asked, *api)
    assert nothing.code == 3
    assert nothing.out.startswith("NOT PROVEN: ")
    assert "no head and no contract is trusted" in nothing.out
    assert cmfl(*asked, *api, "--head", "0x" + "5c" * 32).code == 3


def test_a_services_answers_are_saved_for_others_to_verify(
    home: Path, api: tuple[str, str], kept: tuple[str, str], tmp_path: Path
) -> None:
    number, proof, bundle = first_decided(home), tmp_path / "proof", tmp_path / "bundle"
    asked = ("--round", number, *api)
    said = succeeds("export", "bundle", *asked, "--out", bundle)
    assert "not checked; to check it, run cmfl verify bundle FILE" in said.out
    succeeds("export", "proof", *asked, "--client", 3, "--out", proof)
    assert {path.name for path in tmp_path.iterdir()} == {"proof", "bundle"}
    nowhere = ("--home", tmp_path)
    assert succeeds("verify", "bundle", bundle, *kept, *nowhere).out.startswith("PASSED: ")
    assert json.loads(proof.read_bytes())["client"] == 3
    gone = tmp_path / "no" / "bundle"
    assert "--out" in refusal("export", "bundle", *asked, "--out", gone)


def test_an_audit_combines_a_nodes_chain_and_a_services_blobs(
    report: dict[str, Any], api: tuple[str, str], node: tuple[object, ...]
) -> None:
    remote = succeeds("audit", *api, *node, "--jobs", 1, "--json").json
    assert remote["outcome"] == "passed"
    assert remote["counts"] == report["counts"]
    assert "name the trusted chain and contract" in refusal("audit", *api)


def test_a_token_is_sent_to_the_service_only(
    home: Path, tmp_path: Path, node: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with serving(Settings(home=home, tokens=(TOKEN,))) as http:
        api = ("--api", str(http.base_url))
        refused = refusal("rounds", "list", *api)
        assert "/v1/chains: 401 A token is needed" in refused
        succeeds("rounds", "list", *api, "--api-token-file", file)
        monkeypatch.setenv("CMFL_API_TOKEN", TOKEN)
        succeeds("clients", "show", 1, *api)
        monkeypatch.setenv("CMFL_API_TOKEN", f"wrong-{TOKEN}")
        said = refusal("verify", "round", 1, *api, *node)
        assert "401" in said
        assert TOKEN not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--api", "ftp://x"], "must be an http or https URL"),
        (["--api", "http://x", "--home", "."], "--home has no effect with --api"),
        (["--api", "http://x", "--rpc-url", "http://y"], "--rpc-url and --api exclude each"),
        (["--api", "http://x", "--api-token-file", "gone"], "gone: No such file"),
    ],
)
def test_what_is_typed_counts_or_is_refused(arguments: list[str], said: str) -> None:
    assert said in refusal("rounds", "list", *arguments)


def test_which_deployment_is_meant_is_asked_for_by_name(api: tuple[str, str]) -> None:
    assert "the service at --api serves run at 0x" in refusal(
        "rounds", "list", *api, "--run", "another"
    )
    assert "name one chain by --chain-id" in refusal("rounds", "list", *api, "--chain-id", 5)
    other = "0x" + "5c" * 20
    assert "404 There is no such deployment" in refusal("rounds", "list", *api, "--address", other)
    assert "404 The round has not opened: round 77" in refusal("rounds", "show", 77, *api)
    assert "--proof and --api" in refusal(
        *("verify", "client", "--round", 1, "--client", 1, "--proof", "x"), *api
    )


@pytest.fixture(scope="module")
def answered(service: httpx.Client) -> Callable[..., dict[str, Any]]:
    root = deployments(service)[0]["links"]["self"]

    def answer(path: str, **query: Any) -> dict[str, Any]:
        told = read(service, f"{root}/{path}", **query)
        assert told.pop("as_of")
        return dict(told)

    return answer


@pytest.fixture(scope="module")
def printed(home: Path, service: httpx.Client) -> Callable[..., dict[str, Any]]:
    """Return what a command prints of the home, which must be what it prints by `--api`."""

    def both(*arguments: object) -> dict[str, Any]:
        own: dict[str, Any] = succeeds(*arguments, "--home", home, "--json").json
        assert succeeds(*arguments, "--api", service.base_url, "--json").json == own
        return own

    return both


def test_a_list_of_rounds(
    printed: Callable[..., dict[str, Any]], answered: Callable[..., dict[str, Any]]
) -> None:
    listed = ("rounds", "list")
    assert printed(*listed) == answered("rounds")
    assert printed(*listed, "--full") == answered("rounds", full="true")
    first = answered("rounds", order="oldest", limit=2)
    assert printed(*listed, "--oldest", "--limit", 2) == first
    onward = {"order": "oldest", "limit": 2, "cursor": first["next_cursor"]}
    following = ("--oldest", "--limit", 2, "--cursor", first["next_cursor"])
    assert printed(*listed, *following) == answered("rounds", **onward)
    asked = answered("rounds", client=1, role="served", status="decided")
    assert printed(*listed, "--client", 1, "--role", "served", "--status", "decided") == asked


@pytest.mark.parametrize("number", range(1, ROUNDS + 1))
def test_a_round(
    printed: Callable[..., dict[str, Any]], answered: Callable[..., dict[str, Any]], number: int
) -> None:
    shown = printed("rounds", "show", number)
    assert shown == answered(f"rounds/{number}", full="true")
    assert printed("rounds", "explain", number) == answered(f"rounds/{number}/explanation")
    for part in ("updates", "committee", "aggregation", "scores", "votes"):
        own = answered(f"rounds/{number}/{part}")
        where = shown["parts"] if part in {"updates", "committee"} else shown["parts"][part]
        assert {name: where[name] for name in own.keys() & where.keys()}.items() <= own.items()


def test_a_digest(home: Path, answered: Callable[..., dict[str, Any]]) -> None:
    number = first_decided(home)
    record = answered(f"rounds/{number}")["record"]["digest"]
    found = succeeds("rounds", "show", record, "--home", home, "--json").json
    assert found == answered(f"digests/{record}")
    assert [one["round"] for one in found["items"]] == [number]


def test_clients(
    printed: Callable[..., dict[str, Any]], answered: Callable[..., dict[str, Any]]
) -> None:
    assert printed("clients", "list", "--limit", 3) == answered("clients", limit=3)
    for client in (0, 13):
        assert printed("clients", "show", client) == answered(f"clients/{client}")
        assert printed("clients", "rounds", client) == answered(f"clients/{client}/rounds")

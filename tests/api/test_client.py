"""The typed client: what the service answers as its own schemas, and every failure named."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic_core import to_json

from api.client import RemoteDeployment, Service, ServiceProblemError
from ledger.audit.proofs.documents import read_proof
from ledger.history.answers_clients import ClientAnswer, DigestAnswer
from ledger.history.answers_parts import AggregationAnswer, CommitteeAnswer, UpdatesAnswer
from ledger.history.answers_rounds import RoundAnswer, SeriesAnswer
from ledger.history.answers_signed import EvidenceAnswer, ScoresAnswer, VotesAnswer
from ledger.history.fields import RoundQuery
from ledger.history.round import RoundStatus
from ledger.protocol.errors import ServiceError
from ledger.protocol.types import Digest
from tests.api.conftest import CLIENTS, ROUNDS


@pytest.fixture(scope="module")
def service(client: httpx.Client) -> Iterator[Service]:
    with Service(str(client.base_url)) as service:
        yield service


@pytest.fixture(scope="module")
def deployment(service: Service, address: str) -> RemoteDeployment:
    return deployed(service, address)


def deployed(service: Service, address: str) -> RemoteDeployment:
    (chain,) = service.chains()["chains"]
    return service.deployment(chain["name"], address.lower())


def test_every_answer_is_the_services_own(
    client: httpx.Client, root: str, service: Service, deployment: RemoteDeployment
) -> None:
    decided = deployment.rounds(RoundQuery(status=RoundStatus.DECIDED))["rounds"][0]["round"]
    one, part = f"{root}/rounds/{decided}", f"rounds/{decided}"
    model = deployment.details()["state"]["model"]
    answers: list[tuple[Any, str]] = [
        (service.status(), "/v1/status"),
        (service.deployments(root.split("/")[3]), root.rpartition("/")[0]),
        (deployment.details(), root),
        (deployment.rounds(), f"{root}/rounds"),
        (deployment.rounds(full=True), f"{root}/rounds?full=true"),
        (deployment.read(RoundAnswer, part), one),
        (deployment.full_round(decided), f"{one}?full=true"),
        (deployment.explanation(decided), f"{one}/explanation"),
        (deployment.read(UpdatesAnswer, f"{part}/updates"), f"{one}/updates"),
        (
            deployment.read(ScoresAnswer, f"{part}/scores", {"include": "vectors"}),
            f"{one}/scores?include=vectors",
        ),
        (deployment.read(VotesAnswer, f"{part}/votes"), f"{one}/votes"),
        (deployment.read(CommitteeAnswer, f"{part}/committee"), f"{one}/committee"),
        (deployment.read(AggregationAnswer, f"{part}/aggregation"), f"{one}/aggregation"),
        (deployment.clients(3), f"{root}/clients?limit=3"),
        (deployment.client(7), f"{root}/clients/7"),
        (deployment.client_rounds(7), f"{root}/clients/7/rounds"),
        (deployment.read(EvidenceAnswer, "evidence"), f"{root}/evidence"),
        (deployment.series(), f"{root}/series"),
        (deployment.digest(Digest(bytes.fromhex(model[2:]))), f"{root}/digests/{model}"),
    ]
    for answer, path in answers:
        assert json.loads(to_json(answer)) == client.get(path).json(), path


def test_proofs_and_bundles_come_as_bytes_to_be_checked(deployment: RemoteDeployment) -> None:
    proof = read_proof(deployment.proof(1, 3, whole=True))
    assert (proof.round, proof.client, proof.is_whole) == (1, 3, True)
    file = io.BytesIO()
    deployment.save_bundle(1, file)
    assert file.getvalue().startswith(b"bundle.json\0")


def test_a_refusal_is_an_error_with_url_status_and_detail(deployment: RemoteDeployment) -> None:
    with pytest.raises(ServiceProblemError) as refused:
        deployment.full_round(77)
    assert refused.value.status == 404
    assert refused.value.type == "urn:cmfl:problem:round-not-found"
    assert str(refused.value).endswith(
        f"/rounds/77: 404 The round has not opened: round 77 has not opened; the newest is {ROUNDS}"
    )
    with pytest.raises(ServiceProblemError, match=f"404 There is no such client: .* {CLIENTS}"):
        deployment.proof(1, 99)
    file = io.BytesIO()
    with pytest.raises(ServiceProblemError, match="404"):
        deployment.save_bundle(77, file)
    assert file.getvalue() == b""


def test_no_foreign_text_gets_into_a_path(service: Service, address: str) -> None:
    for name in ("../..", "1-5c5c5c5c/../x", "1-5C5C5C5C", ""):
        with pytest.raises(ServiceError, match="is not a chain name"):
            service.deployment(name, address)


def test_an_answer_of_another_round_or_client_is_none(
    deployment: RemoteDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = deployment.series()
    by_kind: dict[Any, Any] = {
        RoundAnswer: deployment.full_round(2),
        ClientAnswer: deployment.client(2),
        SeriesAnswer: series | {"status": series["status"][1:]},
        DigestAnswer: deployment.digest(Digest(b"\x5c" * 32)),
    }
    monkeypatch.setattr("api.client.Service.read", lambda _, kind, *__: by_kind[kind])
    with pytest.raises(ServiceError, match="expected a response about round 1, got round 2"):
        deployment.full_round(1)
    with pytest.raises(ServiceError, match="expected a response about client 1, got client 2"):
        deployment.client(1)
    with pytest.raises(ServiceError, match=r"about digest 0x5d.*, got digest 0x5c"):
        deployment.digest(Digest(b"\x5d" * 32))
    with pytest.raises(ServiceError, match="columns of unequal length"):
        deployment.series()
    by_kind[RoundAnswer] = deployment.read(RoundAnswer, "rounds/2") | {"parts": None}
    with pytest.raises(ServiceError, match="a round without parts"):
        deployment.full_round(2)


def test_an_answer_without_its_block_is_none(
    deployment: RemoteDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {name: value for name, value in deployment.series().items() if name != "as_of"}
    monkeypatch.setattr(Service, "fetch", lambda *_: to_json(told))
    with pytest.raises(ServiceError, match="does not name its block"):
        deployment.series()


@pytest.mark.parametrize("url", ["ftp://x", "http://x/?key=1", "http://x/#y", "http://x y", "x"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ServiceError, match="the service's URL"):
        Service(url)


def test_it_needs_no_server_no_database_and_no_torch() -> None:
    heavy = {"fastapi", "starlette", "uvicorn", "torch", "web3", "eth"}
    code = f"import sys, api.client; print(sorted({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert found.stdout == "[]\n"

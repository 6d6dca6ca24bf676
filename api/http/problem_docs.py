"""OpenAPI declarations of the problems that an endpoint may answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from api.http import problems as kinds
from api.schemas.problems import MEDIA_TYPE, FieldError, Problem

if TYPE_CHECKING:
    from api.http.problems import ProblemKind

Declared: TypeAlias = dict[int | str, dict[str, Any]]

ASKED = (kinds.REQUEST_INVALID, kinds.TOKEN_NEEDED, kinds.RATE_EXCEEDED)
"""Problems of any request but one for /health."""

OF_CHAIN = (
    *ASKED,
    kinds.CHAIN_NOT_SERVED,
    kinds.CHAIN_UNREACHABLE,
    kinds.CHAIN_DAMAGED,
    kinds.CHAIN_MOVED,
)
"""Problems of any request that reads a chain."""

OF_DEPLOYMENTS = (*OF_CHAIN, kinds.CHAIN_NOT_FOUND)
OF_DEPLOYMENT = (*OF_DEPLOYMENTS, kinds.DEPLOYMENT_NOT_FOUND)
OF_PAGE = (*OF_DEPLOYMENT, kinds.CURSOR_INVALID)
OF_ROUND = (*OF_DEPLOYMENT, kinds.ROUND_NOT_FOUND)
OF_CLIENT = (*OF_DEPLOYMENT, kinds.CLIENT_NOT_FOUND)

_ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_NAME = "20260101T000000000Z-5c5c5c5c"
DETAILS: dict[ProblemKind, str] = {
    kinds.REQUEST_INVALID: "query limit: Input should be less than or equal to 100",
    kinds.CHAIN_NOT_FOUND: "chain 5-1f1f1f1f is not served; 131277322940537-5c5c5c5c is",
    kinds.CURSOR_INVALID: "it is altered, or of another query or version",
    kinds.DEPLOYMENT_NOT_FOUND: f"no deployment at {_ADDRESS} is served",
    kinds.ROUND_NOT_FOUND: "round 77 has not opened; the newest is 5",
    kinds.CLIENT_NOT_FOUND: "client 99 is not registered; there are 14",
    kinds.INDEX_NEEDED: "1000 rounds are too many to look through, at most 256 are; cmfl index "
    "build makes one",
    kinds.VOTES_NOT_FOUND: "the transaction is not to the contract: an account with code of its "
    "own called it",
    kinds.FORMAT_NOT_SERVED: "this service writes no Parquet: it was installed without the extra "
    "`data`",
    kinds.BLOB_NOT_FOUND: f"{'5c' * 32} is not here",
    kinds.BLOB_DAMAGED: f"blob {'5c' * 32} is damaged: its bytes have another sha256",
    kinds.FEDERATION_NOT_WATCHED: "this service reads no mailbox",
    kinds.STREAMS_EXHAUSTED: "64 streams are open already",
    kinds.BUSY: "another bundle is being made",
    kinds.VERIFICATION_NOT_FOUND: f"there is no verification {_NAME} of it",
    kinds.REPORT_NOT_FOUND: f"verification {_NAME} has no report",
    kinds.VERIFICATION_REFUSED: "no token is set, so only who sits at this machine may begin "
    "verifications",
    kinds.VERIFICATION_RUNNING: f"verification {_NAME} of this deployment is not over",
    kinds.VERIFICATION_OVER: f"verification {_NAME} is over",
    kinds.EARLIER_REPORT_REFUSED: "the report is not of this deployment",
    kinds.QUEUE_FULL: "4 verifications wait already",
    kinds.REPORTS_UNAVAILABLE: "reports cannot be kept: No space left on device",
    kinds.BODY_TOO_LARGE: "a body has at most 65536 bytes",
    kinds.TOKEN_NEEDED: "show a bearer token that this service knows",
    kinds.RATE_EXCEEDED: "at most 60 a minute",
    kinds.CHAIN_UNREACHABLE: "chain.sqlite cannot be opened: No such file or directory",
    kinds.CHAIN_NOT_SERVED: "the logs hold the registration of 3 clients, not of 14: they are not "
    "whole",
    kinds.CHAIN_DAMAGED: "chain.sqlite: block 17: its hash is not that of its header",
    kinds.CHAIN_MOVED: "block 17 is another one now",
}
"""An example of the detail of each kind: the value and the rule."""


def declared(*answers: ProblemKind, tagged: bool = True) -> Declared:
    """Return OpenAPI's declaration of the answers of an endpoint without success.

    Args:
        answers: the problems.
        tagged: whether it has an entity tag, and so may answer with 304.
    """
    declaration: Declared = {}
    if tagged:
        declaration[304] = {"description": "what If-None-Match names is still right"}
    for status in sorted({kind.status for kind in answers}):
        own = [kind for kind in dict.fromkeys(answers) if kind.status == status]
        examples = {kind.name: {"$ref": f"#/components/examples/{kind.name}"} for kind in own}
        declaration[status] = {
            "description": "; ".join(kind.title for kind in own),
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": examples,
                }
            },
        }
    return declaration


def problem_examples() -> dict[str, Any]:
    """Return an example of each kind of problem, by the kind's name."""
    return {kind.name: {"summary": kind.title, "value": _example(kind)} for kind in DETAILS}


def _example(kind: ProblemKind) -> dict[str, Any]:
    """Return a problem of a kind."""
    detail = DETAILS[kind]
    errors = None
    if kind is kinds.REQUEST_INVALID:
        place, _, rule = detail.partition(": ")
        where, _, name = place.partition(" ")
        errors = (FieldError(place=where, name=name, detail=rule),)
    problem = Problem(
        type=f"urn:cmfl:problem:{kind.name}",
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance="/v1/chains",
        errors=errors,
    )
    return problem.model_dump(mode="json", exclude_none=True)

"""Problems of uploads: a client acts on the code, a person reads the sentence."""

from __future__ import annotations

from api.http.problems import ProblemKind
from ledger.storage import http

LENGTH_NEEDED = ProblemKind("length-needed", 411, "A body needs a Content-Length")
UPLOAD_UNSIGNED = ProblemKind("upload-unsigned", 401, "An upload needs a client's signature")
UPLOAD_ELSEWHERE = ProblemKind(http.UPLOAD_ELSEWHERE, 401, "The upload is signed for another store")
UPLOAD_REFUSED = ProblemKind("upload-refused", 403, "The client may not write here")
ROUND_NOT_TAKEN = ProblemKind(
    "round-not-taken", 409, "The round is neither open nor next to the open one"
)
QUOTA_EXCEEDED = ProblemKind("quota-exceeded", 429, "The client has used up its quota of the round")
BODY_WRONG = ProblemKind("body-wrong", 422, "The bytes are not those that were announced")
ENVELOPE_INVALID = ProblemKind("envelope-invalid", 422, "The bytes are no envelope of this board")
TOO_SLOW = ProblemKind("too-slow", 408, "The body did not arrive in time")
DISK_FULL = ProblemKind("disk-full", 507, "The store's disk is full")
DISK_FAILS = ProblemKind("disk-fails", 503, "The store's folder cannot be used")
RANGE_UNSATISFIABLE = ProblemKind("range-unsatisfiable", 416, "The blob has no such range")
BOARD_NOT_FOUND = ProblemKind("board-not-found", 404, "There is no such board")

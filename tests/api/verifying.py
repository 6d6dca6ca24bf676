"""What processes of verifications do in tests; light, because each of them imports it anew."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from api.verifications.audit_worker import Message, exit_codes, limit_resources
from ledger.io.processes import follow_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from api.verifications.audit_worker import AuditTask

PROCESS_FILE = "process"
SUMMARY = {
    "verdict": {
        "outcome": "passed",
        "rounds": 1,
        "whole": True,
        "block": 1,
        "remarks": 0,
        "block_hash": None,
        "head": None,
        "final_head": None,
        "named": [],
    },
    "progress": {"done": 1, "total": 1, "steps": []},
}


def sleep(task: AuditTask, _out: Connection) -> None:
    """Say who one is, and go on until somebody ends it."""
    follow_parent()
    (task.blob_folder / PROCESS_FILE).write_text(str(os.getpid()))
    time.sleep(600)


def go_on(_task: AuditTask, _out: Connection) -> None:
    """Go on until somebody ends it."""
    follow_parent()
    time.sleep(600)


def take_memory(task: AuditTask, _out: Connection) -> None:
    """Ask for more memory than there may be."""
    limit_resources(task.memory_bytes, task.cpu_seconds)
    with exit_codes():
        bytearray(2 * task.memory_bytes)


def take_time(task: AuditTask, _out: Connection) -> None:
    """Never end."""
    limit_resources(task.memory_bytes, task.cpu_seconds)
    while True:
        pass


def fail(_task: AuditTask, _out: Connection) -> None:
    """End by a fault that nobody has thought of."""
    os.close(2)  # its traceback belongs in a service's log
    raise RuntimeError("a fault")


def half_a_report(_task: AuditTask, out: Connection) -> None:
    """End after what it has come to, and before the report."""
    out.send_bytes(Message.SUMMARY + json.dumps(SUMMARY).encode())

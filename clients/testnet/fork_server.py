"""A process that has imported everything once, and forks those that are asked for.

To import torch takes seconds of one core, and a federation that is killed and restarted in every
round would spend them over and over. What is forked is a process of its own all the same: own
memory, own keys, own process group, and whoever asks for it can kill it outright.

It imports while nobody asks for anything, so that what needs none of it need not wait.

One thread only, which holds whatever it forks: a child that lived on after its server would hold
ports and locks, so that the kernel ends it with the server (Linux), and the server ends with
whoever holds the other end of its socket.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.testnet.messages import Command, Wish, read_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_FAULT = 70
NOT_FOUND = 127
"""The exit code of a program that is not there, as shells have it."""


class ForkServer:
    """Forks processes, and knows which of them are its own and alive."""

    def __init__(self, entry: Callable[[], object], modules: Iterable[str] = ()) -> None:
        """Begin without any.

        Args:
            entry: what a forked process runs, with its arguments in `sys.argv`.
            modules: that are imported once.
        """
        self._entry = entry
        self._modules = deque(modules)
        self._alive: set[int] = set()
        self._codes: dict[int, int] = {}

    def prepare(self) -> bool:
        """Import one module more, and say whether any is left.

        One that is not installed is left to whoever needs it.
        """
        if self._modules:
            with suppress(ImportError):
                importlib.import_module(self._modules.popleft())
            if not self._modules:
                # What is there by now is shared by all, and no collection shall write to its pages.
                gc.freeze()
        return bool(self._modules)

    def answer(self, message: dict[str, Any], held: socket.socket) -> dict[str, Any]:
        """Return the answer to one message.

        Args:
            message: a wish.
            held: the socket, which a child lets go of.
        """
        self._reap()
        match Wish(message["wish"]):
            case Wish.START:
                command = Command.of(message["command"])
                while not command.is_early and self.prepare():
                    pass
                return {"pid": self._start(command, held)}
            case Wish.SIGNAL:
                # A number that has been reaped may be another's process by now.
                is_alive = message["pid"] in self._alive
                if is_alive:
                    os.kill(message["pid"], message["signal"])
                return {"sent": is_alive}
            case Wish.CODE:
                return {"code": self._codes.get(message["pid"])}

    def end_all(self) -> None:
        """Kill every process that was forked here and is still alive."""
        self._reap()
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        for pid in self._alive:
            os.waitpid(pid, 0)

    def _reap(self) -> None:
        while self._alive:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._alive.discard(pid)
            self._codes[pid] = os.waitstatus_to_exitcode(status)

    def _start(self, command: Command, held: socket.socket) -> int:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            held.close()
            _become(command, server, self._entry)
        self._alive.add(pid)
        self._codes.pop(pid, None)  # of whoever had this number before
        return pid


def follow(parent: int) -> None:
    """Let this process be killed when its parent ends, however that ends.

    Args:
        parent: the process that is to be followed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended meanwhile
        os._exit(_FAULT)


def _become(command: Command, server: int, entry: Callable[[], object]) -> NoReturn:
    """Turn a forked child into the process that is asked for; nothing of the server's goes on."""
    code = _FAULT
    try:
        # A group of its own: Ctrl-C at the terminal is the supervisor's alone.
        os.setsid()
        follow(server)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _redirect(command)
        os.chdir(command.folder)
        os.environ.update(command.environment)
        if command.memory_bytes is not None:
            limit = (command.memory_bytes, command.memory_bytes)
            resource.setrlimit(resource.RLIMIT_DATA, limit)
        code = _run(command, entry)
    except BaseException:  # noqa: BLE001 - whatever it is ends this process, and is in its log
        sys.excepthook(*sys.exc_info())
    finally:
        # Not `sys.exit`, which would unwind into the server's own frames.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(command: Command) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for path, mode, target in (
        (os.devnull, os.O_RDONLY, 0),
        (command.output, flags, 1),
        (command.log, flags, 2),
    ):
        descriptor = os.open(path, mode, 0o600)
        os.dup2(descriptor, target)
        os.close(descriptor)


def _run(command: Command, entry: Callable[[], object]) -> int:
    if command.is_program:
        try:
            os.execv(command.arguments[0], command.arguments)  # noqa: S606 - no shell is wanted
        except OSError as error:
            sys.stderr.write(f"{command.arguments[0]}: {error.strerror}\n")
            return NOT_FOUND
    sys.argv = list(command.arguments)
    try:
        entry()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def serve(held: socket.socket, server: ForkServer) -> None:
    """Answer until the other end is closed, then end every process that was forked here.

    Args:
        held: the connection to whoever asks, one message at a time.
        server: that answers.
    """
    try:
        with held.makefile("rb") as stream:
            while True:
                while not select.select([held], [], [], 0)[0] and server.prepare():
                    pass
                message = read_message(stream)
                if message is None:
                    return
                answer = {**server.answer(message, held), "number": message["number"]}
                held.sendall(json.dumps(answer).encode() + b"\n")
    finally:
        server.end_all()


def main(arguments: list[str]) -> None:
    """Serve the socket that was inherited.

    Args:
        arguments: the parent's process id, the socket's descriptor, the entry point as
            `module:function`, and modules to import beforehand.
    """
    parent, descriptor, entry, *modules = arguments
    follow(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    place, _, function = entry.partition(":")
    importlib.import_module(place)
    with socket.socket(fileno=int(descriptor)) as held:
        os.set_inheritable(held.fileno(), False)
        serve(held, ForkServer(getattr(sys.modules[place], function), modules))


if __name__ == "__main__":
    sys.path[:0] = [str(Path.cwd())]
    main(sys.argv[1:])

"""The process `cmfl` with a signal that comes at one moment each time, or lacking something.

The entries are called in place of `cmfl.commands.main.run`, in a fork or by a Python of its own.
"""

from __future__ import annotations

import os
import resource
import signal
import sys


def at_an_import() -> None:
    """Run the command line, interrupted as it imports the module of its first argument."""
    waiting = [sys.argv.pop(1)]

    def interrupt(event: str, arguments: tuple[object, ...]) -> None:
        if event == "import" and waiting == [arguments[0]]:
            waiting.clear()
            os.kill(os.getpid(), signal.SIGINT)

    sys.addaudithook(interrupt)
    from cmfl.commands.main import run

    run()


def at_a_step() -> None:
    """Run the command line, ended by the signal of its first argument as it opens a history."""
    number = int(sys.argv.pop(1))
    from cmfl.commands import rounds
    from cmfl.commands.main import run

    def interrupt(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)

    vars(rounds)["open_history"] = interrupt
    run()


def with_hangup_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    at_a_step()


def with_a_child() -> None:
    """Run the command line, which forks a child that TERM ends, as it opens a history."""
    from cmfl.commands import rounds
    from cmfl.commands.main import run

    def fork(*_: object, **__: object) -> None:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        raise SystemExit(os.waitstatus_to_exitcode(status) + 100)

    vars(rounds)["open_history"] = fork
    run()


def without_output() -> None:
    """Run the command line as Python begins it where standard output is closed."""
    from cmfl.commands.main import run

    sys.stdout = sys.__stdout__ = None  # type: ignore[misc]
    os.close(1)
    try:
        run()
    except SystemExit as end:
        os._exit(int(end.code or 0))


def with_few_descriptors() -> None:
    """Run the command line where no more files may be open than the first argument says."""
    most = int(sys.argv.pop(1))
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # what a server leaves open
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from cmfl.commands.main import run

    run()

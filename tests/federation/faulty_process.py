"""The process `cmfl` of a disturbed federation, whose worker can be made to misbehave.

An owner's `cmfl` starts in `cmfl.commands.main`, which reads no such variable.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from cmfl.commands import main


def run() -> NoReturn:
    """Run the command line with the faults of the environment, and end the process."""
    from cmfl.commands import WRONG
    from cmfl.commands.console import complain
    from ledger.protocol.errors import ConfigurationError
    from tests.federation.worker_faults import FAULT_VARIABLE, faults_of

    value = os.environ.get(FAULT_VARIABLE)
    if not value:
        main.run()
    try:
        faults = faults_of(value)
    except ConfigurationError as error:
        complain(str(error))
        sys.exit(WRONG)
    complain(f"{FAULT_VARIABLE} is set: THIS WORKER MISBEHAVES, for tests of what others do")
    main.run(faults)

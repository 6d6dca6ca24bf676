"""Files of reports, checked before the work whose result they take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cmfl.commands.home_files import refuse_home_file
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def require_writable(path: Path) -> None:
    """Refuse a report's file that cannot be written, before the work has taken its time.

    Raises:
        ConfigurationError: names the file and what is wrong with it.
    """
    refuse_home_file(path, "--report")
    if path.is_dir():
        raise ConfigurationError(f"--report {path}: is a folder, must be a file")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--report {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigurationError(f"--report {path}: may not be written")

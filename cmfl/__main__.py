"""`python -m cmfl` is the command `cmfl`."""

from cmfl.commands.main import run

run()

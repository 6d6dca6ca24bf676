"""The face of the CMFL ledger: the command line is in `cmfl.commands`."""

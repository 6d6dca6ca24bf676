"""Reading the record back: the history of rounds, and the audit that trusts nobody."""

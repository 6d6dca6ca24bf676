"""Mailboxes that several processes and machines share; `location` says which is where."""

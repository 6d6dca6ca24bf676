"""Clients that do not keep to the protocol: attacks on updates, faulty members and trainers."""

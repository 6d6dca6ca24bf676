"""Clients that do not follow the protocol: attackers, faulty members and trainers."""

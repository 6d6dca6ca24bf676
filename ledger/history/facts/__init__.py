"""Rounds and clients as plain data: what REST answers and `cmfl ... --json` prints.

Bytes are 0x-hex, 256-bit integers and bit patterns decimal strings, addresses EIP-55; places, ranks
and views count from 0. Codes carry their stable names; there are no sentences but in explanations.
"""

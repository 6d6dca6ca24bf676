"""Functions that turn rounds, clients and deployments into the responses of `history/responses`.

Bytes are 0x-hex, 256-bit integers and bit patterns decimal strings, addresses EIP-55; positions,
ranks and views count from 0. Codes carry their stable names; only explanations hold sentences.
"""

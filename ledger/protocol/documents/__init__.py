"""Documents of protocol version 3: canonical msgpack whose sha256 is signed or on the chain.

A decoder takes nothing on trust but also judges nothing: keys, types, ranges and orders are
checked here, what the fields claim in `judgement.py`.
"""

# pragma version 0.4.3
# @title A contract that passes every call on, as a relay service or a wallet's code would

TARGET: immutable(address)


@deploy
def __init__(target: address):
    TARGET = target


@external
@payable
def __default__():
    raw_call(TARGET, msg.data)

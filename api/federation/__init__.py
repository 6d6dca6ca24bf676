"""The open round of a live federation, as chain and mailbox show it to whoever looks on.

Everybody's part in it is told by what carries its signature. What workers say of themselves in
their status files is not read: anybody could have written that.
"""

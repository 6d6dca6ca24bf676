"""The open round of a live federation, as chain and mailbox show it to an onlooker.

Only signed data counts. Workers' own status files are not read: anyone could have written them.
"""

"""A typed client of the service; an audit or a proof checks whether its answers are true.

It needs httpx and pydantic, and no server. It validates the service's responses by their types in
`ledger/history/responses`: one definition, used on both sides. Only the shape of an answer is
trusted: answers are bounded in size and in time, links are made here, not followed, and redirects
lead nowhere.
"""

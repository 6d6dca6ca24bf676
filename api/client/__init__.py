"""The service from afar: what it answers, typed; whether it is true, an audit or a proof says.

It needs httpx and pydantic, and no server. What comes back are the very schemas that the service
answers with (`api/schemas`), which import neither: one definition, checked on both sides. Nothing
that a service says is trusted for more than its shape: answers are bounded in size and in time,
links are not followed but made here, and redirects go nowhere.
"""

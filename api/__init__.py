"""The REST service: reads the chain while a run writes it, and never writes.

Start reading at `app.py`. `routes/` holds the endpoints; `ledger/history/serialise` makes their
answers; `request_view.py` fixes the block that an answer is read at; `http/caching.py` decides what
may be cached.
"""

__distribution__ = "cmfl-ledger"
"""By which `import cmfl` knows the package as its own."""

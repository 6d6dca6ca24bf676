"""The REST service: reads the chain while a run writes it, and never writes.

Start reading at `app.py`. `routes/` holds the endpoints; `ledger/history/answers*.py` makes their
answers; `http/answers.py` fixes the block that an answer is read at, and what may be cached.
"""

__distribution__ = "cmfl-ledger"
"""By which `import cmfl` knows the package as its own."""

"""The REST service: reads the chain while a run writes it, and never writes.

Start reading at `app.py`; `routes/` says who answers, `answers/` of what, `schemas/` in which
words; `reading.py` says what an answer is read as of, `http/caching.py` what may be kept,
`deployments.py` what is served.
"""

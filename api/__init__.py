"""The REST service: reads the chain while a run writes it, and never writes.

Start reading at `app.py`; `reading.py` says what an answer is read as of, `caching.py` what may be
kept, `deployments.py` what is served.
"""

"""The ten steps of an audit: each has a number, a title and `check`, which says what it finds.

A step reads observations and yields contradictions, what it could not check, findings and counts;
it writes nowhere. `order.py` lists the steps, `belonging.py` says what belongs to which.
"""

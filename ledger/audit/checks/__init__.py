"""The ten checks of an audit, one file each: codes, sentences, and the function that judges.

A check reads observations and yields contradictions, missing inputs, findings and counts; it writes
nowhere. `all_checks.py` lists the checks and says which of them fails for what the replay finds.
"""

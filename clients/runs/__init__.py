"""Runs in a home: prepared, opened, measured, taken up again.

What a run starts sends no telemetry, unless these variables say otherwise. Flower and Ray read them
when they are imported.
"""

import os

for _name, _value in (("FLWR_TELEMETRY_ENABLED", "0"), ("RAY_USAGE_STATS_ENABLED", "0")):
    os.environ.setdefault(_name, _value)

"""Runs in a home: prepared, opened, measured, resumed.

Programs that a run starts send no telemetry, unless these variables allow it. Flower and Ray read
them when they are imported.
"""

import os

for _name, _value in (("FLWR_TELEMETRY_ENABLED", "0"), ("RAY_USAGE_STATS_ENABLED", "0")):
    os.environ.setdefault(_name, _value)

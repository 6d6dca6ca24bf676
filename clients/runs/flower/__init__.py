"""Training by the SuperNodes of Flower: messages, the engine, and what answers at a node.

Only `grid` imports Flower, which has an environment of its own. What a run starts sends no
telemetry, unless these variables say otherwise.
"""

import os

for _name, _value in (("FLWR_TELEMETRY_ENABLED", "0"), ("RAY_USAGE_STATS_ENABLED", "0")):
    os.environ.setdefault(_name, _value)

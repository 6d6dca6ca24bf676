"""How a server makes one update of many: the aggregators, one file each."""

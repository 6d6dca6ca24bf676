"""An engine of worker processes on one machine, which share memory with their parent."""

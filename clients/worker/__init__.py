"""Workers: one owner's clients as a process, driven by a shared chain and by time."""

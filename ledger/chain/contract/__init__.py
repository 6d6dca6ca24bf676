"""Our contract through any chain: ABI, calls, events, reverts, deployment, what it keeps."""

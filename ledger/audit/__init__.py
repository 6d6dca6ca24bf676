"""The audit: a whole run recomputed from chain and blobs, with trust in no participant."""

"""The published blobs of a run, as an auditor reads them, round after round."""

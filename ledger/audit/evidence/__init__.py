"""What was published of a run: its blobs as an auditor reads them, round after round."""

"""Workers whose blobs and mail an untrusted carrier brings, one exchange of messages at a time."""

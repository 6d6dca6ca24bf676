"""The heads of a run as a transparency log, and the witnesses that cosign it.

Pure modules, bytes in and values out: Merkle trees (RFC 6962), signed notes, checkpoints,
cosignatures, tiles and trust policies (C2SP), the entries of a run, and a witness's answer to one
request. Folders and HTTP are in `network`.
"""

"""Where the chain, the blobs, the files and the service of a run are, and how they are opened.

Shared by the Python face and the command line: no command-line library is imported here.
"""

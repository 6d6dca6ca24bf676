"""The ServerApp: it carries blobs and mail between the owners, and has no key."""

from cmfl.flower import carrier_app

app = carrier_app()

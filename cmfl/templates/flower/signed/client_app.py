"""The ClientApp: it exchanges the blobs and the mail of its owner's worker."""

from cmfl.flower import owner_app

app = owner_app()

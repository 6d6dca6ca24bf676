"""Where a mailbox is, as an operator writes it: a folder, a server, a bucket, or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.storage.bucket import RemoteFiles
from ledger.storage.locations import LocationKind, parse_locations
from ledger.storage.mailboxes.folder import FolderMailbox
from ledger.storage.mailboxes.remote import RemoteMailbox
from ledger.storage.mailboxes.served import ServedMailbox
from ledger.storage.mailboxes.several import SeveralMailboxes
from ledger.storage.opening import folder_at

if TYPE_CHECKING:
    from ledger.storage.locations import Location
    from ledger.storage.mailbox import Mailbox
    from ledger.storage.uploads import UploadSigner


def mailbox_at(place: str, upload: UploadSigner | None = None) -> Mailbox:
    """Return the mailbox at a place, or at several, separated by commas.

    Args:
        place: a folder, http or https of `cmfl blobs serve`, or any URL that fsspec knows; it may
            be the place of the blobs.
        upload: signs what a server over HTTP is asked to keep; None to read only.

    Raises:
        BlobError: there is no such place.
    """
    mailboxes = mailboxes_at(place, upload)
    return mailboxes[0] if len(mailboxes) == 1 else SeveralMailboxes(mailboxes)


def mailboxes_at(place: str, upload: UploadSigner | None = None) -> list[Mailbox]:
    """Return the mailbox of each place, for who wants to know which of them answers.

    Args:
        place: one or several, as for `mailbox_at`.
        upload: as there.

    Raises:
        BlobError: there is no such place.
    """
    return [_mailbox(one, upload) for one in parse_locations("mailbox", place)]


def _mailbox(place: Location, upload: UploadSigner | None) -> Mailbox:
    match place.kind:
        case LocationKind.SERVER:
            return ServedMailbox(place.text, upload)
        case LocationKind.REMOTE:
            return RemoteMailbox(RemoteFiles(place))
        case LocationKind.FOLDER:
            return FolderMailbox(folder_at("mailbox", place))

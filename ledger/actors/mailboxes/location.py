"""Where a mailbox is, as an operator writes it: a folder, a server, a bucket, or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.actors.mailboxes.folder import FolderMailbox
from ledger.actors.mailboxes.remote import RemoteMailbox
from ledger.actors.mailboxes.served import ServedMailbox
from ledger.actors.mailboxes.several import SeveralMailboxes
from ledger.blobs.location import folder_at
from ledger.blobs.places import PlaceKind, places_of
from ledger.blobs.remote import RemoteFiles

if TYPE_CHECKING:
    from ledger.actors.mailbox import Mailbox
    from ledger.blobs.places import Place
    from ledger.blobs.uploads import Uploads


def mailbox_at(place: str, upload: Uploads | None = None) -> Mailbox:
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


def mailboxes_at(place: str, upload: Uploads | None = None) -> list[Mailbox]:
    """Return the mailbox of each place, for who wants to know which of them answers.

    Args:
        place: one or several, as for `mailbox_at`.
        upload: as there.

    Raises:
        BlobError: there is no such place.
    """
    return [_mailbox(one, upload) for one in places_of("mailbox", place)]


def _mailbox(place: Place, upload: Uploads | None) -> Mailbox:
    match place.kind:
        case PlaceKind.SERVER:
            return ServedMailbox(place.text, upload)
        case PlaceKind.REMOTE:
            return RemoteMailbox(RemoteFiles(place))
        case PlaceKind.FOLDER:
            return FolderMailbox(folder_at("mailbox", place))

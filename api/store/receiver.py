"""What somebody sends: who signed for it, bounded in size and time before and while it comes."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.requests import ClientDisconnect

from api.http.problems import BODY_TOO_LARGE, ProblemError
from api.store.incoming import IncomingFile
from api.store.problems import (
    BODY_WRONG,
    DISK_FAILS,
    DISK_FULL,
    LENGTH_NEEDED,
    QUOTA_EXCEEDED,
    ROUND_NOT_TAKEN,
    TOO_SLOW,
    UPLOAD_ELSEWHERE,
    UPLOAD_REFUSED,
    UPLOAD_UNSIGNED,
)
from api.store.slots import Slots
from ledger.protocol.errors import EncodingError, SignatureError
from ledger.protocol.signing import is_signed_by
from ledger.storage.uploads import parse_authorization

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request

    from api.store.charges import ChargeKind, Charges
    from api.store.permissions import PermissionCache, WritePermissions
    from api.store.settings import StoreSettings
    from ledger.protocol.types import Digest, Upload

PIECE = 1 << 20

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class Receiver:
    """Takes what registered clients send.

    Attributes:
        settings: how much, and how fast.
        standings: who may write.
        charges: what each has written.
        slots: what is coming.
    """

    settings: StoreSettings
    standings: PermissionCache
    charges: Charges
    slots: Slots = field(default_factory=Slots, repr=False)

    def signed(
        self, request: Request, digest: Digest, most: int
    ) -> tuple[Upload, WritePermissions]:
        """Return the upload that a registered client has signed; nothing of the body is read.

        Args:
            request: with its header.
            digest: that its path names.
            most: how large the body may be.

        Raises:
            ProblemError: it says no length, one too large, or nobody who may write signed for it.
            ChainError: who may write cannot be told.
        """
        upload, signature = _shown(request, digest, _length(request, most))
        self._require_here(request, upload)
        standing = self.standings.now()
        if upload.client >= len(standing.registry):
            said = f"client {upload.client} is none of the {len(standing.registry)} registered ones"
            raise ProblemError(UPLOAD_REFUSED, said)
        client = standing.registry[upload.client]
        if not is_signed_by(client.address, self.standings.domain, upload, signature):
            said = (
                f"the signature is not client {upload.client}'s for this contract, this place and "
                f"these bytes"
            )
            raise ProblemError(UPLOAD_REFUSED, said)
        require_round(standing, upload.round)
        if client.is_banned_in(max(standing.round, upload.round)):
            said = f"client {upload.client} was banned in round {client.banned_in}"
            raise ProblemError(UPLOAD_REFUSED, said)
        return upload, standing

    def charge(self, upload: Upload, what: ChargeKind, most: tuple[int, int]) -> None:
        """Charge a client with what it is about to send.

        Args:
            upload: whose, and how much.
            what: of which quota.
            most: how many, and how many bytes.

        Raises:
            ProblemError: its quota does not allow that.
            OSError: the charge cannot be kept.
        """
        if not self.charges.charge(upload, what, most):
            said = (
                f"client {upload.client} may put {most[0]} of them and {most[1]} bytes in round "
                f"{upload.round}; {upload.size} more are too many"
            )
            raise ProblemError(QUOTA_EXCEEDED, said)

    async def keep(self, request: Request, upload: Upload, target: Path) -> None:
        """Write a request's body under its name, durably, if it is what was announced.

        Args:
            request: whose body it is.
            upload: digest and size that it must have.
            target: its name.

        Raises:
            ProblemError: it is something else, does not come, or comes too slowly.
            OSError: it cannot be written; nothing is left.
        """
        file: IncomingFile | None = None

        def write(piece: bytes) -> None:
            # Made with the first bytes: a header that is shown and followed by none makes no file.
            nonlocal file
            if file is None:
                file = IncomingFile(self.settings.folder, upload.digest, upload.size)
            file.write(piece)

        try:
            await self._come(request, upload, write)
            assert file is not None, "even an empty body is written"
            await to_thread.run_sync(file.finish, target)
        except EncodingError as error:
            raise ProblemError(BODY_WRONG, str(error)) from error
        finally:
            if file is not None:
                await to_thread.run_sync(file.discard)

    async def read(self, request: Request, upload: Upload) -> bytes:
        """Return a request's body, which is small.

        Args:
            request: whose body it is.
            upload: size that it must have.

        Raises:
            ProblemError: it does not come, or comes too slowly.
        """
        body = bytearray()
        await self._come(request, upload, body.extend)
        return bytes(body)

    async def pass_over(self, request: Request, upload: Upload) -> None:
        """Read what is not needed, so that whoever sends it hears the answer.

        Args:
            request: whose body it is.
            upload: size that it is said to have.

        Raises:
            ProblemError: it does not come, or comes too slowly.
        """
        await self._come(request, upload, lambda _: None)

    async def _come(
        self, request: Request, upload: Upload, take: Callable[[bytes], object]
    ) -> None:
        """Pass a body on in pieces, on a thread of its own each.

        Raises:
            ProblemError: it does not come, or comes too slowly.
        """
        buffer, came, size = bytearray(), 0, upload.size
        seconds = self.settings.seconds_for(size)
        try:
            async with self.slots.held(upload, seconds) as transfer:
                async for part in request.stream():
                    is_first = came == 0
                    came += len(part)
                    if came > size:
                        raise ProblemError(BODY_WRONG, f"there are more than {size} bytes")
                    if part:
                        self.slots.count(transfer, len(part))
                    buffer += part
                    if is_first or len(buffer) >= PIECE:
                        await to_thread.run_sync(take, bytes(buffer))
                        buffer.clear()
                await to_thread.run_sync(take, bytes(buffer))
        except TimeoutError:
            said = (
                f"{came} of {size} bytes came in the {seconds:.0f} s that they may take, or so "
                f"slowly that what else came for client {upload.client} has taken their slot"
            )
            raise ProblemError(TOO_SLOW, said) from None
        except ClientDisconnect:
            raise ProblemError(BODY_WRONG, f"only {came} of {size} bytes came") from None

    def _require_here(self, request: Request, upload: Upload) -> None:
        """Refuse what is signed for another place, whose host would be showing it here.

        Compared with what the store's owner says, and not with what the request says of its host:
        that is the sender's to choose.

        Raises:
            ProblemError: it is.
        """
        urls, path = self.settings.public_urls, request.scope["path"]
        if upload.url not in {f"{url}{path}" for url in urls}:
            here = " or ".join(urls) if urls else "read only"
            raise ProblemError(
                UPLOAD_ELSEWHERE, f"this store is {here}; the upload is signed for {upload.url}"
            )


def require_round(standing: WritePermissions, round_number: int) -> None:
    """Accept a round that is open, or next to the open one.

    Args:
        standing: where the run stands.
        round_number: t.

    Raises:
        ProblemError: it is another one.
    """
    if not standing.takes(round_number):
        said = f"round {round_number} is not taken while round {standing.round} is the open one"
        raise ProblemError(ROUND_NOT_TAKEN, said)


def disk_problem(error: OSError) -> ProblemError:
    """Return what is said of a folder that cannot be used; never its path.

    Args:
        error: the system's.
    """
    if error.errno in _FULL:
        return ProblemError(DISK_FULL, "the store's disk is full; nothing was kept")
    return ProblemError(DISK_FAILS, "the store's disk fails; its log tells more")


def _length(request: Request, most: int) -> int:
    said = request.headers.get("content-length", "")
    if "transfer-encoding" in request.headers or not (said.isascii() and said.isdigit()):
        raise ProblemError(LENGTH_NEEDED, "a body without Content-Length is not read")
    if int(said[:20]) > most:
        raise ProblemError(BODY_TOO_LARGE, f"a body of {said[:20]} bytes is over the {most} taken")
    return int(said)


def _shown(request: Request, digest: Digest, size: int) -> tuple[Upload, bytes]:
    try:
        return parse_authorization(request.headers.get("authorization", ""), digest, size)
    except SignatureError as error:
        raise ProblemError(UPLOAD_UNSIGNED, str(error)) from error

# SPDX-License-Identifier: Apache-2.0
"""The form of a backup: what a store held at one revision, as a stream that shows whether it is whole.

    text            "handfast backup" and a line feed
    frames          one header, perhaps keys, blocks of records, one trailer; each is
        octet       H, K, B or T
        4 octets    the length of what follows (big-endian, as all numbers here)
        payload     header, keys and trailer: a JSON object; block: records
        32 octets   SHA-256 over the digest of the frame before (of the text, for the first) and all of this frame
    records         4 octets length of the key, 4 of the value, 8 the revision, 8 the one that created it; key; value

The digest of the trailer depends on every octet before it: it is the checksum of the whole. What is read is checked:

1. The text at the beginning, and a format that this version knows.
2. A frame is one of the four, of a length that is allowed, and all of it is there.
3. Its digest, before anything in it is used.
4. Records fill their block; keys rise, and no revision is beyond the header's.
5. The trailer comes last, counts what was read, and nothing follows.

What fails is named with the offset of its frame. A checksum is no signature: whoever can write the file can make another one.
Values stay as the store has them, sealed ones sealed. It opens no file and no store.

| who             | holding                | tries                                 | check   | shown by (test_backup_file.py)                    |
| --------------- | ---------------------- | ------------------------------------- | ------- | ------------------------------------------------- |
| a failing disk  | the file               | changes, loses or repeats octets      | 2, 3, 5 | test_every_changed_octet_is_noticed               |
| a broken pipe   | the stream             | ends it early, also between blocks    | 2, 5    | test_every_shortened_file_is_refused              |
| whoever makes one | a file of its own    | makes the reader take all memory      | 2       | test_a_length_that_is_not_allowed_is_not_waited_for |
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from handfast import errors
from handfast.store import protocol

FORMAT: Final = 1
MAGIC: Final = b"handfast backup\n"
# A block is closed when it has so many octets; one record may make it longer.
BLOCK_BYTES: Final = 1 << 20
# No engine holds a larger value: see the limit of an object.
LONGEST: Final = 8 << 20
_FRAME: Final = struct.Struct(">cI")
_RECORD: Final = struct.Struct(">IIQQ")
_DIGEST: Final = 32
_FILES: Final = dict[str, bytes]
_T = TypeVar("_T")


class BackupDamaged(errors.Refused):
    """A backup is not whole; `offset` is where the first part that is not good begins."""

    reason = "BackupDamaged"
    hint = "take another backup; nothing was written"

    def __init__(
        self, offset: int, why: str, *, name: str = "", reason: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(f"{name}damaged at byte {offset}: {why}", reason=reason, hint=hint)
        self.offset = offset


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known before the first record. `objects` is None where the store could not count beforehand."""

    format: int = FORMAT
    # Which store it is, and at which revision it was read; the epoch offset that was then added to revisions.
    identity: str = ""
    revision: int = 0
    epoch_offset: int = 0
    # The marker of the stored form of values.
    stored_form: int = 1
    objects: int | None = None
    taken_at: str = ""
    engine: str = ""
    program: str = ""
    # Names of files of the data directory that are in it, too; their contents are in the frame K.
    files: tuple[str, ...] = ()


class Trailer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was counted: records, octets of their values, blocks."""

    objects: int
    value_bytes: int
    blocks: int


class Sink(Protocol):
    """Where a backup is written."""

    def write(self, data: bytes, /) -> object: ...


class Source(Protocol):
    """Where one is read: `read` gives less than asked for only at the end."""

    def read(self, size: int, /) -> bytes: ...


class Writer:
    """Writes one backup: records in the order of their keys, then `finish`."""

    def __init__(self, sink: Sink, header: Header, files: Mapping[str, bytes] | None = None) -> None:
        self._sink = sink
        self._digest = hashlib.sha256(MAGIC).digest()
        self._block = bytearray()
        self._objects = self._value_bytes = self._blocks = 0
        sink.write(MAGIC)
        self._frame(b"H", msgspec.json.encode(msgspec.structs.replace(header, files=tuple(files or ()))))
        if files:
            self._frame(b"K", msgspec.json.encode(files))

    def add(self, entries: Iterable[protocol.Entry]) -> None:
        block = self._block
        for entry in entries:
            key = entry.key.encode()
            block += _RECORD.pack(len(key), len(entry.value), entry.revision, entry.created)
            block += key
            block += entry.value
            self._objects += 1
            self._value_bytes += len(entry.value)
            if len(block) >= BLOCK_BYTES:
                self._close_block()

    def finish(self) -> tuple[Trailer, str]:
        """Ends the backup; its trailer, and the checksum of the whole."""
        if self._block:
            self._close_block()
        trailer = Trailer(objects=self._objects, value_bytes=self._value_bytes, blocks=self._blocks)
        self._frame(b"T", msgspec.json.encode(trailer))
        return trailer, self._digest.hex()

    def _close_block(self) -> None:
        self._frame(b"B", self._block)
        self._blocks += 1
        self._block.clear()

    def _frame(self, tag: bytes, payload: bytes | bytearray) -> None:
        head = _FRAME.pack(tag, len(payload))
        self._digest = _chained(self._digest, head, payload)
        self._sink.write(head)
        self._sink.write(bytes(payload))
        self._sink.write(self._digest)


class Reader:
    """Reads one backup from its beginning. After the last block, `trailer` and `checksum` are there.

    What is refused begins with `name`.
    """

    def __init__(self, source: Source, name: str = "") -> None:
        self._source = source
        self._name = name
        self._digest = hashlib.sha256(MAGIC).digest()
        self._offset = 0
        self.trailer: Trailer | None = None
        # 1. a backup, of a format that is known
        if self._source.read(len(MAGIC)) != MAGIC:
            raise self._damaged(
                0,
                "not a backup of Handfast",
                reason="NotABackup",
                hint="name a file that `handfast store backup` wrote",
            )
        self._offset = len(MAGIC)
        start, tag, payload = self._frame()
        if tag != b"H":
            raise self._damaged(start, "there is no header")
        self.header = self._header(start, payload)
        # Secrets: nothing prints them.
        self.files: Mapping[str, bytes] = {}
        if self.header.files:
            start, tag, payload = self._frame()
            if tag != b"K":
                raise self._damaged(start, "the files that the header names are not there")
            self.files = self._decoded(payload, _FILES, start)

    @property
    def offset(self) -> int:
        """How many octets were read."""
        return self._offset

    @property
    def checksum(self) -> str:
        """Of everything read so far; after the trailer, of the whole."""
        return self._digest.hex()

    def blocks(self) -> Iterator[Sequence[protocol.Entry]]:
        """The records, block by block, each checked before it is given; then the trailer is checked."""
        objects = value_bytes = blocks = 0
        last = b""
        while True:
            start, tag, payload = self._frame()
            if tag == b"T":
                break
            if tag != b"B":
                raise self._damaged(start, "a second header, or keys where none should be")
            entries, last = self._records(start, payload, last)
            objects += len(entries)
            value_bytes += sum(len(entry.value) for entry in entries)
            blocks += 1
            yield entries
        # 5. the trailer counts what was read, and nothing follows
        counted = Trailer(objects=objects, value_bytes=value_bytes, blocks=blocks)
        trailer = self._decoded(payload, Trailer, start)
        if trailer != counted:
            raise self._damaged(start, f"the trailer counts {trailer.objects} objects, and {objects} were read")
        if self._source.read(1):
            raise self._damaged(self._offset, "something follows the end of the backup")
        self.trailer = trailer

    def _header(self, start: int, payload: bytes) -> Header:
        marker = self._decoded(payload, _Marker, start)
        if marker.format > FORMAT:
            raise self._damaged(
                start,
                f"a backup of format {marker.format}; this version reads up to {FORMAT}",
                reason="BackupTooNew",
                hint="use the version of Handfast that wrote it, or a later one",
            )
        return self._decoded(payload, Header, start)

    def _frame(self) -> tuple[int, bytes, bytes]:
        """The next frame: its offset, its tag and its payload."""
        start = self._offset
        head = self._source.read(_FRAME.size)
        # 2. a whole frame, of a kind and length that is allowed
        if len(head) < _FRAME.size:
            raise self._cut_short(start, len(head))
        tag, length = _FRAME.unpack(head)
        if tag not in {b"H", b"K", b"B", b"T"} or length > BLOCK_BYTES + LONGEST:
            raise self._damaged(start, "no frame of a backup begins there")
        rest = self._source.read(length + _DIGEST)
        if len(rest) < length + _DIGEST:
            raise self._cut_short(start, len(head) + len(rest))
        payload, digest = rest[:length], rest[length:]
        # 3. its digest
        if _chained(self._digest, head, payload) != digest:
            raise self._damaged(start, "the checksum does not match")
        self._digest = digest
        self._offset = start + len(head) + len(rest)
        return start, tag, payload

    def _damaged(self, offset: int, why: str, reason: str | None = None, hint: str | None = None) -> BackupDamaged:
        return BackupDamaged(offset, why, name=self._name, reason=reason, hint=hint)

    def _decoded(self, payload: bytes, kind: type[_T], start: int) -> _T:
        try:
            return msgspec.json.decode(payload, type=kind)
        except msgspec.MsgspecError:
            raise self._damaged(start, "this is no JSON of the form it should have") from None

    def _cut_short(self, start: int, got: int) -> BackupDamaged:
        return self._damaged(start + got, "the file ends there, and is not complete", reason="BackupTruncated")

    def _records(self, start: int, payload: bytes, last: bytes) -> tuple[Sequence[protocol.Entry], bytes]:
        """The records of a block (4), and the last key."""
        entries: list[protocol.Entry] = []
        at = 0
        try:
            while at < len(payload):
                key_length, value_length, revision, created = _RECORD.unpack_from(payload, at)
                at += _RECORD.size
                key, value = payload[at : at + key_length], payload[at + key_length : at + key_length + value_length]
                at += key_length + value_length
                if at > len(payload) or key <= last or not 0 < created <= revision <= self.header.revision:
                    raise self._damaged(start, "a record in this block makes no sense")
                entries.append(protocol.Entry(key.decode(), value, revision, created))
                last = key
        except (struct.error, UnicodeDecodeError):
            raise self._damaged(start, "a record in this block makes no sense") from None
        return entries, last


class _Marker(msgspec.Struct):
    """Of a header only what every format has."""

    format: int


def _chained(before: bytes, head: bytes, payload: bytes | bytearray) -> bytes:
    digest = hashlib.sha256(before)
    digest.update(head)
    digest.update(payload)
    return digest.digest()


def verify(reader: Reader, each: Callable[[Sequence[protocol.Entry]], None] = lambda _entries: None) -> Trailer:
    """Read to the end; what was counted there. `each` sees every block."""
    for entries in reader.blocks():
        each(entries)
    if reader.trailer is None:
        raise errors.Misuse("blocks end with a trailer")
    return reader.trailer

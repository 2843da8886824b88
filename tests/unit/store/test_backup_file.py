# SPDX-License-Identifier: Apache-2.0
"""A backup comes back as it was written, and one that was changed or cut short is refused with the place."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence

import msgspec
import pytest

from handfast.store import backup_file, protocol

HEADER = backup_file.Header(
    identity="a-store", revision=900, epoch_offset=7, objects=3, taken_at="2026-11-18T01:00:00Z"
)
ENTRIES = [
    protocol.Entry("core/configmaps/default/a", b"\x01v1\0\0{}", 3, 1),
    protocol.Entry("core/configmaps/default/é", b"", 900, 900),
    protocol.Entry("core/secrets/default/s", bytes(range(256)) * 8, 5, 5),
]


def written(
    entries: Sequence[protocol.Entry] = ENTRIES,
    header: backup_file.Header = HEADER,
    files: dict[str, bytes] | None = None,
) -> tuple[bytes, str]:
    sink = io.BytesIO()
    writer = backup_file.Writer(sink, header, files)
    writer.add(entries)
    _trailer, checksum = writer.finish()
    return sink.getvalue(), checksum


def read(data: bytes) -> tuple[backup_file.Reader, list[protocol.Entry]]:
    reader = backup_file.Reader(io.BytesIO(data))
    return reader, [entry for block in reader.blocks() for entry in block]


def test_what_was_written_is_read() -> None:
    data, checksum = written()
    reader, entries = read(data)
    assert entries == ENTRIES
    assert reader.header == HEADER
    assert reader.trailer == backup_file.Trailer(objects=3, value_bytes=7 + 256 * 8, blocks=1)
    assert (reader.checksum, reader.offset) == (checksum, len(data))


def test_an_empty_store_has_a_backup() -> None:
    reader, entries = read(written([])[0])
    assert entries == []
    assert reader.trailer == backup_file.Trailer(objects=0, value_bytes=0, blocks=0)


def test_large_values_make_several_blocks() -> None:
    entries = [protocol.Entry(f"k{n}", random.Random(n).randbytes(700_000), n + 1, 1) for n in range(5)]
    reader, came_back = read(written(entries)[0])
    assert came_back == entries
    assert reader.trailer is not None
    assert reader.trailer.blocks == 3


def test_keys_are_in_it_only_when_they_are_given() -> None:
    assert read(written()[0])[0].files == {}
    reader, entries = read(written(files={"encryption.key": b"secret"})[0])
    assert (reader.files, reader.header.files, entries) == ({"encryption.key": b"secret"}, ("encryption.key",), ENTRIES)


def test_every_changed_octet_is_noticed() -> None:
    data, _ = written(ENTRIES[:2])
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        with pytest.raises(backup_file.BackupDamaged) as refusal:
            read(bytes(changed))
        assert f"at byte {refusal.value.offset}" in refusal.value.message
        assert refusal.value.offset <= len(data)


def test_every_shortened_file_is_refused() -> None:
    data, _ = written(ENTRIES[:2])
    for length in range(len(backup_file.MAGIC), len(data)):
        with pytest.raises(backup_file.BackupDamaged) as refusal:
            read(data[:length])
        assert (refusal.value.reason, refusal.value.offset) == ("BackupTruncated", length)


def test_what_follows_the_end_is_refused() -> None:
    data, _ = written()
    with pytest.raises(backup_file.BackupDamaged, match=f"at byte {len(data)}: something follows"):
        read(data + b"\0")


def test_a_length_that_is_not_allowed_is_not_waited_for() -> None:
    data, _ = written()
    at = len(backup_file.MAGIC) + 1
    with pytest.raises(backup_file.BackupDamaged, match="no frame of a backup begins there"):
        read(data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :])


@pytest.mark.parametrize(
    "entries",
    [
        [ENTRIES[1], ENTRIES[0]],
        [ENTRIES[0], ENTRIES[0]],
        [protocol.Entry("k", b"", 901, 1)],
        [protocol.Entry("k", b"", 1, 2)],
    ],
    ids=["order", "twice", "later than the backup", "changed before it was created"],
)
def test_records_that_make_no_sense_are_refused(entries: list[protocol.Entry]) -> None:
    with pytest.raises(backup_file.BackupDamaged, match="makes no sense"):
        read(written(entries)[0])


def test_a_newer_format_is_refused_by_name() -> None:
    data, _ = written(header=msgspec.structs.replace(HEADER, format=2))
    with pytest.raises(backup_file.BackupDamaged, match="a backup of format 2; this version reads up to 1") as refusal:
        read(data)
    assert refusal.value.reason == "BackupTooNew"


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0" * 4, b"handfast backu"])
def test_another_file_is_called_another_file(data: bytes) -> None:
    with pytest.raises(backup_file.BackupDamaged, match="not a backup of Handfast") as refusal:
        read(data)
    assert refusal.value.reason == "NotABackup"

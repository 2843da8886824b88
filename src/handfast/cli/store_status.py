# SPDX-License-Identifier: Apache-2.0
"""`handfast store status`: how a store is. It reads the store, so it answers also when no server does. It changes no object;
in an etcd it writes the fence that every reader of a store begins with.

Of an etcd without a majority it shows the members, and ends with the error and exit code 3.

What servers say of themselves is in their Leases (`apiserver.announcement`), at most a minute old.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from handfast import errors
from handfast.cli import output, store_options, tables
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import files

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from handfast.store import protocol, transfer

_FILE_BYTES = 64 << 10


@click.command(name="status", short_help="Show how the store is.")
@store_options.options
@output.format_option
def command(directory: str, config_file: str | None, form: str, **flags: Any) -> None:
    """Show how the store is: its size, how far it has come, the servers that use it, its seal keys and its last backup."""
    import asyncio

    choice = store_options.choose(directory, config_file, flags)
    try:
        status = asyncio.run(_status(choice, clocks.SystemClock().now()))
    except errors.Unavailable:
        _show_members(asyncio.run(_members(choice)), form)
        raise
    if form != "text":
        output.result(output.document(status, form))
        return
    output.result(_text(status))


async def _status(choice: store_options.StoreChoice, now: datetime.datetime) -> dict[str, Any]:
    from handfast.apiserver import announcement
    from handfast.assembly import store_transfers
    from handfast.store import epochs, transfer

    source = await store_transfers.source(choice.store, choice.access)
    try:
        stats = await source.stats()
        marker = await source.note(announcement.MARKER)
        raised = epochs.all_of(await source.note(epochs.NOTE), await source.note(epochs.SERVER_NOTE))
        servers = [each async for each in _servers(source, now)]
        seal_keys = await _seal_keys(source)
        backup = await source.note(transfer.LAST_BACKUP)
    finally:
        await source.close()
    compactions = [each["lastCompaction"] for each in servers if each["lastCompaction"]]
    return {
        "engine": source.engine,
        "place": source.place,
        "identity": source.identity,
        "sizeBytes": stats.size_bytes,
        "objects": source.objects,
        "revision": source.revision,
        "resourceVersion": source.revision + source.epoch_offset,
        "floor": stats.floor,
        "storedForm": announcement.parse_marker(marker),
        "epochs": [{"offset": each.offset, "at": each.at, "why": each.why} for each in raised],
        "sealKeys": seal_keys,
        "servers": servers,
        "members": _member_rows(stats.members),
        "uncertainWrites": sum(each["uncertainWrites"] for each in servers),
        "lastCompaction": max(compactions, default=None),
        "lastBackup": _last_backup(choice.place, backup),
    }


async def _members(choice: store_options.StoreChoice) -> list[dict[str, Any]]:
    """Who keeps a store that cannot be read; nobody, if none of them answers."""
    from handfast.assembly import store_transfers

    found = await store_transfers.members(choice.store, choice.access)
    return _member_rows(found) if any(each.answers for each in found) else []


def _member_rows(members: Sequence[protocol.Member]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "address": each.address,
            "leads": each.leads,
            "version": each.version if each.answers else "does not answer",
        }
        for each in members
    ]


def _show_members(members: list[dict[str, Any]], form: str) -> None:
    if members:
        output.result(_member_table(members) if form == "text" else output.document({"members": members}, form))


def _member_table(members: list[dict[str, Any]]) -> str:
    rows = [(each["name"], each["address"], "yes" if each["leads"] else "no", each["version"]) for each in members]
    return tables.table(("MEMBER", "ADDRESS", "LEADS", "VERSION"), rows)


async def _servers(source: transfer.Source, now: datetime.datetime) -> Any:
    """What the API servers have said of themselves, those included that are gone and whose Lease was not removed yet."""
    from handfast.apiserver import announcement
    from handfast.apiserver.state import envelope
    from handfast.rules import server_leases

    async for entries in source.pages(announcement.KEYS):
        for entry in entries:
            document = envelope.read_document(entry.key, entry.value)
            said, server = announcement.of_lease(document), server_leases.read(document)
            if said is None or server is None:
                continue
            yield {
                "name": said.server,
                "holder": server.holder,
                "version": server.version,
                "alive": said.until > now,
                "appliedVersion": server.applied,
                "lag": server.lag,
                "storedForms": str(said.forms),
                "uncertainWrites": server.uncertain,
                "lastCompaction": server.compacted or None,
                "renewed": server.renewed,
            }


async def _seal_keys(source: transfer.Source) -> dict[str, int]:
    """The keys that sealed what is there, with how many values each."""
    import collections

    from handfast.apiserver.state import envelope
    from handfast.assembly import apiserver

    counts: collections.Counter[str] = collections.Counter()
    for prefix in apiserver.SEALED:
        async for entries in source.pages(prefix):
            counts.update(envelope.read_header(entry.key, entry.value).key_id for entry in entries)
    return dict(sorted(counts.items()))


def _last_backup(place: layout.Layout, note: str | None) -> dict[str, Any] | None:
    """What the store notes of it, or, where it takes no notes from here, the data directory."""
    if note is None and not place.last_backup.exists():
        return None
    found = json.loads(files.read(place.last_backup, limit=_FILE_BYTES) if note is None else note)
    return {name: found.get(name) for name in ("takenAt", "revision", "objects", "file", "checksum")}


def _text(status: dict[str, Any]) -> str:
    backup = status["lastBackup"]
    rows = [
        ("store", f"{status['engine']}, {status['place']}"),
        ("identity", status["identity"]),
        ("size", "unknown" if status["sizeBytes"] is None else store_options.size(status["sizeBytes"])),
        ("objects", "unknown" if status["objects"] is None else str(status["objects"])),
        ("revision", f"{status['revision']}; the oldest that can be read is {status['floor']}"),
        ("resource version", str(status["resourceVersion"])),
        ("stored form", str(status["storedForm"])),
        (
            "seal keys",
            ", ".join(f"{key} ({count})" for key, count in status["sealKeys"].items()) or "nothing is sealed",
        ),
        ("uncertain writes", str(status["uncertainWrites"])),
        ("last compaction", status["lastCompaction"] or "unknown"),
        ("last backup", f"{backup['takenAt']}, revision {backup['revision']}" if backup else "none from here"),
    ]
    rows += [("epoch", f"{each['offset']}, {each['at'] or 'by a server'}: {each['why']}") for each in status["epochs"]]
    width = max(len(name) for name, _ in rows)
    parts = ["\n".join(f"{name.ljust(width)}   {output.printable(value)}" for name, value in rows)]
    if status["members"]:
        parts.append(_member_table(status["members"]))
    if status["servers"]:
        servers = [
            (
                each["name"],
                "yes" if each["alive"] else "no",
                str(each["lag"]),
                each["version"],
                each["storedForms"],
                each["renewed"],
            )
            for each in status["servers"]
        ]
        parts.append(tables.table(("SERVER", "ALIVE", "LAG", "VERSION", "FORMS", "RENEWED"), servers))
    return "\n\n".join(parts)

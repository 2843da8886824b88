# SPDX-License-Identifier: Apache-2.0
"""`handfast store restore`: a new store that holds what a backup holds.

1. Nobody serves from the data directory, and nobody begins to while this runs.
2. There is no store yet where this one is to be.
3. All of the file is read and found good before anything is written.
4. Every value in it could be served: it opens with a seal key that is there, and is the object that its key names. Values that could not
   be served end the restore, unless it was asked to leave them out. Without any seal key this cannot be tried; then a warning says so.
5. The Leases of API servers are left out: none of those serves from the new store.
6. The epoch is raised: no resource version is given out twice, and whoever follows anything begins anew.

What was begun and not finished is removed, if this process still can.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from handfast import errors
from handfast.cli import backup_files, output, store_options
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.apiserver.state import verification as verifications
    from handfast.store import protocol, transfer

_SHOWN = 10


@click.command(name="restore", short_help="Make a new store from a backup.")
@click.argument("file", metavar="FILE", type=click.Path())
@store_options.options
@click.option(
    "--unsafe-drop-unreadable",
    "drop",
    is_flag=True,
    help="Leave out what cannot be opened here, such as Secrets whose seal key is lost.",
)
@output.format_option
def command(file: str, directory: str, config_file: str | None, drop: bool, form: str, **flags: Any) -> None:
    """Make a new store from a backup. The control plane must be stopped, and must not have a store any more.

    The data directory's keys are used if they are there, and are taken from the backup if they are in it. Clients that follow
    objects are told to begin anew.
    """
    choice = store_options.choose(directory, config_file, flags)
    place = choice.place
    with files.otherwise(layout.ELSEWHERE):
        files.create_directory(place.root)
        # 1. nobody serves from it
        lock = files.lock_directory(place.root)
    try:
        summary = asyncio.run(_restore(choice, pathlib.Path(file), drop=drop))
    finally:
        lock.release()
    if form != "text":
        output.result(output.document(summary, form))
        return
    output.result(
        f"restored {store_options.objects(summary['objects'])} to {summary['store']}, as they were at {summary['takenAt']}\n"
        f"resource versions begin at {summary['firstVersion']}"
    )


async def _restore(choice: store_options.StoreChoice, file: pathlib.Path, *, drop: bool) -> dict[str, Any]:
    from handfast.apiserver import announcement
    from handfast.apiserver.state import envelope
    from handfast.assembly import store_transfers
    from handfast.datadir import kept_keys, preparation
    from handfast.rules import stored_forms
    from handfast.store import epochs, transfer

    place, now = choice.place, clocks.SystemClock().now()
    with backup_files.opened(file) as begin:
        source = transfer.BackupSource(begin, str(file))
        stored_forms.require_known(source.header.stored_form, envelope.KNOWN)
        # 2. no store yet
        target = await store_transfers.new(choice.store, choice.access, source.identity)
        done = False
        try:
            # 3. all of it is read and found good
            verification = await _verified(source, place, drop=drop)
            for name in kept_keys.put_back(place, source.files):
                output.progress(f"{place.root / name} was taken from the backup")
            if drop:
                preparation.ensure_seal_key(place, now)
            progress = store_options.Progress("restoring", source.objects)
            counts = await transfer.synchronise(
                _kept(source, verification.unreadable if drop else ()), target.store, progress
            )
            progress.end()
            first = epochs.first_version(source.epoch_offset, source.revision, now)
            await target.store.set_note(announcement.MARKER, str(source.header.stored_form))
            # 6. a new epoch
            await target.finish(first, f"restored from a backup of {source.header.taken_at}", now)
            done = True
        finally:
            await target.close(keep=done)
    return {
        "file": str(file),
        "store": target.place,
        "objects": counts.seen,
        "leftOut": sorted(verification.unreadable),
        "revision": source.revision,
        "takenAt": source.header.taken_at,
        "firstVersion": first,
    }


async def _verified(source: transfer.BackupSource, place: layout.Layout, *, drop: bool) -> verifications.Verification:
    from handfast.apiserver.state import verification as verifications
    from handfast.assembly import apiserver
    from handfast.pki import seal

    sealer = store_options.sealer(place)
    if sealer is None and (taken := source.files.get(place.encryption_key.name)):
        sealer = seal.Sealer.from_text(taken.decode("ascii", "replace"))
    verification = verifications.Verification(sealer, apiserver.SEALED)
    progress = store_options.Progress("checking", source.objects)
    async for entries in source.pages():
        verification.look(entries)
        progress(verification.objects)
    progress.end()
    # 4. every value could be served
    if verification.wrong and not drop:
        raise unreadable(verification, f"{source.place}: ")
    for finding in verification.findings[:_SHOWN]:
        output.warn(f"left out: {finding.sentence}")
    if verification.unopened:
        keys = ", ".join(sorted(verification.seal_keys))
        if drop:
            output.warn(f"left out: {store_options.objects(verification.unopened)} sealed with {keys}")
        else:
            output.warn(
                f"{store_options.objects(verification.unopened)} sealed with {keys} cannot be opened: put the file encryption.key "
                f"that belongs to them into {place.root} before you start"
            )
    return verification


def unreadable(verification: verifications.Verification, where: str) -> errors.Refused:
    """The refusal of a backup with values that cannot be served: the first of them, and how many more."""
    first = verification.findings[0]
    more = f", and {verification.wrong - 1} more" if verification.wrong > 1 else ""
    return errors.Refused(
        f"{where}{first.sentence}{more}",
        reason=first.reason,
        hint="put the seal keys that belong to it into encryption.key, or leave such objects out with --unsafe-drop-unreadable",
    )


async def _kept(source: transfer.BackupSource, left_out: Collection[str]) -> AsyncIterator[Sequence[protocol.Entry]]:
    """The entries to write: all, but for those that are left out."""
    from handfast.apiserver import announcement

    async for entries in source.pages():
        # 5. no Leases of API servers
        carried = announcement.carried(entries)
        yield [entry for entry in carried if entry.key not in left_out] if left_out else carried

# SPDX-License-Identifier: Apache-2.0
"""`handfast store copy`: a new store with what another one holds, on the same engine or on another.

1. There is no store yet where the new one is to be. One that an earlier copy left unfinished is gone on with.
2. Nobody serves from the old one: what is written to it meanwhile would be lost. With `--prepare` it may be served; the new store
   then stays unfinished, and a second copy, which takes less time, has to follow. It is looked at once more when everything is
   copied: who began to serve from it meanwhile, or did and is gone, has written what is missing.
3. The Leases of API servers are left out: none of those serves from the new store.
4. The new store keeps the identity of the old one. Its epoch is raised, as by a restore: revisions are counted anew.

`store.transfer.synchronise` compares before it writes, so that a copy can be cut short anywhere and begun again.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import click

from handfast import errors
from handfast.assembly import config, stores
from handfast.cli import output, settings, store_options
from handfast.datadir import layout
from handfast.runtime import clock as clocks

if TYPE_CHECKING:
    from handfast.store import transfer as transfers
    from handfast.wire import etcd_access


@click.command(name="copy", short_help="Make a new store with what another one holds.")
@click.argument("origin", metavar="FROM")
@click.argument("destination", metavar="TO")
@settings.directory_option(store_options.DIRECTORY)
@settings.config_option
@settings.setting_options(*config.ETCD)
@click.option(
    "--prepare",
    is_flag=True,
    help="Copy what there is now and leave TO unfinished: once nobody serves from FROM, a second copy takes what is missing.",
)
@output.format_option
def command(
    origin: str, destination: str, directory: str, config_file: str | None, prepare: bool, form: str, **flags: Any
) -> None:
    """Make a new store, TO, with what another one, FROM, holds. Each is a path, as store.db, or a URL, as for --store.

    The control plane must be stopped. A copy that was interrupted goes on when it is begun again. Then start the control plane
    with --store TO.
    """
    import asyncio

    access = store_options.choose(directory, config_file, flags).access
    summary = asyncio.run(_copy(_place(origin, "FROM"), _place(destination, "TO"), access, prepare=prepare))
    if form != "text":
        output.result(output.document(summary, form))
        return
    what = f"{summary['to']} holds {store_options.objects(summary['objects'])}: {summary['written']} written"
    what += f", {summary['kept']} there already, {summary['removed']} removed"
    if prepare:
        output.result(f"{what}\nit is unfinished: stop the control plane, then copy once more without --prepare")
    else:
        output.result(f"{what}\nresource versions begin at {summary['firstVersion']}")


def _place(text: str, name: str) -> str:
    from handfast.assembly import setting_values

    try:
        return stores.named(layout.Layout.at(pathlib.Path.cwd()), setting_values.store(text))
    except ValueError as error:
        raise output.Usage(
            f"{name}: {config.shown(text)} {error}",
            hint="allowed: a path, as store.db, or a place in an etcd, as for --store",
        ) from None


async def _copy(origin: str, destination: str, access: etcd_access.Access, *, prepare: bool) -> dict[str, Any]:
    from handfast.apiserver import announcement
    from handfast.assembly import store_transfers
    from handfast.store import epochs

    clock = clocks.SystemClock()
    # 2. nobody serves from it
    if not prepare and await store_transfers.served(origin, access, clock.now()):
        raise _in_use(f"{origin} is being served: what is written while it is copied would be lost")
    source = await store_transfers.source(origin, access)
    try:
        # 1. no store yet
        target = await store_transfers.new(destination, access, source.identity)
        try:
            summary = await _filled(source, target)
            summary["finished"] = not prepare
            if not prepare:
                await target.store.set_note(announcement.MARKER, await source.note(announcement.MARKER))
                # It is not looked at a file that is open here.
                await source.close()
                await _require_still(origin, access, source.revision)
                # 4. a new epoch
                now = clock.now()
                first = epochs.first_version(source.epoch_offset, source.revision, now)
                await target.finish(first, f"copied from {source.engine}", now)
                summary["firstVersion"] = first
        finally:
            await target.close(keep=True)
    finally:
        await source.close()
    return summary


async def _filled(source: transfers.Source, target: transfers.Target) -> dict[str, Any]:
    from handfast.apiserver import announcement
    from handfast.store import transfer

    progress = store_options.Progress("copying", source.objects)
    # 3. no Leases of API servers
    pages = (announcement.carried(entries) async for entries in source.pages())
    counts = await transfer.synchronise(pages, target.store, progress)
    progress.end()
    return {
        "from": source.place,
        "to": target.place,
        "revision": source.revision,
        "objects": counts.seen,
        "written": counts.written,
        "kept": counts.kept,
        "removed": counts.removed,
    }


async def _require_still(origin: str, access: etcd_access.Access, revision: int) -> None:
    """Return if what was copied is all there is (2)."""
    from handfast.assembly import store_transfers

    # Who serves is asked first: one that begins after that has written nothing that a look at the entries would miss.
    if await store_transfers.served(origin, access, clocks.SystemClock().now()):
        raise _in_use(f"{origin} is being served since this copy began, which is unfinished")
    if await store_transfers.written_since(origin, access, revision):
        raise _in_use(f"{origin} was written to since this copy began, at revision {revision}; the copy is unfinished")


def _in_use(what: str) -> errors.Refused:
    return errors.Refused(
        what,
        reason="StoreInUse",
        hint="stop the control plane first, then copy again: what is copied already is kept. To copy most of it before that, use "
        "--prepare (in etcd a server that was killed counts for three minutes)",
    )

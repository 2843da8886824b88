# SPDX-License-Identifier: Apache-2.0
"""`handfast store verify`: whether a backup, or a store, is whole, and every value in it could be served.

`store.backup_file` says what makes a backup whole, `apiserver.state.verification` what is looked at in a value. It changes
nothing, and a control plane that runs goes on meanwhile.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.cli import backup_files, output, store_options, tables
from handfast.datadir import layout

if TYPE_CHECKING:
    from handfast.apiserver.state import verification
    from handfast.store import transfer

_SHOWN: Final = 20


@click.command(name="verify", short_help="Verify that a backup, or the store, is whole.")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path())
@store_options.options
@click.option("--ledger", is_flag=True, help="Verify the chain of the issuance ledger, too.")
@output.format_option
def command(file: str | None, directory: str, config_file: str | None, ledger: bool, form: str, **flags: Any) -> None:
    """Verify that a backup is whole, or the store if no FILE is named, and that every value in it could be served.

    Values are opened with the seal keys of the data directory. Where it has none, sealed values are only counted.
    """
    import asyncio

    chosen = store_options.chosen(directory, config_file, flags)
    summary, looked = asyncio.run(_verify(chosen, file, ledger=ledger))
    if form != "text":
        output.result(output.document(summary, form))
    else:
        output.result(_text(summary, looked))
    if looked.unopened:
        output.note(
            f"{store_options.objects(looked.unopened)} sealed with {', '.join(sorted(looked.seal_keys))} were not opened: "
            f"there is no {chosen.place.encryption_key}"
        )
    if looked.wrong:
        raise errors.Refused(
            f"{summary['where']}: {looked.wrong} of {store_options.objects(looked.objects)} cannot be served as they are",
            reason=looked.findings[0].reason,
            hint="restore a backup from before; `handfast store restore --help` says how",
        )


async def _verify(
    chosen: store_options.Chosen, file: str | None, *, ledger: bool
) -> tuple[dict[str, Any], verification.Verification]:
    from handfast.assembly import store_transfers
    from handfast.store import transfer

    if file is None:
        source = await store_transfers.source(chosen.store, chosen.access)
        try:
            looked = await _looked_at(source, chosen.place, ledger=ledger)
        finally:
            await source.close()
        return _summary(source, looked), looked
    with backup_files.opened(pathlib.Path(file)) as begin:
        backup = transfer.BackupSource(begin, file)
        looked = await _looked_at(backup, chosen.place, ledger=ledger)
        more = {
            "checksum": f"sha256:{backup.checksum}",
            "takenAt": backup.header.taken_at,
            "keys": sorted(backup.files),
        }
        return _summary(backup, looked) | more, looked


async def _looked_at(source: transfer.Source, place: layout.Layout, *, ledger: bool) -> verification.Verification:
    from handfast.apiserver.state import verification
    from handfast.assembly import apiserver

    looked = verification.Verification(store_options.sealer(place), apiserver.SEALED, with_ledger=ledger)
    progress = store_options.Progress("verifying", source.objects)
    async for entries in source.pages():
        looked.look(entries)
        progress(looked.objects)
    looked.finish()
    progress.end()
    return looked


def _summary(source: transfer.Source, looked: verification.Verification) -> dict[str, Any]:
    return {
        "where": source.place,
        "identity": source.identity,
        "revision": source.revision,
        "objects": looked.objects,
        "wrong": looked.wrong,
        "sealKeys": dict(sorted(looked.seal_keys.items())),
        "unopened": looked.unopened,
        "findings": [
            {"key": finding.key, "reason": finding.reason, "sentence": finding.sentence} for finding in looked.findings
        ],
    }


def _text(summary: dict[str, Any], looked: verification.Verification) -> str:
    what = f"{store_options.objects(looked.objects)} at revision {summary['revision']}"
    if "takenAt" in summary:
        what += f", taken at {summary['takenAt']}"
    lines = [f"{summary['where']}: {what}"]
    if "checksum" in summary:
        lines.append(f"checksum {summary['checksum']}")
    if looked.seal_keys:
        lines.append("sealed with " + ", ".join(f"{key} ({count})" for key, count in sorted(looked.seal_keys.items())))
    if not looked.wrong:
        return "\n".join([*lines, "nothing is wrong"])
    rows = [(finding.reason, finding.sentence) for finding in looked.findings[:_SHOWN]]
    return "\n".join([*lines, tables.table(("WHAT", "DETAIL"), rows)])

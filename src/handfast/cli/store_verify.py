# SPDX-License-Identifier: Apache-2.0
"""`handfast store verify`: whether a backup, or a store, is whole, and every value in it could be served.

`store.backup_file` says what makes a backup whole, `apiserver.state.verification` what a value must be. It changes
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
    from handfast.apiserver.state import verification as verifications
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

    choice = store_options.choose(directory, config_file, flags)
    summary, verification = asyncio.run(_verify(choice, file, ledger=ledger))
    if form != "text":
        output.result(output.document(summary, form))
    else:
        output.result(_text(summary, verification))
    if verification.unopened:
        output.note(
            f"{store_options.objects(verification.unopened)} sealed with {', '.join(sorted(verification.seal_keys))} were not opened: "
            f"there is no {choice.place.encryption_key}"
        )
    if verification.wrong:
        raise errors.Refused(
            f"{summary['where']}: {verification.wrong} of {store_options.objects(verification.objects)} cannot be served as they are",
            reason=verification.findings[0].reason,
            hint="restore a backup from before; `handfast store restore --help` says how",
        )


async def _verify(
    choice: store_options.StoreChoice, file: str | None, *, ledger: bool
) -> tuple[dict[str, Any], verifications.Verification]:
    from handfast.assembly import store_transfers
    from handfast.store import transfer

    if file is None:
        source = await store_transfers.source(choice.store, choice.access)
        try:
            verification = await _verified(source, choice.place, ledger=ledger)
        finally:
            await source.close()
        return _summary(source, verification), verification
    with backup_files.opened(pathlib.Path(file)) as begin:
        backup = transfer.BackupSource(begin, file)
        verification = await _verified(backup, choice.place, ledger=ledger)
        more = {
            "checksum": f"sha256:{backup.checksum}",
            "takenAt": backup.header.taken_at,
            "keys": sorted(backup.files),
        }
        return _summary(backup, verification) | more, verification


async def _verified(source: transfer.Source, place: layout.Layout, *, ledger: bool) -> verifications.Verification:
    from handfast.apiserver.state import verification as verifications
    from handfast.assembly import apiserver

    verification = verifications.Verification(store_options.sealer(place), apiserver.SEALED, with_ledger=ledger)
    progress = store_options.Progress("verifying", source.objects)
    async for entries in source.pages():
        verification.look(entries)
        progress(verification.objects)
    verification.finish()
    progress.end()
    return verification


def _summary(source: transfer.Source, verification: verifications.Verification) -> dict[str, Any]:
    return {
        "where": source.place,
        "identity": source.identity,
        "revision": source.revision,
        "objects": verification.objects,
        "wrong": verification.wrong,
        "sealKeys": dict(sorted(verification.seal_keys.items())),
        "unopened": verification.unopened,
        "findings": [
            {"key": finding.key, "reason": finding.reason, "sentence": finding.sentence}
            for finding in verification.findings
        ],
    }


def _text(summary: dict[str, Any], verification: verifications.Verification) -> str:
    what = f"{store_options.objects(verification.objects)} at revision {summary['revision']}"
    if "takenAt" in summary:
        what += f", taken at {summary['takenAt']}"
    lines = [f"{summary['where']}: {what}"]
    if "checksum" in summary:
        lines.append(f"checksum {summary['checksum']}")
    if verification.seal_keys:
        lines.append(
            "sealed with " + ", ".join(f"{key} ({count})" for key, count in sorted(verification.seal_keys.items()))
        )
    if not verification.wrong:
        return "\n".join([*lines, "nothing is wrong"])
    rows = [(finding.reason, finding.sentence) for finding in verification.findings[:_SHOWN]]
    return "\n".join([*lines, tables.table(("WHAT", "DETAIL"), rows)])

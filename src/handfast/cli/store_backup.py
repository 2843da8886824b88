# SPDX-License-Identifier: Apache-2.0
"""`handfast store backup`: everything the store holds at one revision, in one file, while it is being served.

1. The file appears under its name complete, with mode 0600, or not at all. One that is there stays, unless `--overwrite` is given.
2. Values that are sealed stay sealed. The keys that open them are in it only with `--unsafe-include-keys`.
3. What is written to standard output is not written to a terminal.

`store.backup_file` is the form of the file, `store.transfer` reads the store.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from handfast import errors
from handfast.cli import output, store_options
from handfast.datadir import layout
from handfast.runtime import clock as clocks
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.store import backup_file, transfer

STDOUT: Final = "-"


@click.command(name="backup", short_help="Write everything the store holds into one file.")
@click.argument("file", metavar="FILE|-")
@store_options.options
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@click.option(
    "--unsafe-include-keys",
    "with_keys",
    is_flag=True,
    help="Put the data directory's keys into the backup, too: whoever reads it can then open every Secret and be the CA.",
)
@output.format_option
def command(
    file: str, directory: str, config_file: str | None, overwrite: bool, with_keys: bool, form: str, **flags: Any
) -> None:
    """Write everything the store holds, at one revision, into FILE, or to standard output.

    A control plane that runs goes on meanwhile. Sealed values stay sealed. The keys of the data directory (encryption.key
    and pki) are not in a backup: keep a copy of them in another place.
    """
    import asyncio

    choice = store_options.choose(directory, config_file, flags)
    if file == STDOUT and output.to_terminal():
        # 3. not to a terminal
        raise output.Usage("a backup is not written to a terminal", hint="name a file, or pipe it into a program")
    summary = asyncio.run(_back_up(choice, file, overwrite=overwrite, with_keys=with_keys))
    _tell(summary, file, choice.place, form)


async def _back_up(choice: store_options.StoreChoice, file: str, *, overwrite: bool, with_keys: bool) -> dict[str, Any]:
    from handfast.api import objects
    from handfast.apiserver import announcement
    from handfast.assembly import store_transfers
    from handfast.datadir import kept_keys
    from handfast.store import backup_file, transfer

    keys = kept_keys.taken(choice.place) if with_keys else {}
    source = await store_transfers.source(choice.store, choice.access)
    try:
        taken_at = objects.timestamp(clocks.SystemClock().now())
        with _sink(file, overwrite=overwrite) as sink:
            progress = store_options.Progress("backing up", source.objects)
            header = _header(source, taken_at, announcement.parse_marker(await source.note(announcement.MARKER)))
            writer = backup_file.Writer(sink, header, keys)
            trailer, checksum = await transfer.write_backup(source, writer, progress)
            progress.end()
        summary = {
            "file": file,
            "store": source.place,
            "revision": source.revision,
            "objects": trailer.objects,
            "valueBytes": trailer.value_bytes,
            "checksum": f"sha256:{checksum}",
            "takenAt": taken_at,
            "keys": sorted(keys),
        }
        # The file has its name by now.
        await _note_down(source, choice.place, summary)
    finally:
        await source.close()
    return summary


def _header(source: transfer.Source, taken_at: str, stored_form: int) -> backup_file.Header:
    import importlib.metadata

    from handfast.store import backup_file

    return backup_file.Header(
        identity=source.identity,
        revision=source.revision,
        epoch_offset=source.epoch_offset,
        stored_form=stored_form,
        objects=source.objects,
        engine=source.engine,
        taken_at=taken_at,
        program=importlib.metadata.version("handfast"),
    )


@contextlib.contextmanager
def _sink(file: str, *, overwrite: bool) -> Iterator[BinaryIO]:
    if file == STDOUT:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            why = (error.strerror or "it was closed").lower()
            raise output.Unwritten(
                f"standard output cannot be written: {why}; the backup is not complete", hint="take it again"
            ) from error
        return
    path = pathlib.Path(file).absolute()
    # 1. one that is there stays, without --overwrite
    if path.exists() and not overwrite:
        raise _exists(path)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise files.explain(error, "write", path) from error
    temporary = pathlib.Path(name)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        # 1. complete, under its name
        _name(temporary, path, overwrite=overwrite)
    except OSError as error:
        raise files.explain(error, "write", path) from error
    finally:
        temporary.unlink(missing_ok=True)


def _name(temporary: pathlib.Path, path: pathlib.Path, *, overwrite: bool) -> None:
    if overwrite:
        temporary.replace(path)
    else:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise _exists(path) from None
    files.sync_directory(path.parent)


def _exists(path: pathlib.Path) -> errors.Refused:
    return errors.Refused(
        f"{path} is there already", reason="FileExists", hint="name another file, or replace it with --overwrite"
    )


def _tell(summary: dict[str, Any], file: str, place: layout.Layout, form: str) -> None:
    where = "standard output" if file == STDOUT else file
    sentence = (
        f"backed up {store_options.objects(summary['objects'])} ({store_options.size(summary['valueBytes'])}) at revision "
        f"{summary['revision']} to {where}"
    )
    if file == STDOUT:
        output.progress(sentence)
        output.progress(f"checksum {summary['checksum']}")
    elif form != "text":
        output.result(output.document(summary, form))
    else:
        output.result(f"{sentence}\nchecksum {summary['checksum']}")
    # 2. whether the keys are in it
    if summary["keys"]:
        output.warn(f"the keys of {place.root} are in it: whoever reads it can open every Secret and be the CA")
    else:
        output.note(f"the keys are not in it: keep a copy of {place.encryption_key} and {place.pki} in another place")


async def _note_down(source: transfer.Described, place: layout.Layout, summary: dict[str, Any]) -> None:
    """For `handfast store status`, and the servers' metrics: in the store, or beside it. The backup is good without it."""
    import json

    from handfast.store import transfer

    text = json.dumps(summary)
    try:
        if not await source.keep_note(transfer.LAST_BACKUP, text) and place.root.is_dir():
            files.write_atomically(place.last_backup, f"{text}\n".encode())
    except errors.HandfastError as error:
        output.warn(f"that this backup was taken is not noted down: {error.message}")

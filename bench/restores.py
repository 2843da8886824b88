# SPDX-License-Identifier: Apache-2.0
"""What a backup and a restore cost, beside writing the same objects in batches through the engine.

Each is a process of its own, interpreter and all; its CPU is what the kernel counted when it ended. The writer has the objects
in memory when its clock begins. They take turns within each round.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Sequence

from bench import measure, preload, settings
from handfast.store import protocol, transfer
from handfast.store.sqlite import engine, snapshot

LIMIT_RATIO = 2.0
_ROUNDS = 3
_STORE = "store.db"


async def restores(run: settings.Run) -> list[measure.Figure]:
    count = run.sizes.many_objects
    plane, file = run.directory / "restores", run.directory / "restores.backup"
    preload.fill(plane, count)
    entries = await _entries(plane / _STORE)
    used: dict[str, list[float]] = {"write": [], "backup": [], "restore": []}
    for _ in range(_ROUNDS):
        used["write"].append(await _written(run.directory / "written.db", entries))
        used["backup"].append(await _cpu("store", "backup", file, "--dir", plane, "--overwrite"))
        restored = run.directory / "restored"
        shutil.rmtree(restored, ignore_errors=True)
        restored.mkdir(mode=0o700)
        shutil.copy2(plane / "encryption.key", restored)
        used["restore"].append(await _cpu("store", "restore", file, "--dir", restored))
    ratios = [restore / write for restore, write in zip(used["restore"], used["write"], strict=True)]
    title = f"restore of {count:,} objects: CPU ÷ writing them in batches"
    return [
        measure.Figure("restore.ratio", title, "×", ratios, LIMIT_RATIO),
        *(
            measure.Figure(f"restore.{name}", f"  {about}, per object", "µs", measure.microseconds(used[name], count))
            for name, about in (
                ("write", "writing in batches"),
                ("restore", "restore, the command"),
                ("backup", "backup, the command"),
            )
        ),
        measure.Figure("restore.bytes", "  the backup, per object", "bytes", [file.stat().st_size / count]),
    ]


async def _entries(path: pathlib.Path) -> Sequence[protocol.Entry]:
    there = snapshot.Snapshot(str(path))
    try:
        return [entry async for page in there.pages() for entry in page]
    finally:
        there.end()


async def _written(path: pathlib.Path, entries: Sequence[protocol.Entry]) -> float:
    """The CPU of writing all of them, as many at once as a restore does."""
    path.unlink(missing_ok=True)
    begun = time.process_time()
    store = await engine.open_store(str(path))
    for at in range(0, len(entries), transfer.IN_FLIGHT):
        batch = entries[at : at + transfer.IN_FLIGHT]
        await asyncio.gather(*(store.create(entry.key, entry.value) for entry in batch))
    await store.close()
    return time.process_time() - begun


async def _cpu(*words: object) -> float:
    """The CPU of one command."""
    command = [sys.executable, "-m", "handfast", *map(str, words)]

    def done() -> float:
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        pid = os.posix_spawn(command[0], command, dict(os.environ), file_actions=quiet)
        _, code, usage = os.wait4(pid, 0)
        if code:
            raise RuntimeError(f"{' '.join(command)} ended with {code}")
        return usage.ru_utime + usage.ru_stime

    return await asyncio.to_thread(done)

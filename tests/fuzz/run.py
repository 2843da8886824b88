# SPDX-License-Identifier: Apache-2.0
"""One target under atheris, in this process: `python -m tests.fuzz.run TARGET [options of libFuzzer]`. `tests.fuzz` runs them all.

Whatever breaks a promise is printed as hex, with the command that runs it again.
"""

from __future__ import annotations

import pathlib
import random
import shlex
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import atheris

import handfast
from tests.fuzz import mutations, table


def main(arguments: Sequence[str]) -> None:
    target, options = table.TARGETS[arguments[0]], list(arguments[1:])
    left = _unwatched(target)
    with atheris.instrument_imports(include=list(target.watched), exclude=left, enable_loader_override=False):
        from tests.fuzz import promises

        run = target.load()

    def one(data: bytes) -> None:
        random.seed(0)
        try:
            promises.bounded(run, data)
        except BaseException:
            print(f"FOUND by {target.name}: {data.hex()}", file=sys.stderr)
            print(f"again with: python -m tests.fuzz --replay {target.name} {data.hex() or '00'}", file=sys.stderr)
            raise

    more: dict[str, Any] = {"custom_mutator": _json_change} if target.is_json else {}
    with tempfile.TemporaryDirectory() as folder:
        atheris.Setup(
            [_itself(pathlib.Path(folder), target.name), *options, *_seeds(target, folder, options)], one, **more
        )
        atheris.Fuzz()


def _unwatched(target: table.Target) -> list[str]:
    """Every other module. Of an included name atheris reads the first part only: without this all of Handfast is watched, which takes seconds to begin, and
    counts paths that no input of the target is about."""
    root = pathlib.Path(handfast.__path__[0])
    paths = (path.parent if path.stem == "__init__" else path.with_suffix("") for path in root.rglob("*.py"))
    names = (".".join(path.relative_to(root.parent).parts) for path in paths)
    return [name for name in names if not f"{name}.".startswith(tuple(f"{each}." for each in target.watched))]


def _seeds(target: table.Target, folder: str, options: Sequence[str]) -> list[str]:
    """The corpus in files. To merge, their folder; else a list: the order of a folder is not always the same, and all that follows depends on it."""
    inputs = pathlib.Path(folder) / "inputs"
    inputs.mkdir()
    paths = [inputs / f"{number:04}" for number, _ in enumerate(target.inputs())]
    for path, data in zip(paths, target.inputs(), strict=True):
        path.write_bytes(data)
    if any("merge" in option for option in options):
        return [str(inputs)]
    listed = pathlib.Path(folder) / "list"
    listed.write_text(",".join(map(str, paths)))
    return [f"-seed_inputs=@{listed}"]


def _itself(folder: pathlib.Path, name: str) -> str:
    """A program that runs this target: libFuzzer starts itself anew to merge."""
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.fuzz.run {name} "$@"\n')
    program.chmod(0o700)
    return str(program)


def _json_change(data: bytes, max_size: int, seed: int) -> bytes:
    return mutations.json_change(data, seed, max_size, atheris.Mutate)


if __name__ == "__main__":
    main(sys.argv[1:])

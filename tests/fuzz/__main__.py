# SPDX-License-Identifier: Apache-2.0
"""Run the targets: all for some time, one input again, or what was found put together: docs/fuzzing.md. It judges nothing.

    python -m tests.fuzz --seconds 60 [TARGET …]     all of these together, two at a time
    python -m tests.fuzz --replay TARGET HEX          one input, without atheris
    python -m tests.fuzz --keep FOLDER [TARGET …]     few inputs that reach what FOLDER and the corpus reach

With --found FOLDER, new inputs are kept there, in a folder for each target.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tests.fuzz import promises, table

# The longest input: beyond it, changes say nothing new and every step takes longer.
MAX_LENGTH = 4096
# Bytes of one target's corpus.
_LARGEST = 20_000
_ROOT = pathlib.Path(__file__).parents[2]


def command(target: table.Target, *options: str) -> list[str]:
    """The process of one target; the seed is always the same."""
    words = (
        f"-max_len={MAX_LENGTH}",
        f"-dict={_ROOT / 'tests/fuzz/words.dict'}",
        "-seed=1",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-verbosity=0",
        "-print_final_stats=1",
    )
    return [sys.executable, "-m", "tests.fuzz.run", target.name, *words, *options]


def fuzz(target: table.Target, *options: str) -> tuple[int, str]:
    """The exit code of one target's process, and what it said."""
    # The order of sets is part of what is reached.
    variables = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        command(target, *options),
        cwd=_ROOT,
        env=variables,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if not line.startswith("INFO: ")]
    return ended.returncode, "\n".join(lines)


def for_seconds(targets: Sequence[table.Target], seconds: float, keep_in: pathlib.Path) -> int:
    """All targets, so long in all, on all processors; how many found something."""
    workers = os.cpu_count() or 1
    each = max(1, round(seconds * min(workers, len(targets)) / len(targets)))
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        jobs = {}
        for target in targets:
            folder = keep_in / target.name
            folder.mkdir(parents=True, exist_ok=True)
            # The first folder is where libFuzzer puts new inputs.
            options = (f"-max_total_time={each}", f"-artifact_prefix={keep_in}/{target.name}-", str(folder))
            jobs[pool.submit(fuzz, target, *options)] = target
        for job in concurrent.futures.as_completed(jobs):
            code, text = job.result()
            bad += code != 0
            runs = next((line.split()[-1] for line in text.splitlines() if "number_of_executed_units" in line), "?")
            print(f"{jobs[job].name:22} {'nothing' if not code else 'FOUND SOMETHING'} in {runs} inputs", flush=True)
            if code:
                print(text, flush=True)
    return bad


def keep(targets: Sequence[table.Target], folder: pathlib.Path) -> None:
    """Write down the smallest set of inputs that reaches all that these reach, by libFuzzer's merge; all together they stay small."""
    for target in targets:
        with tempfile.TemporaryDirectory() as chosen:
            (folder / target.name).mkdir(parents=True, exist_ok=True)
            code, text = fuzz(target, "-set_cover_merge=1", chosen, str(folder / target.name))
            inputs = [path.read_bytes() for path in pathlib.Path(chosen).iterdir()]
            if code or not inputs:
                print(f"{target.name}: not merged\n{text}")
                continue
            target.keep(_few(inputs))
            print(f"{target.name:22} {len(target.inputs())} inputs, {target.corpus.stat().st_size} bytes")


def _few(inputs: Sequence[bytes]) -> list[bytes]:
    """So many as the corpus of one target may have: of too many every second, by length, so that short and long ones stay."""
    few = sorted(inputs, key=lambda data: (len(data), data))
    while sum(len(repr(data)) for data in few) > _LARGEST:
        few = few[1::2]
    return few


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--found", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "HEX"))
    parser.add_argument("targets", nargs="*", choices=[[], *table.TARGETS])
    options = parser.parse_args(arguments)
    if options.replay:
        name, text = options.replay
        promises.bounded(table.TARGETS[name].load(), bytes.fromhex(text))
        return 0
    targets = [table.TARGETS[name] for name in options.targets or table.TARGETS]
    if options.keep:
        keep(targets, options.keep)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return 1 if for_seconds(targets, options.seconds, options.found or pathlib.Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/pictures/console.png: the console of a real control plane, in Debian's Chromium. It invents nothing, and uses public commands only.

1. `handfast up --console` starts in a temporary directory, on free ports. Certificates live ten days, so that their end is in the picture.
2. Machines join with tokens, and run their agents. One is stolen and revoked, one never starts its agent, and one comes with a token that was used.
3. The browser opens the address of `handfast console --url`. When the page shows all of that, it is kept: light, as wide as a page of the README.
4. Everything is stopped and removed, whatever happens.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from playwright import sync_api as playwright

from handfast.runtime import clock as clocks

ROOT: Final = pathlib.Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "pictures" / "console.png"
WIDTH, HEIGHT = 1280, 880
# No picture of the README is larger than this, in octets.
LARGEST: Final = 150_000
PAGE: Final = "/"
# Seconds, of a machine under load.
_PATIENCE: Final = 180
_HANDFAST: Final = (sys.executable, "-m", "handfast")
_FREE: Final = tuple(word for role in ("", "admin-", "console-") for word in (f"--{role}listen", "127.0.0.1:0"))
_GOOD: Final = ("web-1", "web-2", "web-3", "db-1", "db-2")
_ABSENT, _STOLEN, _LATECOMER = "edge-1", "edge-2", "edge-3"


class World:
    """A directory with a control plane and its machines, and the processes that run there."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.data = directory / "data"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> None:
        """A command that stays."""
        with (self._directory / "log").open("ab") as log:
            self._running.append(
                subprocess.Popen([*_HANDFAST, *words], cwd=self._directory, env=_environment(), stdout=log, stderr=log)
            )

    def run(self, *words: str, code: int = 0) -> str:
        """What a command printed, which has to end with this code."""
        ended = subprocess.run(
            [*_HANDFAST, *words],
            cwd=self._directory,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        if ended.returncode != code:
            raise SystemExit(f"error: handfast {words[0]} ended with {ended.returncode}, not {code}:\n{ended.stderr}")
        return ended.stdout

    def is_ready(self) -> bool:
        """Whether every role runs; whoever has ended by itself ends this, too."""
        if any(process.poll() is not None for process in self._running):
            raise SystemExit(f"error: a process has ended:\n{(self._directory / 'log').read_text()}")
        return "Handfast is ready" in (self._directory / "log").read_text()

    def stop(self) -> None:
        """The control plane is the first, and ends last."""
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _environment() -> dict[str, str]:
    """This process's own, without what would change the settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HANDFAST_", "KUBECONFIG"))}


def _wait(question: Callable[[], bool], what: str) -> None:
    clock = clocks.SystemClock()
    end = clock.monotonic() + _PATIENCE
    while not question():
        if clock.monotonic() > end:
            raise SystemExit(f"error: waited {_PATIENCE} s for {what}")
        time.sleep(0.5)


def _files(name: str) -> tuple[str, ...]:
    return ("--node-name", name, "--kubeconfig", f"{name}/kubelet.conf", "--cert-dir", f"{name}/pki")


def _join(world: World, command: Sequence[str], name: str, code: int = 0) -> None:
    world.run(*command, *_files(name), "--bootstrap-kubeconfig", f"{name}/bootstrap.conf", code=code)


def _fill(world: World) -> None:
    """Machines that join, and some that give an operator something to look at."""
    data = ("--dir", "data")
    create = ("token", "create", *data, "--print-join-command", "--ttl", "1h")
    shared = world.run(*create, "--description", "the rack by the window", "--max-uses", "8").split()[1:]
    single = world.run(*create, "--description", "one machine at the edge", "--max-uses", "1").split()[1:]
    for name in (*_GOOD, _STOLEN):
        _join(world, shared, name)
        world.start("node", "run", *_files(name), "--rotate-certificates", "--listen", "127.0.0.1:0")
    _join(world, single, _ABSENT)
    _join(world, single, _LATECOMER, code=1)
    world.run("node", "revoke", _STOLEN, *data, "--reason", "stolen")
    _wait(lambda: world.run("node", "list", *data).count(" good ") == len(_GOOD), "the machines")


@contextlib.contextmanager
def _browser() -> Iterator[playwright.Browser]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        raise SystemExit("error: there is no chromium\nhint: `make deps` installs it, or set CHROMIUM to its path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def _photograph(world: World, page_path: str, out: pathlib.Path) -> None:
    with _browser() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.set_default_timeout(_PATIENCE * 1000)
        address = world.run("console", "--url", "--dir", "data").strip()
        page.goto(address)
        page.goto(address.partition("/open?")[0] + page_path)
        page.get_by_text("live", exact=True).first.wait_for()
        # By then it knows of the machine that is absent, and of the join that was refused.
        page.get_by_text(_ABSENT).first.wait_for()
        if page_path == PAGE:
            page.get_by_text("TokenUsedUp").first.wait_for()
        # As high as what it shows, and not higher.
        height = page.evaluate("Math.ceil(document.querySelector('footer').getBoundingClientRect().bottom) + 12")
        page.screenshot(path=out, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


def main() -> None:
    """Start it, fill it, keep the picture."""
    parser = argparse.ArgumentParser(description="Keep a picture of the console as docs/pictures/console.png.")
    parser.add_argument("--out", type=pathlib.Path, default=PICTURE, help="Where the picture goes.")
    parser.add_argument("--page", default=PAGE, help="The path of the page.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="handfast-screenshot-") as directory:
        world = World(pathlib.Path(directory))
        try:
            world.start("up", "--dir", "data", "--console", "--cluster-signing-duration", "240h", *_FREE)
            _wait(world.is_ready, "the control plane")
            _fill(world)
            _photograph(world, options.page, options.out)
        finally:
            world.stop()
    size = options.out.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"error: {options.out} has {size} octets, and {LARGEST} are allowed")
    print(f"{options.out}: {size} octets")


if __name__ == "__main__":
    main()

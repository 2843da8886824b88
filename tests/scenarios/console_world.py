# SPDX-License-Identifier: Apache-2.0
"""The console of a running control plane, and Chromium in front of it.

A file of tests has one browser (playwright's own loop would be in the way of other tests of the process), and a process of tests has one control plane.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import pathlib
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib import parse as urls

import axe_playwright_python.sync_playwright as axe_module
import pytest
from playwright import sync_api as playwright

from handfast.api import signer_names
from handfast.cli import console_keys
from handfast.datadir import layout
from handfast.pki import keys, names, requests
from handfast.rules import user_names
from tests.page_facts import ROOT
from tests.scenarios import up_world

SHOTS = pathlib.Path(os.environ.get("CONSOLE_SHOTS") or ROOT / ".venv" / "console-shots")
PHONE: playwright.ViewportSize = {"width": 390, "height": 844}
DESK: playwright.ViewportSize = {"width": 1280, "height": 860}
# A name of somebody else's that leads here, as after DNS rebinding.
REBOUND = "rebound.example"


class Served:
    """A console that runs, and a session of it."""

    def __init__(self, base: str, address: Callable[[], str]) -> None:
        self.base = base
        # One that opens it once.
        self.address = address
        self._cookie: tuple[str, str] | None = None

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: str = ""
    ) -> tuple[int, Any, str]:
        """What no browser would send: code, headers and text."""
        at = urls.urlsplit(self.base)
        with contextlib.closing(http.client.HTTPConnection(at.hostname or "", at.port, timeout=30)) as connection:
            connection.request(method, path, body or None, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def cookie(self) -> dict[str, Any]:
        """A session, opened once for all tests of the process."""
        if self._cookie is None:
            code, headers, text = self.request("GET", self.address().removeprefix(self.base))
            assert code == 303, text
            name, _, value = headers["Set-Cookie"].partition(";")[0].partition("=")
            self._cookie = (name, value)
        return {
            "name": self._cookie[0],
            "value": self._cookie[1],
            "url": self.base,
            "httpOnly": True,
            "sameSite": "Strict",
        }


class Console(Served):
    """The console of a control plane that runs with one."""

    FLAGS = ("--console", "--console-listen", "127.0.0.1:0")

    def __init__(self, plane: up_world.Up) -> None:
        # As `handfast console --url` prints it.
        super().__init__(plane.facts["console"], lambda: console_keys.address(layout.Layout.at(plane.directory)))
        self.plane = plane


class Wire:
    """A proxy between a browser and the console, which can be cut: connections end, and new ones are turned away."""

    def __init__(self, base: str) -> None:
        at = urls.urlsplit(base)
        self._there = (at.hostname or "", at.port or 80)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._door.accept()
                if not self._whole:
                    here.close()
                    continue
                there = socket.create_connection(self._there)
                self._open += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._whole = False
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def mend(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        self._door.close()


class Viewer:
    """Somebody at a browser: opens pages in contexts of their own, and keeps pictures of them."""

    def __init__(self, browser: playwright.Browser, served: Served) -> None:
        self._browser = browser
        self._served = served
        self._contexts: list[playwright.BrowserContext] = []

    def context(self, *, signed_in: bool = True, **options: Any) -> playwright.BrowserContext:
        """A browser of its own; `viewport`, `color_scheme`, `java_script_enabled` and more are playwright's."""
        options.setdefault("viewport", DESK)
        context = self._browser.new_context(base_url=self._served.base, **options)
        context.set_default_timeout(60_000)
        if signed_in:
            context.add_cookies([self._served.cookie()])  # type: ignore[list-item]  # a dict with the same keys
        self._contexts.append(context)
        return context

    def page(self, path: str = "/", **options: Any) -> playwright.Page:
        """A page that is open. What the browser refuses to run, or a script that fails, fails the test."""
        page = self.context(**options).new_page()
        page.on("pageerror", self._failed)
        page.on("console", self._complain)
        page.goto(path)
        return page

    @staticmethod
    def _failed(error: playwright.Error) -> None:
        pytest.fail(f"a script failed: {error}")

    @staticmethod
    def _complain(said: playwright.ConsoleMessage) -> None:
        # A stream that is cut, and a page that says so, are part of the tests.
        if said.type == "error" and ("Content Security Policy" in said.text or "Refused to" in said.text):
            pytest.fail(said.text)

    @staticmethod
    def picture(page: playwright.Page, name: str) -> pathlib.Path:
        """Kept, to be looked at."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        page.screenshot(path=path, full_page=True)
        return path

    def close(self) -> None:
        for context in self._contexts:
            context.close()


class Looker(Viewer):
    """Somebody in front of the console of a control plane."""

    def __init__(self, browser: playwright.Browser, console: Console) -> None:
        super().__init__(browser, console)
        self.console = console


def csr(name: str, of: str = "console-node") -> dict[str, Any]:
    """A request for a node's certificate that waits for a person."""
    pem = requests.build(user_names.node_subject(of), names.Sans(), keys.generate())
    spec = {
        "signerName": signer_names.KUBELET_SERVING,
        "usages": ["digital signature", "server auth"],
        "request": base64.b64encode(pem).decode(),
    }
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }


def chromium() -> str:
    """The system's own, or no test."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium: scripts/test-peers.sh installs it")
        pytest.skip("there is no chromium; `make deps` installs it")
    return path


@contextlib.contextmanager
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as driver:
        # Tests run as root, and in containers with a small /dev/shm.
        words = [
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
        ]
        # People's browsers keep pages for going back; playwright's would not.
        kept = ["--disable-back-forward-cache"]
        made = driver.chromium.launch(executable_path=chromium(), args=words, ignore_default_args=kept)
        yield made
        made.close()


def tab_to(page: playwright.Page, words: str) -> None:
    """By the Tab key alone, as far as what is called so."""
    # Without what is beside it, as the number of a page in the navigation.
    named = "(each) => ((each.labels && each.labels[0]) || each).innerText.split(',')[0].trim()"
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate_handle("document.activeElement").evaluate(named) == words:
            return
    pytest.fail(f"Tab does not lead to {words!r}")


def require_accessible(page: playwright.Page, *, colours_alone: bool = False) -> None:
    """axe-core finds nothing against WCAG 2.2 AA; or nothing in the colours, of a page that was looked at whole in others."""
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    only = {"type": "rule", "values": ["color-contrast"]} if colours_alone else {"type": "tag", "values": rules}
    # What it finds in order is not needed: to tell of it took half of the time.
    options = {"runOnly": only, "resultTypes": ["violations"]}
    found = axe_module.Axe().run(page, options=options)
    assert found.violations_count == 0, found.generate_report()


def require_no_sideways_scroll(page: playwright.Page) -> None:
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, f"the page is {wider} px wider than the window"
    # Nor does a table or a command in its place: what is beyond its edge is not seen.
    within = page.evaluate(
        "[...document.querySelectorAll('.window, .scroll, .holder, pre')].filter((each) => each.scrollWidth > each.clientWidth)"
        ".map((each) => each.innerText.slice(0, 80))"
    )
    assert not within, f"wider than its place: {within}"

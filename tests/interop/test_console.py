# SPDX-License-Identifier: Apache-2.0
"""The console as a client of a stock kube-apiserver: `handfast console` knows no other API server than the kubeconfig's.

Every page is whole there; what that server does not have is a sentence, and an action is the operator's own request. Where there is no
kube-apiserver this is not proven: see `clusters`.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import json
import pathlib
import re
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.interop import clusters, running, tools

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGES = ("/", "/requests", "/tokens", "/tokens/new", "/nodes", "/machines", "/mesh", "/ledger", "/check", "/store")


class Browser:
    """The half of HTTP that a browser has: a cookie, and forms of the pages."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        assert parts.hostname is not None
        self._line = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=30)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._cookie = ""
        answer, _ = self.ask("GET", f"{parts.path}?{parts.query}")
        assert answer.status == 303
        self._cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> tuple[http.client.HTTPResponse, str]:
        headers = {"Cookie": self._cookie, "Origin": self._origin, "Sec-Fetch-Site": "same-origin"}
        body = None
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urllib.parse.urlencode(form)
        self._line.request(method, path, body, headers)
        answer = self._line.getresponse()
        return answer, answer.read().decode()

    def close(self) -> None:
        self._line.close()

    def page(self, path: str) -> str:
        answer, text = self.ask("GET", path)
        assert answer.status == 200, (path, text)
        return text


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with clusters.kube_apiserver(tmp_path_factory.mktemp("kube-apiserver")) as found:
        found.handfast("init", "--token", "")
        yield found


@pytest.fixture(scope="module")
def browser(cluster: clusters.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    log = tmp_path_factory.mktemp("console") / "console.log"
    words: list[object] = [*tools.HANDFAST, "console", "--kubeconfig", cluster.kubeconfig, "--listen", "127.0.0.1:0"]
    with running.process([*words, "-o", "json"], log):
        running.eventually(lambda: address_in(log), f"the console: {log}")
        with contextlib.closing(Browser(address_in(log))) as opened:
            yield opened


def address_in(log: pathlib.Path) -> str:
    """The one-time address that the console has printed; empty: none yet."""
    found = re.search(r"http://127\.0\.0\.1:\d+/open\?code=[^\"\s]+", log.read_text())
    return "" if found is None else found[0]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_whole_on_a_stock_server(browser: Browser, path: str) -> None:
    running.eventually(lambda: "reading" not in re.sub(r"<[^>]*>", " ", browser.page(path)).lower().split(), path)
    text = browser.page(path)
    assert "</html>" in text
    assert "this page could not be made" not in text


def test_what_the_server_does_not_have_is_a_sentence(browser: Browser) -> None:
    running.eventually(lambda: "handfast mesh install" in html.unescape(browser.page("/mesh")), "that there is no mesh")
    running.eventually(
        lambda: "handfast up --machines" in html.unescape(browser.page("/machines")), "that there are none"
    )
    running.eventually(lambda: "etcdctl endpoint status" in browser.page("/store"), "who knows how its store is")


def test_a_token_is_made_by_the_operators_own_request(cluster: clusters.Cluster, browser: Browser) -> None:
    form = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', browser.page("/tokens/new")))
    wanted = {"description": "rack 7", "ttl": "2h", "max-uses": "1", "signing": "yes", "authentication": "yes"}
    _, text = browser.ask("POST", "/tokens/new", {**form, **wanted})
    found = re.search(r"--token (\w{6})\.\w{16}", html.unescape(text))
    assert found is not None, text
    listed = json.loads(cluster.handfast("token", "list", "-o", "json").stdout)
    assert found[1] in json.dumps(listed)
    running.eventually(lambda: found[1] in browser.page("/tokens"), "the token in the list")
    assert found[0] not in browser.page(f"/tokens/{found[1]}")

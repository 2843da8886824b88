# SPDX-License-Identifier: Apache-2.0
"""Nobody goes around `serving`: two rules that are finer than an import.

What aiohttp does not promise to keep is used in one file, `serving/aiohttp_parts.py`:

1. A private name of one of aiohttp's classes is asked of nobody but `self`, in any module that can have such an object.
2. In a class that stands on one of aiohttp's it is not asked of `self` either.
3. No private name of one of aiohttp's modules is imported or used.

Whoever accepts connections does so through `serving`:

4. No other room uses aiohttp's server, another library's or asyncio's own, or makes a server's TLS; but for `wire`, the door of gRPC.
"""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Iterator

import aiohttp
import pytest
from aiohttp import web

from tests import source_text

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "handfast"
FENCE = SOURCE / "serving" / "aiohttp_parts.py"
CLASSES = (web.RequestHandler, web.BaseRequest, web.StreamResponse, web.Response, web.Server, aiohttp.StreamReader)
# Attributes that only instances have.
OF_INSTANCES = frozenset({*web.BaseRequest.ATTRS, "_connections", "_kwargs", "_chunked", "_cookies", "_payload_writer"})
# Where such an object comes from, if not from aiohttp itself.
LENDERS = frozenset({"connection", "service", "call", "sending"})

# 4. What makes a server: names that mean it wherever they stand, and names of one owner.
SERVERS = frozenset(
    {
        *("AppRunner", "ServerRunner", "SockSite", "TCPSite", "UnixSite", "web_protocol", "web_runner", "web_server"),
        *("connect_accepted_socket", "create_unix_server", "start_server", "start_unix_server"),
        *("HTTPServer", "ThreadingHTTPServer", "TCPServer", "PROTOCOL_TLS_SERVER", "sslobject_class", "sni_callback"),
        *("web.Application", "web.RequestHandler", "web.Server", "web.run_app", "Purpose.CLIENT_AUTH"),
        # asyncio's; that of `socket` only binds.
        *("loop.create_server", "_loop.create_server", "get_running_loop().create_server"),
    }
)


@functools.cache
def private() -> frozenset[str]:
    names = {name for kind in CLASSES for name in dir(kind)} | OF_INSTANCES
    return frozenset(name for name in names if name.startswith("_") and not name.startswith("__"))


def can_have_one(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name.startswith("aiohttp") for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (
            str(node.module).startswith("aiohttp") or any(alias.name in LENDERS for alias in node.names)
        ):
            return True
    return False


def modules_of_aiohttp(tree: ast.Module) -> set[str]:
    """The names under which modules of aiohttp are known here."""
    found = {"aiohttp"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aiohttp"):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def heirs(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Classes that stand on one of aiohttp's, or on the fence's."""
    known = modules_of_aiohttp(tree) | {"aiohttp_parts", "connection", "connection_module"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(
            isinstance(part, ast.Name) and part.id in known for base in node.bases for part in ast.walk(base)
        ):
            yield node


def reached(content: str) -> list[str]:
    """What a module uses that it may not."""
    tree = source_text.tree(content)
    if not can_have_one(tree):
        return []
    modules = modules_of_aiohttp(tree)
    inside = {id(part) for heir in heirs(tree) for part in ast.walk(heir)}
    wrong = []
    for node in ast.walk(tree):
        # 3. imported
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aiohttp"):
            wrong += [f"{node.lineno} {alias.name}" for alias in node.names if alias.name.startswith("_")]
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        owner = node.value.id if isinstance(node.value, ast.Name) else None
        is_module = owner in modules
        # 1. of others, 2. of oneself
        is_theirs = node.attr in private() and (owner != "self" or id(node) in inside)
        if is_module or is_theirs:
            wrong.append(f"{node.lineno} {ast.unparse(node)}")
    return wrong


def _last(owner: ast.expr) -> str:
    match owner:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return f"{_last(function)}()"
    return ""


def around(content: str) -> list[str]:
    """4. How a module serves by itself."""
    wrong = []
    for node in ast.walk(source_text.tree(content)):
        if isinstance(node, ast.Attribute):
            owner = _last(node.value)
            wrong += [f"{node.lineno} {name}" for name in (node.attr, f"{owner}.{node.attr}") if name in SERVERS]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            parts = [part for alias in node.names for part in alias.name.split(".")]
            wrong += [f"{node.lineno} {name}" for name in parts if name in SERVERS]
    return wrong


def test_only_serving_serves():
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent.name not in {"serving", "wire"}]
    assert [f"{path.relative_to(SOURCE)}:{wrong}" for path in paths for wrong in around(path.read_text())] == []


def test_serving_serves():
    assert sum(len(around(path.read_text())) for path in (SOURCE / "serving").glob("*.py")) > 5


@pytest.mark.parametrize(
    "code",
    [
        "from aiohttp import web_server",
        "import aiohttp.web_runner",
        "web.Server(f)",
        "ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)",
        "ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)",
        "asyncio.start_server(f)",
        "self._loop.create_server(f)",
        "from http.server import HTTPServer",
    ],
)
def test_a_way_around_is_seen(code):
    assert len(around(code)) == 1


def test_a_bound_socket_is_no_server():
    assert around("sock = socket.create_server(address)") == []


def test_only_the_fence_reaches_into_aiohttp():
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if path != FENCE]
    assert [f"{path.relative_to(SOURCE)}:{wrong}" for path in paths for wrong in reached(path.read_text())] == []


def test_the_fence_is_needed():
    assert len(reached(FENCE.read_text())) > 20


@pytest.mark.parametrize(
    "code",
    [
        "from aiohttp import web\ndef f(http): return http._message.path",
        "from handfast.serving import connection\ndef f(http): return http._message.path",
        "from aiohttp import web_protocol\nweb_protocol._ErrInfo",
        "from aiohttp.web_protocol import _ErrInfo",
        "from aiohttp import web\nclass A(web.RequestHandler):\n    def f(self): return self._messages",
        "from handfast.serving import aiohttp_parts as p, service\nclass A(service.B):\n    def f(self, c): c._waiter",
    ],
)
def test_a_hole_is_seen(code):
    assert len(reached(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "from aiohttp import web\ndef f(http): return http.raw_path",
        "from aiohttp import web\nclass A:\n    def f(self): return self._loop",
        "def f(http): return http._message",
    ],
)
def test_what_is_no_hole_passes(code):
    assert reached(code) == []

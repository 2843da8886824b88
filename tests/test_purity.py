# SPDX-License-Identifier: Apache-2.0
"""The deciding half sees values and gives verdicts: an allow-list of what `api`, `pki`, `bootstrap` and `rules` import.

The import contracts forbid what is known to be wrong. This forbids everything that nobody has given a reason for.

1. A module imports from its own room, the rooms below it and `handfast.errors`; nothing else of this program.
2. Of other libraries it imports what `ALLOWED` names, in the places that it names. An entry that nobody uses fails.
3. It asks no clock, opens no file, prints nothing, and runs no text as code.
"""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests import source_text

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "handfast"
# Lowest first: a room may import itself and what stands before it.
ROOMS = ("api", "pki", "bootstrap", "rules")
EVERYWHERE = ROOMS


@dataclass(frozen=True)
class Allowed:
    """Where a library may be imported (rooms, or single modules by their dotted name), and why that is harmless."""

    where: tuple[str, ...]
    reason: str


ALLOWED: Mapping[str, Allowed] = {
    "__future__": Allowed(EVERYWHERE, "annotations stay text"),
    "array": Allowed(("rules.console.ledger", "rules.console.ledger_index"), "instants in eight octets each"),
    "base64": Allowed(EVERYWHERE, "an encoding"),
    "binascii": Allowed(EVERYWHERE, "the errors of base64"),
    "bisect": Allowed(("rules.console.ledger", "rules.console.node_table"), "a place in a sorted list"),
    "cel_expr_python": Allowed(("api.cel.engine",), "evaluates expressions that users send, within bounds"),
    "collections": Allowed(EVERYWHERE, "types of containers"),
    "copy": Allowed(("api",), "documents are copied before they are changed"),
    "cryptography": Allowed(("pki",), "keys and certificates; no other room touches it"),
    "csv": Allowed(("rules.machines.inventory_file",), "the grammar of a line of cells"),
    "dataclasses": Allowed(EVERYWHERE, "facts that hide a field or are copied with changes are frozen dataclasses"),
    "datetime": Allowed(EVERYWHERE, "instants as values; asking for the present is refused below"),
    "decimal": Allowed(("api", "rules.limit_ranges", "rules.pod_resources", "rules.quotas"), "quantities are exact"),
    "difflib": Allowed(("rules.mesh.settings",), "the nearest key to a misspelt one"),
    "enum": Allowed(EVERYWHERE, "names for a few values"),
    "functools": Allowed(EVERYWHERE, "caches of pure functions"),
    "hashlib": Allowed(EVERYWHERE, "digests"),
    "heapq": Allowed(
        ("rules.console.node_table", "rules.machines.pressure", "rules.mesh.issued"), "what counts next, in order"
    ),
    "hmac": Allowed(EVERYWHERE, "comparison in constant time"),
    "importlib.resources": Allowed(
        ("api.schema.schema", "api.openapi.descriptions"),
        "reads the packaged schema and its descriptions, once: data of the program itself",
    ),
    "ipaddress": Allowed(EVERYWHERE, "grammar of addresses"),
    "itertools": Allowed(
        (
            "rules.console.ledger",
            "rules.console.ledger_index",
            "rules.console.overview",
            "rules.machine_config.merging",
            "rules.mesh.manifests",
        ),
        "neighbours in a list",
    ),
    "shlex": Allowed(EVERYWHERE, "quoting of command lines that people paste"),
    "json": Allowed(EVERYWHERE, "texts of messages, and JSON where msgspec is too lenient or too strict"),
    "math": Allowed(EVERYWHERE, "NaN and infinities"),
    "msgspec": Allowed(EVERYWHERE, "JSON to typed values, and facts that are frozen structs, in C"),
    "operator": Allowed(EVERYWHERE, "functions for keys and sums"),
    "re": Allowed(EVERYWHERE, "patterns written here; never one that a user sent"),
    "re2": Allowed(
        ("api.cel.estimate", "api.cel.patterns", "api.custom.structural_values"),
        "patterns that users send, in linear time",
    ),
    "secrets": Allowed(("pki.authority", "pki.seal"), "serial numbers and nonces have to be random"),
    "struct": Allowed(("api.codec.protobuf", "api.openapi.gnostic"), "floats of the wire format"),
    "sys": Allowed(("api.schema.structs",), "the largest float, and nothing else of it: see below"),
    "types": Allowed(EVERYWHERE, "read-only mappings and types made from the schema"),
    "typing": Allowed(EVERYWHERE, "types"),
    "urllib.parse": Allowed(EVERYWHERE, "grammar of URLs; the part of urllib that opens none"),
    "warnings": Allowed(("pki.names",), "a library warns about names that are judged here anyway"),
    "zlib": Allowed(
        ("rules.machine_config.data_urls", "rules.console.ledger_index"),
        "unpacks gzip up to a limit, and what it packed itself",
    ),
    "yaml": Allowed(
        ("api.codec.yaml_document", "bootstrap.kubeconfig"), "the parser's events; documents are built here"
    ),
}

# Of `sys` only this: the module as a whole knows streams and arguments.
SYS_NAMES = frozenset({"float_info"})
CLOCKS = frozenset({"now", "utcnow", "today"})
BUILTINS = frozenset({"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"})


@dataclass(frozen=True)
class Import:
    """`name` is the module asked for, or module and name where only the source can tell which it is."""

    module: str
    name: str
    line: int

    def under(self, allowed: str) -> bool:
        return f"{self.name}.".startswith(f"{allowed}.")


@functools.cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """Every module of the deciding half as `room.module` or `room.subroom.module`."""
    paths = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
    return tuple((dotted(path), source_text.tree(path.read_text())) for path in paths)


def dotted(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imports(module: str, tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(module, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from . import x` hides which room x is in.
            source = "." * node.level + (node.module or "")
            yield from (Import(module, f"{source}.{alias.name}", node.lineno) for alias in node.names)


def entry(found: Import) -> str | None:
    """The row of `ALLOWED` that this import falls under."""
    return next((name for name in ALLOWED if found.under(name)), None)


def is_own(found: Import) -> bool:
    room = found.module.partition(".")[0]
    below = ROOMS[: ROOMS.index(room) + 1]
    return found.under("handfast.errors") or any(found.under(f"handfast.{name}") for name in below)


def refused(module: str, tree: ast.Module) -> list[str]:
    """What is wrong with the imports of one module."""
    wrong = []
    for found in imports(module, tree):
        # 1.
        if is_own(found):
            continue
        # 2.
        name = entry(found)
        room = module.partition(".")[0]
        if name is None:
            wrong.append(f"{module}:{found.line} imports {found.name}, which nobody gave a reason for")
        elif not {room, module} & set(ALLOWED[name].where):
            wrong.append(f"{module}:{found.line} imports {found.name}, which is for {', '.join(ALLOWED[name].where)}")
    return wrong


def effects(module: str, tree: ast.Module) -> list[str]:
    """3: what one module would do to the world, or ask of it."""
    wrong = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name not in SYS_NAMES:
                wrong.append(f"{module}:{node.lineno} uses sys.{name}")
        if isinstance(node, ast.ImportFrom) and node.module == "sys":
            wrong.append(f"{module}:{node.lineno} hides that it uses sys")
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
            wrong.append(f"{module}:{node.lineno} asks a clock: {ast.unparse(node.func)}()")
        if isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            wrong.append(f"{module}:{node.lineno} calls {node.func.id}()")
    return wrong


def test_every_room_was_looked_at():
    """An empty room would pass every test below."""
    assert {module.partition(".")[0] for module, _ in modules()} == set(ROOMS)


def test_every_import_has_a_reason():
    assert [line for module, tree in modules() for line in refused(module, tree)] == []


def test_nothing_touches_the_world():
    assert [line for module, tree in modules() for line in effects(module, tree)] == []


def test_every_entry_is_used_and_has_a_reason():
    """A room that never used its permission keeps it; an entry nobody uses, or a named module that does not, goes."""
    used = {(entry(found), module) for module, tree in modules() for found in imports(module, tree)}
    names = {name for name, _ in used}
    assert sorted(set(ALLOWED) - names) == [], "not imported any more"
    for name, allowed in ALLOWED.items():
        assert allowed.reason, name
        single = [place for place in allowed.where if "." in place]
        assert [place for place in single if (name, place) not in used] == [], f"{name}: not imported there any more"


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("rules.access", "import os"),
        ("rules.access", "from os import path"),
        ("rules.access", "def f():\n    import time"),
        ("rules.access", "from handfast.runtime import clock"),
        ("rules.access", "from handfast import store"),
        ("rules.access", "from handfast.errors_of_others import x"),
        ("api.kinds", "from handfast.pki import keys"),
        ("api.kinds", "from handfast.rules import decision"),
        ("pki.keys", "from handfast import rules"),
        ("api.kinds", "import cryptography.x509"),
        ("api.kinds", "import importlib.resources"),
        ("api.kinds", "import importlib"),
        ("api.kinds", "from urllib import request"),
        ("api.kinds", "import urllib.request"),
        ("api.kinds", "from . import schema"),
        ("pki.keys", "import secrets"),
    ],
)
def test_a_wrong_import_is_seen(module, code):
    assert len(refused(module, ast.parse(code))) == 1


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("api.kinds", "from handfast import errors"),
        ("api.kinds", "from handfast.api import schema"),
        ("rules.access", "from handfast.pki import keys"),
        ("rules.access", "from urllib import parse"),
        ("api.kinds", "import urllib.parse as urls"),
        ("api.schema.schema", "from importlib import resources"),
        ("pki.keys", "from cryptography.hazmat.primitives import hashes"),
    ],
)
def test_a_right_import_passes(module, code):
    assert refused(module, ast.parse(code)) == []


@pytest.mark.parametrize(
    "code",
    [
        "datetime.datetime.now(datetime.UTC)",
        "datetime.datetime.utcnow()",
        "datetime.date.today()",
        "clock.now()",
        "open('x')",
        "print('x')",
        "eval('x')",
        "sys.stdin",
        "from sys import stdin",
    ],
)
def test_an_effect_is_seen(code):
    assert len(effects("rules.access", ast.parse(code))) == 1

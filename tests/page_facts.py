# SPDX-License-Identifier: Apache-2.0
"""What there is in the program that a page can name: commands, flags, settings, reasons, metrics, files, paths, variables.

Each set comes from the code itself, so that what goes from the code goes from its set. It reads no page.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterator, Mapping

import click
import prometheus_client

from handfast.api import handfast_kinds, kinds
from handfast.api.schema import schema
from handfast.apiserver import limits, nonresources
from handfast.assembly import config, node_config
from handfast.cli import main, output
from handfast.controllers import names as controller_names
from handfast.datadir import endpoints, layout
from handfast.node import certificate_store, report, serving, units
from handfast.proxy import admin as proxy_admin
from handfast.runtime import files as runtime_files
from tests import source_text

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "handfast"
# Where flags and variables of the tests and of the benchmark are read.
_TOOLS = ("bench", "scripts", "tests/interop", "tests/scenarios", "tests/world")
_CAMEL = re.compile(r"(?:[A-Z]+[a-z0-9]+)+[A-Z]*")


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that lead to it."""

    def below(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        yield words, command
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), name)
                assert found is not None
                yield from below((*words, name), found)

    yield from below((), main.command)


@functools.cache
def command_names() -> frozenset[str]:
    return frozenset(words[0] for words, _ in commands() if words)


def command_paths() -> frozenset[str]:
    """Every command that does something by itself, as it is typed."""
    return frozenset(
        " ".join(words) for words, command in commands() if not isinstance(command, click.Group) or "join" in words
    )


@functools.cache
def flags() -> frozenset[str]:
    own = {
        option
        for _, command in commands()
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    return frozenset(own | {"--help"} | {word for word in _words_of_tools() if word.startswith("--")})


@functools.cache
def variables() -> frozenset[str]:
    own = {row.variable for row in config.SETTINGS} | {output.DEBUG_VARIABLE}
    own |= {node_config.variable(row.flag) for row in node_config._SETTINGS}
    own |= {
        str(parameter.envvar)
        for _, command in commands()
        for parameter in command.params
        if parameter.envvar is not None
    }
    tools = {word for word in _words_of_tools() | texts() if re.fullmatch(r"[A-Z]+(?:_[A-Z]+)+", word)}
    return frozenset(own | tools)


@functools.cache
def controllers() -> frozenset[str]:
    return frozenset((*controller_names.NAMES, *controller_names.ALIASES))


@functools.cache
def fields() -> frozenset[str]:
    """Settings, and the fields of every kind and of what is written or asked in JSON or in a query."""
    found = {row.key for row in config.SETTINGS} | set(node_config.FIELDS)
    for name in schema.message_names():
        found |= schema.message(name).fields.keys()
    return frozenset(found | _properties(handfast_kinds._SPEC) | _renamed() | texts())


@functools.cache
def reasons() -> frozenset[str]:
    """Reasons, words of Events, kinds: all that is written in one word with capitals."""
    found = {row.kind for row in kinds.builtin()} | {str(row["kind"]) for row in schema.kind_rows()}
    return frozenset(found | {text for text in texts() if _CAMEL.fullmatch(text)})


@functools.cache
def limit_names() -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(limits.Limits))


def is_metric(name: str) -> bool:
    """A counter is declared without the `_total` that it is shown with."""
    process = {metric.name for metric in prometheus_client.ProcessCollector(registry=None).collect()}
    return any(is_written(one) or one in process for one in (name, name.removesuffix("_total")))


@functools.cache
def files() -> frozenset[str]:
    """Names in a data directory and in a node's, with and without their directories; and the modules, by room."""
    place = layout.Layout(pathlib.Path("/d"))
    named = [getattr(place, name) for name, value in vars(layout.Layout).items() if isinstance(value, property)]
    named += [place.store(str(row.default)) for row in config.SETTINGS if row.key == "store"]
    data = {str(path.relative_to("/d")) for path in named}
    data |= {text for text in texts() if re.fullmatch(r"audit/[\w.]+", text)}
    data |= {endpoints.FILE_NAME, runtime_files.LOCK_NAME, report.STATUS, report.ROTATE, units.NAME}
    data |= {f"{certificate_store.CLIENT}-current.pem", f"{place.store('store.db').name}.reserve"}
    data |= {serving.CERTIFICATE, serving.KEY, node_config.KUBECONFIG, node_config.BOOTSTRAP_KUBECONFIG}
    # A page of a room, or of a sub-room, names modules from there.
    whole = [path.relative_to(SOURCE).parts for path in SOURCE.rglob("*.py")]
    modules = {"/".join(parts[start:]) for parts in whole for start in range(len(parts))}
    tools = {text for text in _words_of_tools() if text.endswith(".json")}
    return frozenset(data | {path.rpartition("/")[2] for path in data} | modules | tools)


@functools.cache
def http_paths() -> frozenset[str]:
    """Those of no resource, the subresources, and those of a proxy's admin port."""
    modules = (nonresources.__file__, proxy_admin.__file__)
    written = "".join(pathlib.Path(path).read_text() for path in modules)
    found = set(re.findall(r"[\"'](/[\w./-]+)[\"']", written))
    return frozenset(
        found | {f"/{name}" for row in kinds.builtin() for name in (each.name for each in row.subresources)}
    )


def is_module(dotted: str) -> bool:
    """`module`, `room.module` or with a name in it, of the program; or a module of the tests and of the benchmark."""
    first, *rest = dotted.split(".")
    for base in (SOURCE, ROOT, *(path.parent for path in SOURCE.rglob(f"{first}.py"))):
        path, names = base / first, list(rest)
        while path.is_dir() and names:
            path = path / names.pop(0)
        if path.is_dir():
            return True
        if path.with_suffix(".py").is_file():
            return not names or re.search(rf"\b{names[0]}\b", path.with_suffix(".py").read_text()) is not None
    return False


def is_said(message: str) -> bool:
    """Whether the program says that: all pieces between what it fills in (`…`, quoted words, numbers), or the whole.

    What a check of health has to say follows its name.
    """
    filled = r"…|'[^']*'|\"[^\"]*\"|[()]|\b\d+\S*|^\[\+\]\w+ ok, but"
    pieces = [piece.strip(" ,.") for piece in re.split(filled, message)]
    return all(is_part(piece) for piece in pieces if " " in piece) or any(
        pattern.fullmatch(message) for pattern in _patterns(r".+")
    )


def is_part(text: str) -> bool:
    """Whether it is in some text of the program, or the version of a group."""
    return text in _all_texts() or any(text == f"{row.group}/{row.version}" for row in kinds.builtin())


@functools.cache
def _all_texts() -> str:
    return "\n".join(sorted(texts()))


@functools.cache
def classes() -> frozenset[str]:
    return frozenset(node.name for node in _nodes() if isinstance(node, ast.ClassDef))


@functools.cache
def functions() -> frozenset[str]:
    """The functions of the program, and its modules: both are words with underscores."""
    defined = (
        re.findall(r"^ *(?:async )?def (\w+)\(", path.read_text(), re.MULTILINE) for path in SOURCE.rglob("*.py")
    )
    return frozenset({name for names in defined for name in names} | {path.stem for path in SOURCE.rglob("*.py")})


def is_place(path: str) -> bool:
    """Whether it is a default of the program, or where it puts a unit."""
    return is_written(path) or path == str(units.DIRECTORY / units.NAME)


def is_written(text: str) -> bool:
    """Whether the program has this text, as it is or as one that it puts together."""
    return text in texts() or any(pattern.fullmatch(text) for pattern in _patterns(r"[\w./:-]+"))


@functools.cache
def texts() -> frozenset[str]:
    """Every string of the program that is no docstring."""
    return frozenset(node.value for node in _nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str))


@functools.cache
def _nodes() -> tuple[ast.Constant | ast.JoinedStr | ast.ClassDef, ...]:
    """The strings, f-strings and classes of the program, in one walk: it is large. Docstrings stand alone, and are none."""
    found: list[ast.Constant | ast.JoinedStr | ast.ClassDef] = []
    for path in sorted(SOURCE.rglob("*.py")):
        alone = set()
        for node in ast.walk(source_text.tree(path.read_text())):
            if isinstance(node, ast.Expr):
                alone.add(id(node.value))
            elif isinstance(node, ast.Constant | ast.JoinedStr | ast.ClassDef) and id(node) not in alone:
                found.append(node)
    return tuple(found)


@functools.cache
def _patterns(filled: str) -> tuple[re.Pattern[str], ...]:
    """The f-strings, with what they fill in; one that has hardly a letter of its own would fit everything."""
    found = set()
    for node in _nodes():
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else None for part in node.values]
            if sum(len(re.findall(r"\w", part or "")) for part in parts) >= 8:
                found.add("".join(filled if part is None else re.escape(part) for part in parts))
    return tuple(re.compile(pattern) for pattern in sorted(found))


def _properties(found: object) -> set[str]:
    if not isinstance(found, Mapping):
        return set()
    names = set(found.get("properties", {}))
    return names.union(*(_properties(value) for value in found.values()))


def _renamed() -> set[str]:
    """The fields of the structs that are written as Kubernetes writes names, as the lines of the audit log are."""
    structs = [node for node in _nodes() if isinstance(node, ast.ClassDef)]
    names = [
        each.target.id
        for struct in structs
        if any(keyword.arg == "rename" for keyword in struct.keywords)
        for each in struct.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    return {re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name) for name in names}


@functools.cache
def _words_of_tools() -> frozenset[str]:
    """What is in quotes there, if it is one word."""
    paths = [path for folder in _TOOLS for path in (ROOT / folder).rglob("*.py")]
    return frozenset(word for path in paths for word in re.findall(r"[\"']([\w.-]+)[\"']", path.read_text()))

# SPDX-License-Identifier: Apache-2.0
"""Every reason that the program can give, found by its syntax. What a reason means is `data/reasons.toml`'s to say.

A reason is a word with a capital letter that stands in one of these places:

1. an argument of a function, or a field of a class, whose name is `reason` or ends with `_reason`;
2. a value that is assigned to such a name, or to such an attribute of a class; a key `reason` in a mapping;
3. a value of a class whose name ends with `Reason`, or the first of a tuple or of the arguments of a call where a sentence follows:
   `raise _refused("AccountGone", f"…")`;
4. the code of a cause, `status.Cause("FieldValueInvalid", …)`.

A name that stands there is followed: to a constant of its module, to one of another module, to what its function assigns to it,
through conditions, tables and default values. What is put together while the program runs is not found.
"""

from __future__ import annotations

import ast
import collections
import functools
import itertools
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests import source_text

SOURCE = pathlib.Path(__file__).parents[1] / "src" / "handfast"
WORD = re.compile(r"[A-Z][a-z]+[A-Za-z0-9]*|[A-Z]{2,}[a-z][A-Za-z0-9]*")
_NAME = re.compile(r"(?:.+_)?reason")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEPTH = 6
# Modules that hold no reason: they have the columns of tables, and the names of messages.
_OTHERS = re.compile(r"api\.printing\..*|wire\..*_messages")
_COLUMNS = frozenset({"column", "Column"})


@dataclass
class Module:
    """What is looked up in a module: its tree, and what its names stand for."""

    name: str
    tree: ast.Module
    values: dict[str, list[ast.expr]] = field(default_factory=lambda: collections.defaultdict(list))
    attributes: dict[tuple[str, str], list[ast.expr]] = field(default_factory=lambda: collections.defaultdict(list))
    imports: dict[str, str] = field(default_factory=dict)
    definitions: list[_Function | ast.ClassDef] = field(default_factory=list)


@functools.cache
def modules() -> dict[str, Module]:
    """The modules of the program by dotted name below `handfast`."""
    return {name: read(name, path.read_text()) for path in sorted(SOURCE.rglob("*.py")) for name in [_dotted(path)]}


def _dotted(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def read(name: str, text: str) -> Module:
    """A module from its text."""
    found = Module(name, source_text.tree(text))
    for node in ast.walk(found.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "handfast":
            base = (node.module or "").removeprefix("handfast").strip(".")
            for alias in node.names:
                found.imports[alias.asname or alias.name] = ".".join(filter(None, (base, alias.name)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.definitions.append(node)
    for node in found.tree.body:
        for key, value in _assigned(node):
            found.values[key].append(value)
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                for key, value in _assigned(each):
                    found.attributes[node.name, key].append(value)
    return found


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement binds, each with its value; tuples are taken apart."""
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        pairs = [(node.target, node.value)]
    else:
        return
    for target, value in pairs:
        if isinstance(target, ast.Name | ast.Attribute):
            yield target.id if isinstance(target, ast.Name) else target.attr, value
        elif isinstance(target, ast.Tuple):
            for option in _options(value):
                if isinstance(option, ast.Tuple) and len(option.elts) == len(target.elts):
                    for one, each in zip(target.elts, option.elts, strict=True):
                        if isinstance(one, ast.Name | ast.Attribute):
                            yield one.id if isinstance(one, ast.Name) else one.attr, each


def _options(value: ast.expr) -> Iterator[ast.expr]:
    """The values that an expression may have."""
    if isinstance(value, ast.IfExp):
        yield from itertools.chain(_options(value.body), _options(value.orelse))
    elif isinstance(value, ast.BoolOp):
        yield from itertools.chain.from_iterable(map(_options, value.values))
    elif isinstance(value, ast.NamedExpr):
        yield from _options(value.value)
    else:
        yield value


@functools.cache
def _places() -> dict[str, frozenset[int]]:
    """Of every function and class: where among the arguments a reason stands."""
    found: dict[str, set[int]] = collections.defaultdict(set)
    for module in modules().values():
        for node in module.definitions:
            if not isinstance(node, ast.ClassDef):
                names = [
                    each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg not in {"self", "cls"}
                ]
                places = {at for at, name in enumerate(names) if _NAME.fullmatch(name)}
                if places and node.name != "__init__":
                    found[node.name] |= places
            else:
                found[node.name] |= {at for at, name in enumerate(_fields(node)) if _NAME.fullmatch(name)}
    return {name: frozenset(places) for name, places in found.items() if places}


@functools.cache
def _classes() -> dict[str, ast.ClassDef]:
    definitions = itertools.chain.from_iterable(module.definitions for module in modules().values())
    return {node.name: node for node in definitions if isinstance(node, ast.ClassDef)}


def _fields(node: ast.ClassDef) -> list[str]:
    """The positional arguments of a class: those of its `__init__`, else its fields, those of its parents first."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return [one.arg for one in each.args.args if one.arg != "self"]
    parents = [_classes().get(getattr(base, "id", getattr(base, "attr", ""))) for base in node.bases]
    before = [name for parent in parents if parent is not None and parent is not node for name in _fields(parent)]
    own = [
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    return before + own


@functools.cache
def found() -> dict[str, tuple[tuple[str, int], ...]]:
    """Every reason, with the places that give it: module and line."""
    rows: dict[str, set[tuple[str, int]]] = collections.defaultdict(set)
    for module in modules().values():
        if _OTHERS.fullmatch(module.name):
            continue
        for line, words in words_of(module):
            for word in words:
                rows[word].add((module.name, line))
    return {word: tuple(sorted(places)) for word, places in sorted(rows.items())}


def words_of(module: Module) -> Iterator[tuple[int, set[str]]]:
    """The reasons of a module, by line."""
    return _Reader(module).reasons()


class _Reader:
    """Reads one module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._local: dict[int, dict[str, list[ast.expr]]] = {}

    def reasons(self) -> Iterator[tuple[int, set[str]]]:
        yield from self._below(self._module.tree, None)

    def _below(self, node: ast.AST, function: _Function | None) -> Iterator[tuple[int, set[str]]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node
            yield from self._defaults(node)
        for value in self._values(node):
            words = set(self._words(value, function, _DEPTH))
            if words:
                yield value.lineno, words
        for child in ast.iter_child_nodes(node):
            yield from self._below(child, function)

    def _defaults(self, node: _Function) -> Iterator[tuple[int, set[str]]]:
        names = node.args.args[len(node.args.args) - len(node.args.defaults) :]
        pairs = itertools.chain(
            zip(names, node.args.defaults, strict=True), zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        )
        for name, value in pairs:
            if value is not None and _NAME.fullmatch(name.arg):
                yield value.lineno, set(self._words(value, None, _DEPTH))

    def _values(self, node: ast.AST) -> Iterator[ast.expr]:
        """The expressions below this node, and no deeper, that are reasons."""
        # 2. assigned to a name for reasons, or a key
        for name, value in _assigned(node):
            if _NAME.fullmatch(name):
                yield value
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "reason":
                    yield value
        # 3. in a class of reasons, or before a sentence
        elif isinstance(node, ast.ClassDef) and node.name.endswith("Reason"):
            yield from (value for each in node.body for _, value in _assigned(each))
        elif isinstance(node, ast.Tuple):
            yield from self._before_sentences(node.elts)
        elif isinstance(node, ast.Call):
            yield from self._arguments(node)

    def _arguments(self, node: ast.Call) -> Iterator[ast.expr]:
        # 1. an argument for a reason
        yield from (each.value for each in node.keywords if each.arg and _NAME.fullmatch(each.arg))
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in _COLUMNS:
            return
        for at in _places().get(called, ()):
            if at < len(node.args) and not any(isinstance(each, ast.Starred) for each in node.args[: at + 1]):
                yield node.args[at]
        # 3. before a sentence
        yield from self._before_sentences(node.args)
        # 4. a cause
        if called == "Cause" and node.args:
            yield node.args[0]

    def _before_sentences(self, values: list[ast.expr]) -> Iterator[ast.expr]:
        for word, after in itertools.pairwise(values):
            texts = self._module.values.get(after.id, []) if isinstance(after, ast.Name) else [after]
            if any(map(_sentence, texts)):
                yield word

    def _words(self, value: ast.expr, function: _Function | None, depth: int) -> Iterator[str]:
        if depth == 0:
            return
        for option in _options(value):
            if isinstance(option, ast.Constant):
                if isinstance(option.value, str) and WORD.fullmatch(option.value):
                    yield option.value
            elif isinstance(option, ast.Name):
                yield from self._followed(option.id, function, depth)
            elif isinstance(option, ast.Attribute):
                yield from self._member(option, depth)
            elif isinstance(option, ast.Subscript):
                yield from self._table(option.value, depth)
            elif isinstance(option, ast.Call) and isinstance(option.func, ast.Attribute) and option.func.attr == "get":
                yield from self._table(option.func.value, depth)
                for each in option.args[1:]:
                    yield from self._words(each, function, depth - 1)

    def _followed(self, name: str, function: _Function | None, depth: int) -> Iterator[str]:
        values = self._locals(function).get(name) if function is not None else None
        if values is None:
            values = self._module.values.get(name)
        if values is not None:
            for value in values:
                yield from self._words(value, function, depth - 1)
        elif name in self._module.imports:
            room, _, word = self._module.imports[name].rpartition(".")
            if room in modules():
                yield from _Reader(modules()[room])._followed(word, None, depth - 1)

    def _member(self, value: ast.Attribute, depth: int) -> Iterator[str]:
        """`module.NAME`, `Class.reason` or `module.Class.reason`."""
        parts: list[str] = []
        node: ast.expr = value
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return
        home = modules().get(self._module.imports.get(node.id, ""))
        if home is None:
            home, parts = self._module, [node.id, *parts]
        reader = _Reader(home)
        if len(parts) == 1:
            yield from reader._followed(parts[0], None, depth - 1)
        elif len(parts) == 2:
            for each in home.attributes.get((parts[0], parts[1]), ()):
                yield from reader._words(each, None, depth - 1)

    def _table(self, value: ast.expr, depth: int) -> Iterator[str]:
        """The values of a mapping, a constant of a module."""
        tables: list[ast.expr] = [value]
        reader = self
        if isinstance(value, ast.Name):
            tables = self._module.values.get(value.id, [])
        elif isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            home = modules().get(self._module.imports.get(value.value.id, ""))
            tables, reader = ([], self) if home is None else (home.values.get(value.attr, []), _Reader(home))
        for table in tables:
            if isinstance(table, ast.Dict):
                for each in table.values:
                    yield from reader._words(each, None, depth - 1)

    def _locals(self, function: _Function) -> dict[str, list[ast.expr]]:
        if id(function) not in self._local:
            names: dict[str, list[ast.expr]] = collections.defaultdict(list)
            for each in (*function.args.args, *function.args.kwonlyargs):
                names[each.arg] = []
            for node in ast.walk(function):
                for name, value in _assigned(node):
                    names[name].append(value)
            self._local[id(function)] = names
        return self._local[id(function)]


def _sentence(node: ast.expr) -> bool:
    """Whether it is a text of several words."""
    if isinstance(node, ast.BinOp):
        return _sentence(node.left)
    if isinstance(node, ast.JoinedStr):
        return (
            "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values).count(" ") > 1
        )
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") > 1

# SPDX-License-Identifier: Apache-2.0
"""The one door to the evaluator of CEL, `cel-expr-python` (the extra `cel`): compile an expression, and evaluate it.

1. The library is imported when the first expression is compiled: 33 ms and 45 MB that nobody without expressions pays.
2. Without the library `is_available` says so, and nothing compiles. What that means is for the callers: a warning, or a refusal.
3. An expression has at most `MAX_TEXT` characters, `MAX_TOKENS` words and signs, and 32 levels of nesting (the library's own limit): no
   other thread runs while one is compiled.
4. An evaluation takes at most 10,000 rounds of loops, all told (the library's own limit). It raises `TooCostly` then.
5. What the library says of an error is put in the words of Kubernetes. It says nothing of the values but the key that is missing.
6. `matches` is ours: the library compiles the pattern at every call, 16 µs for that of a DNS name and 150 ms in a loop over 9,000 texts, in
   which no other thread runs. Ours is kept compiled, takes 5 µs, and lets others run.
7. Compiled expressions are kept up to `MAX_KEPT` characters in all, those that were used last: one character takes 160 bytes.

Whether an expression is allowed to be as costly as it is, `estimate` and its callers decide. Values are plain JSON. They
are handed over once for all expressions on them (`Environment.values`), which is most of what a small evaluation costs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from handfast import errors
from handfast.api.cel import estimate, gathering, library, tree

T = TypeVar("T")
MAX_TEXT: Final = 16 << 10
TOO_LONG: Final = f"the expression has more than {MAX_TEXT} characters"
# The dearest 4,096 compile in 30 ms: a list of `{}`. What stands in texts counts, too: telling them apart is the compiler's work.
MAX_TOKENS: Final = 4096
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
# What is said of an expression that does not compile. The library shows the line of each of a hundred errors.
_MAX_ERROR: Final = 4096
MAX_KEPT: Final = 1 << 20
# What the smallest expression takes, in characters.
_LEAST: Final = 256
INSTALL: Final = "install it with: pip install 'handfast[cel]'"
_MATCHES: Final = "matches"
_BUDGET: Final = "Iteration budget exceeded"
_NO_KEY: Final = re.compile(r"Key not found in map : \"?(.*?)\"?\Z", re.DOTALL)
_NO_OVERLOAD: Final = re.compile(r"No matching overloads found : (.*)\Z", re.DOTALL)
_CODE: Final = re.compile(r"\A(?:(?!ERROR)[A-Z][A-Z_]+: )+|(?: \[[A-Z_]+\])+\Z")
_BESIDE: Final = re.compile(r" \(in container ''\)")


class NotEvaluated(errors.Refused):
    """An expression has no value; the message says why."""

    reason = "NotEvaluated"


class TooCostly(NotEvaluated):
    """An evaluation was ended because it took too much."""

    reason = "TooCostly"


@functools.cache
def _cel() -> Any:
    """The library, or None where the extra is not installed."""
    try:
        from cel_expr_python import cel  # 1. when the first expression is compiled
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
    except ImportError:
        return None
    return cel, (ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_bindings.ExtBindings())


def is_available() -> bool:
    # 2. without the library nothing compiles
    return _cel() is not None


class Program(msgspec.Struct, frozen=True):
    """An expression that can be evaluated. `result` is its type, as far as the evaluator knows it."""

    text: str
    root: tree.Node
    result: str
    compiled: Any
    gathers: gathering.Gathering | None

    def uses(self, name: str) -> bool:
        """Whether a variable is named anywhere in it."""
        return any(node.kind == tree.IDENT and node.name == name for node in self.root.walk())

    def fields(self, name: str) -> frozenset[str] | None:
        """The fields of a variable that it looks at; None if it looks at more than single fields."""
        selected = [node for node in self.root.walk() if node.kind == tree.SELECT and _is_named(node.parts[0], name)]
        count = sum(1 for node in self.root.walk() if _is_named(node, name))
        return frozenset(node.name for node in selected) if count == len(selected) else None

    def evaluate(self, values: Any) -> Any:
        """Its value on what `Environment.values` made; raises `NotEvaluated`."""
        try:
            value = self.compiled.eval(values)
            kind = value.type().name()
            plain = value.plain_value()
        except (RuntimeError, TypeError, ValueError) as error:
            text = str(error)
            if _BUDGET in text:  # 4. so many rounds of loops
                raise TooCostly("operation cancelled: actual cost limit exceeded") from None
            raise NotEvaluated(_said(text)) from None
        if kind == "ERROR":
            raise NotEvaluated(_said(str(plain)))
        return plain

    def is_true(self, values: Any) -> bool:
        verdict = self.evaluate(values)
        if not isinstance(verdict, bool):
            raise NotEvaluated("the expression is neither true nor false")
        return verdict

    def words(self, values: Any) -> str:
        """Its value as a text; raises `NotEvaluated` if it is none."""
        text = self.evaluate(values)
        if not isinstance(text, str):
            raise NotEvaluated("the expression is no text")
        return text


def _is_named(node: tree.Node, name: str) -> bool:
    return node.kind == tree.IDENT and node.name == name


def _with_own_matches(text: str, root: tree.Node) -> str:
    """An expression in which `matches` is ours (6). A call stands where its parenthesis does."""
    for offset in sorted((node.offset for node in root.walk() if _is_match(node)), reverse=True):
        head = text[:offset].rstrip()
        if head.endswith(_MATCHES):
            text = head.removesuffix(_MATCHES) + library.MATCHES + text[offset:]
    return text


def _is_match(node: tree.Node) -> bool:
    return node.kind == tree.CALL and node.name == _MATCHES


class Environment:
    """The variables that expressions of one sort may name; all have types that are only known when they are evaluated."""

    def __init__(self, *variables: str) -> None:
        library_module, extensions = _cel()
        types = _types(library_module)
        self._env = library_module.NewEnv(
            variables=dict.fromkeys(variables, types["dyn"]),
            extensions=[*extensions, _extension(library_module, types)],
        )

    def compile(self, text: str) -> Program:
        """Raises `estimate.InvalidExpression`."""
        if len(text) > MAX_TEXT:  # 3. so many characters
            raise estimate.InvalidExpression(TOO_LONG)
        if sum(1 for _ in _TOKEN.finditer(text)) > MAX_TOKENS:  # 3. so many words and signs
            raise estimate.InvalidExpression(f"the expression has more than {MAX_TOKENS} words and signs")
        try:
            compiled = self._env.compile(text)
        except (RuntimeError, TypeError, ValueError) as error:
            raise estimate.InvalidExpression(_CODE.sub("", _BESIDE.sub("", str(error)))[:_MAX_ERROR]) from None
        root, result = tree.read(compiled.serialize()), compiled.return_type().name()
        ours = _with_own_matches(text, root)
        if ours != text:
            compiled = self._env.compile(ours)
        return Program(text, root, result, compiled, gathering.of(root))

    def values(self, data: Mapping[str, Any]) -> Any:
        """Values for all expressions that are evaluated on them; a variable that is not there is an error where it is used."""
        return self._env.Activation(data)


@functools.lru_cache(maxsize=16)
def environment(*variables: str) -> Environment:
    """An environment is 12 ms of work: there is one for each sort of expression."""
    return Environment(*variables)


class Kept(Generic[T]):
    """What was used last, up to so many characters. Two threads may use it: each step is one of the interpreter's own."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._values: dict[Hashable, tuple[int, T]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def peek(self, key: Hashable) -> T | None:
        """What is there, if it is; that does not count as a use."""
        entry = self._values.get(key)
        return None if entry is None else entry[1]

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        entry = self._values.pop(key, None)
        if entry is not None:
            self._values[key] = entry  # behind all others: it was used last
            return entry[1]
        value = make()
        self._values[key] = _LEAST + size(value), value
        # 7. up to so many characters
        left = self._most - sum(each for each, _ in list(self._values.values()))
        for old in list(self._values) if left < 0 else ():
            left += self._values.pop(old, (0,))[0]
            if left >= 0:
                break
        return value


_programs: Final = Kept[Program]()


def program(text: str, *variables: str) -> Program:
    """A compiled expression; the same text is compiled once (0.6 ms)."""
    return _programs.get(
        (text, *variables), lambda: environment(*variables).compile(text), lambda compiled: len(compiled.text)
    )


def _types(cel: Any) -> dict[str, Any]:
    kinds = cel.Type
    return {
        "bool": kinds.BOOL,
        "double": kinds.DOUBLE,
        "dyn": kinds.DYN,
        "int": kinds.INT,
        "list": kinds.List(kinds.DYN),
        "map": kinds.Map(kinds.STRING, kinds.DYN),
        "string": kinds.STRING,
        "strings": kinds.List(kinds.STRING),
    }


def _extension(cel: Any, types: Mapping[str, Any]) -> Any:
    overloads: dict[str, list[Any]] = {}
    for index, row in enumerate(library.FUNCTIONS):
        overloads.setdefault(row.name, []).append(
            cel.Overload(
                f"kubernetes_{index}",
                types[row.gives],
                [types[name] for name in row.takes],
                is_member=row.is_member,
                impl=row.run,
            )
        )
    return cel.CelExtension("kubernetes", [cel.FunctionDecl(name, rows) for name, rows in overloads.items()])


def _said(text: str) -> str:
    """An error of the library in Kubernetes' words."""
    # 5. no values but the key that is missing
    text = _CODE.sub("", text).replace(library.MATCHES, _MATCHES)
    if match := _NO_KEY.search(text):
        return f"no such key: {match[1]}"
    if match := _NO_OVERLOAD.search(text):
        return f"no such overload: {match[1]}"
    return "division by zero" if text == "divide by zero" else text[:512]

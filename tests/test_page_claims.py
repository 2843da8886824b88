# SPDX-License-Identifier: Apache-2.0
"""No page is older than the code: what a page names is there, and what it has people type is understood.

Every command line of a page is read by the grammar of the real commands; nothing is run. Every word in backticks that has
the form of a flag, setting, reason, metric, limit, file, path, variable, controller or name of ours is looked up in what the
code has (`page_facts`). `scenarios.test_pages` and `scenarios.test_readme` run the commands, and compare what pages show as output. The pages of decisions tell what was decided then, and
are not looked at, nor is the changelog.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click
import pytest

from handfast.assembly import config, node_config
from handfast.cli import join, main
from handfast.controllers import names as controller_names
from tests import page_facts, page_text
from tests.page_facts import ROOT

PAGES = tuple(
    sorted(
        page
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if page.parent.name != "decisions" and page.name != "CHANGELOG.md"
    )
)
# What belongs to others -> to whom. A row that no page needs fails.
FOREIGN = {
    "format.named": "a function that Kubernetes adds to CEL",
    "envoy_cluster_upstream_cx_total": "a figure of Envoy's",
    "cluster_not_found": "a word of Envoy's",
    "HttpOnly": "an attribute of cookies",
    "Secure": "an attribute of cookies",
    "no_proxy": "a variable that programs of others read",
    "--ignore-preflight-errors=all": "a flag of kubeadm",
    "--enable-aggregator-routing": "a flag of kube-apiserver",
    "--max-request-bytes": "a flag of etcd",
    "/etc/kubernetes/pki": "where kubeadm keeps its CA",
    "instance-config.yaml": "a file of kubeadm's",
    "audit-2026-01-31T12-00-00.000.log": "an example, with an instant",
    "$HTTPS_PROXY": "a variable that is not read, and the page says so",
    "nodeLeaseDurationSeconds": "a setting of the kubelet",
    "resizeStatus": "a field of older versions of Kubernetes",
    "workloadRef": "a field of older versions of Kubernetes",
    "http_proxy": "a variable that programs of all kinds read",
    "/dev/shm": "where Linux has a file system in memory",
    "NoNewPrivileges": "a setting of systemd's units",
    "ExecStart": "a setting of systemd's units",
    "kubelet-client-TIME.pem": "the name in KEP-266, with a word for the time",
    "AlreadyApproved": "put together from two words; tests/unit/cli/test_csr.py",
    "AlreadyDenied": "put together from two words; tests/unit/cli/test_csr.py",
    'a Node with name "…" and status "Ready" already exists in the cluster': "kubeadm's words",
    "validate CRI v1 runtime API for endpoint …": "the kubelet's words",
    "tokenSecret": "what Kubernetes' suite takes for the secret half of a token",
    "limits as limits_module": "Python",
    "pipx install .": "pipx",
    "test_a_denied_request_is_never_approved": "an example of a test's name",
    "clock as clocks": "Python",
    "controller.watches(informer, keys)": "a method of loop.Controller, on a variable",
    "control_identity_cert_expiration_timestamp_seconds": "a metric of Linkerd's; proxy/figures.py",
    "control_identity_cert_refreshes_total": "a metric of Linkerd's; proxy/figures.py",
    "linkerd-controller": "the account of the mesh's destination service; rules/mesh/control_plane.py",
    "web.shop.serviceaccount.identity.linkerd.cluster.local": "an example of a workload's name; rules/mesh/names.py",
}
OTHERS = r"(?:kubectl|kubeadm|openssl|systemctl|handfast|make|python|pytest) "


# Command lines


def misread(line: page_text.CommandLine) -> str | None:
    """What the command's own grammar has against a line; None: nothing. Where words are left out, none is missed."""
    command: click.Command = main.command
    # With its own settings: a command remembers the help flag of the first context that asks for it.
    context = main.command.make_context("handfast", [], resilient_parsing=True)
    words = list(line.words)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if isinstance(command, join.Join) and words[0] not in command.commands:
            # An endpoint.
            break
        name = words.pop(0)
        if name.isupper():
            # A word that stands for any command.
            return None
        found = command.get_command(context, name)
        if found is None:
            return None if "," in name else f"there is no command {name!r}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    if isinstance(command, click.Group) and not isinstance(command, join.Join):
        return None
    try:
        values, left, _ = command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        # What is shown of a flag may be its name alone.
        alone = isinstance(error, click.BadOptionUsage) and not line.whole
        return None if alone else error.format_message()
    if left:
        return f"more words than it takes: {left}"
    return next(filter(None, (_wrong_value(parameter, values, line) for parameter in command.params)), None)


def _wrong_value(parameter: click.Parameter, values: dict[str, object], line: page_text.CommandLine) -> str | None:
    value = values.get(parameter.name or "")
    if not value or not isinstance(value, str | tuple | list):
        return f"{parameter.name} is missing" if parameter.required and line.whole else None
    if isinstance(parameter.type, click.Choice) and isinstance(value, str) and value not in parameter.type.choices:
        return (
            None
            if "|" in value or value.isupper()
            else f"{parameter.opts[0]} is none of {parameter.type.choices}: {value}"
        )
    if parameter.name == "controllers" and isinstance(value, str) and "$" not in value:
        return _no_controllers(value)
    return None


def _no_controllers(value: str) -> str | None:
    known = {*controller_names.NAMES, *controller_names.ALIASES, "*"}
    wrong = [name for name in value.split(",") if name.removeprefix("-") not in known]
    return f"there are no such controllers: {wrong}" if wrong else None


def misread_lines(content: str) -> list[str]:
    lines = page_text.command_lines(content, page_facts.command_names())
    return [f"handfast {' '.join(line.words)}: {why}" for line in lines if (why := misread(line))]


# Words


@dataclass(frozen=True, slots=True)
class Form:
    """A form by which words are known, with what tells whether there is such a thing."""

    what: str
    pattern: re.Pattern[str]
    exists: Callable[[str], bool]


def form(what: str, pattern: str, exists: Callable[[str], bool]) -> Form:
    return Form(what, re.compile(pattern), exists)


# The first form that fits decides.
FORMS = (
    form("flag", r"(--[a-z][a-z-]*).*", lambda word: word in page_facts.flags()),
    form("variable", r"\$?(HANDFAST_[A-Z_]+)(?:=.*)?", lambda word: word in page_facts.variables()),
    form(
        "variable",
        r"\$?([A-Z]+(?:_[A-Z]+)+)(?:=.*)?",
        lambda word: bool({word, f"HANDFAST_{word}"} & page_facts.variables()),
    ),
    form("metric", r"((?:handfast|apiserver|kubelet|mapi|process)_[a-z_]+)", page_facts.is_metric),
    form(
        "limit, function or module",
        r"([a-z]+(?:_[a-z]+)+)",
        lambda word: word in page_facts.limit_names() | page_facts.functions(),
    ),
    form(
        "reason or kind",
        r"((?:[A-Z]+[a-z0-9]+){2,}|[A-Z]{2,}[A-Z][a-z]+)",
        lambda word: word in page_facts.reasons() | page_facts.classes(),
    ),
    form("setting or field", r"([a-z]+(?:[A-Z]+[a-z]*)+)(?:: .*)?", lambda word: word in page_facts.fields()),
    form("controller", r"-?([a-z-]+-controller)", lambda word: word in page_facts.controllers()),
    form(
        "file",
        r"((?:[\w-]+/)*[\w.-]*\.(?:conf|yaml|json|db|log|key|crt|pub|pem|py|lock|service|reserve))",
        lambda word: (
            word.removeprefix("handfast-data/") in page_facts.files() | page_facts.texts() or (ROOT / word).exists()
        ),
    ),
    form("path", r"(/(?!tmp|etc|var)[a-z0-9/]+)(?:\?\w+)?", lambda word: word in page_facts.http_paths()),
    form("place of this program", r"(/(?:etc|var)/[\w./-]+)", page_facts.is_place),
    form("word", r"([A-Z][a-z]+)", lambda word: word in page_facts.texts() or word in page_facts.classes()),
    form(
        "module",
        r"(?:python -m )?([a-z_]+(?:\.[a-z_]+)+)(?:\(.*\)| .*)?",
        lambda word: page_facts.is_module(word) or page_facts.is_part(word),
    ),
    form("file to test", r"pytest .*?(tests/[\w/]+\.py)", lambda word: (ROOT / word).exists()),
    form(
        "object",
        r"(?:kube-public|kube-system)/([\w:-]+)",
        lambda word: page_facts.is_part(re.split(r"[A-Z]{2,}", word)[0]),
    ),
    form("name of Kubernetes", r"([a-z.]*\b(?:k8s|kubernetes)\.io/?[\w-]*)(?:: .*)?", page_facts.is_part),
    form("name of ours", r"(handfast\.dev/[\w-]+)(?::\w+)?", page_facts.is_written),
    form(
        "name of ours",
        r"((?:handfast|system|kubeadm):[a-z][\w.:-]*[\w])",
        lambda word: page_facts.is_written(re.split(r"[A-Z]{2,}", word)[0]),
    ),
    # Of several words, none of them a flag: commands are looked at above, and those of others are theirs.
    form("message", rf"((?!{OTHERS})[a-z\[][^\s`]*(?: (?!-)[^\s`]+){{2,}})", page_facts.is_said),
)


def unknown_words(content: str) -> Iterator[tuple[str, str]]:
    """The words that have a form, and that there is nothing of; and what they would be."""
    for code in page_text.inline(content):
        if (controllers := re.fullmatch(r"--controllers=(.+)", code)) and _no_controllers(controllers[1]):
            yield code, "controller in"
        for each in FORMS:
            if found := each.pattern.fullmatch(code):
                if not each.exists(found[1]):
                    yield code, each.what
                break


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_is_understood(page: pathlib.Path) -> None:
    assert misread_lines(page.read_text()) == []


def test_every_example_of_the_help_is_understood() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    examples = [line for line in page_text.untyped(page) if line.startswith("handfast ")]
    assert len(examples) > 100
    assert [wrong for line in examples for wrong in misread_lines(f"```console\n$ {line}\n```\n")] == []


def test_there_are_command_lines() -> None:
    names = page_facts.command_names()
    lines = [line for page in PAGES for line in page_text.command_lines(page.read_text(), names)]
    assert len(lines) > 150
    assert sum(line.whole for line in lines) > 15
    assert {"up", "init", "join", "token", "csr", "node", "ca", "serve", "ledger"} <= {line.words[0] for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: pathlib.Path) -> None:
    found = unknown_words(page.read_text())
    assert [f"there is no {what} {word}" for word, what in found if word not in FOREIGN] == []


def test_what_belongs_to_others_is_still_named_somewhere() -> None:
    named = {word for page in PAGES for word, _ in unknown_words(page.read_text())}
    assert sorted(FOREIGN.keys() - named) == []


def test_every_form_is_met() -> None:
    """A form that no page has would look at nothing."""
    codes = {code for page in PAGES for code in page_text.inline(page.read_text())}
    met = {each.what for code in codes for each in FORMS if each.pattern.fullmatch(code)}
    assert met == {each.what for each in FORMS}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("handfast tokens create", "there is no command 'tokens'"),
        ("handfast token invent", "there is no command 'invent'"),
        ("handfast token create --forever", "--forever"),
        ("handfast csr approve", "names is missing"),
        ("handfast csr explain", "name is missing"),
        ("handfast token list abcdef", "more words than it takes"),
        ("handfast token list -o xml", "none of"),
        ("handfast up --listen", "--listen"),
        ("handfast serve controllers --controllers csrapproving,kitchen", "kitchen"),
        ("X=$(.venv/bin/handfast token create --forever)", "--forever"),
        ("sudo true && handfast node fly", "there is no command 'fly'"),
        ("(umask 077; handfast token create --forever > token)", "--forever"),
    ],
)
def test_a_command_line_that_is_wrong_is_seen(line: str, why: str) -> None:
    [found] = misread_lines(f"```console\n$ {line}\n```\n")
    assert why in found


@pytest.mark.parametrize("code", ["handfast node fly", "token create --forever", "handfast up --no-such-flag"])
def test_a_wrong_command_in_backticks_is_seen(code: str) -> None:
    assert len(misread_lines(f"Type `{code}`.")) == 1


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("--forever", "flag"),
        ("--forever 1h", "flag"),
        ("HANDFAST_KITCHEN", "variable"),
        ("$KITCHEN_SINK", "variable"),
        ("handfast_kitchen_total", "metric"),
        ("kubelet_kitchen_seconds", "metric"),
        ("kitchen_per_second", "limit, function or module"),
        ("KitchenClosed", "reason or kind"),
        ("kitchenOpen", "setting or field"),
        ("kitchenOpen: true", "setting or field"),
        ("kitchen-controller", "controller"),
        ("--controllers=*,-kitchen", "controller in"),
        ("pki/kitchen.key", "file"),
        ("kitchen.py", "file"),
        ("/kitchen", "path"),
        ("/readyz/kitchen", "path"),
        ("/var/lib/kitchen", "place of this program"),
        ("handfast.dev/kitchen", "name of ours"),
        ("system:kitchen", "name of ours"),
        ("Kitchen", "word"),
        ("cli.kitchen", "module"),
        ("python -m bench.kitchen", "module"),
        ("pytest tests/unit/test_kitchen.py", "file to test"),
        ("kube-system/kitchen", "object"),
        ("kitchen.kubernetes.io/open", "name of Kubernetes"),
        ("the kitchen is not open", "message"),
    ],
)
def test_a_word_for_what_is_not_there_is_seen(word: str, what: str) -> None:
    assert list(unknown_words(f"There is `{word}`.")) == [(word, what)]


# Tables and paths


def node_rows(content: str) -> set[tuple[str, str, str]]:
    """The rows of docs/node.md about settings: flag, variable, key of a KubeletConfiguration."""
    rows = re.findall(r"^\| `(--?[\w-]+)` \| `(\w+)` \| (?:`(\w+)`)?", content, re.MULTILINE)
    return {(flag, variable, key) for flag, variable, key in rows}


def test_the_page_of_the_agent_has_every_setting() -> None:
    # The endpoint has two keys, of which the first is shown here.
    keys = {"listen": "address"}
    expected = {
        (
            "-v" if row.flag == "verbosity" else f"--{row.flag}",
            node_config.variable(row.flag).removeprefix("HANDFAST_"),
            row.key or keys.get(row.flag, ""),
        )
        for row in node_config._SETTINGS
    }
    assert node_rows((ROOT / "docs" / "node.md").read_text()) == expected
    assert node_rows("| `--x` | `X` | `y` | z |\n") == {("--x", "X", "y")}


def pairs_that_do_not_belong_together(content: str) -> list[str]:
    """Rows of a table that have a flag and then a key of the configuration file."""
    flags = {row.key: row.flag for row in config.SETTINGS}
    wrong = []
    for line in content.splitlines():
        found = [re.findall(r"`([^`]+)`", cell) for cell in line.strip("| ").split(" | ")[:2]]
        if line.startswith("| `--") and len(found) == 2 and found[1] and set(found[1]) <= flags.keys():
            wrong += [f"{flag} is not {key}" for flag, key in zip(*found, strict=False) if flags[key] != flag]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_stand_beside_their_keys(page: pathlib.Path) -> None:
    assert pairs_that_do_not_belong_together(page.read_text()) == []


def test_a_flag_beside_another_key_is_seen() -> None:
    good, bad = "| `--store` | `store` | x |", "| `--store`, `--listen` | `store`, `advertise` | x |"
    assert pairs_that_do_not_belong_together(f"{good}\n{bad}\n") == ["--listen is not advertise"]


def wrong_controller_rows(content: str) -> list[str]:
    """Rows of tables that begin with a controller: its other name, and the module that it is said to be in."""
    wrong = []
    for line in content.splitlines():
        if (row := re.match(r"\| `([a-z-]+-controller)` \|", line)) is not None:
            aliases = set(re.findall(r"`([a-z]+)`", line)) & controller_names.ALIASES.keys()
            wrong += [f"{alias} is not {row[1]}" for alias in aliases if controller_names.ALIASES[alias] != row[1]]
            for module in re.findall(r"controllers/(\w+/\w+)\.py\)", line):
                text = (page_facts.SOURCE / "controllers" / f"{module}.py").read_text()
                wrong += [] if f'NAME = "{row[1]}"' in text else [f"{row[1]} is not in {module}.py"]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_controllers_stand_beside_their_names_and_modules(page: pathlib.Path) -> None:
    assert wrong_controller_rows(page.read_text()) == []


def test_a_controller_beside_the_wrong_module_is_seen() -> None:
    row = "| `token-cleaner-controller` | `csrcleaner` | [x](../src/handfast/controllers/cluster/namespace.py) |"
    assert wrong_controller_rows(row) == [
        "csrcleaner is not token-cleaner-controller",
        "token-cleaner-controller is not in cluster/namespace.py",
    ]
    pages = "".join(page.read_text() for page in PAGES)
    assert len(re.findall(r"^\| `[a-z-]+-controller` \|", pages, re.MULTILINE)) > 15

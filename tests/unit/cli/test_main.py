# SPDX-License-Identifier: Apache-2.0
"""The command tree: every word works, loads nothing it does not need, and is described as it is."""

import importlib
import pathlib
import subprocess
import sys

import click
import pytest

from handfast.cli import main

HEAVY = (
    *("aiohttp", "cryptography", "uvloop", "apsw", "msgspec", "yaml", "rich", "prometheus_client", "structlog", "grpc"),
    *("asyncio", "jinja2"),
)
REFERENCE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def loaded(code):
    script = f"import sys\n{code}\nprint(' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_loads_no_library_but_click(arguments):
    modules = loaded(
        f"from handfast.cli import main, output\ncode = output.run(main.command, {arguments!r})\n"
        f"assert code == {0 if arguments else 2}, code"
    )
    assert not modules & set(HEAVY)
    assert "handfast.cli.main" in modules


def test_the_supervisor_stays_light():
    modules = loaded(
        "from handfast.cli import up\nfrom handfast.assembly import config, up\n"
        "config.parse(config.template().encode(), 'f')"
    )
    assert not modules & (set(HEAVY) - {"asyncio", "yaml"})
    assert "yaml" in modules


def test_the_version_flag_loads_no_library_but_click():
    modules = loaded("from handfast.cli import main, output\nassert output.run(main.command, ['--version']) == 0")
    assert not modules & set(HEAVY)


def test_asking_a_server_loads_only_what_a_question_needs(tmp_path):
    """300 ms of processor time are enough for `token list`. The cryptography library alone would take 45 of them."""
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}"
    )
    modules = loaded(
        "from handfast.cli import main, output\n"
        f"code = output.run(main.command, ['token', 'list', '--kubeconfig', {str(file)!r}])\n"
        "assert code == 3, code\n"
        "import aiohttp.connector\n"
        "assert not aiohttp.connector._SSL_CONTEXT_VERIFIED.get_ca_certs(), 'nobody needs the roots of the system'"
    )
    assert "aiohttp" in modules
    assert not modules & {"cryptography", "uvloop", "apsw", "prometheus_client", "grpc", "jinja2", "re2"}
    assert not modules & {"handfast.assembly.config", "handfast.client.discovery", "handfast.pki.certificates"}


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_line_of_help_is_the_commands_own(name):
    module, about = main.COMMANDS[name]
    command = importlib.import_module(module).command
    assert (command.name, command.get_short_help_str(200)) == (name, about)


def everything():
    """Every command that is not hidden, with its words."""
    root = main.command.make_context("handfast", [], resilient_parsing=True, terminal_width=100)
    stack = [root]
    while stack:
        ctx = stack.pop(0)
        yield ctx
        if isinstance(ctx.command, click.Group):
            for name in ctx.command.list_commands(ctx):
                command = ctx.command.get_command(ctx, name)
                assert command is not None
                if not command.hidden:
                    stack.append(click.Context(command, info_name=name, parent=ctx))


@pytest.mark.parametrize("ctx", tuple(everything()), ids=lambda ctx: ctx.command_path)
def test_the_reference_shows_the_help_as_it_is(ctx):
    assert f"### {ctx.command_path}\n\n```text\n{ctx.get_help()}\n```\n" in REFERENCE.read_text()


def test_the_reference_shows_no_command_that_is_not_there():
    shown = [line[4:] for line in REFERENCE.read_text().splitlines() if line.startswith("### ")]
    assert sorted(shown) == sorted(ctx.command_path for ctx in everything())


def test_every_option_and_command_says_what_it_does():
    for ctx in everything():
        assert ctx.command.help
        for parameter in ctx.command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (ctx.command_path, parameter.name)

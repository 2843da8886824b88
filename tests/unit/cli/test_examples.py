# SPDX-License-Identifier: Apache-2.0
"""Every command has examples, and each is a command line that the program takes."""

import re
import shlex

import click
import pytest

from handfast.cli import examples, join, main
from tests.unit.cli.test_main import everything

TREE = tuple(everything())


def words_of(ctx: click.Context) -> str:
    return ctx.command_path.partition(" ")[2]


def parsed(line: str) -> click.Context:
    """The context of the command that a line runs, after its words were parsed by its own grammar."""
    # What a shell does with the output, or reads for it, is not ours.
    _, start, rest = re.split(r"[|<>] |\)", line)[0].partition("handfast ")
    assert start, line
    ctx = main.command.make_context("handfast", [], resilient_parsing=True)
    arguments = shlex.split(rest)
    while isinstance(ctx.command, click.Group) and not isinstance(ctx.command, join.Join):
        command = ctx.command.get_command(ctx, arguments[0])
        assert command is not None, line
        is_group = isinstance(command, click.Group) and not isinstance(command, join.Join)
        name, own = arguments[0], [] if is_group else arguments[1:]
        ctx = command.make_context(name, own, parent=ctx, resilient_parsing=is_group)
        arguments = arguments[1:]
    return ctx


@pytest.mark.parametrize("ctx", TREE, ids=lambda ctx: ctx.command_path)
def test_every_command_shows_examples_of_itself(ctx):
    lines = examples.EXAMPLES[words_of(ctx)]
    assert lines
    shown = ctx.get_help()
    for line in lines:
        assert line in shown
        path = parsed(line).command_path
        assert f"{path} ".startswith(f"{ctx.command_path} "), "an example is of the command, or of one in it"


def test_there_are_examples_of_no_other_command():
    assert sorted(examples.EXAMPLES) == sorted(map(words_of, TREE))


@pytest.mark.parametrize(
    "line",
    [
        "handfast token create --no-such-flag",
        "handfast csr approve",
        "handfast token list -o table",
        "handfast version x",
    ],
)
def test_a_stale_example_is_seen(line):
    with pytest.raises(click.UsageError):
        parsed(line)

# SPDX-License-Identifier: Apache-2.0
"""`handfast help`: the same as --help, and a suggestion for a word that is misspelt."""

import pytest
from click import shell_completion

from handfast.cli import main, output


def run(*arguments: str) -> int:
    return output.run(main.command, arguments)


@pytest.mark.parametrize("words", [[], ["token"], ["token", "create"], ["help"]])
def test_it_shows_what_the_flag_shows(words, capsys):
    assert run("help", *words) == 0
    shown = capsys.readouterr().out
    assert run(*words, "--help") == 0
    assert capsys.readouterr().out == shown
    assert shown.startswith(" ".join(["Usage: handfast", *words]))


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["tokn"], "no such command 'tokn'", "did you mean 'token'? `handfast --help` shows what is allowed"),
        (
            ["token", "lst"],
            "no such command 'lst'",
            "did you mean 'list'? `handfast token --help` shows what is allowed",
        ),
        (["qqqqqq"], "no such command 'qqqqqq'", "`handfast --help` shows what is allowed"),
    ],
)
@pytest.mark.parametrize("before", [[], ["help"]])
def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(before, words, error, hint, capsys):
    assert run(*before, *words) == 2
    assert capsys.readouterr().err == f"error: {error}\nhint: {hint}\nreason: Usage\n"


def test_a_command_that_has_none_of_its_own(capsys):
    assert run("help", "version", "x") == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: handfast version has no command 'x'",
        "hint: `handfast help version` shows what it takes",
        "reason: Usage",
    ]


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [([], "to", ["token"]), (["token"], "l", ["list"]), (["version"], "", []), (["no-such"], "", [])],
)
def test_a_shell_is_offered_the_commands(words, incomplete, offered):
    complete = shell_completion.ShellComplete(main.command, {}, "handfast", "_HANDFAST_COMPLETE")
    found = complete.get_completions(["help", *words], incomplete)
    assert [item.value for item in found] == offered

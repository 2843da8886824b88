# SPDX-License-Identifier: Apache-2.0
"""`handfast completion`: the script names the command, and completing works."""

import os
import subprocess
import sys

import pytest

from handfast.cli import main, output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(shell, capsys):
    assert output.run(main.command, ["completion", shell]) == 0
    assert f"_HANDFAST_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_another_shell_is_refused(capsys):
    assert output.run(main.command, ["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_words_are_completed():
    done = subprocess.run(
        [sys.executable, "-c", "from handfast.cli import main; main.main()"],
        env={**os.environ, "_HANDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "handfast ser", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == ["plain,serve"]

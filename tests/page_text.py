# SPDX-License-Identifier: Apache-2.0
"""What is written in a page of documentation: words in backticks, blocks, and the commands in both.

It judges none of it. `test_page_claims` does so for the words, with what `page_facts` says there is; `scenarios.test_pages` and
`scenarios.test_readme` type the commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^(?:<!-- tested: (\w+) terminal -->\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
# A command goes on in the next line after a backslash.
_TYPED = re.compile(r"(?:[^\n]*\\\n)*[^\n]*")
_HEREDOC = re.compile(r"<<'?EOF'?$")
# What ends one command of a line of shell, beside the end of the line.
_ENDS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "2>", "2>&1", "<", "<<<", "<<"})
# A block, also one that is indented, and a line in it that somebody could type.
_ANY_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_PROGRAMS = "handfast|kubectl|etcdctl|kubeadm|make|pytest|python3?|pipx?|curl|openssl|systemctl"
_COMMAND = re.compile(rf"^ *(?:\$ )?((?:[A-Z_]+=\S+ )*(?:[\w.~-]*/)*(?:{_PROGRAMS}) \S.*)$", re.MULTILINE)
# What stands for words that a page leaves out.
_LEFT_OUT = "…"


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block, as it is typed, and what the page says that it prints."""

    command: str
    printed: str

    @property
    def line(self) -> str:
        """In one line, without the text of a here-document: that is no command."""
        return self.command.replace("\\\n", " ").partition("\n")[0]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The words after `handfast`; `whole`: a person could type it as it stands."""

    words: tuple[str, ...]
    whole: bool


def prose(content: str) -> str:
    """Without fenced blocks."""
    return _FENCE.sub("", content)


def inline(content: str) -> Iterator[str]:
    """What is in backticks, outside of blocks."""
    yield from _INLINE.findall(prose(content))


def blocks(content: str) -> list[tuple[str, str]]:
    """The fenced blocks: language and text."""
    return _FENCE.findall(content)


def steps(content: str, terminal: str | None = None) -> Iterator[Step]:
    """The commands of all console blocks, in order; or of those blocks that a comment gives to this terminal."""
    for name, block in _CONSOLE.findall(content):
        if terminal is None or name == terminal:
            first, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
            assert not first, f"a block starts with a command: {first}"
            yield from map(_step, parts)


def untyped(content: str) -> Iterator[str]:
    """The command lines of all blocks that nobody types: those of other languages, and those that are indented."""
    for indent, language, block in _ANY_FENCE.findall(content):
        if indent or language != "console":
            yield from _COMMAND.findall(block)


def _step(part: str) -> Step:
    found = _TYPED.match(part)
    assert found is not None
    command, printed = found[0], part[found.end() + 1 :]
    if _HEREDOC.search(command):
        document, end, printed = printed.partition("\nEOF\n")
        command += f"\n{document}{end}"
    return Step(command, printed)


def command_lines(content: str, commands: frozenset[str]) -> Iterator[CommandLine]:
    """Every command line of this program: of console blocks, and in backticks with or without its name."""
    for step in steps(content):
        yield from (CommandLine(words, whole=True) for words in _typed(step.line))
    for code in inline(content):
        words = _split(code)
        if words[:1] == ("handfast",) and len(words) > 1:
            yield CommandLine(words[1:], whole=False)
        elif len(words) > 1 and words[0] in commands and re.fullmatch(r"-{0,2}[a-z][a-z-]*", words[1]):
            yield CommandLine(words, whole=False)


def _typed(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of this program in a line of shell, those inside `$(…)` too."""
    inside = re.compile(r"\$\(([^()]*)\)")
    for piece in (*inside.findall(line), inside.sub("…", line)):
        words = _split(piece)
        starts = [i for i, word in enumerate(words) if word.rpartition("/")[2] == "handfast"]
        for start in starts:
            if start == 0 or words[start - 1] in _ENDS or "=" in words[start - 1] or words[start - 1].endswith(";"):
                end = next((i for i in range(start, len(words)) if words[i] in _ENDS), len(words))
                yield words[start + 1 : end]


def _split(line: str) -> tuple[str, ...]:
    """The words; one that stands for others is left out, but for the value of a flag."""
    try:
        words = shlex.split(line)
    except ValueError:
        return ()
    return tuple(
        word for before, word in zip(("", *words), words, strict=False) if word != _LEFT_OUT or before.startswith("--")
    )

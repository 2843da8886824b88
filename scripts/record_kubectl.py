#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of tests/interop/kubectl_commands.yaml with a real kubectl, and writes down what it printed.

    KUBECTL=/path/to/kubectl python scripts/record_kubectl.py KUBECONFIG OUTPUT

It is run on a kube-apiserver with its controller manager, of which the controllers that Handfast has, too, are on. What differs from
run to run is replaced by a word: ages, times, ids, addresses, random ports, versions of objects, certificates, tokens. Runs of
spaces within a line become three. It compares nothing: tests/interop/test_kubectl_recorded.py does, with the same functions.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

COMMANDS: Final = pathlib.Path(__file__).resolve().parents[1] / "tests" / "interop" / "kubectl_commands.yaml"
SECONDS: Final = 60
_WORDS: Final = tuple(
    (re.compile(pattern, re.MULTILINE), word)
    for pattern, word in (
        (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
        (r"LS0tLS1C[A-Za-z0-9+/=]+", "PEM"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)", "TIME"),
        (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r"(resourceVersion\W+|Resource Version: +)\d+", r"\1VERSION"),
        (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=DIGEST"),
        (r"^W\d{4} \S+ +\d+ ", "WARNING "),
        # The name of the volume with an account's token is made up.
        (r"\bkube-api-access-\w{5}\b", "kube-api-access-RANDOM"),
        (r"\S*/(LIVE|MERGED)-\d+/", r"\1/"),
        (r"https://[\w.]+:\d+", "https://SERVER"),
        (r"\b10\.\d+\.\d+\.\d+\b", "ADDRESS"),
        (r"(nodePort\W+|NodePort:.*|\d+:)3[0-2]\d{3}\b", r"\1PORT"),
        (r"(?<![\w.-])(\d+[smh]){1,2}(?![\w.])", "AGE"),
        # The width of a column is that of its widest cell, which may be one of these.
        (r"(?<=\S) {2,}(?=\S)", "   "),
        (r" +$", ""),
    )
)


@dataclass(frozen=True)
class Step:
    """One command, what it reads, and which of its lines count."""

    line: str
    stdin: str = ""
    lines: str = ""

    def words(self) -> list[str]:
        """As a shell would part it, but that quotes stay: the commands have JSON in them."""
        return [word.replace("\\ ", " ") for word in re.split(r"(?<!\\) ", self.line)]


@dataclass(frozen=True)
class Kubectl:
    """A kubectl, and where it may leave things."""

    binary: str
    kubeconfig: pathlib.Path
    home: pathlib.Path

    def __call__(self, *words: str, place: pathlib.Path, stdin: str = "") -> tuple[int, str]:
        """The exit code, and both of its outputs."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "KUBECACHEDIR": str(self.home / "cache"),
            "KUBECONFIG": str(self.kubeconfig),
            "KUBE_EDITOR": "sed -i s/green/blue/",
            "TMPDIR": str(self.home),
        }
        done = subprocess.run(
            [self.binary, *words],
            input=stdin.encode(),
            capture_output=True,
            cwd=place,
            env=environment,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr).decode()


def groups() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMMANDS.read_text(encoding="utf-8"))
    return found


def steps(group: Mapping[str, Any]) -> Iterator[Step]:
    for each in group["commands"]:
        if isinstance(each, str):
            yield Step(each)
        else:
            yield Step(each["command"], each.get("stdin", ""), each.get("lines", ""))


def plain(text: str, lines: str = "") -> str:
    """What was printed, without what differs from run to run."""
    kept = [line for line in text.splitlines() if "version skew" not in line and re.search(lines, line)]
    text = "\n".join(_in_order(kept))
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text


def _in_order(lines: list[str]) -> Iterator[str]:
    """A list of what is wrong comes in no order that a server keeps to."""
    for is_listed, group in itertools.groupby(lines, lambda line: line.startswith("* ")):
        together = list(group)
        yield from sorted(together) if is_listed else together


def run(name: str, group: Mapping[str, Any], kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """Each command of a group, with what it printed and its exit code, where that is not 0."""
    namespace = f"cli-{name}"
    place = kubectl.home / namespace
    place.mkdir()
    for file, content in group.get("files", {}).items():
        (place / file).write_text(content, encoding="utf-8")
    kubectl("create", "namespace", namespace, place=place)
    _wait(lambda: kubectl("get", "sa/default", "cm/kube-root-ca.crt", "-n", namespace, place=place)[0] == 0)
    for step in steps(group):
        own = [] if re.search(r" (-n|--namespace)\b", step.line) else ["--namespace", namespace]
        code, text = kubectl(*_before_arguments(step.words(), own), place=place, stdin=step.stdin)
        yield {"command": step.line, "says": plain(text, step.lines)} | ({"code": code} if code else {})


def _before_arguments(words: list[str], own: list[str]) -> list[str]:
    """The flags before `--`, behind which are words of somebody else."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *own, *words[end:]]


def _wait(look: Callable[[], bool]) -> None:
    for _ in range(5 * SECONDS):
        if look():
            return
        time.sleep(0.2)
    raise SystemExit("error: the controllers do not fill a new namespace")


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def main(kubeconfig: str, output: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        kubectl = Kubectl(
            os.environ.get("KUBECTL", "kubectl"), pathlib.Path(kubeconfig).resolve(), pathlib.Path(home).resolve()
        )
        recorded = {name: list(run(name, group, kubectl)) for name, group in groups().items()}
    text = yaml.dump(recorded, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    pathlib.Path(output).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(f"usage: {sys.argv[0]} KUBECONFIG OUTPUT")
    main(*sys.argv[1:])

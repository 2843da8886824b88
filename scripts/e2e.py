#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the specs of Kubernetes' own end-to-end suite that need no running Pods, and prints which passed.

    E2E_TEST=/path/to/e2e.test KUBECTL=/path/to/kubectl python scripts/e2e.py [GROUP …]

It starts a `handfast up` in a directory of its own, makes one Node that is said to be ready, and runs each group of `e2e.toml`,
several at a time. `--kubeconfig` names another server instead, `--focus` other specs. It builds nothing: e2e.test comes from
the source of Kubernetes (`go test -c -vet=off ./test/e2e`). It ends with 1 if a spec failed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
# Two controllers would judge the Node that nobody keeps alive; without this one it stays ready.
_CONTROLLERS = "*,bootstrapsigner,tokencleaner"
_FLAGS = (
    "--provider=skeleton",
    "--allowed-not-ready-nodes=-1",
    "--minStartupPods=0",
    "--system-pods-startup-timeout=1s",
    "--node-schedulable-timeout=1s",
    "--delete-namespace=true",
    "--ginkgo.no-color",
    "--ginkgo.v",
)
_NODE = """
apiVersion: v1
kind: Node
metadata: {name: e2e, labels: {kubernetes.io/hostname: e2e, kubernetes.io/os: linux, kubernetes.io/arch: amd64}}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110", ephemeral-storage: 10Gi}
  allocatable: {cpu: "4", memory: 8Gi, pods: "110", ephemeral-storage: 10Gi}
  addresses: [{type: InternalIP, address: 127.0.0.1}, {type: Hostname, address: e2e}]
  conditions: [{type: Ready, status: "True", reason: KubeletReady, message: pretended}]
  nodeInfo: {architecture: amd64, bootID: "", containerRuntimeVersion: none://0, kernelVersion: "", kubeProxyVersion: "",
    kubeletVersion: v1.36.4, machineID: "", operatingSystem: linux, osImage: none, systemUUID: ""}
"""


@dataclass(frozen=True)
class Spec:
    """One spec that was run; `failure` is empty where it passed."""

    group: str
    name: str
    failure: str
    seconds: float

    @property
    def conformance(self) -> bool:
        return "[Conformance]" in self.name


def selection(groups: Sequence[str]) -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
    """Group -> what it focuses on, and what is skipped everywhere."""
    listed: dict[str, Any] = tomllib.loads((HERE / "e2e.toml").read_text())
    unknown = set(groups) - listed["groups"].keys()
    if unknown:
        raise SystemExit(
            f"error: no such group: {', '.join(sorted(unknown))}; there are: {', '.join(listed['groups'])}"
        )
    chosen = {name: row["focus"] for name, row in listed["groups"].items() if not groups or name in groups}
    return chosen, [row["match"] for row in listed["skip"]]


@contextlib.contextmanager
def control_plane(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A `handfast up` while the block runs; its administrator's kubeconfig."""
    place = directory / "data"
    command = [sys.executable, "-P", "-m", "handfast", "up", "--dir", str(place), "--controllers", _CONTROLLERS]
    command += ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    with (directory / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield place / "admin.conf"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def prepare(kubectl: str, kubeconfig: pathlib.Path) -> None:
    """Wait until the server answers, then have the Node there, without the taint that a real server gives a new one."""
    words = [kubectl, "--kubeconfig", str(kubeconfig)]
    apply = [*words, "apply", "--server-side", "--force-conflicts", "-f", "-"]
    for _ in range(120):
        if kubeconfig.exists() and _ran(apply):
            break
        time.sleep(1)
    else:
        raise SystemExit("error: the server does not answer; see up.log")
    untaint = [*words, "patch", "node", "e2e", "--type=merge", "--patch", '{"spec":{"taints":[]}}']
    if not _ran([*apply, "--subresource=status"]) or not _ran(untaint):
        raise SystemExit("error: the Node could not be made")


def _ran(command: Sequence[str]) -> bool:
    return subprocess.run(command, input=_NODE, text=True, capture_output=True, check=False).returncode == 0


def run_group(
    binary: str,
    kubectl: str,
    kubeconfig: pathlib.Path,
    out: pathlib.Path,
    group: str,
    words: Sequence[str],
    skips: Sequence[str],
) -> list[Spec]:
    """Run one group; its log and its JUnit report are in `out`."""
    report = out / f"{group}.xml"
    command = [
        binary,
        *_FLAGS,
        f"--kubeconfig={kubeconfig}",
        f"--kubectl-path={kubectl}",
        f"--ginkgo.junit-report={report}",
    ]
    command += [f"--ginkgo.focus={word}" for word in words] + [f"--ginkgo.skip={word}" for word in skips]
    with (out / f"{group}.log").open("wb") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False, cwd=out)
    return list(results(group, report))


def results(group: str, report: pathlib.Path) -> Iterator[Spec]:
    """The specs of a JUnit report, without those that were skipped, and without what is no spec."""
    if not report.exists():
        yield Spec(group, f"{group}, whole", f"no report was left; see {report.with_suffix('.log')}", 0)
        return
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("name", "")
        if "[It]" not in name or case.find("skipped") is not None or case.get("status") in {"skipped", "pending"}:
            continue
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        failure = "" if problem is None else brief(problem.get("message") or problem.text or "failed")
        yield Spec(group, name.replace("[It] ", "", 1), failure, float(case.get("time") or 0))


def brief(message: str) -> str:
    """The first words of a failure, on one line."""
    return " ".join(message.split())[:300]


def table(specs: Sequence[Spec]) -> str:
    """A row for each group: passed and failed, of all and of Conformance."""
    lines = [
        "| group | specs | passed | failed | Conformance passed | Conformance failed |",
        "|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(spec.group for spec in specs))
    for title, rows in [*((name, [each for each in specs if each.group == name]) for name in names), ("all", specs)]:
        failed = [each for each in rows if each.failure]
        conformance = [each for each in rows if each.conformance]
        broken = sum(bool(each.failure) for each in conformance)
        counts = (len(rows), len(rows) - len(failed), len(failed), len(conformance) - broken, broken)
        lines.append(f"| {title} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the specs of Kubernetes' e2e.test that need no running Pods.")
    parser.add_argument("groups", nargs="*", help="groups of e2e.toml; all of them if none is named")
    parser.add_argument("--focus", action="append", default=[], help="run the specs of this pattern instead of groups")
    parser.add_argument("--kubeconfig", type=pathlib.Path, help="a server that runs, instead of one that is started")
    parser.add_argument("--out", type=pathlib.Path, help="where logs and reports go; a new directory by default")
    parser.add_argument("--jobs", type=int, default=3, help="groups that run at the same time")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    binary, kubectl = os.environ.get("E2E_TEST", ""), os.environ.get("KUBECTL", "kubectl")
    if not binary:
        raise SystemExit("error: E2E_TEST names no binary of Kubernetes' e2e.test: see docs/interop.md")
    groups, skips = selection(options.groups)
    if options.focus:
        groups, skips = {"focus": options.focus}, []
    out = (options.out or pathlib.Path(tempfile.mkdtemp(prefix="handfast-e2e-"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    started = control_plane(out) if options.kubeconfig is None else contextlib.nullcontext(options.kubeconfig.resolve())
    with started as kubeconfig, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        prepare(kubectl, kubeconfig)
        running = [pool.submit(run_group, binary, kubectl, kubeconfig, out, *row, skips) for row in groups.items()]
        specs = [spec for each in running for spec in each.result()]
    for spec in specs:
        print(f"{'failed' if spec.failure else 'passed'} {spec.seconds:6.1f}s {spec.name}")
        if spec.failure:
            print(f"       {spec.failure}")
    print(f"\n{table(specs)}\n\nlogs and reports: {out}")
    return int(any(spec.failure for spec in specs))


if __name__ == "__main__":
    sys.exit(main())

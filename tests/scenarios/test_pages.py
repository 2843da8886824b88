# SPDX-License-Identifier: Apache-2.0
"""The pages below docs, followed: every command of a console block works as written, and prints what the page shows.

docs/access.md is followed to the letter, in a checkout. The others are for machines, and name addresses, ports and places
in /etc and /var/lib: they are followed on a machine that is alone (`world.lone_machine`), unchanged. One control plane
serves joining.md, check.md, node.md, console.md, certificates.md and ca.md; cluster.md has an API server of its own. The README has a test of its own,
`test_readme`. What is not run is in `LEFT_OUT`, with the reason.
"""

from __future__ import annotations

import pathlib
import sys
import textwrap
from collections.abc import Iterator

import pytest

from tests import page_facts, page_match, page_text, test_page_claims
from tests.interop import running
from tests.page_facts import ROOT
from tests.scenarios import page_reader
from tests.world import lone_machine

NODE, ADDRESS = "worker-1", "192.0.2.1"
# Those of two-servers.md.
SECOND, SECOND_ADDRESS, BALANCER = "second", "192.0.2.2", "192.0.2.10"
# The address that cluster.md advertises.
ELSEWHERE = "10.0.0.1"
LETTER = "access.md"
ONE_STORY = ("joining.md", "check.md", "node.md", "console.md", "certificates.md", "ca.md")
COMING_AND_GOING = ("upgrade.md", "uninstall.md")
ON_ANOTHER = "cluster.md"
FLEET = "machines.md"
ETCD = "etcd.md"
TWO = "two-servers.md"
MESH = ("mesh.md", "mesh-revocation.md", "mesh-spiffe.md", "mesh-anchors.md")
POLICY = "mesh-policy.md"
STORE = "store.md"
WORKLOADS = ("mesh-run.md", "mesh-tour.md", "mesh-edges.md", "mesh-proxy.md")
# The page whose blocks of a terminal are typed by a test of its own, `test_readme`.
IN_TERMINALS = "README.md"
# Page and command -> why it is not run. A row that is not needed fails.
LEFT_OUT = {
    (
        "README.md",
        ".venv/bin/handfast up --dir /tmp/other",
    ): "writes to /tmp; test_up_lifecycle takes its ports away, too",
    (LETTER, "jq -r 'select("): "jq may not be there; the fields that it reads are in test_audit_trail",
    (
        "mesh-run.md",
        "handfast mesh run --pod ",
    ): "needs a machine that has joined; test_mesh_run runs it",
    ("demo.md", "handfast demo"): "test_demo runs it, and judges every line of it",
    (
        "mesh-spiffe.md",
        "handfast mesh proxy run",
    ): "needs the variables and the token of a Pod; test_mesh_spiffe runs it",
    (
        ETCD,
        "handfast up --store etcd://10.0.0.1:2379",
    ): "needs three machines; the next block reads its settings, and etcd_cluster.py has three",
    ("durability.md", "HANDFAST_POWER_CUTS="): "runs for minutes; CI runs the same test with fewer cuts",
    ("fuzzing.md", "python -m tests.fuzz --seconds"): "runs for minutes; CI runs every target with fewer inputs",
    ("fuzzing.md", "python -m tests.fuzz --keep"): "writes to the checkout; tests/fuzz/test_fuzz.py has its parts",
    (
        "fuzzing.md",
        "python -m tests.fuzz --replay",
    ): "needs an input that was found; tests/fuzz/test_fuzz.py runs all that are kept",
    ("interop.md", "KUBEADM="): "kubeadm is in no Debian package; run by whoever has one",
    ("interop.md", "E2E_TEST="): "Kubernetes' suite is in no Debian package; run by whoever has built one",
    ("interop.md", "KUBELET="): "the kubelet is in no Debian package; run by whoever has one",
    ("interop.md", "HANDFAST_IGNITION_VALIDATE="): "ignition-validate is in no Debian package; run by whoever has one",
    ("interop.md", "KUBECTL="): "writes down what a kube-apiserver answers; run by whoever has one",
    ("interop.md", "KUBE_APISERVER="): "kube-apiserver is in no Debian package; run by whoever has one",
}
# Page and the beginning of a command in a block of another language -> why it is no console block. A row that is not needed fails.
OTHER_BLOCKS = {
    ("cli.md", "handfast "): "the examples of --help; test_page_claims has the real commands read each of them",
}
# Command -> why no page has it in a console block. A row that is not needed fails.
IN_NO_PAGE = {
    "completion": "prints a script for a shell, which asks for it; test_completion",
    "help": "the same as --help",
    "mesh proxy init": "needs the variables and the token of a Pod; `mesh run` starts it, and so does test_mesh_proxy_init",
    "node configuration restore": "takes back what the page goes on with; test_node_configuration",
    "serve apiserver": "a part of `up`; the page of other clusters is followed on one",
    "serve destination": "a part of `up --mesh`",
    "serve identity": "a part of `up --mesh`",
    "serve injector": "a part of `up --mesh`",
    "serve mesh-accounts": "a step of `up --mesh`, and of nobody else",
    "serve prepare": "a step of `up`, and of nobody else",
}
# The control plane is stopped.
STOPPED = """
        kill $(cat handfast-data/.lock) 2> /dev/null
        until flock --nonblock handfast-data/.lock true; do sleep 0.1; done
        """
# The certificates of a control plane that is stopped are from so many years ago.
AGED = f"""
        export PYTHONPATH={ROOT}
        {sys.executable} -m tests.world.expiring ca YEARS handfast-data
        {sys.executable} -m tests.world.expiring own YEARS handfast-data
        unset PYTHONPATH
        """
# What a page takes for granted -> how it comes about here; typed before the command.
BEFORE = {
    "mv handfast-data/": STOPPED,
    "handfast store copy handfast-data/": STOPPED,
    "rm handfast-data/admin.conf": STOPPED,
    "cat > haproxy.cfg": """
        cp /var/lib/handfast/pki/ca.crt .
        """,
    "date": STOPPED + AGED.replace("YEARS", "2"),
    # The machine has joined, and the CA that the API server believes is the expired one alone.
    "openssl x509 -in handfast-data/pki/ca.crt -signkey": f"""
        export KUBECONFIG=$PWD/handfast-data/admin.conf
        $(handfast token create --print-join-command)
        cas="kubectl -n kube-system get configmap extension-apiserver-authentication -o yaml"
        PYTHONPATH={ROOT} {sys.executable} -m tests.world.expiring ca 11 handfast-data
        until [ $($cas | grep -c BEGIN) = 3 ]; do sleep 0.2; done
        kubectl -n kube-system delete configmap extension-apiserver-authentication
        while $cas 2> /dev/null; do sleep 0.2; done
        unset KUBECONFIG
        """
    + STOPPED
    + AGED.replace("YEARS", "11"),
    # The site that has the document.
    "handfast join --discovery-file https://192.0.2.1:8443/": """
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=site -addext subjectAltName=IP:192.0.2.1 \\
            -keyout site.key -out site.crt
        openssl s_server -quiet -WWW -accept 8443 -cert site.crt -key site.key > site.log 2>&1 &
        until curl --silent --cacert site.crt --output site.txt https://192.0.2.1:8443/cluster.yaml; do sleep 0.1; done
        """,
    "handfast join failures": """
        curl --silent --insecure --header 'Authorization: Bearer abcdef.0123456789abcdef' https://192.0.2.1:6443/api
        """,
    "handfast node reset --dry-run": """
        $(handfast token create --print-join-command)
        """,
    "handfast csr explain csr-7hqzk": """
        openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O=system:nodes/CN=system:node:n1 \\
            -keyout n1.key -out n1.csr
        kubectl create clusterrole asks --verb=create --resource=certificatesigningrequests.certificates.k8s.io
        kubectl create clusterrolebinding asks --clusterrole=asks --group=joiners
        kubectl create --as=joiner --as-group=joiners -f - <<EOF
        apiVersion: certificates.k8s.io/v1
        kind: CertificateSigningRequest
        metadata: {name: csr-7hqzk}
        spec:
          signerName: kubernetes.io/kube-apiserver-client-kubelet
          usages: [client auth, digital signature]
          request: $(base64 -w0 n1.csr)
        EOF
        """,
    "handfast serve controllers --kubeconfig controllers.conf": """
        (umask 077; kubectl create token handfast-controllers --namespace kube-system --duration 24h > account.token)
        """,
}
# What fails here, at its last object -> with which words. Handfast's own server has the kind that the manifest defines;
# tests/interop/test_another_apiserver.py applies all of it to a kube-apiserver.
FAIL_HERE = {
    "kubectl apply --filename handfast.yaml": '"IssuanceLog" of group "handfast.dev" is built into this server',
}

pytestmark = [pytest.mark.kubectl, pytest.mark.timeout(300)]


def steps(page: str) -> Iterator[page_text.Step]:
    """Those that are run."""
    for step in page_text.steps((ROOT / "docs" / page).read_text()):
        if not any(page == its and step.command.startswith(begin) for its, begin in LEFT_OUT):
            yield step


def new_machine(reader: page_reader.Reader) -> None:
    """Whoever joins has not joined before."""
    reader.shell.type("rm -rf /etc/kubernetes /var/lib/kubelet")


def follow(reader: page_reader.Reader, page: str, second: page_reader.Reader | None = None) -> None:
    """All steps; then the commands that they printed for machines, which are there to be typed.

    `second` reads the blocks of the second terminal, on a machine of its own.
    """
    printed = ""
    elsewhere = list(page_text.steps((ROOT / "docs" / page).read_text(), "second"))
    for step in steps(page):
        if second is not None and step in elsewhere:
            second.follow(step)
            continue
        for begin, script in BEFORE.items():
            if step.line.startswith(begin):
                code, _, errors = reader.shell.type(textwrap.dedent(script))
                assert code == 0, errors
        if step.command.startswith("handfast join ") and not step.command.startswith("handfast join failures"):
            new_machine(reader)
        printed += reader.follow(step, FAIL_HERE.get(step.command, ""))
    for line in printed.splitlines():
        if line.startswith("handfast join "):
            new_machine(reader)
            reader.follow(page_text.Step(line, f"this machine has joined the cluster as node {NODE}\n…\n"))


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where a person stands on a machine that has `handfast` and nothing else of it."""
    running.find_kubectl()
    page_reader.install(tmp_path / "bin")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def variables(home: pathlib.Path) -> dict[str, str]:
    found = page_reader.environment(home.parent)
    return {**found, "PATH": f"{home.parent / 'bin'}:{found['PATH']}"}


@pytest.mark.slow
def test_what_access_says_is_so_to_the_letter(checkout: pathlib.Path) -> None:
    running.find_kubectl()
    commands = list(steps(LETTER))
    assert len(commands) > 20
    with page_reader.Reader(checkout, page_reader.on_free_ports(checkout.parent), to_the_letter=True) as reader:
        reader.start("make up", page_reader.READY)
        for step in commands:
            reader.follow(step)


@pytest.mark.slow
def test_the_pages_of_joining_and_certificates_work_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        for page in ONE_STORY:
            follow(reader, page)


@pytest.mark.slow
def test_the_pages_of_upgrade_and_uninstall_work_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        for page in COMING_AND_GOING:
            follow(reader, page)


@pytest.mark.slow
def test_the_page_of_other_clusters_works_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ELSEWHERE) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        listen = f"--listen {ELSEWHERE}:6443 --enable-bootstrap-token-auth"
        reader.start(f"handfast serve apiserver --dir cluster {listen}", "API server started")
        code, _, errors = reader.shell.type("cp cluster/admin.conf cluster/pki/ca.* .")
        assert code == 0, errors
        write_account(home)
        follow(reader, ON_ANOTHER)


@pytest.mark.slow
def test_the_page_of_machine_fleets_works_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        follow(reader, FLEET)


@pytest.mark.slow
def test_the_pages_of_etcd_and_of_two_servers_work_as_written(home: pathlib.Path) -> None:
    """One etcd for both. The second machine has files and a name of its own, and the network of the first."""
    other = home.parent / "other"
    (other / "home").mkdir(parents=True)
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        lone_machine.switched_on(other, SECOND, SECOND_ADDRESS, enter) as enter_second,
        page_reader.Reader(home, variables(home), enter) as reader,
        page_reader.Reader(
            other / "home", {**variables(home), "HANDFAST_ADMIN_LISTEN": "127.0.0.1:9991"}, enter_second
        ) as second,
    ):
        follow(reader, ETCD)
        stand_in(home.parent / "bin" / "ssh", f'shift; exec {" ".join(enter_second)} sh -c "$*"')
        code, _, errors = reader.shell.type(f"ip address add {BALANCER}/32 dev lo")
        assert code == 0, errors
        follow(reader, TWO, second)
        # One of two ends, and whoever calls the balancer does not notice.
        second.interrupt()
        for _ in range(5):
            assert reader.shell.type("kubectl get --raw /readyz")[:2] == (0, "ok")


def stand_in(path: pathlib.Path, line: str) -> None:
    """A program of this name that does something else."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.slow
def test_the_page_of_the_mesh_works_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        for page in MESH:
            follow(reader, page)


@pytest.mark.slow
def test_the_page_of_the_store_works_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        follow(reader, STORE)


@pytest.mark.slow
def test_the_page_of_policy_in_the_mesh_works_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        follow(reader, POLICY)


@pytest.mark.slow
def test_the_page_of_workloads_without_a_kubelet_works_as_written(home: pathlib.Path) -> None:
    with (
        lone_machine.switched_on(home.parent, NODE, ADDRESS) as enter,
        page_reader.Reader(home, variables(home), enter) as reader,
    ):
        for page in WORKLOADS:
            follow(reader, page)


def write_account(home: pathlib.Path) -> None:
    """The kubeconfig that the page shows, with server, CA and token of here, as it says."""
    page = (ROOT / "docs" / ON_ANOTHER).read_text()
    [text] = [block for language, block in page_text.blocks(page) if language == "yaml"]
    directory = "/var/run/secrets/kubernetes.io/serviceaccount"
    for theirs, ours in (
        ("https://kubernetes.default.svc", f"https://{ELSEWHERE}:6443"),
        (f"{directory}/ca.crt", "ca.crt"),
        (f"{directory}/token", "account.token"),
    ):
        assert text.count(theirs) == 1
        text = text.replace(theirs, ours)
    (home / "controllers.conf").write_text(text)


def test_every_command_of_the_pages_is_run_or_says_why_not() -> None:
    followed = {LETTER, *ONE_STORY, *COMING_AND_GOING, ON_ANOTHER, FLEET, ETCD, TWO, *MESH, POLICY, STORE, *WORKLOADS}
    missed = []
    for page in test_page_claims.PAGES:
        terminals = ("first", "second") if page.name == IN_TERMINALS else ()
        run = {step.command for terminal in terminals for step in page_text.steps(page.read_text(), terminal)}
        for step in page_text.steps(page.read_text()):
            rows = [row for row in LEFT_OUT if row[0] == page.name and step.command.startswith(row[1])]
            if not rows and page.name not in followed and step.command not in run:
                missed.append((page.name, step.command))
    assert missed == []


def test_every_command_of_a_page_is_in_a_console_block_or_says_why_not() -> None:
    lines = {(page.name, line) for page in test_page_claims.PAGES for line in page_text.untyped(page.read_text())}
    said = {
        (name, line): [row for row in OTHER_BLOCKS if row[0] == name and line.startswith(row[1])]
        for name, line in lines
    }
    assert [where for where, rows in sorted(said.items()) if not rows] == []
    assert OTHER_BLOCKS.keys() - {row for rows in said.values() for row in rows} == set()


def test_every_command_is_in_a_console_block_of_a_page_or_says_why_not() -> None:
    names = page_facts.command_names()
    lines = [
        " ".join(line.words)
        for page in test_page_claims.PAGES
        for line in page_text.command_lines(page.read_text(), names)
        if line.whole
    ]
    in_none = {
        path
        for path in page_facts.command_paths()
        if not any(line == path or line.startswith(f"{path} ") for line in lines)
    }
    assert in_none == IN_NO_PAGE.keys()


def test_every_exception_is_of_a_command_that_is_there_still() -> None:
    commands = [(page.name, step.line) for page in test_page_claims.PAGES for step in page_text.steps(page.read_text())]
    shown = "".join(step.printed for page in test_page_claims.PAGES for step in page_text.steps(page.read_text()))
    left_out = [
        row for row in LEFT_OUT if not any(name == row[0] and line.startswith(row[1]) for name, line in commands)
    ]
    prepared = [begin for begin in BEFORE if not any(line.startswith(begin) for _, line in commands)]
    invented = [example for example in page_match.EXAMPLES if example not in shown]
    failing = FAIL_HERE.keys() - {line for _, line in commands}
    assert (left_out, prepared, invented, failing) == ([], [], [], set())

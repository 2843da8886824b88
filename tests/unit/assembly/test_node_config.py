# SPDX-License-Identifier: Apache-2.0
"""What a node agent is told, by whom, and what is said about the rest."""

from __future__ import annotations

import pathlib

import pytest

from handfast.assembly import config, node_config
from handfast.runtime import addresses

FILE = "kubelet.yaml"
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def resolve(flags=None, environ=None, text="", **more):
    document = node_config.parse((HEAD + text).encode(), FILE) if text else {}
    return node_config.resolve(flags or {}, environ or {}, document, FILE, **more)


def test_defaults_are_the_kubelets():
    found = resolve()
    assert found == node_config.NodeConfiguration(
        bootstrap_kubeconfig=None,
        kubeconfig=pathlib.Path("/etc/kubernetes/kubelet.conf"),
        cert_dir=pathlib.Path("/var/lib/kubelet/pki"),
        node_name=None,
        node_ip=(),
        rotate_certificates=False,
        rotate_server_certificates=False,
        static_pods_dir=None,
        listen=addresses.Address("0.0.0.0", 10250),
        proxy_protocol_from="none",
        verbosity=0,
    )
    assert found.log_level == "info"


def test_the_usual_bootstrap_kubeconfig_counts_where_it_is():
    found = resolve(exists=lambda path: path == node_config.BOOTSTRAP_KUBECONFIG)
    assert found.bootstrap_kubeconfig == pathlib.Path(node_config.BOOTSTRAP_KUBECONFIG)


def test_each_goes_before_the_next():
    text = "rotateCertificates: false\nstaticPodPath: /file\n"
    environ = {"HANDFAST_ROTATE_CERTIFICATES": "true", "HANDFAST_STATIC_PODS_DIR": "/environment"}
    assert resolve(text=text).static_pods_dir == pathlib.Path("/file")
    assert resolve(environ=environ, text=text).rotate_certificates is True
    found = resolve({"rotate_certificates": "false", "static_pods_dir": "/flag"}, environ, text)
    assert (found.rotate_certificates, found.static_pods_dir) == (False, pathlib.Path("/flag"))


def test_every_flag():
    flags = {
        "bootstrap_kubeconfig": "/b",
        "kubeconfig": "/k",
        "cert_dir": "/c",
        "node_name": " N ",
        "node_ip": "192.0.2.1, 2001:DB8::1",
        "rotate_certificates": "true",
        "rotate_server_certificates": "TRUE",
        "static_pods_dir": "/s",
        "listen": "[::1]:1",
        "proxy_protocol_from": "10.0.0.0/29",
        "feature_gates": "Nonsense=true",
        "verbosity": "4",
        "machine_config": "true",
        "root": "/mnt",
        "machine_config_server": "https://192.0.2.1:22623",
    }
    assert list(flags) == [setting.field for setting in node_config._SETTINGS]
    found = resolve(flags)
    assert (str(found.bootstrap_kubeconfig), str(found.kubeconfig), str(found.cert_dir)) == ("/b", "/k", "/c")
    assert (found.node_name, found.node_ip) == ("n", ("192.0.2.1", "2001:db8::1"))
    assert str(found.static_pods_dir) == "/s"
    assert found.rotate_certificates
    assert found.rotate_server_certificates
    assert found.listen == addresses.Address("::1", 1)
    assert found.proxy_protocol_from == "10.0.0.0/29"
    assert found.log_level == "debug"
    assert (found.machine_config, found.root) == (True, pathlib.Path("/mnt"))
    assert found.machine_config_server == "https://192.0.2.1:22623"
    assert "Nonsense" in "".join(found.warnings)


def test_paths_become_absolute():
    assert resolve({"cert_dir": "pki"}).cert_dir.is_absolute()


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("port: 1\n", "0.0.0.0:1"),
        ("address: 127.0.0.1\n", "127.0.0.1:10250"),
        ("address: '::'\nport: 2\n", "[::]:2"),
    ],
)
def test_the_files_endpoint(text, listen):
    assert str(resolve(text=text).listen) == listen
    assert str(resolve(environ={"HANDFAST_NODE_LISTEN": "127.0.0.1:9"}, text=text).listen) == "127.0.0.1:9"


class TestFile:
    def test_server_tls_bootstrap_turns_serving_rotation_on(self):
        assert resolve(text="serverTLSBootstrap: true\n").rotate_server_certificates

    def test_what_a_kubelet_has_is_ignored_aloud(self):
        found = resolve(text="cgroupDriver: systemd\nrotateCertificate: true\nauthentication: {}\n")
        assert found.rotate_certificates is False
        assert found.warnings == (
            "kubelet.yaml: rotateCertificate is not known and was ignored; did you mean rotateCertificates?",
            "kubelet.yaml: ignored, since this agent has no use for them: authentication, cgroupDriver",
        )

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("a: [", "kubelet.yaml: "),
            ("- a", "not a mapping"),
            ("", "not a mapping"),
            ("kind: KubeletConfiguration", 'apiVersion: the value "" is not kubelet.config.k8s.io/v1beta1'),
            (HEAD.replace("v1beta1", "v1"), "is not kubelet.config.k8s.io/v1beta1"),
            (HEAD.replace("KubeletConfiguration", "Pod"), 'kind: the value "Pod" is not KubeletConfiguration'),
            (HEAD + "port: 1\nport: 2", "the key port is there twice"),
        ],
    )
    def test_a_wrong_file_is_refused_with_its_name(self, text, says):
        with pytest.raises(config.Invalid) as refused:
            node_config.parse(text.encode(), FILE)
        assert says in refused.value.message


@pytest.mark.parametrize(
    ("flags", "environ", "text", "says", "typed"),
    [
        ({"rotate_certificates": "yes"}, {}, "", '--rotate-certificates: the value "yes" is neither true nor', True),
        ({}, {"HANDFAST_ROTATE_CERTIFICATES": "1"}, "", '$HANDFAST_ROTATE_CERTIFICATES: the value "1"', False),
        ({}, {}, "rotateCertificates: 1\n", 'kubelet.yaml: rotateCertificates: the value "1"', False),
        ({}, {}, "staticPodPath: [a]\n", "kubelet.yaml: staticPodPath", False),
        ({}, {}, "port: many\n", "kubelet.yaml: address and port", False),
        ({}, {}, "featureGates: {A: maybe}\n", "kubelet.yaml: featureGates", False),
        ({"listen": "10250"}, {}, "", "--listen", True),
        ({"feature_gates": "A"}, {}, "", "has 'A' without =true or =false", True),
        ({"verbosity": "much"}, {}, "", "is not a number from 0 to 10", True),
        ({"verbosity": "11"}, {}, "", "is not a number from 0 to 10", True),
        ({"proxy_protocol_from": "any"}, {}, "", "would let everybody choose their own address", True),
        ({"proxy_protocol_from": "0.0.0.0/0"}, {}, "", "would let everybody choose their own address", True),
        ({"proxy_protocol_from": "::/0"}, {}, "", "would let everybody choose their own address", True),
        ({"kubeconfig": "a\0b"}, {}, "", "--kubeconfig", True),
    ],
)
def test_wrong_values_are_named_with_their_origin(flags, environ, text, says, typed):
    with pytest.raises(config.Invalid) as refused:
        resolve(flags, environ, text)
    assert says in refused.value.message
    assert refused.value.from_flag is typed
    assert str(refused.value.hint).startswith("allowed: ")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        *(("NODE_NAME", text, "cannot be a Node's name: ") for text in ("a b", "Foo_bar", "-a", "a" * 254)),
        *(("NODE_IP", text, "which is no IP address") for text in ("a", "192.0.2.1,", "192.0.2.1/24")),
        *(("NODE_IP", text, "which cannot be the address of a node") for text in ("0.0.0.0", "::1,ff02::1")),
    ],
)
def test_who_the_node_is_is_told_with_its_origin_too(name, text, says):
    reasons = {"NODE_NAME": "BadNodeName", "NODE_IP": "BadNodeIP"}
    flag = name.lower()
    for flags, environ, origin in (
        ({flag: text}, {}, f"--{flag.replace('_', '-')}"),
        ({}, {f"HANDFAST_{name}": text}, f"$HANDFAST_{name}"),
    ):
        with pytest.raises(config.Invalid) as refused:
            resolve(flags, environ)
        assert refused.value.message.startswith(f'{origin}: the value "{text[:120]}" ')
        assert says in refused.value.message
        assert refused.value.reason == reasons[name]
        assert refused.value.from_flag is bool(flags)
        assert str(refused.value.hint).startswith("allowed: ")


def test_an_empty_name_is_none_and_an_empty_address_is_not_given():
    with pytest.raises(config.Invalid, match='--node-name: the value "" cannot be'):
        resolve({"node_name": ""})
    assert resolve({"node_ip": ""}, {"HANDFAST_NODE_NAME": ""}).node_name is None


def test_only_what_is_asked_for_is_looked_at():
    environ = {"HANDFAST_VERBOSITY": "x", "HANDFAST_NODE_NAME": "a_b", "HANDFAST_CERT_DIR": "/c"}
    found = resolve({"listen": "x"}, environ, names=("cert-dir", "kubeconfig"))
    assert (str(found.cert_dir), found.verbosity, found.node_name) == ("/c", 0, None)


class TestFeatureGates:
    def test_on_decides_nothing(self):
        found = resolve({"feature_gates": "RotateKubeletClientCertificate=true"})
        assert found.rotate_certificates is False
        assert found.warnings == (
            "feature gate RotateKubeletClientCertificate is always on: --rotate-certificates decides",
        )

    def test_off_turns_rotation_off(self):
        gates = "RotateKubeletClientCertificate=false, RotateKubeletServerCertificate=false"
        on = {"rotate_certificates": "true", "rotate_server_certificates": "true"}
        found = resolve({**on, "feature_gates": gates})
        assert (found.rotate_certificates, found.rotate_server_certificates) == (False, False)
        assert len(found.warnings) == 2

    def test_others_are_ignored_aloud(self):
        assert resolve(text="featureGates: {Other: true}\n").warnings == (
            "feature gate Other is not known and was ignored",
        )


class TestMachineConfig:
    def test_it_is_off_and_the_root_is_the_machines(self):
        found = resolve()
        assert (found.machine_config, found.root, found.machine_config_server) == (False, pathlib.Path("/"), "")

    def test_the_bootstrap_kubeconfig_is_the_one_that_the_configuration_brings(self):
        served = "/mnt/etc/kubernetes/kubeconfig"
        on = {"machine_config": "true", "root": "/mnt"}
        usual = node_config.BOOTSTRAP_KUBECONFIG
        assert resolve(on).bootstrap_kubeconfig == pathlib.Path(served)
        assert resolve(on, exists={usual, served}.__contains__).bootstrap_kubeconfig == pathlib.Path(served)
        # Who has just joined by a token has another one.
        assert resolve(on, exists={usual}.__contains__).bootstrap_kubeconfig == pathlib.Path(usual)
        assert resolve({**on, "bootstrap_kubeconfig": "/x"}).bootstrap_kubeconfig == pathlib.Path("/x")
        assert resolve({"root": "/mnt"}, exists={served}.__contains__).bootstrap_kubeconfig is None

    def test_a_server_is_a_url_of_a_host_and_a_port(self):
        for good in ("https://192.0.2.1:22623", "https://[fd00::1]:22623/", "https://api.example"):
            environ = {"HANDFAST_MACHINE_CONFIG_SERVER": good}
            assert resolve(environ=environ).machine_config_server == good.rstrip("/")
        for bad in (
            "http://x",
            "x:1",
            "https://",
            "https://x/config/worker",
            "https://a:b@x",
            "https://x:1x",
            "https://x?a",
        ):
            with pytest.raises(config.Invalid) as caught:
                resolve({"machine_config_server": bad})
            assert f'the value "{bad}" is not an https URL of a host and a port' in caught.value.message

    def test_it_is_no_key_of_a_kubelets_file(self):
        found = resolve(text="machineConfig: true\nroot: /mnt\n")
        assert (found.machine_config, found.root) == (False, pathlib.Path("/"))
        assert found.warnings == (f"{FILE}: ignored, since this agent has no use for them: machineConfig, root",)

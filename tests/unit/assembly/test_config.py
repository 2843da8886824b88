# SPDX-License-Identifier: Apache-2.0
"""Configuration: who goes before whom, and errors that name file, key, value and what is allowed."""

import datetime
import re

import pytest

from handfast import errors
from handfast.assembly import config
from handfast.runtime.addresses import Address

HEAD = b"apiVersion: handfast.dev/v1alpha1\nkind: Configuration\n"


def resolve(flags=None, environ=None, text=b""):
    return config.resolve(flags or {}, environ or {}, config.parse(HEAD + text, "f.yaml"), "f.yaml")


def test_what_is_not_set_has_its_default():
    assert resolve().configuration == config.Configuration(
        listen=Address("127.0.0.1", 6443),
        advertise=(),
        store="store.db",
        etcd_ca_file=None,
        etcd_cert_file=None,
        etcd_key_file=None,
        etcd_username=None,
        etcd_password_file=None,
        admin_listen=Address("127.0.0.1", 9990),
        mesh=False,
        identity_listen=Address("127.0.0.1", 8080),
        identity_admin_listen=Address("127.0.0.1", 9992),
        identity_advertise=None,
        destination_listen=Address("127.0.0.1", 8086),
        destination_admin_listen=Address("127.0.0.1", 9996),
        destination_advertise=None,
        policy_listen=Address("127.0.0.1", 8090),
        policy_advertise=None,
        agents_listen=Address("127.0.0.1", 8089),
        agents_advertise=None,
        injector_listen=Address("127.0.0.1", 8443),
        injector_admin_listen=Address("127.0.0.1", 9995),
        injector_advertise=None,
        console=False,
        console_listen=Address("127.0.0.1", 8765),
        controllers=("*",),
        leader_elect=False,
        log_level="info",
        watchdog_seconds=60,
        enable_bootstrap_token_auth=False,
        anonymous_from="any",
        proxy_protocol_from="none",
        service_account_issuer="https://kubernetes.default.svc.cluster.local",
        api_audiences=(),
        service_account_max_token_seconds=0,
        node_recovery_window=datetime.timedelta(),
        ledger_retention_days=90,
        protect_living_nodes=True,
        machines=False,
        machine_config_listen=Address("127.0.0.1", 22623),
        machine_config_admin_listen=Address("127.0.0.1", 9991),
        machine_config_trusted_networks="none",
        join_within=datetime.timedelta(hours=2),
        cluster_signing_duration=datetime.timedelta(hours=8760),
        cluster_signing_cert_file=None,
        cluster_signing_key_file=None,
        cluster_signing_kubelet_serving_cert_file=None,
        cluster_signing_kubelet_serving_key_file=None,
        cluster_signing_kubelet_client_cert_file=None,
        cluster_signing_kubelet_client_key_file=None,
        cluster_signing_kube_apiserver_client_cert_file=None,
        cluster_signing_kube_apiserver_client_key_file=None,
        cluster_signing_legacy_unknown_cert_file=None,
        cluster_signing_legacy_unknown_key_file=None,
        audit_log_path="audit/audit.log",
        audit_log_max_mib=100,
        audit_log_max_files=10,
        audit_log_max_days=30,
        unsafe_lift_limits=False,
    )


def test_flag_over_environment_over_file_over_default():
    file = b'listen: "127.0.0.1:3"\n'
    environ = {"HANDFAST_LISTEN": "127.0.0.1:2"}
    flags = {"listen": "127.0.0.1:1"}
    ports = [
        resolve(flags, environ, file),
        resolve({"listen": None}, environ, file),
        resolve({}, {"HANDFAST_LISTEN": ""}, file),
        resolve(),
    ]
    assert [found.configuration.listen.port for found in ports] == [1, 2, 3, 6443]
    assert [found.origins["listen"] for found in ports] == ["--listen", "$HANDFAST_LISTEN", "f.yaml: listen", "default"]


def test_lists_from_every_side():
    wanted = (Address("a", 1), Address("::1", 2))
    assert resolve({"advertise": ("a:1", "[::1]:2")}).configuration.advertise == wanted
    assert resolve({}, {"HANDFAST_ADVERTISE": "a:1, [::1]:2"}).configuration.advertise == wanted
    assert resolve(text=b'advertise: ["a:1", "[::1]:2"]\n').configuration.advertise == wanted


@pytest.mark.parametrize(
    "text, value",
    [
        ("store.db", "store.db"),
        ("sqlite:a.db", "a.db"),
        ("sqlite:///x/a.db", "/x/a.db"),
        ("etcd://h/p", "etcd://h:2379/p"),
    ],
)
def test_the_store_is_a_path_however_it_is_written(text, value):
    assert resolve({"store": text}).configuration.store == value


@pytest.mark.parametrize("text, value", [("true", True), ("False", False)])
def test_boolean_from_the_environment(text, value):
    assert resolve({}, {"HANDFAST_LEADER_ELECT": text}).configuration.leader_elect is value


@pytest.mark.parametrize(
    "line, key, value, allowed",
    [
        ("listen: 6443", "listen", "6443", "HOST:PORT"),
        ('listen: "a"', "listen", "a", "HOST:PORT"),
        ("advertise: 5", "advertise", "5", "a list of HOST:PORT"),
        ("advertise: [a]", "advertise", "['a']", "a list of HOST:PORT"),
        ("store: 5", "store", "5", "a path"),
        ("store: etcd://a", "store", "etcd://a", "a path"),
        ('store: "sqlite:"', "store", "sqlite:", "a path"),
        ("leaderElect: maybe", "leaderElect", "maybe", "true or false"),
        ("watchdogSeconds: 5", "watchdogSeconds", "5", "6 to 3600, or 0"),
        ("logLevel: loud", "logLevel", "loud", "debug, info, warning, error"),
        ("nodeRecoveryWindow: soon", "nodeRecoveryWindow", "soon", "720h"),
        ("nodeRecoveryWindow: 91d", "nodeRecoveryWindow", "91d", "up to 90d"),
        ("clusterSigningDuration: soon", "clusterSigningDuration", "soon", "10m to 36500d"),
        ("clusterSigningDuration: 9m", "clusterSigningDuration", "9m", "10m to 36500d"),
        ("clusterSigningDuration: 36501d", "clusterSigningDuration", "36501d", "10m to 36500d"),
        ('clusterSigningCertFile: ""', "clusterSigningCertFile", "", "a path"),
        ("clusterSigningKeyFile: 5", "clusterSigningKeyFile", "5", "a path"),
        ("ledgerRetentionDays: -1", "ledgerRetentionDays", "-1", "0 for ever"),
        ("proxyProtocolFrom: any", "proxyProtocolFrom", "any", "not any"),
        ("proxyProtocolFrom: 0.0.0.0/0", "proxyProtocolFrom", "0.0.0.0/0", "not any"),
        ('proxyProtocolFrom: "10.0.0.0/8,::/0"', "proxyProtocolFrom", "10.0.0.0/8,::/0", "not any"),
        ("proxyProtocolFrom: 10.0.0.1", "proxyProtocolFrom", "10.0.0.1", "networks as in"),
        ("controllers: []", "controllers", "[]", "controller names"),
        ('controllers: ["A B"]', "controllers", "['A B']", "controller names"),
        ('controllers: ["*", namspace]', "controllers", "['*', 'namspace']", "controller names"),
        ("controllers: [-namespace-controller]", "controllers", "['-namespace-controller']", "controller names"),
    ],
)
def test_values_refused(line, key, value, allowed):
    with pytest.raises(config.Invalid) as caught:
        resolve(text=line.encode() + b"\n")
    assert caught.value.message.startswith(f'f.yaml: {key}: the value "{value}" ')
    assert allowed in (caught.value.hint or "")
    assert caught.value.reason == "InvalidConfiguration"
    assert caught.value.from_flag is False


@pytest.mark.parametrize(
    "listen, balancers, own",
    [
        ("127.0.0.1:1", "127.0.0.0/8", "127.0.0.1"),
        ("0.0.0.0:1", "private", "127.0.0.1"),
        ("[::]:1", "10.0.0.0/8,::1/128", "::1"),
        ("localhost:1", "127.0.0.1/32", "127.0.0.1"),
        ("10.0.0.5:1", "10.0.0.0/8", "10.0.0.5"),
        ("10.0.0.5:1", "10.0.0.9/32,127.0.0.9/32", None),
        ("127.0.0.1:1", "127.0.0.9/32", None),
        ("127.0.0.1:1", "none", None),
    ],
)
def test_balancers_are_not_the_control_planes_own_clients(listen, balancers, own):
    chosen = resolve({"listen": listen, "proxy_protocol_from": balancers}).configuration
    assert chosen.proxy_protocol_from == balancers
    if own is None:
        config.require_own_way_in(chosen)
        return
    with pytest.raises(config.Invalid) as caught:
        config.require_own_way_in(chosen)
    assert f"names {own}, from which the controllers" in caught.value.message
    assert "127.0.0.2/32" in str(caught.value.hint)


def test_a_value_from_a_flag_is_the_command_lines_fault():
    with pytest.raises(config.Invalid, match=r'^--listen: the value "a" has no port') as caught:
        resolve({"listen": "a"})
    assert caught.value.from_flag is True


@pytest.mark.parametrize(
    "text, message, hint",
    [
        (HEAD + b"lisen: x\n", 'f.yaml: unknown key "lisen"', "did you mean listen?"),
        (HEAD + b"zzz: x\n", 'f.yaml: unknown key "zzz"', "known keys: apiVersion, kind, listen"),
        (HEAD + b"listen: a\nlisten: b\n", "f.yaml: the key listen is there twice", "remove one"),
        (b"kind: Configuration\n", 'f.yaml: apiVersion: the value "" is not handfast.dev/v1alpha1', ""),
        (b"apiVersion: handfast.dev/v1alpha1\nkind: X\n", 'f.yaml: kind: the value "X" is not Configuration', ""),
        (b"- a\n", "f.yaml: not a mapping", "config show"),
        (b"a: [\n", "f.yaml: line 2", ""),
        (b"\xff", "f.yaml: ", ""),
        (b"a: &x 1\nb: *x\n", "f.yaml: aliases", ""),
    ],
)
def test_files_refused(text, message, hint):
    with pytest.raises(config.Invalid) as caught:
        config.parse(text, "f.yaml")
    assert caught.value.message.startswith(message)
    assert hint in (caught.value.hint or "")


def test_an_empty_file_says_nothing():
    assert config.parse(b"", "f.yaml") == {}


def test_the_template_changes_nothing_and_holds_what_up_uses():
    def resolved(text: str) -> config.Configuration:
        document = config.parse(text.encode(), "f")
        return config.resolve({}, {}, document, "f", config.UP_DEFAULTS).configuration

    text = config.template()
    used = config.resolve({}, {}, {}, "f", config.UP_DEFAULTS).configuration
    assert resolved(text) == used
    uncommented = re.sub(r"^#(?! )", "", text, flags=re.MULTILINE)
    assert resolved(uncommented) == used
    assert list(config.parse(uncommented.encode(), "f")) == [
        "apiVersion",
        "kind",
        *(row.key for row in config.SETTINGS),
    ]


def test_every_refusal_is_the_users():
    assert issubclass(config.Invalid, errors.Refused)


def test_a_template_with_values_holds_them_and_nothing_else():
    told = {
        "listen": "[::1]:1",
        "advertise": ["a:1", "b:2"],
        "store": 'with "quotes" # and: more.db',
        "leaderElect": True,
    }
    text = config.template(told)
    assert config.parse(text.encode(), "f") == {"apiVersion": config.API_VERSION, "kind": config.KIND, **told}
    assert [line for line in config.template().splitlines() if not line.startswith("#")] == [
        f"apiVersion: {config.API_VERSION}",
        f"kind: {config.KIND}",
        *[""] * (len(config.SETTINGS) + 1),
    ]


@pytest.mark.parametrize("text, hours", [("0", 0), ("1h", 1), ("720h", 720), ("30d", 720), ("90d", 2160)])
def test_the_recovery_window(text, hours):
    window = resolve({"node_recovery_window": text}).configuration.node_recovery_window
    assert window == datetime.timedelta(hours=hours)


def test_an_address_that_others_are_told_leads_somewhere():
    chosen = resolve({"injector_advertise": "192.0.2.1:8443"}).configuration
    assert chosen.injector_advertise == Address("192.0.2.1", 8443)


@pytest.mark.parametrize("text", ["192.0.2.1:0", "0.0.0.0:8443", "[::]:8443", "192.0.2.1", "injector.example:8443"])
def test_an_address_to_which_nobody_can_connect_is_not_told_to_others(text):
    with pytest.raises(config.Invalid, match="--injector-advertise"):
        resolve({"injector_advertise": text})

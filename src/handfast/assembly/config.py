# SPDX-License-Identifier: Apache-2.0
"""One configuration from flags, environment, file and defaults, in that order; an error names the key and its origin.

Every setting is a row of `SETTINGS`, from which the file's template, the environment names and the messages come.
It does not open the file: the caller hands over its bytes.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import durations, signer_names
from handfast.assembly import console_settings, mesh_settings, setting_rows, setting_values
from handfast.rules import decision, networks
from handfast.rules.machines import join_window
from handfast.runtime import addresses
from handfast.store.etcd import place as places

API_VERSION: Final = "handfast.dev/v1alpha1"
KIND: Final = "Configuration"
MAX_BYTES: Final = 1 << 20
# What is between `clusterSigning` and `CertFile`, and the signer that it is about; nothing: all of them.
SIGNERS: Final = {
    "": "",
    "KubeletServing": signer_names.KUBELET_SERVING,
    "KubeletClient": signer_names.KUBELET_CLIENT,
    "KubeApiserverClient": signer_names.KUBE_APISERVER_CLIENT,
    "LegacyUnknown": signer_names.LEGACY_UNKNOWN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a control plane is told. Field names are the settings' names in snake case."""

    listen: addresses.Address
    advertise: tuple[addresses.Address, ...]
    store: str
    etcd_ca_file: str | None
    etcd_cert_file: str | None
    etcd_key_file: str | None
    etcd_username: str | None
    etcd_password_file: str | None
    admin_listen: addresses.Address
    controllers: tuple[str, ...]
    mesh: bool
    identity_listen: addresses.Address
    identity_admin_listen: addresses.Address
    identity_advertise: addresses.Address | None
    destination_listen: addresses.Address
    destination_admin_listen: addresses.Address
    destination_advertise: addresses.Address | None
    policy_listen: addresses.Address
    policy_advertise: addresses.Address | None
    agents_listen: addresses.Address
    agents_advertise: addresses.Address | None
    injector_listen: addresses.Address
    injector_admin_listen: addresses.Address
    injector_advertise: addresses.Address | None
    console: bool
    console_listen: addresses.Address
    leader_elect: bool
    log_level: str
    watchdog_seconds: int
    enable_bootstrap_token_auth: bool
    anonymous_from: str
    proxy_protocol_from: str
    service_account_issuer: str
    api_audiences: tuple[str, ...]
    service_account_max_token_seconds: int
    node_recovery_window: datetime.timedelta
    ledger_retention_days: int
    protect_living_nodes: bool
    machines: bool
    join_within: datetime.timedelta
    machine_config_listen: addresses.Address
    machine_config_admin_listen: addresses.Address
    machine_config_trusted_networks: str
    cluster_signing_duration: datetime.timedelta
    cluster_signing_cert_file: str | None
    cluster_signing_key_file: str | None
    cluster_signing_kubelet_serving_cert_file: str | None
    cluster_signing_kubelet_serving_key_file: str | None
    cluster_signing_kubelet_client_cert_file: str | None
    cluster_signing_kubelet_client_key_file: str | None
    cluster_signing_kube_apiserver_client_cert_file: str | None
    cluster_signing_kube_apiserver_client_key_file: str | None
    cluster_signing_legacy_unknown_cert_file: str | None
    cluster_signing_legacy_unknown_key_file: str | None
    audit_log_path: str
    audit_log_max_mib: int
    audit_log_max_files: int
    audit_log_max_days: int
    unsafe_lift_limits: bool


class Invalid(errors.Refused):
    """A setting has a value that is not allowed; `from_flag` tells that it was typed, not stored."""

    reason = "InvalidConfiguration"

    def __init__(self, message: str, *, hint: str | None = None, from_flag: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.from_flag = from_flag


def require_own_way_in(chosen: Configuration) -> None:
    """Refused if the control plane's own clients were taken for balancers: they send no header."""
    named = networks.Networks.parse(chosen.proxy_protocol_from)
    for listen in (chosen.listen, chosen.admin_listen, chosen.machine_config_admin_listen):
        host = listen.host
        own = ("127.0.0.1", "::1") if host in {"localhost", "0.0.0.0", "::", ""} else (host,)  # noqa: S104
        for address in own:
            if isinstance(named.holds(address), decision.Approve):
                raise Invalid(
                    f"--proxy-protocol-from {chosen.proxy_protocol_from} names {address}, from which the controllers and the "
                    "supervisor connect without a PROXY header",
                    hint="name the addresses of balancers only; one on this machine can connect from another, as 127.0.0.2/32",
                )


def _signing() -> Iterator[setting_rows.Setting]:
    """With which CA certificates are signed, as Kubernetes' controller manager has it."""
    yield setting_rows.Setting(
        "clusterSigningDuration",
        setting_values.lifetime,
        "8760h",
        "10m to 36500d, as in 90m, 24h or 365d",
        "how long signed certificates live at most",
    )
    allowed = "a path; in the configuration file, relative to the data directory"
    for word, signer in SIGNERS.items():
        whom = f"requests for {signer or 'all signers, instead of that of the data directory'}"
        yield setting_rows.Setting(
            f"clusterSigning{word}CertFile", setting_values.file, None, allowed, f"the CA certificate that signs {whom}"
        )
        yield setting_rows.Setting(
            f"clusterSigning{word}KeyFile", setting_values.file, None, allowed, f"the key of the CA that signs {whom}"
        )


def _etcd() -> Iterator[setting_rows.Setting]:
    """How an etcd is reached, where the store is in one."""
    allowed = "a path; in the configuration file, relative to the data directory"
    for word, about in (
        ("Ca", "the CA of etcd's certificates; without it, etcd is called in plaintext, on this machine only"),
        ("Cert", "the certificate that etcd is shown"),
        ("Key", "the key of that certificate"),
    ):
        yield setting_rows.Setting(f"etcd{word}File", setting_values.file, None, allowed, about)
    yield setting_rows.Setting(
        "etcdUsername", setting_values.word, None, "the name of a user of etcd's", "whom to log in to etcd as"
    )
    yield setting_rows.Setting(
        "etcdPasswordFile",
        setting_values.file,
        None,
        allowed,
        "the file with that user's password, which only its owner may read",
    )


SETTINGS: Final = (
    setting_rows.Setting(
        "listen",
        setting_values.address,
        "127.0.0.1:6443",
        setting_rows.HOST_PORT,
        "where the API server listens; port 0 picks a free one",
    ),
    setting_rows.Setting(
        "advertise",
        setting_values.addresses,
        [],
        f"a list of {setting_rows.HOST_PORT}",
        "other addresses by which clients reach the API server",
    ),
    setting_rows.Setting(
        "store",
        setting_values.store,
        "store.db",
        f"a path, relative to the data directory, or a place in an etcd, as in {places.EXAMPLE}",
        "where the objects are kept",
    ),
    *_etcd(),
    setting_rows.Setting(
        "adminListen",
        setting_values.address,
        "127.0.0.1:9990",
        setting_rows.HOST_PORT,
        "where the controllers serve their health and metrics",
    ),
    setting_rows.Setting(
        "controllers",
        setting_values.controllers,
        ["*"],
        'a list of controller names; "*" is all but bootstrapsigner, tokencleaner and nodelifecycle, which `up` adds unless said '
        'otherwise, and machineapprover; "-name" leaves one out',
        "which controllers run",
    ),
    setting_rows.Setting(
        "leaderElect", setting_values.boolean, False, "true or false", "take turns with other controllers, by a Lease"
    ),
    setting_rows.Setting(
        "logLevel", setting_values.level, "info", ", ".join(setting_values.LEVELS), "how much is logged"
    ),
    setting_rows.Setting(
        "watchdogSeconds",
        setting_values.whole(6, 3600),
        60,
        "6 to 3600, or 0 for as long as it likes",
        "how long a process of `up` may leave its health unanswered before it is killed and started again",
    ),
    setting_rows.Setting(
        "enableBootstrapTokenAuth",
        setting_values.boolean,
        False,
        "true or false; on in `up` unless said otherwise",
        "let bootstrap tokens log in",
    ),
    setting_rows.Setting(
        "anonymousFrom",
        setting_values.text_of_networks,
        "any",
        "any, none, private, or networks as in 10.0.0.0/8,fd00::/8; this machine itself always counts",
        "from where requests without a credential are answered",
    ),
    setting_rows.Setting(
        "proxyProtocolFrom",
        setting_values.balancers,
        "none",
        "none, or networks as in 10.0.0.0/29,fd00::/64; not any",
        "balancers, whose connections all begin with a PROXY header (v1 or v2) that names the client",
    ),
    setting_rows.Setting(
        "serviceAccountIssuer",
        setting_values.issuer,
        "https://kubernetes.default.svc.cluster.local",
        "an https URL",
        "the issuer of service account tokens",
    ),
    setting_rows.Setting(
        "apiAudiences", setting_values.texts, [], "a list of texts", "audiences of this API; empty: the issuer"
    ),
    setting_rows.Setting(
        "serviceAccountMaxTokenSeconds",
        setting_values.whole(3600, 1 << 32),
        0,
        "3600 to 4294967296, or 0 for no limit",
        "how long a requested service account token may live",
    ),
    setting_rows.Setting(
        "nodeRecoveryWindow",
        setting_values.window,
        0,
        "0 for never, or hours or days up to 90d, as in 720h; 720h in `up` unless said otherwise",
        "how long ago a node's certificate may have expired for the node to come back by itself",
    ),
    setting_rows.Setting(
        "ledgerRetentionDays",
        setting_values.whole(1, 36_500),
        90,
        "1 to 36500, or 0 for ever",
        "how long the issuance ledger is kept after the certificates in it have expired",
    ),
    *_signing(),
    setting_rows.Setting(
        "protectLivingNodes",
        setting_values.boolean,
        True,
        "true or false",
        "let nobody but the node itself have a certificate in the name of a node that renews its Lease, until that has ended",
    ),
    setting_rows.Setting(
        "machines",
        setting_values.boolean,
        False,
        "true or false",
        "admit machines by inventory: bootstrap credentials that can be revoked, and requests approved for known Machines only",
    ),
    setting_rows.Setting(
        "joinWithin",
        setting_values.join_within,
        durations.text(join_window.DEFAULT),
        join_window.ALLOWED,
        "how long after its Machine a machine may ask for its first certificate, where the machine-approver's settings do not say",
    ),
    setting_rows.Setting(
        "machineConfigListen",
        setting_values.address,
        "127.0.0.1:22623",
        setting_rows.HOST_PORT,
        "with machines: where they fetch their configurations",
    ),
    setting_rows.Setting(
        "machineConfigAdminListen",
        setting_values.address,
        "127.0.0.1:9991",
        setting_rows.HOST_PORT,
        "with machines: where the machine-config server has its health and metrics",
    ),
    setting_rows.Setting(
        "machineConfigTrustedNetworks",
        setting_values.trusted_networks,
        "none",
        "none, private, or networks as in 10.0.0.0/24,fd00::/64; not any",
        "with machines: from where a configuration, with the bootstrap credential in it, is served without any other proof",
    ),
    *mesh_settings.ROWS,
    *console_settings.ROWS,
    setting_rows.Setting(
        "auditLogPath",
        setting_values.path,
        "audit/audit.log",
        'a path, relative to the data directory; "-" is standard output, "none" is no log',
        "where every request is written down",
    ),
    setting_rows.Setting(
        "auditLogMaxMib",
        setting_values.whole(1, 1 << 20),
        100,
        "1 to 1048576",
        "size at which the audit log is rotated",
    ),
    setting_rows.Setting(
        "auditLogMaxFiles", setting_values.whole(1, 10_000), 10, "1 to 10000", "how many rotated audit logs are kept"
    ),
    setting_rows.Setting(
        "auditLogMaxDays", setting_values.whole(1, 36_500), 30, "1 to 36500, or 0 for ever", "how long they are kept"
    ),
    setting_rows.Setting(
        "unsafeLiftLimits",
        setting_values.boolean,
        False,
        "true or false; for benchmarks only",
        "lift every rate limit, which leaves the server open to floods",
    ),
)
# What the machine-config server is told.
MACHINE_CONFIG: Final = tuple(row.key for row in SETTINGS if row.key.startswith("machineConfig"))
# What the controllers that sign are told, and those of it that are files.
SIGNING: Final = tuple(row.key for row in SETTINGS if row.key.startswith("clusterSigning"))
SIGNING_FILES: Final = tuple(key for key in SIGNING if key.endswith("File"))
# How an etcd is reached, and those of it that are files.
ETCD: Final = tuple(row.key for row in SETTINGS if row.key.startswith("etcd"))
ETCD_FILES: Final = tuple(key for key in ETCD if key.endswith("File"))
# What `up` has as defaults of its own: a control plane that is started whole is there to be joined.
UP_DEFAULTS: Final[Mapping[str, Any]] = {
    "enableBootstrapTokenAuth": True,
    "nodeRecoveryWindow": "720h",
    "controllers": ["*", "bootstrapsigner", "tokencleaner", "nodelifecycle"],
}
_KEYS: Final = ("apiVersion", "kind", *(setting.key for setting in SETTINGS))


@dataclass(frozen=True, slots=True)
class Resolved:
    """The configuration, the raw value of each key, and where it came from (`flag --x`, `$X`, a file, `default`)."""

    configuration: Configuration
    values: Mapping[str, Any]
    origins: Mapping[str, str]


def resolve(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    document: Mapping[str, Any],
    file: str,
    defaults: Mapping[str, Any] | None = None,
) -> Resolved:
    """Flags over environment over the file's `document` over defaults. A flag that is None was not given.

    `defaults` are those of the command, by key, where it has its own.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for setting in SETTINGS:
        value, origin = _choose(setting, flags, environ, document, file)
        if origin == "default" and defaults is not None:
            value = defaults.get(setting.key, value)
        try:
            fields[setting.field] = setting.read(value)
        except ValueError as error:
            raise Invalid(
                f"{origin}: the value {shown(value)} {error}",
                hint=f"allowed: {setting.allowed}",
                from_flag=origin == setting.flag,
            ) from None
        values[setting.key], origins[setting.key] = value, origin
    return Resolved(Configuration(**fields), values, origins)


def _choose(
    setting: setting_rows.Setting,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    document: Mapping[str, Any],
    file: str,
) -> tuple[Any, str]:
    if (value := flags.get(setting.field)) is not None:
        return value, setting.flag
    if value := environ.get(setting.variable):
        return value, f"${setting.variable}"
    if (value := document.get(setting.key)) is not None:
        return value, f"{file}: {setting.key}"
    return setting.default, "default"


def as_flags(values: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Settings as a command line says them: how a supervisor tells its children."""
    words: list[str] = []
    for setting in SETTINGS:
        if setting.key not in keys:
            continue
        value = values[setting.key]
        if value is None:
            continue
        if isinstance(setting.default, bool):
            words.append(setting.flag if setting_values.boolean(value) else f"--no-{setting.flag[2:]}")
        else:
            words += [setting.flag, ",".join(value) if isinstance(value, list | tuple) else str(value)]
    return words


def shown(value: Any) -> str:
    """A value as an error may quote it: in quotation marks, not too long, and without a login."""
    text = value if isinstance(value, str) else repr(value)
    # A login in a URL is no less secret for being in the wrong place; passwords may have slashes in them.
    return f'"{re.sub(r"//.*@", "//…@", text, flags=re.DOTALL)[:120]}"'


def parse(data: bytes, file: str) -> dict[str, Any]:
    """The document of a configuration file, its keys checked; values are checked by `resolve`."""
    # YAML costs memory that a process without a configuration file need not pay.
    from handfast.api.codec import yaml_document

    try:
        document, repeated = yaml_document.load(data)
    except errors.Refused as error:
        raise Invalid(f"{file}: {error.message}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise Invalid(f"{file}: not a mapping of keys to values", hint="`handfast config show` prints a whole file")
    if repeated:
        raise Invalid(f"{file}: the key {repeated[0]} is there twice", hint="remove one of the two")
    _check_keys(document, file)
    return document


def _check_keys(document: Mapping[str, Any], file: str) -> None:
    for key in document:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(_KEYS)}"
            raise Invalid(f"{file}: unknown key {shown(key)}", hint=hint)
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != wanted:
            raise Invalid(f"{file}: {key}: the value {shown(document.get(key, ''))} is not {wanted}")


def template(values: Mapping[str, Any] | None = None) -> str:
    """A configuration file with these values, by key; of every other key, what `up` uses without it, commented out."""
    chosen = values or {}
    lines = [
        *(f"apiVersion: {API_VERSION}", f"kind: {KIND}", ""),
        "# A line that begins with # and a key shows what `handfast up` uses as long as nothing else is said.",
        "# Without the #, it says the same.",
    ]
    for setting in SETTINGS:
        lines += ["", f"# {setting.about}", f"# allowed: {setting.allowed}"]
        used = UP_DEFAULTS.get(setting.key, setting.default)
        # What JSON writes is YAML, whatever characters are in it.
        said = f"{setting.key}: {json.dumps(chosen.get(setting.key, used))}"
        lines.append(said if setting.key in chosen else f"#{said}")
    return "\n".join(lines) + "\n"

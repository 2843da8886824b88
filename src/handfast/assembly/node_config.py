# SPDX-License-Identifier: Apache-2.0
"""What a node agent is told: flags, environment, a KubeletConfiguration file, defaults, in that order.

It opens no file and starts nothing. Names are the kubelet's, so that a machine's own configuration can be used:

1. The file is a KubeletConfiguration of `kubelet.config.k8s.io/v1beta1`. Of its many keys these count: `FIELDS`. Others
   are ignored with a warning, since they are right for a kubelet; one that looks like a slip of the pen is told apart.
2. A wrong value is refused, with its origin, whatever the origin is.
3. `RotateKubeletClientCertificate` and `RotateKubeletServerCertificate` have been on for good in Kubernetes. They are
   accepted with a warning; false turns the rotation off, as they once did. Other feature gates are ignored with one.
4. `--machine-config`, `--root` and `--machine-config-server` are this agent's own, and no keys of that file.
"""

from __future__ import annotations

import difflib
import ipaddress
import pathlib
import re
import urllib.parse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import objects
from handfast.assembly import config, setting_values
from handfast.rules.machine_config import host_paths
from handfast.runtime import addresses

API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
KIND: Final = "KubeletConfiguration"
KUBECONFIG: Final = "/etc/kubernetes/kubelet.conf"
BOOTSTRAP_KUBECONFIG: Final = "/etc/kubernetes/bootstrap-kubelet.conf"
CERT_DIR: Final = "/var/lib/kubelet/pki"
# Where a machine that has its configuration from a machine-config server has its bootstrap kubeconfig.
SERVED_KUBECONFIG: Final = host_paths.KUBECONFIG
ROOT: Final = "/"
LISTEN: Final = "0.0.0.0:10250"
CLIENT_GATE: Final = "RotateKubeletClientCertificate"
SERVER_GATE: Final = "RotateKubeletServerCertificate"
_WANTED: Final = f"--config takes one YAML document with apiVersion: {API_VERSION} and kind: {KIND}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfiguration:
    """The answer. `bootstrap_kubeconfig` is None where none was named and the usual one is not there.

    Without `node_name` it is the host name, without `node_ip` the address from which the API server is reached.
    """

    bootstrap_kubeconfig: pathlib.Path | None
    kubeconfig: pathlib.Path
    cert_dir: pathlib.Path
    node_name: str | None
    node_ip: tuple[str, ...]
    rotate_certificates: bool
    rotate_server_certificates: bool
    static_pods_dir: pathlib.Path | None
    listen: addresses.Address
    proxy_protocol_from: str
    verbosity: int
    machine_config: bool = False
    root: pathlib.Path = pathlib.Path(ROOT)
    machine_config_server: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def log_level(self) -> str:
        return "debug" if self.verbosity >= 2 else "info"


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("is not text")
    return value


def _path(value: Any) -> str:
    if not _text(value):
        # It would be the directory that somebody stands in.
        raise ValueError("is empty")
    return str(value)


def _node_name(value: Any) -> str | None:
    if value is None:
        return None
    name = _text(value).strip().lower()
    if objects.dns_subdomain(name) is not None:
        raise ValueError(f"cannot be a Node's name: {objects.SUBDOMAIN_WORDS}")
    return name


def _node_ip(value: Any) -> tuple[str, ...]:
    return tuple(_ip(part.strip()) for part in _text(value).split(",")) if value else ()


def _ip(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"has {text!r}, which is no IP address") from None
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f"has {text!r}, which cannot be the address of a node")
    return str(address)


def _address(value: Any) -> addresses.Address:
    return addresses.parse(_text(value))


def _server(value: Any) -> str:
    text = _text(value)
    parts = urllib.parse.urlsplit(text)
    try:
        good = parts.scheme == "https" and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if text and not (good and not parts.query and not parts.fragment and parts.path in {"", "/"} and "@" not in text):
        raise ValueError("is not an https URL of a host and a port")
    return text.rstrip("/")


def _level(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,2}", str(value), re.ASCII) or int(value) > 10:
        raise ValueError("is not a number from 0 to 10")
    return int(value)


def _gates(value: Any) -> dict[str, bool]:
    """`A=true,B=false`, or a mapping."""
    if isinstance(value, Mapping):
        return dict(_gate(str(name), on) for name, on in value.items())
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004 - the value's fault, not the caller's
            "is neither text nor a mapping of names to true or false"
        )
    gates: dict[str, bool] = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, equals, on = item.partition("=")
        if not equals:
            raise ValueError(f"has {item!r} without =true or =false")
        gates |= [_gate(name.strip(), on.strip())]
    return gates


def _gate(name: str, on: Any) -> tuple[str, bool]:
    if not name:
        raise ValueError("has a gate without a name")
    try:
        return name, setting_values.boolean(on)
    except ValueError as error:
        raise ValueError(f"has {on!r} for {name}, which {error}") from None


@dataclass(frozen=True, slots=True)
class _Setting:
    flag: str
    read: Callable[[Any], Any]
    default: Any
    allowed: str
    key: str = ""
    reason: str = config.Invalid.reason

    @property
    def field(self) -> str:
        return self.flag.replace("-", "_")


_SETTINGS: Final = (
    _Setting("bootstrap-kubeconfig", _text, "", "a path"),
    _Setting("kubeconfig", _path, KUBECONFIG, "a path"),
    _Setting("cert-dir", _path, CERT_DIR, "a path"),
    _Setting("node-name", _node_name, None, "a name of a Node, as in worker-1", reason="BadNodeName"),
    _Setting(
        "node-ip",
        _node_ip,
        "",
        "an address of this machine, as in 192.0.2.7, or one of each family with a comma between",
        reason="BadNodeIP",
    ),
    _Setting("rotate-certificates", setting_values.boolean, False, "true or false", "rotateCertificates"),
    _Setting("rotate-server-certificates", setting_values.boolean, False, "true or false", "serverTLSBootstrap"),
    _Setting("static-pods-dir", _text, "", "a path", "staticPodPath"),
    _Setting("listen", _address, LISTEN, "HOST:PORT, as in 0.0.0.0:10250"),
    _Setting(
        "proxy-protocol-from",
        setting_values.balancers,
        "none",
        "none, or networks as in 10.0.0.0/29,fd00::/64; not any",
    ),
    _Setting("feature-gates", _gates, {}, "NAME=true or NAME=false, with commas between", "featureGates"),
    _Setting("verbosity", _level, 0, "0 to 10"),
    _Setting("machine-config", setting_values.boolean, False, "true or false"),
    _Setting("root", _path, ROOT, "a directory"),
    _Setting("machine-config-server", _server, "", "a URL, as in https://192.0.2.1:22623"),
)
FIELDS: Final = ("apiVersion", "kind", "address", "port", *(row.key for row in _SETTINGS if row.key))
# As it is typed.
_FLAGS: Final = {"verbosity": "-v"}
# The usual name would be too general.
_VARIABLES: Final = {"listen": "HANDFAST_NODE_LISTEN", "root": "HANDFAST_NODE_ROOT"}


def variable(flag: str) -> str:
    """The environment variable of a setting."""
    return _VARIABLES.get(flag, f"HANDFAST_{flag.replace('-', '_').upper()}")


def resolve(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    document: Mapping[str, Any] | None = None,
    file: str = "",
    *,
    exists: Callable[[str], bool] = lambda _: False,
    names: Collection[str] | None = None,
) -> NodeConfiguration:
    """Flags that are None were not given; `document` is that of `file`, and `exists` says which files there are.

    With `names` only these settings are looked at, and the others have their defaults.
    """
    document = document or {}
    values: dict[str, Any] = {}
    for setting in _SETTINGS:
        value, origin = setting.default, "default"
        if names is None or setting.flag in names:
            value, origin = _choose(setting, flags, environ, document, file)
        try:
            values[setting.field] = setting.read(value)
        except ValueError as error:
            raise _refused(setting, value, origin, error) from None
    warnings = _ignored(document, file)
    gates: Mapping[str, bool] = values.pop("feature_gates")
    warnings += _gated(gates)
    root = pathlib.Path(values["root"]).absolute()
    bootstrap = values["bootstrap_kubeconfig"] or _usual_bootstrap(values["machine_config"], root, exists)
    static = values["static_pods_dir"]
    return NodeConfiguration(
        bootstrap_kubeconfig=pathlib.Path(bootstrap).absolute() if bootstrap else None,
        kubeconfig=pathlib.Path(values["kubeconfig"]).absolute(),
        cert_dir=pathlib.Path(values["cert_dir"]).absolute(),
        node_name=values["node_name"],
        node_ip=values["node_ip"],
        rotate_certificates=values["rotate_certificates"] and gates.get(CLIENT_GATE, True),
        rotate_server_certificates=values["rotate_server_certificates"] and gates.get(SERVER_GATE, True),
        static_pods_dir=pathlib.Path(static).absolute() if static else None,
        listen=values["listen"],
        proxy_protocol_from=values["proxy_protocol_from"],
        verbosity=values["verbosity"],
        machine_config=values["machine_config"],
        root=root,
        machine_config_server=values["machine_config_server"],
        warnings=tuple(warnings),
    )


def _usual_bootstrap(machine_config: bool, root: pathlib.Path, exists: Callable[[str], bool]) -> str:
    """Where the bootstrap kubeconfig is if nobody says: the configuration brings it, or somebody has put it in the usual place."""
    usual = BOOTSTRAP_KUBECONFIG if exists(BOOTSTRAP_KUBECONFIG) else ""
    served = str(root / SERVED_KUBECONFIG.lstrip("/"))
    return served if machine_config and (exists(served) or not usual) else usual


def _refused(setting: _Setting, value: Any, origin: str, error: ValueError) -> config.Invalid:
    # 2. refused with its origin
    refused = config.Invalid(
        f"{origin}: the value {_shown(value)} {error}",
        hint=f"allowed: {setting.allowed}",
        from_flag=origin.startswith("-"),
    )
    refused.reason = setting.reason
    return refused


def _choose(
    setting: _Setting, flags: Mapping[str, Any], environ: Mapping[str, str], document: Mapping[str, Any], file: str
) -> tuple[Any, str]:
    if (value := flags.get(setting.field)) is not None:
        return value, _FLAGS.get(setting.flag, f"--{setting.flag}")
    if value := environ.get(variable(setting.flag)):
        return value, f"${variable(setting.flag)}"
    if setting.key and (value := document.get(setting.key)) is not None:
        return value, f"{file}: {setting.key}"
    if setting.flag == "listen" and ("address" in document or "port" in document):
        host, port = str(document.get("address") or "0.0.0.0"), document.get("port") or 10250  # noqa: S104 - the kubelet's own
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}", f"{file}: address and port"
    return setting.default, "default"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f'"{text[:120]}"'


def _ignored(document: Mapping[str, Any], file: str) -> list[str]:
    # 1. keys that do not count
    warnings: list[str] = []
    others: list[str] = []
    for key in document:
        if key in FIELDS:
            continue
        near = difflib.get_close_matches(key, FIELDS, n=1, cutoff=0.85)
        if near:
            warnings.append(f"{file}: {key} is not known and was ignored; did you mean {near[0]}?")
        else:
            others.append(key)
    if others:
        warnings.append(f"{file}: ignored, since this agent has no use for them: {', '.join(sorted(others))}")
    return warnings


def _gated(gates: Mapping[str, bool]) -> list[str]:
    # 3. gates that are on for good
    warnings = []
    flags = {CLIENT_GATE: "--rotate-certificates", SERVER_GATE: "--rotate-server-certificates"}
    for name, on in gates.items():
        if name not in flags:
            warnings.append(f"feature gate {name} is not known and was ignored")
        elif on:
            warnings.append(f"feature gate {name} is always on: {flags[name]} decides")
        else:
            warnings.append(f"feature gate {name}=false turns rotation off; leave {flags[name]} out instead")
    return warnings


def parse(data: bytes, file: str) -> dict[str, Any]:
    """The document of a file; its values are checked by `resolve`."""
    # YAML costs time that a command without such a file need not take.
    from handfast.api.codec import yaml_document

    try:
        document, repeated = yaml_document.load(data)
    except errors.Refused as error:
        raise config.Invalid(f"{file}: {error.message}", hint=_WANTED) from None
    if not isinstance(document, dict):
        raise config.Invalid(f"{file}: not a mapping of keys to values", hint=_WANTED)
    if repeated:
        raise config.Invalid(f"{file}: the key {repeated[0]} is there twice", hint="remove one of the two")
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != wanted:
            raise config.Invalid(
                f"{file}: {key}: the value {_shown(document.get(key, ''))} is not {wanted}", hint=_WANTED
            )
    return document

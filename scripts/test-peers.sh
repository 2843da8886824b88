#!/usr/bin/env bash
# Installs the Debian packages that the tests use as real peers, which needs root, and the client of JavaScript, which does not.
# Called by `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

# By the lock file, which has the digest of each package; into the environment of the tests, and only when the lock file changed.
install_node_client() {
  local place=.venv/node
  cmp -s tests/interop/node/package-lock.json "$place/installed.json" && return 0
  mkdir -p "$place"
  cp tests/interop/node/package.json tests/interop/node/package-lock.json "$place/"
  # By the certificates that the machine trusts: Node has a list of its own.
  if command -v npm >/dev/null 2>&1 && NODE_OPTIONS=--use-openssl-ca npm ci --prefix "$place" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null; then
    cp tests/interop/node/package-lock.json "$place/installed.json"
    return 0
  fi
  echo "error: the tests use @kubernetes/client-node as a real peer, and npm does not install it" >&2
  [ "${CI:-}" != true ]
}

# What kubectl prints is compared with recordings, one for each of its versions. Without CI the comparison is reported as not run.
require_recorded_kubectl() {
  local version
  version=$("${KUBECTL:-kubectl}" version --client -o json | sed -n 's/.*"gitVersion": *"v\([0-9]*\.[0-9]*\).*/\1/p' | head -n 1)
  [ -e "tests/interop/kubectl_output-$version.yaml" ] && return 0
  echo "error: what kubectl prints is not recorded for kubectl ${version:-of an unknown version}" >&2
  echo "hint: name one by KUBECTL that is ($(echo tests/interop/kubectl_output-*.yaml)), or record with scripts/record_kubectl.py" >&2
  [ "${CI:-}" != true ]
}

missing=()
command -v "${KUBECTL:-kubectl}" >/dev/null 2>&1 || missing+=(kubernetes-client)
[ -n "${ETCD:-}" ] || command -v etcd >/dev/null 2>&1 || missing+=(etcd-server)
command -v etcdctl >/dev/null 2>&1 || missing+=(etcd-client)
PATH="$PATH:/usr/sbin" command -v haproxy >/dev/null 2>&1 || missing+=(haproxy)
command -v openssl >/dev/null 2>&1 || missing+=(openssl)
command -v strace >/dev/null 2>&1 || missing+=(strace)
PATH="$PATH:/usr/sbin" command -v iptables >/dev/null 2>&1 || missing+=(iptables)
PATH="$PATH:/usr/sbin" command -v ip >/dev/null 2>&1 || missing+=(iproute2)
PATH="$PATH:/usr/sbin" command -v mkfs.ext4 >/dev/null 2>&1 || missing+=(e2fsprogs)
command -v systemd-analyze >/dev/null 2>&1 || missing+=(systemd)
command -v npm >/dev/null 2>&1 || missing+=(npm nodejs)
command -v chromium >/dev/null 2>&1 || missing+=(chromium)
if [ ${#missing[@]} -eq 0 ]; then
  require_recorded_kubectl
  install_node_client
  exit
fi

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "error: the tests use these as real peers and they are missing: ${missing[*]}" >&2
  echo "hint: as root, run: apt-get install ${missing[*]}" >&2
  # Without CI the tests that need them are reported as not run; in CI a missing peer is a failure.
  [ "${CI:-}" = true ] && exit 1
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
require_recorded_kubectl
install_node_client

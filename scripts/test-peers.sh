#!/usr/bin/env bash
# Installs the Debian packages that the tests use as real peers. Called by `make test`; needs root to install.
set -euo pipefail

missing=()
command -v kubectl >/dev/null 2>&1 || missing+=(kubernetes-client)
command -v openssl >/dev/null 2>&1 || missing+=(openssl)
command -v strace >/dev/null 2>&1 || missing+=(strace)
command -v systemd-analyze >/dev/null 2>&1 || missing+=(systemd)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "error: the tests use these as real peers and they are missing: ${missing[*]}" >&2
  echo "hint: as root, run: apt-get install ${missing[*]}" >&2
  # Without CI the tests that need them are reported as not run; in CI a missing peer is a failure.
  [ "${CI:-}" = true ] && exit 1
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

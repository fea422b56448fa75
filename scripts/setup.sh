#!/usr/bin/env bash
# Brings a machine to the point where the checks can run: system packages, Go
# modules, and the pinned tools in .bin/ and tools/node_modules/. Safe to run again;
# about a second when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian packages the tests need. A package whose name is not also the name of
# a command gets its own line in have.
APT_PACKAGES="gcc libc6-dev make git curl ca-certificates redis-server npm nginx-light caddy haproxy python3-redis libredis-perl"

# Servers such as nginx live in sbin, which a user's PATH may leave out.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

say() { printf 'setup: %s\n' "$*"; }
die() {
  say "$@" >&2
  exit 1
}

# retry COMMAND... tries five times, because mirrors and proxies throttle.
retry() {
  local pause
  for pause in 2 5 10 20; do
    "$@" && return
    say "failed, trying again in $pause s: $*" >&2
    sleep "$pause"
  done
  "$@"
}

# have PACKAGE reports whether what the package brings is here, however it came.
have() {
  case $1 in
  libc6-dev) echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 ;;
  nginx-light) command -v nginx >/dev/null ;;
  python3-redis) /usr/bin/python3 -c 'import redis' 2>/dev/null ;; # another python3 in PATH does not see it
  libredis-perl) /usr/bin/perl -MRedis -e 1 2>/dev/null ;;
  ca-certificates) [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -s /etc/ssl/cert.pem ] || [ -d /etc/pki/tls/certs ] ;;
  *) command -v "$1" >/dev/null ;;
  esac
}

missing_packages() {
  local package
  for package in $APT_PACKAGES; do
    have "$package" || printf '%s ' "$package"
  done
}

# as_root COMMAND... runs it as root, without ever asking for a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install() {
  command -v apt-get >/dev/null && as_root true 2>/dev/null
}

# without_services COMMAND... runs it while packages may not start the servers that they
# bring: nginx and Caddy would take port 80 from others, and an installation fails if its
# server cannot start. Tests start their own. A policy that is there already stays.
without_services() (
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
  fi
  "$@"
)

# disable_services PACKAGE... keeps the proxies among them from starting at the next boot.
disable_services() {
  local package
  command -v systemctl >/dev/null || return 0
  for package in "$@"; do
    case $package in
    nginx-light) as_root systemctl disable nginx ;;
    caddy | haproxy) as_root systemctl disable "$package" ;;
    esac
  done
}

install_packages() {
  local missing
  missing=$(missing_packages)
  [ -z "$missing" ] && return
  can_install || die "please install: $missing
  sudo apt-get update && sudo apt-get install -y $missing"

  say "installing $missing"
  retry as_root apt-get update -q
  # shellcheck disable=SC2086 # one word per package
  without_services retry as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
  # shellcheck disable=SC2086
  disable_services $missing

  missing=$(missing_packages)
  [ -z "$missing" ] || die "apt-get succeeded, yet these are still missing: $missing"
}

# check_go wants the Go version that go.mod asks for, or a later one.
check_go() {
  local want got
  want=$(awk '$1 == "go" { print $2; exit }' go.mod)
  command -v go >/dev/null || die "Go $want or later is needed, and there is no go command in PATH; see https://go.dev/doc/install"
  got=$(go env GOVERSION | sed 's/.*go\([0-9][0-9.]*\).*/\1/')
  [ "$(printf '%s\n' "$want" "$got" | sort -V | head -n 1)" = "$want" ] ||
    die "Go $want or later is needed, this is $got ($(command -v go)); see https://go.dev/doc/install"
}

download_modules() {
  local modules dir
  modules=$(scripts/modules.sh)
  for dir in $modules; do
    retry go -C "$dir" mod download
  done
}

# build_tools rebuilds .bin when the pinned versions or the Go version changed.
build_tools() {
  local stamp=.bin/.tools key
  key=$(cat tools/go.mod tools/go.sum | cksum; go env GOVERSION)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ] && return
  say "building the tools into .bin"
  mkdir -p .bin
  GOBIN="$PWD/.bin" retry go -C tools install tool
  printf '%s\n' "$key" >"$stamp"
}

# install_npm_tools brings what has no Go module that builds: buf, which lints and
# generates from proto/, what the examples for Node.js in docs/integrations need, and for
# docs/integrations/ethereum viem and anvil, an Ethereum node (for Linux on amd64 only).
install_npm_tools() {
  local stamp=tools/node_modules/.installed
  cmp -s tools/package-lock.json "$stamp" && return
  say "installing the tools of tools/package.json"
  (cd tools && retry npm ci)
  cp tools/package-lock.json "$stamp"
}

install_packages
check_go
download_modules
build_tools
install_npm_tools

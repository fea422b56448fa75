#!/usr/bin/env bash
# format.sh check   lists the Go files gofumpt would change; fails if there are any
# format.sh write   changes them
#
# Generated files keep the shape their generator gave them.
set -euo pipefail
cd "$(dirname "$0")/.."

generated='^// Code generated .* DO NOT EDIT\.$'

# run_gofumpt FLAG runs gofumpt over our own Go files, in every module.
run_gofumpt() {
  find . \( -name '.?*' -o -name testdata -o -name node_modules \) -prune -o -name '*.go' -print0 |
    { xargs -0 grep -LE --null "$generated" || true; } |
    xargs -0r .bin/gofumpt "$1"
}

case ${1:-check} in
check)
  files=$(run_gofumpt -l)
  [ -z "$files" ] && exit
  printf 'Not formatted, run "make fmt":\n%s\n' "$files"
  exit 1
  ;;
write) run_gofumpt -w ;;
*)
  echo "usage: format.sh [check|write]" >&2
  exit 2
  ;;
esac

#!/usr/bin/env bash
# Prints the directory of every Go module in the tree, one per line, the root
# first. MODULES=". bench" narrows the list.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${MODULES:-}" ]; then
  # shellcheck disable=SC2086 # one word per module
  printf '%s\n' $MODULES
  exit
fi

find . \( -name '.?*' -o -name testdata -o -name node_modules \) -prune \
  -o -name go.mod -print | sed -e 's|/go\.mod$||' -e 's|^\./||' | LC_ALL=C sort

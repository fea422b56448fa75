#!/usr/bin/env bash
# test.sh lint   format, generated code, vet and staticcheck
# test.sh test   lint, then every test with the race detector (the default)
# test.sh all    the same with the long property runs, then each fuzz target for
#                FUZZTIME (30s unless set)
#
# It covers every module in the tree (MODULES=". bench" narrows it), runs every
# part even after a failure, and ends with a table of what took how long.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
mode=${1:-test}
table=""
parts=0
failures=0

export CGO_ENABLED=1 # the race detector needs it
timeout=10m
case $mode in
lint | test) ;;
all)
  export WEIR_TEST=all # the tests run 10,000 property cases instead of 100
  timeout=60m
  ;;
*)
  echo "usage: test.sh [lint|test|all]" >&2
  exit 2
  ;;
esac

trap 'exit 130' INT TERM # go test survives an interrupt; the parts after it must not run

# milliseconds since some moment; whole seconds where bash is older than 5.
milliseconds() {
  local micros=${EPOCHREALTIME:-$(date +%s).000000}
  micros=${micros/[.,]/}
  echo $((micros / 1000))
}

# seconds MS prints 1234 as 1.2.
seconds() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }

start=$(milliseconds)

# part NAME MODULE COMMAND... runs the command in the module's directory and adds
# a line to the table.
part() {
  local name=$1 module=$2 result=ok began
  shift 2
  printf '\n== %s: %s\n' "$name" "$module"
  began=$(milliseconds)
  (cd "$root/$module" && "$@" </dev/null) || result=FAIL
  [ $result = ok ] || failures=$((failures + 1))
  parts=$((parts + 1))
  table+=$(printf '%-28s %-18s %8s  %s' "$name" "$module" "$(seconds $(($(milliseconds) - began)))" $result)$'\n'
}

# empty MODULE reports whether the module has no packages, as tools has none.
# One that cannot be listed is not empty: vet will say what is wrong.
empty() {
  local packages
  packages=$(go -C "$1" list ./... 2>/dev/null) && [ -z "$packages" ]
}

# fuzz_targets prints "package FuzzName" lines for the module in this directory.
fuzz_targets() {
  go test -list '^Fuzz' ./... | awk '
    /^Fuzz/ { names[++n] = $1 }
    /^ok/   { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }'
}

# fuzz_one PACKAGE NAME fuzzes one target. When the time is over go test sometimes
# reports "context deadline exceeded" although it found nothing (golang/go#75804, mended in Go 1.27).
fuzz_one() {
  local out
  out=$(mktemp)
  if go test -run '^$' -fuzz "^$2\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 1s "$1" 2>&1 | tee "$out"; then
    rm -f "$out"
    return 0
  fi
  if grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input' "$out"; then
    echo "(the time was over; nothing was found)"
    rm -f "$out"
    return 0
  fi
  rm -f "$out"
  return 1
}

fuzz_module() {
  local module=$1 targets package name
  if ! targets=$(cd "$module" && fuzz_targets); then
    part "fuzz (list targets)" "$module" false
    return
  fi
  while read -r package name; do
    [ -n "$name" ] || continue
    part "$name" "$module" fuzz_one "$package" "$name"
  done <<<"$targets"
}

check_module() {
  local module=$1
  if empty "$module"; then return; fi
  part vet "$module" go vet ./...
  part staticcheck "$module" "$root/.bin/staticcheck" ./...
  [ "$mode" = lint ] && return
  part test "$module" go test -race -shuffle=on -timeout "$timeout" ./...
  # Pools drop entries under the race detector, so what allocates is counted without it.
  part allocations "$module" go test -run 'Allocate' ./...
  # Sockets are package net's under the race detector; their users are tested with weir's own, too.
  [ "$module" = . ] && part sockets "$module" go test ./internal/socket ./internal/redisconn ./internal/cli ./server
  # A thousand fleets take half a minute, and six times as long under the race detector. "all" runs 20,000.
  [ "$module" = . ] && part simulation "$module" go test -run TestFleet -timeout "$timeout" ./tiered/fleettest
  [ "$mode" = all ] && fuzz_module "$module"
  return 0
}

summary() {
  printf '\n%-28s %-18s %8s  %s\n%s\n' part module seconds result "$table"
  local total
  total=$(seconds $(($(milliseconds) - start)))
  if [ $failures = 0 ]; then
    echo "All $parts parts passed in $total seconds."
  else
    echo "$failures of $parts parts failed; the run took $total seconds."
    exit 1
  fi
}

part setup . scripts/setup.sh
if [ $failures = 0 ]; then
  part format . scripts/format.sh check
  part generated . scripts/gen.sh check
  modules=$(scripts/modules.sh)
  for module in $modules; do
    check_module "$module"
  done
fi
summary

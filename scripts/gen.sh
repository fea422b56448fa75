#!/usr/bin/env bash
# gen.sh write          lints proto/ and generates gen/ from it
# gen.sh check          lints proto/; fails if gen/ is not what would be generated
# gen.sh breaking REF   fails if proto/ breaks clients of the protocol as it was
#                       at a commit, branch or tag
#
# All of gen/ is generated: what does not come from proto/ is removed by write.
# write installs what it needs; the others expect that scripts/setup.sh has run.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH="$PWD/.bin:$PWD/tools/node_modules/.bin:$PATH"

# need_tools fails unless the pinned tools are where setup.sh puts them.
need_tools() {
  local tool
  for tool in .bin/protoc-gen-{go,connect-go,go-grpc} tools/node_modules/.bin/buf; do
    [ -x "$tool" ] && continue
    echo "gen: there is no $tool: run scripts/setup.sh" >&2
    exit 1
  done
}

# lint_and_generate writes $fresh/gen.
lint_and_generate() {
  need_tools
  buf lint proto
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' EXIT
  buf generate proto --template proto/buf.gen.yaml --output "$fresh"
}

case ${1:-write} in
write)
  scripts/setup.sh
  lint_and_generate
  rm -rf gen
  cp -R "$fresh/gen" gen
  ;;
check)
  lint_and_generate
  diff -ru gen "$fresh/gen" | head -n 40 && exit
  echo 'gen/ is not what proto/ generates: run "make gen"' >&2
  exit 1
  ;;
breaking)
  need_tools
  buf breaking proto --against ".git#ref=${2:?which commit, branch or tag?},subdir=proto"
  ;;
*)
  echo "usage: gen.sh [write|check|breaking REF]" >&2
  exit 2
  ;;
esac

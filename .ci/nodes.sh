#!/usr/bin/env bash
# Install development nodes from npm into .ci/tools; those that are there stay.
#   .ci/nodes.sh anvil hardhat2 hardhat3
set -euo pipefail
tools="$(cd "$(dirname "$0")" && pwd)/tools"

add() {
  npm install --silent --no-audit --no-fund --save-exact --prefix "$@"
}

if ! command -v npm >/dev/null; then
  echo "nodes.sh: there is no npm on PATH" >&2
  exit 69
fi
for node in "$@"; do
  folder="$tools/$node"
  case "$node" in
    anvil)
      [ -x "$folder" ] && continue
      mkdir -p "$tools"
      add "$tools" @foundry-rs/anvil@1.7.1
      ln -sf "$(find "$tools/node_modules/@foundry-rs" -type f -name anvil -path '*bin*' | head -n 1)" "$folder"
      ;;
    hardhat2)
      [ -f "$folder/hardhat.config.js" ] && continue
      mkdir -p "$folder"
      add "$folder" hardhat@2.29.1
      echo 'module.exports = {};' >"$folder/hardhat.config.js"
      ;;
    hardhat3)
      [ -f "$folder/hardhat.config.js" ] && continue
      mkdir -p "$folder"
      echo '{"type": "module"}' >"$folder/package.json"
      # Hardhat 3 needs Node 22. Its own Node runs npm too, which leaves out what another Node cannot load.
      add "$folder" node@22.23.1
      PATH="$folder/node_modules/node/bin:$PATH" add "$folder" hardhat@3.18.0
      echo 'export default {};' >"$folder/hardhat.config.js"
      ;;
    *)
      echo "nodes.sh: unknown node $node: give anvil, hardhat2 or hardhat3" >&2
      exit 64
      ;;
  esac
done

#!/bin/sh
# First start of the federation: all entries into a registry, the contract on the home's own chain,
# test money for each owner's account, and the address for the workers.
set -eu
home=/var/lib/cmfl/home shared=/var/lib/cmfl/shared settings=/opt/cmfl/federation.toml

[ ! -e "$shared/run.env" ] || exit 0
cmfl registry gather "$shared/entries" --out "$shared/registry.json" --config "$settings"
cmfl deploy --home "$home" --run federation --registry "$shared/registry.json" --config "$settings"
# shellcheck disable=SC2046 # an address is one word
cmfl chain fund $(cmfl registry show "$shared/registry.json" | grep -o '0x[0-9a-fA-F]\{40\}\b') \
  --amount 10 --home "$home"
manifest="$home/runs/federation/deployment.json"
value() { sed -n "s/^ *\"$1\": *\"\{0,1\}\([0-9a-zA-Z]*\)\"\{0,1\},\{0,1\}$/\1/p" "$manifest"; }
printf 'CMFL_CONTRACT=%s\nCMFL_CHAIN_ID=%s\n' "$(value address)" "$(value chain_id)" \
  > "$shared/run.env.part"
mv "$shared/run.env.part" "$shared/run.env"

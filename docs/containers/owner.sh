#!/bin/sh
# First start of an owner: two keys in the owner's own volume, and their signed entries for the
# deployer. A key never leaves that volume. Afterwards there is nothing left to do.
set -eu
umask 077
owner=/var/lib/cmfl/owner shared=/var/lib/cmfl/shared

if [ ! -e "$owner/password" ]; then
  head -c 32 /dev/urandom | base64 > "$owner/password.part"
  mv "$owner/password.part" "$owner/password"
fi
for key in one two; do
  keystore="$owner/$key.json" entry="$shared/entries/$OWNER-$key.json"
  [ -e "$keystore" ] || cmfl keys new --keystore "$keystore" --password-file "$owner/password"
  [ -e "$entry" ] || cmfl register --keystore "$keystore" --password-file "$owner/password" \
    --samples 240 --run federation --config /opt/cmfl/federation.toml --out "$entry"
done

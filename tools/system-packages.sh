#!/bin/sh
# Install packages of the system that some tests need (chromium, qemu-user, relacy-dev, ...), where that can be done: on
# Debian and its like, as root. Elsewhere it says what to install, and fails; whatever needs them is then skipped and
# says so.
#
#   tools/system-packages.sh NAME...
set -u
missing=
for name in "$@"; do
  dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing="$missing $name"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed:$missing (apt-get install as root, or the like); tests that need them will be skipped" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of names
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null; } ||
  { echo "could not be installed:$missing; tests that need them will be skipped" >&2; exit 1; }

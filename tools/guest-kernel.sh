#!/bin/sh
# Fetch a distribution's kernel for `make guest-tests` into a folder, unpacked: vmlinuz and modules. Needs apt-get and
# dpkg-deb, no root. A folder that has a kernel already is left as it is.
#
#   tools/guest-kernel.sh FOLDER [PACKAGE]
set -eu
folder=$1
ls "$folder"/root/boot/vmlinuz-* >/dev/null 2>&1 && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  { echo "a kernel for the guest is fetched with apt-get and dpkg-deb, which are not here" >&2; exit 1; }
package=${2:-}
# Without a name: the generic kernel with the highest number, not the cloud's, the real time one, or a debug build.
[ -n "$package" ] || package=$(apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9.]+-[0-9]+-amd64$' | sort -V | tail -n 1)
[ -n "$package" ] || { echo "apt knows no linux-image-*-amd64 (apt-get update as root, on Debian)" >&2; exit 1; }
mkdir -p "$folder"
cd "$folder"
rm -f linux-image-*.deb
apt-get download -qq "$package" 2>/dev/null || { echo "$package cannot be fetched" >&2; exit 1; }
rm -rf root.new && mkdir root.new
dpkg-deb -x linux-image-*.deb root.new
rm -rf root linux-image-*.deb
mv root.new root

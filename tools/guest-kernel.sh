#!/bin/sh
# Fetch a distribution's kernel for `make guest-tests` into a folder, unpacked: vmlinuz and modules. Needs apt-get and
# dpkg-deb, no root. A folder that has a kernel already is left as it is.
#
# A package that the machine's own releases of Debian do not have is looked for in newer ones, by lists of apt in the
# folder: nothing of the machine's own apt changes.
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
rm -rf ./*.deb root.new
# From 7.x on the package itself is empty: image, modules and configuration are packages of their own, of the same release.
fetch() {
  apt-get download -qq "$package" 2>/dev/null || return 1
  for part in linux-binary linux-modules linux-base; do
    part=$part-${package#linux-image-}
    if apt-cache show "$part" >/dev/null 2>&1; then apt-get download -qq "$part" 2>/dev/null || return 1; fi
  done
}
if ! fetch; then
  mkdir -p apt/lists/partial apt/cache/archives/partial
  # The mirror is the one that the machine's own apt has for Debian, without the archive of security updates.
  mirror=$(apt-get indextargets --format '$(ORIGIN) $(SITE)' | awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }')
  [ -n "$mirror" ] || { echo "$package is looked for in Debian's mirror, and apt has none (apt-get update as root)" >&2; exit 1; }
  for suite in bookworm-backports trixie-backports sid; do
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
  done >apt/sources.list
  cat >apt/apt.conf <<END
Dir::State::lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt/cache";
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::Etc::sourceparts "-";
END
  export APT_CONFIG="$PWD/apt/apt.conf"
  { apt-get update -qq 2>/dev/null && fetch; } || { echo "$package cannot be fetched from $mirror" >&2; exit 1; }
fi
mkdir root.new
for deb in ./*.deb; do dpkg-deb -x "$deb" root.new; done
# Debian of today has /lib within /usr.
[ -e root.new/lib ] || ln -s usr/lib root.new/lib
for image in root.new/usr/lib/modules/*/vmlinuz; do
  [ -e "$image" ] || continue
  release=$(basename "$(dirname "$image")")
  mkdir -p root.new/boot && mv "$image" "root.new/boot/vmlinuz-$release"
  config=$(dirname "$image")/config
  [ ! -e "$config" ] || mv "$config" "root.new/boot/config-$release"
done
rm -rf root apt ./*.deb
mv root.new root
ls root/boot/vmlinuz-* >/dev/null 2>&1 || { echo "$package has no kernel" >&2; exit 1; }

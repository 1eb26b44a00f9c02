#!/bin/sh
# Builds user-mode-linux from the sources that Debian packages: build.sh CONFIG TARGET. Some minutes of two cores; what is
# at TARGET afterwards is whole.
set -eu
config=$1 target=$2
sources=$(ls /usr/src/linux-source-*.tar.xz 2>/dev/null | sort -V | tail -n 1)
if [ -z "$sources" ]; then
	echo "no /usr/src/linux-source-*.tar.xz: install the packages linux-source, flex, bison, bc and xz-utils" >&2
	exit 1
fi
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Most of the sources are drivers and machines of no use here; only their Kconfig files are read.
export LC_ALL=C
tar -C "$work" --strip-components=1 --wildcards --exclude='*/arch/[a-t]*.[chS]' --exclude='*.dts*' --exclude='*/Documentation/*/*' \
	--exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/media/*.[ch]' --exclude='*/drivers/net/ethernet/*.[ch]' \
	--exclude='*/drivers/net/wireless/*.[ch]' --exclude='*/drivers/staging/*.[ch]' --exclude='*/sound/*.[ch]' -xf "$sources"
cd "$work"
make -s ARCH=um KCONFIG_ALLCONFIG="$config" allnoconfig
grep '=' "$config" | while read -r option; do
	grep -qxF "$option" .config || echo "this kernel's sources know no $option" >&2
done
nice make -s ARCH=um -j"$(nproc)" linux
strip linux
mv linux "$target"

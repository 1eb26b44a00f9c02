#!/usr/bin/env bash
# Builds the two images and leaves them as archives in bin/images, ready for `ctr -n k8s.io images import`.
#
#   images.sh VERSION [controller|agent ...]
#
# Where docker or podman runs, it builds on public bases. Without either it installs buildah and builds on a Debian made by
# debootstrap, with the modules, the Go and its build cache that this machine has: nothing comes from a registry of images.
# Environment: GOLANG, AGENT_BASE and CONTROLLER_BASE replace the base images, REPOSITORY and TAG name the result, OUT is the
# folder of the archives, ENGINE (docker, podman or buildah) chooses another builder than the first of these that runs.
# Two builds of one commit on the same bases give the same images: files and images bear the time of the commit
# (SOURCE_DATE_EPOCH), and nothing in them names the folder or the moment of the build. Two things are out of reach: the packages
# in the agent's image are those of the day, and docker puts the time of the commit on images, but not on the files in them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:?usage: images.sh VERSION [controller|agent ...]}
shift
images=("$@")
(($#)) || images=(controller agent)
repository=${REPOSITORY:-ghcr.io/fairlead}
tag=${TAG:-dev}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fairlead
out=${OUT:-bin/images}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
mkdir -p "$out" "$cache/images"
# Two builds at once would take each other's layers and archives.
exec 9>"$cache/images/.lock"
flock 9

# base NAME gives the build argument of an image's base, if the caller or the engine chose one.
base() {
	local chosen
	case $1 in
	controller) chosen=${CONTROLLER_BASE:-${local_controller_base:-}} ;;
	agent) chosen=${AGENT_BASE:-${local_base:-}} ;;
	esac
	[[ -z $chosen ]] || printf -- '--build-arg=BASE=%s' "$chosen"
}

with_engine() {
	local engine=$1 image arguments
	local times=(--build-arg "SOURCE_DATE_EPOCH=$epoch") # docker's builder takes the time from there
	[[ $engine != podman ]] || times=(--timestamp "$epoch")
	for image in "${images[@]}"; do
		echo "building $repository/fairlead-$image:$tag with $engine"
		mapfile -t arguments < <(base "$image")
		"$engine" build "${times[@]}" --build-arg "VERSION=$version" ${GOLANG:+--build-arg "GOLANG=$GOLANG"} "${arguments[@]}" \
			--tag "$repository/fairlead-$image:$tag" --file "Dockerfile.$image" .
		rm -f "$out/fairlead-$image.tar" # podman writes over no archive
		"$engine" save --output "$out/fairlead-$image.tar" "$repository/fairlead-$image:$tag"
	done
}

install_buildah() {
	command -v buildah >/dev/null && command -v debootstrap >/dev/null && return
	((EUID == 0)) || { echo "build images: no docker, no podman, and installing buildah needs root" >&2; exit 1; }
	echo "installing Debian packages: buildah debootstrap"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	apt-get -qq install --yes --no-install-recommends buildah debootstrap >/dev/null
}

# buildah in a corner of its own: no daemon, no overlay file system and no configuration of the machine is needed.
builder() {
	local verb=$1
	shift
	STORAGE_DRIVER=vfs buildah --root "$cache/images/root" --runroot "$cache/images/run" "$verb" "$@"
}

make_local_base() {
	local_controller_base=scratch
	local_base=localhost/debian:bookworm
	builder inspect --type image "$local_base" >/dev/null 2>&1 && return
	echo "making a Debian base image with debootstrap"
	local root container
	root=$(mktemp -d)
	debootstrap --variant=minbase bookworm "$root" >"$cache/images/debootstrap.log" ||
		{ tail "$cache/images/debootstrap.log" >&2; exit 1; }
	container=$(builder from scratch)
	builder add --quiet "$container" "$root" / >/dev/null
	builder commit --quiet --rm "$container" "$local_base" >/dev/null
	rm -rf "$root"
}

with_buildah() {
	local image arguments
	install_buildah
	mkdir -p "$cache/images"
	make_local_base
	for image in "${images[@]}"; do
		echo "building $repository/fairlead-$image:$tag with buildah"
		(cd "$image" && GOWORK=off go mod download)
		mapfile -t arguments < <(base "$image")
		builder bud --isolation chroot --pull=never --quiet --timestamp "$epoch" --build-arg "VERSION=$version" \
			--build-arg "GOLANG=${GOLANG:-$local_base}" "${arguments[@]}" \
			--volume "$(go env GOROOT):/usr/local/go:ro" --volume "$(go env GOMODCACHE):/go/pkg/mod" \
			--volume "$(go env GOCACHE):/root/.cache/go-build" \
			--tag "$repository/fairlead-$image:$tag" --file "Dockerfile.$image" . >/dev/null
		rm -f "$out/fairlead-$image.tar"
		builder push --quiet "$repository/fairlead-$image:$tag" \
			"docker-archive:$out/fairlead-$image.tar:$repository/fairlead-$image:$tag"
	done
	builder rmi --prune >/dev/null
}

engine=${ENGINE:-}
if [[ -z $engine ]]; then
	engine=buildah
	! podman info >/dev/null 2>&1 || engine=podman
	! docker info >/dev/null 2>&1 || engine=docker
fi
case $engine in
docker | podman) with_engine "$engine" ;;
buildah) with_buildah ;;
*)
	echo "build images: ENGINE is $engine, want docker, podman or buildah" >&2
	exit 1
	;;
esac
ls -l "$out"

# What the scripts of this directory and their tests share, to be sourced at the top of the repository.
# shellcheck shell=bash disable=SC2034

programs=(millrace-client millrace-server)
architectures=(amd64 arm64)

# Of August 2018: RHEL 8, Debian 10 and Ubuntu 20.04 have it or a newer one. It is the first with renameat2().
glibc_baseline=2.28

# Outside of the repository: Zig tells its own directories relative to the working directory where it is below that, and
# build scripts have others. One for all clones of this user.
cross_tools=${XDG_CACHE_HOME:-$HOME/.cache}/millrace/tools/cross

# Debian's name of an architecture to the one of Rust.
rust_target() {
    case $1 in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    *)
        echo "architecture $1 is not one of: ${architectures[*]}" >&2
        return 64
        ;;
    esac
}

# Of a tag vVERSION the version in Cargo.toml; otherwise one that sorts before it, by time: 0.1.0~dev20261127223000.0123456789ab.
package_version() {
    local version commit
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
    commit=$(git rev-parse --verify --quiet HEAD) || { echo "$version"; return; }
    if [ "$(git rev-parse --verify --quiet "refs/tags/v$version^{commit}")" = "$commit" ]; then
        echo "$version"
    else
        echo "$version~dev$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd).${commit:0:12}"
    fi
}

# Seconds since 1970 for all times in packages: the same commit makes the same bytes.
source_date_epoch() { echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat --format=%Y Cargo.toml)}"; }

# archive_directory DIRECTORY FILE [TAR-OPTION...]: a tar with the same bytes for the same files.
archive_directory() {
    tar --create --directory "$1" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
        --mtime="@$(source_date_epoch)" "${@:3}" . | gzip -9 --no-name >"$2"
}

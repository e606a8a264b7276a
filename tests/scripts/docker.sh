# Docker for a test, to be sourced by a script that runs as root at the top of the repository:
#
#   docker_start       uses the daemon that runs, or starts one with all its data below target/docker
#   docker_stop        stops the daemon if it was started here, and removes what that leaves
#   docker_base_image  sees to the base image; exports DEBIAN where no registry has the pinned one
#
# `docker compose` works afterwards, version 2.23 or newer.

docker_dir=$PWD/target/docker
# Short, because it holds Unix sockets; fixed, so that the next run finds what a crashed one left.
docker_run=/run/millrace-docker

docker_say() { echo "docker.sh: $*" >&2; }

docker_start() {
    mkdir -p "$docker_dir"
    if ! docker compose version >/dev/null 2>&1; then
        docker_compose_plugin
    fi
    if timeout 20 docker info >/dev/null 2>&1; then
        return
    fi
    export DOCKER_HOST=unix://$docker_run/docker.sock
    docker_remove
    mkdir -p "$docker_run"
    cat /proc/sys/net/ipv4/ip_forward >"$docker_run/ip_forward"
    iptables -S FORWARD | sed -n 's/^-P FORWARD //p' >"$docker_run/forward_policy"
    dockerd --host "$DOCKER_HOST" --data-root "$docker_dir/data" --exec-root "$docker_run/exec" \
        --pidfile "$docker_run/pid" --bridge none --group root --log-level warn \
        >"$docker_dir/dockerd.log" 2>&1 &
    docker_started=$!
    for _ in $(seq 300); do
        if timeout 5 docker info >/dev/null 2>&1; then
            return
        fi
        kill -0 "$docker_started" 2>/dev/null || break
        sleep 0.1
    done
    docker_say "dockerd did not start within 30 s:"
    tail -n 20 "$docker_dir/dockerd.log" >&2
    return 1
}

docker_stop() {
    [ -z "${docker_started:-}" ] || docker_remove
}

# The daemon of this run, or of one that crashed, is found by its file; never another one.
docker_remove() {
    [ -d "$docker_run" ] || return 0
    pid=$(cat "$docker_run/pid" 2>/dev/null || true)
    if [ -n "$pid" ] && grep -qs "$docker_run" "/proc/$pid/cmdline"; then
        kill "$pid" 2>/dev/null || true
        for _ in $(seq 300); do
            [ -e "/proc/$pid" ] || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
    fi
    docker_remove_rules
    umount -R "$docker_run"/exec/netns/* 2>/dev/null || true
    rm -rf "$docker_run"
}

# dockerd leaves its chains, the policy of FORWARD and forwarding itself behind.
docker_remove_rules() {
    for table in filter nat; do
        iptables -t "$table" -S 2>/dev/null | sed -n '/^-A .*-j DOCKER/s/^-A/-D/p' |
            while read -r rule; do
                # shellcheck disable=SC2086
                iptables -t "$table" $rule
            done
        chains=$(iptables -t "$table" -S 2>/dev/null | sed -n 's/^-N \(DOCKER.*\)/\1/p')
        for chain in $chains; do iptables -t "$table" -F "$chain"; done
        for chain in $chains; do iptables -t "$table" -X "$chain"; done
    done
    if [ -s "$docker_run/forward_policy" ]; then
        iptables -P FORWARD "$(cat "$docker_run/forward_policy")"
    fi
    if [ -s "$docker_run/ip_forward" ]; then
        cat "$docker_run/ip_forward" >/proc/sys/net/ipv4/ip_forward
    fi
}

# Debian 12 has Compose 1 only; the single file of Debian 13 works here too.
docker_compose_plugin() {
    export DOCKER_CONFIG=$docker_dir/config
    plugin=$DOCKER_CONFIG/cli-plugins/docker-compose
    if ! [ -x "$plugin" ]; then
        docker_say "fetching Compose 2 from Debian 13"
        apt=$docker_dir/apt
        rm -rf "$apt"
        mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/unpacked" "${plugin%/*}"
        : >"$apt/status"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(docker_debian) trixie main" \
            >"$apt/sources.list"
        apt_private() {
            apt-get -qq -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status" \
                -o Dir::Cache="$apt" -o Dir::Etc::SourceList="$apt/sources.list" \
                -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root "$@"
        }
        apt_private update
        (cd "$apt/archives" && apt_private download docker-compose)
        dpkg-deb --extract "$apt"/archives/docker-compose_*.deb "$apt/unpacked"
        install "$(find "$apt/unpacked" -path "*/cli-plugins/docker-compose")" "$plugin"
        rm -rf "$apt"
    fi
    docker compose version >&2
}

# Where this machine gets Debian from.
docker_debian() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' \
        'Component: main' | head -n 1
}

docker_base_image() {
    pinned=$(sed -n 's/^ARG DEBIAN=//p' deploy/docker/proxies.Dockerfile)
    if docker image inspect "$pinned" >/dev/null 2>&1 ||
        timeout 60 docker pull --quiet "$pinned" >/dev/null 2>&1; then
        return
    fi
    image=millrace-base:bookworm
    export DEBIAN=$image
    docker image inspect "$image" >/dev/null 2>&1 && return
    docker_say "no registry has $pinned; making $image from Debian's packages"
    root=$docker_dir/base
    rm -rf "$root"
    debootstrap --variant=minbase bookworm "$root" "$(docker_debian)" >"$docker_dir/debootstrap.log"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar --create --directory "$root" --one-file-system . | docker import - "$image" >/dev/null
    rm -rf "$root"
}

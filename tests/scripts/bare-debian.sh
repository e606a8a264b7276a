# A bare Debian 12 with systemd as its first process, in namespaces of its own, to be sourced by a script that runs as root
# at the top of the repository:
#
#   debian_start DIRECTORY   unpacks it there and starts it; its network is a loopback interface
#   debian COMMAND...        runs a command in it
#   debian_stop              ends it and all that it started, and removes it
#
# shellcheck shell=bash

# shellcheck source=tests/scripts/docker.sh
. tests/scripts/docker.sh

debian_say() { echo "bare-debian.sh: $*" >&2; }

# Made once: debootstrap takes half a minute.
debian_base() {
    local packages=curl,libstdc++6,systemd base=target/test/bare-debian
    debian_archive=$base/$packages.tar
    [ -e "$debian_archive" ] && return
    rm -rf $base
    mkdir -p $base
    debootstrap --variant=minbase --include=$packages bookworm $base/root "$(docker_debian)" >$base/log
    rm -rf $base/root/var/cache/apt/archives/*.deb $base/root/var/lib/apt/lists/*
    tar --create --directory $base/root --file $base/new .
    rm -rf $base/root
    mv $base/new "$debian_archive"
}

debian_start() {
    debian_root=$1
    debian_base
    rm -rf "$debian_root"
    mkdir -p "$debian_root"
    tar --extract --directory "$debian_root" --file "$debian_archive"
    local hierarchy=/sys/fs/cgroup
    # Where both versions are mounted, the second one is here.
    [ ! -d $hierarchy/unified ] || hierarchy=$hierarchy/unified
    debian_cgroup=$hierarchy/millrace-bare-debian-$$
    mkdir "$debian_cgroup"
    (
        echo $BASHPID >"$debian_cgroup/cgroup.procs"
        exec unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup \
            bash -euc "$debian_boot" boot "$debian_root"
    ) >"$debian_root.log" 2>&1 </dev/null &
    debian_started=$!
    debian_init=
    local end=$((SECONDS + 30))
    until [ "$(debian systemctl is-system-running 2>/dev/null)" = running ]; do
        if [ $SECONDS -ge $end ] || ! kill -0 $debian_started 2>/dev/null; then
            debian_say "systemd did not start:"
            tail -n 20 "$debian_root.log" >&2
            debian systemctl --failed --no-pager >&2 || true
            return 1
        fi
        sleep 0.2
        debian_init=$(pgrep --parent $debian_started || true)
    done
}

# shellcheck disable=SC2016
debian_boot='
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ip link set lo up
cd "$root"
# Units with a file system of their own need this: chroot is not enough.
pivot_root . mnt
umount --lazy /mnt
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
'

debian() {
    nsenter --target "${debian_init:-none}" --mount --pid --net --uts --ipc --cgroup \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

debian_stop() {
    [ -n "${debian_started:-}" ] || return 0
    [ -z "$debian_init" ] || kill -KILL "$debian_init" 2>/dev/null || true
    wait "$debian_started" 2>/dev/null || true
    # Its processes leave it some time after they were killed.
    local end=$((SECONDS + 10))
    until find "$debian_cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || [ $SECONDS -ge $end ]; do sleep 0.1; done
    rm -rf "$debian_root"
}

# A real systemd as PID 1, for: unshare --mount --pid --fork --kill-child sh boot.sh
# CGROUP USERS HOMES DIRECTORY..., USERS for systemd-sysusers and HOMES for
# systemd-tmpfiles; the directories stay visible, all else that systemd could write to
# is its own. It knows no unit but those that are made here and by the tests. Where
# memory is counted by cgroup v1 alone, /run/memory shows it.
set -eu
export cgroup="$1" users="$2" homes="$3"
shift 3
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/cgroup /run/etc /run/kept
mount -t cgroup2 cgroup2 /run/cgroup
mkdir "/run/cgroup/$cgroup"
echo 0 >"/run/cgroup/$cgroup/cgroup.procs"
umount /run/cgroup
number=0
for directory; do
    number=$((number + 1))
    mkdir "/run/kept/$number"
    mount --rbind "$directory" "/run/kept/$number"
done
exec unshare --cgroup sh -eu -c '
    mount -t proc proc /proc
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    cp -a /etc/. /run/etc
    mkdir /run/etc/dsup
    mount --bind /run/etc /etc
    for hidden in /tmp /var/tmp /var/log /var/lib; do
        mount -t tmpfs -o mode=1777 tmpfs "$hidden"
    done
    number=0
    for directory; do
        number=$((number + 1))
        mkdir -p "$directory"
        mount --rbind "/run/kept/$number" "$directory"
    done
    for target in sysinit basic shutdown multi-user; do
        unit="/run/systemd/system/$target.target"
        printf "[Unit]\nDescription=%s\nDefaultDependencies=no\n" "$target" >"$unit"
    done
    if grep -q " - cgroup .*memory" /proc/self/mountinfo; then
        mkdir /run/memory
        mount -t cgroup -o memory cgroup /run/memory
    fi
    systemd-sysusers - <"$users"
    systemd-tmpfiles --create - <"$homes"
    mkdir -p /run/systemd/journald.conf.d
    printf "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitBurst=0\n" \
        >/run/systemd/journald.conf.d/test.conf
    cd /run/systemd/system
    printf "%s\n" "[Unit]" "DefaultDependencies=no" \
        "[Service]" "Type=notify" "ExecStart=/lib/systemd/systemd-journald" \
        "Sockets=journald.socket" "StandardOutput=null" >journald.service
    printf "%s\n" "[Unit]" "DefaultDependencies=no" \
        "[Socket]" "ListenDatagram=/run/systemd/journal/socket" \
        "ListenStream=/run/systemd/journal/stdout" \
        "PassCredentials=yes" "PassSecurity=yes" "ReceiveBuffer=8M" >journald.socket
    printf "[Unit]\nWants=journald.socket\nAfter=journald.socket\n" \
        >>multi-user.target
    export container=other SYSTEMD_UNIT_PATH=/run/systemd/system
    exec /lib/systemd/systemd --system --unit=multi-user.target \
        --log-target=console --show-status=no
' sh "$@"

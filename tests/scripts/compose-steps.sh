# The steps of compose.sh, and what they share.

# Where the example origin has its video, and where it serves it.
video_root=/srv/millrace/video/vod
video_path=/vod
origin_port=80

say() { echo "compose.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

step() {
    local started=$SECONDS
    current=$1
    shift
    "$@"
    say "$current: ok after $((SECONDS - started)) s"
}

compose() {
    docker compose --project-name "$project" --file docker-compose.yml \
        --file tests/compose/build.yml "$@" 2>>"$work/compose.log"
}

with_profiles() { compose --profile player --profile monitoring --profile live --profile balancer "$@"; }

clean_up() {
    trap - EXIT
    if [ "$1" != 0 ]; then
        say "failed in ${current:-start-up}; the end of the containers' logs and of Compose's:"
        with_profiles ps --all >&2 || true
        with_profiles logs --no-color --tail 12 >&2 || true
        tail -n 20 "$work/compose.log" >&2 || true
    fi
    [ "$1" = 0 ] || say "${current:-start-up}: FAILED"
    [ -z "${own_origin:-}" ] || kill "$own_origin" 2>/dev/null || true
    remove_project || true
    docker_stop
    exit "$1"
}

remove_project() {
    : >"$work/compose.log"
    # One-off containers (`compose run`) are not Compose's to remove.
    docker ps --all --quiet --filter "label=com.docker.compose.project=$project" |
        xargs --no-run-if-empty docker rm --force --volumes >/dev/null
    with_profiles down --volumes --remove-orphans --timeout 5
}

# until_true SECONDS WHAT COMMAND...: polls COMMAND.
until_true() {
    local limit=$1 what=$2 end=$((SECONDS + $1))
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "not within $limit s: $what"
        sleep 0.2
    done
}

# The containers of a service, without those of `compose run`.
container() {
    docker ps --all --quiet --filter "label=com.docker.compose.project=$project" \
        --filter "label=com.docker.compose.service=$1" \
        --filter label=com.docker.compose.oneoff=False
}
health() { docker inspect --format '{{.State.Health.Status}}' "$1"; }
is_healthy() { [ "$(health "$1")" = healthy ]; }
is_running() { [ "$(docker inspect --format '{{.State.Running}}' "$1")" = true ]; }
all_healthy() {
    local id ids
    ids=$(container "$1")
    [ -n "$ids" ] || return 1
    for id in $ids; do is_healthy "$id" || return 1; done
}

# address_on NETWORK CONTAINER
address_on() {
    docker inspect --format "{{(index .NetworkSettings.Networks \"${project}_$1\").IPAddress}}" "$2"
}

# The address of this host at which a service's port is open.
published() { docker port "$(container "$1")" "$2" | head -n 1; }

# fetch PATH FILE: as a viewer, through the tunnel.
fetch() {
    curl --silent --show-error --fail --max-time "${fetch_s:-20}" --output "$2" \
        "http://$(published proxy-client 8080)$1"
}

# A metric of the container $1, of the series $3 at its admin listener on port $2.
metric() {
    docker exec "$1" sh -c "curl --silent --fail \\
        --header \"Authorization: Bearer \$(cat /admin/token)\" http://\$(hostname -I | tr ' ' '\n' |
        grep '^$SUBNETS\.4\.'):$2/metrics" | awk -v series="$3" '$1 == series { print $2 }'
}

build_images() {
    DOCKER_BUILDKIT=1 with_profiles build >>"$work/build.log" 2>&1 || {
        tail -n 40 "$work/build.log" "$work/compose.log" >&2
        return 1
    }
}

start_and_fetch() {
    compose up --detach --no-build
    until_true 30 "proxy-client is healthy" all_healthy proxy-client
    mkdir -p "$work/origin" "$work/fetched"
    rm -rf "$work"/origin/* "$work"/fetched/*
    compose cp "origin:$video_root/." "$work/origin"
    local files edge
    edge=$(published proxy-client 8080)
    files=$(find "$work/origin" -type f | wc -l)
    (cd "$work/origin" && find . -type f -printf '%P\n') |
        sed "s|.*|url = \"http://$edge$video_path/&\"\noutput = \"$work/fetched/&\"|" |
        curl --silent --show-error --fail --create-dirs --max-time 30 --config -
    diff --recursive "$work/origin" "$work/fetched"
    [ "$files" -gt 60 ] || fail "the origin has $files files only"
    local bytes through
    bytes=$(du --bytes --summarize "$work/fetched/video.mp4" | cut -f1)
    through=$(metric "$(container proxy-server)" 9465 'millrace_flow_bytes_total{direction="down"}')
    [ "$through" -gt "$bytes" ] ||
        fail "the server carried $through bytes, but video.mp4 alone has $bytes"
    curl --silent --fail --max-time 10 --range 1000-1999 --output "$work/range" \
        "http://$(published proxy-client 8080)$video_path/video.mp4"
    cmp "$work/range" <(tail --bytes=+1001 "$work/origin/video.mp4" | head --bytes=1000)
    say "$files files, $through bytes through the tunnel"
}

check_hardening() {
    local service id status
    for service in origin proxy-server proxy-client; do
        id=$(container "$service")
        status=$(docker exec "$id" cat /proc/1/status)
        awk '/^(Uid|Gid):/ { for (i = 2; i <= 5; i++) if ($i != 10001) exit 1; n++ }
             /^Cap(Inh|Prm|Eff|Bnd|Amb):/ { if ($2 !~ /^0+$/) exit 1; n++ }
             /^NoNewPrivs:/ { if ($2 != 1) exit 1; n++ }
             END { if (n != 8) exit 1 }' <<<"$status" ||
            fail "$service has a user or capabilities that it should not: $status"
        # shellcheck disable=SC2016
        docker exec "$id" sh -c 'for d in / /tmp /etc /usr/local/bin /var/lib; do
            ! touch "$d/x" 2>/dev/null || { echo "$d"; exit 1; }; done' ||
            fail "$service can write to its file system"
    done
    # The authority's key is where only `certificates` has it.
    for service in proxy-server proxy-client; do
        docker exec "$(container "$service")" sh -c '! ls /certificates/ca.key /authority/ca.key' \
            >/dev/null 2>&1 || fail "$service has the authority's key"
    done
}

# explicit URL: its status, asked for by HTTP CONNECT; 000 and the proxy's own without a tunnel.
explicit() {
    curl --silent --max-time 10 --proxytunnel --output /dev/null \
        --proxy "http://$(published proxy-client 3128)" --write-out '%{http_code} %{http_connect}' \
        "$1" || true
}

check_denied() {
    local server address got
    server=$(container proxy-server)
    address=$(address_on origin-side "$(container origin)")
    got=$(explicit "http://origin:$origin_port$video_path/manifest.mpd")
    [ "$got" = "200 200" ] || fail "the origin by its name, explicitly: $got instead of 200 200"
    # The same host by its address, another port, the server's own admin listener, loopback.
    for url in "http://$address:$origin_port/" "http://origin:22/" "http://127.0.0.1:9465/flows" \
        "http://$SUBNETS.4.2:9465/flows" "http://169.254.169.254/"; do
        got=$(explicit "$url")
        [ "$got" = "000 403" ] || fail "$url: $got instead of 000 403"
    done
    for reason in not_listed port_not_listed loopback own_address metadata; do
        [ "$(metric "$server" 9465 "millrace_destinations_denied_total{reason=\"$reason\"}")" -ge 1 ] ||
            fail "the server did not count what it denied as $reason"
    done
    # Nothing but the tunnel leads from the viewers' side to the origin.
    docker exec "$(container proxy-client)" curl --silent --max-time 3 --output /dev/null \
        "http://$address:$origin_port/healthz" && fail "the client edge reaches the origin directly"
    # Flows and sessions of viewers are not exposed on the viewers' side.
    address=$(address_on viewer-side "$(container proxy-client)")
    curl --silent --max-time 3 --output /dev/null "http://$address:9464/flows" &&
        fail "the viewers' side sees /flows"
    return 0
}

same_video() { fetch_s=5 fetch "$video_path/video.mp4" "$work/again" && cmp "$work/again" "$work/origin/video.mp4"; }

# A viewer that takes 500 kB/s and, unlike curl, has no buffer of megabytes in which all of the video
# arrives at once. Exits as curl does: 56 for a reset, 0 for an orderly end.
slow_download() {
    timeout 60 python3 - "$@" <<'PYTHON'
import socket, sys, time

host, port, path, file = sys.argv[1:]
viewer = socket.socket()
viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
viewer.connect((host, int(port)))
viewer.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
with open(file, "wb", buffering=0) as out:
    try:
        while data := viewer.recv(25_000):
            out.write(data)
            time.sleep(0.05)
    except ConnectionResetError:
        sys.exit(56)
PYTHON
}

kill_server() {
    local server download code=0 before
    server=$(container proxy-server)
    rm -f "$work/cut"
    # At the container's own address: Docker's proxy on 127.0.0.1 makes an end out of a reset.
    slow_download "$(address_on viewer-side "$(container proxy-client)")" 8080 \
        "$video_path/video.mp4" "$work/cut" &
    download=$!
    until_true 10 "a download has begun" test -s "$work/cut"
    before=$(docker inspect --format '{{.State.StartedAt}}' "$server")
    kill -KILL "$(docker inspect --format '{{.State.Pid}}' "$server")"
    wait "$download" || code=$?
    # 56: reset. Never 0: what was cut off must not look complete.
    [ "$code" = 56 ] || fail "the download ended with $code instead of 56 (reset)"
    until_true 20 "the server is back" is_healthy "$server"
    [ "$(docker inspect --format '{{.State.StartedAt}}' "$server")" != "$before" ] ||
        fail "the server was not started again"
    until_true 20 "the video comes through again" same_video
    until_true 20 "proxy-client is healthy" all_healthy proxy-client
}

fingerprints() {
    docker run --rm --network none --volume "${project}_authority:/authority:ro" --entrypoint sha256sum \
        "millrace-server:$TAG" /authority/ca.pem /authority/server.pem /authority/edge.pem
}

reloaded() { compose logs --no-color "$1" | grep -q "configuration reloaded"; }

check_certificates() {
    local first second
    first=$(fingerprints)
    compose up --no-build --force-recreate --no-deps certificates >/dev/null
    [ "$(fingerprints)" = "$first" ] || fail "the certificates did not stay"
    RENEW=1 compose up --no-build --force-recreate --no-deps certificates >/dev/null
    second=$(fingerprints)
    [ "$(head -n 1 <<<"$second")" = "$(head -n 1 <<<"$first")" ] || fail "the authority changed"
    [ "$(comm -12 <(sort <<<"$first") <(sort <<<"$second") | wc -l)" = 1 ] ||
        fail "RENEW=1 renewed nothing"
    for service in proxy-server proxy-client; do
        compose exec -T "$service" sh -c 'kill -HUP 1'
        until_true 10 "$service has reloaded its configuration" reloaded "$service"
    done
    # The server goes on; a client that is new to it sees its new certificate, and shows its own.
    compose restart --timeout 3 proxy-client
    until_true 30 "the video comes with new certificates" same_video
}

targets_up() {
    curl --silent --fail --max-time 5 --get --data-urlencode "query=count(up == 1) by (job)" \
        "http://$(published prometheus 9090)/api/v1/query" >"$work/targets.json" &&
        grep -q '"job":"millrace-client"},"value":\[[0-9.]*,"1"' "$work/targets.json" &&
        grep -q '"job":"millrace-server"},"value":\[[0-9.]*,"1"' "$work/targets.json"
}

# The published port gives away nothing but health and the page's files without the token.
check_live_pages() {
    local live token path got
    until_true 20 "the live pages are healthy" all_healthy live
    live=http://$(published live 8082)
    token=$(docker exec "$(container proxy-server)" cat /admin/token)
    for path in client/flows server/flows client/status server/status server/metrics; do
        got=$(curl --silent --output /dev/null --write-out '%{http_code}' "$live/$path")
        [ "$got" = 401 ] || fail "/$path without the token: $got instead of 401"
    done
    got=$(curl --silent --output /dev/null --write-out '%{http_code}' --request PUT \
        "$live/server/congestion_control/0a0b?algorithm=cubic")
    [ "$got" = 401 ] || fail "a change without the token: $got instead of 401"
    # A flow that ends: players keep their connections.
    same_video || fail "the video is another one than before"
    TOKEN=$token node tests/scripts/compose-live.mjs "$live/"
}

check_player_and_prometheus() {
    compose --profile player --profile monitoring --profile live up --detach --no-build
    until_true 20 "the player is healthy" all_healthy player
    node tests/scripts/compose-player.mjs \
        "http://$(published player 8081)/?mpd=$video_path/manifest.mpd" 4 vivace-latency
    # The player's server shows the flows of a named session only.
    [ "$(curl --silent --output /dev/null --write-out '%{http_code}' "http://$(published player 8081)/flows")" = 400 ] ||
        fail "the player's server shows flows without a session"
    check_live_pages
    until_true 30 "Prometheus sees both ends" targets_up
    node tests/scripts/compose-dashboard.mjs "http://$(published prometheus 9090)" \
        deploy/monitoring/grafana-dashboard.json
    with_profiles rm --stop --force player live prometheus
}

connections() { metric "$1" 9465 'millrace_connections{state="established"}'; }

check_scale() {
    local id extra=() used=() busiest
    export SERVERS=balancer:4433
    compose --profile balancer up --detach --no-build --scale proxy-server=3
    until_true 30 "three servers are healthy" all_healthy proxy-server
    [ "$(container proxy-server | wc -w)" = 3 ] || fail "there are not three servers"
    until_true 30 "the video comes through the balancer" same_video
    # Client edges of other addresses, for there to be something to spread.
    for _ in 1 2 3 4 5; do
        extra+=("$(compose run --detach --no-deps proxy-client | tail -n 1)")
    done
    for id in "${extra[@]}"; do until_true 20 "another client edge is healthy" is_healthy "$id"; done
    for id in $(container proxy-server); do
        [ "$(connections "$id")" = 0 ] || used+=("$id")
    done
    [ "${#used[@]}" -ge 2 ] || fail "six client edges are all at one server"
    say "six client edges are at ${#used[@]} servers of three"
    # Killed from outside it stays away, and its clients go to the others.
    busiest=${used[0]}
    docker kill "$busiest" >/dev/null
    until_true 40 "the video comes although a server is gone" same_video
    for id in "${extra[@]}"; do
        until_true 40 "every client edge has found another server" is_healthy "$id"
    done
    docker start "$busiest" >/dev/null
    until_true 20 "the third server is back" is_healthy "$busiest"
    docker rm --force "${extra[@]}" >/dev/null
    # Back to one without it, while connections can still be closed in an orderly way.
    unset SERVERS
    compose up --detach --no-build
    until_true 30 "the video comes without the balancer" same_video
    with_profiles rm --stop --force balancer
}

check_own_origin() {
    local port
    : >"$work/own-origin.log"
    python3 -u -m http.server --bind "$SUBNETS.3.1" --directory "$work/origin" 0 \
        >"$work/own-origin.log" 2>&1 9>&- &
    own_origin=$!
    until_true 10 "an origin of one's own listens" grep -q 'port [0-9]' "$work/own-origin.log"
    port=$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$work/own-origin.log")
    ORIGIN="$SUBNETS.3.1:$port" compose up --detach --no-build
    video_path='' until_true 30 "the own origin's video comes" same_video
    [ "$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$(container origin)")" = "exited 0" ] ||
        fail "the example origin runs beside the own one"
    kill "$own_origin"
    wait "$own_origin" || true
    own_origin=
    # What is wrong is said, and where.
    for wrong in no-port "two:three:80" "name with space:80" ":80" "localhost:80"; do
        docker run --rm --network none --env ORIGIN="$wrong" --tmpfs /run/millrace:uid=10001 \
            "millrace-server:$TAG" run >"$work/wrong" 2>&1 && fail "ORIGIN=\"$wrong\" was taken"
        grep -q "ORIGIN=\"$wrong\"" "$work/wrong" || fail "ORIGIN=\"$wrong\": $(cat "$work/wrong")"
    done
    check_algorithm_first
}

# The name of an algorithm is checked beside the running service.
check_algorithm_first() {
    local one_off=(run --no-TTY --rm --no-deps proxy-server check)
    CONGESTION_CONTROL=cubik compose "${one_off[@]}" >"$work/wrong" && fail "the algorithm cubik was taken"
    cat "$work/compose.log" >>"$work/wrong"
    grep -q 'unknown congestion control "cubik"' "$work/wrong" || fail "cubik: $(tail -n 3 "$work/wrong")"
    CONGESTION_CONTROL=iris-min compose "${one_off[@]}" >"$work/right"
    grep -q 'server.toml: ok' "$work/right" || fail "iris-min: $(cat "$work/right")"
    all_healthy proxy-server || fail "a check disturbed the server"
}

detach_endpoints() {
    local network name
    docker network ls --quiet --filter "label=com.docker.compose.project=$project" |
        while read -r network; do
            docker network inspect --format '{{range .Containers}}{{println .Name}}{{end}}' "$network" |
                while read -r name; do
                    [ -z "$name" ] || docker network disconnect --force "$network" "$name" || true
                done
        done
}

check_down() {
    # The daemon may take a container's endpoint off its network a moment after the container, or
    # lose sight of it: "network ... has active endpoints". The same command again ends the one,
    # taking the endpoint off by force or the daemon's own clean-up when it starts the other.
    local left tries
    for tries in 1 2 3 4 5; do
        ! with_profiles down --volumes --remove-orphans --rmi all --timeout 10 || break
        case $tries in
        2) detach_endpoints ;;
        3) [ -z "${docker_started:-}" ] || { docker_stop && docker_start; } ;;
        5) fail "docker compose down failed $tries times" ;;
        esac
        sleep 2
    done
    left=$(
        docker ps --all --quiet --filter "label=com.docker.compose.project=$project"
        docker network ls --quiet --filter "label=com.docker.compose.project=$project"
        docker volume ls --quiet --filter "label=com.docker.compose.project=$project"
        docker images --quiet --filter "reference=millrace-*:$TAG"
    )
    [ -z "$left" ] || fail "left behind: $left"
}

#!/usr/bin/env bash
# Run on a Ray cluster: scripts/submit.sh [--no-wait] run TRACE ... -o /shared/RUN
#
# The cluster is the one whose dashboard RAY_API_SERVER_ADDRESS or RAY_ADDRESS names (http://HEAD:8265), else the one
# that `ray up cluster.yaml` started; REPLAY_CLUSTER names another file than cluster.yaml.
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
config=${REPLAY_CLUSTER:-$top/cluster.yaml}

fail() {
    printf 'submit.sh: %s\n' "$2" >&2
    exit "$1"
}

# The command of that name on the path, else that of the repository's environment.
command_of() {
    command -v "$1" || { [[ -x $top/.venv/bin/$1 ]] && printf '%s\n' "$top/.venv/bin/$1"; } ||
        fail 2 "there is no command $1: run make setup, or activate the environment that has replay"
}

# The dashboard of the cluster that `ray up` started from $config.
address_of_config() {
    local ray head said
    [[ -f $config ]] || fail 2 "$config: no such file; set RAY_ADDRESS=http://HEAD:8265, or REPLAY_CLUSTER"
    ray=$(command_of ray)
    said=$("$ray" get-head-ip "$config" 2>&1) || true
    head=$(tail -n 1 <<<"$said")
    [[ $head =~ ^[0-9a-zA-Z.:-]+$ ]] ||
        fail 4 "no cluster of $config is up ($head): ray up $config starts one, or set RAY_ADDRESS=http://HEAD:8265"
    printf 'http://%s:8265\n' "$head"
}

[[ $# -gt 0 ]] || fail 2 "what to run? scripts/submit.sh run TRACE --profile PROFILE -o /shared/RUN"
replay=$(command_of replay)
address=${RAY_API_SERVER_ADDRESS:-${RAY_ADDRESS:-}}
case $address in
    http://* | https://*) ;;
    "") address=$(address_of_config) ;;
    *) fail 2 "RAY_ADDRESS is $address: a job needs the dashboard, such as http://HEAD:8265" ;;
esac
exec "$replay" submit --address "$address" "$@"

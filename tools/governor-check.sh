#!/bin/sh
# Takes memory away from a running program, in a control group of its own: it must give slots back and finish.
#
# usage, as root on Linux: tools/governor-check.sh FLASH_MOE STORE
# STORE: more than 3 GiB of experts, such as: flash-moe synth STORE --like qwen3.5-35b --layers 10 --vocab 8192
# Works with control groups v1 and v2. Ends with 0 if all is well.
set -eu

program=$1 store=$2
limit=$((3 << 30)) taken=$((1 << 30)) lowered=$((2 << 30))

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/flash-moe-check.$$ max=memory.max usage=memory.current
    echo +memory > /sys/fs/cgroup/cgroup.subtree_control
else
    group=/sys/fs/cgroup/memory/flash-moe-check.$$ max=memory.limit_in_bytes usage=memory.usage_in_bytes
fi
mkdir "$group"
log=$(mktemp)
cleanup() {
    kill $(cat "$group/cgroup.procs") 2>/dev/null || true
    wait 2>/dev/null || true
    # Their children take a moment to end.
    for _ in 1 2 3 4 5 6 7 8; do
        rmdir "$group" 2>/dev/null && break
        sleep 0.25
    done
    rm -f "$log"
}
trap cleanup EXIT
echo $limit > "$group/$max"

join='echo $$ > '"$group"'/cgroup.procs; exec "$@"'
used() { cat "$group/$usage"; }
fail() {
    echo "FAILED: $1"
    cat "$log"
    exit 1
}
wait_for() { # SECONDS WHAT COMMAND...
    left=$(($1 * 4)) what=$2
    shift 2
    until "$@"; do
        kill -0 "$pid" 2>/dev/null || fail "the program ended while waiting: $what"
        left=$((left - 1))
        [ $left -gt 0 ] || fail "$what"
        sleep 0.25
    done
}
n_note() { [ "$(grep -c "$1" "$log")" -ge "$2" ]; }

sh -c "$join" sh "$program" bench "$store" -v --prompt-tokens 64 --tokens 20000 > "$log" 2>&1 &
pid=$!
is_full() { [ "$(used)" -gt $((limit / 100 * 70)) ]; }
wait_for 300 "the slots fill" is_full
echo "full: $(used) of $limit bytes"

# A neighbour in the group: tail keeps a line that does not end.
sh -c "$join" sh sh -c "(head -c $taken /dev/zero; sleep 1000) | tail" > /dev/null &
neighbours() { grep -vx "$pid" "$group/cgroup.procs" || true; }
wait_for 60 "slots are given back to a neighbour" n_note "gives back" 1
sleep 8
kill -0 "$pid" 2>/dev/null || fail "killed when a neighbour took memory"
echo "with a neighbour: $(used) bytes"

kill $(neighbours)
wait_for 120 "slots come back when the neighbour is gone" n_note "takes again" 3
echo "alone again: $(used) bytes"

# v1 refuses limits below what is in use, so it is approached.
lower() {
    echo $lowered 2>/dev/null > "$group/$max" || {
        echo $(($(used) + (32 << 20))) 2>/dev/null > "$group/$max" || true
        false
    }
}
wait_for 120 "the limit can be lowered" lower
sleep 4
kill -0 "$pid" 2>/dev/null || fail "killed when the limit was lowered"
echo "lowered: $(used) of $lowered bytes"
grep "^memory: " "$log" | tail -3
echo "all is well"

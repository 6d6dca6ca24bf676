#!/usr/bin/env bash
# Run a command with SHARE percent of one core: a slow machine, without any load on others. Needs root
# and a writable cgroup of the processor. Returns the command's status, or 69 where there is none.
#   .ci/slow.sh 8 .venv/bin/python -m pytest tests/cmfl/commands/test_worker.py -k one_process
set -euo pipefail
share="$1" period=50000 quota=$((500 * $1)) cgroups=/sys/fs/cgroup
shift

if [ -w "$cgroups/cpu/cgroup.procs" ]; then # version 1
  group="$(mktemp -d "$cgroups/cpu/slow-$share-XXXXXXXX")"
  echo "$period" >"$group/cpu.cfs_period_us"
  echo "$quota" >"$group/cpu.cfs_quota_us"
elif [ -w "$cgroups/cgroup.procs" ] && grep --quiet --word-regexp cpu "$cgroups/cgroup.subtree_control"; then
  group="$(mktemp -d "$cgroups/slow-$share-XXXXXXXX")"
  echo "$quota $period" >"$group/cpu.max"
else
  echo "slow.sh: $cgroups has no writable cgroup of the processor; run it as root" >&2
  exit 69
fi

# A process that the command has left behind goes on outside, and at full speed.
clean_up() {
  for _ in $(seq 100); do
    for process in $(<"$group/cgroup.procs"); do
      echo "$process" >"${group%/*}/cgroup.procs" || true
    done 2>/dev/null
    rmdir "$group" 2>/dev/null && break
    sleep 0.1
  done
}
trap clean_up EXIT
status=0
(echo "$BASHPID" >"$group/cgroup.procs" && exec "$@") || status=$?
exit "$status"

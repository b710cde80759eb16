#!/usr/bin/env bash
# Prints where temporary files of tests go: into memory if there is room. Tests of recovery sync tens of thousands of
# small files, which takes an hour on a slow disk and a minute in memory.
set -euo pipefail
need_kib=$((4 * 1024 * 1024))
free_kib=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1 || echo 0)
if [ -w /dev/shm ] && [ "${free_kib:-0}" -ge "$need_kib" ]; then
    echo /dev/shm
else
    echo "${TMPDIR:-/tmp}"
fi

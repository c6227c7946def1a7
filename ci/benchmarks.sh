#!/usr/bin/env bash
# Every benchmark, then BENCHMARKS.md and docs/plots from what they left in target/benchmarks. About 8 minutes; on a machine
# that does something else meanwhile the numbers mean little, and the bounds say so.
#   ci/benchmarks.sh            measures and writes
#   ci/benchmarks.sh --quick    a quarter of the rounds, to see that it works
# Exit status 1 if a bound is broken; BENCHMARKS.md is written all the same, and shows it.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=${1:-}
case $quick in '' | --quick) ;; *)
    echo 'there is only --quick' >&2
    exit 1
    ;;
esac
out=$PWD/target/benchmarks
rm -rf "$out"
mkdir -p "$out"
broken=0
duration=20
[ -z "$quick" ] || duration=5

command -v valgrind >/dev/null || {
    echo 'valgrind is not installed: ci/install.sh' >&2
    exit 1
}
load=$(cut -d' ' -f1 /proc/loadavg) # before this script's own builds
cargo build --release --example pd_failover
cargo bench --no-run
rm -rf target/criterion # cases that are no more
python3 - "$out/machine.json" "$load" <<'PY'
import json, os, platform, subprocess, sys, time
from pathlib import Path

def said(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()

cpu = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
caches = [
    f"L{(cache / 'level').read_text().strip()} {(cache / 'type').read_text().strip().lower()} {(cache / 'size').read_text().strip()}"
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
]
virtual = "hypervisor" in Path("/proc/cpuinfo").read_text()
facts = {
    "processor": f"{cpu[0] if cpu else platform.machine()}, {len(os.sched_getaffinity(0))} cores{', virtual machine' if virtual else ''}",
    "caches": ", ".join(caches) or "not known",
    "kernel": platform.release().split("-")[0],
    "rustc": said("rustc", "--version"),
    "allocator": f"the system's ({' '.join(platform.libc_ver())})",
    "commit": said("git", "rev-parse", "--short", "HEAD") + (" and changes" if said("git", "status", "--porcelain", "src") else ""),
    "date": time.strftime("%Y-%m-%d"),
    "load when it began": f"{sys.argv[2]} processes",
}
Path(sys.argv[1]).write_text(json.dumps(facts))
PY

for bench in lease tail recovery; do
    printf '\n=== %s (after %ss)\n' "$bench" "$SECONDS"
    cargo bench --quiet --bench "$bench" -- --check $quick --json "$out/$bench.jsonl" || broken=1
done
printf '\n=== scale (after %ss)\n' "$SECONDS"
cargo bench --quiet --bench scale -- --check --json "$out/scale.jsonl" || broken=1
printf '\n=== operations (after %ss)\n' "$SECONDS"
cargo bench --quiet --bench operations -- --json "$out/operations.jsonl"
printf '\n=== instructions (after %ss)\n' "$SECONDS"
ci/callgrind.sh --json "$out/callgrind.jsonl" || broken=1
printf '\n=== pd_failover --compare (after %ss)\n' "$SECONDS"
cargo run --quiet --release --example pd_failover -- --compare --json --duration "$duration" \
    >"$out/failover.json" || broken=1
python3 benches/report.py "$out"
printf '\n=== BENCHMARKS.md is written (after %ss)\n' "$SECONDS"
exit "$broken"

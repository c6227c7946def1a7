#!/usr/bin/env python3
"""Turns what the benchmarks left into BENCHMARKS.md and docs/plots: `benches/report.py RESULTS`.

RESULTS is a directory of *.jsonl files (one object per line: "bench", "case", "value", "unit", and what else the
benchmark says), of machine.json, and of failover.json, the line of `pd_failover --compare --json`. Tables go between the
markers of BENCHMARKS.md; a section whose results are not there is left as it is. `ci/benchmarks.sh` makes them all.
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import plots  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
OURS = ("peerage by handle", "peerage by id", "peerage by name")


def main():
    results = Path(sys.argv[1])
    lines = [json.loads(line) for file in sorted(results.glob("*.jsonl")) for line in file.read_text().splitlines()]
    of = lambda bench, **want: [
        line for line in lines if line["bench"] == bench and line["case"] != "bound" and has(line, want)
    ]
    sections = {
        "bounds": bounds([line for line in lines if line["case"] == "bound" and line["bench"] not in ("ucx", "nixl")]),
        "threads": threads(of("lease", section="threads")),
        "losing": losing(of("lease", section="threads") + of("lease", section="peers")),
        "reconnecting": reconnecting(of("lease", section="reconnecting")),
        "peers": peers(of("lease", section="peers")),
        "tail": tail(of("tail")),
        "recovery": recovery(of("recovery")),
        "operations": plain(of("operations")),
        "callgrind": plain(of("callgrind")),
        "scale": plain(of("scale")),
        "nixl": against_the_bare(of("nixl"), [line for line in lines if line["bench"] == "nixl"]),
        "nixl-agents": while_another_connects(of("nixl")),
        "ucx": against_perftest([line for line in lines if line["bench"] == "ucx"]),
        "ucx-tail": head_of_line([line for line in lines if line["bench"] == "ucx"]),
    }
    drawn = {
        "threads": plots.bars("One peer: ns of CPU time per lease and thread", thread_bars(of("lease", section="threads"))),
        "peers": plots.curves(
            "One thread: ns per lease by number of peers", peer_curves(of("lease", section="peers")), "peers", "ns",
            x_log=True, y_log=True, x_shown=lambda x: f"{x:,.0f}",
        ),
        "tail": plots.quantiles(
            "Sends to healthy peers while another peer reconnects (5 ms every 20 ms)", tail_curves(of("tail")), "us"
        ),
    }
    if (results / "machine.json").exists():
        sections["machine"] = machine(json.loads((results / "machine.json").read_text()))
    if (results / "failover.json").exists():
        runs = json.loads((results / "failover.json").read_text())["compare"]
        sections["failover"] = failover(runs)
        drawn["failover"] = plots.quantiles(
            "pd_failover: notifications to healthy peers while one peer reconnects", failover_curves(runs), "us"
        )
    fill(ROOT / "BENCHMARKS.md", sections)
    folder = ROOT / "docs" / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        if svg:
            (folder / f"{name}.svg").write_text(svg)


def has(line, want):
    return all(line.get(key) == value for key, value in want.items())


def fill(page, sections):
    text = page.read_text()
    for name, table in sections.items():
        marker = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not marker.search(text):
            raise SystemExit(f"{page} has no place for {name}")
        if table:
            text = marker.sub(lambda found: found.group(1) + table + "\n" + found.group(2), text)
    page.write_text(text)


def table(head, rows):
    """Numbers to the right: every column but the first."""
    if not rows:
        return ""
    grid = [head, ["---"] + ["---:"] * (len(head) - 1)] + rows
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in grid)


def number(value):
    """Three digits that matter; `-` for what was not measured."""
    if value is None:
        return "-"
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 1 else 4
    return f"{value:,.{digits}f}"


def times(value):
    return "-" if value is None else f"{value:.2f}"


def unique(values):
    return list(dict.fromkeys(values))


def machine(facts):
    return table(["", ""], [[name, value] for name, value in facts.items()])


def bounds(lines):
    rows = [
        [line["what"], number(line["value"]), f'{line["is"]} {number(line["bound"])}', "yes" if line["keeps"] else "**NO**"]
        for line in lines
    ]
    return table(["required", "measured", "bound", "kept"], rows)


def cell(lines, key="value", **want):
    found = [line for line in lines if has(line, want)]
    return found[0][key] if found else None


def threads(lines):
    counts = unique(line["threads"] for line in lines)
    head = ["ns per lease and thread", "1 thread", "in floors"]
    for count in counts[1:]:
        head += [f"{count} threads, one peer", "in that of 1 thread", f"{count} threads, a peer each"]
    rows = []
    for case in unique(line["case"] for line in lines):
        get = lambda key="value", **want: cell(lines, key, case=case, **want)
        one = get(threads=1)
        row = [case, number(one), times(get("floors", threads=1))]
        for count in counts[1:]:
            same = get(threads=count, pick="one peer")
            row += [number(same), times(same / one if same and one else None), number(get(threads=count, pick="a peer each"))]
        rows.append(row)
    return table(head, rows)


def losing(lines):
    """Each way to a lease for which something else is cheaper in the same setting."""
    rows = []
    setting = lambda line: (line["threads"], line["peers"], line["pick"])
    for ours in (line for line in lines if line["case"] in OURS and line["value"]):
        theirs = [line for line in lines if setting(line) == setting(ours) and line["value"]]
        theirs = [line for line in theirs if line["value"] < ours["value"] and line["case"] != "floor"]
        cheaper = [line for line in theirs if not line["case"].startswith("peerage")]
        if cheaper:
            shown = sorted(cheaper, key=lambda line: line["value"])
            names = ", ".join(f'{line["case"]} {number(line["value"])}' for line in shown)
            rows.append([ours["case"], number(ours["value"]), ours["threads"], f'{ours["peers"]:,}, {ours["pick"]}', names])
    return table(["dearer", "ns", "threads", "peers", "than"], rows)


def reconnecting(lines):
    rows = []
    for case in unique(line["case"] for line in lines):
        quiet, busy = (cell(lines, case=case, reconnecting=value) for value in (False, True))
        rows.append([case, number(quiet), number(busy), times(busy / quiet if quiet and busy else None)])
    return table(["ns per lease of a healthy peer", "quiet", "another reconnects every ms", "in quiet"], rows)


def peers(lines):
    counts = unique(line["peers"] for line in lines)
    rows = []
    for case, pick in unique((line["case"], line["pick"]) for line in lines):
        values = [cell(lines, case=case, pick=pick, peers=count) for count in counts]
        flat = cell(lines, case=case, pick=pick, peers=1024)
        rows.append([case, pick, *map(number, values), times(flat / values[0] if flat and values[0] else None)])
    return table(["ns per lease", "which peer", *(f"{count:,}" for count in counts), "1,024 in 1"], rows)


def tail(lines):
    rows = []
    for line in lines:
        row = [line["case"], line["meanwhile"]] + [number(line[key]) for key in ("p50", "p99", "p999", "p9999", "max")]
        rows.append(row + [f'{100 * line["value"]:.3f} %', times(line["p99_ratio"])])
    head = ["us from when a send was due", "meanwhile", "p50", "p99", "p99.9", "p99.99", "max"]
    return table(head + ["later than 2.5 ms", "p99 reconnecting in quiet, median of pairs"], rows)


def recovery(lines):
    keys = ("value", "p90", "p99", "max", "until_connect", "after_connect")
    rows = [[line["case"], *(number(line[key]) for key in keys)] for line in lines]
    head = ["us beside the connect call", "p50", "p90", "p99", "max", "p50 until it begins", "p50 after its end"]
    return table(head, rows)


def plain(lines):
    """One row per case and unit; a column for each number of peers, if the lines have some."""
    counts = unique(line.get("peers") for line in lines)
    rows = []
    for case, unit in unique((line["case"], line["unit"]) for line in lines):
        rows.append([f"{case}, {unit}", *(number(cell(lines, case=case, unit=unit, peers=count)) for count in counts)])
    head = [f"{count:,} peers" if count is not None else "" for count in counts]
    return table(["", *head], rows)


def against_the_bare(lines, all_lines):
    bounds = {line["what"]: line for line in all_lines if line["case"] == "bound"}
    rows = []
    for line in (line for line in lines if "bare" in line):
        bound = bounds.pop(f'{line["case"]}, in the bare API\'s')
        row = [f'{line["case"]}, {line["unit"]}', number(line["value"]), number(line["bare"]), times(line["ratio"])]
        rows.append(row + [f'{bound["is"]} {number(bound["bound"])}', "yes" if bound["keeps"] else "**NO**"])
    for what, bound in bounds.items():
        rows.append([what, number(bound["value"]), "-", "-", f'{bound["is"]} {number(bound["bound"])}', "yes" if bound["keeps"] else "**NO**"])
    return table(["median", "`Nixl`", "bare", "in the bare API's, median of pairs", "wanted", "kept"], rows)


def while_another_connects(lines):
    rows = []
    for line in (line for line in lines if "connects" in line):
        row = [line["agents"], f'{line["sends"]:,.0f}', f'{line["connects"]:,.0f}']
        rows.append(row + [f'{100 * line["value"]:.3f} %', number(line["longest_us"])])
    return table(["agents", "sends", "connects of the other", "sends later than 1 ms", "longest, us"], rows)


def against_perftest(lines):
    rows = []
    for line in (line for line in lines if "perftest" in line):
        bound = next(other for other in lines if other.get("what") == f'{line["case"]}, in ucx_perftest\'s')
        row = [f'{line["case"]}, {line["unit"]}', number(line["value"]), number(line["perftest"]), times(line["ratio"])]
        row += [f'{bound["is"]} {number(bound["bound"])}', "yes" if bound["keeps"] else "**NO**"]
        second = line["second_connection"]
        rows.append(row + ["-" if second is None else f'{number(second)} us; {times(line["ratio_without"])}'])
    head = ["median", "`Ucx`", "ucx_perftest", "in ucx_perftest's, median of pairs", "wanted", "kept"]
    return table(head + ["a second bare connection; the ratio without it"], rows)


def head_of_line(lines):
    rows = []
    for line in (line for line in lines if line["case"].startswith("head of line, ")):
        row = [line["case"].removeprefix("head of line, "), line["meanwhile"], f'{line["sends"]:,}']
        row += [number(line[key]) for key in ("p50", "p99", "max")]
        rows.append(row + [f'{100 * line["value"]:.3f} %'])
    return table(["us from when a notification was due", "meanwhile", "sends", "p50", "p99", "max", "later than 10 ms"], rows)


def failover(runs):
    def share(column):
        return "-" if column["slow_share"] is None else f'{100 * column["slow_share"]:.3f} %'

    rows = []
    for run in runs:
        for when in ("quiet", "reconnecting"):
            column = run["latency_us"][when]
            came = f'{100 * run["ok"] / run["requests"]:.0f} %'
            row = [run["mode"], when, came, number(column["n"]), *(number(column[key]) for key in ("p50", "p99", "p999"))]
            rows.append(row + [share(column), run["duplicate_connects"], f'{run["recovered"]} of {run["recoverable"]}'])
    head = ["us per notification to a healthy peer", "meanwhile", "requests that came through", "sends", "p50", "p99", "p99.9"]
    return table(head + ["later than half a connect", "duplicate connects", "recovered"], rows)


def thread_bars(lines):
    shown = (*OURS, "peerage by handle, one stripe", "floor", "Mutex map", "RwLock map", "parking_lot RwLock map",
             "tokio RwLock map", "DashMap", "papaya")
    rows = []
    for case in unique(line["case"] for line in lines):
        if case.removesuffix(", guard held") in shown:
            values = [(line["threads"], line["value"]) for line in lines if has(line, {"case": case, "pick": "one peer"})]
            rows.append((case, case in OURS, values))
    return rows


def peer_curves(lines):
    curves = []
    for case, pick in unique((line["case"], line["pick"]) for line in lines):
        if case in ("floor", "peerage by handle", "Mutex map, guard held", "DashMap, guard held"):
            points = [(line["peers"], line["value"]) for line in lines if has(line, {"case": case, "pick": pick})]
            curves.append((f"{case.removesuffix(', guard held')}, {pick}", points))
    return curves


def tail_curves(lines):
    return [(line["case"], line["distribution"]) for line in lines if line["meanwhile"] == "reconnecting"]


def failover_curves(runs):
    curves = []
    for run in runs:
        column = run["latency_us"]["reconnecting"]
        points = [(quantile, column[key]) for quantile, key in ((0.5, "p50"), (0.99, "p99"), (0.999, "p999"))]
        points = column.get("distribution") or points
        if all(value is not None for _, value in points):
            curves.append((run["mode"], points))
    return curves


if __name__ == "__main__":
    main()

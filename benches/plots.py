"""Plots as SVG, without a library. They take the colours of the page's theme; what knows no theme shows a grey for both."""

import math
from html import escape

WIDTH, HEIGHT = 860, 410
LEFT, RIGHT, TOP, BOTTOM = 76, 300, 56, 44
# Told apart on white and on black, also by those who see few colours.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f", "#8c6bb1", "#a65628"]
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #6e7781; }
.title { font-size: 14px; font-weight: 600; }
.grid { stroke: #8b949e; stroke-opacity: 0.35; stroke-width: 1; }
.light { fill-opacity: 0.45; }
@media (prefers-color-scheme: light) { text { fill: #1f2328; } }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } }
</style>"""


def page(title, body, height=HEIGHT):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n{STYLE}\n'
        f'<text class="title" x="12" y="22">{escape(title)}</text>\n' + "\n".join(body) + "\n</svg>\n"
    )


def text(x, y, words, anchor="start", fill=None):
    style = f' style="fill:{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def grid_line(x1, y1, x2, y2):
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def short(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def ticks(low, high, log):
    if log:
        return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    step = 10 ** math.floor(math.log10(high))
    step = next(step * part for part in (0.1, 0.2, 0.5, 1, 2) if high / (step * part) <= 6)
    return [step * nth for nth in range(math.ceil(high / step) + 1)]


def curves(title, series, x_name, y_name, x_log, y_log, x_shown=short, x_ticks=None):
    """`series`: (name, [(x, y)]) each."""
    series = [(name, [(x, y) for x, y in points if y is not None]) for name, points in series]
    series = [(name, points) for name, points in series if points]
    if not series:
        return None
    xs = sorted({x for _, points in series for x, _ in points})
    ys = [y for _, points in series for _, y in points]
    y_ticks = ticks(max(min(ys), 1e-3), max(ys), y_log)
    scale = lambda value, log: math.log10(max(value, 1e-3)) if log else value

    def across(x):
        low, high = scale(xs[0], x_log), scale(xs[-1], x_log)
        return LEFT + (scale(x, x_log) - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT)

    def up(y):
        low, high = scale(y_ticks[0], y_log), scale(y_ticks[-1], y_log)
        return HEIGHT - BOTTOM - (scale(y, y_log) - low) / ((high - low) or 1) * (HEIGHT - TOP - BOTTOM)

    body = []
    for tick in y_ticks:
        body += [grid_line(LEFT, up(tick), WIDTH - RIGHT, up(tick)), text(LEFT - 8, up(tick) + 4, short(tick), "end")]
    for x in x_ticks or xs:
        body.append(text(across(x), HEIGHT - BOTTOM + 18, x_shown(x), "middle"))
    body.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_name, "middle"))
    body.append(text(12, TOP - 6, y_name))
    ends = []
    for (name, points), colour in zip(series, COLOURS * len(series)):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        width = 3 if name.startswith("peerage") else 1.8
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        ends.append([up(points[-1][1]) + 4, name, colour])
    return page(title, body + end_labels(ends))


def end_labels(ends):
    """Each beside the end of its curve, or where there is room."""
    ends.sort()
    lowest = TOP
    for end in ends:
        end[0] = lowest = max(end[0], lowest + 15)
    highest = HEIGHT - BOTTOM + 8
    for end in reversed(ends):
        end[0] = highest = min(end[0], highest - 15)
    return [text(WIDTH - RIGHT + 8, y, name, fill=colour) for y, name, colour in ends]


def quantiles(title, series, unit):
    """`series`: (name, [(quantile, value)]). Each nine has the same room, so the tail is what one sees."""
    nines = lambda quantile: -math.log10(max(1 - quantile, 5e-5))
    series = [(name, [(nines(quantile), value) for quantile, value in points]) for name, points in series]
    marks = [nines(quantile) for quantile in (0.5, 0.9, 0.99, 0.999, 0.9999)]
    last = max((x for _, points in series for x, _ in points), default=0)
    shown = lambda x: f"{100 * (1 - 10 ** -x):.6g} %"
    return curves(
        title, series, "share of the sends that are faster", unit, x_log=False, y_log=True, x_shown=shown,
        x_ticks=[mark for mark in marks if mark <= last],
    )


def bars(title, rows):
    """`rows`: (name, whether it is ours, [(threads, ns)])."""
    rows = [(name, ours, [(threads, ns) for threads, ns in values if ns is not None]) for name, ours, values in rows]
    rows = [row for row in rows if row[2]]
    if not rows:
        return None
    left, thick = 250, 13
    widest = max(ns for _, _, values in rows for _, ns in values)
    room = WIDTH - left - 130
    body, y = [], TOP
    for name, ours, values in rows:
        body.append(text(left - 8, y + thick * len(values) / 2 + 4, name, "end"))
        for nth, (threads, ns) in enumerate(values):
            colour = COLOURS[0] if ours else COLOURS[6]
            light = ' class="light"' if nth == 0 else ""
            length = ns / widest * room
            body.append(
                f'<rect{light} x="{left}" y="{y:.1f}" width="{length:.1f}" height="{thick - 2}" fill="{colour}"/>'
            )
            label = f"{ns:.0f} ({threads} thread{'s' if threads > 1 else ''})"
            body.append(text(left + length + 5, y + thick - 3, label))
            y += thick
        y += 7
    return page(title, body, height=y + 12)

"""Small pictures as SVG text, without a plotting library: heat maps over the triangle, and lines on logarithmic axes.

The files are a few kilobytes, look the same everywhere and can be read by a diff.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

FONT = 'font-family="Helvetica, Arial, sans-serif"'
INK, FAINT = "#222", "#888"
LIGHT, DARK = (0xF4, 0xF7, 0xFB), (0x12, 0x3A, 0x6B)
COLOURS = ("#12508b", "#c2571a", "#2e7d4f", "#7b3f98", "#8a6d1d", "#b02a4c")


def text(x: float, y: float, words: str, size: float = 11, anchor: str = "middle", fill: str = INK, **more: str) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{extra}>'
        f"{escape(words)}</text>"
    )


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    # the name of the format, not a place that anybody asks
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {FONT}>'
    return "\n".join([head, f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>', *parts, "</svg>"]) + "\n"


# -- heat maps ---------------------------------------------------------------------------------------------------------

CELL_W, CELL_H = 46, 30
LEFT, TOP, BOTTOM, GAP = 64, 58, 52, 26


@dataclass(frozen=True)
class Panel:
    """One measure over the triangle: values by (B, M) as positions on the axes, and how each is written."""

    title: str
    values: dict[tuple[int, int], float]
    shown: dict[tuple[int, int], str]


def triangle(title: str, axis: Sequence[str], panels: Sequence[Panel], marked: tuple[int, int]) -> str:
    """Heat maps in rows of two: M to the right, B upwards; darker is more, on a logarithmic scale; one is marked."""
    n = len(axis)
    side_w, side_h = n * CELL_W, n * CELL_H
    width = LEFT + 2 * side_w + GAP + LEFT + 20
    height = 14 + -(-len(panels) // 2) * (TOP - 14 + side_h + BOTTOM)
    parts = [text(LEFT, 20, title, 14, "start", font_weight="bold")]
    for p, panel in enumerate(panels):
        x0, y0 = LEFT + p % 2 * (side_w + GAP + LEFT), TOP + p // 2 * (TOP - 14 + side_h + BOTTOM)
        parts.append(text(x0, y0 - 12, panel.title, 12, "start"))
        top = max(panel.values.values(), default=0.0)
        least = min((v for v in panel.values.values() if v > 0), default=1.0)
        for (b, m), value in sorted(panel.values.items()):
            x, y = x0 + m * CELL_W, y0 + (n - 1 - b) * CELL_H
            heat = _heat(value, least, top)
            edge = 'stroke="#d0421b" stroke-width="2.5"' if (b, m) == marked else 'stroke="white"'
            inset = 1.5 if (b, m) == marked else 0
            parts.append(
                f'<rect x="{x + inset:.1f}" y="{y + inset:.1f}" width="{CELL_W - 2 * inset}" '
                f'height="{CELL_H - 2 * inset}" fill="{_colour(heat)}" {edge}/>'
            )
            fill = "white" if heat > 0.45 else INK
            parts.append(text(x + CELL_W / 2, y + CELL_H / 2 + 3.5, panel.shown[b, m], 10, fill=fill))
        for i, label in enumerate(axis):
            parts.append(text(x0 + (i + 0.5) * CELL_W, y0 + side_h + 14, label, 9.5, fill=FAINT))
            parts.append(text(x0 - 5, y0 + (n - 0.5 - i) * CELL_H + 3, label, 9.5, "end", FAINT))
        parts.append(text(x0 + side_w / 2, y0 + side_h + 30, "remember (M)", 10.5))
        middle = y0 + side_h / 2
        parts.append(
            text(x0 - 50, middle, "block (B)", 10.5, transform=f"rotate(-90 {x0 - 50:.1f} {middle:.1f})")
        )  # fmt: skip
        if p == 0:
            for words, x, y, anchor in (
                ("weak", x0 + 3, y0 + side_h + 45, "start"),
                ("middle", x0 + side_w - 3, y0 + side_h + 45, "end"),
                ("strong", x0 + side_w - CELL_W - 4, y0 + 12, "end"),
            ):
                parts.append(text(x, y, words, 10.5, anchor, "#d0421b", font_style="italic"))
    return svg(width, height, parts)


def _heat(value: float, least: float, top: float) -> float:
    """0 for nothing, up to 1 for the largest."""
    if value <= 0 or top <= 0:
        return 0.0
    return 0.12 + 0.88 * (math.log(value / least) / math.log(top / least)) if top > least else 0.6


def _colour(heat: float) -> str:
    return "#" + "".join(f"{round(a + (b - a) * heat):02x}" for a, b in zip(LIGHT, DARK, strict=True))


# -- lines -------------------------------------------------------------------------------------------------------------

PLOT_W, PLOT_H = 330, 240


@dataclass(frozen=True)
class Line:
    """Points of one colour; `dashed` for what is calculated and not measured."""

    label: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Plot:
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    linear: bool = False
    """Both axes from 0 on, not logarithmic."""


def plots(title: str, every: Sequence[Plot]) -> str:
    """Plots side by side."""
    legend = max(len(plot.lines) for plot in every) * 15
    left, gap = 62, 84
    width, height = left + len(every) * PLOT_W + (len(every) - 1) * gap + 24, 62 + PLOT_H + 46 + legend
    parts = [text(left, 20, title, 14, "start", font_weight="bold")]
    for p, plot in enumerate(every):
        parts += _plot(plot, left + p * (PLOT_W + gap), 62)
    return svg(width, height, parts)


def _plot(plot: Plot, x0: float, y0: float) -> list[str]:
    xs = [x for line in plot.lines for x, _ in line.points]
    ys = [y for line in plot.lines for _, y in line.points]
    if plot.linear:
        across, up = _from_nothing(max(xs), PLOT_W), _from_nothing(max(ys), PLOT_H)
    else:
        across, up = _scale(min(xs), max(xs), PLOT_W), _scale(min(ys), max(ys), PLOT_H)
    parts = [text(x0, y0 - 12, plot.title, 12, "start")]
    for value, at in up.ticks:
        y = y0 + PLOT_H - at
        parts.append(f'<path d="M{x0} {y:.1f}h{PLOT_W}" stroke="#e3e3e3"/>')
        parts.append(text(x0 - 6, y + 3.5, _number(value), 10, "end", FAINT))
    for value, at in across.ticks:
        parts.append(f'<path d="M{x0 + at:.1f} {y0}v{PLOT_H}" stroke="#e3e3e3"/>')
        parts.append(text(x0 + at, y0 + PLOT_H + 14, _number(value), 10, fill=FAINT))
    parts.append(f'<rect x="{x0}" y="{y0}" width="{PLOT_W}" height="{PLOT_H}" fill="none" stroke="#aaa"/>')
    parts.append(text(x0 + PLOT_W / 2, y0 + PLOT_H + 31, plot.x, 11))
    side = y0 + PLOT_H / 2
    parts.append(text(x0 - 46, side, plot.y, 11, transform=f"rotate(-90 {x0 - 46:.1f} {side:.1f})"))
    for i, line in enumerate(plot.lines):
        colour = COLOURS[(i if line.colour is None else line.colour) % len(COLOURS)]
        places = [(x0 + across.at(x), y0 + PLOT_H - up.at(y)) for x, y in line.points]
        way = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        if not line.dashed and len(places) <= 40:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = y0 + PLOT_H + 50 + 15 * i
        parts.append(f'<path d="M{x0} {y - 4:.1f}h22" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(text(x0 + 28, y, line.label, 10.5, "start"))
    return parts


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    length: float
    ticks: tuple[tuple[float, float], ...]
    linear: bool = False

    def at(self, value: float) -> float:
        if self.linear:
            return value / self.high * self.length
        return (math.log10(max(value, 1e-12)) - self.low) / (self.high - self.low) * self.length


def _scale(least: float, most: float, length: float) -> _Scale:
    """A little more than from the least to the most, with a mark at every power of ten, or more where there are few."""
    low, high = math.log10(max(least, 1e-12)) - 0.12, math.log10(max(most, 1e-12)) + 0.12
    factors: tuple[int, ...] = (1,) if high - low > 1.6 else (1, 2, 5)
    powers = range(math.floor(low), math.ceil(high) + 1)
    marks = [f * 10.0**e for e in powers for f in factors]
    inside = tuple((v, (math.log10(v) - low) / (high - low) * length) for v in marks if low <= math.log10(v) <= high)
    return _Scale(low, high, length, inside)


def _from_nothing(most: float, length: float) -> _Scale:
    """From 0 to a little more than the most, with four to eight marks."""
    high = 1.05 * max(most, 1e-12)
    power = 10.0 ** math.floor(math.log10(high))
    step = next(s for s in (power / 5, power / 2, power, 2 * power, 5 * power) if high / s <= 8)
    marks = [i * step for i in range(int(high / step) + 1)]
    return _Scale(0.0, high, length, tuple((v, v / high * length) for v in marks), linear=True)


def _number(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"

# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Plots of a report as SVG, by matplotlib: a metric over the message size, a line for each row, thick for usiw."""

import re

from . import results

PLOTTED = ("us", "p99_us", "avg_us", "mb_s")
#: Text stays text, and the same figures make the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "usiw", "font.size": 9}


def series(found, table, metric):
    """{row: [(bytes, Summary)]} of what can be plotted; rows with one size only are left to the table."""
    out = {}
    for cell, figures in found.items():
        if cell.table == table and metric in figures:
            out.setdefault(cell.row, []).append((cell.size, figures[metric]))
    return {row: sorted(points) for row, points in out.items() if len({size for size, _ in points}) > 1}


def write(folder, all_results):
    """Writes the plots and returns their paths; None if matplotlib is not installed."""
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel
    except ImportError:
        return None
    matplotlib.use("svg")
    matplotlib.rcParams.update(STYLE)
    from matplotlib import pyplot, ticker  # pylint: disable=import-outside-toplevel
    found, paths = results.summaries(all_results), []
    for table in dict.fromkeys(cell.table for cell in found):
        for metric in PLOTTED:
            lines = series(found, table, metric)
            if not lines:
                continue
            figure, axes = pyplot.subplots(figsize=(9, 4.5))
            all_sizes = {}
            for row, points in lines.items():
                sizes = [size for size, _ in points]
                all_sizes |= {cell.size: cell.column for cell in found if cell.table == table and cell.size in sizes}
                ours = row.startswith("usiw")
                line, = axes.plot(sizes, [s.median for _, s in points], marker="o", markersize=4 if ours else 2,
                                  linewidth=2.5 if ours else 1, label=row)
                axes.fill_between(sizes, [s.least for _, s in points], [s.greatest for _, s in points],
                                  color=line.get_color(), alpha=0.15)
            axes.set(xscale="log", yscale="log", xlabel="message, bytes", ylabel=results.UNITS[metric], title=table)
            axes.set_xticks(list(all_sizes), [re.sub(r" (\w)i?B", r"\1", column).replace(" B", "")
                                              for column in all_sizes.values()])
            axes.set_xticks([], minor=True)
            axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
            axes.grid(True, which="major", alpha=0.3)
            axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
            path = folder / (re.sub(r"[^a-z0-9]+", "-", f"{table} {metric}".lower()).strip("-") + ".svg")
            figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
            pyplot.close(figure)
            paths.append(path)
    return paths

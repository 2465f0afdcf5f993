"""Thumbnails of the gallery that can be read: one panel of a figure, redrawn with large letters.

`scrape` takes the place of sphinx-gallery's own scraper. It stores a small version of the last
figure of an example; when all examples have run, these replace the thumbnails that were made by
shrinking whole figures.
"""

from __future__ import annotations

import io
import pickle
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

SIZE, DPI = (3.6, 2.52), 200  # inches; the cards show them at about 64 pixels an inch
LETTERS = 12.5
MOST_NAMES = 8  # categories on an axis that have room for their names
LINKS = {
    "of",
    "over",
    "on",
    "with",
    "a",
    "the",
    "in",
    "per",
    "by",
    "from",
    "worst",
    "right",
    "all",
    "least",
}
LABEL = {"x": 27, "y": 20}  # letters that fit along an axis
# The panel to show, if it is not the first; rows to show, if they are too many.
PANELS = {"plot_04_when_not_to": 1}
ROWS = {"plot_06_intervals": (-0.8, 13.5)}


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Store a thumbnail of the current figure, then its images as usual."""
    import matplotlib.pyplot as plt
    from sphinx_gallery.scrapers import matplotlib_scraper

    if plt.get_fignums():
        name = Path(block_vars["src_file"]).stem
        folder = Path(gallery_conf["src_dir"], "auto_gallery", "images", "small")
        folder.mkdir(parents=True, exist_ok=True)
        # a copy, so that the figure on the page stays as it is
        figure = pickle.load(io.BytesIO(pickle.dumps(plt.gcf())))
        redraw(figure, PANELS.get(name, 0), ROWS.get(name))
        figure.savefig(folder / f"sphx_glr_{name}_thumb.png", dpi=DPI)
        plt.close(figure)
    return matplotlib_scraper(block, block_vars, gallery_conf)


def redraw(figure: Any, panel: int, rows: tuple[float, float] | None = None) -> None:
    """Keep one panel of a figure, or some rows of it, at the size of a thumbnail."""
    from matplotlib.gridspec import GridSpec

    keep = figure.axes[panel]
    for ax in list(figure.axes):
        if ax is not keep:
            figure.delaxes(ax)
    for legend in list(figure.legends):
        legend.remove()
    figure.suptitle("")
    figure.set_size_inches(SIZE)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    if rows is not None:
        keep.set_ylim(rows)
    keep.set_subplotspec(GridSpec(1, 1, figure=figure)[0])
    for place in ("left", "center", "right"):
        keep.set_title("", loc=place)
    for text in list(keep.texts):
        text.set_visible(len(text.get_text()) <= MOST_NAMES)
        text.set_fontsize(LETTERS - 2)
    if (legend := keep.get_legend()) is not None:
        legend.remove()
    for axis in (keep.xaxis, keep.yaxis):
        _thin_out(axis)
    for line in keep.get_lines():
        line.set_linewidth(max(line.get_linewidth(), 0.8 if line.get_alpha() else 1.8))
        line.set_markersize(max(line.get_markersize(), 5.0))


def first_words(text: str, most: int) -> str:
    """Shorten a label to words that stand alone.

    >>> first_words("held-out error of the worst carrier, minutes", 20)
    'held-out error'
    """
    words = text.replace("\n", " ").split(",")[0].split(" (")[0].split()
    while len(" ".join(words)) > most or (words and words[-1] in LINKS):
        words.pop()
    return " ".join(words)


def _thin_out(axis: Any) -> None:
    """Leave a few large numbers or names, and the first words of a label."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

    axis.get_label().set_text(first_words(axis.get_label().get_text(), LABEL[axis.axis_name]))
    axis.get_label().set_fontsize(LETTERS)
    axis.set_tick_params(labelsize=LETTERS - 1, labelrotation=0)
    names = [label.get_text() for label in axis.get_ticklabels()]
    if isinstance(axis.get_major_locator(), FixedLocator) or any(map(str.isalpha, "".join(names))):
        across = axis.axis_name == "x" and sum(map(len, names)) > 24
        if len(names) > MOST_NAMES or across:
            axis.set_ticks([])
        else:
            axis.set_ticks(axis.get_ticklocs(), [name.split(" (")[0] for name in names])
    elif axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(4))
        if max(map(abs, axis.get_view_interval())) >= 1000:
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def replace(app: Sphinx) -> None:
    """Put the small figures in the place of sphinx-gallery's thumbnails."""
    images = Path(app.srcdir, "auto_gallery", "images")
    for file in sorted((images / "small").glob("*.png")):
        if (images / "thumb" / file.name).exists():
            shutil.copyfile(file, images / "thumb" / file.name)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", replace, priority=900)  # after the gallery has run
    return {"parallel_read_safe": True, "parallel_write_safe": True}

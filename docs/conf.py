"""The documentation site: ``make docs``. Nothing is fetched; warnings are errors."""

import logging
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import thumbnails  # noqa: E402

from counterpoise import __version__  # noqa: E402

logging.getLogger("counterpoise").setLevel(logging.ERROR)  # what examples show is their own

project = "Counterpoise"
author = "The Counterpoise developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "accessible",
    "click_pages",
    "mathml",
    "public_names",
    "thumbnails",
]
exclude_patterns = ["_build", "gallery", "auto_gallery/**.ipynb", "auto_gallery/**.py"]
root_doc = "index"
default_role = "code"
nitpicky = True
nitpick_ignore = [("py:class", "sklearn.pipeline.Pipeline")]  # its pages are not fetched

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
suppress_warnings = ["config.cache"]  # the gallery's functions, below

# Docstrings say what types are, in words; annotations would say it twice.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = True
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]  # types in words, not references

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"

templates_path = ["_templates"]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "Counterpoise"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#14606e",
        "color-brand-content": "#14606e",
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
        # All of the navigation in a window that is 900 pixels high.
        "sidebar-item-spacing-vertical": "0.22rem",
        "sidebar-caption-space-above": "0.55rem",
        "sidebar-tree-space-above": "0.4rem",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fd0dd",
        "color-brand-content": "#7fd0dd",
    },
}


def figure_style(conf: Any, name: str) -> None:
    """Letters and lines of the gallery's figures, which pages show at about 75 dots an inch."""
    import matplotlib

    matplotlib.rcParams.update(
        {"font.size": 12, "legend.fontsize": 11, "lines.linewidth": 2.0, "lines.markersize": 7.0}
    )


sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"\.py",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "plot_gallery": True,
    "image_scrapers": (thumbnails.scrape,),
    "image_srcset": ["2x"],
    "reset_modules": ("matplotlib", figure_style),
    "thumbnail_size": (720, 504),
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
}

"""How the page looks and what it is launched with; nothing comes from another server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from gradio.themes.utils import colors, sizes

from specdemo.ui import shelf

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
TOGGLE_THEME = "() => { document.body.classList.toggle('dark'); }"

_BLUE = colors.Color(
    c50="#eef6fb", c100="#d5e9f5", c200="#abd3eb", c300="#7bb9dd", c400="#3f97c8", c500="#0072b2",
    c600="#0067a1", c700="#005587", c800="#00466f", c900="#003858", c950="#002238", name="okabe_blue",
)  # fmt: skip
_GREY = colors.Color(
    c50="#fbfbf9", c100="#f6f6f3", c200="#e8e8e3", c300="#dcdcd6", c400="#9aa1a8", c500="#6a737c",
    c600="#59626c", c700="#343a40", c800="#24292e", c900="#1b1f23", c950="#131619", name="paper",
)  # fmt: skip


def theme() -> gr.themes.Base:
    """Soft colours, small radii, the fonts of the system."""
    return gr.themes.Default(
        primary_hue=_BLUE,
        neutral_hue=_GREY,
        spacing_size=sizes.spacing_sm,
        radius_size=sizes.radius_md,
        text_size=sizes.text_md,
        font=("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"),
        font_mono=("ui-monospace", "SFMono-Regular", "Menlo", "monospace"),
    ).set(
        body_background_fill="*neutral_100",
        body_background_fill_dark="*neutral_950",
        body_text_color="#1c2126",
        body_text_color_dark="#e9e7e2",
        body_text_color_subdued="#59626c",
        body_text_color_subdued_dark="#a7b0b9",
        block_background_fill="white",
        block_background_fill_dark="*neutral_900",
        block_border_color="*neutral_300",
        block_border_color_dark="*neutral_700",
        block_label_text_color="#59626c",
        block_label_text_color_dark="#a7b0b9",
        block_title_text_color="#59626c",
        block_title_text_color_dark="#a7b0b9",
        block_info_text_color="#59626c",
        block_info_text_color_dark="#a7b0b9",
        block_title_text_size="12.5px",
        block_shadow="none",
        input_background_fill="white",
        input_background_fill_dark="*neutral_900",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        input_placeholder_color="#6a737c",
        input_placeholder_color_dark="#9aa1a8",
        button_primary_background_fill="*primary_500",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_500",
        button_primary_background_fill_hover_dark="*primary_600",
        button_primary_text_color="white",
        button_secondary_background_fill="white",
        button_secondary_background_fill_hover="*neutral_200",
        button_secondary_background_fill_dark="*neutral_800",
        button_secondary_background_fill_hover_dark="*neutral_700",
        slider_color="*primary_500",
        slider_color_dark="*primary_400",
    )


def launch_options() -> dict[str, Any]:
    """Arguments of `launch()` that belong to the page; Plotly comes from the installed package."""
    gr.set_static_paths([PLOTLY])
    return {
        "theme": theme(),
        "css_paths": [shelf.VIEW / "view.css"],
        "head": f'<script src="gradio_api/file={PLOTLY.as_posix()}" defer></script>',
        "favicon_path": shelf.ASSETS / "icons" / "favicon.svg",
        "footer_links": [],
        "run_history": False,
        "ssr_mode": False,
        "max_file_size": "20mb",
    }

"""Theme for Gradio: calm greys, one blue, the fonts of the package."""

from __future__ import annotations

import gradio as gr

LIGHT = {
    "body_background_fill": "#f6f6f3",
    "body_text_color": "#1c2126",
    "body_text_color_subdued": "#59626c",
    "block_border_color": "#dcdcd6",
    "block_title_text_color": "#59626c",
    "block_label_text_color": "#59626c",
    "block_info_text_color": "#59626c",
    "input_border_color": "#c9c9c2",
    "input_placeholder_color": "#666e77",
    "button_primary_background_fill": "#005a8c",
    "button_primary_background_fill_hover": "#00466e",
    "button_primary_text_color": "white",
    "button_secondary_background_fill": "white",
    "button_secondary_background_fill_hover": "#ecece7",
    "button_secondary_border_color": "#c9c9c2",
    "button_secondary_text_color": "#1c2126",
    "slider_color": "#0072b2",
}
DARK = {
    "body_background_fill_dark": "#131619",
    "body_text_color_dark": "#e9e7e2",
    "body_text_color_subdued_dark": "#a7b0b9",
    "block_background_fill_dark": "#1b1f23",
    "block_border_color_dark": "#343a40",
    "block_title_text_color_dark": "#a7b0b9",
    "block_label_text_color_dark": "#a7b0b9",
    "block_info_text_color_dark": "#a7b0b9",
    "input_background_fill_dark": "#1b1f23",
    "input_border_color_dark": "#464d54",
    "input_placeholder_color_dark": "#98a1aa",
    "button_primary_background_fill_dark": "#0069a5",
    "button_primary_background_fill_hover_dark": "#00588a",
    "button_primary_text_color_dark": "white",
    "button_secondary_background_fill_dark": "#1b1f23",
    "button_secondary_background_fill_hover_dark": "#2e3338",
    "button_secondary_border_color_dark": "#464d54",
    "button_secondary_text_color_dark": "#e9e7e2",
    "slider_color_dark": "#56b4e9",
}
SHAPE = {
    "button_border_width": "1px",
    "button_large_text_weight": "700",
    "button_large_text_size": "15px",
    "button_small_text_weight": "400",
    "block_title_text_size": "13px",
}


def create_theme() -> gr.themes.Base:
    """Gradio's default in calm greys with a colour-blind safe blue; the fonts lie in the package."""
    return gr.themes.Default(
        spacing_size="sm",
        radius_size="md",
        primary_hue="blue",
        neutral_hue="gray",
        # Not 600: the semi-bold files in the package contain few of the letters.
        font=(gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"),
        font_mono=(gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "monospace"),
    ).set(**LIGHT, **DARK, **SHAPE)

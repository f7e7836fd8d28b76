"""The page: Gradio, no torch."""

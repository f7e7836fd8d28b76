"""The page: Gradio and Plotly, fed by events. Never imports torch."""

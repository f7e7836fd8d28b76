"""The page: Gradio and Plotly, no torch."""

"""Data frames in, plotly figures out: no streamlit, no files. Every chart has a title and units."""

"""The app: thin pages over runs and insight. The only room that knows streamlit; it never imports torch."""

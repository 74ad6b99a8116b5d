"""The script that Streamlit runs, away from ui/pages: a folder `pages` beside a script would be taken for its pages,
and the first address that a new server is asked for would run a page's file alone, without the frame."""

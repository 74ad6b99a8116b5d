"""The script that `workbench app` gives to Streamlit; app.py is the same for a clone of the repository."""

from workbench.ui.main import main

main()

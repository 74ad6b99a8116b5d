"""The workbench in a browser: `streamlit run app.py`, or `workbench app`."""

from workbench.ui.main import main

main()

"""One module per tab of the run page, each with `tab(run)`; workbench.ui.pages.run lists them."""

"""One module per page, each with a `page()` function; workbench.ui.navigation lists them."""

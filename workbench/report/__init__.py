"""One HTML file about one or several runs, readable anywhere without a network or this package."""

from workbench.report.page import default_name, write_report

__all__ = ["default_name", "write_report"]

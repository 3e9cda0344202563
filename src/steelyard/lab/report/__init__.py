"""Results for people: tables, Markdown, CSV, one HTML file with plots. Shows, never measures."""

from steelyard.lab.report.figures import Figure, figures_of
from steelyard.lab.report.html import as_html
from steelyard.lab.report.reports import report_of
from steelyard.lab.report.tables import Report, Table
from steelyard.lab.report.text_files import as_csv, as_markdown, requests_as_csv

__all__ = [
    "Figure",
    "Report",
    "Table",
    "as_csv",
    "as_html",
    "as_markdown",
    "figures_of",
    "report_of",
    "requests_as_csv",
]

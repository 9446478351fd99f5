"""Results as pages that can be read anywhere."""

from bal.report.comparison import ranking_table, write_comparison_report
from bal.report.demo import write_demo_report
from bal.report.page import Page, Picture, Section, Table, write_page

__all__ = [
    "Page",
    "Picture",
    "Section",
    "Table",
    "ranking_table",
    "write_comparison_report",
    "write_demo_report",
    "write_page",
]

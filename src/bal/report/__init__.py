"""Results as pages that can be read anywhere."""

from bal.report.advice import Commands, advise
from bal.report.comparison import ranking_table, write_comparison_report
from bal.report.demo import write_demo_report
from bal.report.detector import write_detector_report
from bal.report.page import Advice, Page, Picture, Section, Table, write_page

__all__ = [
    "Advice",
    "Commands",
    "Page",
    "Picture",
    "Section",
    "Table",
    "advise",
    "ranking_table",
    "write_comparison_report",
    "write_demo_report",
    "write_detector_report",
    "write_page",
]

"""Results as pages that can be read anywhere."""

from bal.report.demo import summary_table, write_demo_report
from bal.report.page import Page, Picture, Section, Table, write_page

__all__ = ["Page", "Picture", "Section", "Table", "summary_table", "write_demo_report", "write_page"]

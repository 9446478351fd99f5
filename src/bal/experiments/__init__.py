"""What is measured, and how: comparisons, and the demo on the embedded sample."""

from bal.experiments.compare import Comparison, Measured, Row, Standing, advice, compare, extract_once, ranking
from bal.experiments.demo import DemoSettings, SeedRun, demo_classifier, run_demo, write_rows

__all__ = [
    "Comparison",
    "DemoSettings",
    "Measured",
    "Row",
    "SeedRun",
    "Standing",
    "advice",
    "compare",
    "demo_classifier",
    "extract_once",
    "ranking",
    "run_demo",
    "write_rows",
]

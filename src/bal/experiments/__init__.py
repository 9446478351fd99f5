"""What is measured, and how: the demo on the embedded sample."""

from bal.experiments.demo import DemoSettings, Row, SeedRun, run_demo, summary

__all__ = ["DemoSettings", "Row", "SeedRun", "run_demo", "summary"]

"""What the losses do as the paper prints them: `BAL.paper()` on the three classifiers of `bal demo`.

python benchmarks/printed_losses.py      half a minute on 2 cores, the training of the classifiers aside
"""

import warnings
from pathlib import Path

from bal.data import load_sample
from bal.detectors import BAL
from bal.experiments import DemoSettings, demo_classifier


def main() -> None:
    warnings.simplefilter("ignore")
    sample = load_sample()
    for seed in (0, 1, 2):
        classifier = demo_classifier(DemoSettings(), sample, seed, Path("runs/demo"), show_progress=True)
        result = BAL.paper(seed=seed).fit(classifier, sample.train).result_
        print(f"seed {seed}: {result.status}: {result.message}")


if __name__ == "__main__":
    main()

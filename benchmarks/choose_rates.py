"""How BAL's learning rates were chosen: AUROC of ID training images against stand-ins made from them. No OOD image has a say.

    python benchmarks/choose_rates.py      about 4 minutes on 2 cores

Two classifiers of the embedded sample (those of `bal demo`, seeds 0 and 1), BAL's seed 0. "start" is D before any learning.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bal.data import load_sample, to_input
from bal.data.standins import stand_ins
from bal.detectors import BAL
from bal.discrimination import GANTraining
from bal.evaluation import evaluate
from bal.experiments import DemoSettings, demo_classifier
from bal.features import extract
from bal.seeding import make_generator

START = GANTraining(epochs=0)
SETTINGS = {"start": START} | {
    f"D {rate_d:g}, G {rate_g:g}": GANTraining(learning_rate_D=rate_d, learning_rate_G=rate_g)
    for rate_d in (3e-5, 1e-4, 3e-4)
    for rate_g in (1e-4, 3e-4, 1e-3)
}


def main() -> None:
    torch.set_num_threads(2)
    sample, demo = load_sample(), DemoSettings()
    images = to_input(sample.train[0])
    table: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for seed in (0, 1):
        classifier = demo_classifier(demo, sample, seed, Path("runs/demo"), show_progress=True)
        train = extract(classifier, sample.train)
        known = train.rows(slice(2000, 4000))
        others = [extract(classifier, x) for x in stand_ins(images[:2000], make_generator(0)).values()]
        for name, training in SETTINGS.items():
            detector = replace(BAL(), training=training).fit_features(train)
            scores = detector.score(known)
            table[name].append(float(np.mean([evaluate(scores, detector.score(other)).auroc for other in others])))
    for name, values in sorted(table.items(), key=lambda item: -float(np.mean(item[1]))):
        print(f"{name:22s} mean AUROC {100 * np.mean(values):.2f}   by classifier {' '.join(f'{100 * v:.2f}' for v in values)}")


if __name__ == "__main__":
    main()

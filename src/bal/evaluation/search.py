"""Settings chosen by ID data alone."""

from itertools import product

import numpy as np
import torch

from bal.backbones import Classifier
from bal.data import Batches, Data, stack
from bal.data.standins import stand_ins
from bal.detectors.odin import ODIN
from bal.evaluation.metrics import detection_metrics
from bal.seeding import make_generator

TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)
EPSILONS = (0.0, 5e-4, 1e-3, 2e-3, 4e-3)


def search_odin(
    classifier: Classifier,
    id_data: Data,
    *,
    ood_data: Data | None = None,
    temperatures: tuple[float, ...] = TEMPERATURES,
    epsilons: tuple[float, ...] = EPSILONS,
    rows: int = 500,
    seed: int = 0,
) -> ODIN:
    """An unfitted ODIN with the (T, epsilon) of the best AUROC of labelled ID inputs against stand-ins made from them.

    No OOD data is used unless ``ood_data`` gives some; the result then has seen it, and must be reported so.
    """
    x, c = stack(id_data)
    order = torch.randperm(len(x), generator=make_generator(seed))
    probe = x[order[:rows]]
    if ood_data is None:
        others = list(stand_ins(probe, make_generator(seed)).values())
    else:
        others = [torch.cat([y for y, _ in Batches(ood_data)])[:rows]]

    detector = ODIN().fit(classifier, (x, c), show_progress=False)  # it learns nothing from its settings: one fit for all

    def worth(setting: tuple[float, float]) -> float:
        detector.temperature, detector.epsilon = setting
        known = detector.score(probe)
        return float(np.mean([detection_metrics(known, detector.score(y)).auroc for y in others]))

    return ODIN(*max(product(temperatures, epsilons), key=worth))

"""How far exported graphs are from torch on the networks of the paper, and how far torch is from itself.

BAL is fitted on the first images of the training set, exported to .onnx and .pt2, and the scores of real images, ID and OOD, are
compared with those of `bal`. For scale, the same with torch alone when it takes images one at a time and not in a batch: the
rounding that no export can be better than.

python benchmarks/export_parity.py                                 needs $BAL_DATA and $BAL_WEIGHTS; 10 minutes on 2 cores
python benchmarks/export_parity.py --network densenet-cifar10 --train 2000
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

from bal import BAL
from bal.data.catalog import load_data_set
from bal.experiments.networks import Store, find_network
from bal.export import export_detector

OOD = {"densenet-cifar10": "svhn", "resnet18-mnist": "fashion-mnist"}
ROWS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=tuple(OOD), nargs="*", default=tuple(OOD))
    parser.add_argument("--train", type=int, default=5000, help="images of the fit")
    parser.add_argument("--store", type=Path, default=Path("runs/reproduce"), help="where `bal reproduce` keeps its networks")
    settings = parser.parse_args()
    for name in settings.network:
        network, store = find_network(name), Store(settings.store)
        x, c = network.inputs(store, network.data, "train")
        detector = BAL().fit(network.classifier(store), (x[: settings.train], c[: settings.train]))
        known, others = (load_data_set(data, "test")[0][:ROWS] for data in (network.data, OOD[name]))
        detector.calibrate(network.inputs(store, network.data, "test")[0][-2000:], false_alarm=0.05)
        images = np.concatenate([known, others])
        together, alone = detector.score(images), np.concatenate([detector.score(images[i : i + 1]) for i in range(len(images))])
        print(f"{name}: log confidences from {together.min():.1f} to {together.max():.1g}")
        print(f"  torch, one image at a time against a batch: {np.abs(together - alone).max():.1g}")
        for suffix in (".onnx", ".pt2"):
            with tempfile.TemporaryDirectory() as folder:
                done = export_detector(detector, Path(folder) / f"model{suffix}", data=images)
            for kind, parity in (("real", done.real), ("random", done.random)):
                if parity is not None:
                    below = f"{parity.relative:.1g} of it below -5"
                    print(f"  {suffix} on {parity.rows} {kind} inputs: largest difference {parity.largest:.1g}; {below}")
    print(f"torch {torch.__version__}")


if __name__ == "__main__":
    main()

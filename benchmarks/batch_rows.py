"""Images a second of the paper's networks by the rows of a pass, and as `bal` splits a batch of 256.

python benchmarks/batch_rows.py        about two minutes on 2 cores that do nothing else
"""

import argparse
import time

import torch

from bal.backbones import Classifier, DenseNetBC, ResNet18
from bal.seeding import make_generator

NETWORKS = {
    "DenseNet-BC-100, 3 x 32 x 32": (lambda g: DenseNetBC(generator=g), (3, 32, 32)),
    "ResNet18, 1 x 28 x 28": (lambda g: ResNet18(stem="7x7", generator=g), (1, 28, 28)),
}
ROWS = (1, 8, 16, 32, 64, 128, 256)


def rate(run, x: torch.Tensor, images: int) -> float:
    """Images a second over at least so many."""
    run(x)
    started, passes = time.perf_counter(), max(1, images // len(x))
    for _ in range(passes):
        run(x)
    return passes * len(x) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=512, help="of each measurement")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    print(f"torch {torch.__version__}, {settings.threads} threads")
    for name, (make, shape) in NETWORKS.items():
        network = make(make_generator(0)).eval()
        classifier, x = Classifier(network), torch.rand(256, *shape, generator=make_generator(1))
        with torch.inference_mode():
            rates = {rows: rate(network, x[:rows], min(settings.images, 64 * rows)) for rows in ROWS}
        print(name)
        print("  by rows of a pass:", ", ".join(f"{rows}: {value:.0f}" for rows, value in rates.items()))
        print(f"  as bal splits 256: {rate(classifier, x, settings.images):.0f}")


if __name__ == "__main__":
    main()

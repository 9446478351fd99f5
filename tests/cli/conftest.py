"""A user's folder, for the commands."""

import numpy as np
import pytest
import torch

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    with torch.no_grad():
        model[3].weight.copy_(torch.eye(3, 8))
    return model

def nothing():
    return 3

def broken():
    return open("weights.pt")

class Strange(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head({}["x"])

def strange():
    return Strange()
"""


@pytest.fixture
def workspace(tmp_path):
    """A user's folder: a module that builds a network, and data as .npz files labelled by that network itself."""
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "odd.py").write_text("def build(:")
    namespace = {}
    exec(MODEL, namespace)  # noqa: S102
    x = np.random.default_rng(0).normal(size=(120, 1, 4, 4)).astype(np.float32)
    with torch.no_grad():
        labels = namespace["build"]()(torch.from_numpy(x)).argmax(1).numpy()
    np.savez(tmp_path / "train.npz", images=x[:80], labels=labels[:80])
    np.savez(tmp_path / "test.npz", x=x[80:], y=labels[80:])
    np.savez(tmp_path / "noise.npz", images=np.random.default_rng(1).random((30, 1, 4, 4), dtype=np.float32))
    return tmp_path

"""RSM, the representation sampling module (Sec. 4.2): the generator, the FGSM push, other samplers."""

from bal.sampling.fgsm import (
    Epsilon,
    Push,
    PushBase,
    hard_features,
    hard_pairs,
    push_features,
    push_features_by_sign,
    push_noise,
    push_off,
)
from bal.sampling.generator import Generator
from bal.sampling.samplers import CoordinateShuffle, Gaussian, Interpolation, Mixture, RandomScaleGaussian

__all__ = [
    "CoordinateShuffle",
    "Epsilon",
    "Gaussian",
    "Generator",
    "Interpolation",
    "Mixture",
    "Push",
    "PushBase",
    "RandomScaleGaussian",
    "hard_features",
    "hard_pairs",
    "push_features",
    "push_features_by_sign",
    "push_noise",
    "push_off",
]

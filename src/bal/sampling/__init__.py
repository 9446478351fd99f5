"""RSM, the representation sampling module (Sec. 4.2): the generator, the FGSM push, other samplers."""

from bal.sampling.fgsm import Epsilon, Push, hard_features, push_features, push_features_by_sign, push_noise
from bal.sampling.generator import Generator
from bal.sampling.samplers import Gaussian, Mixture, RandomScaleGaussian

__all__ = [
    "Epsilon",
    "Gaussian",
    "Generator",
    "Mixture",
    "Push",
    "RandomScaleGaussian",
    "hard_features",
    "push_features",
    "push_features_by_sign",
    "push_noise",
]

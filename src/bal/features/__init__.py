"""REM, the representation extraction module (Sec. 4.1): features, their geometry, trivial OOD."""

from bal.features.cache import Cache, FeatureCache
from bal.features.extraction import Features, extract, finite_rows
from bal.features.inputs import InputSpec
from bal.features.normalisation import (
    EvidenceName,
    NormalisationName,
    Step,
    class_means,
    evidence_of,
    make_normalisation,
    unit_rows,
    within_spread,
)
from bal.features.trivial import Pairs, TrivialSampler, Uniform, batch_bounds, random_labels

__all__ = [
    "Cache",
    "EvidenceName",
    "FeatureCache",
    "Features",
    "InputSpec",
    "NormalisationName",
    "Pairs",
    "Step",
    "TrivialSampler",
    "Uniform",
    "batch_bounds",
    "class_means",
    "evidence_of",
    "extract",
    "finite_rows",
    "make_normalisation",
    "random_labels",
    "unit_rows",
    "within_spread",
]

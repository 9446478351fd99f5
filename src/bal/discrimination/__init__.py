"""RDM, the representation discrimination module (Sec. 4.3): D, the losses and Algorithm 1."""

from bal.discrimination.callbacks import Callback, JsonLines, ProgressBar, Record
from bal.discrimination.discriminator import (
    RADIAL_START,
    CentredDiscriminator,
    ConcatenatingDiscriminator,
    Conditioning,
    Discriminator,
    Ensemble,
    Layers,
    PerClassDiscriminator,
    ProjectionDiscriminator,
    RadialDiscriminator,
    RadiusUnit,
    quantile,
)
from bal.discrimination.training import Algorithm1, GANTraining, TrainingResult

__all__ = [
    "RADIAL_START",
    "Algorithm1",
    "Callback",
    "CentredDiscriminator",
    "ConcatenatingDiscriminator",
    "Conditioning",
    "Discriminator",
    "Ensemble",
    "GANTraining",
    "JsonLines",
    "Layers",
    "PerClassDiscriminator",
    "ProgressBar",
    "ProjectionDiscriminator",
    "RadialDiscriminator",
    "RadiusUnit",
    "Record",
    "TrainingResult",
    "quantile",
]

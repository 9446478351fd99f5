"""RDM, the representation discrimination module (Sec. 4.3): D, the losses and Algorithm 1."""

from bal.discrimination.callbacks import Callback, JsonLines, ProgressBar, Record
from bal.discrimination.discriminator import ConcatenatingDiscriminator, Conditioning, RadialDiscriminator
from bal.discrimination.training import Algorithm1, GANTraining, TrainingResult

__all__ = [
    "Algorithm1",
    "Callback",
    "ConcatenatingDiscriminator",
    "Conditioning",
    "GANTraining",
    "JsonLines",
    "ProgressBar",
    "RadialDiscriminator",
    "Record",
    "TrainingResult",
]

"""h and H of the paper: the frozen classifier, and networks to train when there is none yet."""

from bal.backbones.classifier import Classifier, Normalise, as_classifier
from bal.backbones.resnet import ResNet18
from bal.backbones.training import ClassifierTraining, train_classifier

__all__ = ["Classifier", "ClassifierTraining", "Normalise", "ResNet18", "as_classifier", "train_classifier"]

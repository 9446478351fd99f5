"""h and H of the paper: the frozen classifier, and networks to train when there is none yet."""

from bal.backbones.cifar_resnet import CifarResNet
from bal.backbones.classifier import Classifier, Normalise, as_classifier
from bal.backbones.densenet import DenseNetBC
from bal.backbones.loading import load_classifier, load_weights
from bal.backbones.resnet import ResNet18, ResNet34
from bal.backbones.training import ClassifierTraining, train_classifier

__all__ = [
    "CifarResNet",
    "Classifier",
    "ClassifierTraining",
    "DenseNetBC",
    "Normalise",
    "ResNet18",
    "ResNet34",
    "as_classifier",
    "load_classifier",
    "load_weights",
    "train_classifier",
]

"""Detectors on the Hugging Face hub; needs the extra ``hub``, except for folders of this machine.

Tested against local folders only: no upload to or download from the real hub has been measured.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from bal.backbones import Classifier
from bal.data.extras import import_extra
from bal.detectors.base import Detector
from bal.detectors.files import load, save


def push_to_hub(detector: Detector, repository: str, class_names: Sequence[str] | None = None, *, private: bool = True) -> str:
    """Save a detector into a repository called user/name, in one commit; returns the address of the commit."""
    hub = import_extra("huggingface_hub", extra="hub")
    with TemporaryDirectory() as folder:
        save(detector, folder, class_names)
        api = hub.HfApi()
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, delete_patterns=["tensors-*.safetensors"])
    return str(commit.commit_url)


def from_pretrained(
    name: str | Path, classifier: Classifier | nn.Module | None = None, *, revision: str | None = None
) -> Detector:
    """Load a detector of a folder or .bal file of this machine, or else of a repository called user/name."""
    if Path(name).exists():
        return load(name, classifier)
    hub = import_extra("huggingface_hub", extra="hub")
    folder = hub.snapshot_download(str(name), revision=revision, allow_patterns=["manifest.json", "tensors-*.safetensors"])
    return load(folder, classifier)

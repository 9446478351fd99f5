"""bal serve."""

from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from bal.cli.common import load_with_classifier
from bal.settings import check_number

MOST_WORKERS = 4  # unless asked for more


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Serve a detector over HTTP: a page at /, Open Inference Protocol v2, /v1/score for images, /metrics for Prometheus.

    Needs the extra `serve`. The token that clients must send is read from the variable BAL_TOKEN or a file; without one only this
    machine is listened to. SIGTERM answers what was accepted and ends with 0.

    Example: bal serve detector --classifier my_model:build --port 8000
    """

    detector: tyro.conf.Positional[Path]
    """What `bal fit` wrote."""
    classifier: str | None = None
    """package.module:function or .pt2 file, as for `bal fit`."""
    host: str = "127.0.0.1"
    """Address to listen on; one that other machines reach needs a token."""
    port: int = 8000
    """0 takes a free one, which the log tells."""
    name: str | None = None
    """Of the model in /v2/models/NAME; the detector's file name without it."""
    token_file: Path | None = None
    """File that holds the token, instead of the variable BAL_TOKEN."""
    allow_public: bool = False
    """Listen on a public address without a token."""
    max_batch: int = 64
    """Rows that the model takes at once, and that one request may have."""
    queue: int = 256
    """Rows that may wait, and requests at a time; more are answered 503."""
    deadline: float = 5.0
    """Seconds from the last byte of a request to its answer; later is 504."""
    max_bytes: int = 10 * 2**20
    """Of a body; more is 413."""
    max_pixels: int = 50_000_000
    """Of an image; more is 413, before it is decoded."""
    body_seconds: float = 10.0
    """For a client to send its body; later is 408."""
    drain: float = 30.0
    """Seconds after SIGTERM to answer what was accepted."""
    workers: int | None = None
    """Threads that run the model, over the same weights; one for each core without this, and one on a GPU."""
    threads: int | None = None
    """Of torch in each worker; the cores divided among the workers without this."""
    window: int = 1000
    """Last decisions that the drift alarm looks at."""

    def __call__(self) -> None:
        """Run it."""
        check_number("port", self.port, low=0, high=65535, whole=True)
        from bal.data.extras import import_extra  # noqa: PLC0415 - torch is slow to import

        for module in ("fastapi", "uvicorn", "prometheus_client"):
            import_extra(module, extra="serve")
        from bal.serving.limits import Limits  # noqa: PLC0415
        from bal.serving.security import check_address, read_token  # noqa: PLC0415

        token = read_token(self.token_file)
        check_address(self.host, token=token, allow_public=self.allow_public)
        import torch  # noqa: PLC0415

        workers, threads = share_cores(torch.get_num_threads(), self.workers, self.threads)
        limits = Limits(
            max_batch=self.max_batch,
            queue=self.queue,
            deadline=self.deadline,
            max_bytes=self.max_bytes,
            max_pixels=self.max_pixels,
            body_seconds=self.body_seconds,
            drain_seconds=self.drain,
            window=self.window,
            workers=workers,
        )
        torch.set_num_threads(threads)
        from bal.serving.model import ServedModel  # noqa: PLC0415
        from bal.serving.server import serve  # noqa: PLC0415
        from bal.serving.service import Service  # noqa: PLC0415

        name = self.detector.resolve().stem if self.name is None else self.name
        model = ServedModel(load_with_classifier(self.detector, self.classifier), name)
        if model.classifier.device.type != "cpu" and self.workers is None:
            limits = replace(limits, workers=1)
        model.warm_up()
        serve(Service(model, limits), host=self.host, port=self.port, token=token)


def share_cores(cores: int, workers: int | None, threads: int | None) -> tuple[int, int]:
    """Workers, and threads of torch in each: a thread of torch that waits for another one costs more than a second worker.

    >>> share_cores(2, None, None), share_cores(16, None, None), share_cores(16, None, 8), share_cores(16, 1, None)
    ((2, 1), (4, 4), (2, 8), (1, 16))
    """
    for name, value in (("--workers", workers), ("--threads", threads)):
        if value is not None:
            check_number(name, value, low=1, high=1024, whole=True)
    if workers is None:
        workers = max(1, min(MOST_WORKERS, cores // (threads or 1)))
    return workers, threads or max(1, cores // workers)

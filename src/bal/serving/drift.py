"""Is more rejected than was promised? An exact binomial band round the rejection rate of the last decisions.

An alarm says that the traffic is no longer like the calibration data: OOD inputs, a camera that has changed, another
preprocessing. It cannot tell which, and a server that is sent OOD inputs and rejects them does what it is for.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from bal.calibration import Calibration, rate_interval

FEWEST = 50  # decisions before an alarm


@dataclass(frozen=True)
class Rejections:
    """The last ``rows`` decisions: the share rejected, with ``low`` and ``high`` the band of the rate behind it.

    ``promised`` is the false-alarm rate of the calibration, and ``limit`` the highest that this calibration is likely to have on
    ID data (None without calibration, when nothing is promised). ``alarm`` is low > limit.
    """

    rows: int
    rejected: int
    low: float
    high: float
    promised: float | None
    limit: float | None

    @property
    def share(self) -> float | None:
        """Rejected of all; None before the first decision."""
        return self.rejected / self.rows if self.rows else None

    @property
    def alarm(self) -> bool:
        """Whether the rejection rate is higher than ID data would give."""
        return self.limit is not None and self.rows >= FEWEST and self.low > self.limit


class Drift:
    """A sliding window of decisions, True where rejected.

    Departure from a textbook test: the band is exact for one look at one window. An alarm that is looked at all the time has
    more chances to be wrong, hence the high confidence.
    """

    def __init__(self, calibration: Calibration | None, *, window: int, confidence: float) -> None:
        self.confidence = confidence
        self.promised = None if calibration is None else calibration.false_alarm
        self.limit = None if calibration is None else max(alarm.high for alarm in calibration.false_alarms(confidence))
        self._last: deque[bool] = deque(maxlen=window)
        self._rejected = 0
        self._known: Rejections | None = None

    def add(self, rejected: Iterable[bool]) -> None:
        """Some decisions."""
        for each in rejected:
            if len(self._last) == self._last.maxlen:
                self._rejected -= self._last[0]
            self._last.append(bool(each))
            self._rejected += bool(each)

    def state(self) -> Rejections:
        """What the window says; kept until the counts change."""
        rows, rejected = len(self._last), self._rejected
        if self._known is None or (self._known.rows, self._known.rejected) != (rows, rejected):
            low, high = rate_interval(rejected, rows, self.confidence) if rows else (0.0, 1.0)
            self._known = Rejections(rows, rejected, low, high, self.promised, self.limit)
        return self._known

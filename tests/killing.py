"""kill -9 at a chosen moment, cheaply: the child is forked from this process, which has imported everything already."""

import os
import signal
import time
import traceback
import warnings

ENOUGH = 5  # kills that came in mid-work
LONGEST = 300  # seconds that a child may live


def started(work):
    """A child that does ``work`` and ends with 0, or with 1 if it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside idle threads
        child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(LONGEST)  # an end even if these tests are killed themselves
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def killed_after(seconds, work):
    """Run ``work`` in a child and kill it after so many seconds; whether it was still at work then."""
    child = started(work)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it failed before it could be killed"
    return os.WIFSIGNALED(status)


def seconds_in_a_child(work):
    """How long ``work`` takes from the fork to the end of the child, on this machine as busy as it is now."""
    begun = time.perf_counter()
    assert os.waitpid(started(work), 0)[1] == 0
    return time.perf_counter() - begun


def kills_while_saving(save_old, save_new, folder, rng, *, times=50):
    """Kill a child that saves one and the other for ever, at moments within some two saves; a pause after every kill.

    Before every kill the old one is saved whole, which must clean what the last kill left in the folder. More kills follow until
    enough of them have left something there, so that it is certain that they came in mid-work.
    """

    def save_for_ever():
        while True:
            save_new()
            save_old()

    save_old()
    whole = len(list(folder.iterdir()))
    window = 2 * sorted(seconds_in_a_child(save_new) for _ in range(3))[1]
    kills = in_the_middle = 0
    while kills < times or in_the_middle < ENOUGH:
        save_old()
        assert len(list(folder.iterdir())) == whole, "the next save cleans what a kill has left"
        assert killed_after(rng.uniform(0, window), save_for_ever)
        in_the_middle += len(list(folder.iterdir())) > whole
        kills += 1
        assert kills < 10 * times, f"only {in_the_middle} of {kills} kills came in mid-work"
        yield
    save_old()
    assert len(list(folder.iterdir())) == whole

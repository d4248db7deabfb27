"""23, find the bottleneck: what shows that the technique acts, and answers to the exercise."""

import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Any

from course import exercises, programs
from labkit import seed_all
from tests.labs import counters

CHECK = exercises.check_23_sample
# Seconds after which a thread that is left ends by itself.
LATE = 3.0


def alive(names: dict[str, Any]) -> None:
    """In both scripts each mended line leaves its own operators out, and learns the same."""
    for script in programs.SCRIPTS:
        before = counters(names, script=script)
        after = {
            line: counters(names, script=script, **{f"line_{line}": True})
            for line in programs.MENDS
        }
        images = programs.load(script).images
        # The largest pixel was looked for in each image; each image was counted by itself.
        assert before.launches - after[20].launches >= images
        assert before.launches - after[44].launches >= images
        assert before.host_reads - after[43].host_reads > 0
        learned = set()
        for mended in ((), (20,), (44,)):
            seed_all(0)
            learned.add(programs.load(script, mended).epoch())
        assert len(learned) == 1


def seen(frame: FrameType | None, file: str, mistake: str) -> FrameType | None:
    """The frame that a look counts: the innermost one of the file, but for a mistake."""
    if mistake == "library":
        return frame
    found = []
    while frame:
        if frame.f_code.co_filename == file:
            found.append(frame)
        frame = frame.f_back
    if not found:
        return None
    return found[-1] if mistake == "outermost" else found[0]


def finish(work: Any, ended: threading.Event, mistake: str) -> None:
    """Run the work and tell the thread that looks to end, but for a mistake."""
    late = threading.Timer(LATE, ended.set)
    try:
        work()
    except Exception:
        if mistake == "fails late":
            raise
        if mistake == "no finally":
            late.start()
            raise
        ended.set()
        if mistake != "keeps the error":
            raise
    if mistake == "never ends":
        late.start()
    else:
        ended.set()


def sampler(mistake: str = "") -> Any:
    """A sampler, right or with a mistake."""

    def sample(work: Any, file: str, every: float = 0.002) -> Any:
        seconds: Counter[int] = Counter()
        caller, ended = threading.get_ident(), threading.Event()
        if mistake == "main thread":
            caller = threading.main_thread().ident or 0

        def look() -> None:
            number = threading.get_ident() if mistake == "own thread" else caller
            last = time.perf_counter()
            while not ended.wait(0 if mistake == "no pause" else every):
                frames = sys._current_frames()
                # Which fails once the thread that calls is gone.
                own = frames[number] if mistake == "fails late" else frames.get(number)
                frame = seen(own, file, mistake)
                now = time.perf_counter()
                if frame:
                    spans = {"counts": 1, "adds the pause": every}
                    seconds[frame.f_lineno] += spans.get(mistake, now - last)
                last = now

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        finish(work, ended, mistake)
        if ended.is_set():
            thread.join()
        return None if mistake == "nothing" else seconds

    sample.__name__ = mistake.replace(" ", "_") or "sample"
    return sample


def never_works(work: Any, file: str, every: float = 0.002) -> dict[int, float]:
    return {}


RIGHT = sampler()
WRONG = [
    (sampler("outermost"), "line 7 only calls the function in which the time goes by"),
    (sampler("library"), "line 52 is one of library.py"),
    (sampler("own thread"), "no look saw a line of program.py"),
    (sampler("main thread"), "no look saw a line of program.py"),
    (sampler("never ends"), "a thread still looks when sample has returned"),
    (sampler("no finally"), "a thread still looks after an error of the program"),
    (sampler("fails late"), "after an error of the program your thread goes on, until it fails"),
    (sampler("no pause"), "too many looks, "),
    (sampler("counts"), "your lines add up to"),
    (sampler("adds the pause"), "your lines add up to"),
    (sampler("keeps the error"), "the program raised an error, and sample kept it"),
    (sampler("nothing"), "return the seconds of each line"),
    (never_works, "the program ran 0 times"),
]

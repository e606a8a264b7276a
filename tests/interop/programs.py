"""Programs that run for a while and write what happens as lines of JSON."""

import ctypes
import json
import signal
import subprocess
import threading
import time

# How long anything that is waited for may take.
TIMEOUT_S = 20
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def end_with_parent():
    """A child ends when this process does, however that ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Program:
    """A running program. Its output lines are kept, for searches and for the report."""

    def __init__(self, name, command):
        self.name = name
        self._lines = []
        self._events = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=end_with_parent)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            with self._news:
                self._lines.append(line)
                if isinstance(event, dict):
                    self._events.append(event)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def events(self, **wanted):
        """The events so far that have all these fields."""
        with self._news:
            return [event for event in self._events if matches(event, wanted)]

    def wait_for(self, **wanted):
        """The first event that has all these fields."""
        deadline = time.monotonic() + TIMEOUT_S
        with self._news:
            while True:
                for event in self._events:
                    if matches(event, wanted):
                        return event
                left = deadline - time.monotonic()
                assert left > 0 and self._reader.is_alive(), \
                    f"{self.name} said nothing of {wanted}:\n{self._said()}"
                self._news.wait(min(left, 0.5))

    def is_running(self):
        return self._process.poll() is None

    def wait_for_end(self):
        """The exit code of a program that ends by itself."""
        code = self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def terminate(self):
        self._process.terminate()

    def stop(self):
        self._process.kill()
        self._process.wait()
        self._reader.join(TIMEOUT_S)
        self._process.stdout.close()

    def said(self, lines=10):
        with self._news:
            return self._said(lines)

    def _said(self, lines=10):
        return "".join(f"  {self.name}: {line}" for line in self._lines[-lines:])


def matches(event, wanted):
    return all(event.get(key) == value for key, value in wanted.items())


def wait_until(what, condition):
    """Polls `condition`, for what no program says by itself."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {what}"
        time.sleep(0.02)

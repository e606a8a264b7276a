#!/usr/bin/env python3
"""delay-aimd in Python: the algorithm of examples/custom-controller, for Millrace's simulator.

The window grows by one packet in a round trip while packets wait for less than a target, and becomes smaller by a
fraction when they wait longer or are lost. An example and no recommendation.
"""

from millrace_controller import serve

# Least window, in packets (RFC 9002, Section 7.2).
MIN_WINDOW_PACKETS = 2
# The window decides and not the pacing (RFC 9002, Section 7.7).
PACING_GAIN = 1.25


class DelayAimd:
    def __init__(self, start):
        parameters = dict(start["parameters"])
        self.max_queueing_ns = parameters.pop("max_queueing_ms", 10.0) * 1e6
        self.reduction = parameters.pop("reduction", 0.85)
        if parameters:
            raise SystemExit(f"unknown parameters {sorted(parameters)}; known are max_queueing_ms, reduction")
        self.mtu_bytes = start["mtu_bytes"]
        self.window = float(start["initial_window_bytes"])
        self.smoothed_rtt_ns = start["initial_rtt_ns"]
        self.is_slow_start = True
        # One reduction in a round trip: its effect can't be seen earlier.
        self.next_reduction_ns = 0

    @property
    def window_bytes(self):
        return int(self.window)

    @property
    def pacing_bits_per_s(self):
        return PACING_GAIN * self.window_bytes * 8 * 1e9 / self.smoothed_rtt_ns

    def on_event(self, event):
        rtt = event["rtt"]
        queueing_ns = 0
        if rtt:
            self.smoothed_rtt_ns = rtt["smoothed_ns"]
            queueing_ns = rtt["latest_ns"] - rtt["min_ns"]
        if event["lost"] or queueing_ns > self.max_queueing_ns:
            self.reduce(event["now_ns"])
        elif not event["app_limited"]:
            # A window that was not used says nothing about the path (RFC 9002, Section 7.8).
            self.grow(sum(size for _number, _sent_ns, size in event["acked"]))

    def grow(self, acked_bytes):
        self.window += acked_bytes if self.is_slow_start else self.mtu_bytes * acked_bytes / self.window

    def reduce(self, now_ns):
        if now_ns < self.next_reduction_ns:
            return
        self.is_slow_start = False
        self.window = max(self.window * self.reduction, MIN_WINDOW_PACKETS * self.mtu_bytes)
        self.next_reduction_ns = now_ns + self.smoothed_rtt_ns


if __name__ == "__main__":
    serve(DelayAimd)

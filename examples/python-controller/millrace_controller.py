"""The lab's side of the protocol: reads messages, asks a controller, writes its decisions.

Standard library only. docs/research/external-controllers.md describes the messages.
"""

import json
import sys

PROTOCOL = 1


def serve(make_controller):
    """Runs one controller until the lab closes the standard input.

    make_controller(start) is called with the first message. The controller has window_bytes and
    pacing_bits_per_s, and on_event(event); on_probe_timeout(message) and on_spurious_loss(message) are optional.
    """
    controller = None
    for line in sys.stdin:
        message = json.loads(line)
        kind = message["type"]
        answer = {}
        if kind == "start":
            if message["protocol"] != PROTOCOL:
                sys.exit(f"the lab speaks protocol {message['protocol']}, this program {PROTOCOL}")
            controller = make_controller(message)
            answer["protocol"] = PROTOCOL
        elif kind == "event":
            controller.on_event(message)
        else:
            # Kinds that a later version adds are answered too.
            getattr(controller, f"on_{kind}", lambda message: None)(message)
        answer["window_bytes"] = controller.window_bytes
        answer["pacing_bits_per_s"] = controller.pacing_bits_per_s
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

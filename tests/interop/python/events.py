"""Events as lines of JSON on standard output."""

import json


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)

"""Which receipts are missing? A command for ``perdure consume``: a task in, an answer out.

It pretends to look at pictures, which takes a moment. The task is on standard input, the answer on
standard output; both are JSON.
"""

from __future__ import annotations

import json
import sys
import time

LOOK_S = 0.05


def main() -> None:
    """Answer one task."""
    report = json.load(sys.stdin)
    missing = []
    for item in report["items"]:
        time.sleep(LOOK_S)
        if "taxi" in item:
            missing.append(item)
    print(f"looked at {len(report['items'])} receipts of {report['id']}", file=sys.stderr)
    json.dump({"missing": missing}, sys.stdout)


if __name__ == "__main__":
    main()

"""A contender's process: builds jobs and calls their methods; requests and answers are JSON objects, one per line."""

import json
import os
import sys
import traceback

from fedflat.bench.host.allocator import keep_freed_memory


def main() -> None:
    """Serve until the input ends; all other output goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    if settings["keeps_memory"]:
        keep_freed_memory()
    import torch

    from tests.benchmarks.jobs import build

    torch.set_num_threads(settings["threads"])
    device = torch.device(settings["device"])
    jobs = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "kind" in request:
                jobs[request["job"]] = build(request["kind"], device, request["given"])
                answer = None
            else:
                answer = getattr(jobs[request["job"]], request["method"])(**request["given"])
            answers.write(json.dumps({"answer": answer}) + "\n")
        except Exception:
            answers.write(json.dumps({"error": traceback.format_exc()}) + "\n")


if __name__ == "__main__":
    main()

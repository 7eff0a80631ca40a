"""Running things with a limit, and asking probe.py."""

import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ANSWER_LIMIT = 12  # seconds for one process; a driver that starts eight GPUs takes a few


class Clock:
    """What is left of the whole run, so that there is an answer to write when a driver is slow."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def limit(self, most=ANSWER_LIMIT):
        return min(most, self.end - time.monotonic())


def run(clock, command, env=None, most=ANSWER_LIMIT):
    """(exit code, stdout, stderr); the code is None, and stderr says why, where it did not end in time."""
    limit = clock.limit(most)
    if limit <= 0:
        return None, "", "not asked: the time was up"
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "", f"no answer within {limit:.0f} s"
    except OSError as error:
        return None, "", str(error)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def environment(value=None, order=None):
    """This process's environment with CUDA's and NVIDIA's variables taken out, but for these two."""
    env = {name: text for name, text in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_", "CUDAVIEW_"))}
    if value is not None:
        env["CUDA_VISIBLE_DEVICES"] = value
    if order is not None:
        env["CUDA_DEVICE_ORDER"] = order
    return env


def answer(result):
    """What probe.py printed, or {"failed": why}."""
    code, stdout, stderr = result
    try:
        return json.loads(stdout)
    except ValueError:
        reason = stderr.strip().splitlines()[-1:] or [f"the process ended with {code}"]
        return {"failed": reason[0][-400:]}


def ask(clock, question, value=None, order=None, late=""):
    """probe.py's answer, from a process of its own."""
    command = [sys.executable, "-BIS", str(HERE / "probe.py"), question, late]
    return answer(run(clock, command, environment(value, order)))


def seen(inventory, cuda):
    """The devices of an answer of `cuda`, by the names that the inventory has for them; None where there is none."""
    if "failed" in cuda:
        return None
    names = {}
    for gpu in inventory["gpus"]:
        for uuid in [gpu["uuid"]] + [mig["uuid"] for mig in gpu.get("mig", [])]:
            names[uuid.split("-", 1)[1].replace("-", "").lower()] = uuid
    unknown = {True: "GPU-?", False: "MIG-?"}
    return [names.get(row["uuid"], unknown[row["uuid"] == row["gpu"]] + row["uuid"]) for row in cuda["devices"]]

#!/usr/bin/env python3
"""Compares what this machine's driver does with what cudaview says: check.py BIN_DIR OUTPUT. tests/gpu/run starts it."""

import concurrent.futures
import json
import pathlib
import platform
import re
import statistics
import sys
import tempfile
import time

import container
from common import HERE, Clock, answer, ask, environment, run, seen

WHOLE_RUN = 220  # seconds; tests/gpu/run ends it 15 later
REPETITIONS = 7
CUDA_ERROR_NO_DEVICE = 100
NO_GPU = 5  # src/exit.rs: no inventory


def words(inventory):
    """What stands for {name} in table.json. Where the machine has no such device, the row is left out."""
    gpus = inventory["gpus"]
    uuids, count = [gpu["uuid"] for gpu in gpus], len(gpus)
    numbers = [str(index) for index in range(count)]
    digits = uuids[0][4:]
    out = {"n": str(count), "last": numbers[-1], "all": ",".join(numbers), "reversed": ",".join(numbers[::-1])}
    out |= {"u0": uuids[0], "p0": uuids[0][:12], "b0": digits, "U0": "GPU-" + digits.upper(), "g0": "gpu-" + digits}
    lengths = range(4, len(uuids[0]) + 1)
    out["s0"] = next(uuids[0][:n] for n in lengths if sum(uuid.startswith(uuids[0][:n]) for uuid in uuids) == 1)
    if count > 1:
        out |= {"u1": uuids[1], "p1": uuids[1][:12], "ulast": uuids[-1]}
    migs = [(gpu, mig) for gpu in gpus for mig in gpu.get("mig", [])]
    for number, (gpu, mig) in enumerate(migs[:2]):
        legacy = f"MIG-{gpu['uuid']}/{mig['gi']}/{mig['ci']}"
        key = f"m{number}"
        out |= {key: mig["uuid"], key + "p": mig["uuid"][:12], key + "legacy": legacy, key + "parent": gpu["uuid"]}
    whole = [gpu["uuid"] for gpu in gpus if not gpu.get("mig") and not gpu.get("migEnabled")]
    return out | ({"whole": whole[0]} if migs and whole else {})


def rows(inventory):
    """The table with its words filled in, each value once, and the number of rows that this machine cannot ask.

    A row is `open` where nobody has published what a driver does.
    """
    known, out, left_out, asked = words(inventory), [], 0, set()
    for row in json.loads((HERE / "table.json").read_text(encoding="utf-8")):
        form = value = row["value"]
        if form is not None:
            if not all(word in known for word in re.findall(r"{(\w+)}", form)):
                left_out += 1
                continue
            value = re.sub(r"{(\w+)}", lambda match: known[match[1]], form)
        # Numbers mean the same on every machine in this order; rows about the order have their own, null is unset.
        order, when = row.get("order", "PCI_BUS_ID"), row.get("when", "start")
        if (value, order, when) not in asked:
            asked.add((value, order, when))
            row = {"asks": row["asks"], "open": row.get("open", False), "form": form}
            out.append({**row, "value": value, "order": order, "when": when})
    return out, left_out


def predicted(clock, programs, fixture, value, order):
    command = [str(programs / "cudaview"), "predict", "--inventory", fixture, "--format", "json"]
    if value is not None:
        command.append("--cuda-visible-devices=" + value)
    if order is not None:
        command.append("--cuda-device-order=" + order)
    return answer(run(clock, command, environment()))


def compared(clock, programs, fixture, inventory, row):
    """The row with what was expected and what was seen; `agrees` is null where nothing could be asked."""
    value, order, when = row["value"], row["order"], row["when"]
    # A value that comes after cuInit comes too late.
    expected = predicted(clock, programs, fixture, None if when == "started" else value, order)
    if when == "start":
        cuda = ask(clock, "cuda", value, order)
    else:
        cuda = ask(clock, "cuda", None, order, f"{when}={value}")
    visible = seen(inventory, cuda)
    actual = cuda if visible is None else {"visible": visible, "cuInit": cuda["cuInit"]}
    if "failed" in expected:
        return {**row, "expected": expected, "actual": actual, "certain": False, "agrees": False}
    code = 0 if expected["error"] is None else CUDA_ERROR_NO_DEVICE
    expectation = {"visible": expected["visible"], "cuInit": code}
    agrees = None if visible is None else actual == expectation
    return {**row, "expected": expectation, "actual": actual, "certain": expected["certain"], "agrees": agrees}


def address(text):
    return [int(part, 16) for part in re.split("[:.]", text)]


def comparison(what, ours, theirs):
    """Two lists of GPUs, by UUID: which one lacks a GPU, which minor, address or index differs."""
    left, right = ({gpu["uuid"]: gpu for gpu in gpus} for gpus in (ours, theirs))
    differences = [f"{uuid}: in one of the two only" for uuid in sorted(left.keys() ^ right.keys(), key=str)]
    for uuid in sorted(left.keys() & right.keys()):
        for key in ("index", "minor", "pciBusId"):
            a, b = left[uuid].get(key), right[uuid].get(key)
            same = address(a) == address(b) if key == "pciBusId" and a and b else a == b
            if key in right[uuid] and not same:
                differences.append(f"{uuid}: {key} {a} and {b}")
    return {"what": what, "agrees": not differences, "differences": differences}


def comparisons(inventory, nvml, proc, nodes):
    ours, out = inventory["gpus"], []
    if "failed" in nvml or nvml["nvmlInit"] != 0:
        out.append({"what": "inventory and NVML", "agrees": None, "differences": [json.dumps(nvml)]})
    else:
        out.append(comparison("inventory and NVML", ours, nvml["gpus"]))
    if proc.get("gpus"):
        out.append(comparison("inventory and /proc/driver/nvidia", ours, proc["gpus"]))
    else:
        reason = "no GPU under /proc/driver/nvidia"
        out.append({"what": "inventory and /proc/driver/nvidia", "agrees": None, "differences": [reason]})
    if not nodes:
        return out + [{"what": "inventory and /dev", "agrees": None, "differences": ["no device nodes"]}]
    missing = [gpu["minor"] for gpu in ours if nodes.get(f"/dev/nvidia{gpu['minor']}") != [195, gpu["minor"]]]
    lines = [f"/dev/nvidia{minor}: not there, or not 195:{minor}" for minor in missing]
    return out + [{"what": "inventory and /dev", "agrees": not missing, "differences": lines}]


def timed(clock, measure):
    """A few runs and their median, in milliseconds; fewer where one takes long."""
    runs, end = [], time.monotonic() + 6
    while len(runs) < REPETITIONS and (not runs or time.monotonic() < end) and clock.limit() > 0:
        value = measure()
        if value is None:
            return None
        runs.append(round(value, 3))
    return {"median": statistics.median(runs), "runs": runs} if runs else None


def timings(clock, programs):
    """NVML's start against reading /proc, each in a process of its own, and the programs that do the one or the other."""

    def program(*command):
        began = time.monotonic()
        code, _, _ = run(clock, [str(programs / command[0]), *command[1:]], environment())
        return (time.monotonic() - began) * 1000 if code == 0 else None

    return {
        "procReadMs": timed(clock, lambda: ask(clock, "proc").get("ms")),
        "nvmlInitMs": timed(clock, lambda: ask(clock, "nvml").get("initMs")),
        "cuInitMs": timed(clock, lambda: ask(clock, "cuda").get("ms")),
        "cudaviewInventoryMs": timed(clock, lambda: program("cudaview", "inventory", "--format", "json")),
        "cudaviewNvmlMs": timed(clock, lambda: program("cudaview-nvml")),
    }


def completed(inventory, nvml, cuda):
    """The inventory that predictions are made from: GPUs that this process can reach, with their multiprocessors."""
    reached = {gpu["uuid"] for gpu in nvml.get("gpus", [])}
    gpus = [dict(gpu) for gpu in inventory["gpus"] if not reached or gpu["uuid"] in reached]
    counts = dict(zip(seen(inventory, cuda), (row.get("multiprocessors") for row in cuda["devices"])))
    for index, gpu in enumerate(gpus):
        gpu["index"] = index
        if gpu.get("multiprocessors") is None and counts.get(gpu["uuid"]) is not None:
            gpu["multiprocessors"] = counts[gpu["uuid"]]
    return {**inventory, "gpus": gpus}


def shown(inventory, result):
    """`0,2`, `none`, or an error's number; MIG devices as GPU:instance."""
    if "failed" in result:
        return "no answer"
    if result["cuInit"] not in (0, CUDA_ERROR_NO_DEVICE):
        return f"error {result['cuInit']}"
    names = {}
    for gpu in inventory["gpus"]:
        names[gpu["uuid"]] = str(gpu["index"])
        names |= {mig["uuid"]: f"{gpu['index']}:{at}" for at, mig in enumerate(gpu.get("mig", []))}
    return ",".join(names.get(uuid, "?") for uuid in result["visible"]) or "none"


def is_known(row):
    """Whether the driver has to do what was predicted: an open question is one, however sure `predict` is."""
    return row["certain"] and not row["open"]


def print_report(report):
    inventory, table = report["inventory"], report["table"]
    names = sorted({gpu["name"] for gpu in inventory["gpus"]})
    print(f"driver {inventory['driverVersion']}, {len(inventory['gpus'])} GPUs: {', '.join(names)}"[:80])
    print(f"  {'ASKS':9} {'VALUE':26} {'ORDER':14} {'PREDICTED':12} SEEN")
    for row in sorted((row for row in table if not (is_known(row) and row["agrees"])), key=is_known, reverse=True):
        mark = " " if row["agrees"] else "!" if is_known(row) else "*"
        value = "(unset)" if row["form"] is None else json.dumps(row["form"])
        value += "" if row["when"] == "start" else f" ({row['when']})"
        order = "(unset)" if row["order"] is None else json.dumps(row["order"])
        cells = [shown(inventory, row[key]) for key in ("expected", "actual")]
        print(f"{mark} {row['asks']:9} {value:26.26} {order:14.14} {cells[0]:12.12} {cells[1]:12.12}".rstrip())
    for kind, known in (("known", True), ("open or not certain", False)):
        part = [row for row in table if is_known(row) is known]
        print(f"{kind}: {sum(row['agrees'] is True for row in part)} of {len(part)} as predicted")
    for entry in report["comparisons"]:
        state = {True: "agree", False: "DIFFER", None: "not compared"}[entry["agrees"]]
        print(f"{entry['what']}: {state}")
    medians = {key: value["median"] for key, value in report["timings"].items() if value}
    for key, value in medians.items():
        print(f"{key}: {value} ms")
    print(container.summary(report["container"])[:80])


def main():
    programs, output, clock = pathlib.Path(sys.argv[1]), sys.argv[2], Clock(WHOLE_RUN)
    cuda, nodes = ask(clock, "cuda", order="PCI_BUS_ID"), ask(clock, "nodes")
    if cuda.get("cuInit") != 0:
        reason = cuda.get("failed") or f"cuInit ends with {cuda['cuInit']}"
        has_driver = "/dev/nvidiactl" in nodes and "libcuda" not in reason and cuda.get("cuInit") != CUDA_ERROR_NO_DEVICE
        print(f"tests/gpu/run: {'the driver does not start' if has_driver else 'no GPU here'}: {reason}", file=sys.stderr)
        return 1 if has_driver else NO_GPU
    code, text, error = run(clock, [str(programs / "cudaview"), "inventory", "--format", "json"], environment())
    if code != 0:
        print(f"tests/gpu/run: cudaview inventory failed: {error.strip()}", file=sys.stderr)
        return 1
    full, nvml, proc = json.loads(text), ask(clock, "nvml"), ask(clock, "proc")
    inventory = completed(full, nvml, cuda)
    times = timings(clock, programs)
    asked, left_out = rows(inventory)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
        fixture = f"{folder}/inventory.json"
        pathlib.Path(fixture).write_text(json.dumps(inventory), encoding="utf-8")
        table = list(pool.map(lambda row: compared(clock, programs, fixture, inventory, row), asked))
    report = {
        "schemaVersion": 1,
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "driver": {"version": inventory["driverVersion"], "cuda": cuda.get("cudaVersion"), "kernel": platform.release()},
        "gpus": cuda["devices"],
        "inventory": inventory,
        "nodes": nodes,
        "proc": proc,
        "nvml": nvml,
        "rowsLeftOut": left_out,
        "table": table,
        "comparisons": comparisons(full, nvml, proc, nodes),
        "timings": times,
        "container": container.check(clock, programs, inventory, nodes, cuda["library"]),
    }
    pathlib.Path(output).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print_report(report)
    wrong = [row for row in table if is_known(row) and row["agrees"] is not True or "failed" in row["expected"]]
    differ = [entry for entry in report["comparisons"] if entry["agrees"] is False]
    return 1 if wrong or differ or report["container"].get("agrees") is False else 0


sys.exit(main())

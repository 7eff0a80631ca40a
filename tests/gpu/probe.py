#!/usr/bin/env python3
"""Asks one thing in a process of its own, and prints the answer as JSON: probe.py cuda|nvml|proc|nodes.

`cuda loaded=VALUE` sets CUDA_VISIBLE_DEVICES after libcuda was loaded, `cuda started=VALUE` after cuInit.
"""

import ctypes
import glob
import json
import os
import stat
import sys
import time

PROC = "/proc/driver/nvidia"
MULTIPROCESSOR_COUNT = 16  # CUdevice_attribute, cuda.h


def call(library, name, *arguments):
    """The function's status; None where the library has no such function."""
    function = getattr(library, name, None)
    return None if function is None else function(*arguments)


def milliseconds(since):
    return round((time.monotonic() - since) * 1000, 3)


def cuda(late):
    """Devices in CUDA's order. The numbers are CUresult values; the UUIDs are hexadecimal digits without a kind."""
    began = time.monotonic()
    library = ctypes.CDLL("libcuda.so.1")
    when, _, value = late.partition("=")
    if when == "loaded":
        os.environ["CUDA_VISIBLE_DEVICES"] = value
    status = library.cuInit(0)
    answer = {"cuInit": status, "ms": milliseconds(began), "library": mapped("libcuda.so"), "devices": []}
    if when == "started":
        os.environ["CUDA_VISIBLE_DEVICES"] = value
        answer["cuInit"] = status = library.cuInit(0)
    count = ctypes.c_int()
    if status == 0:
        answer["cuDeviceGetCount"] = library.cuDeviceGetCount(ctypes.byref(count))
    for ordinal in range(count.value):
        answer["devices"].append(cuda_device(library, ordinal))
    version = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        answer["cudaVersion"] = version.value
    return answer


def cuda_device(library, ordinal):
    device, count = ctypes.c_int(), ctypes.c_int()
    name, uuid, own = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    library.cuDeviceGet(ctypes.byref(device), ordinal)
    library.cuDeviceGetName(name, 256, device)
    library.cuDeviceGetUuid(uuid, device)
    # Version 2 gives a MIG device's own UUID; old drivers have none.
    if call(library, "cuDeviceGetUuid_v2", own, device) is None:
        own = uuid
    row = {"name": name.value.decode(errors="replace"), "uuid": own.raw.hex(), "gpu": uuid.raw.hex()}
    if call(library, "cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSOR_COUNT, device) == 0:
        row["multiprocessors"] = count.value
    return row


def mapped(name):
    """Where the loader found a library."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = (line.split(None, 5)[-1].strip() for line in maps if "/" in line)
        return next((path for path in paths if os.path.basename(path).startswith(name)), None)


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t, nvml.h."""

    _fields_ = [("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint * 5), ("address", ctypes.c_char * 32)]


def nvml(_):
    """GPUs in NVML's order, as it names them."""
    began = time.monotonic()
    library = ctypes.CDLL("libnvidia-ml.so.1")
    status = library.nvmlInit_v2()
    answer = {"nvmlInit": status, "initMs": milliseconds(began), "gpus": []}
    if status != 0:
        return answer
    count, minor, handle = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_void_p()
    text, pci = ctypes.create_string_buffer(96), PciInfo()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
        library.nvmlDeviceGetUUID(handle, text, 96)
        library.nvmlDeviceGetMinorNumber(handle, ctypes.byref(minor))
        library.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci))
        row = {"uuid": text.value.decode(), "minor": minor.value, "pciBusId": pci.address.decode().lower()}
        answer["gpus"].append({"index": index, **row})
    answer["ms"] = milliseconds(began)
    if library.nvmlSystemGetDriverVersion(text, 96) == 0:
        answer["driverVersion"] = text.value.decode()
    library.nvmlShutdown()
    return answer


def proc(_):
    """GPUs as /proc/driver/nvidia names them; the folder is left out where the driver made none."""
    began = time.monotonic()
    gpus = []
    for path in sorted(glob.glob(PROC + "/gpus/*/information")):
        with open(path, encoding="utf-8", errors="replace") as file:
            fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in file)}
        address = os.path.basename(os.path.dirname(path)).lower()
        minor = fields.get("Device Minor", "")
        row = {"uuid": fields.get("GPU UUID"), "minor": int(minor) if minor.isdigit() else None, "pciBusId": address}
        gpus.append({**row, "model": fields.get("Model")})
    answer = {"ms": milliseconds(began), "present": os.path.isdir(PROC), "gpus": gpus}
    for name in ("version", "params"):
        try:
            with open(f"{PROC}/{name}", encoding="utf-8", errors="replace") as file:
                answer[name] = file.read().splitlines()
        except OSError as error:
            answer[name] = os.strerror(error.errno)
    return answer


def nodes(_):
    """The driver's device nodes."""
    found = {}
    for path in sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps/*")):
        info = os.stat(path)
        if stat.S_ISCHR(info.st_mode):
            found[path] = [os.major(info.st_rdev), os.minor(info.st_rdev)]
    return found


def main():
    questions = {"cuda": cuda, "nvml": nvml, "proc": proc, "nodes": nodes}
    try:
        answer = questions[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
    except (OSError, AttributeError) as error:
        answer = {"failed": str(error)}
    print(json.dumps(answer))


main()

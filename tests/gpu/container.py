"""Starts containers over this machine's own files, read-only, through runc and through cudaview-runtime."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from common import HERE, ANSWER_LIMIT, answer, environment, run, seen

TOPS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt")
READ_ONLY = ["rbind", "ro", "nosuid", "nodev"]


def check(clock, programs, inventory, nodes, library):
    """What programs in containers see, or why none could be started: {"ran": false, "why": …}."""
    # One that was carried here may lack its libraries.
    found = [str(programs / "runc"), shutil.which("runc", path=os.defpath + ":/usr/sbin:/sbin")]
    runc = next((path for path in found if path and run(clock, [path, "--version"])[0] == 0), None)
    gpus = inventory["gpus"]
    lacking = None
    if os.geteuid() != 0:
        lacking = "not root"
    elif runc is None:
        lacking = "no runc that starts"
    elif not all(f"/dev/nvidia{gpu['minor']}" in nodes for gpu in gpus):
        lacking = "no device nodes for the GPUs"
    elif any(gpu.get("mig") or gpu.get("migEnabled") for gpu in gpus):
        lacking = "MIG is on"
    if lacking:
        return {"ran": False, "why": lacking}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cudaview-gpu-"))
    try:
        return check_in(clock, folder, programs, runc, inventory, nodes, library)
    finally:
        # Mounts were the containers' own; should one have leaked, what it shows stays.
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False)


def check_in(clock, folder, programs, runc, inventory, nodes, library):
    folder.chmod(0o755)
    mine = installed(folder, programs, runc, inventory)
    mounts = make_rootfs(folder / "rootfs", [os.path.realpath(sys.executable), library])
    control = [path for path in nodes if path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")]
    gpus = inventory["gpus"]
    first, last = gpus[0], gpus[-1]
    # Values are as the host numbers GPUs: what people write, and what runc alone gets wrong for the last one.
    wanted = [(gpus, None, gpus), ([last], str(last["index"]), [last]), ([last], None, [last])]
    wanted += [(gpus, first["uuid"], [first]), (gpus, str(last["index"]), [last]), ([first], "0", [first])]
    cases = []
    for granted, value, expected in wanted:
        paths = control + [f"/dev/nvidia{gpu['minor']}" for gpu in granted]
        spec = specification(mounts, {path: nodes[path] for path in paths}, environment(value, "PCI_BUS_ID"))
        plain = count(clock, folder, runc, spec)
        if "failed" in plain:
            return {"ran": False, "why": f"runc: {plain['failed']}", "cases": cases}
        ours = count(clock, folder, mine, spec)
        uuids, visible = [gpu["uuid"] for gpu in expected], seen(inventory, ours)
        names = {"granted": [gpu["index"] for gpu in granted], "value": value, "expected": uuids}
        case = {**names, "runc": seen(inventory, plain), "cudaview": visible, "agrees": visible == uuids}
        cases.append({**case, "failed": ours["failed"]} if "failed" in ours else case)
    return {"ran": True, "agrees": all(case["agrees"] for case in cases), "cases": cases}


def installed(folder, programs, runc, inventory):
    """cudaview in a prefix of its own, with a configuration that leaves the host's out; the path of its runtime."""
    prefix = folder / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "etc/cudaview").mkdir(parents=True)
    for name in ("cudaview", "cudaview-runtime", "cudaview-hook", "cudaview-nvml"):
        shutil.copy(programs / name, prefix / "bin")
    shutil.copy(runc, prefix / "bin/runc")
    (folder / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    text = f"inventory = '{folder}/inventory.json'\nlow_level_runtime = ['{prefix}/bin/runc']\naudit = 'off'\n"
    (prefix / "etc/cudaview/config.toml").write_text(text, encoding="utf-8")
    return str(prefix / "bin/cudaview-runtime")


def make_rootfs(rootfs, files):
    """Links of the host's `/` in an empty folder, and the mounts that fill the rest; these files are among them."""
    rootfs.mkdir()
    sources = []
    for name in TOPS:
        top = pathlib.Path("/", name)
        if top.is_symlink():
            (rootfs / name).symlink_to(os.readlink(top))
        elif top.is_dir():
            sources.append(str(top))
    (rootfs / "tmp").mkdir(mode=0o1777)
    for directory in [str(HERE)] + [os.path.dirname(file) for file in files if file]:
        # Through a link such as /lib a folder is found below /usr.
        if not any(os.path.realpath(directory).startswith(source + "/") for source in sources):
            sources.append(directory)
    return [{"destination": source, "source": source, "type": "bind", "options": READ_ONLY} for source in sources]


def specification(mounts, nodes, env):
    devices = [
        {"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0}
        for path, (major, minor) in nodes.items()
    ]
    allowed = [{"allow": True, "type": "c", "major": a, "minor": b, "access": "rw"} for a, b in nodes.values()]
    args = [os.path.realpath(sys.executable), "-BIS", str(HERE / "probe.py"), "cuda"]
    own = [{"destination": "/proc", "source": "proc", "type": "proc"}]
    own.append({"destination": "/dev", "source": "tmpfs", "type": "tmpfs", "options": ["nosuid", "mode=755"]})
    own.append({"destination": "/sys", "source": "/sys", "type": "bind", "options": READ_ONLY})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": [f"{name}={text}" for name, text in env.items()],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": False},
        "mounts": own + mounts,
        "linux": {
            "cgroupsPath": f"/cudaview-gpu-{os.getpid()}",
            "devices": devices,
            "resources": {"devices": [{"allow": False, "access": "rwm"}] + allowed},
            "namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "uts", "network")],
        },
    }


def count(clock, folder, runtime, spec):
    """The devices that probe.py sees in a container of this specification."""
    (folder / "config.json").write_text(json.dumps(spec), encoding="utf-8")
    name, start = f"cudaview-gpu-{os.getpid()}", [runtime, "--root", str(folder / "state")]
    result = run(clock, start + ["run", "--bundle", str(folder), name], os.environ, 2 * ANSWER_LIMIT)
    run(clock, start + ["delete", "--force", name], os.environ)
    return answer(result)


def summary(result):
    """One line for people."""
    if not result["ran"]:
        return f"container: not started ({' '.join(result['why'].split())})"
    right, cases = sum(case["agrees"] for case in result["cases"]), len(result["cases"])
    alone = sum(case["runc"] == case["expected"] for case in result["cases"])
    return f"containers: {right} of {cases} see what was meant, with runc alone {alone}"

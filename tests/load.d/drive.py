"""What tests/load does, in the world that it made: drive.py FOLDER RUNC CGROUP [--quick]"""

import json
import os
import pathlib
import random
import signal
import sys
import time

W, RUNC, CGROUP = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
QUICK = "--quick" in sys.argv
AT_ONCE = 16
WRAPPER = str(W / "runc/bin/cudaview-runtime")
# runc, about once in a hundred runs on a busy machine, when it copies itself.
LOST_A_RACE = b"could not ensure we are a cloned binary"
failures = []


def spec(name, command):
    """A container to which an engine gave GPUs 1 and 3."""
    gpus = [("/dev/nvidia1", 195, 1), ("/dev/nvidia3", 195, 3), ("/dev/nvidiactl", 195, 255), ("/dev/nvidia-uvm", 510, 0)]
    devices = [{"path": p, "type": "c", "major": a, "minor": i, "fileMode": 438, "uid": 0, "gid": 0} for p, a, i in gpus]
    rules = [{"allow": True, "type": "c", "major": a, "minor": i, "access": "rw"} for _, a, i in gpus]
    return {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": command,
                    "env": ["PATH=/bin", "CUDA_VISIBLE_DEVICES=1,3"]},
        "root": {"path": str(W / "rootfs"), "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                   {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}],
        "linux": {"namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount")], "cgroupsPath": f"/{CGROUP}/{name}",
                  "devices": devices, "resources": {"devices": [{"allow": False, "access": "rwm"}] + rules}},
    }


class Ended:
    """How a program ended: code, standard error, nanoseconds."""

    def __init__(self, *words, errors=None, limit=None):
        path = errors or W / f"errors.{os.getpid()}"
        with open(path, "w+b") as log:
            null = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2)]
            begin = time.monotonic_ns()
            child = os.posix_spawn(words[0], words, os.environ, file_actions=null)
            self.hung_in = None
            end = time.monotonic() + (limit or 0)
            while True:
                ended, status = os.waitpid(child, os.WNOHANG if limit else 0)
                if ended:
                    break
                if time.monotonic() > end and not self.hung_in:
                    self.hung_in = os.readlink(f"/proc/{child}/exe")
                    os.kill(child, signal.SIGKILL)
                time.sleep(0.002)
            self.nanoseconds = time.monotonic_ns() - begin
            log.seek(0)
            self.errors = log.read()
        self.code = os.waitstatus_to_exitcode(status)
        os.unlink(path)


def in_parallel(work, lanes):
    """Each lane is a process of its own; what it returns comes back as JSON."""
    results, children = [], []
    for lane in range(lanes):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            code = 1
            try:
                with os.fdopen(write, "w") as out:
                    json.dump(work(lane), out)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        children.append((child, read))
    for child, read in children:
        with os.fdopen(read) as stream:
            text = stream.read()
        _, status = os.waitpid(child, 0)
        if status or not text:
            failures.append(f"a lane ended with status {status}")
        else:
            results.append(json.loads(text))
    return results


def snapshot():
    """What must not grow: mounts, files of the state folders, bundles and /run, and our own descriptors."""
    # What has ended is taken by the shell that started this program.
    time.sleep(1)

    def files(*tops):
        return sum(len(names) for top in tops for _, _, names in os.walk(top))

    return {
        "mounts": len(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()),
        "files in bundles": files(W / "bundles"),
        "files in the runtime's state": files(W / "state"),
        "files in /run": files("/run"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": sum(name.isdigit() for name in os.listdir("/proc")),
        "cgroups": sum(1 for top, _, _ in os.walk("/sys/fs/cgroup") if f"/{CGROUP}/" in top),
    }


def compare(what, before, after):
    for name, count in before.items():
        verdict = "ok" if after[name] <= count else "GROWN"
        print(f"  {name:32} {count:6} -> {after[name]:6}  {verdict}")
        if verdict != "ok":
            failures.append(f"{what}: {name} grew from {count} to {after[name]}")


def ms(nanoseconds):
    return f"{nanoseconds / 1e6:8.2f}"


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def bundle(name, command):
    folder = W / "bundles" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(spec(name, command)))
    return folder


def create_once(program, name):
    """One create, with its time and what of it is wrong, and its delete."""
    folder = bundle(name, ["/bin/true"])
    state = str(W / "state")
    for _ in range(20):
        made = Ended(program, "--root", state, "create", "--bundle", str(folder), name)
        edited = json.loads((folder / "config.json").read_text())
        variables = edited["process"]["env"]
        gone = Ended(program, "--root", state, "delete", "--force", name)
        if LOST_A_RACE not in made.errors:
            break
    wrong = []
    if made.code != 0:
        wrong.append(f"create: {made.errors.decode(errors='replace')[:300]}")
    elif gone.code != 0:
        wrong.append(f"delete: {gone.errors.decode(errors='replace')[:300]}")
    if program == WRAPPER and "CUDA_VISIBLE_DEVICES=0,1" not in variables:
        wrong.append(f"not rewritten: {variables}")
    if sorted(os.listdir(folder)) != ["config.json"]:
        wrong.append(f"left in the bundle: {os.listdir(folder)}")
    (folder / "config.json").unlink()
    folder.rmdir()
    return made.nanoseconds, wrong


def creates():
    rounds = 10 if QUICK else 63
    wanted = 160 if QUICK else 1000

    def lane(number):
        out = []
        for turn in range(rounds):
            if number + turn * AT_ONCE >= wanted:
                break
            pair = {}
            order = [("plain", RUNC), ("ours", WRAPPER)]
            for which, program in order if turn % 2 else reversed(order):
                pair[which] = create_once(program, f"{which}-{number}-{turn}")
            out.append(pair)
        return out

    print(f"\n{wanted} creates, {AT_ONCE} at a time, each beside one of plain runc")
    create_once(WRAPPER, "warm")
    before = snapshot()
    pairs = [pair for lane in in_parallel(lane, AT_ONCE) for pair in lane]
    after = snapshot()
    wrong = {which: [text for pair in pairs for text in pair[which][1]] for which in ("plain", "ours")}
    good = sum(not pair["ours"][1] for pair in pairs)
    print(f"  {good} of {wanted} succeeded under cudaview, {sum(not p['plain'][1] for p in pairs)} under plain runc")
    if good != wanted:
        failures.append(f"only {good} of {wanted} creates: {wrong['ours'][:3]} (plain: {wrong['plain'][:3]})")
    plain, ours = ([pair[which][0] for pair in pairs] for which in ("plain", "ours"))
    differences = [a - b for a, b in zip(ours, plain)]
    print(f"  {'ms':6} {'plain':>8} {'cudaview':>8} {'added':>8}   (the aim on an idle machine)")
    print(f"  {'median':6} {ms(quantile(plain, .5))} {ms(quantile(ours, .5))} {ms(quantile(differences, .5))}   2")
    print(f"  {'p99':6} {ms(quantile(plain, .99))} {ms(quantile(ours, .99))} "
          f"{ms(quantile(ours, .99) - quantile(plain, .99))}   10")
    compare("creates", before, after)


def one_at_a_time():
    """The same without a crowd: what cudaview itself adds."""
    rounds = 20 if QUICK else 200
    pairs = [(create_once(RUNC, "plain")[0], create_once(WRAPPER, "ours")[0]) for _ in range(rounds)]
    plain, ours = zip(*pairs)
    differences = [b - a for a, b in pairs]
    print(f"\n{rounds} pairs, one at a time")
    print(f"  median {ms(quantile(plain, .5))} {ms(quantile(ours, .5))} {ms(quantile(differences, .5))}   2")
    print(f"  p99    {ms(quantile(plain, .99))} {ms(quantile(ours, .99))} "
          f"{ms(quantile(ours, .99) - quantile(plain, .99))}   10")


def one_container(program):
    """Creates, execs and deletes of one container by many at once: whatever wins, files are whole and all of it ends."""
    rounds = 30 if QUICK else 150
    name = "shared"
    state = str(W / "state")
    folder = bundle(name, ["/bin/sleep", "1000"])
    pristine = (folder / "config.json").read_bytes()
    counts = {}
    who = "cudaview" if program == WRAPPER else "plain runc"
    print(f"\none container in {AT_ONCE} hands, {rounds} turns each, under {who}")
    before = snapshot()

    def lane(number):
        chosen = random.Random(number)
        seen = {"wrong": []}
        for turn in range(rounds):
            verb = chosen.choice(["create", "create", "start", "start", "delete", "state"] + ["exec"] * 10)
            process = folder / f"process-{number}"
            words = {"create": ["create", "--bundle", str(folder), name], "start": ["start", name], "state": ["state", name],
                     "delete": ["delete", "--force", name], "exec": ["exec", "--process", str(process), name]}[verb]
            if verb == "exec":
                process.write_text(json.dumps({"args": ["/bin/true"], "cwd": "/", "user": {"uid": 0, "gid": 0},
                                               "env": ["PATH=/bin", "CUDA_VISIBLE_DEVICES=3"]}))
            if verb == "create" and turn % 3 == 0:
                # As an engine that makes the bundle anew: whole files only.
                fresh = folder / f".fresh-{number}"
                fresh.write_bytes(pristine)
                fresh.rename(folder / "config.json")
            # The log is where Docker has it, so that an exec finds the record.
            ended = Ended(program, "--root", state, "--log", str(folder / "log.json"), *words, errors=W / f"errors.{number}",
                          limit=5)
            # One that was refused by us, and not by the runtime, is a fault, but that another one changed the file.
            ours = b"cudaview: " in ended.errors
            key = f"{verb} {'cudaview' if ours else 'ok' if ended.code == 0 else 'runtime'}"
            seen[key] = seen.get(key, 0) + 1
            if ours and b"was changed by another program" not in ended.errors:
                seen["wrong"].append(ended.errors.decode(errors="replace")[:300])
            # runc waits for ever where a container goes away while it is being started.
            if ended.hung_in:
                key = f"{verb} that hung in {os.path.basename(ended.hung_in)}"
                seen[key] = seen.get(key, 0) + 1
                if os.path.basename(ended.hung_in) == "cudaview-runtime":
                    seen["wrong"].append(f"{verb} hung")
            elif ended.code < 0:
                seen["wrong"].append(f"{verb} ended by signal {-ended.code}")
            json.loads((folder / "config.json").read_bytes())
            if verb == "exec":
                variables = json.loads(process.read_bytes())["env"]
                if "CUDA_VISIBLE_DEVICES=1" in variables:
                    seen["exec rewritten"] = seen.get("exec rewritten", 0) + 1
                process.unlink()
        return seen

    for seen in in_parallel(lane, AT_ONCE):
        for text in seen.pop("wrong", []):
            failures.append(f"one container, {who}: {text}")
        for key, count in seen.items():
            counts[key] = counts.get(key, 0) + count
    print("  " + ", ".join(f"{count} {key}" for key, count in sorted(counts.items())))
    Ended(RUNC, "--root", state, "delete", "--force", name)
    if program == WRAPPER and not all(counts.get(key) for key in ("create ok", "exec ok", "exec rewritten")):
        failures.append(f"one container: nothing came of it: {counts}")
    left = sorted(entry for entry in os.listdir(folder) if entry not in ("config.json", "log.json"))
    if left:
        failures.append(f"one container, {who}: left in the bundle: {left}")
    for entry in os.listdir(folder):
        (folder / entry).unlink()
    folder.rmdir()
    after = snapshot()
    # A create and a forced delete at the same time: runc itself leaves a process and a cgroup then, with us or without.
    for own in ("processes", "cgroups"):
        print(f"  {own} that runc left: {after.pop(own) - before.pop(own)}")
    compare(f"one container, {who}", before, after)


def soak():
    runs = 1000 if QUICK else 10000
    program = str(W / "noop/bin/cudaview-runtime")
    folder = bundle("soak", ["/bin/true"])
    config, process = folder / "config.json", folder / "process"
    pristine = config.read_bytes()
    before_exec = json.dumps({"args": ["/bin/true"], "env": ["CUDA_VISIBLE_DEVICES=3"]})
    audit = W / "audit.jsonl"
    print(f"\n{runs} runs of the wrapper in a row: create, exec, state, delete")

    def turn(is_watched=False):
        """With the peak memory, which only a small static program can tell: a child begins with its parent's."""
        peaks, file = [], W / "peak"
        words_before = (str(W / "pairs"), "--peak", str(file), program) if is_watched else (program,)
        config.write_bytes(pristine)
        process.write_text(before_exec)
        for words in (["create", "--bundle", str(folder), "soak"], ["exec", "--process", str(process), "soak"],
                      ["state", "soak"], ["delete", "soak"]):
            ended = Ended(*words_before, "--log", str(folder / "log.json"), "--root", str(W / "state"), *words)
            if is_watched:
                peaks.append(int(file.read_text()))
                file.unlink()
            if ended.code != 0:
                failures.append(f"soak: {words[0]}: {ended.errors.decode(errors='replace')[:300]}")
        return max(peaks, default=0)

    for _ in range(5):
        turn()
    first = max(turn(True) for _ in range(50))
    before, records = snapshot(), audit.read_bytes().count(b"\n")
    for _ in range(runs // 4):
        turn()
    written = audit.read_bytes().count(b"\n") - records
    compare("soak", before, snapshot())
    last = max(turn(True) for _ in range(50))
    # A page or two come and go with where the kernel puts things.
    verdict = "ok" if last <= first + 256 else "GROWN"
    print(f"  {'peak memory, KiB':32} {first:6} -> {last:6}  {verdict}")
    if verdict != "ok":
        failures.append(f"soak: memory grew from {first} to {last} KiB")
    # One for each create: the trail is the operator's, and grows with the containers (docs/audit.md).
    print(f"  audit records: {written} for {runs // 4} creates")
    if written != runs // 4:
        failures.append(f"soak: {written} audit records for {runs // 4} creates")


(W / "state").mkdir()
(W / "bundles").mkdir()
creates()
one_at_a_time()
one_container(RUNC)
one_container(WRAPPER)
soak()
print()
for failure in failures[:20]:
    print(f"FAILED: {failure}")
if failures:
    sys.exit(1)
print("all of it succeeded, and nothing grew")

# What NVIDIA Container Toolkit 1.20 makes of a container's configuration, written from a description of its behaviour.
# `$toolkit` is its configuration, `$inventory` the host's GPUs.

def split_entry: index("=") as $at | {key: .[:$at], value: .[$at + 1:]};
def variables: [.process.env[]? | split_entry] | from_entries;
def is_privileged: (.process.capabilities.bounding // []) | index("CAP_SYS_ADMIN") != null;
def trimmed: sub("^\\s+"; "") | sub("\\s+$"; "");
def is_qualified: test("^[A-Za-z0-9.-]+/[A-Za-z0-9_.-]+=.+$");

# --- who asks for what (internal/config/image); null where nobody does ---------------------------------------------

# The list of a map from names to places: a name that is repeated leaves the place where it stood first empty.
def listed: . as $names | [range(length) as $i | if $names[$i + 1:] | index($names[$i]) then "" else $names[$i] end];

def from_variables:
    variables as $e | [$toolkit.swarm[] | select($e[.] != null)] as $swarm
    | if $swarm == [] and $e.NVIDIA_VISIBLE_DEVICES == null then
        # A legacy image.
        if ($e.CUDA_VERSION // "") != "" and ($e.NVIDIA_REQUIRE_CUDA // "") == "" then ["all"] else null end
    else
        [(if $swarm == [] then "NVIDIA_VISIBLE_DEVICES" else $swarm[] end) | $e[.] | split(",")[] | trimmed | select(. != "")]
        | if . == [] or index("void") then null
        elif any(. == "all" or . == "none") then
            if map(select(. == "all" or . == "none"))[0] == "all" then ["all"] else [""] end
        else listed end
    end;

# `cdi/vendor/class/name` and `cdi/vendor/class=name` are CDI names; one that is neither is dropped.
def mounted:
    if startswith("imex/") then empty
    elif startswith("cdi/") | not then .
    else ltrimstr("cdi/") | if is_qualified | not then sub("/(?<name>[^/]*)$"; "=\(.name)") else . end | select(is_qualified) end;
# Go's filepath.Clean, for absolute paths: links are not looked at.
def cleaned:
    if startswith("/") | not then . else
        "/" + (reduce (split("/")[] | select(. != "" and . != ".")) as $part ([]; if $part == ".." then .[:-1] else . + [$part] end) | join("/"))
    end;
def from_mounts:
    "/var/run/nvidia-container-devices" as $folder
    | [.mounts[]? | select(.source // "" | cleaned == "/dev/null") | .destination | cleaned | select(startswith($folder))
        | .[$folder | length:] | ltrimstr("/") | select(. != "") | mounted]
    | if . == [] then null else listed end;

def from_annotations:
    (.annotations // {}) as $all
    | [$all | keys[] | select(. as $key | $toolkit.prefixes | any(. as $prefix | $key | startswith($prefix))) | $all[.] | split(",")[]]
    | if . == [] then null else . end;

def requested($annotated):
    (if $annotated then from_annotations else null end)
    // (if $toolkit.mounts then from_mounts else null end)
    // (if $toolkit.unprivileged or is_privileged then from_variables else null end);

# `$auto` is what a host with NVML comes to: jit-cdi for the runtime, legacy for the hook.
def mode($auto):
    if $toolkit.mode != "auto" then $toolkit.mode
    elif requested(true) | . != null and . != [] and all(is_qualified) then "cdi"
    else $auto end;

# --- what a name stands for ----------------------------------------------------------------------------------------

def gpu_node: {path: "/dev/nvidia\(.minor)", major: 195, minor};
def whole: {uuid, names: ["\(.index)", .uuid], nodes: [gpu_node], pci: .pciBusId};
def parts:
    . as $gpu | .mig // [] | to_entries[]
    | {uuid: .value.uuid, nodes: ([$gpu | gpu_node] + (.value.capabilityNodes // [])),
       names: ["\($gpu.index):\(.key)", .value.uuid, "MIG-\($gpu.uuid)/\(.value.gi)/\(.value.ci)"]};
def devices: [$inventory.gpus[] | if (.mig // []) == [] then whole else whole, parts end];
def everything: [$inventory.gpus[] | if (.mig // []) == [] then whole else parts end];
def control: [{path: "/dev/nvidiactl", major: 195, minor: 255}, {path: "/dev/nvidia-uvm", major: 510, minor: 0}];

def is_cdi_identifier:
    "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}" as $uuid
    | test("^([0-9]+|[0-9]+:[0-9]+|GPU-\($uuid)|MIG-\($uuid)|MIG-GPU-\($uuid)/[0-9]+/[0-9]+)$");

# Each gives {devices} or {error}; `devices` is null where there is nothing to do.
def named($name; $message):
    [devices[] | select(.names | index($name))] | if . == [] then {error: $message} else {devices: .} end;
def together: if any(.error) then {error: map(.error // empty)[0]} else {devices: (map(.devices[]) | unique_by(.uuid))} end;

# internal/modifier/cdi.go, pkg/nvcdi/lib-nvml.go: "none" anywhere comes to an empty device.
def by_jit_cdi:
    map(ltrimstr("runtime.nvidia.com/gpu=")) | map(if . == "" then "none" else . end)
    | if any(is_qualified) then {error: "requests for more than one CDI kind are not supported"}
    elif index("none") then {devices: []}
    elif index("all") then {devices: everything}
    else map(. as $name | if is_cdi_identifier then named($name; "unknown device: \($name)")
        else {error: "failed to create device ID \"\($name)\": identifier is not a valid UUID or index"} end) | together end;

def by_cdi:
    map((if . == "" then "none" else . end) | if is_qualified then . else "nvidia.com/gpu=\(.)" end)
    | map(. as $name | if . == "nvidia.com/gpu=all" or . == "runtime.nvidia.com/gpu=all" then {devices: everything}
        else named($name | sub("^(runtime\\.)?nvidia\\.com/gpu="; ""); "unresolvable CDI devices \($name)") end) | together;

# libnvidia-container, common.c: case does not matter, repeats and empty names are skipped.
def pci_address: ascii_downcase | [scan("[0-9a-f]+")] | map(sub("^0+(?=.)"; "")) | join(":");
def by_cli:
    map(select(. != "")) | if any(ascii_downcase == "all") then {devices: everything}
    else map(. as $name | [devices[] | select(
            (.names | any(ascii_downcase == ($name | ascii_downcase)))
            or ($name | test("^[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\\.0$")) and .pci != null
                and (.pci | pci_address) == ($name | pci_address))]
        | if . == [] then {error: "device error: \($name): unknown device"} else {devices: .} end) | together end;

def nodes: [.[].nodes[]] + control | unique;

# --- the runtime ---------------------------------------------------------------------------------------------------

def is_hook: .path | split("/")[-1] | . == "nvidia-container-runtime-hook" or . == "nvidia-container-toolkit";

# As the CDI library does it: nodes by path, variables in place.
def injected($found):
    ($found | nodes) as $nodes
    | .linux.devices = [(.linux.devices[]? | select(.path as $path | $nodes | any(.path == $path) | not)), ($nodes[] | . + {type: "c"})]
    | .linux.resources.devices += [$nodes[] | {allow: true, type: "c", major, minor, access: "rwm"}]
    | .process.env |= (map(split_entry.key == "NVIDIA_VISIBLE_DEVICES") as $is
        | if $is | any then .[$is | rindex(true)] = "NVIDIA_VISIBLE_DEVICES=void" else . + ["NVIDIA_VISIBLE_DEVICES=void"] end)
    | if $found == [] then .process.env += ["NVCT_EMPTY_DEVICE="] else . end;

# What was there before anything was added.
def found:
    {entries: [.process.env[]? | split_entry | select(.key == "NVIDIA_VISIBLE_DEVICES") | .value],
     switches: [.process.env[]? | select(test("^NVIDIA_(GDRCOPY|GDS|IMEX_CHANNELS|MIG_(CONFIG|MONITOR)_DEVICES|MOFED|NVSWITCH)="))],
     nodes: [.linux.devices[]?.path], rules: (.linux.resources.devices // [] | length), mounts: (.mounts // [] | length)};

# {outcome, record}, the new configuration, or {error, record}.
def runtime($hook; $id):
    . as $config | mode("jit-cdi") as $mode | requested($mode == "cdi") as $asked
    | ({id: $id, program: "runtime", mode: $mode, asked: $asked} + found) as $record
    | if $mode == "legacy" then
        if any(.hooks.prestart[]?; is_hook) then {outcome: $config, record: $record}
        else {outcome: (.hooks.prestart += [{path: $hook, args: ["nvidia-container-runtime-hook", "prestart"]}]), record: $record} end
    elif $mode != "cdi" and $mode != "jit-cdi" then {error: "invalid runtime mode: \($mode)", record: $record}
    else
        (if .hooks.prestart then .hooks.prestart |= map(select(is_hook | not)) else . end) as $config
        | if $asked == null then {outcome: $config, record: $record}
        else ($asked | if $mode == "cdi" then by_cdi else by_jit_cdi end) as $found
            | if $found.error then {error: $found.error, record: ($record + {error: $found.error})}
            else {outcome: ($config | injected($found.devices)), record: ($record + {given: [$found.devices[].uuid]})} end
        end
    end;

# --- the hook and its tool -----------------------------------------------------------------------------------------

# Each gives {outcome, record} or {error, record}. The hook's outcome is a list, or null where there is nothing to do; the
# tool's is the nodes.
def hook($id):
    mode("legacy") as $mode | ({id: $id, program: "hook", mode: $mode} + found) as $record
    | if $mode != "legacy" then
        "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not supported. Please use the NVIDIA Container Runtime (e.g. specify the --runtime=nvidia flag) instead" as $error
        | {error: $error, record: ($record + {error: $error})}
    else requested(false) as $asked | {outcome: (if $asked == null then null else $asked | join(",") end), record: ($record + {asked: $asked})} end;

def cli($id; $list):
    ($list | split(",")) as $asked | {id: $id, program: "cli", asked: $asked} as $record
    | ($asked | by_cli) as $found
    | if $found.error then {error: $found.error, record: ($record + {error: $found.error})}
    else {outcome: ([$found.devices | nodes[] | "\(.path):\(.major):\(.minor)"] | join(" ")), record: ($record + {given: [$found.devices[].uuid]})} end;

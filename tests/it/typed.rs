//! What people type, right or wrong, and what they are told.

use crate::cli::{error, error_unwrapped, explain, explain_at};
use crate::command::{cudaview, data, text};

#[test]
fn wrong_arguments() {
    insta::assert_snapshot!(error(&["explain", "--gpus", "device=0,2"]), @r#"
    cudaview: failed to read --gpus "device=0,2": cannot set both Count and
              DeviceIDs on device request
    hint: --gpus '"device=0,2"' (the inner quotes must reach Docker)
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "--gpus", "two"]), @r#"
    cudaview: failed to read --gpus "two": count must be an integer, not "two"
    hint: --gpus all, --gpus 2, --gpus device=1, --gpus '"device=1,3"'
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "--gpu", "all"]), @r#"
    cudaview: unexpected argument '--gpu' found
    hint: a similar argument exists: '--gpus'
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "--format", "yaml"]), @r#"
    cudaview: invalid value 'yaml' for '--format <FORMAT>'
    hint: one of: human, json
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explian"]), @r#"
    cudaview: unrecognized subcommand 'explian'
    hint: a similar subcommand exists: 'explain'
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "--bundle", "x", "--gpus", "all"]), @r#"
    cudaview: --bundle cannot be used with flags of docker run
    hint: --bundle takes the whole container from its config.json; leave --gpus,
          --device, -e, --image and the rest out
    exit 2
    "#);
    insta::assert_snapshot!(error(&["predict", "--inventory"]), @r#"
    cudaview: a value is required for '--inventory <FILE>' but none was supplied
    hint: cudaview --help, or cudaview help COMMAND
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "-e", ""]), @r#"
    cudaview: failed to read -e "": it names no variable
    hint: -e NAME=VALUE, such as -e CUDA_VISIBLE_DEVICES=0
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "--image-env", "=1"]), @r#"
    cudaview: failed to read --image-env "=1": it names no variable
    hint: --image-env NAME=VALUE, such as --image-env CUDA_VISIBLE_DEVICES=0
    exit 2
    "#);
    assert!(error(&["explain", "--exec-env", "=1"]).ends_with("exit 2"));
}

#[test]
fn pages_are_found_by_a_misspelt_name_too() {
    insta::assert_snapshot!(error(&["explain", "host-index-overide"]), @r#"
    cudaview: no finding is called "host-index-overide"
    hint: did you mean cudaview explain host-index-override?
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "no-such-finding"]), @r#"
    cudaview: no finding is called "no-such-finding"
    hint: for a container: cudaview explain --container no-such-finding; findings:
          override-matches-nothing, override-exceeds-grant, host-index-override,
          ambiguous-index, duplicate-entries, not-a-cuda-value, malformed-value,
          disabled-by-override, image-default-yields, image-request-ignored,
          nothing-granted, unknown-device, no-selection, request-unreadable,
          withheld, cannot-narrow, cdi-out-of-date, one-mig-device,
          device-order-changed, device-order-mixed, unfixable-env,
          env-cuda-visible, env-nvidia-visible, uuid-in-image, default-fails-open,
          misspelt-variable, entry-names-nothing, nvidia-value-unreadable,
          device-order-unknown, device-order-unset, selected-twice, set-in-command,
          set-in-run, gpus-unquoted-list, gpus-bare-list, gpus-zero,
          gpus-count-as-index, gpus-unreadable, flag-behind-image,
          compose-count-and-ids, compose-gpus-unreadable, compose-no-count
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "withheld", "--format", "json"]), @r#"
    cudaview: the page of a finding has no JSON form
    hint: cudaview explain withheld prints it as text
    exit 2
    "#);
    let page = |name: &str| text(&cudaview().args(["explain", name]).output().expect("cudaview starts"));
    assert_eq!(page("WithHeld"), page("withheld"));
}

#[test]
fn nothing_to_explain() {
    insta::assert_snapshot!(error(&["explain"]), @r#"
    cudaview: explain was not told about which container
    hint: --container NAME for one that exists, or the flags of docker run for one
          that does not yet; cudaview explain --help has examples
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "--format", "json"]), @r#"
    cudaview: explain was not told about which container
    hint: --container NAME for one that exists, or the flags of docker run for one
          that does not yet; cudaview explain --help has examples
    exit 2
    "#);
}

/// The hints of findings, by the engine whose flags were typed.
#[test]
fn hints_can_be_typed() {
    let hints = |inventory: &str, arguments: &[&str]| {
        let page = explain_at(&format!("{inventory}.json"), arguments, Some("200"));
        let lines: Vec<&str> = page.lines().filter_map(|line| line.trim().strip_prefix("hint: ")).collect();
        lines.join("\n")
    };
    let exceeds = ["-e", "CUDA_VISIBLE_DEVICES=0,9"];
    insta::assert_snapshot!(hints("a100x4", &[&["--gpus", "all"][..], &exceeds].concat()), @r#"
    leave those entries out: every GPU of this host is granted
    to keep what was left out, set narrow = false under [reconcile] in /etc/cudaview/config.toml
    "#);
    let cdi = ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"];
    insta::assert_snapshot!(hints("a100x4", &[&cdi[..], &exceeds].concat()), @r#"
    grant more with --device, or leave those entries out
    to keep what was left out, set narrow = false under [reconcile] in /etc/cudaview/config.toml
    "#);
    let image = ["--device", "nvidia.com/gpu=all", "--image-env", "CUDA_VISIBLE_DEVICES=0"];
    insta::assert_snapshot!(hints("a100x4", &image), @r#"
    to keep to one GPU, type --device nvidia.com/gpu=0
    image maintainers, delete the ENV: it hides GPUs on other hosts
    "#);
    insta::assert_snapshot!(hints("a100x4", &[&cdi[..], &["--exec-env", "CUDA_VISIBLE_DEVICES=2"]].concat()), @r#"
    -e CUDA_VISIBLE_DEVICES=0 or -e CUDA_VISIBLE_DEVICES=1
    for host GPU 2, start a container with --device nvidia.com/gpu=2
    "#);
    insta::assert_snapshot!(hints("a100x4", &["-e", "CUDA_VISIBLE_DEVICES=1,3"]), @r#"
    --gpus '"device=1,3"' gives it host GPUs 1 and 3; --gpus all gives it every GPU
    "#);
    insta::assert_snapshot!(hints("a100mig4", &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=0,2"]), @r#"
    -e CUDA_VISIBLE_DEVICES=MIG-0100c0de-0000-5000-8000-000000000010
    to keep what was left out, set narrow = false under [reconcile] in /etc/cudaview/config.toml
    "#);
    insta::assert_snapshot!(hints("a100mig4", &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=2,0"]), @r#"
    -e CUDA_VISIBLE_DEVICES=MIG-0100c0de-0000-5000-8000-000000000010
    -e CUDA_VISIBLE_DEVICES=MIG-0100c0de-0000-5000-8000-000000000010 for MIG device 0:0, -e CUDA_VISIBLE_DEVICES=MIG-0300c0de-0000-5000-8000-000000000030 for MIG device 2:0
    to keep what was left out, set narrow = false under [reconcile] in /etc/cudaview/config.toml
    "#);
}

/// A device that was named by its number on the host is the first one whose UUID is offered.
#[test]
fn what_was_meant_among_mig_devices_is_offered_first() {
    let hint = |gpus: &str, value: &str| {
        let arguments = ["--gpus", gpus, "-e", &format!("CUDA_VISIBLE_DEVICES={value}")];
        let page = explain_at("a100mig4.json", &arguments, Some("200"));
        page.lines().find_map(|line| line.trim().strip_prefix("hint: ")).map(str::to_owned).unwrap()
    };
    let gpu = "GPU-a3400000-0004-4003-8000-000000004444";
    let (first, second) = ("MIG-0100c0de-0000-5000-8000-000000000010", "MIG-0101c0de-0000-5000-8000-000000000011");
    assert_eq!(hint("\"device=0,3\"", "3"), format!("-e CUDA_VISIBLE_DEVICES={gpu}"));
    assert_eq!(hint("device=0", "7"), format!("-e CUDA_VISIBLE_DEVICES={first}"));
    let named = |uuid: &str| format!("MIG devices are named by their UUIDs: -e CUDA_VISIBLE_DEVICES={uuid}");
    assert_eq!(hint("device=0", "0:1"), named(second));
    assert_eq!(hint("device=0", "\"0\""), named(first));
}

/// WSL2 has no GPUs to list, and a hint does not name what was typed already.
#[test]
fn what_wsl2_cannot_answer_ends_with_5() {
    for command in [&["ps"][..], &["flags"], &["predict", "--cuda-visible-devices", "1"]] {
        let file = data("inventories/wsl2.json");
        let (code, stdout, stderr) = text(&cudaview().args(command).arg("--inventory").arg(file).output().unwrap());
        assert_eq!((code, stdout.as_str()), (Some(5), ""), "{command:?}: {stderr}");
        assert!(stderr.contains("WSL2 shows one device for all") && stderr.contains("\nhint: "), "{stderr}");
    }
}

#[test]
fn a_whole_command_goes_behind_two_dashes() {
    insta::assert_snapshot!(error(&["explain", "docker", "run", "--rm", "--gpus", "all", "pytorch"]), @r#"
    cudaview: unexpected argument '--rm' found
    hint: a whole command goes behind two dashes: cudaview explain -- docker run …;
          without them explain takes --gpus, --device, -e, --env-file and
          --privileged
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "docker", "run", "--gpus", "all", "pytorch"]), @r#"
    cudaview: flags of "docker run pytorch" stand before it
    hint: put -- before the whole command: cudaview explain -- docker run
          --gpus all IMAGE
    exit 2
    "#);
    let explain_takes = |arguments: &[&str]| error(arguments).contains("hint: a whole command goes behind two dashes");
    assert!(explain_takes(&["explain", "--gpus", "all", "pytorch"]));
    assert!(explain_takes(&["explain", "docker"]));
}

#[test]
fn a_list_that_docker_does_not_take() {
    let hint = |gpus: &str| {
        error(&["explain", "--gpus", gpus]).lines().find(|line| line.starts_with("hint: ")).map(str::to_owned)
    };
    for (gpus, expected) in [
        ("device=0,2", r#"--gpus '"device=0,2"' (the inner quotes must reach Docker)"#),
        ("device=0-1,3", r#"--gpus '"device=0,1,3"' (the inner quotes must reach Docker)"#),
        ("all,device=1", "all already includes every GPU: --gpus all, or just --gpus device=1"),
        ("\"all,device=1\"", "all already includes every GPU: --gpus all, or just --gpus device=1"),
        ("2,device=1", r#"a count or a list, not both: --gpus 2, or --gpus '"device=1,3"'"#),
        ("1-3", r#"--gpus '"device=1,2,3"'"#),
        ("1;3", r#"--gpus '"device=1,3"'"#),
    ] {
        assert_eq!(hint(gpus), Some(format!("hint: {expected}")), "{gpus}");
    }
    for (gpus, expected) in [
        ("device=1-3", r#"hint: --gpus '"device=1,2,3"'"#),
        ("device=1;3", r#"hint: --gpus '"device=1,3"'"#),
        ("\"device=0,1 3\"", r#"hint: --gpus '"device=0,1,3"'"#),
        ("device=2-4", "hint: cudaview inventory lists"),
        ("9", "no container: --gpus asks for 9 GPUs; this host has 4 (refused)"),
    ] {
        let report = explain("a100x4.json", &["--gpus", gpus]);
        assert!(report.contains(expected), "{gpus}: {report}");
    }
    let bare = cudaview().args(["explain", "--gpus", "1,3"]).output().expect("cudaview starts");
    let note = "note: --gpus \"1,3\" is a count of 3, not a list; a list is --gpus '\"device=1,3\"'\n";
    assert!(text(&bare).2.starts_with(note), "{}", text(&bare).2);
}

#[test]
fn devices_that_are_no_gpu() {
    insta::assert_snapshot!(error(&["explain", "--device", "nvidia.com/gpu"]), @r#"
    cudaview: failed to read --device "nvidia.com/gpu": it names no GPU
    hint: --device nvidia.com/gpu=1 (or all), or --device /dev/nvidia1
    exit 2
    "#);
    insta::assert_snapshot!(error(&["explain", "--device", "nvidia3"]), @r#"
    cudaview: failed to read --device "nvidia3": it names no GPU
    hint: --device nvidia.com/gpu=3 (or all), or --device /dev/nvidia3
    exit 2
    "#);
    for name in ["nvidia.com/gpu=", "/dev/nvidia", "nvidia.com/gpus=1", "1"] {
        assert!(error(&["explain", "--device", name]).ends_with("exit 2"), "{name}");
    }
    let path = data("inventories/a100x4.json");
    let mut command = cudaview();
    command.args(["explain", "--device", "/dev/fuse", "--device", "vendor.com/net=1", "--inventory"]).arg(path);
    let (code, _, stderr) = text(&command.output().expect("cudaview starts"));
    assert_eq!(code, Some(0));
    assert!(stderr.starts_with("note: --device \"/dev/fuse\" is no GPU and plays no part\n"), "{stderr}");
}

#[test]
fn flags_are_shown_as_typed() {
    insta::assert_snapshot!(explain("a100x4.json", &["--device", "/dev/nvidia1", "-e", "CUDA_VISIBLE_DEVICES=3"]));
    let none = explain("a100x4.json", &["--gpus", "0", "-e", "NVIDIA_VISIBLE_DEVICES=1"]);
    assert!(none.contains("  --gpus 0                         asks for no GPU\n"), "{none}");
    assert!(none.contains("  -e NVIDIA_VISIBLE_DEVICES=\"1\"    outranked by --gpus\n"), "{none}");
}

#[test]
fn several_numbers_that_match_nothing() {
    let hints = |inventory: &str, value: &str| -> Vec<String> {
        let entry = format!("CUDA_VISIBLE_DEVICES={value}");
        let report = explain_at(inventory, &["--gpus", "device=1", "-e", &entry], Some("100"));
        report.lines().filter_map(|line| line.strip_prefix("  hint: ")).map(str::to_owned).collect()
    };
    let granted = "for host GPU 1, --gpus device=1 and no CUDA_VISIBLE_DEVICES";
    let wanted = "for host GPUs 5 and 6, --gpus '\"device=5,6\"' and no CUDA_VISIBLE_DEVICES";
    assert_eq!(hints("h100x8.json", "6,5"), [wanted, granted]);
    assert_eq!(hints("a100x4.json", "6,5"), [granted]);
}

#[test]
fn a_refused_exec_has_the_hints_of_a_real_one() {
    let report = explain("a100x4.json", &["--gpus", "\"device=1,3\"", "--exec-env", "CUDA_VISIBLE_DEVICES=2"]);
    let exec = report.split("A process that exec adds\n").nth(1).expect("a section");
    insta::assert_snapshot!(exec);
    let elsewhere = explain("a100x4.json", &["--gpus", "device=1", "--exec-env", "CUDA_VISIBLE_DEVICES=7"]);
    assert!(!elsewhere.contains("for host GPU 7"), "{elsewhere}");
}

#[test]
fn an_env_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gpu.env");
    std::fs::write(&path, "# GPUs\nCUDA_VISIBLE_DEVICES=\"3\"\n").expect("written");
    let path = path.to_str().expect("UTF-8");
    let file = explain("a100x4.json", &["--gpus", "all", "--env-file", path]);
    assert!(file.starts_with("1 GPU: cuda:0 is host GPU 3 (rewritten)\n"), "{file}");
    assert!(file.contains("the quotes are part of the value"), "{file}");
    let both = explain("a100x4.json", &["-e", "CUDA_VISIBLE_DEVICES=1", "--gpus", "all", "--env-file", path]);
    assert!(both.starts_with("1 GPU: cuda:0 is host GPU 1 (rewritten)\n"), "{both}");
    std::fs::write(path, "A=1\nexport B=2\n").expect("written");
    insta::assert_snapshot!(error_unwrapped(&["explain", "--env-file", path]).replace(path, "FILE"), @r#"
    cudaview: failed to read "FILE": line 2: white space in the name "export B"
    hint: --env-file takes lines NAME=VALUE, and comments that begin with #
    exit 4
    "#);
}

#[test]
fn observe_mode_in_the_first_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.toml");
    std::fs::write(&path, "mode = \"observe\"\n").expect("written");
    let first = |arguments: &[&str]| {
        let mut command = cudaview();
        command.args(["explain", "--inventory"]).arg(data("inventories/a100x4.json")).arg("--config").arg(&path);
        let (_, stdout, stderr) = text(&command.args(arguments).env("COLUMNS", "100").output().expect("it starts"));
        assert_eq!(stderr, "note: mode = \"observe\" in the configuration: it is written down and not done\n");
        stdout.lines().next().expect("a line").to_owned()
    };
    assert_eq!(
        first(&["--gpus", "1", "-e", "CUDA_VISIBLE_DEVICES=1"]),
        "would be refused: CUDA_VISIBLE_DEVICES=\"1\" names none of the granted GPUs (observe)"
    );
    assert_eq!(first(&["--gpus", "device=1"]), "1 GPU: cuda:0 is host GPU 1 (would be rewritten: observe)");
}

#[test]
fn a_variable_that_nobody_reads_is_named() {
    let said = |words: &[&str]| {
        let mut command = cudaview();
        command.args(["explain", "--inventory"]).arg(data("inventories/a100x4.json")).args(words);
        text(&command.output().expect("it starts")).2
    };
    let meant = "note: nothing reads \"CUDA_VISIBLE_DEVICE\": the variable is called\n      CUDA_VISIBLE_DEVICES\n";
    assert_eq!(said(&["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICE=1"]), meant);
    assert_eq!(said(&["--gpus", "all", "--image-env", "CUDA_VISIBLE_DEVICE=1"]), meant);
    assert!(said(&["--", "docker", "run", "--gpus", "all", "-e", "CUDA_VISIBLE_DEVICE=1", "x"]).contains(meant));
    assert_eq!(said(&["--gpus", "all", "-e", "HIP_VISIBLE_DEVICES=1"]), "");
}

#[test]
fn a_limit_is_in_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.toml");
    std::fs::write(&path, "[limit]\nnever = [\"0\"]\n").expect("written");
    let mut command = cudaview();
    command.args(["explain", "--gpus", "all", "--inventory"]).arg(data("inventories/a100x4.json"));
    let (_, stdout, _) = text(&command.arg("--config").arg(&path).output().expect("it starts"));
    assert!(stdout.contains("  --gpus all                       asks for host GPUs 0 to 3\n"), "{stdout}");
    assert!(stdout.contains("  config.toml [limit]              withholds host GPU 0\n"), "{stdout}");
}

#[test]
fn a_long_list_is_cut() {
    let report = explain("a100x4.json", &["--gpus", "all", "-e", "CUDA_VISIBLE_DEVICES=0,9,8,7,6,5,4,3,2,1,0,1"]);
    assert_eq!(report.matches("\"5\", \"4\", \"3\", \"2\" and 3 more").count(), 2, "{report}");
}

#[test]
fn a_narrow_terminal_has_no_names() {
    let narrow = explain_at("a100x4.json", &["--gpus", "\"device=1,3\"", "-e", "CUDA_VISIBLE_DEVICES=1,3"], Some("60"));
    insta::assert_snapshot!(narrow);
    for columns in ["40", "50", "60", "70"] {
        let report = explain_at("mixed5.json", &["--gpus", "device=1"], Some(columns));
        let mut inventory = cudaview();
        inventory.args(["inventory", "--inventory"]).arg(data("inventories/mixed5.json")).env("COLUMNS", columns);
        let table = text(&inventory.output().expect("cudaview starts")).1;
        let width: usize = columns.parse().expect("a number");
        for line in report.lines().chain(table.lines()) {
            assert!(line.chars().count() <= width, "{columns}: {line}");
        }
    }
}

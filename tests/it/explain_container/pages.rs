//! What it looks like: a stand-in answers at a socket as Docker 28.5 does, with what is looked at left in.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;

use serde_json::{Value, json};

use crate::command::{cudaview, data, text};

const ID: &str = "5f0c2c6c1b0e9a7d43be8f21c07f6a95d1e2384b6c7f90a1b2c3d4e5f6071829";
const IMAGE: &str = "1f2e3d4c5b6a79880716253443526170fedcba9876543210fedcba9876543210";

/// How the note begins that the bundle cannot be read.
const ONLY_ROOT: &str = "the record of what was done is in";

/// A daemon with one container, `trainer`, and its image.
pub(crate) struct Daemon {
    folder: tempfile::TempDir,
    /// Text with the folder's name in it breaks elsewhere than without.
    columns: Option<&'static str>,
}

impl Daemon {
    pub(crate) fn new(container: Value, image: Value) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.toml"), "audit = \"off\"\n").unwrap();
        std::fs::write(folder.path().join("storage.conf"), "[storage]\ngraphroot = \"/no/containers/storage\"\n")
            .unwrap();
        let listener = UnixListener::bind(folder.path().join("d.sock")).unwrap();
        let info = json!({"DefaultRuntime": "runc", "SecurityOptions": [], "Runtimes":
            {"runc": {"path": "runc"}, "cudaview": {"path": "/usr/bin/cudaview-runtime"}}});
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut question = [0; 4096];
                let length = stream.read(&mut question).unwrap();
                let question = String::from_utf8_lossy(&question[..length]).into_owned();
                let target = question.split(' ').nth(1).unwrap_or_default();
                let (status, body) = match target {
                    "/containers/trainer/json" => ("200 OK", container.clone()),
                    "/containers/5/json" => {
                        ("400 Bad Request", json!({"message": "Multiple IDs found with provided prefix: 5"}))
                    }
                    "/containers/json?all=1" => (
                        "200 OK",
                        json!([
                            {"Id": ID, "Names": ["/trainer"]},
                            {"Id": ID.replace('f', "e"), "Names": ["/other"]},
                            {"Id": IMAGE, "Names": ["/third"]},
                        ]),
                    ),
                    "/info" => ("200 OK", info.clone()),
                    _ if target == format!("/images/sha256:{IMAGE}/json") => ("200 OK", image.clone()),
                    _ => ("404 Not Found", json!({"message": "No such thing"})),
                };
                let body = body.to_string();
                let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        Daemon { folder, columns: None }
    }

    /// Puts a configuration in place, with an audit trail of its own.
    pub(crate) fn configured(self, more: &str, trail: &[Value]) -> Daemon {
        let path = self.folder.path().join("audit.jsonl");
        std::fs::write(self.folder.path().join("config.toml"), format!("audit = '{}'\n{more}", path.display()))
            .unwrap();
        let lines: Vec<String> = trail.iter().map(ToString::to_string).collect();
        std::fs::write(path, lines.join("\n")).unwrap();
        self
    }

    /// The command that asks about a container.
    pub(crate) fn command(&self, container: &str) -> Command {
        let path = self.folder.path();
        let mut command = cudaview();
        command.args(["explain", "--container", container, "--config"]).arg(path.join("config.toml"));
        command.arg("--inventory").arg(data("inventories/a100x4.json"));
        command.env("DOCKER_HOST", format!("unix://{}", path.join("d.sock").display()));
        command.env("CONTAINERS_STORAGE_CONF", path.join("storage.conf"));
        // Where an ordinary user has a storage: the same, so that everybody is told the same.
        command.env("CONTAINERD_ADDRESS", "/no/containerd/c.sock").env("XDG_DATA_HOME", "/no");
        command
    }

    /// Without the name of the daemon's folder, and without what an ordinary user is told where a real Docker is.
    pub(crate) fn clean(&self, said: &str) -> String {
        let folder = self.folder.path().display().to_string();
        let mut said = said.replace(&folder, "/run").replace(&folder[1..], "run");
        if let Some(at) = said.find(ONLY_ROOT) {
            let start = said[..at].rfind('\n').map_or(0, |end| end + 1);
            let mut lines = said[start..].split_inclusive('\n');
            let mut end = start + lines.next().map_or(0, str::len);
            end += lines.take_while(|line| line.starts_with("      ")).map(str::len).sum::<usize>();
            said.replace_range(start..end, "");
            said = said.replace("\"notes\": [\n    ]", "\"notes\": []");
        }
        said
    }

    /// Asks about a container, and cuts the folder's name out of what is said.
    fn ask(&self, container: &str, more: &[&str]) -> String {
        let mut command = self.command(container);
        command.args(more).envs(self.columns.map(|columns| ("COLUMNS", columns)));
        let (code, stdout, stderr) = text(&command.output().unwrap());
        for line in stdout.lines().filter(|line| !more.contains(&"json") && line.trim().contains(' ')) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        self.clean(&format!("{stdout}{stderr}exit {}", code.unwrap()))
    }
}

fn container(env: &[&str], requests: &Value, host: &Value) -> Value {
    let mut host_config = json!({"Runtime": "cudaview", "DeviceRequests": requests, "Privileged": false});
    host_config.as_object_mut().unwrap().extend(host.as_object().unwrap().clone());
    json!({
        "Id": ID, "Name": "/trainer", "Image": format!("sha256:{IMAGE}"), "Mounts": [],
        "State": {"Status": "running", "Pid": 0},
        "Config": {"Image": "pytorch-cuda:v2.6", "Env": env},
        "HostConfig": host_config,
    })
}

fn gpus(ids: &[&str]) -> Value {
    json!([{"Driver": "", "Count": 0, "DeviceIDs": ids, "Capabilities": [["gpu"]], "Options": {}}])
}

fn image(env: &[&str]) -> Value {
    json!({"Id": format!("sha256:{IMAGE}"), "Config": {"Env": env}})
}

const PATH: &str = "PATH=/usr/bin:/bin";
const NVD_ALL: &str = "NVIDIA_VISIBLE_DEVICES=all";

/// The container of session 1, whose user is a member of the group that may ask Docker.
pub(crate) fn trainer() -> Daemon {
    let env = ["CUDA_VISIBLE_DEVICES=1,3", PATH, NVD_ALL];
    Daemon::new(container(&env, &gpus(&["1", "3"]), &json!({})), image(&[PATH, NVD_ALL]))
}

/// For people: in `sessions`.
#[test]
fn rewritten_for_a_member_of_the_group() {
    insta::assert_snapshot!(trainer().ask("trainer", &["--format", "json"]));
}

#[test]
fn an_image_default_and_an_exec() {
    let env = [PATH, "CUDA_VISIBLE_DEVICES=0"];
    let daemon = Daemon::new(container(&env, &gpus(&["1", "3"]), &json!({})), image(&env));
    insta::assert_snapshot!(daemon.ask("trainer", &["--exec-env", "CUDA_VISIBLE_DEVICES=3"]));
}

#[test]
fn made_without_cudaview() {
    let env = ["CUDA_VISIBLE_DEVICES=1,3", PATH];
    let daemon = Daemon::new(container(&env, &gpus(&["1", "3"]), &json!({"Runtime": "runc"})), image(&[PATH]));
    insta::assert_snapshot!(daemon.ask("trainer", &[]));
}

/// A stopped one has no bundle; what was done is in the audit trail, or nowhere.
#[test]
fn stopped_since_the_configuration_changed() {
    let env = [PATH, "CUDA_VISIBLE_DEVICES=0"];
    let mut stopped = container(&env, &json!([{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]), &json!({}));
    stopped["State"] = json!({"Status": "exited", "Pid": 0, "StartedAt": "2025-01-01T13:05:12Z", "Error": ""});
    let narrow = "[reconcile]\nimage_default = \"narrow\"\n";
    let all = json!(["0", "1", "2", "3"]);
    let record = json!({"schemaVersion": 1, "time": "2025-01-01T13:05:12Z", "door": "runtime", "mode": "enforce",
        "id": ID, "name": "trainer", "engine": "docker", "verdict": "rewritten", "granted": all, "kept": all,
        "visible": all, "provenance": "image", "before": {"cvd": "0", "nvd": "all"},
        "after": {"order": "PCI_BUS_ID", "trace": "0,1,2,3"}, "findings": []});
    let daemon = || Daemon::new(stopped.clone(), image(&env));
    insta::assert_snapshot!(daemon().configured(narrow, std::slice::from_ref(&record)).ask("trainer", &[]));
    insta::assert_snapshot!(daemon().configured(narrow, &[]).ask("trainer", &[]));
    let json = daemon().configured(narrow, &[record]).ask("trainer", &["--format", "json"]);
    assert!(json.contains("\"tense\": \"saw\""), "{json}");
}

#[test]
fn a_program_that_never_ran() {
    let env = ["CUDA_VISIBLE_DEVICES=1,3", PATH];
    let mut created = container(&env, &gpus(&["1", "3"]), &json!({}));
    created["State"] = json!({"Status": "created", "Pid": 0, "StartedAt": "0001-01-01T00:00:00Z",
        "Error": "failed to create task: exec: \"nosuch\": not found"});
    let said = Daemon::new(created, image(&[PATH])).ask("trainer", &[]);
    assert!(said.starts_with("trainer would see 2 GPUs: cuda:0 is host GPU 1, cuda:1 is host GPU 3 (rew"), "{said}");
    assert!(said.contains("note: its program never ran: failed to create task: exec: \"nosuch\": not found"), "{said}");
    let mut refused = container(&["CUDA_VISIBLE_DEVICES=7", PATH], &gpus(&["1", "3"]), &json!({}));
    refused["State"] = json!({"Status": "created", "Pid": 0, "StartedAt": "0001-01-01T00:00:00Z", "Error": ""});
    let said = Daemon::new(refused.clone(), image(&[PATH])).ask("trainer", &[]);
    assert!(said.starts_with("trainer would be refused: CUDA_VISIBLE_DEVICES=\"7\" names"), "{said}");
    refused["State"]["Error"] = json!("OCI runtime create failed: cudaview: refused, CUDA_VISIBLE_DEVICES=\"7\"");
    let said = Daemon::new(refused, image(&[PATH])).ask("trainer", &[]);
    assert!(said.starts_with("trainer was refused: CUDA_VISIBLE_DEVICES=\"7\" names"), "{said}");
}

#[test]
fn observed_and_not_changed() {
    let env = ["CUDA_VISIBLE_DEVICES=1,3", PATH];
    let daemon = Daemon::new(container(&env, &gpus(&["1", "3"]), &json!({})), image(&[PATH]));
    let said = daemon.configured("mode = \"observe\"\n", &[]).ask("trainer", &[]);
    let first = "trainer sees 1 GPU: cuda:0 is host GPU 3 (observed by cudaview, not changed)\n";
    assert!(said.starts_with(first) && said.contains("runtime cudaview, running"), "{said}");
}

#[test]
fn the_beginning_of_several_ids() {
    let daemon = Daemon::new(container(&[PATH], &gpus(&["1"]), &json!({})), image(&[PATH]));
    insta::assert_snapshot!(daemon.ask("5", &[]));
    let said = daemon.ask("train", &[]);
    assert!(said.contains("hint: did you mean --container trainer?\n"), "{said}");
}

/// The hint for a container that another runtime made is for one that cudaview makes.
#[test]
fn no_gpu_without_cudaview() {
    let env = ["CUDA_VISIBLE_DEVICES=1,3", PATH];
    let daemon = Daemon::new(container(&env, &json!([]), &json!({"Runtime": "runc"})), image(&[PATH]));
    let said = daemon.ask("trainer", &[]);
    let hint = "hint: --runtime cudaview --gpus '\"device=1,3\"' gives it host GPUs 1 and 3;";
    assert!(said.contains(hint), "{said}");
}

#[test]
fn an_image_that_is_gone_leaves_the_origin_unknown() {
    let env = ["CUDA_VISIBLE_DEVICES=1", PATH];
    let mut gone = container(&env, &gpus(&["1", "3"]), &json!({}));
    gone["Image"] = json!(format!("sha256:{}", "0".repeat(64)));
    insta::assert_snapshot!(Daemon::new(gone, image(&env)).ask("trainer", &[]));
}

#[test]
fn hostile_answers_do_not_reach_the_terminal() {
    let evil = "\u{1b}[31m\nroot: \u{7}";
    let env = [&format!("CUDA_VISIBLE_DEVICES={evil}"), PATH];
    let mut hostile = container(&env, &gpus(&["1"]), &json!({"Runtime": evil}));
    hostile["Name"] = json!(format!("/{evil}"));
    hostile["State"]["Status"] = json!(evil);
    hostile["Config"]["Image"] = json!(evil);
    let said = Daemon::new(hostile, image(&[PATH])).ask("trainer", &[]);
    assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
    assert!(!said.lines().any(|line| line.starts_with("root:")), "{said}");
    for odd in [json!([]), json!({"Id": "../x"}), json!({"Id": 7, "Config": []}), json!("x"), Value::Null] {
        let said = Daemon::new(odd, image(&[])).ask("trainer", &[]);
        assert!(said.ends_with("exit 1") && said.contains("the answer is not Docker's"), "{said}");
    }
    let wrong = json!({"Id": ID, "Config": {"Env": "x"}, "HostConfig": {"DeviceRequests": {"a": 1}}, "Mounts": 3});
    assert!(Daemon::new(wrong, image(&[])).ask("trainer", &[]).ends_with("exit 0"));
}

#[test]
fn nobody_is_called_so() {
    let daemon = Daemon { columns: Some("1000"), ..Daemon::new(json!({}), json!({})) };
    insta::assert_snapshot!(daemon.ask("nobody", &[]));
    insta::assert_snapshot!(daemon.ask("a/b", &[]));
    insta::assert_snapshot!(daemon.ask("trainer", &["--gpus", "all"]));
    let mut elsewhere = cudaview();
    elsewhere.args(["explain", "--container", "x", "--config"]).arg(daemon.folder.path().join("config.toml"));
    elsewhere.env("COLUMNS", "1000").env("DOCKER_HOST", "ssh://somewhere").env("CONTAINERD_ADDRESS", "/no/c.sock");
    let (code, stdout, stderr) = text(&elsewhere.output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("DOCKER_HOST=\"ssh://somewhere\" (only a unix"), "{stderr}");
}

/// A container that is gone, and a trail that anybody could have written.
#[test]
fn a_trail_of_records() {
    let folder = tempfile::tempdir().unwrap();
    let trail = folder.path().join("audit.jsonl");
    let record = |name: &str, value: &str, visible: &[&str]| {
        json!({"schemaVersion": 1, "time": "2025-01-01T13:05:12Z", "door": "runtime", "mode": "enforce", "id": ID,
            "name": name, "image": "pytorch-cuda:v2.6", "engine": "docker", "verdict": "rewritten", "source": ["gpus"],
            "granted": ["1", "3"], "kept": ["1", "3"], "visible": visible, "provenance": "user",
            "before": {"cvd": value, "nvd": "1,3"},
            "after": {"cvd": "0,1", "order": "PCI_BUS_ID", "nvd": "GPU-a,GPU-b", "trace": "1,3"},
            "findings": [{"code": "host-index-override", "severity": "info", "message": "host numbers", "hint": ""}]})
        .to_string()
    };
    let lines = [record("trainer", "3,1", &["3", "1"]), "no record".to_owned(), record("trainer", "1,3", &["1", "3"])];
    std::fs::write(&trail, lines.join("\n")).unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, format!("audit = '{}'\n", trail.display())).unwrap();
    std::fs::write(folder.path().join("storage.conf"), "[storage]\ngraphroot = \"/no/containers/storage\"\n").unwrap();
    let ask = |name: &str, more: &[&str]| {
        let mut command = cudaview();
        command.args(["explain", "--container", name, "--config"]).arg(&config).args(more);
        command
            .env("DOCKER_HOST", "unix:///no/d.sock")
            .env("CONTAINERD_ADDRESS", "/no/c.sock")
            .env("XDG_DATA_HOME", "/no");
        command.env("CONTAINERS_STORAGE_CONF", folder.path().join("storage.conf"));
        let (code, stdout, stderr) = text(&command.output().unwrap());
        let folder = folder.path().display().to_string();
        format!("{stdout}{stderr}exit {}", code.unwrap()).replace(&folder, "/trail")
    };
    insta::assert_snapshot!(ask("trainer", &[]));
    assert_eq!(ask(&ID[..12], &[]).lines().next(), ask("trainer", &[]).lines().next());
    assert!(ask("trainer", &["--format", "json"]).contains("\"provenance\": \"user\""));
    // Whoever calls a container of their own by another one's id does not take its place.
    let other = "f".repeat(64);
    let later = record(ID, "0", &["0"]).replacen(ID, &other, 1);
    std::fs::write(&trail, format!("{}\n{later}", lines[0])).unwrap();
    assert!(ask(ID, &[]).contains("cuda:0 was host GPU 3"), "{}", ask(ID, &[]));
    // An engine that was not asked may have it still.
    let mut command = cudaview();
    command.args(["explain", "--container", "trainer", "--config"]).arg(&config).env("COLUMNS", "1000");
    command.env("DOCKER_HOST", "tcp://127.0.0.1:1").env("CONTAINERD_ADDRESS", "/no/c.sock");
    let (_, _, stderr) = text(&command.output().unwrap());
    assert!(stderr.contains("may still be there") && stderr.contains("(only a unix socket is asked)"), "{stderr}");
    // One of two that begin alike is not chosen.
    let both = [lines[0].clone(), lines[0].replace(ID, &ID.replace('f', "e")).replace("trainer", "other")];
    std::fs::write(&trail, both.join("\n")).unwrap();
    assert!(ask(&ID[..1], &[]).ends_with("exit 2"), "{}", ask(&ID[..1], &[]));
    // What anybody could have written is not read.
    std::fs::set_permissions(&trail, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert!(ask("trainer", &[]).ends_with("exit 1"), "{}", ask("trainer", &[]));
}

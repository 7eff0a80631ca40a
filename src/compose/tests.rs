use super::dotenv::{parse as dotenv, parse_raw};
use super::interpolate::{Tally, interpolate};
use super::*;

fn shell(name: &str) -> Option<String> {
    let known = [("SET", "1,3"), ("EMPTY", ""), ("CUDA_VISIBLE_DEVICES", "7"), ("N", "2"), ("YES", "true")];
    known.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
}

#[track_caller]
fn one(members: &str) -> Service {
    let text = format!("services:\n  s:\n    {}\n", members.replace('\n', "\n    "));
    let mut services = parse(&text, &shell).unwrap_or_else(|error| panic!("{error}\n{text}"));
    services.remove(0)
}

#[track_caller]
fn refused(members: &str, expect: &str) {
    let text = format!("services:\n  s:\n    {}\n", members.replace('\n', "\n    "));
    let error = parse(&text, &shell).expect_err(&text);
    assert_eq!(error.to_string(), expect, "{text}");
}

fn request(driver: &str, count: i64, ids: &[&str], capabilities: &[&str]) -> DockerDeviceRequest {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let (device_ids, capabilities) = (texts(ids), vec![texts(capabilities)]);
    DockerDeviceRequest { driver: driver.to_owned(), count, device_ids, capabilities }
}

#[test]
fn gpus_in_every_form() {
    let check = |members: &str, expect: &[DockerDeviceRequest]| assert_eq!(one(members).requests, expect, "{members}");
    check("gpus: all", &[request("", -1, &[], &["gpu"])]);
    check("gpus: [{count: 2}]", &[request("", 2, &[], &["gpu"])]);
    check("gpus:\n- driver: nvidia\n  device_ids: ['1', \"3\"]", &[request("nvidia", 0, &["1", "3"], &["gpu"])]);
    check("gpus:\n- driver: nvidia", &[request("nvidia", -1, &[], &["gpu"])]);
    check("gpus: [{capabilities: [utility]}]", &[request("", -1, &[], &["utility", "gpu"])]);
    check("gpus: [{count: \"${N}\"}]", &[request("", 2, &[], &["gpu"])]);
    let deploy = |device: &str| format!("deploy: {{resources: {{reservations: {{devices: [{device}]}}}}}}");
    check(&deploy("{capabilities: [gpu]}"), &[request("", -1, &[], &["gpu"])]);
    check(&deploy("{capabilities: [gpu], count: all}"), &[request("", -1, &[], &["gpu"])]);
    check(&deploy("{capabilities: [gpu], count: 1, driver: nvidia}"), &[request("nvidia", 1, &[], &["gpu"])]);
    check(
        &deploy("{capabilities: [gpu], driver: cdi, device_ids: ['nvidia.com/gpu=1']}"),
        &[request("cdi", 0, &["nvidia.com/gpu=1"], &["gpu"])],
    );
    check("image: x", &[]);
    let exclusive = "services.s.gpus[0]: \"count\" and \"device_ids\" attributes are exclusive";
    refused("gpus: [{count: 1, device_ids: ['1']}]", exclusive);
    refused("gpus: 2", "services.s.gpus: it must be all, or a list");
    refused("gpus: some", "services.s.gpus: it must be all, or a list");
    refused("gpus: [{device_ids: [1]}]", "services.s.gpus[0].device_ids: it must be a list of texts: [\"0\", \"2\"]");
    refused("gpus: [{count: many}]", "services.s.gpus[0].count: it must be a number or all");
    let place = "services.s.deploy.resources.reservations.devices[0]";
    refused(&deploy("{count: 1}"), &format!("{place}.capabilities: it is required: [gpu]"));
}

#[test]
fn environment_goes_before_env_file_and_the_last_of_those_counts() {
    let service = one("env_file: [a.env, {path: b.env, required: false, format: raw}]\nenvironment: {A: 1, B: , C: x}");
    assert_eq!(
        service.env_files,
        [
            EnvFile { path: "a.env".to_owned(), required: true, raw: false },
            EnvFile { path: "b.env".to_owned(), required: false, raw: true }
        ]
    );
    let pairs =
        |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    let files = [pairs(&[("A", "0"), ("D", "1"), ("E", "1")]), pairs(&[("D", "2")])];
    let env = service.env(&files, &|name| (name == "B").then(|| "shell".to_owned()));
    let expect = [
        ("A=1", Way::Environment),
        ("B=shell", Way::Environment),
        ("C=x", Way::Environment),
        ("D=2", Way::EnvFile),
        ("E=1", Way::EnvFile),
    ];
    assert_eq!(env, expect.map(|(text, way)| (text.to_owned(), way)));
    assert_eq!(service.env(&[], &|_| None)[1].0, "B", "nobody has a value for it");
}

#[test]
fn both_spellings_of_environment() {
    let expect = |list: &[(&str, Option<&str>)]| {
        list.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned))).collect::<BTreeMap<_, _>>()
    };
    let same = expect(&[("A", Some("1,3")), ("B", None), ("C", Some("")), ("D", Some("0")), ("E", Some("true"))]);
    assert_eq!(one("environment: {A: '1,3', B: null, C: '', D: 0, E: true}").environment, same);
    assert_eq!(one("environment: ['A=1,3', B, C=, D=0, E=true]").environment, same);
    assert_eq!(
        one("environment: ['A=$SET', 'B=$$SET']").environment,
        expect(&[("A", Some("1,3")), ("B", Some("$SET"))])
    );
    let service = one("environment: {A: '${NOPE}', B: '${NOPE2:-}'}");
    assert_eq!(service.environment, expect(&[("A", Some("")), ("B", Some(""))]));
    assert_eq!(service.notes, ["the variable \"NOPE\" is not set, and counts as empty"]);
    refused("environment: 1", "services.s.environment: it must be a mapping, or a list of NAME=VALUE");
    refused("environment: {A: [1]}", "services.s.environment: it must be a mapping, or a list of NAME=VALUE");
}

#[test]
fn the_rest_of_a_service() {
    let service = one(
        "image: trainer:2\nruntime: cudaview\nprivileged: ${YES}\nbuild: .\nenv_file: x\ndevices: [/dev/nvidia1, {source: nvidia.com/gpu=2}]",
    );
    assert_eq!((service.image.as_deref(), service.runtime.as_deref()), (Some("trainer:2"), Some("cudaview")));
    assert!(service.privileged && service.is_built);
    assert_eq!(service.devices, ["/dev/nvidia1", "nvidia.com/gpu=2"]);
    assert!(!one("privileged: false").privileged);
    refused("privileged: maybe", "services.s.privileged: \"maybe\" is neither true nor false");
    refused("env_file: [1]", "services.s.env_file[0]: it must be a path, or a mapping with a path");
}

#[test]
fn interpolation() {
    let check = |text: &str, expect: Result<&str, &str>| {
        let found = interpolate(text, &shell, &mut Tally::new()).map_err(|error| error.to_string());
        assert_eq!(found, expect.map(str::to_owned).map_err(str::to_owned), "{text}");
    };
    let format = Err("invalid interpolation format; a $ that is meant as such is written $$");
    check("a${SET}b$SET-$$x", Ok("a1,3b1,3-$x"));
    for (text, expect) in [
        ("${NOPE:-all}", "all"),
        ("${NOPE-all}", "all"),
        ("${EMPTY:-all}", "all"),
        ("${EMPTY-all}", ""),
        ("${SET:-all}", "1,3"),
        ("${SET:+x}", "x"),
        ("${EMPTY:+x}", ""),
        ("${EMPTY+x}", "x"),
        ("${NOPE:-${SET}}", "1,3"),
        ("${NOPE:-${NOPE2:-${N}}}z", "2z"),
        ("${NOPE:-}", ""),
        ("${SET:?must}", "1,3"),
        ("$NOPE", ""),
    ] {
        check(text, Ok(expect));
    }
    check("${NOPE:?say which}", Err("required variable NOPE is missing a value: say which"));
    check("${EMPTY:?say}", Err("required variable EMPTY is missing a value: say"));
    check("${EMPTY?say}", Ok(""));
    for text in ["${", "${}", "${1}", "$1", "$", "$ x", "${A!b}", "${SET", "${É}"] {
        check(text, format);
    }
    let deep = format!("{}x{}", "${A:-".repeat(40), "}".repeat(40));
    check(&deep, format);
}

#[test]
fn dotenv_files() {
    let check = |text: &str, expect: &[(&str, &str)]| {
        let found = dotenv(text, &shell).unwrap_or_else(|error| panic!("{error}: {text}"));
        let expect: Vec<(String, String)> = expect.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(found, expect, "{text:?}");
    };
    check("# c\n\nA=1\nB=\"2\" # c\nC='$SET'\n", &[("A", "1"), ("B", "2"), ("C", "$SET")]);
    check("export A = 1,3 # c\r\nB=a#b\nC=", &[("A", "1,3"), ("B", "a#b"), ("C", "")]);
    check("A=$SET\nB=${A}x\nC=\"$B\\n\\$A\"", &[("A", "1,3"), ("B", "1,3x"), ("C", "1,3x\n$A")]);
    check("CUDA_VISIBLE_DEVICES\nNOPE\nA: yaml", &[("CUDA_VISIBLE_DEVICES", "7"), ("A", "yaml")]);
    check("A='two\nlines'\nB=1", &[("A", "two\nlines"), ("B", "1")]);
    check("A='it\\'s'", &[("A", "it's")]);
    check("", &[]);
    for (text, expect) in [
        ("A=1\nB='x", "line 2: unterminated quoted value"),
        ("=1", "line 1: there is no name before the value"),
        ("A B=1", "line 1: unexpected character ' ' in a variable's name"),
    ] {
        assert_eq!(dotenv(text, &shell).expect_err(text).to_string(), expect);
    }
    let raw = parse_raw("A='1' # x\nB\n").expect("raw");
    assert_eq!(raw, [("A".to_owned(), "'1' # x".to_owned())]);
}

#[test]
fn anchors_and_extends() {
    let text = "\
x-base: &base
  runtime: cudaview
  environment: &env {A: 1, B: 2}
services:
  a:
    <<: *base
    environment: {<<: *env, B: 3}
    env_file: a.env
  b:
    extends: a
    environment: [C=4]
    env_file: [b.env]
    gpus: all
  c:
    extends: {service: b}
    runtime: runc
  d:
    extends: {file: other.yaml, service: b}
";
    let services = parse(text, &shell).expect("read");
    let env = |at: usize| {
        let pairs = services[at].environment.iter();
        pairs.map(|(k, v)| format!("{k}={}", v.clone().unwrap_or_default())).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((env(0), env(1), env(2)), ("A=1 B=3".into(), "A=1 B=3 C=4".into(), "A=1 B=3 C=4".into()));
    let runtimes: Vec<Option<&str>> = services.iter().map(|service| service.runtime.as_deref()).collect();
    assert_eq!(runtimes, [Some("cudaview"), Some("cudaview"), Some("runc"), None]);
    assert_eq!(services[2].requests.len(), 1);
    let files: Vec<&str> = services[2].env_files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["a.env", "b.env"]);
    assert_eq!(services[3].notes, ["extends of another file is not followed in \"d\""]);
    let itself = parse("services: {a: {extends: b}, b: {extends: a}}", &shell).expect_err("a circle");
    assert_eq!(itself.to_string(), "services.a: it extends itself");
    let absent = parse("services: {a: {extends: z}}", &shell).expect_err("nobody");
    assert_eq!(absent.to_string(), "services.z: it is extended, and is not there");
}

#[test]
fn what_is_no_compose_file() {
    for (text, expect) in [
        ("", "the file: it is empty"),
        ("[]", "the file: it is no mapping"),
        ("a: 1", "services: there is no service in it"),
        ("services: {}", "services: there is no service in it"),
        ("services: []", "services: it must be a mapping"),
        ("services: {a: 1}", "services.a: it must be a mapping"),
        ("services: {a: {}, a: {}}", "line 1 column 23: \"a\" is there twice"),
        ("services: {a: {}}\n---\nb: 1", "line 2 column 1: it holds more than one document"),
        ("a: *b", "line 1 column 4: while parsing node, found unknown anchor"),
    ] {
        assert_eq!(parse(text, &shell).expect_err(text).to_string(), expect, "{text}");
    }
    assert!(parse("services: {s: }", &shell).is_ok_and(|services| services.len() == 1));
}

/// Whatever stands in a file, there is an answer.
#[test]
fn a_damaged_file_is_no_disaster() {
    let whole = "x: &a {A: '1', B: \"${C:-${D}}\"}\nservices:\n  s: &s\n    gpus: [{count: 1}]\n    environment: {<<: *a, É: $E}\n\
                 \x20   env_file: [{path: x}]\n  t:\n    extends: {service: s}\n    privileged: ${P}\n";
    let parts: Vec<char> = "{}[]$:-?'\"&*#\n\t\\ é,<>|!%@`=a0".chars().collect();
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or_default() % below
    };
    for _ in 0..3000 {
        let mut text: Vec<char> = whole.chars().collect();
        for _ in 0..=next(5) {
            let (at, part) = (next(text.len()), parts[next(parts.len())]);
            if next(3) == 0 {
                text.swap_remove(at);
            } else {
                text.insert(at, part);
            }
        }
        let text: String = text.into_iter().collect();
        drop(parse(&text, &shell));
        drop(dotenv(&text, &shell));
        drop(parse_raw(&text));
        drop(interpolate(&text, &shell, &mut Tally::new()));
    }
}

/// Files that are made to exhaust whoever reads them.
#[test]
fn large_and_deep_files_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        bomb = format!("{bomb}a{level}: &a{level} [{}]\n", vec![alias; 10].join(", "));
    }
    let refused = |text: &str, expect: &str| {
        let error = parse(text, &shell).expect_err("too much").to_string();
        assert!(error.contains(expect), "{error}");
    };
    refused(&bomb, "it holds more than 20000 values");
    refused(&"- ".repeat(30_000), "it is more than 60 levels deep");
    assert!(parse(&"[".repeat(30_000), &shell).is_err());
    assert!(parse(&"{a: ".repeat(30_000), &shell).is_err());
    refused("a: &a [*a]", "an alias stands for what it is in");
    let long = "y".repeat(900_000);
    let aliases = vec!["*a"; 9000].join(", ");
    refused(&format!("services: {{a: {{image: x}}}}\nx-a: &a {long:?}\nx-b: [{aliases}]\n"), "more than 4 MiB");
    let copies = (1..3000).map(|at| format!("  s{at}: {{extends: s0}}\n")).collect::<Vec<_>>().concat();
    refused(&format!("services:\n  s0: {{image: {long:?}}}\n{copies}"), "more than 4 MiB");
    let chain = (1..3000).map(|at| format!("  s{at}: {{extends: s{}}}\n", at - 1)).collect::<Vec<_>>().concat();
    refused(&format!("services:\n  s0: {{image: x}}\n{chain}"), "extends more than 50 others in a row");
    let doubled = (1..40).map(|at| format!("A{at}=${{A{0}}}${{A{0}}}\n", at - 1)).collect::<Vec<_>>().concat();
    let error = dotenv(&format!("A0=xxxxxxxxxx\n{doubled}"), &shell).expect_err("half a terabyte").to_string();
    assert!(error.contains("more than 4 MiB"), "{error}");
    assert!(dotenv(&"A=$B\n".repeat(200_000), &shell).is_err());
}

/// What stands in a file that a Compose file only names is not its author's, and may be nobody's business.
#[test]
fn an_error_does_not_show_the_line_it_is_about() {
    for text in ["A=1\n-----BEGIN PRIVATE KEY-----\n", "A=1\nhunter2 is: the secret", "A=1\n{\"token\": \"hunter2\"}"] {
        for error in
            [dotenv(text, &shell).err(), parse_raw(text.replace(':', "=").as_str()).err()].into_iter().flatten()
        {
            let error = error.to_string();
            let shown = ["hunter2", "BEGIN", "token"].iter().any(|word| error.contains(word));
            assert!(!shown && error.starts_with("line 2: "), "{error}");
        }
    }
}

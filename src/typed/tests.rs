use super::*;

fn words(line: &str) -> Vec<String> {
    crate::shell::split(line).into_iter().map(|word| word.text).collect()
}

fn run(line: &str) -> TypedRun {
    match parse(&words(line)) {
        Ok(Typed::Run(run)) => run,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_image_is_found_behind_every_kind_of_flag() {
    for line in [
        "docker run IMAGE a -e X=1",
        "docker run --rm -it IMAGE a -e X=1",
        "docker -H unix:///x --debug container run -v /a:/b --name n IMAGE a -e X=1",
        "docker --context=there run -itv /a:/b -p80:80 --network=host IMAGE a -e X=1",
        "docker run --rm=false -m 1g -w/src --ulimit memlock=-1 -- IMAGE a -e X=1",
        "sudo -E DOCKER_HOST=x /usr/bin/docker create --init --label a=b -d IMAGE a -e X=1",
        "podman --log-level debug run --security-opt label=disable --rootfs IMAGE a -e X=1",
        "nerdctl -n k8s.io --snapshotter stargz run -d --gpus all IMAGE a -e X=1",
    ] {
        let run = run(line);
        assert_eq!(run.image(), Some("IMAGE"), "{line}");
        assert_eq!(run.arguments(), ["a", "-e", "X=1"], "{line}");
        assert_eq!(run.unknown, Vec::<usize>::new(), "{line}");
    }
    assert_eq!(run("docker run --rm").image(), None);
    assert_eq!(run("podman run IMAGE").client, Client::Podman);
}

#[test]
fn values_and_where_they_stand() {
    let run = run("docker run -e A=1 --env=B=2 -eC=3 -e=D=4 -ite E=5 --gpus '\"device=1,3\"' IMAGE");
    assert_eq!(run.values("env").collect::<Vec<_>>(), ["A=1", "B=2", "C=3", "D=4", "E=5"]);
    assert_eq!(run.values("gpus").collect::<Vec<_>>(), ["\"device=1,3\""]);
    for flag in &run.flags {
        let Some((word, byte)) = flag.value_at else { continue };
        assert_eq!(Some(&run.words[word][byte..]), flag.value.as_deref(), "{flag:?}");
        assert!(flag.words.contains(&word), "{flag:?}");
    }
    let starts: Vec<usize> = run.named("env").map(|flag| flag.starts).collect();
    assert_eq!(starts, [0, 0, 1, 1, 3]);
    assert!(run.is_on("interactive") && run.is_on("tty") && !run.is_on("privileged"));
}

#[test]
fn switches_are_on_as_go_reads_them() {
    for (line, on) in [
        ("docker run --privileged IMAGE", true),
        ("docker run --privileged=true IMAGE", true),
        ("docker run --privileged=0 IMAGE", false),
        ("docker run --privileged --privileged=false IMAGE", false),
    ] {
        assert_eq!(run(line).is_on("privileged"), on, "{line}");
        assert_eq!(run(line).image(), Some("IMAGE"), "{line}");
    }
}

#[test]
fn a_flag_that_nobody_knows_is_marked() {
    let guessed = run("docker run --new-flag value IMAGE");
    assert_eq!((guessed.image(), guessed.unknown.as_slice()), (Some("IMAGE"), [2].as_slice()));
    let last = run("docker run --new-switch IMAGE");
    assert_eq!((last.image(), last.unknown.as_slice()), (Some("IMAGE"), [2].as_slice()));
}

#[test]
fn a_whole_command_in_one_word() {
    let line = ["docker run --gpus 'device=1' IMAGE".to_owned()];
    assert!(matches!(parse(&line), Ok(Typed::Run(run)) if run.values("gpus").eq(["device=1"])));
}

#[test]
fn compose() {
    let Ok(Typed::Compose(typed)) =
        parse(&words("docker --context x compose -f a.yml --profile gpu up -d web --build db"))
    else {
        panic!("no compose")
    };
    assert_eq!(typed.values("file").collect::<Vec<_>>(), ["a.yml"]);
    assert_eq!(typed.verb.map(|at| typed.words[at].as_str()), Some("up"));
    assert_eq!(typed.services().collect::<Vec<_>>(), ["web", "db"]);
    assert!(matches!(parse(&words("docker-compose up")), Ok(Typed::Compose(_))));
}

#[test]
fn what_starts_no_container() {
    for (line, error) in [
        ("", "no command was given"),
        ("sudo", "no command was given"),
        ("python train.py", "\"python\" is neither docker, podman nor nerdctl"),
        ("docker build .", "\"docker build\" starts no container"),
        ("docker", "\"docker\" starts no container"),
        ("docker run --gpus", "--gpus needs a value"),
        ("docker run -e", "-e needs a value"),
    ] {
        assert_eq!(parse(&words(line)).unwrap_err().to_string(), error, "{line}");
    }
}

#[test]
fn no_flag_is_in_two_tables() {
    for (values, switches) in [
        (flags::VALUES, flags::SWITCHES),
        (flags::GLOBAL_VALUES, flags::GLOBAL_SWITCHES),
        (flags::COMPOSE_VALUES, flags::COMPOSE_SWITCHES),
    ] {
        let all: Vec<&(&str, &str)> = values.iter().chain(switches).collect();
        for (position, (name, letter)) in all.iter().enumerate() {
            let others = &all[position + 1..];
            assert!(others.iter().all(|(other, _)| other != name), "{name}");
            assert!(letter.is_empty() || others.iter().all(|(_, other)| other != letter), "{letter}");
        }
    }
}

use proptest::prelude::*;

use super::*;

fn strings(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

fn docker(config_env: Vec<String>, image_env: Vec<String>) -> EngineFacts {
    let nothing = EngineFacts::nothing_known(Engine::Docker);
    EngineFacts { config_env: Some(config_env), image_env: Some(image_env), ..nothing }
}

/// What dockerd stores (moby daemon/commit.go, merge), written apart from the code under test.
fn merge(user: &[String], image: &[String]) -> Vec<String> {
    if user.is_empty() {
        return image.to_vec();
    }
    let mut merged = user.to_vec();
    for entry in image {
        let key = entry.split('=').next();
        if !merged.iter().any(|present| present.split('=').next() == key) {
            merged.push(entry.clone());
        }
    }
    merged
}

/// The definition of the split, tried prefix by prefix.
fn split_by_definition(config: &[String], image: &[String]) -> Option<usize> {
    if config == image {
        return Some(0);
    }
    (0..=config.len()).find(|&len| {
        let (prefix, rest) = config.split_at(len);
        let remaining: Vec<&String> = first_entries(image)
            .into_iter()
            .filter(|entry| !prefix.iter().any(|set| key_of(set) == key_of(entry)))
            .collect();
        rest.iter().eq(remaining)
    })
}

#[track_caller]
fn check(user: &[&str], image: &[&str], key: &str, expect: Provenance) {
    let (user, image) = (strings(user), strings(image));
    let facts = docker(merge(&user, &image), image);
    let value = config_value(&facts, key).map(str::to_owned);
    assert_eq!(of_variable(&facts, key, value.as_deref()), expect, "{facts:?}");
}

#[test]
fn who_set_it() {
    const PATH: &str = "PATH=/bin";
    check(&[], &[PATH], "N", Provenance::Unset);
    check(&[], &[], "N", Provenance::Unset);
    check(&["N=1"], &[PATH], "N", Provenance::User);
    check(&["N=1"], &[], "N", Provenance::User);
    check(&[], &[PATH, "N=0"], "N", Provenance::Image);
    check(&["X=1"], &[PATH, "N=0"], "N", Provenance::Image);
    check(&["N=1"], &[PATH, "N=0"], "N", Provenance::User);
    check(&["N=0"], &[PATH, "N=0"], "N", Provenance::User);
    check(&["N="], &[PATH, "N=0"], "N", Provenance::User);
    check(&[], &[PATH, "N="], "N", Provenance::Image);
    check(&["N"], &[PATH, "N=0"], "N", Provenance::Unset);
    check(&["N=a=b"], &[PATH, "N=a"], "N", Provenance::User);
}

#[test]
fn equal_values_in_an_image_that_sets_it_first_count_as_the_images() {
    check(&["N=0"], &["N=0"], "N", Provenance::Image);
    check(&["N=0", "X=1"], &["N=0", "PATH=/bin"], "N", Provenance::Image);
    check(&["X=1", "N=0"], &["N=0", "PATH=/bin"], "N", Provenance::Image);
    check(&["N=0", "PATH=/sbin"], &["PATH=/bin", "N=0"], "N", Provenance::Image);
    check(&["N=1"], &["N=0"], "N", Provenance::User);
}

#[test]
fn an_image_that_repeats_a_key_does_not_pass_for_a_user() {
    let image = ["N=all", "PATH=/bin", "N=all"];
    check(&[], &image, "N", Provenance::Image);
    check(&["X=1"], &image, "N", Provenance::Image);
    check(&["X=1"], &["N=a", "PATH=/bin", "N=b"], "N", Provenance::Image);
    check(&["X=1"], &["N=a", "N=a", "N=a"], "N", Provenance::Image);
}

#[test]
fn what_is_not_docker_or_was_changed_later_or_does_not_fit_is_unknown() {
    let facts = docker(strings(&["N=1", "PATH=/bin"]), strings(&["PATH=/bin"]));
    assert_eq!(of_variable(&facts, "N", Some("1")), Provenance::User);
    assert_eq!(of_variable(&facts, "N", Some("2")), Provenance::Unknown, "changed after the engine stored it");
    assert_eq!(of_variable(&facts, "M", Some("2")), Provenance::Unknown, "added after the engine stored it");
    let containerd = EngineFacts { engine: Engine::Containerd, ..facts.clone() };
    assert_eq!(of_variable(&containerd, "N", Some("1")), Provenance::Unknown);
    let no_image = EngineFacts { image_env: None, ..facts.clone() };
    assert_eq!(of_variable(&no_image, "N", Some("1")), Provenance::Unknown);
    let another_image = docker(strings(&["N=1", "PATH=/bin"]), strings(&["PATH=/bin", "Q=1"]));
    assert_eq!(of_variable(&another_image, "N", Some("1")), Provenance::Unknown);
    let bare = docker(strings(&["N", "PATH=/bin"]), strings(&["PATH=/bin", "N=1"]));
    assert_eq!(of_variable(&bare, "N", Some("1")), Provenance::Unknown, "unset by the user, yet it is there");
}

#[test]
fn a_step_of_the_legacy_builder_sends_the_images_entries_as_the_users() {
    let image = strings(&["PATH=/bin", "N=all", "Q=1", "N=0"]);
    let step = [image.clone(), strings(&["ARG=1"])].concat();
    let facts = docker(merge(&step, &image), image);
    assert_eq!(config_value(&facts, "N"), Some("0"));
    assert_eq!(of_variable(&facts, "N", Some("0")), Provenance::Image);
}

/// Entries over few keys and values, so that they collide; some bare, some odd.
fn entry() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec!["N", "NVIDIA_VISIBLE_DEVICES", "PATH", "", "a b", "é\n", "N.N"]);
    let value = prop::sample::select(vec!["=", "=0", "=1", "=all", "==", "=N=0", ""]);
    (key, value).prop_map(|(key, value)| format!("{key}{value}"))
}

fn env(max: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof![9 => entry(), 1 => "\\PC{0,6}"], 0..max)
}

/// The user's entries as the client sends them (one for each key), or as any program may.
fn user_env() -> impl Strategy<Value = Vec<String>> {
    let one_each = |env: Vec<String>| first_entries(&env).into_iter().cloned().collect::<Vec<_>>();
    prop_oneof![3 => env(5).prop_map(one_each), 1 => env(5)]
}

/// Every key of both lists with the value that the container gets for it.
fn stored(facts: &EngineFacts) -> Vec<(String, String)> {
    let keys: HashSet<&str> = facts.config_env.iter().flatten().map(|entry| key_of(entry)).collect();
    keys.into_iter().filter_map(|key| Some((key.to_owned(), config_value(facts, key)?.to_owned()))).collect()
}

fn sets(env: &[String], key: &str) -> bool {
    env.iter().any(|entry| key_of(entry) == key)
}

/// The documented exception: the entry repeats the image's, and the user also set whatever the image has before it.
fn is_ambiguous(user: &[String], image: &[String], key: &str, value: &str) -> bool {
    let mut before = image.iter().map(|entry| key_of(entry)).take_while(|name| *name != key);
    image.contains(&format!("{key}={value}")) && before.all(|name| sets(user, name))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn an_image_alone_is_never_a_user(image in env(9)) {
        let facts = docker(merge(&[], &image), image);
        for (key, value) in stored(&facts) {
            prop_assert_eq!(of_variable(&facts, &key, Some(&value)), Provenance::Image, "{:?}", key);
        }
    }

    #[test]
    fn only_what_the_user_set_is_the_users(user in user_env(), image in env(7)) {
        let facts = docker(merge(&user, &image), image.clone());
        let repeated = user.iter().filter(|entry| image.contains(entry)).count();
        for (key, value) in stored(&facts) {
            let result = of_variable(&facts, &key, Some(&value));
            prop_assert!(matches!(result, Provenance::User | Provenance::Image), "{:?}", key);
            if !sets(&user, &key) {
                prop_assert_eq!(result, Provenance::Image, "{:?}", key);
            } else if !is_ambiguous(&user, &image, &key, &value) {
                prop_assert_eq!(result, Provenance::User, "{:?}", key);
            } else if repeated == 1 {
                prop_assert_eq!(result, Provenance::Image, "{:?}", key);
            }
        }
    }

    #[test]
    fn the_order_of_the_users_entries_does_not_matter_when_one_repeats_the_images(
        (one, other) in user_env().prop_flat_map(|user| (Just(user.clone()), Just(user).prop_shuffle())),
        image in env(7),
    ) {
        prop_assume!(first_entries(&one).len() == one.len());
        prop_assume!(one.iter().filter(|entry| image.contains(entry)).count() <= 1);
        let (one, other) = (docker(merge(&one, &image), image.clone()), docker(merge(&other, &image), image));
        for (key, value) in stored(&one) {
            prop_assert_eq!(of_variable(&one, &key, Some(&value)), of_variable(&other, &key, Some(&value)), "{:?}", key);
        }
    }

    #[test]
    fn the_split_is_the_smallest_exact_one(config in env(7), image in env(7), user in user_env()) {
        for config in [config, merge(&user, &image)] {
            let split = split_env(&config, &image).map(|(prefix, _)| prefix.len());
            prop_assert_eq!(split, split_by_definition(&config, &image));
        }
    }
}

#[track_caller]
fn check_podman(image: &[&str], value: &str, expect: Provenance) {
    let nothing = EngineFacts::nothing_known(Engine::Podman);
    let facts = EngineFacts { image_env: Some(strings(image)), ..nothing };
    assert_eq!(of_variable(&facts, "NVD", Some(value)), expect, "{image:?}");
}

#[test]
fn podman_keeps_no_order_so_the_value_decides() {
    check_podman(&["PATH=/bin"], "1", Provenance::User);
    check_podman(&[], "1", Provenance::User);
    check_podman(&["NVD=0"], "1", Provenance::User);
    check_podman(&["NVD=0"], "0", Provenance::Image);
    check_podman(&["nvd=1"], "1", Provenance::User);
    let nothing = EngineFacts::nothing_known(Engine::Podman);
    assert_eq!(of_variable(&nothing, "NVD", Some("1")), Provenance::Unknown);
    assert_eq!(of_variable(&nothing, "NVD", None), Provenance::Unset);
}

/// What podman's reader of an image's entries makes of them.
#[test]
fn an_image_does_not_pass_for_a_user_of_podman() {
    for image in [
        &["NVD=all", "PATH=/bin", "NVD=1"][..],
        &["NVD=1", "NVD=all"],
        &[" NVD=1"],
        &["\t NVD=1"],
        &["NVD"],
        &[" NVD"],
        &["NV*"],
        &["*"],
    ] {
        check_podman(image, "1", Provenance::Image);
    }
    check_podman(&["NVD =1", "NV=1", "NVDX*", "XNV*", "NVD=1 "], "1", Provenance::User);
}

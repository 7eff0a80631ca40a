//! Containers as they come: any image, any user, any policy, and what engines and hosts say of them.
//!
//! A bounded number of them here; `CUDAVIEW_PROPERTY_CASES` says how many, and `tests/run security` says a million.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use cudaview::config::{ImageRequest, Inject, UnknownRequest};
use cudaview::finding::{Code, Finding};
use cudaview::inventory::{Device, Platform};
use cudaview::plan::{Verdict, plan_exec};
use cudaview::provenance::{DockerDeviceRequest, Engine, Requests};
use cudaview::record::Variables;
use cudaview::request::parse_visible_devices;
use cudaview::situation::Injection;
use cudaview::spec::{Spec, allowed};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::files::{self, Case};
use super::generate::values;
use crate::brain::{Passed, check_laws, is_subset, pass};

/// What reconciliation, the grant and the plan can find; every other code is of `lint`, of the hook that works alone, or
/// of the host's CDI specifications.
const OF_PLANS: [Code; 19] = [
    Code::OverrideMatchesNothing,
    Code::OverrideExceedsGrant,
    Code::HostIndexOverride,
    Code::AmbiguousIndex,
    Code::DuplicateEntries,
    Code::NotACudaValue,
    Code::MalformedValue,
    Code::DisabledByOverride,
    Code::ImageDefaultYields,
    Code::ImageRequestIgnored,
    Code::NothingGranted,
    Code::UnknownDevice,
    Code::NoSelection,
    Code::RequestUnreadable,
    Code::Withheld,
    Code::CannotNarrow,
    Code::OneMigDevice,
    Code::DeviceOrderChanged,
    Code::DeviceOrderMixed,
];

/// The fewest cases in a hundred that a code occurs in.
const LEAST: f64 = 1.0;

/// What somebody types who knows what there is: GPUs of this host, and a value in one of the ways of writing one.
#[derive(Clone, Copy, Debug)]
struct Typed {
    /// Which GPUs.
    bits: u8,
    /// Where among them the value begins.
    first: usize,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Inside,
    OnHost,
    Twice,
    All,
    Quoted,
    Beyond,
    Uuids,
    Hidden,
    /// Nothing is typed, and the image has nothing.
    Unset,
    /// Nothing is typed, and the image has a value.
    Image,
    /// No GPU is asked for.
    NoGpu,
}

fn cases() -> impl Strategy<Value = (Case, Option<String>)> {
    use How::{All, Beyond, Hidden, Image, Inside, NoGpu, OnHost, Quoted, Twice, Unset, Uuids};
    let how = select(vec![
        Inside, OnHost, OnHost, Twice, Twice, All, All, Quoted, Beyond, Uuids, Hidden, Unset, Image, NoGpu,
    ]);
    let typed = (1..=u8::MAX, 0..8_usize, how).prop_map(|(bits, first, how)| Typed { bits, first, how });
    let odd = select((0..40_u32).collect::<Vec<_>>());
    (files::cases(), odd, prop::option::weighted(0.5, typed), prop::option::weighted(0.5, values())).prop_map(
        |(mut case, odd, typed, exec)| {
            if let Some(typed) = typed {
                type_it(&mut case, typed);
            }
            match odd {
                // A host of which nothing can be chosen.
                0 | 1 => case.world.inventory.platform = Platform::Wsl2,
                // The engine's record is gone, and its hook says that there was one.
                2 | 3 => {
                    case.world.facts.engine = Engine::Docker;
                    case.world.facts.device_requests = Requests::Unknown("a reason".to_owned());
                }
                _ => {}
            }
            (case, exec)
        },
    )
}

/// `docker run --gpus … -e CUDA_VISIBLE_DEVICES=…` by a person, in place of what nobody would type.
fn type_it(case: &mut Case, typed: Typed) {
    let gpus = &case.world.inventory.gpus;
    let chosen: Vec<_> =
        gpus.iter().enumerate().filter(|(at, _)| typed.bits & (1 << (at % 8)) != 0).map(|(_, gpu)| gpu).collect();
    let Some(first) = chosen.get(typed.first % chosen.len().max(1)) else { return };
    let hosts: Vec<String> = chosen.iter().map(|gpu| gpu.index.to_string()).collect();
    let position = typed.first % chosen.len();
    let value = match typed.how {
        How::Inside => format!("{},{position}", chosen.len() - 1 - position),
        How::OnHost => first.index.to_string(),
        How::Twice => format!("{position},{position}"),
        How::All => "all".to_owned(),
        How::Quoted => format!("\"{position}\""),
        How::Beyond => format!("{position},{}", chosen.len() + 10),
        How::Uuids => first.uuid.to_string(),
        How::Hidden => String::new(),
        How::Unset | How::Image | How::NoGpu => "0".to_owned(),
    };
    let facts = &mut case.world.facts;
    let request = |ids| DockerDeviceRequest {
        driver: String::new(),
        count: 0,
        device_ids: ids,
        capabilities: vec![vec!["gpu".to_owned()]],
    };
    facts.engine = Engine::Docker;
    let is_asked = !matches!(typed.how, How::NoGpu);
    facts.device_requests = Requests::Known(if is_asked { vec![request(hosts)] } else { Vec::new() });
    let value = format!("{}={value}", Variables::NAMES[0]);
    let image = facts.image_env.get_or_insert_default();
    image.retain(|entry| !entry.starts_with("CUDA_VISIBLE_DEVICES="));
    let mut env = Vec::new();
    match typed.how {
        How::Unset => {}
        How::Image => image.push(value),
        _ => env.push(value),
    }
    let key = |entry: &String| entry.split_once('=').map(|(key, _)| key.to_owned());
    for entry in image.iter() {
        // As dockerd does.
        if !env.iter().any(|there| key(there) == key(entry)) {
            env.push(entry.clone());
        }
    }
    case.config["process"]["env"] = json!(env);
    facts.config_env = Some(env);
}

/// What was found in how many cases.
type Counts = BTreeMap<Code, u32>;

#[test]
fn no_environment_makes_a_device_visible() {
    let count = std::env::var("CUDAVIEW_PROPERTY_CASES").map_or(3000, |count| count.parse().expect("a number"));
    let threads = std::thread::available_parallelism().map_or(1, |threads| u32::try_from(threads.get()).unwrap());
    let start = std::time::Instant::now();
    let parts: Vec<_> = (0..threads).map(|at| std::thread::spawn(move || run((count + at) / threads))).collect();
    let mut found = Counts::new();
    for (code, cases) in parts.into_iter().flat_map(|part| part.join().expect("a law is broken")) {
        *found.entry(code).or_default() += cases;
    }
    println!("{count} containers in {:.0?}, none of which sees a GPU that it was not given", start.elapsed());
    // Of a few thousand cases a share cannot be told; there every code is to occur at all.
    let least = if count < 100_000 { f64::MIN_POSITIVE } else { LEAST };
    let mut rare = Vec::new();
    for code in Code::ALL {
        let share = 100.0 * f64::from(found.get(code).copied().unwrap_or_default()) / f64::from(count);
        let is_of_plans = OF_PLANS.contains(code);
        if share > 0.0 || is_of_plans {
            println!("{share:6.2} %  {}", code.name());
        }
        assert!(is_of_plans || share == 0.0, "{} is one of a plan's findings", code.name());
        if is_of_plans && share < least {
            rare.push(code.name());
        }
    }
    assert!(rare.is_empty(), "found in less than {least} % of the cases: {rare:?}");
}

/// So many containers.
fn run(cases: u32) -> Counts {
    let found: RefCell<Counts> = RefCell::default();
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&self::cases(), |(case, exec)| {
        let (passed, findings) = container(&case, exec.as_deref()).map_err(TestCaseError::fail)?;
        image_adds_nothing(&case, &passed).map_err(TestCaseError::fail)?;
        let codes: BTreeSet<Code> = findings.iter().map(|finding| finding.code).collect();
        for code in codes {
            *found.borrow_mut().entry(code).or_default() += 1;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    found.into_inner()
}

/// A container, and a process that is added to it.
fn container(case: &Case, exec: Option<&str>) -> Result<(Passed, Vec<Finding>), String> {
    let passed = pass(&case.config, &case.world);
    let inventory = &case.world.inventory;
    check_laws(inventory, &passed.situation, &passed.plan)?;
    within_the_grant(case, &passed)?;
    let mut findings = passed.plan.findings.clone();
    if matches!(passed.plan.verdict, Verdict::Consistent | Verdict::Rewritten)
        && let Some(value) = exec
    {
        let record = passed.plan.record(inventory, &passed.situation);
        let part = record.inventory();
        let current = Variables { visible_devices: Some(value.to_owned()), ..passed.situation.original.clone() };
        let added = plan_exec(&record, &part, &current, &case.world.config);
        let visible: Vec<&str> = added.visible.iter().map(|device| part.uuid(*device)).collect();
        let openable: Vec<&str> = passed.plan.openable().iter().map(|device| inventory.uuid(*device)).collect();
        if let Some(more) = visible.iter().find(|uuid| !openable.contains(uuid)) {
            return Err(format!("exec shows {more}, which the container cannot open"));
        }
        findings.extend(added.findings);
    }
    Ok((passed, findings))
}

/// What can be opened with this file, by its nodes, its mounts and its rules alone.
fn reachable(config: &Value, case: &Case, mounts: &[(usize, cudaview::device::DeviceNumber)]) -> Vec<Device> {
    let spec = Spec::new(config).expect("a configuration");
    let inventory = &case.world.inventory;
    let rules = spec.rules();
    let nodes = spec.nodes().into_iter().map(|node| node.number).chain(mounts.iter().map(|(_, number)| *number));
    let open = nodes.filter(|number| case.world.host.rootless || allowed(rules.iter().copied(), *number));
    let numbers: Vec<_> = open.collect();
    let has = |device: &Device| {
        let parts = inventory.mig(*device).map_or(&[][..], |mig| &mig.capability_nodes);
        let gpu = cudaview::device::DeviceNumber::gpu(inventory.gpu(*device).minor);
        numbers.contains(&gpu) && parts.iter().all(|node| numbers.contains(&node.number))
    };
    inventory.all_devices().into_iter().filter(has).collect()
}

/// Nothing that can be opened afterwards was neither granted nor open to everybody before.
fn within_the_grant(case: &Case, passed: &Passed) -> Result<(), String> {
    let granted = &passed.plan.grant.devices;
    if passed.plan.verdict == Verdict::Refused {
        return if passed.after == case.config { Ok(()) } else { Err("refused, and changed".to_owned()) };
    }
    let mounts = files::mounts_of(case, passed).mount_numbers;
    let after = reachable(&passed.after, case, &mounts);
    let entitled = if passed.plan.verdict == Verdict::NotApplicable {
        // Nobody asked us: what the file had stays, and nothing comes.
        reachable(&case.config, case, &case.world.host.mount_numbers)
    } else {
        [granted.clone(), passed.situation.openable_anyway.clone()].concat()
    };
    if !is_subset(&after, &entitled) {
        return Err(format!("{after:?} can be opened, {entitled:?} may be"));
    }
    // Whoever injects after us goes by the variable, and by nothing that an image wrote.
    let injects = passed.situation.injection == Injection::Nvidia && case.world.inventory.platform.is_usual();
    if let (true, Some(value)) = (injects, &passed.plan.emitted.nvidia_visible_devices) {
        let asked = parse_visible_devices(value).resolve(&case.world.inventory).devices;
        let is_void = passed.plan.verdict == Verdict::NotApplicable && !passed.situation.injector_follows;
        if !is_void && !is_subset(&asked, granted) {
            return Err(format!("NVIDIA's injector is told {value:?}, {granted:?} was granted"));
        }
    }
    Ok(())
}

/// The same container of an image that has no environment is granted at least as much.
fn image_adds_nothing(case: &Case, passed: &Passed) -> Result<(), String> {
    let trusts = case.world.config.grant.image_request == ImageRequest::Honour
        || case.world.config.grant.unknown_request == UnknownRequest::User;
    let Some(image) = case.world.facts.image_env.clone().filter(|_| !trusts) else { return Ok(()) };
    let mut bare = case.clone();
    let env = bare.world.facts.config_env.take().unwrap_or_default();
    // Whose an entry is that both have, nobody can say.
    let own = users_own(&env, &image).filter(|user| !user.iter().any(|entry| image.contains(entry)));
    let Some(user) = own else { return Ok(()) };
    bare.config["process"]["env"] = json!(user);
    bare.world.facts.config_env = Some(user);
    bare.world.facts.image_env = Some(Vec::new());
    let without = pass(&bare.config, &bare.world).plan.grant;
    if passed.plan.grant.refused || without.refused || case.world.config.inject == Inject::Nvidia {
        return Ok(());
    }
    if is_subset(&passed.plan.grant.devices, &without.devices) {
        return Ok(());
    }
    Err(format!("the image {image:?} gets {:?}, without it {:?}", passed.plan.grant.devices, without.devices))
}

/// The user's entries, which Docker stores first: the fewest behind which there is just what is left of the image's.
fn users_own(env: &[String], image: &[String]) -> Option<Vec<String>> {
    let key = |entry: &String| entry.split_once('=').map(|(key, _)| key.to_owned());
    (0..=env.len()).map(|count| &env[..count]).find_map(|user| {
        let mut all = user.to_vec();
        for entry in image {
            if user.is_empty() || !all.iter().any(|there| key(there) == key(entry)) {
                all.push(entry.clone());
            }
        }
        (all == env).then(|| user.to_vec())
    })
}

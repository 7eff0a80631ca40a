//! The configuration file: a key that is not known is an error, and no file that is read gives away what its own limits
//! withhold. A byte chooses the host.
#![no_main]

use cudaview::config::{Base, BaseWord, Config, ImageRequest, UnknownRequest};
use cudaview::plan::plan;
use cudaview::provenance::Provenance;
use cudaview::record::Variables;
use cudaview::request::{DeviceRequest, Selection, Source};
use cudaview::situation::Situation;
use cudaview_fuzz::{choices, host};

#[allow(dead_code)]
#[path = "../../it/brain.rs"]
mod brain;
use brain::check_laws;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(([of_host], text)) = choices(data) else { return };
    let config = match Config::parse(text) {
        Ok(config) => config,
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && !said.contains('\n'), "one line: {said:?}");
            return;
        }
    };
    // What is not a member of the file is none in any place.
    assert_eq!(Config::parse(&format!("{text}\n# a comment\n")).ok().as_ref(), Some(&config));
    assert!(Config::parse(&format!("unknown_key = 1\n{text}")).is_err());
    assert!(Config::parse(&format!("{text}\n[unknown_table]\n")).is_err());
    assert!(config.dev_root.starts_with('/') && !config.low_level_runtime.is_empty());

    let inventory = host(of_host);
    let never = Selection::Names(config.limit.never.clone()).resolve(&inventory).devices;
    let most = config.limit.max_devices.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    let asked = [Some(Source::Gpus), Some(Source::Cdi), None];
    for (source, from) in asked.into_iter().zip([Provenance::User, Provenance::Image, Provenance::Image]) {
        let current = Variables {
            visible_devices: Some("1".to_owned()),
            nvidia_visible_devices: Some("all".to_owned()),
            ..Variables::default()
        };
        let situation = Situation {
            requests: source.map(|source| DeviceRequest { source, selection: Selection::All }).into_iter().collect(),
            visible_devices_request: current.nvidia_visible_devices.clone(),
            visible_devices_from: from,
            provenance: from,
            original: current.clone(),
            current,
            ..Situation::blank()
        };
        let decided = plan(&inventory, &situation, &config);
        if let Err(broken) = check_laws(&inventory, &situation, &decided) {
            panic!("{broken}");
        }
        assert!(!decided.grant.devices.iter().any(|device| never.contains(device)), "never is never");
        assert!(decided.grant.devices.len() <= most);
        let trusts_images = config.grant.image_request == ImageRequest::Honour
            || config.grant.unknown_request == UnknownRequest::User
            || config.grant.base != Base::Word(BaseWord::None);
        if source.is_none() && from == Provenance::Image && !trusts_images {
            assert!(decided.grant.devices.is_empty(), "an image grants nothing");
        }
    }
});

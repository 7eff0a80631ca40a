use super::*;

#[test]
fn entries_are_read_as_strtol_reads_them() {
    let kind = |text| Entry::parse(text).kind;
    let index = |value, trailing| EntryKind::Index { value, trailing };
    assert_eq!(kind("3"), index(3, false));
    assert_eq!(kind("+3"), index(3, false));
    assert_eq!(kind("-0"), index(0, false));
    assert_eq!(kind("02"), index(2, false));
    assert_eq!(kind("0-2"), index(0, true));
    assert_eq!(kind("0x1"), index(0, true));
    assert_eq!(kind("1.5"), index(1, true));
    assert_eq!(kind("99999999999"), index(u32::MAX, false));
    assert_eq!(kind("-1"), EntryKind::Garbage);
    assert_eq!(kind("two"), EntryKind::Garbage);
    assert_eq!(kind(""), EntryKind::Garbage);
    assert_eq!(kind("GPU-a"), EntryKind::Gpu);
    assert_eq!(kind("gpu-a"), EntryKind::Garbage);
}

#[test]
fn values_that_hide_every_gpu() {
    for text in ["", "  ", "-1", "-1,0", "-2", "none", "NONE", "void", "NoDevFiles", "nodevfiles,0", "\"\"", "'-1'"] {
        assert_eq!(Value::parse(text).meaning, Meaning::Hidden, "{text:?}");
    }
    for text in ["0", "-0", "0,-1", ",0", "nothing", "all"] {
        assert_ne!(Value::parse(text).meaning, Meaning::Hidden, "{text:?}");
    }
}

#[test]
fn quotes_and_trailing_commas() {
    let list = |text: &str| match Value::parse(text).meaning {
        Meaning::List(entries) => entries.into_iter().map(|entry| entry.text).collect::<Vec<_>>(),
        other => panic!("{text:?} is {other:?}"),
    };
    assert_eq!(list("\"0, 1\""), ["0", "1"]);
    assert!(Value::parse("'0'").quoted);
    assert!(!Value::parse("\"0'").quoted);
    assert_eq!(list("1,"), ["1"]);
    assert_eq!(list("0,,1"), ["0", "", "1"]);
    assert_eq!(list("all,0"), ["all", "0"]);
    assert_eq!(Value::parse(" ALL ").meaning, Meaning::All);
}

/// GPUs of these models, with multiprocessors where they are known.
fn host(models: &[(&str, Option<u32>)]) -> Inventory {
    let gpu = |(index, (name, multiprocessors)): (usize, &(&str, Option<u32>))| {
        let count = multiprocessors.map_or_else(String::new, |count| format!(r#""multiprocessors":{count},"#));
        format!(r#"{{"index":{index},"minor":{index},{count}"name":"{name}","uuid":"GPU-{index}"}}"#)
    };
    let gpus: Vec<String> = models.iter().enumerate().map(gpu).collect();
    let text = format!(r#"{{"schemaVersion":1,"driverVersion":"550.1","gpus":[{}]}}"#, gpus.join(","));
    Inventory::from_json(text.as_bytes()).expect("an inventory")
}

#[test]
fn the_order_of_models_that_nobody_knows_is_a_guess() {
    let check = |models: &[(&str, Option<u32>)], value: Option<&str>, order: Option<&str>, certain: bool| {
        let inventory = host(models);
        let prediction = predict(&inventory, &inventory.all_devices(), value, order);
        assert_eq!(prediction.certain, certain, "{models:?} {value:?} {order:?}: {prediction:?}");
        assert_eq!(prediction.certain, prediction.notes.is_empty(), "{prediction:?}");
    };
    let differing: [&[(&str, Option<u32>)]; 3] =
        [&[("A", None), ("B", None)], &[("A", Some(82)), ("B", None)], &[("A", Some(82)), ("A", Some(84))]];
    for models in [&differing[..], &[&[("", None), ("", None)]]].concat() {
        for (value, certain) in [(None, false), (Some("0"), false), (Some("1,0"), false), (Some("GPU-1"), true)] {
            check(models, value, None, certain);
            check(models, value, Some("FASTEST_FIRST"), certain);
            check(models, value, Some("PCI_BUS_ID"), true);
        }
    }
    check(&[("A", None), ("A", None)], None, None, true);
    check(&[("", None)], None, None, true);
}

#[test]
fn what_nobody_knows_is_not_certain() {
    let inventory = host(&[("A", Some(1)), ("A", Some(1))]);
    let check = |value: &str, order: Option<&str>, certain: bool| {
        let prediction = predict(&inventory, &inventory.all_devices(), Some(value), order);
        assert_eq!(prediction.certain, certain, "{value:?} {order:?}: {prediction:?}");
        assert!(certain || !prediction.notes.is_empty(), "{prediction:?}");
    };
    for value in [
        " GPU-1",
        "GPU-1 ",
        "GPU-1\n",
        "GPU-1, GPU-0",
        "GPU-1 ,GPU-0",
        "++0",
        "+-0",
        "--1",
        "-",
        "+",
        "0,-",
        "0,++1",
        "-4294967296",
        "-2147483648",
        "2147483648",
        "99999999999999999999999",
        "-99999999999999999999999",
        "+1",
    ] {
        check(value, None, false);
    }
    for value in ["GPU-1", "-1", "-2147483647", "0,-1", " 1", "1 ", "2147483647", "", "0,+1", "none", "x-1"] {
        check(value, None, true);
    }
    for order in [" PCI_BUS_ID", "PCI_BUS_ID ", "\tPCI_BUS_ID"] {
        check("1", Some(order), false);
        check("GPU-1", Some(order), true);
    }
}

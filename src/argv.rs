//! The runtime's command line, read and never changed.

/// The value of a long option in a list of arguments: `--name VALUE` or `--name=VALUE`; the last one counts.
pub fn option<'a>(args: &[&'a str], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if *arg == name {
            found = args.next().copied();
        } else if let Some(value) = arg.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            found = Some(value);
        }
    }
    found
}

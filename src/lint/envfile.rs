//! The file of a `docker run --env-file`.

use super::values::{Assignment, check};
use super::{Fault, unsilenced};

/// The faults of such a file, without those that comments silence. A value stands as it is there, quotes included.
// docker/cli pkg/kvfile/kvfile.go
pub fn env_file(text: &str) -> Vec<Fault> {
    let mut out = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let entry = line.trim_end_matches(['\n', '\r']);
        let start = at + (entry.len() - entry.trim_start().len());
        let span = start..at + entry.len();
        at += line.len();
        let entry = entry.trim_start();
        let Some((name, value)) = entry.split_once('=').filter(|_| !entry.starts_with('#')) else { continue };
        let value = Some(value.to_owned());
        out.extend(check(&Assignment { name: name.to_owned(), value, span, statement: start }, false));
    }
    unsilenced(text, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_part_of_a_value() {
        let text = "# CUDA_VISIBLE_DEVICES=all\nA=1\n  CUDA_VISIBLE_DEVICES=\"0,1\"\r\nNVIDIA_VISIBLE_DEVICES\n";
        let found = env_file(text);
        let shown: Vec<(&str, &str)> = found.iter().map(|f| (f.code.name(), &text[f.span.clone()])).collect();
        assert_eq!(shown, [("malformed-value", "CUDA_VISIBLE_DEVICES=\"0,1\"")]);
        assert_eq!(env_file("# cudaview: ignore=not-a-cuda-value\nCUDA_VISIBLE_DEVICES=all\n"), []);
    }
}

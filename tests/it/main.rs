mod docker_provenance;

#[test]
fn x() {}

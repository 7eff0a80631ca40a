//! The bug, under plain runc: the specification that a GPU host's engine writes, without cudaview.
//!
//! These tests do not run this project's programs. They say what a user gets today, and that the harness can see it.

use crate::world::{A100X4, Access, Bundle, CUDA_ERROR_NO_DEVICE, CgroupView, find_program, require, spec, uuids};

/// GPUs 1 and 3 of four are granted, and this is the value of the variable.
#[track_caller]
fn check(value: &str, error: i64, cuda: &[usize]) {
    let bundle = granted(&[&format!("CUDA_VISIBLE_DEVICES={value}")]);
    let count = bundle.count();
    let all = uuids(A100X4);
    let expected: Vec<String> = cuda.iter().map(|host| all[*host].clone()).collect();
    assert_eq!((count.cuda_error, &count.cuda), (error, &expected), "CUDA_VISIBLE_DEVICES={value}");
    assert_eq!(count.nvml, [all[1].clone(), all[3].clone()], "nvidia-smi does not read the variable");
    assert_eq!(count.env["CUDA_VISIBLE_DEVICES"], value);
}

fn granted(env: &[&str]) -> Bundle {
    require(&["runc"]);
    let bundle = Bundle::new(A100X4, &["gpu-count", "--json"], env);
    bundle.edit(|spec| spec::grant_nodes(spec, &[1, 3]));
    bundle
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn container_numbers_work() {
    check("0,1", 0, &[1, 3]);
    check("1,0", 0, &[3, 1]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn host_numbers_give_one_gpu_of_two() {
    check("1,3", 0, &[3]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn host_numbers_in_another_order_give_no_gpu() {
    check("3,1", CUDA_ERROR_NO_DEVICE, &[]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_host_number_past_the_end_gives_no_gpu() {
    check("3", CUDA_ERROR_NO_DEVICE, &[]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_host_number_within_the_count_gives_the_wrong_gpu() {
    check("1", 0, &[3]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn an_image_default_gives_one_gpu_of_two() {
    check("0", 0, &[1]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn all_is_not_a_cuda_value() {
    check("all", CUDA_ERROR_NO_DEVICE, &[]);
}

/// Which error CUDA gives here is not documented, and there is no GPU in any case.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_repeated_entry_gives_no_gpu() {
    let count = granted(&["CUDA_VISIBLE_DEVICES=0,0"]).count();
    assert!(count.cuda_error != 0 && count.cuda.is_empty(), "{count:?}");
    assert_eq!(count.nvml.len(), 2, "{count:?}");
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn values_that_hide_every_gpu() {
    check("", CUDA_ERROR_NO_DEVICE, &[]);
    check("-1", CUDA_ERROR_NO_DEVICE, &[]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_list_ends_at_its_first_invalid_entry() {
    check("0,7,1", 0, &[1]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn uuids_mean_the_same_everywhere() {
    check(&uuids(A100X4)[3], 0, &[3]);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn without_the_variable_all_granted_gpus_are_there() {
    let all = uuids(A100X4);
    let count = granted(&[]).count();
    assert_eq!((count.cuda_error, count.cuda), (0, vec![all[1].clone(), all[3].clone()]));
    assert!(!count.env.contains_key("CUDA_VISIBLE_DEVICES"), "{:?}", count.env);
}

#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn without_a_grant_there_is_no_gpu() {
    require(&["runc"]);
    let count = Bundle::new(A100X4, &["gpu-count", "--json"], &["CUDA_VISIBLE_DEVICES=0"]).count();
    assert_eq!((count.cuda_error, count.cuda), (CUDA_ERROR_NO_DEVICE, vec![]));
    assert!(count.nvml.is_empty(), "{:?}", count.nvml);
}

/// A `createRuntime` hook cannot help with the environment: runc has read it by then.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn exec_sees_the_same_wrong_numbers() {
    require(&["runc"]);
    let all = uuids(A100X4);
    let bundle = Bundle::new(A100X4, &["sleep", "1000"], &["CUDA_VISIBLE_DEVICES=1,3"]);
    bundle.edit(|spec| spec::grant_nodes(spec, &[1, 3]));
    bundle.up();
    assert_eq!(bundle.exec_count(&[]).cuda, [all[3].clone()]);
    assert_eq!(bundle.exec_count(&["CUDA_VISIBLE_DEVICES=0"]).cuda, [all[1].clone()]);
    assert_eq!(bundle.exec_count(&["CUDA_VISIBLE_DEVICES=3"]).cuda_error, CUDA_ERROR_NO_DEVICE);
}

/// The device rules are real here: making a node is allowed, opening it is not.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn a_gpu_that_was_not_granted_cannot_be_opened() {
    blocks_gpu_0(CgroupView::Machine);
    blocks_gpu_0(CgroupView::OnlyV2);
}

#[track_caller]
fn blocks_gpu_0(view: CgroupView) {
    require(&["runc"]);
    let bundle = Bundle::new(A100X4, &["sleep", "1000"], &[]).seeing(view);
    bundle.edit(|spec| spec::grant_nodes(spec, &[1, 3]));
    bundle.up();
    assert_eq!(bundle.try_mknod(0), Access::Blocked, "{view:?}");
    assert_eq!(bundle.try_mknod(3), Access::Openable, "{view:?}");
}

/// The other low-level runtime does the same.
#[test]
#[ignore = "needs root and engines: sudo tests/run"]
fn crun_shows_the_bug_too() {
    require(&["crun"]);
    let all = uuids(A100X4);
    let env = ["CUDA_VISIBLE_DEVICES=1,3"];
    let bundle = Bundle::with_runtime(&find_program("crun"), A100X4, &["gpu-count", "--json"], &env);
    let bundle = bundle.seeing(CgroupView::WithoutUnified);
    bundle.edit(|spec| spec::grant_nodes(spec, &[1, 3]));
    assert_eq!(bundle.count().cuda, [all[3].clone()]);
}

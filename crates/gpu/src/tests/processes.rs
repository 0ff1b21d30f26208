//! What depends on a process's surroundings: tests that run themselves again in a process of their own.

use std::process::Command;

use kernels::Backend;

use super::faults::assert_failed;
use crate::test_rig::{index, rig};
use crate::{AdapterKind, Gpu, GpuError, adapters};

/// Runs test `name` in a process of its own, where [`is_child`], under `shell` words.
fn child(name: &str, shell: &str, variables: &[(&str, &str)]) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell} exec \"$0\" \"$@\"")]).arg(program);
    command.args(["--exact", &format!("tests::processes::{name}"), "--nocapture"]);
    command.env("FLASH_MOE_TEST_CHILD", name).envs(variables.iter().copied());
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("1 passed"), "{name}:\n{text}");
}

fn is_child(name: &str) -> bool {
    std::env::var_os("FLASH_MOE_TEST_CHILD").is_some_and(|child| child == name)
}

#[test]
fn without_a_driver_there_is_no_gpu() {
    // Breaks if a machine without a driver cannot even list its GPUs.
    const NAME: &str = "without_a_driver_there_is_no_gpu";
    if is_child(NAME) {
        assert!(adapters().is_empty());
        assert!(matches!(Gpu::open(None), Err(GpuError::None)));
        assert!(matches!(Gpu::open(Some(0)), Err(GpuError::None)));
        return;
    }
    let nowhere = "/nonexistent/driver.json";
    child(NAME, "", &[("VK_ICD_FILENAMES", nowhere), ("VK_DRIVER_FILES", nowhere)]);
}

#[test]
fn memory_that_is_exhausted_is_an_error() {
    // Breaks if the driver's refusal of more memory is a panic, or results go on without that memory.
    const NAME: &str = "memory_that_is_exhausted_is_an_error";
    if !is_child(NAME) {
        if adapters().first().is_some_and(|best| best.kind == AdapterKind::Emulated) {
            // Memory of an emulated device is that of the process.
            return child(NAME, "ulimit -v 8388608;", &[]);
        }
        eprintln!("SKIPPED: the memory of a real device is not exhausted for a test");
        return;
    }
    let gpu = Gpu::open_untested(index()).unwrap();
    let held: Vec<_> = (0..16).map(|_| gpu.zeros(1 << 28)).take_while(|_| gpu.failure().is_none()).collect();
    assert!(held.len() < 16, "16 GiB of 8");
    assert_failed(&gpu, "its memory is exhausted");
}

#[test]
fn the_self_test_can_be_switched_off() {
    // Breaks if a user with a wrong refusal has no way around it.
    const NAME: &str = "the_self_test_can_be_switched_off";
    if rig().is_none() {
        return;
    }
    if !is_child(NAME) {
        return child(NAME, "", &[("FLASH_MOE_GPU_SELFTEST", "off")]);
    }
    assert!(Gpu::open(index()).unwrap().context.kernels().is_empty(), "a kernel has run");
}

//! What kind of machine this is: names and temperatures, as far as the system tells without asking for rights.

use std::fs;
use std::path::{Path, PathBuf};

/// The processor's name.
pub(super) fn cpu_name() -> String {
    let from_proc = || {
        let text = fs::read_to_string("/proc/cpuinfo").ok()?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.split_once(": "));
        value("model name").or_else(|| value("Model")).map(|(_, name)| name.trim().to_owned())
    };
    let from_sysctl = || {
        let out = std::process::Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output();
        let out = out.ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let from_registry = || {
        let key = r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0";
        let out =
            std::process::Command::new("reg").args(["query", key, "/v", "ProcessorNameString"]).output();
        let text = String::from_utf8_lossy(&out.ok()?.stdout).into_owned();
        text.lines().find_map(|line| Some(line.split_once("REG_SZ")?.1.trim().to_owned()))
    };
    let found = match std::env::consts::OS {
        "macos" => from_sysctl(),
        "windows" => from_registry(),
        _ => from_proc(),
    };
    found.filter(|name| !name.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// A part that is so hot that it slows itself down: its name and degrees Celsius.
pub(super) fn too_hot() -> Option<(&'static str, i64)> {
    entries("/sys/class/hwmon").into_iter().find_map(|sensor| {
        let name = fs::read_to_string(sensor.join("name")).ok()?;
        let (part, limit) = match name.trim() {
            "nvme" => ("drive", 70),
            "coretemp" | "k10temp" | "zenpower" => ("processor", 90),
            _ => return None,
        };
        let text = fs::read_to_string(sensor.join("temp1_input")).ok()?;
        let degrees = text.trim().parse::<i64>().ok()? / 1000;
        (limit <= degrees).then_some((part, degrees))
    })
}

/// What is in a folder, by name; nothing if there is none.
fn entries(folder: &str) -> Vec<PathBuf> {
    let read = fs::read_dir(Path::new(folder)).into_iter().flatten();
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

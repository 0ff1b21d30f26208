//! What Metal compiles: naga's MSL of every kernel, as wgpu makes it, kept in `tests/golden/msl`.
//!
//! `FLASH_MOE_UPDATE_GOLDEN=1 cargo test -p flash-moe-gpu msl` writes the files anew. Kernels of cooperative matrices
//! are not among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use naga::back::msl;
use naga::back::pipeline_constants::process_overrides;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{ResourceBinding, ShaderStage};

use crate::kernel::{Access, Kernel};
use crate::ops::kernels;

/// Values of constants: where names of kernels start so, a constant's value. The first one that fits counts.
const CONSTANTS: [(&str, &str, u32); 26] = [
    ("delta_step", "COLUMNS", 128),
    ("delta_step", "N_THREAD", 512),
    ("delta", "N_CONV", 4),
    ("attention_prepare", "N_OWN", 1),
    ("attention_step", "N_QUAD", 1),
    ("attention_rows", "ROWS", 64),
    ("attention_rows", "COLUMNS", 4),
    ("attention_rows", "SLAB", 16),
    ("attention_rows", "N_THREAD", 256),
    ("attention", "FORMAT", 0),
    ("", "BITS", 4),
    ("", "GROUP", 64),
    ("", "HALF", 0),
    ("", "RUNS", 2),
    ("", "KIND", 2),
    ("", "STEP", 0),
    ("", "N_ROW", 8),
    ("", "N_QUAD", 2),
    ("", "TOKENS", 1),
    ("", "LANES", 32),
    ("", "THREADS", 128),
    ("", "TILE", 2048),
    ("", "DEPTH", 1),
    ("", "N_THREAD", 512),
    ("", "N_OWN", 4),
    ("", "TURNS", 1),
];
/// Of few tokens; what a workgroup keeps of them depends on how they are multiplied.
const STEP_CONSTANTS: [(&str, &str, u32); 3] =
    [(" dot", "TILE_VECTORS", 448), ("", "TILE_VECTORS", 512), ("", "ROWS", 2)];

/// Kernels of products and sums, where a multiply and an add in two steps would cost speed and precision.
const FMA: [&str; 9] = [
    "matmul",
    "experts",
    "embed",
    "attention_step",
    "attention_rows",
    "delta_mix",
    "delta_scan",
    "delta_step",
    "combine",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/msl")
}

fn constant(kernel: &str, name: &str) -> f64 {
    let starts = CONSTANTS.iter().find(|(start, n, _)| kernel.starts_with(start) && *n == name);
    let found =
        starts.or_else(|| STEP_CONSTANTS.iter().find(|(end, n, _)| kernel.ends_with(end) && *n == name));
    found.unwrap_or_else(|| panic!("a value of {name} for {kernel}")).2.into()
}

/// As wgpu-hal's Metal backend makes a trusted shader: immediates are buffer 0, bindings come behind.
fn msl_of(kernel: &Kernel) -> String {
    let name = kernel.name;
    let module = naga::front::wgsl::parse_str(&kernel.wgsl.concat())
        .unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string("")));
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    let info = validator.validate(&module).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let unset = module.overrides.iter().filter(|(_, over)| over.init.is_none());
    let constants = unset
        .filter_map(|(_, over)| over.name.clone())
        .map(|over| {
            let value = constant(name, &over);
            (over, value)
        })
        .collect();
    let entry = Some((ShaderStage::Compute, "main"));
    let (module, info) = process_overrides(&module, &info, entry, &constants).unwrap();
    let resources = kernel.access.iter().enumerate().map(|(binding, access)| {
        let target = msl::BindTarget {
            buffer: Some(1 + binding as u8),
            mutable: *access == Access::Write,
            ..msl::BindTarget::default()
        };
        (ResourceBinding { group: 0, binding: binding as u32 }, target)
    });
    let resources = msl::EntryPointResources {
        resources: resources.collect(),
        immediates_buffer: Some(0),
        sizes_buffer: Some(1 + kernel.access.len() as u8),
    };
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = msl::Options {
        lang_version: (3, 1),
        per_entry_point_map: [("main".to_owned(), resources)].into(),
        fake_missing_bindings: false,
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..msl::Options::default()
    };
    let pipeline = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".to_owned())),
        ..msl::PipelineOptions::default()
    };
    msl::write_string(&module, &info, &options, &pipeline).unwrap_or_else(|error| panic!("{name}: {error}")).0
}

/// Of every kernel that Metal gets without cooperative matrices, by name of its file.
fn all() -> BTreeMap<String, (&'static str, String)> {
    let plain = kernels().into_iter().filter(|kernel| !kernel.wgsl.concat().contains("enable f16;"));
    plain.map(|kernel| (kernel.name.replace(' ', "_") + ".metal", (kernel.name, msl_of(kernel)))).collect()
}

#[test]
fn kernels_become_the_msl_that_is_known() {
    // Breaks if a change of a kernel or of naga changes what Macs run without somebody looking at it.
    let (all, folder) = (all(), folder());
    if std::env::var_os("FLASH_MOE_UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        for entry in fs::read_dir(&folder).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (file, (_, text)) in &all {
            fs::write(folder.join(file), text).unwrap();
        }
    }
    for (file, (_, text)) in &all {
        let known = fs::read_to_string(folder.join(file)).unwrap_or_default();
        assert!(
            &known.replace("\r\n", "\n") == text,
            "{file} is not what naga makes of the kernel; FLASH_MOE_UPDATE_GOLDEN=1 writes it anew"
        );
    }
    let names = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let files: BTreeSet<String> = fs::read_dir(&folder).unwrap().map(|entry| names(entry.unwrap())).collect();
    assert_eq!(files, all.into_keys().collect::<BTreeSet<String>>(), "files of kernels that are no more");
}

#[test]
fn msl_has_neither_checks_nor_zeroing() {
    // Breaks if naga guards each access, counts each loop or clears workgroup memory, which costs a third of the speed,
    // or rounds twice where once is enough.
    for (file, (name, text)) in all() {
        for guard in ["_buffer_sizes.", "metal::min(unsigned(", "loop_bound", "naga_div", "naga_mod"] {
            assert!(!text.contains(guard), "{guard} in {file}");
        }
        // Variables of a thread may be cleared, memory of a workgroup not.
        let shared = text.lines().filter(|line| line.trim_start().starts_with("threadgroup "));
        let shared: Vec<&str> = shared.collect();
        assert!(shared.iter().all(|line| !line.contains("= {}")), "{file}: {shared:?}");
        assert!(!text.contains("__local_invocation_id == "), "workgroup memory is cleared in {file}");
        if FMA.iter().any(|start| name.starts_with(start)) {
            assert!(text.contains("metal::fma("), "no fma in {file}");
        }
    }
}

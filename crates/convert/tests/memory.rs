//! What packing and using take of memory and disk, for checkpoints of a size that would show it. Their experts are
//! holes.
#![cfg(target_os = "linux")]

#[path = "common/forms.rs"]
mod checkpoints;
mod common;

use std::fs;
use std::path::Path;

use checkpoints::usual_mlx;
use common::gguf::{File, Golden, string};
use common::*;
use convert::{Checkpoint, PackOptions, pack};
use serde_json::json;

/// More than this is a copy of the experts.
const BOUND_BYTES: u64 = 48 << 20;

fn is_expert(name: &str) -> bool {
    name.contains("mlp.experts.") || name.contains("switch_mlp")
}

/// Writes `tiny` with `n` times the experts.
fn write_with_holes(tiny: &Tiny, n: usize, dir: &Path) {
    let mut tiny = tiny.clone();
    tiny.text_config()["num_experts"] = json!(n * N_EXPERT);
    let (experts, mut dense): (Vec<TinyTensor>, Vec<TinyTensor>) =
        tiny.tensors.drain(..).partition(|tensor| is_expert(&tensor.name));
    for router in dense.iter_mut().filter(|tensor| tensor.name.contains("mlp.gate.")) {
        router.shape[0] *= n;
        router.values = router.values.repeat(n);
        router.bytes = router.bytes.repeat(n);
    }
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("config.json"), tiny.config.to_string()).unwrap();
    write_shard(&dir.join(shard_name(0, 2)), &dense);

    let (mut header, mut end) = (serde_json::Map::new(), 0);
    let mut add = |name: String, dtype: &str, shape: &[usize], bytes: usize| {
        header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": [end, end + bytes]}));
        end += bytes;
    };
    for TinyTensor { name, dtype, shape, values, bytes } in experts {
        let bytes = if bytes.is_empty() { 2 * values.len() } else { bytes.len() };
        match name.split_once("experts.").and_then(|(p, rest)| Some((p, rest.split_once('.')?))) {
            Some((p, (expert, rest))) if expert.bytes().all(|b| b.is_ascii_digit()) => {
                let expert: usize = expert.parse().unwrap();
                for copy in 0..n {
                    add(format!("{p}experts.{}.{rest}", copy * N_EXPERT + expert), dtype, &shape, bytes);
                }
            }
            _ => {
                let stacked = [&[n * shape[0]], &shape[1..]].concat();
                add(name, dtype, &stacked, n * bytes);
            }
        }
    }
    let header = container(&serde_json::Value::Object(header).to_string(), &[]);
    write_then_hole(&dir.join(shard_name(1, 2)), &header, end as u64);
}

fn write_then_hole(path: &Path, bytes: &[u8], hole_bytes: u64) {
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes.len() as u64 + hole_bytes).unwrap();
}

/// Writes a GGUF model with `n` times the experts.
fn write_gguf_with_holes(n: u64, dir: &Path) {
    let golden = Golden::read("q8_0");
    let (built, tensors) = (golden.files[0].build(), &golden.files[0].tensors);
    let mut file = File { keys: built.keys, ..File::default() };
    let key = string("qwen35moe.expert_count");
    file.keys.retain(|entry| !entry.starts_with(&key));
    file.u32("qwen35moe.expert_count", 6 * n as u32);
    let ends = built.infos[1..].iter().map(|(_, offset)| *offset as usize).chain([built.data.len()]);
    let (mut holes, mut hole_bytes) = (Vec::new(), 0);
    for ((tensor, (_, start)), end) in tensors.iter().zip(&built.infos).zip(ends) {
        let (mut dims, data) = (tensor.dims.clone(), &built.data[*start as usize..end]);
        if tensor.name.contains("_exps") {
            dims[2] *= n;
            holes.push((&tensor.name, dims, tensor.type_id, n * data.len() as u64));
        } else if tensor.name.ends_with("ffn_gate_inp.weight") {
            dims[1] *= n;
            file.tensor(&tensor.name, &dims, tensor.type_id, &data.repeat(n as usize));
        } else {
            file.tensor(&tensor.name, &dims, tensor.type_id, data);
        }
    }
    for (name, dims, type_id, bytes) in holes {
        file.tensor(name, &dims, type_id, &[]);
        file.infos.last_mut().unwrap().1 += hole_bytes;
        hole_bytes += bytes;
    }
    fs::create_dir_all(dir).unwrap();
    write_then_hole(&dir.join("model.gguf"), &file.bytes(), hole_bytes);
}

/// Most memory that the process has while it does `work`.
fn peak_bytes(work: impl FnOnce()) -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    work();
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Bytes of the files below a folder.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

#[test]
fn neither_memory_nor_disk_grow_with_the_model() {
    // A model that is larger than memory could not be packed or opened, or would need a second copy on the disk.
    for form in ["safetensors", "mlx", "fp8", "gguf"] {
        let dir = tempfile::tempdir().unwrap();
        let (source, outs) = (dir.path().join("in"), dir.path().join("out"));
        match form {
            "safetensors" => write_with_holes(&Tiny::new(QWEN35, 3), 256, &source),
            "mlx" => write_with_holes(&usual_mlx(QWEN35), 512, &source),
            "fp8" => write_with_holes(&Tiny::new(QWEN3, 9).to_fp8("BF16"), 256, &source),
            _ => write_gguf_with_holes(48, &source),
        }
        let checkpoint = Checkpoint::open(&source).unwrap();
        assert!(2 * BOUND_BYTES < checkpoint.weight_bytes(), "{form}: {}", checkpoint.weight_bytes());
        for bits in ["source", "3"] {
            let options = PackOptions { bits: bits.parse().unwrap(), ..PackOptions::default() };
            let out = outs.join(bits);
            let predicted = convert::predict_bytes(&checkpoint, &options).unwrap();
            let (mut most_bytes, mut n_step) = (0, 0);
            let peak = peak_bytes(|| {
                let mut look = |_| {
                    n_step += 1;
                    if n_step % 500 == 1 {
                        most_bytes = most_bytes.max(disk_bytes(&outs));
                    }
                };
                pack(&checkpoint, &out, &options, &mut look).unwrap();
            });
            println!("{form} in {bits} bits: {} bytes, peak {peak} of memory", checkpoint.weight_bytes());
            assert!(peak < BOUND_BYTES, "{form}: {peak} bytes of memory");
            // The list of what is finished is removed in the end.
            assert!(
                most_bytes < predicted + (1 << 20),
                "{form}: {most_bytes} bytes on the disk, not {predicted}"
            );
            assert!(disk_bytes(&out) <= predicted, "{form}: more than was said");
            fs::remove_dir_all(&outs).unwrap();
        }
        let before = disk_bytes(dir.path());
        let peak = peak_bytes(|| {
            let store = checkpoint.in_place().unwrap();
            let report = store.verify(&mut |_| ()).unwrap();
            assert!(report.problems.is_empty(), "{form}: {:?}", report.problems.first());
            store.load_dense(&mut |_| ()).unwrap();
        });
        println!("{form} in place: peak {peak}");
        assert!(peak < BOUND_BYTES, "{form} in place: {peak} bytes of memory");
        assert_eq!(disk_bytes(dir.path()), before, "{form} in place");
    }
}

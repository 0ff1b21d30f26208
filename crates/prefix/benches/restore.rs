//! How fast a checkpoint of 20 480 tokens comes back from the drive, beside what the drive delivers.
//! `cargo bench -p flash-moe-prefix --bench restore -- [FOLDER]`
//!
//! Shapes are those of Qwen3.5-397B-A17B: 30 KiB of keys and values a token in blocks of 256 tokens, 186 MiB of state.
//! The checkpoint is a chain of 1, then of 10 nodes. About 800 MiB are written below FOLDER (that of temporary
//! files) and removed. Reads go past the page cache, and what they bring is copied to where a session would have
//! it. The drive is measured with its best tuning, right before each restore.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prefix::{Disk, DiskLimits, Entry, Identity, Part, Shape};

const RUNS: usize = 5;
const N_TOKEN: usize = 20_480;
const N_BLOCK_TOKEN: usize = 256;
const SHAPE: Shape = Shape { kv_token_bytes: 30 << 10, state_bytes: 186 << 20, logits_bytes: 0 };
const MEASURE: Duration = Duration::from_secs(2);

fn main() {
    let folder = std::env::args().skip(1).find(|arg| arg != "--bench");
    let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
    for n_node in [1, 10] {
        let root = tempfile::tempdir_in(&folder).expect("a folder can be made");
        measure(root.path(), n_node);
    }
}

fn measure(root: &Path, n_node: usize) {
    let identity =
        Identity { fingerprint: 1, settings: "bench".into(), model: "shapes of 397B".into(), shape: SHAPE };
    let limits = DiskLimits {
        size_bytes: u64::MAX,
        daily_write_bytes: u64::MAX,
        expiry: Duration::from_secs(3600),
        free_bytes: 0,
    };
    let nodes = chain(&identity, n_node);
    let start = Instant::now();
    write(root, &identity, limits, &nodes);
    let write_secs = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let (disk, found) = Disk::open(root, &identity, limits).expect("the folder can be opened");
    assert_eq!(found.len(), n_node);
    let parts = nodes.iter().map(|node| (node.key, Part::Kv));
    let parts = parts.chain([(nodes[n_node - 1].key, Part::State)]);
    let parts: Vec<_> = parts.collect();
    let bytes = N_TOKEN * SHAPE.kv_token_bytes + SHAPE.state_bytes;
    println!(
        "{n_node} nodes, {} MiB: written in {write_secs:.1} s, opened in {:.1} ms",
        bytes >> 20,
        start.elapsed().as_secs_f64() * 1e3
    );
    let files = std::fs::read_dir(root.join(identity.root().hex())).expect("it is there");
    let files: Vec<PathBuf> = files.map(|entry| entry.expect("it can be listed").path()).collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let record_bytes = N_BLOCK_TOKEN * SHAPE.kv_token_bytes;
    let tuned = stream::tune(&files, record_bytes, 3 * MEASURE).expect("the drive can be read");
    println!("the drive wants {:?}", tuned.tuning);

    let mut session = vec![1; bytes];
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let drive = stream::measure_read_bandwidth(&files, record_bytes, tuned.tuning, MEASURE);
        let drive = drive.expect("the drive can be read");
        let start = Instant::now();
        let mut done = 0;
        let read = disk.read_parts(&parts, &mut |_, block| {
            session[done..done + block.len()].copy_from_slice(block);
            done += block.len();
            Ok(())
        });
        read.expect("what was written can be read");
        assert_eq!(done, bytes);
        let secs = start.elapsed().as_secs_f64();
        let restore = bytes as f64 / secs;
        println!(
            "drive {:.0} MB/s, restore {:.0} MB/s in {:.0} ms: {:.2}",
            drive / 1e6,
            restore / 1e6,
            secs * 1e3,
            restore / drive
        );
        ratios.push(restore / drive);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of {RUNS}: {:.2} of the drive's bandwidth", ratios[RUNS / 2]);
}

fn chain(identity: &Identity, n_node: usize) -> Vec<Entry> {
    let n_ids = N_TOKEN / n_node;
    let mut parent = identity.root();
    let node = |i| {
        let ids: Vec<u32> = (0..n_ids).map(|id| (i * n_ids + id) as u32).collect();
        let key = parent.child(&ids);
        let kv_bytes = Some((n_ids * SHAPE.kv_token_bytes) as u64);
        let state_bytes = Some(SHAPE.state_bytes as u64);
        let last_use = SystemTime::now();
        let node = Entry { key, parent, start: i * n_ids, ids, kv_bytes, state_bytes, last_use };
        parent = key;
        node
    };
    (0..n_node).map(node).collect()
}

/// Bytes that no drive compresses.
fn noise(n: usize, seed: &mut u64) -> Arc<[u8]> {
    let word = |_| {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        seed.to_le_bytes()
    };
    (0..n / 8).flat_map(word).collect()
}

/// All keys and values, and the state of the last node.
fn write(root: &Path, identity: &Identity, limits: DiskLimits, nodes: &[Entry]) {
    let (disk, _) = Disk::open(root, identity, limits).expect("the folder can be made");
    let mut seed = 1;
    for (i, node) in nodes.iter().enumerate() {
        let blocks = node.ids.chunks(N_BLOCK_TOKEN);
        let blocks = blocks.map(|ids| noise(ids.len() * SHAPE.kv_token_bytes, &mut seed)).collect();
        assert!(disk.write(node, Part::Kv, blocks), "{:?}", disk.take_warnings());
        if i + 1 == nodes.len() {
            let state = vec![noise(SHAPE.state_bytes, &mut seed)];
            assert!(disk.write(node, Part::State, state), "{:?}", disk.take_warnings());
        }
        disk.flush();
    }
    assert_eq!(disk.take_failed(), [], "{:?}", disk.take_warnings());
}

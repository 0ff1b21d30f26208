//! Moments against sums in f64, and files that lie.

use std::fs;

use store::{Architecture, LayerKind, LinearAttention};

use super::*;

/// Two layers, one of each kind; three experts.
fn config() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Qwen35Moe,
        d_model: 160,
        n_vocab: 32,
        n_ctx_train: 64,
        rms_norm_eps: 1e-6,
        layers: vec![LayerKind::LinearAttention, LayerKind::FullAttention],
        n_head: 2,
        n_head_kv: 1,
        head_dim: 32,
        attention_gate: true,
        n_rot: 8,
        rope_theta: 1e4,
        rope_scaling: None,
        linear: Some(LinearAttention {
            n_head_k: 1,
            n_head_v: 2,
            head_dim_k: 16,
            head_dim_v: 24,
            n_conv: 4,
            out_heads_tiled: false,
        }),
        n_expert: 3,
        n_expert_used: 2,
        norm_topk_prob: true,
        d_ff_expert: 32,
        d_ff_shared: 64,
        tie_word_embeddings: false,
    }
}

fn rows(n: usize, width: usize, seed: usize) -> Vec<f32> {
    (0..n * width).map(|i| ((i * 37 + seed * 11) % 29) as f32 / 7.0 - 2.0).collect()
}

/// Moments of everything but expert 2 of layer 1, which no token chose; expert 1 was chosen by few.
fn collected(block: usize) -> Imatrix {
    let config = config();
    let mut collector = ImatrixCollector::new(&config, block, true).unwrap();
    for (seed, (layer, input)) in Input::all(&config).enumerate() {
        let n = match (layer, input) {
            (Some(1), Input::Expert(2) | Input::ExpertDown(2)) => continue,
            (Some(1), Input::Expert(1) | Input::ExpertDown(1)) => 7,
            _ => 70,
        };
        let width = input.width(&config, layer);
        let rows = rows(n, width, seed);
        // In two calls, the second of which is no multiple of what is summed at a time.
        let (first, second) = rows.split_at(5 * width);
        collector.add(layer, input, second);
        collector.add(layer, input, first);
    }
    collector.finish(70)
}

/// Sums over the wrong columns, rows that are left out, blocks in another order.
#[test]
fn means_are_those_of_the_rows() {
    let (config, imatrix) = (config(), collected(128));
    for (seed, (layer, input)) in Input::all(&config).enumerate() {
        let moments = &imatrix.moments[place(&config, layer, input)];
        let width = input.width(&config, layer);
        let x = rows(moments.n_row as usize, width, seed);
        let mean = |i: usize, j: usize| {
            let sum: f64 = x.chunks_exact(width).map(|x| f64::from(x[i]) * f64::from(x[j])).sum();
            sum / (moments.n_row as f64).max(1.0)
        };
        let close = |got: f32, expected: f64| (f64::from(got) - expected).abs() < 1e-4;
        assert!((0..width).all(|i| close(moments.squares[i], mean(i, i))), "{layer:?} {input:?}");
        if matches!(input, Input::Expert(_)) {
            assert!(moments.products.is_empty());
            continue;
        }
        let mut products = &moments.products[..];
        for start in (0..width).step_by(128) {
            let n = 128.min(width - start);
            let (block, rest) = products.split_at(n * n);
            let fits = |at: usize| close(block[at], mean(start + at / n, start + at % n));
            assert!((0..n * n).all(fits), "{layer:?} {input:?} from column {start}");
            products = rest;
        }
        assert!(products.is_empty());
    }
    assert_eq!(imatrix.n_unseen(), (1, 1));
}

/// An expert that nobody chose is quantised as if its inputs were zero, or one that few chose by chance.
#[test]
fn the_layer_stands_in_for_rare_experts() {
    let imatrix = collected(0);
    let squares = |layer, input| match imatrix.weighting(Some(layer), input) {
        Weighting::Columns(columns) => columns,
        Weighting::Curvature(_) => panic!("no products were kept"),
    };
    let of = |layer, input| &imatrix.moments[place(&imatrix.config, Some(layer), input)].squares;
    assert_eq!(&squares(1, Input::Expert(2)), of(1, Input::Experts));
    let down = squares(1, Input::ExpertDown(2));
    let sums = [0, 1].map(|e| of(1, Input::ExpertDown(e)).iter().map(|&x| f64::from(x)).sum::<f64>());
    let mean = (70.0 * sums[0] + 7.0 * sums[1]) / 77.0 / 32.0;
    assert!(down.iter().all(|&x| (f64::from(x) - mean).abs() < 1e-5), "{down:?} {mean}");
    let mixed = squares(1, Input::Expert(1));
    for ((&mixed, &own), &layer) in mixed.iter().zip(of(1, Input::Expert(1))).zip(of(1, Input::Experts)) {
        assert!((mixed - (7.0 * own + 64.0 * layer) / 71.0).abs() < 1e-5, "{mixed} of {own} and {layer}");
    }
}

fn written(imatrix: &Imatrix) -> Vec<u8> {
    let mut bytes = Vec::new();
    imatrix.write(&mut bytes).unwrap();
    bytes
}

/// Something is read back that was not written.
#[test]
fn a_file_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("i");
    for block in [0, 128, 256] {
        let imatrix = collected(block);
        let bytes = written(&imatrix);
        assert!(bytes.len() as u128 > ImatrixCollector::bytes(&config(), block, true).unwrap());
        fs::write(&path, &bytes).unwrap();
        let read = Imatrix::read(&path).unwrap();
        assert!(read.moments == imatrix.moments && read.is_of(&config()) && read.n_token() == 70);
        assert_eq!(written(&read), bytes);
        assert_ne!(read.hash(), 0);
    }
}

/// A file that is cut, changed, or of something else: an error that names it, no panic, no memory for what it claims.
#[test]
fn damaged_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("i");
    let bytes = written(&collected(128));
    let header_len = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let refuse = |bytes: &[u8], says: &str| {
        fs::write(&path, bytes).unwrap();
        let error = Imatrix::read(&path).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(path.to_str().unwrap()), "{error}");
    };
    for len in [0, 7, 15, 40, 16 + header_len, bytes.len() - 1] {
        refuse(&bytes[..len], "");
    }
    let changed = |at: usize, by: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + by.len()].copy_from_slice(by);
        changed
    };
    refuse(&changed(0, b"X"), "no importance matrix");
    refuse(&changed(8, &[9]), "version 9");
    refuse(&changed(12, &u32::MAX.to_le_bytes()), "too long");
    refuse(&changed(16, b"x"), "header");
    let header = String::from_utf8(bytes[16..16 + header_len].to_vec()).unwrap();
    let with = |from: &str, to: &str| {
        let header = header.replace(from, to);
        let len = (header.len() as u32).to_le_bytes();
        [&bytes[..12], &len, header.as_bytes(), &bytes[16 + header_len..]].concat()
    };
    refuse(&with("\"n_expert\":3", "\"n_expert\":60000"), "its header calls for");
    refuse(&with("\"d_model\":160", "\"d_model\":1048576"), "its header calls for");
    refuse(&with("\"d_model\":160", "\"d_model\":0"), "d_model");
    refuse(&with("\"block\":128", "\"block\":100"), "multiple of 128");
    let numbers = 16 + header_len + 8;
    refuse(&changed(numbers, &f32::NAN.to_le_bytes()), "not finite");
    refuse(&changed(numbers, &(-1.0f32).to_le_bytes()), "negative");
    refuse(&changed(numbers, &123.0f32.to_le_bytes()), "checksum");
    refuse(&changed(bytes.len() - 1, &[bytes[bytes.len() - 1] ^ 1]), "checksum");
}

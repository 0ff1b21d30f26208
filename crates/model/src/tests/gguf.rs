//! Models in GGUF files, against the float64 reference on the weights that the `gguf` package decodes.

use std::path::Path;

use convert::{Bits, Checkpoint, PackOptions};
use kernels::Reference;
use store::Store;

use super::gguf_files::Golden;
use super::rig::*;
use crate::Engine;

/// Bound on a logit's error, relative to the spread of the logits.
const BOUND: f64 = 1e-3;

/// Ways of cutting the tokens into calls.
const CALLS: [&[usize]; 3] = [&[70], &[1], &[33, 1, 30, 6]];

/// Compares logits; those of all tokens in one call.
fn check_store(what: &str, golden: &Golden, store: &Store) -> Vec<Vec<f32>> {
    let mut engine = Setup::plain().engine(store);
    let check = |got: &[Vec<f32>], what: &str| {
        let got: Vec<_> = golden.positions.iter().map(|&at| got[at].clone()).collect();
        let diff = max_diff(&got, &golden.logits) / spread(&golden.logits);
        println!("{what}: off by {diff:.2e}");
        assert!(diff <= BOUND, "{what}: off by {diff:.2e}");
    };
    for calls in CALLS {
        let what = format!("{what}, in calls of {calls:?}");
        check(&logits_in_calls(&mut engine, &golden.ids, calls), &what);
    }
    let mut reference = Engine::load(store, Reference, Setup::plain().options(), &mut |_| {}).unwrap();
    let what = format!("{what}, by the scalar reference");
    check(&logits_in_calls(&mut reference, &golden.ids, &[70]), &what);
    logits_in_calls(&mut engine, &golden.ids, &[70])
}

/// Packs a golden model, bytes copied.
fn packed(checkpoint: &Checkpoint, out: &Path) -> Store {
    let options = PackOptions { bits: Bits::Source, ..PackOptions::default() };
    convert::pack(checkpoint, out, &options, &mut |_| {}).unwrap();
    Store::open(out).unwrap()
}

fn check(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let golden = Golden::read(name);
    let checkpoint = Checkpoint::open(&golden.write(dir.path())).unwrap();
    let store = packed(&checkpoint, &dir.path().join("store"));
    let copied = check_store(&format!("{name}, packed"), &golden, &store);
    let store = checkpoint.in_place().unwrap();
    let in_place = check_store(&format!("{name}, in place"), &golden, &store);
    assert_same_bits(&in_place, &copied, name);
}

#[test]
fn q8_0() {
    // Would break: the order of value heads (three a key head), any name, any key of the metadata.
    check("q8_0");
}

#[test]
fn a_mix_as_q4_k_m_with_a_block_for_several_tokens() {
    // Would break: blocks of 256 columns that span value heads, layers whose experts differ, the block that is left
    // out.
    check("q4_k_m");
}

#[test]
fn q2_k_with_a_tied_head() {
    // Would break: blocks with minima in every matrix, a head that is the embedding.
    check("q2_k");
}

#[test]
fn iq4_xs() {
    // Would break: codes that are indices of a table.
    check("iq4_xs");
}

#[test]
fn mxfp4_in_three_files_with_fused_experts() {
    // Would break: parts, gate and up of all experts in one tensor, blocks with scales of a byte.
    check("mxfp4");
}

#[test]
fn the_smallest_types() {
    // Would break: codes that are indices of code books.
    check("iq");
}

#[test]
fn the_oldest_types_with_fused_attention() {
    // Would break: query, key and value rows of one tensor, floats of all kinds, a router in F16.
    check("legacy");
}

#[test]
fn qwen3_next_and_its_older_form() {
    // Would break: value heads put in an order that these files do not have, rows grouped by key head.
    check("next");
    check("next_old");
}

#[test]
fn qwen3_moe() {
    // Would break: attention without a gate, rotary over the whole head, the other name of a norm.
    check("moe");
}

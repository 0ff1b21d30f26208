//! What happens when a device fails: it says so, what is read is zeros, and nothing panics or waits for ever.

use std::time::Duration;

use kernels::{AttentionShape, Backend, DeltaShape, HeadOrder, KvFormat, Precision, Rope, Rows};
use quant::{Block, Format};

use crate::test_rig::{random, rig, stored};
use crate::{AdapterKind, Gpu, GpuError, adapters};

const SHAPE: AttentionShape = AttentionShape { n_head: 4, n_head_kv: 2, head_dim: 64, gated: false };

fn gpu() -> Option<Gpu> {
    rig().map(|rig| Gpu::on(rig.context))
}

/// Of every kind of operation one: uploads, products, keys and values, memory for experts, reads.
fn work(gpu: &Gpu) -> Vec<f32> {
    let w = gpu.weights(stored(1, Format::Bf16, 64, 128));
    let (mut x, mut out) = (gpu.zeros(3 * 128), gpu.zeros(3 * 64));
    gpu.write(&mut x, 0, &random(2, 3 * 128));
    for n_token in [1, 3] {
        gpu.begin(n_token);
        gpu.matmul(&mut [(&w, &mut out)], &x, 0, n_token, Precision::Full);
    }
    let mut kv = gpu.kv(SHAPE, KvFormat::F16, 1000);
    let rope = Rope { inv_freq: vec![1.0; 8], scale: 1.0 };
    let [mut q, mut k, v, ones] = [3 * 256, 3 * 128, 3 * 128, 64].map(|n| gpu.zeros(n));
    // Twice as many positions as there is room for at first.
    for pos in [0, 509] {
        let (norms, qkv) = ((&ones, &ones, 1e-6), (&mut q, &mut k, &v));
        gpu.attention_prepare(SHAPE, &rope, norms, qkv, &mut kv, Rows::at(pos, 3));
    }
    let mut stored = vec![1; KvFormat::F16.position_bytes(SHAPE)];
    gpu.read_kv(&kv, 0, &mut stored);
    gpu.write_kv(&mut kv, 511, &stored);
    let memory = gpu.record_memory(2, 5000);
    assert_eq!(memory.is_err(), gpu.failure().is_some());
    gpu.finish();
    let mut read = vec![1.0; 3 * 64];
    gpu.read(&out, 0, &mut read);
    read
}

/// It has failed, says why, and goes on saying so.
pub(super) fn assert_failed(gpu: &Gpu, why: &str) {
    let failure = gpu.failure().expect("the device has failed");
    assert!(failure.contains(why), "'{why}' in {failure}");
    assert_eq!(work(gpu), [0.0; 3 * 64], "after: {failure}");
    assert_eq!(gpu.failure(), Some(failure), "the first failure is the one that counts");
}

#[test]
fn shapes_beyond_the_kernels_are_refused() {
    // Breaks if a model that the CPU computes ends in a panic on a GPU.
    let Some(gpu) = gpu() else { return };
    let attention = AttentionShape { n_head: 4, n_head_kv: 2, head_dim: 256, gated: true };
    let delta = DeltaShape {
        n_head_k: 16,
        n_head_v: 64,
        head_dim_k: 128,
        head_dim_v: 128,
        n_conv: 4,
        out_order: HeadOrder::Grouped,
    };
    assert!(gpu.check_shapes(attention, Some(delta), 512).is_ok());
    assert!(gpu.check_shapes(attention, None, 1024).is_ok());
    let cases = [
        (attention, delta, 1025, "1025 experts"),
        (AttentionShape { head_dim: 2048, ..attention }, delta, 8, "2048 dims of an attention head"),
        (attention, DeltaShape { head_dim_k: 512, ..delta }, 8, "512 dims of a delta-net's key head"),
        (attention, DeltaShape { n_conv: 17, ..delta }, 8, "17 taps"),
    ];
    for (attention, delta, n_expert, what) in cases {
        let error = gpu.check_shapes(attention, Some(delta), n_expert).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn formats_without_kernels_are_refused() {
    // Breaks if a model with a format that only the CPU reads ends in a panic on a GPU, or its user is not told why.
    let Some(gpu) = gpu() else { return };
    let Ok(gpu) =
        gpu.for_formats([(Format::Bf16, "embed"), (Format::Block(Block::Q4K), "attn_q of layer 1")])
    else {
        panic!("there are kernels for these")
    };
    let q3 = Format::Block(Block::Q3K);
    let Err(error) = gpu.for_formats([(Format::F32, "embed"), (q3, "up of layer 2"), (q3, "lm_head")]) else {
        panic!("there are no kernels for this")
    };
    let error = error.to_string();
    assert!(error.ends_with("it has no kernels for weights in q3_k, as up of layer 2 has them"), "{error}");
}

#[test]
fn a_well_device_works() {
    // Breaks if the other tests here pass because nothing works at all.
    let Some(gpu) = gpu() else { return };
    assert!(work(&gpu).iter().any(|&x| x != 0.0));
    assert_eq!(gpu.failure(), None);
}

#[test]
fn a_lost_device_says_so() {
    // Breaks if a card that was reset ends in a panic, a wait without end, or results that nobody computed.
    let Some(gpu) = gpu() else { return };
    let mut out = gpu.zeros(64);
    gpu.write(&mut out, 0, &[2.0; 64]);
    gpu.breaker()();
    let mut read = [1.0; 64];
    gpu.read(&out, 0, &mut read);
    assert_eq!(read, [0.0; 64]);
    assert_failed(&gpu, "the device was lost");
}

#[test]
fn a_device_lost_before_any_read_says_so() {
    // Breaks if a loss between a model's loading and its first token goes unnoticed.
    let Some(gpu) = gpu() else { return };
    gpu.breaker()();
    gpu.finish();
    assert_eq!(work(&gpu), [0.0; 3 * 64]);
    assert_failed(&gpu, "the device was lost");
}

#[test]
fn a_pass_that_the_driver_gave_up_is_noticed() {
    // Breaks where a driver skips work without a word, as Metal does: a token of it would be wrong.
    let Some(gpu) = gpu() else { return };
    assert!(work(&gpu).iter().any(|&x| x != 0.0));
    gpu.context.drop_pass();
    assert_eq!(work(&gpu), [0.0; 3 * 64]);
    assert_failed(&gpu, "gave up work");
}

#[test]
fn a_device_that_does_not_answer_is_given_up() {
    // Breaks if a hung device hangs the program.
    let Some(mut gpu) = gpu() else { return };
    let n = 4 << 20;
    let (mut x, y) = (gpu.zeros(n), gpu.zeros(n));
    gpu.finish();
    gpu.context.wait_max = Duration::ZERO;
    for _ in 0..100 {
        gpu.add(&mut x, &y, n);
    }
    gpu.finish();
    assert_failed(&gpu, "does not answer");
}

#[test]
fn a_driver_that_fails_while_it_is_waited_for_is_no_panic() {
    // Breaks if the panic of wgpu for a device that is lost during a wait ends the program.
    let result = crate::failure::wait(|| panic!("Error in Device::poll: {}", "Parent device is lost"));
    assert_eq!(result, Err("Error in Device::poll: Parent device is lost".to_owned()));
}

#[test]
fn more_than_a_buffer_can_be_is_an_error() {
    // Breaks if memory that cannot be had is a panic, or work goes on with a buffer that is none.
    for kind in ["tensor", "records"] {
        let Some(gpu) = gpu() else { return };
        let too_many = gpu.context.limits.max_buffer_size as usize + 16;
        match kind {
            "tensor" => drop(gpu.zeros(too_many / 4)),
            _ => assert!(gpu.context.host_buffer(too_many as u64).is_err()),
        }
        assert_failed(&gpu, "");
    }
}

#[test]
fn more_keys_than_a_kernel_sees_are_an_error() {
    // Breaks if a context that the device cannot hold is a panic, or a kernel writes behind a buffer.
    let Some(gpu) = gpu() else { return };
    let n_max = gpu.context.kv_positions_max(SHAPE, KvFormat::F32);
    let mut kv = gpu.kv(SHAPE, KvFormat::F32, n_max + 10);
    let rope = Rope { inv_freq: vec![1.0; 8], scale: 1.0 };
    let [mut q, mut k, v, ones] = [256, 128, 128, 64].map(|n| gpu.zeros(n));
    let (norms, qkv) = ((&ones, &ones, 1e-6), (&mut q, &mut k, &v));
    gpu.attention_prepare(SHAPE, &rope, norms, qkv, &mut kv, Rows::at(n_max, 1));
    gpu.attention(SHAPE, &q, &kv, Rows::at(n_max, 1), &mut k);
    assert_failed(&gpu, "its kernels see at most");
}

#[test]
fn an_emulated_device_is_the_last_choice() {
    // Breaks if Mesa's emulation is taken where there is a GPU, or refused where there is nothing else.
    let all = adapters();
    let Some(best) = all.first() else { return };
    let first_emulated = all.iter().position(|adapter| adapter.kind == AdapterKind::Emulated);
    let is_last = |at| all[at..].iter().all(|adapter| adapter.kind == AdapterKind::Emulated);
    assert!(first_emulated.is_none_or(is_last), "{all:?}");
    if best.kind == AdapterKind::Emulated {
        assert_eq!(Gpu::open(None).unwrap().adapter().kind, AdapterKind::Emulated);
        let Err(GpuError::Index { index: 99, n }) = Gpu::open(Some(99)) else {
            panic!("there is no number 99")
        };
        assert_eq!(n, all.len());
    }
}

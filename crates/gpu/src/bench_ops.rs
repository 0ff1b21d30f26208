//! Times the kernels of everything but products, each among others of the same.

use std::cell::RefCell;
use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use kernels::{AttentionShape, DeltaShape, HeadOrder, KvFormat, Rows};

use crate::context::{Buf, Context};
use crate::ops::attention::{HeadNorms, Heads};
use crate::ops::delta_net::{DeltaStates, DeltaTokens, DeltaWeights};
use crate::ops::kv::Kv;
use crate::ops::pointwise::Combine;
use crate::ops::route::{PAIR_WORDS, RouteStep, Router, WEIGHT_WORD, routes_words};

/// Of a model's layers.
struct Model {
    name: &'static str,
    d_model: usize,
    n_expert: usize,
    k: usize,
    delta: DeltaShape,
    attention: AttentionShape,
}

const MODELS: [Model; 2] = [
    Model {
        name: "35B",
        d_model: 2048,
        n_expert: 256,
        k: 8,
        delta: DeltaShape {
            n_head_k: 16,
            n_head_v: 32,
            head_dim_k: 128,
            head_dim_v: 128,
            n_conv: 4,
            out_order: HeadOrder::Grouped,
        },
        attention: AttentionShape { n_head: 16, n_head_kv: 2, head_dim: 256, gated: true },
    },
    Model {
        name: "397B",
        d_model: 4096,
        n_expert: 512,
        k: 10,
        delta: DeltaShape {
            n_head_k: 16,
            n_head_v: 64,
            head_dim_k: 128,
            head_dim_v: 128,
            n_conv: 4,
            out_order: HeadOrder::Grouped,
        },
        attention: AttentionShape { n_head: 32, n_head_kv: 2, head_dim: 256, gated: true },
    },
];
/// Positions that one token sees.
const CONTEXTS: [usize; 5] = [128, 512, 1024, 4096, 32_768];
const N_TOKEN: usize = 512;
/// Where many tokens start.
const STARTS: [usize; 2] = [0, 4096];
/// Rotated pairs of a head.
const N_PAIR: usize = 32;
const EPS: f32 = 1e-6;
/// States and caches that a measurement goes through, so that none are in the device's caches when their turn comes.
const STATE_BYTES: usize = 128 << 20;
const N_STATE_MAX: usize = 40;
/// Seconds of work to measure and before the first measurement.
const WORK_S: f64 = 0.005;
const WARM_UP_S: f64 = 0.3;
const N_DISPATCH_MAX: usize = 1000;
const N_ANGLE_MAX: usize = 1 << 20;
/// Measurements, of which the median counts.
const N_RUN: usize = 7;

/// Writes a table of the microseconds that each kernel takes on adapter number `adapter`, or the best one.
///
/// # Errors
/// There is no adapter, it fails, or `out` does.
pub fn run(adapter: Option<usize>, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let context = Context::open(adapter)?;
    writeln!(out, "{}, {}, us", context.report.name, context.report.driver)?;
    let bench = Bench { context };
    let [x, y] = [64; 2].map(|n| bench.floats(n));
    let add = |_: usize| bench.context.add(x.bind(), y.bind(), 1);
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < WARM_UP_S {
        bench.context.time_s(|| (0..N_DISPATCH_MAX).for_each(add));
    }
    bench.row(out, "one number", &add)?;
    for model in &MODELS {
        writeln!(out, "{}", model.name)?;
        bench.norms(out, model)?;
        bench.routes(out, model)?;
        bench.delta(out, model)?;
        bench.attention(out, model)?;
    }
    bench.context.failure().map_or(Ok(()), |error| Err(error.into()))
}

struct Bench {
    context: Context,
}

impl Bench {
    /// `n` numbers, all different, from -1 to 1.
    fn floats(&self, n: usize) -> Buf {
        let number = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9) as f32 / (1u64 << 31) as f32 - 1.0;
        let numbers: Vec<f32> = (0..n).map(number).collect();
        let buf = self.context.buffer(n as u64 * 4);
        self.context.write_large(&buf, 0, bytemuck::cast_slice(&numbers));
        buf
    }

    /// Measures `work`, of which the `i`th call records the `i`th of many.
    fn row(&self, out: &mut dyn Write, what: &str, work: &dyn Fn(usize)) -> io::Result<()> {
        self.row_of(out, what, N_DISPATCH_MAX, work)
    }

    /// As [`Self::row`], with at most `n_max` in a submission.
    fn row_of(&self, out: &mut dyn Write, what: &str, n_max: usize, work: &dyn Fn(usize)) -> io::Result<()> {
        let time_s = |n: usize| self.context.time_s(|| (0..n).for_each(work)) / n as f64;
        time_s(2);
        let n = ((WORK_S / time_s(8).max(1e-7)) as usize).clamp(4, n_max.min(N_DISPATCH_MAX));
        let mut all: Vec<f64> = (0..N_RUN).map(|_| time_s(n)).collect();
        all.sort_by(f64::total_cmp);
        writeln!(out, "  {what:<40}{:>10.2}", all[N_RUN / 2] * 1e6)?;
        out.flush()
    }

    fn norms(&self, out: &mut dyn Write, model: &Model) -> io::Result<()> {
        let (context, d, k) = (&self.context, model.d_model, model.k);
        let [x, y, h] = [0; 3].map(|_| self.floats(N_TOKEN * d));
        let [weight, gate] = [d, N_TOKEN].map(|n| self.floats(n));
        let routed = self.floats(N_TOKEN * (k + 1) * d);
        for n in [1, N_TOKEN] {
            self.row(out, &format!("rms_norm, {n} of {d}"), &|_| {
                context.rms_norm((x.bind(), weight.bind(), h.bind()), d, EPS, n);
            })?;
            self.row(out, &format!("add_norm, {n} of {d}"), &|_| {
                context.add_norm((h.bind(), y.bind()), (weight.bind(), x.bind()), d, EPS, n);
            })?;
            let weights = (weight.bind(), WEIGHT_WORD, if n == 1 { PAIR_WORDS as u32 } else { 0 });
            let shared = Some(gate.bind());
            let combine = Combine { routed: routed.bind(), weights, shared, n_token: n, k, d };
            self.row(out, &format!("combine_norm, {n} of {d}, k {k}"), &|_| {
                context.combine_norm(x.bind(), &combine, (weight.bind(), h.bind()), EPS);
            })?;
        }
        Ok(())
    }

    fn routes(&self, out: &mut dyn Write, model: &Model) -> io::Result<()> {
        let (context, n_expert, k) = (&self.context, model.n_expert, model.k);
        let logits = self.floats(N_TOKEN * n_expert);
        let [table, pairs, chosen] = [n_expert, PAIR_WORDS * k, k].map(|n| context.buffer(n as u64 * 4));
        let routes = context.buffer(routes_words(N_TOKEN, k) as u64 * 4);
        let router = Router { logits: logits.bind(), n_expert, k, renormalise: true, forced: None };
        let step = RouteStep {
            layer: 0,
            table: (table.bind(), 0),
            pairs: (pairs.bind(), 0),
            chosen: (chosen.bind(), 0),
        };
        self.row(out, &format!("route_step, {k} of {n_expert}"), &|_| context.route_step(&router, &step))?;
        self.row(out, &format!("choose, {N_TOKEN} of {n_expert}, k {k}"), &|_| {
            context.choose(&router, routes.bind(), N_TOKEN);
        })
    }

    fn delta(&self, out: &mut dyn Write, model: &Model) -> io::Result<()> {
        let (context, shape) = (&self.context, model.delta);
        let (n_channel, n_head_v) = (shape.n_channel(), shape.n_head_v);
        let n_conv_state = (shape.n_conv - 1) * n_channel;
        let n_state = n_copy(4 * shape.state_len());
        let states: Vec<[Buf; 2]> =
            (0..n_state).map(|_| [n_conv_state, shape.state_len()].map(|n| self.floats(n))).collect();
        let (conv, norm) = (self.floats(shape.n_conv * n_channel), self.floats(shape.head_dim_v));
        let [decay, dt_bias] = [0; 2].map(|_| self.floats(n_head_v));
        let [b, a] = [0; 2].map(|_| self.floats(N_TOKEN * n_head_v));
        let (qkv, z) = (self.floats(N_TOKEN * n_channel), self.floats(N_TOKEN * shape.d_v()));
        let result = self.floats(N_TOKEN * shape.d_v());
        let weights = DeltaWeights {
            conv: conv.bind(),
            decay: decay.bind(),
            dt_bias: dt_bias.bind(),
            norm: norm.bind(),
            eps: EPS,
        };
        let tokens =
            DeltaTokens { qkv: qkv.bind(), b: b.bind(), a: a.bind(), z: z.bind(), out: result.bind() };
        let state = |i: usize| {
            let [conv, state] = &states[i % n_state];
            DeltaStates { conv: conv.bind(), state: state.bind() }
        };
        self.row(out, "delta_step", &|i| context.delta_step(shape, &weights, &tokens, &state(i), 0))?;
        let scratch = context.delta_scratch(shape);
        self.row(out, &format!("delta_net, {N_TOKEN}"), &|i| {
            context.delta_net(&scratch, &weights, &tokens, &state(i), Rows::at(0, N_TOKEN));
        })
    }

    fn attention(&self, out: &mut dyn Write, model: &Model) -> io::Result<()> {
        let (context, shape) = (&self.context, model.attention);
        let kv_dim = shape.n_head_kv * shape.head_dim;
        let q = self.floats(N_TOKEN * shape.n_head * 2 * shape.head_dim);
        let [k, v] = [0; 2].map(|_| self.floats(N_TOKEN * kv_dim));
        let [q_norm, k_norm] = [0; 2].map(|_| self.floats(shape.head_dim));
        let result = self.floats(N_TOKEN * shape.n_head * shape.head_dim);
        let scratch = context.attention_scratch();
        let norms = HeadNorms { q: q_norm.bind(), k: k_norm.bind(), eps: EPS };
        for n in [1, N_TOKEN] {
            let angles = vec![0; 2 * N_PAIR * n];
            let kv = RefCell::new(self.cache(shape, n));
            // Angles of all dispatches go into one submission.
            self.row_of(out, &format!("attention_prepare, {n}"), N_ANGLE_MAX / angles.len(), &|_| {
                let heads = Heads { q: q.bind(), k: k.bind(), v: v.bind() };
                context.attention_prepare(&heads, &norms, &angles, &mut kv.borrow_mut(), Rows::at(0, n));
            })?;
        }
        for n_pos in CONTEXTS {
            let caches = self.caches(shape, n_pos);
            self.row(out, &format!("attention, 1 over {n_pos}"), &|i| {
                let kv = &caches[i % caches.len()];
                context.attention((q.bind(), result.bind()), kv, &scratch, Rows::at(n_pos - 1, 1));
            })?;
        }
        for pos in STARTS {
            let kv = self.cache(shape, pos + N_TOKEN);
            self.row(out, &format!("attention, {N_TOKEN} at {pos}"), &|_| {
                context.attention((q.bind(), result.bind()), &kv, &scratch, Rows::at(pos, N_TOKEN));
            })?;
        }
        Ok(())
    }

    fn caches(&self, shape: AttentionShape, n_pos: usize) -> Vec<Kv> {
        let n = n_copy(n_pos * KvFormat::F16.position_bytes(shape));
        (0..n).map(|_| self.cache(shape, n_pos)).collect()
    }

    /// Keys and values of `n_pos` positions.
    fn cache(&self, shape: AttentionShape, n_pos: usize) -> Kv {
        let mut kv = self.context.kv(shape, KvFormat::F16, n_pos);
        self.context.grow_kv(&mut kv, n_pos);
        for buf in [&kv.keys, &kv.values] {
            // About 1 and 2.
            let words: Vec<u32> = (0..buf.bytes() as u32 / 4).map(|i| 0x3c00_4000 | (i & 0xff)).collect();
            self.context.write_large(buf, 0, bytemuck::cast_slice(&words));
        }
        kv
    }
}

/// Copies of so many bytes that are more than caches hold.
fn n_copy(bytes: usize) -> usize {
    (STATE_BYTES / bytes).clamp(2, N_STATE_MAX)
}

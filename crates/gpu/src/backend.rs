//! The operations of [`kernels::Backend`] on a device.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernels::{
    AttentionShape, Backend, DeltaInputs, DeltaShape, DeltaWeights, ExpertJob, HeadOrder, HeldJob, HeldShape,
    KvFormat, Mixture, NonFinite, Norm, Precision, RecordMemory, Rope, RouteShape, Routes, Rows, SharedJob,
};
use quant::{Format, Matrix, MatrixRef};

use crate::context::{Bind, Buf, Context, lock};
use crate::format::is_read;
use crate::memory::{GpuTensor, GpuWeights, RecordSlab, RecordSlabs, Slabs};
use crate::ops::attention::{HEAD_DIM_MAX, HeadNorms, Heads};
use crate::ops::delta_net::{
    DK_MAX, DV_MAX, DeltaScratch, DeltaStates, DeltaTokens, N_CONV_MAX, N_HEAD_K_MAX,
};
use crate::ops::experts_prompt::Jobs;
use crate::ops::kv::Kv;
use crate::ops::pointwise::Combine;
use crate::ops::route::{MISSING, N_EXPERT_MAX, PAIR_WORDS, RouteStep, Router, WEIGHT_WORD, routes_words};
use crate::ops::{self, Product, Records};
use crate::tier::Tier;
use crate::{AdapterReport, GpuError, selftest};

/// A GPU that computes.
pub struct Gpu {
    pub(crate) context: Context,
    slabs: Slabs,
    records: RecordSlabs,
    /// Is the call that runs one of a single token?
    is_step: AtomicBool,
    /// `[pairs of a call, d_ff]`
    hidden: Mutex<Option<Buf>>,
    angles: Mutex<Angles>,
    attention_scratch: Mutex<Option<Buf>>,
    delta_scratch: Mutex<Option<DeltaScratch>>,
    /// What [`Context::choose`] writes.
    routes: Mutex<Option<Buf>>,
    /// Memory of the device that may be filled with experts.
    experts_bytes: u64,
    tier: Option<Tier>,
}

impl Gpu {
    /// Opens adapter `index`, or the best one that can be used, and has it pass [`Self::self_test`]. If the environment
    /// says `FLASH_MOE_GPU_SELFTEST=off`, without that.
    ///
    /// # Errors
    /// There is none, it lacks something, its driver refuses, or it computes wrong results.
    pub fn open(index: Option<usize>) -> Result<Self, GpuError> {
        let gpu = Self::open_untested(index)?;
        if is_trusted() { Ok(gpu) } else { gpu.self_test() }
    }

    /// As [`Self::open`], whatever it computes.
    ///
    /// # Errors
    /// There is none, it lacks something, or its driver refuses.
    pub fn open_untested(index: Option<usize>) -> Result<Self, GpuError> {
        Ok(Self::on(Context::open(index)?))
    }

    pub(crate) fn on(context: Context) -> Self {
        Self {
            context,
            slabs: Slabs::default(),
            records: RecordSlabs::default(),
            is_step: AtomicBool::new(false),
            hidden: Mutex::default(),
            angles: Mutex::default(),
            attention_scratch: Mutex::default(),
            delta_scratch: Mutex::default(),
            routes: Mutex::default(),
            experts_bytes: 0,
            tier: None,
        }
    }

    /// Compares each kind of kernel with the scalar reference, once. What it held before is lost.
    ///
    /// # Errors
    /// A result is wrong.
    pub fn self_test(self) -> Result<Self, GpuError> {
        match selftest::check(&self) {
            Ok(()) => Ok(Self::on(self.context)),
            Err(why) => Err(GpuError::Refused { name: self.context.report.name, why }),
        }
    }

    /// Lets it fill so much of its memory with experts.
    #[must_use]
    pub fn with_experts(self, experts_bytes: u64) -> Self {
        Self { experts_bytes, ..self }
    }

    /// Gives the device up when it is called, as if its driver had lost it: for tests of what follows.
    pub fn breaker(&self) -> impl Fn() + Send + Sync + use<> {
        self.context.breaker()
    }

    /// The adapter.
    pub fn adapter(&self) -> &AdapterReport {
        &self.context.report
    }

    /// Has the device believe that it does not hold an expert, as it does of one that was never there: for tests of
    /// what happens then.
    #[doc(hidden)]
    pub fn forget(&self, layer: usize, expert: usize) {
        if let Some(tier) = &self.tier {
            tier.list(&self.context, layer, expert, MISSING);
        }
    }

    /// Are a model's shapes within what the kernels are made for?
    ///
    /// # Errors
    /// They are not.
    pub fn check_shapes(
        &self,
        attention: AttentionShape,
        delta: Option<DeltaShape>,
        n_expert: usize,
    ) -> Result<(), GpuError> {
        let delta = delta.unwrap_or(DeltaShape {
            n_head_k: 0,
            n_head_v: 0,
            head_dim_k: 0,
            head_dim_v: 0,
            n_conv: 0,
            out_order: HeadOrder::Grouped,
        });
        let most = [
            ("experts a layer", n_expert, N_EXPERT_MAX),
            ("dims of an attention head", attention.head_dim, HEAD_DIM_MAX),
            ("dims of a delta-net's key head", delta.head_dim_k, DK_MAX),
            ("dims of a delta-net's value head", delta.head_dim_v, DV_MAX),
            ("key heads of a delta-net", delta.n_head_k, N_HEAD_K_MAX),
            ("taps of a convolution", delta.n_conv, N_CONV_MAX),
        ];
        let name = self.adapter().name.clone();
        let refused = |(what, n, most): (&str, usize, usize)| GpuError::Refused {
            name,
            why: format!("the model has {n} {what}, kernels are made for {most} at most"),
        };
        most.into_iter().find(|&(_, n, most)| most < n).map_or(Ok(()), |over| Err(refused(over)))
    }

    /// Has it pass a test with each of these formats, of which some may come often; with each the name of a matrix that
    /// has it. If the environment says `FLASH_MOE_GPU_SELFTEST=off`, only looks whether there are kernels for all. What
    /// it held before is lost.
    ///
    /// # Errors
    /// There are no kernels for a format, or results are wrong.
    pub fn for_formats<N: Display>(
        self,
        matrices: impl IntoIterator<Item = (Format, N)>,
    ) -> Result<Self, GpuError> {
        let name = self.adapter().name.clone();
        let refused = |why| GpuError::Refused { name, why };
        let mut formats = Vec::new();
        for (format, matrix) in matrices {
            if !is_read(format) {
                return Err(refused(format!(
                    "it has no kernels for weights in {format}, as {matrix} has them"
                )));
            }
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
        if is_trusted() {
            return Ok(self);
        }
        selftest::check_formats(&self, &formats).map_err(refused)?;
        Ok(Self::on(self.context))
    }

    fn is_step(&self) -> bool {
        self.is_step.load(Ordering::Relaxed)
    }

    /// Runs `with` on room for hidden rows of `n` floats.
    fn with_hidden(&self, n: usize, with: impl FnOnce(Bind<'_>)) {
        with(self.grown(&mut lock(&self.hidden), n).bind());
    }

    /// A buffer of at least `n` words.
    fn grown<'a>(&self, buf: &'a mut Option<Buf>, n: usize) -> &'a Buf {
        let bytes = n as u64 * 4;
        if buf.as_ref().is_some_and(|buf| buf.bytes() < bytes) {
            *buf = None;
        }
        buf.get_or_insert_with(|| self.context.buffer(bytes.next_power_of_two()))
    }

    /// Computes the jobs whose records lie in one slab.
    fn experts_of_slab(
        &self,
        slab: &RecordSlab,
        jobs: &[(u32, ExpertJob<'_>)],
        x: &GpuTensor,
        out: &GpuTensor,
    ) {
        let Some((_, first)) = jobs.first() else { return };
        let records = layout(first);
        let rows: Vec<JobRows<'_>> = jobs.iter().map(|(at, job)| (*at, job.rows)).collect();
        self.experts_at(&records, slab.buf.bind(), &rows, x, out);
    }

    /// Computes experts whose records start at these words of `slab`.
    fn experts_at(
        &self,
        records: &Records,
        slab: Bind<'_>,
        jobs: &[JobRows<'_>],
        x: &GpuTensor,
        out: &GpuTensor,
    ) {
        let n_pair: usize = jobs.iter().map(|(_, rows)| rows.len()).sum();
        self.with_hidden(n_pair * records.d_ff, |hidden| {
            if self.is_step() {
                let pair = |(at, rows): &JobRows<'_>| {
                    let at = *at;
                    rows.iter()
                        .flat_map(move |&(row_in, row_out)| [at, row_in, row_out, 0])
                        .collect::<Vec<u32>>()
                };
                let words: Vec<u32> = jobs.iter().flat_map(pair).collect();
                let pairs = (self.context.args_bind(), self.context.args(&words));
                self.context.experts_step(records, slab, pairs, n_pair, x.bind(), hidden, out.bind());
            } else {
                self.experts_of_prompt(records, slab, jobs, n_pair, [x.bind(), hidden, out.bind()]);
            }
        });
    }

    fn experts_of_prompt(
        &self,
        records: &Records,
        slab: Bind<'_>,
        jobs: &[JobRows<'_>],
        n_pair: usize,
        tensors: [Bind<'_>; 3],
    ) {
        let jobs = self.jobs(jobs, n_pair);
        self.context.experts_prompt(records, slab, jobs, tensors);
    }

    /// Puts jobs and their pairs where kernels find them.
    fn jobs(&self, jobs: &[JobRows<'_>], n_pair: usize) -> Jobs<'_> {
        let pairs = jobs.iter().flat_map(|(_, rows)| rows.iter());
        let mut words: Vec<u32> = pairs.flat_map(|&(row_in, row_out)| [row_in, row_out]).collect();
        let pairs_at = self.context.args_room(words.len() + 4 * jobs.len());
        let at = pairs_at + words.len() as u32;
        let mut first_pair = 0;
        for &(record_at, rows) in jobs {
            words.extend([record_at, pairs_at + 2 * first_pair, rows.len() as u32, first_pair]);
            first_pair += rows.len() as u32;
        }
        self.context.args(&words);
        let n_pair_max = jobs.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
        let rows_in = jobs.iter().flat_map(|(_, rows)| rows.iter().map(|&(row_in, _)| row_in as usize + 1));
        let n_row_in = rows_in.max().unwrap_or(0);
        Jobs { buf: self.context.args_bind(), at, n_job: jobs.len(), n_pair, n_row_in, n_pair_max }
    }

    fn shared(&self, job: &SharedJob<'_, GpuWeights>, x: &GpuTensor, out: &GpuTensor) {
        if [job.gate, job.up, job.down].iter().any(|w| w.blocks.len() != 1) {
            self.context.fail("a matrix of the shared expert is larger than what its kernels see at a time");
            return;
        }
        let matrices = [job.gate.whole(), job.up.whole(), job.down.whole()];
        self.with_hidden(job.rows.len() * matrices[0].rows, |hidden| {
            if self.is_step() {
                self.context.shared_step(&matrices, job.rows, x.bind(), hidden, out.bind());
            } else {
                let jobs = self.jobs(&[(0, job.rows)], job.rows.len());
                let [gate, up, down] = &matrices;
                self.context.shared_prompt([gate, up, down], jobs, [x.bind(), hidden, out.bind()]);
            }
        });
    }
}

/// Whether its user takes the device's results as they are.
fn is_trusted() -> bool {
    std::env::var_os("FLASH_MOE_GPU_SELFTEST").is_some_and(|value| value == "off")
}

/// Cosines and sines of the last positions that were rotated.
#[derive(Default)]
struct Angles {
    rope: Option<Rope>,
    /// The first position, and how many.
    at: (usize, usize),
    values: Vec<u32>,
}

/// Word where an expert's record starts, and its pairs of rows.
type JobRows<'a> = (u32, &'a [(u32, u32)]);

/// How the record of a job is laid out, from its gate on.
fn layout(job: &ExpertJob<'_>) -> Records {
    let start = job.gate.codes.as_ptr() as usize;
    let planes = |w: &MatrixRef<'_>| {
        [w.codes, w.scales, w.biases].map(|plane| {
            // Plain floats have no scales; their place is never read.
            if plane.is_empty() { 0 } else { ((plane.as_ptr() as usize - start) / 4) as u32 }
        })
    };
    Records {
        formats: [job.gate.format, job.up.format, job.down.format],
        d_model: job.gate.cols,
        d_ff: job.gate.rows,
        planes: [planes(&job.gate), planes(&job.up), planes(&job.down)],
    }
}

impl Backend for Gpu {
    type Tensor = GpuTensor;
    type Weights = GpuWeights;
    type Kv = Kv;

    fn describe(&self) -> String {
        let report = &self.context.report;
        format!("{} ({}, {})", report.name, report.interface, report.kind.name())
    }

    fn zeros(&self, n: usize) -> GpuTensor {
        GpuTensor { buf: self.context.buffer(n as u64 * 4), len: n }
    }

    fn write(&self, t: &mut GpuTensor, at: usize, values: &[f32]) {
        self.context.write_large(&t.buf, at as u64 * 4, bytemuck::cast_slice(values));
    }

    fn read(&self, t: &GpuTensor, at: usize, out: &mut [f32]) {
        let (at, out) = (at as u64 * 4, bytemuck::cast_slice_mut(out));
        match &self.tier {
            Some(tier) if tier.is_open() => tier.read(&self.context, &t.buf, at, out),
            _ => self.context.read(&t.buf, at, out),
        }
    }

    fn weights(&self, matrix: Matrix) -> GpuWeights {
        self.slabs.upload(&self.context, &matrix)
    }

    fn embed(&self, w: &GpuWeights, ids: &[u32], out: &mut GpuTensor) {
        let at = self.context.args(ids);
        for block in &w.blocks {
            let ids_at = (self.context.args_bind(), at);
            self.context.embed(w.at(block), block.first_row, ids_at, ids.len(), out.bind());
        }
    }

    fn matmul(
        &self,
        products: &mut [(&GpuWeights, &mut GpuTensor)],
        x: &GpuTensor,
        first: usize,
        n_token: usize,
        _: Precision,
    ) {
        let blocks = products.iter().flat_map(|(w, out)| {
            let (stride, out) = (w.rows, out.bind());
            w.blocks.iter().map(move |b| Product { w: w.at(b), out, stride, at: b.first_row })
        });
        let all: Vec<Product<'_>> = blocks.collect();
        if self.is_step() {
            self.context.matmul_step(&all, x.bind(), first, n_token);
        } else {
            self.context.matmul_prompt(&all, x.bind(), first, n_token);
        }
    }

    fn rms_norm(&self, x: &GpuTensor, weight: &GpuTensor, eps: f32, n_token: usize, out: &mut GpuTensor) {
        let d = weight.len;
        self.context.rms_norm((x.bind(), weight.bind(), out.bind()), d, eps, n_token);
    }

    fn add(&self, x: &mut GpuTensor, y: &GpuTensor, n: usize) {
        self.context.add(x.bind(), y.bind(), n);
    }

    fn kv(&self, shape: AttentionShape, format: KvFormat, n_ctx: usize) -> Kv {
        self.context.kv(shape, format, n_ctx)
    }

    fn read_kv(&self, kv: &Kv, pos: usize, out: &mut [u8]) {
        self.context.read_kv(kv, pos, out);
    }

    fn write_kv(&self, kv: &mut Kv, pos: usize, bytes: &[u8]) {
        self.context.write_kv(kv, pos, bytes);
    }

    fn attention_prepare(
        &self,
        _: AttentionShape,
        rope: &Rope,
        (q_norm, k_norm, eps): (&GpuTensor, &GpuTensor, f32),
        (q, k, v): (&mut GpuTensor, &mut GpuTensor, &GpuTensor),
        kv: &mut Kv,
        rows: Rows,
    ) {
        let heads = Heads { q: q.bind(), k: k.bind(), v: v.bind() };
        let norms = HeadNorms { q: q_norm.bind(), k: k_norm.bind(), eps };
        // The same for all layers.
        let mut angles = lock(&self.angles);
        if angles.at != (rows.pos, rows.n_token) || angles.rope.as_ref() != Some(rope) {
            let values = ops::attention::angles(rope, rows.pos, rows.n_token);
            *angles = Angles { rope: Some(rope.clone()), at: (rows.pos, rows.n_token), values };
        }
        self.context.attention_prepare(&heads, &norms, &angles.values, kv, rows);
    }

    fn attention(&self, _: AttentionShape, q: &GpuTensor, kv: &Kv, rows: Rows, out: &mut GpuTensor) {
        let mut scratch = lock(&self.attention_scratch);
        let scratch = scratch.get_or_insert_with(|| self.context.attention_scratch());
        self.context.attention((q.bind(), out.bind()), kv, scratch, rows);
    }

    fn delta_net(
        &self,
        shape: DeltaShape,
        weights: &DeltaWeights<'_, GpuTensor>,
        inputs: &DeltaInputs<'_, GpuTensor>,
        states: (&mut GpuTensor, &mut GpuTensor),
        rows: Rows,
        out: &mut GpuTensor,
    ) {
        let weights = ops::delta_net::DeltaWeights {
            conv: weights.conv.bind(),
            decay: weights.decay.bind(),
            dt_bias: weights.dt_bias.bind(),
            norm: weights.norm.bind(),
            eps: weights.eps,
        };
        let DeltaInputs { qkv, b, a, z } = *inputs;
        let tokens = DeltaTokens { qkv: qkv.bind(), b: b.bind(), a: a.bind(), z: z.bind(), out: out.bind() };
        let states = DeltaStates { conv: states.0.bind(), state: states.1.bind() };
        if rows.n_token == 1 {
            self.context.delta_step(shape, &weights, &tokens, &states, rows.first);
        } else {
            let mut scratch = lock(&self.delta_scratch);
            let scratch = scratch.get_or_insert_with(|| self.context.delta_scratch(shape));
            self.context.delta_net(scratch, &weights, &tokens, &states, rows);
        }
    }

    fn experts(
        &self,
        jobs: &[ExpertJob<'_>],
        shared: Option<SharedJob<'_, GpuWeights>>,
        x: &GpuTensor,
        out: &mut GpuTensor,
    ) {
        if let Some(job) = &shared {
            self.shared(job, x, out);
        }
        let mut of_slab: Vec<(u32, ExpertJob<'_>)> = Vec::new();
        let mut open: Option<std::sync::Arc<RecordSlab>> = None;
        let mut placed: Vec<_> = jobs.iter().map(|job| (self.records.find(job.gate.codes), job)).collect();
        placed.sort_by_key(|(place, _)| place.as_ref().map(|(slab, _)| slab.address()));
        for (place, job) in placed {
            let Some((slab, at)) = place else {
                self.context.fail("an expert's record is not in memory that the GPU sees");
                return;
            };
            if let Some(last) = open.replace(std::sync::Arc::clone(&slab))
                && last.address() != slab.address()
            {
                self.experts_of_slab(&last, &of_slab, x, out);
                of_slab.clear();
            }
            of_slab.push(((at / 4) as u32, *job));
        }
        if let Some(last) = open {
            self.experts_of_slab(&last, &of_slab, x, out);
        }
        // The device starts while the host goes on.
        self.context.flush();
    }

    fn combine(
        &self,
        x: &mut GpuTensor,
        routed: &GpuTensor,
        weights: &[f32],
        shared: Option<&GpuTensor>,
        dims: (usize, usize, usize),
    ) {
        self.combine_norm(x, routed, weights, shared, dims, None);
    }

    fn add_norm(&self, (x, y): (&mut GpuTensor, &GpuTensor), norm: Norm<'_, GpuTensor>, n_token: usize) {
        let (x, y) = (x.bind(), y.bind());
        self.context.add_norm((x, y), (norm.weight.bind(), norm.out.bind()), norm.d, norm.eps, n_token);
    }

    fn combine_norm(
        &self,
        x: &mut GpuTensor,
        routed: &GpuTensor,
        weights: &[f32],
        shared: Option<&GpuTensor>,
        (n_token, k, d): (usize, usize, usize),
        norm: Option<Norm<'_, GpuTensor>>,
    ) {
        let at = self.context.args(bytemuck::cast_slice(weights));
        let weights = (self.context.args_bind(), at, 1);
        let shared = shared.map(GpuTensor::bind);
        let combine = Combine { routed: routed.bind(), weights, shared, n_token, k, d };
        match norm {
            Some(norm) => {
                let (weight, out) = (norm.weight.bind(), norm.out.bind());
                self.context.combine_norm(x.bind(), &combine, (weight, out), norm.eps);
            }
            None => self.context.combine(x.bind(), &combine),
        }
    }

    fn mark(&self, layer: usize, phase: usize) {
        self.context.mark(layer, phase);
    }

    fn measure(&self) {
        self.context.measure();
    }

    fn measured(&self) -> Vec<(usize, usize, Duration)> {
        self.context.measured()
    }

    fn begin(&self, n_token: usize) {
        self.is_step.store(n_token == 1, Ordering::Relaxed);
    }

    fn failure(&self) -> Option<String> {
        self.context.failure().map(|error| error.to_string())
    }

    fn record_memory(&self, n: usize, bytes: usize) -> std::io::Result<Option<Vec<RecordMemory>>> {
        self.records.allocate(&self.context, n, bytes).map(Some)
    }

    fn borrows_records(&self) -> bool {
        true
    }

    fn finish(&self) {
        self.context.wait();
    }

    fn choose(
        &self,
        logits: &GpuTensor,
        shape: RouteShape,
        n_token: usize,
        forced: Option<&[u32]>,
        routes: &mut Routes,
    ) -> Result<(), NonFinite> {
        let router = router(logits, shape, forced);
        let n = n_token * shape.k;
        let mut words = vec![0u32; routes_words(n_token, shape.k)];
        let mut buf = lock(&self.routes);
        let buf = self.grown(&mut buf, words.len());
        self.context.choose(&router, buf.bind(), n_token);
        self.context.read(buf, 0, bytemuck::cast_slice_mut(&mut words));
        routes.weights.clear();
        routes.weights.extend(words[..n].iter().map(|&bits| f32::from_bits(bits)));
        routes.experts.clear();
        routes.experts.extend_from_slice(&words[n..2 * n]);
        let row = words[2 * n..].iter().position(|&flag| flag != 0);
        row.map_or(Ok(()), |row| Err(NonFinite { row }))
    }

    fn hold_layers(&mut self, layers: &[HeldShape]) -> usize {
        let n_place = Tier::n_place(&self.context, layers, self.experts_bytes);
        self.tier = (0 < n_place).then(|| Tier::new(&self.context, layers, n_place));
        n_place
    }

    fn hold(&self, layer: usize, expert: usize, record: &[u8], place: usize, instead: Option<usize>) {
        let (Some(tier), Some((slab, at))) = (&self.tier, self.records.find(record)) else {
            self.context.fail("an expert's record is not in memory that the GPU sees");
            return;
        };
        tier.hold(&self.context, (layer, expert), (&slab, at), place, instead);
    }

    fn experts_held(&self, layer: usize, jobs: &[HeldJob<'_>], x: &GpuTensor, out: &mut GpuTensor) {
        let tier = self.tier.as_ref().expect("nothing is held without places");
        let (records, slab) = tier.layer(layer);
        self.experts_at(records, slab, &tier.rows(layer, jobs), x, out);
        self.context.flush();
    }

    fn mixture(&self, m: Mixture<'_, GpuTensor, GpuWeights>) -> bool {
        let Some(tier) = self.tier.as_ref().filter(|_| self.is_step()) else { return false };
        let (context, k) = (&self.context, m.shape.k);
        let step = RouteStep {
            layer: m.layer,
            table: tier.table(m.layer),
            pairs: tier.pairs(m.layer),
            chosen: tier.chosen(m.layer, k),
        };
        context.route_step(&router(m.logits, m.shape, None), &step);
        let (records, slab) = tier.layer(m.layer);
        let shared = m.shared.as_ref().map(|(job, _)| job);
        let alone = shared.filter(|job| !tier.joins(context, m.layer, k, job));
        let n_pair = k + usize::from(shared.is_some() && alone.is_none());
        self.with_hidden(n_pair * records.d_ff, |hidden| {
            context.experts_step(records, slab, step.pairs, n_pair, m.h.bind(), hidden, m.routed.bind());
        });
        if let Some(job) = alone {
            self.shared(job, m.h, m.routed);
        }
        let weights = (step.pairs.0, step.pairs.1 + WEIGHT_WORD, PAIR_WORDS as u32);
        let shared = m.shared.as_ref().map(|(_, gate)| gate.bind());
        let combine = Combine { routed: m.routed.bind(), weights, shared, n_token: 1, k, d: records.d_model };
        match m.norm {
            Some((weight, eps)) => {
                context.combine_norm(m.x.bind(), &combine, (weight.bind(), m.h.bind()), eps);
            }
            None => context.combine(m.x.bind(), &combine),
        }
        context.flush_if_long();
        true
    }

    fn stopped(&self, chosen: &mut Vec<u32>) -> Option<usize> {
        self.tier.as_ref().and_then(|tier| tier.stopped(&self.context, chosen))
    }
}

fn router<'a>(logits: &'a GpuTensor, shape: RouteShape, forced: Option<&'a [u32]>) -> Router<'a> {
    let RouteShape { n_expert, k, renormalise } = shape;
    Router { logits: logits.bind(), n_expert, k, renormalise, forced }
}

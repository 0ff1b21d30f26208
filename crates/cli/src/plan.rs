//! From flags to decisions: every default is chosen here, and all memory is divided up before any is taken.

use kernels::KvFormat;
use model::{EngineOptions, Footprint, Prefetch};
use prefix::Shape;
use store::Manifest;
use stream::{CacheMode, GovernorOptions, Method, StreamOptions, Tuning};

use crate::drive::{Drive, DriveRates, Origin, method_name};
use crate::error::{CliError, Memory, NoRoom};
use crate::flags::{self, Cache, EngineFlags};
use crate::predict::Needs;
use crate::size::Size;

/// Context if neither the user nor the model asks for less.
const N_CTX_DEFAULT: usize = 8192;
/// Contexts that a server tries to have, longest first.
const SERVE_CTX: [usize; 2] = [32_768, 16_384];
/// Answers that a server makes at the same time if the user does not say.
const N_PARALLEL_DEFAULT: usize = 4;
/// Sessions of a server may take this fraction of what dense weights leave, unless the user says more.
const SESSION_SHARE: u64 = 8;
/// Share of the available memory that is taken without being asked, in percent: the rest is for the system and for
/// programs that grow.
const SHARE_PERCENT: u64 = 80;
/// Left for stacks, the allocator's slack and small buffers.
const RESERVE_BYTES: u64 = 24 << 20;
/// Most tokens of a prefill chunk, and the unit in which it shrinks.
const N_BATCH_MAX: usize = 2048;
const N_BATCH_STEP: usize = 64;
/// Most conversations that are decoded together: each has a token in the smallest chunk.
pub(crate) const N_SESSION_MAX: usize = N_BATCH_STEP;
/// Activations may take this fraction of what experts could have: a larger chunk reads each expert less often, but a
/// slot saves reads too.
const SCRATCH_SHARE: u64 = 8;
/// Prefixes of prompts may take this fraction of what experts could have, unless they need more at least: a prompt that
/// is not read again saves more reads than the slots would.
const PREFIX_SHARE: u64 = 16;
/// They may take this fraction where the other is not enough for one checkpoint with its keys and values.
const NODE_SHARE: u64 = 6;
/// States that prefixes take at most, besides the sessions' whole contexts.
const N_STATE_MAX: u64 = 16;
/// Most states that are remembered in one batch.
const N_WAY_MAX: u64 = 4;
/// Staging slots of the page policy, in tokens' worth of experts: one group computes while the next is read.
const STAGING_TOKENS: u64 = 4;

/// The page cache must promise to be this much faster before it is chosen: slots are known, it is not.
const PAGE_GAIN: f64 = 1.1;
/// Tokens of the checkpoint that is shown to people, if the context has so many.
const N_TOKEN_SHOWN: usize = 20_000;
/// Must stay free beside what the plan takes: a share of all memory within these bounds. Where the user named the
/// budget the lower bound, as a safety net.
const FLOOR_SHARE: u64 = 32;
const FLOOR_BYTES_MIN: u64 = 64 << 20;
const FLOOR_BYTES_MAX: u64 = 512 << 20;

/// What a command will do with the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Positions it needs; `None`: a conversation of unknown length.
    pub(crate) n_ctx: Option<usize>,
    /// Most tokens that it will feed at once; `None`: unknown.
    pub(crate) n_feed: Option<usize>,
    /// Does it keep prefixes of prompts, to go on from them?
    pub(crate) keeps_prefixes: bool,
    /// Conversations at a time, each with a context like this; at most [`N_SESSION_MAX`].
    pub(crate) n_session: u64,
}

/// Memory for prefixes of prompts.
///
/// A prompt has up to 16 points where its state is kept. It is fed in batches, one prompt at a time, and what was
/// remembered in a batch is handed to the cache before the next one, which then counts it: so only the states of one
/// batch are under way, in memory of their own. Where more points than `n_way` lie in a batch, the earlier ones are
/// left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixMemory {
    /// For what is kept.
    pub(crate) cache_bytes: u64,
    /// States that may be under way at a time: at least one, which a checkpoint that is taken up needs too.
    pub(crate) n_way: usize,
}

impl Work {
    /// What a server does: conversations of many clients, longer than one that somebody types. More context and more of
    /// them at a time are taken as long as experts keep most of the memory.
    pub(crate) fn serving(
        flags: &EngineFlags,
        manifest: &Manifest,
        n_parallel: Option<usize>,
        keeps_prefixes: bool,
    ) -> Self {
        let machine = Machine {
            available: Size(stream::available_bytes()),
            used_bytes: stream::rss_bytes(),
            n_thread: kernels::Cores::read().n_thread(),
        };
        let budget = flags.memory.0.unwrap_or(machine.safe_share());
        let budget = flags.vram.0.map_or(budget, |vram| budget.min(vram));
        Self { keeps_prefixes, ..Self::serving_in(budget, flags.ctx, flags.kv, manifest, n_parallel) }
    }

    fn serving_in(
        budget: Size,
        ctx: Option<usize>,
        kv: KvFormat,
        manifest: &Manifest,
        n_parallel: Option<usize>,
    ) -> Self {
        let f = Footprint::of(manifest);
        let spare = budget.0.saturating_sub(f.dense_bytes) / SESSION_SHARE;
        // Each session has a state to go back to.
        let fits = |n_session: usize, n_ctx: usize| {
            n_session as u64 * (f.kv_bytes(kv, n_ctx) + 2 * f.state_bytes) <= spare
        };
        let n_least = n_parallel.unwrap_or(1);
        let longer = SERVE_CTX.into_iter().filter(|&n_ctx| n_ctx <= manifest.config.n_ctx_train);
        let n_ctx = ctx.or_else(|| longer.into_iter().find(|&n_ctx| fits(n_least, n_ctx)));
        let for_fit = n_ctx.unwrap_or(manifest.config.n_ctx_train.min(N_CTX_DEFAULT));
        let n_session = n_parallel
            .or_else(|| (1..=N_PARALLEL_DEFAULT).rev().find(|&n| fits(n, for_fit)))
            .unwrap_or(1) as u64;
        Self { n_ctx, n_feed: None, keeps_prefixes: true, n_session }
    }
}

/// Everything decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// All memory that the process may use.
    pub(crate) budget: Size,
    pub(crate) n_thread: usize,
    pub(crate) n_ctx: usize,
    pub(crate) n_batch: usize,
    pub(crate) n_expert_used: usize,
    /// Does the user want another number of experts than the model has?
    pub(crate) is_approximate: bool,
    pub(crate) stream: StreamOptions,
    pub(crate) prefetch: Prefetch,
    /// How keys and values are stored.
    pub(crate) kv_format: KvFormat,
    /// Where the way to read comes from.
    pub(crate) drive_origin: Origin,
    /// `None`: the drive was never measured.
    supply: Option<SupplyTimes>,
    is_cache_asked: bool,
    is_given: bool,
    footprint: Footprint,
    used_bytes: u64,
    keeps_prefixes: bool,
    /// For prefixes of prompts.
    prefix_bytes: u64,
    n_session: u64,
    /// Where reads of a checkpoint's pieces land, over all readers.
    landing_bytes: u64,
    /// Memory of a GPU that has its own: everything but the slots is there.
    vram: Option<Vram>,
    /// What is left of it for experts.
    held_bytes: u64,
}

/// Records of a checkpoint that is used where it is do not land in slots.
fn landing_bytes(manifest: &Manifest, tuning: Tuning) -> u64 {
    match manifest.is_in_place() {
        true => tuning.landing_bytes(Footprint::of(manifest).record_bytes as usize) as u64,
        false => 0,
    }
}

/// Memory of a GPU that has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vram {
    pub(crate) budget: Size,
    /// Was it given by the user?
    pub(crate) is_given: bool,
}

/// Seconds that the experts of one token take to get there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SupplyTimes {
    slots_s: f64,
    page_s: f64,
}

/// What is asked for, by flags or by `inspect`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    pub(crate) memory: Option<Size>,
    pub(crate) cache: Cache,
    pub(crate) ctx: Option<usize>,
    pub(crate) threads: Option<usize>,
    pub(crate) readers: Option<usize>,
    pub(crate) experts: Option<usize>,
    pub(crate) prefetch: flags::Prefetch,
    pub(crate) kv: KvFormat,
    /// Of the GPU that computes, if it has memory of its own.
    pub(crate) vram: Option<Vram>,
}

impl From<&EngineFlags> for Wishes {
    /// For a device that shares the machine's memory.
    fn from(flags: &EngineFlags) -> Self {
        Self {
            memory: flags.memory.0,
            cache: flags.cache,
            ctx: flags.ctx,
            threads: flags.threads,
            readers: flags.readers,
            experts: flags.experts.first().copied(),
            prefetch: flags.prefetch,
            kv: flags.kv,
            vram: None,
        }
    }
}

impl Plan {
    /// Decides for a model on this machine and `drive`, as they are now.
    ///
    /// # Errors
    /// The budget cannot hold what is needed at least, or a wish does not fit the model.
    pub(crate) fn new(
        wishes: &Wishes,
        manifest: &Manifest,
        work: Work,
        drive: &Drive,
    ) -> Result<Self, CliError> {
        let available = Size(stream::available_bytes());
        let used_bytes = stream::rss_bytes();
        let n_thread = kernels::Cores::read().n_thread();
        Self::on_machine(wishes, manifest, work, Machine { available, used_bytes, n_thread }, drive)
    }

    fn on_machine(
        wishes: &Wishes,
        manifest: &Manifest,
        work: Work,
        machine: Machine,
        drive: &Drive,
    ) -> Result<Self, CliError> {
        let config = &manifest.config;
        let n_expert_used = wishes.experts.unwrap_or(config.n_expert_used);
        if config.n_expert < n_expert_used {
            let why =
                format!("--experts {n_expert_used} is more than the {} that the model has", config.n_expert);
            return Err(CliError::Usage(why));
        }
        let n_ctx = wishes.ctx.or(work.n_ctx).unwrap_or(config.n_ctx_train.min(N_CTX_DEFAULT));
        if config.n_ctx_train < n_ctx {
            let why = format!(
                "a context of {n_ctx} is more than the {} that the model is made for",
                config.n_ctx_train
            );
            return Err(CliError::Usage(why));
        }
        if let Some(n_token) = work.n_feed.filter(|&n_feed| n_ctx < n_feed) {
            return Err(CliError::TooLong { n_token, n_ctx });
        }
        let mode = if wishes.cache == Cache::Page { CacheMode::Page } else { CacheMode::Slots };
        let pool = |depth| Tuning { method: Method::Pool, depth, ..Tuning::default() };
        let tuning = wishes.readers.map_or(drive.tuning, pool);
        let n_feed = work.n_feed.unwrap_or(n_ctx);
        let mut plan = Self {
            budget: wishes.memory.unwrap_or(machine.safe_share()),
            n_thread: wishes.threads.unwrap_or(machine.n_thread),
            n_ctx,
            n_batch: N_BATCH_STEP,
            n_expert_used,
            is_approximate: n_expert_used != config.n_expert_used,
            stream: StreamOptions { mode, n_slot: 0, tuning },
            prefetch: match wishes.prefetch {
                flags::Prefetch::Auto => Prefetch::Auto,
                flags::Prefetch::Off => Prefetch::Off,
                flags::Prefetch::On => Prefetch::On,
            },
            kv_format: wishes.kv,
            drive_origin: drive.origin,
            supply: None,
            is_cache_asked: wishes.cache != Cache::Auto,
            is_given: wishes.memory.is_some(),
            footprint: Footprint::of(manifest),
            used_bytes: machine.used_bytes,
            keeps_prefixes: work.keeps_prefixes,
            prefix_bytes: 0,
            n_session: work.n_session,
            landing_bytes: landing_bytes(manifest, tuning),
            vram: wishes.vram,
            held_bytes: 0,
        };
        plan.divide(n_feed)?;
        if let Some(rates) = &drive.rates {
            let supply = plan.supply_times(&Needs::of(manifest, n_expert_used), rates);
            plan.supply = Some(supply);
            // Both have the same memory: what has a token's experts sooner is taken.
            if !plan.is_cache_asked && supply.page_s * PAGE_GAIN < supply.slots_s {
                plan.stream.mode = CacheMode::Page;
                plan.divide(n_feed)?;
            }
        }
        Ok(plan)
    }

    fn supply_times(&self, needs: &Needs, rates: &DriveRates) -> SupplyTimes {
        let (hit_rate, _) = needs.hit_rate(self.n_cached());
        let seconds = |mode| needs.supply_s(&rates.supply(mode), hit_rate);
        SupplyTimes { slots_s: seconds(CacheMode::Slots), page_s: seconds(CacheMode::Page) }
    }

    /// Seconds that the experts of one token take to get there; `None` if the drive was never measured.
    pub(crate) fn supply_s(&self) -> Option<f64> {
        self.supply.map(|supply| match self.stream.mode {
            CacheMode::Page => supply.page_s,
            CacheMode::Slots | CacheMode::Assumed => supply.slots_s,
        })
    }

    /// Sets the chunk and the slots: first what must be, then a longer chunk, then experts.
    fn divide(&mut self, n_feed: usize) -> Result<(), CliError> {
        let f = self.footprint;
        let n_slot_min = self.n_slot_min();
        (self.stream.n_slot, self.n_batch, self.held_bytes) = (n_slot_min as usize, N_BATCH_STEP, 0);
        let (prefix_min, prefix_max) = self.prefix_bounds();
        self.prefix_bytes = prefix_min;
        let free = match room(Memory::Host, self.budget, self.is_given, self.parts()) {
            // Better without prefixes than not at all.
            Err(_) if self.keeps_prefixes => {
                self.keeps_prefixes = false;
                return self.divide(n_feed);
            }
            free => free?,
        };
        let vram_free = match self.vram {
            Some(vram) => Some(room(Memory::Gpu, vram.budget, vram.is_given, self.vram_parts())?),
            None => None,
        };
        let for_scratch = vram_free.unwrap_or(free) / SCRATCH_SHARE;
        let n_step = (for_scratch / (f.scratch_bytes_per_token * N_BATCH_STEP as u64).max(1)) as usize;
        let n_batch_max = n_feed.next_multiple_of(N_BATCH_STEP).min(N_BATCH_MAX);
        self.n_batch = (n_step.saturating_add(1).saturating_mul(N_BATCH_STEP)).min(n_batch_max);
        let scratch = (self.n_batch - N_BATCH_STEP) as u64 * f.scratch_bytes_per_token;
        let free = match vram_free {
            Some(vram_free) => {
                // A GPU has room for one more record a layer.
                let most = (f.n_record + f.n_layer) * f.record_bytes;
                self.held_bytes = (vram_free - scratch).min(most);
                free
            }
            None => free - scratch,
        };
        // A state under way, and one that is kept with about as many bytes of keys and values.
        let node_bytes = 3 * self.kept_state_bytes();
        let wanted = (free / PREFIX_SHARE).max(node_bytes.min(free / NODE_SHARE));
        self.prefix_bytes = prefix_min.max(prefix_max.min(wanted));
        let n_slot = n_slot_min + (free - (self.prefix_bytes - prefix_min)) / f.record_bytes.max(1);
        let n_useful = match self.stream.mode {
            // What a GPU holds needs no slot, but it gets there through one.
            CacheMode::Slots | CacheMode::Assumed => {
                let n_held = self.held_bytes / f.record_bytes.max(1);
                f.n_record.saturating_sub(n_held).max(n_slot_min * STAGING_TOKENS).min(f.n_record)
            }
            CacheMode::Page => f.n_record.min(n_slot_min * STAGING_TOKENS),
        };
        self.stream.n_slot = n_slot.min(n_useful).max(2) as usize;
        Ok(())
    }

    /// Least and most bytes for prefixes of prompts: at least a state to go back to for each session, one under way.
    fn prefix_bounds(&self) -> (u64, u64) {
        if !self.keeps_prefixes {
            return (0, 0);
        }
        let contexts = self.n_session * self.footprint.kv_bytes(self.kv_format, self.n_ctx);
        ((self.n_session + 1) * self.kept_state_bytes(), contexts + N_STATE_MAX * self.kept_state_bytes())
    }

    /// A state with logits.
    fn kept_state_bytes(&self) -> u64 {
        self.footprint.state_bytes + self.footprint.logits_bytes
    }

    /// Memory for prefixes of prompts; `None`: none are kept.
    pub(crate) fn prefix_memory(&self) -> Option<PrefixMemory> {
        let state_bytes = self.kept_state_bytes();
        let n_way = (self.prefix_bytes / N_WAY_MAX / state_bytes.max(1)).clamp(1, N_WAY_MAX);
        self.keeps_prefixes.then(|| PrefixMemory {
            cache_bytes: self.prefix_bytes - n_way * state_bytes,
            n_way: n_way as usize,
        })
    }

    /// What checkpoints consist of.
    pub(crate) fn prefix_shape(&self) -> Shape {
        prefix_shape(&self.footprint, self.kv_format)
    }

    /// One token's experts of a layer at once; the stream works with two slots or more.
    fn n_slot_min(&self) -> u64 {
        (self.n_expert_used as u64).max(2)
    }

    /// What the slots may become while the program runs.
    pub(crate) fn governor_options(&self) -> GovernorOptions {
        let slot_bytes = self.footprint.record_bytes;
        let floor_bytes = (stream::total_bytes() / FLOOR_SHARE).clamp(FLOOR_BYTES_MIN, FLOOR_BYTES_MAX);
        GovernorOptions {
            n_slot_max: self.stream.n_slot,
            n_slot_min: self.n_slot_min() as usize,
            slot_bytes,
            fixed_bytes: self.planned().0 - self.stream.n_slot as u64 * slot_bytes,
            floor_bytes: if self.is_given { FLOOR_BYTES_MIN } else { floor_bytes },
        }
    }

    /// What the machine's memory is for, in the order it is taken.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Size)> {
        let program = ("program", Size(self.used_bytes + RESERVE_BYTES));
        let slots = ("expert slots", Size(self.stream.n_slot as u64 * self.footprint.record_bytes));
        let model = if self.vram.is_some() { Vec::new() } else { self.model_parts() };
        let landing = (self.landing_bytes > 0).then_some(("reads under way", Size(self.landing_bytes)));
        let prefixes = (self.prefix_bytes > 0).then_some(("prefix cache", Size(self.prefix_bytes)));
        [program].into_iter().chain(model).chain(prefixes).chain(landing).chain([slots]).collect()
    }

    /// What a GPU's own memory is for.
    pub(crate) fn vram_parts(&self) -> Vec<(&'static str, Size)> {
        self.model_parts().into_iter().chain([("experts", Size(self.held_bytes))]).collect()
    }

    /// What is needed where the model computes.
    fn model_parts(&self) -> Vec<(&'static str, Size)> {
        let f = &self.footprint;
        let scratch = f.scratch_bytes(self.n_batch, self.n_ctx);
        vec![
            ("dense weights", Size(f.dense_bytes)),
            ("keys and values", Size(self.n_session * f.kv_bytes(self.kv_format, self.n_ctx))),
            ("states", Size(self.n_session * f.state_bytes)),
            ("activations", Size(scratch)),
        ]
    }

    /// Memory of a GPU that is for experts.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Sum of all parts.
    pub(crate) fn planned(&self) -> Size {
        Size(self.parts().iter().map(|(_, size)| size.0).sum())
    }

    /// Expert records that there is memory for: in slots, or in the system's page cache.
    pub(crate) fn n_cached(&self) -> usize {
        let (f, left) = (&self.footprint, self.budget.0.saturating_sub(self.planned().0));
        match self.stream.mode {
            CacheMode::Page => (left / f.record_bytes.max(1)).min(f.n_record) as usize,
            CacheMode::Slots | CacheMode::Assumed => self.stream.n_slot,
        }
    }

    /// Bytes of the keys and values of one token.
    pub(crate) fn kv_bytes_per_token(&self) -> u64 {
        self.footprint.kv_bytes_per_token(self.kv_format)
    }

    /// Bytes of the dense weights.
    pub(crate) fn dense_bytes(&self) -> u64 {
        self.footprint.dense_bytes
    }

    /// Expert records of the model.
    pub(crate) fn n_record(&self) -> u64 {
        self.footprint.n_record
    }

    /// The name of the cache policy.
    pub(crate) fn cache_name(&self) -> &'static str {
        match self.stream.mode {
            CacheMode::Slots => "slots",
            CacheMode::Assumed => "assumed resident",
            CacheMode::Page => "page",
        }
    }

    /// When experts are read before they are asked for.
    pub(crate) fn prefetch_name(&self) -> &'static str {
        match self.prefetch {
            Prefetch::Auto => "where it pays",
            Prefetch::On => "always",
            Prefetch::Off => "never",
        }
    }

    /// For the engine.
    pub(crate) fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            stream: self.stream,
            n_batch: self.n_batch,
            n_expert_used: Some(self.n_expert_used),
            prefetch: self.prefetch,
            kv_format: self.kv_format,
        }
    }

    fn describe_parts(&self, parts: Vec<(&'static str, Size)>) -> String {
        let line = |(name, size): (&str, Size)| {
            let what = match name {
                "keys and values" => format!("   {} tokens of context, {}", self.n_ctx, self.kv_format),
                "activations" => format!("   up to {} tokens at a time", self.n_batch),
                "prefix cache" => format!("   {}", self.describe_prefixes()),
                "expert slots" => format!("   {} of {} experts", self.stream.n_slot, self.n_record()),
                "experts" => {
                    let n = (self.held_bytes / self.footprint.record_bytes.max(1)).min(self.n_record());
                    format!("   {n} of {} experts", self.n_record())
                }
                _ => String::new(),
            };
            format!("  {name:<16} {:>12}{what}\n", size.to_string())
        };
        parts.into_iter().map(line).collect()
    }

    fn describe_prefixes(&self) -> String {
        let cache_bytes = self.prefix_memory().map_or(0, |memory| memory.cache_bytes);
        let n_token = self.n_ctx.min(N_TOKEN_SHOWN);
        let each = Size(n_token as u64 * self.kv_bytes_per_token() + self.footprint.state_bytes);
        match cache_bytes / each.0.max(1) {
            0 => {
                let alone = Size(self.footprint.state_bytes);
                format!("a checkpoint of {n_token} tokens takes {each}, {alone} without keys and values")
            }
            1 => format!("a checkpoint of {n_token} tokens takes {each}"),
            n => format!("{n} checkpoints of {n_token} tokens, {each} each"),
        }
    }

    /// For people, one line a part.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("memory plan: {} of {}\n", self.planned(), self.budget);
        text += &self.describe_parts(self.parts());
        if let Some(vram) = self.vram {
            let parts = self.vram_parts();
            let planned = Size(parts.iter().map(|(_, size)| size.0).sum());
            text += &format!("on the GPU: {planned} of {}\n", vram.budget);
            text += &self.describe_parts(parts);
        }
        let Tuning { method, request_bytes, depth } = self.stream.tuning;
        let request = match request_bytes as u64 {
            bytes if self.footprint.record_bytes <= bytes => "whole experts".to_owned(),
            bytes => format!("pieces of {}", Size(bytes)),
        };
        let origin = match self.drive_origin {
            Origin::Default => "the default",
            Origin::Remembered => "as measured before",
            Origin::Measured => "as measured now",
        };
        text += &format!("reads: {depth} {request} at a time ({}), {origin}\n", method_name(method));
        text += &format!("prefetch: {}\n", self.prefetch_name());
        text += &format!("cache: {}", self.cache_name());
        text += &match self.supply {
            _ if self.is_cache_asked => String::new(),
            None => ", the default".into(),
            Some(SupplyTimes { slots_s, page_s }) => format!(
                ", the faster one: {:.1} ms a token for reads with slots, {:.1} with page",
                1e3 * slots_s,
                1e3 * page_s
            ),
        };
        text
    }
}

/// What is left of a budget.
fn room(
    memory: Memory,
    budget: Size,
    is_given: bool,
    parts: Vec<(&'static str, Size)>,
) -> Result<u64, CliError> {
    let needed = parts.iter().map(|(_, size)| size.0).sum();
    let no_room = || CliError::Memory(Box::new(NoRoom { memory, budget, is_given, parts }));
    budget.0.checked_sub(needed).ok_or_else(no_room)
}

/// What the plan needs to know about where it runs.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// Memory that can be had without swapping, what this process uses not included.
    available: Size,
    /// What this process uses already.
    used_bytes: u64,
    /// Threads to compute on if the user does not say.
    n_thread: usize,
}

impl Machine {
    fn safe_share(&self) -> Size {
        Size((self.available.0 / 100 * SHARE_PERCENT).saturating_add(self.used_bytes))
    }
}

/// What checkpoints of a model consist of.
pub(crate) fn prefix_shape(footprint: &Footprint, kv_format: KvFormat) -> Shape {
    Shape {
        kv_token_bytes: footprint.kv_bytes_per_token(kv_format) as usize,
        state_bytes: footprint.state_bytes as usize,
        logits_bytes: footprint.logits_bytes as usize,
    }
}

#[cfg(test)]
mod tests {
    use kernels::AttentionShape;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// 397B at 4 bits, about.
    fn footprint() -> Footprint {
        Footprint {
            dense_bytes: 5_600 * MIB,
            n_attention: 15,
            attention: AttentionShape { n_head: 32, n_head_kv: 2, head_dim: 256, gated: true },
            delta: None,
            state_bytes: 190 * MIB,
            logits_bytes: MIB,
            scratch_bytes_per_token: 450_000,
            scratch_bytes_fixed: 16 * MIB,
            record_bytes: 7 * MIB,
            n_record: 60 * 512,
            n_layer: 60,
        }
    }

    fn plan(budget: u64, mode: CacheMode, n_feed: usize) -> Result<Plan, CliError> {
        let mut plan = Plan {
            budget: Size(budget),
            n_thread: 2,
            n_ctx: 4096,
            n_batch: N_BATCH_STEP,
            n_expert_used: 10,
            is_approximate: false,
            stream: StreamOptions { mode, n_slot: 0, tuning: Tuning::default() },
            prefetch: Prefetch::Auto,
            kv_format: KvFormat::F16,
            drive_origin: Origin::Default,
            supply: None,
            is_cache_asked: true,
            is_given: true,
            footprint: footprint(),
            used_bytes: 30 * MIB,
            keeps_prefixes: false,
            prefix_bytes: 0,
            n_session: 1,
            landing_bytes: 0,
            vram: None,
            held_bytes: 0,
        };
        plan.divide(n_feed).map(|()| plan)
    }

    /// The budget would be exceeded, or left unused while experts are read again and again.
    #[test]
    fn the_budget_is_used_and_kept() {
        for budget in [7_000, 12_000, 60_000].map(|mib| mib * MIB) {
            for n_feed in [1, 100, 4096] {
                let plan = plan(budget, CacheMode::Slots, n_feed).unwrap();
                let left = budget.checked_sub(plan.planned().0).expect("more was planned than there is");
                assert!(left < footprint().record_bytes, "{left} bytes are left of {budget}");
                assert!(10 <= plan.stream.n_slot && plan.n_batch <= n_feed.next_multiple_of(64), "{plan:?}");
            }
        }
    }

    /// Experts would lie in the machine's memory that a GPU holds in its own, or a budget of one would be exceeded.
    #[test]
    fn what_a_gpu_holds_needs_no_slots() {
        let on_gpu = |vram: u64| {
            let mut plan = plan(1 << 50, CacheMode::Slots, 64).unwrap();
            plan.vram = Some(Vram { budget: Size(vram), is_given: true });
            plan.divide(64).map(|()| plan)
        };
        let whole = on_gpu(1 << 50).unwrap();
        assert_eq!(whole.stream.n_slot, 40, "enough to read through");
        let part = on_gpu(16_000 * MIB).unwrap();
        let planned: u64 = part.vram_parts().iter().map(|(_, size)| size.0).sum();
        let n_held = part.held_bytes() / footprint().record_bytes;
        assert!(planned <= 16_000 * MIB && 1000 < n_held, "{part:?}");
        assert_eq!(part.stream.n_slot as u64, footprint().n_record - n_held);
        let Err(CliError::Memory(room)) = on_gpu(1000 * MIB) else { panic!("it cannot fit") };
        assert!(CliError::Memory(room).to_string().contains("--vram is 1000.0 MiB"));
    }

    /// Memory would be taken that nothing can use.
    #[test]
    fn no_more_slots_than_records() {
        let all = plan(1 << 50, CacheMode::Slots, 64).unwrap();
        assert_eq!(all.stream.n_slot as u64, footprint().n_record);
        let staging = plan(1 << 50, CacheMode::Page, 64).unwrap();
        assert_eq!(staging.stream.n_slot, 40);
    }

    /// The slower way would be taken, or one that the user did not ask for.
    #[test]
    fn the_faster_cache_is_taken() {
        let options = convert::SynthOptions {
            like: "qwen3.5-35b".into(),
            n_layer: Some(2),
            n_vocab: Some(1024),
            pack: convert::PackOptions::default(),
            seed: 0,
            routing: convert::Routing::Uniform,
        };
        let manifest = convert::synth_plan(&options).unwrap().manifest();
        let mode = |direct_bytes_s: f64, cache, memory: u64| {
            let wishes = Wishes {
                memory: Some(Size(memory * MIB)),
                cache,
                ctx: None,
                threads: None,
                readers: None,
                experts: None,
                prefetch: flags::Prefetch::Auto,
                kv: KvFormat::F16,
                vram: None,
            };
            let rates = DriveRates { direct_bytes_s, buffered_bytes_s: 1e9, copy_bytes_s: 10e9 };
            let drive = Drive { rates: Some(rates), ..Drive::unknown() };
            let machine = Machine { available: Size(1 << 34), used_bytes: 30 * MIB, n_thread: 2 };
            let work = Work { n_ctx: None, n_feed: Some(64), keeps_prefixes: false, n_session: 1 };
            let plan = Plan::on_machine(&wishes, &manifest, work, machine, &drive).unwrap();
            assert!(plan.planned() <= plan.budget, "{plan:?}");
            plan.stream.mode
        };
        assert_eq!(mode(2e9, Cache::Auto, 600), CacheMode::Slots);
        assert_eq!(mode(0.2e9, Cache::Auto, 600), CacheMode::Page);
        assert_eq!(mode(0.2e9, Cache::Slots, 600), CacheMode::Slots);
        assert_eq!(mode(2e9, Cache::Page, 600), CacheMode::Page);
        // Nothing is read when all experts are in slots.
        assert_eq!(mode(0.2e9, Cache::Auto, 4000), CacheMode::Slots);
    }

    /// A server would give memory to contexts that experts need, or none to a second client where there is plenty.
    #[test]
    fn a_server_has_long_contexts_where_there_is_room() {
        let options = convert::SynthOptions {
            like: "qwen3.5-35b".into(),
            n_layer: Some(8),
            n_vocab: Some(1024),
            pack: convert::PackOptions::default(),
            seed: 0,
            routing: convert::Routing::Uniform,
        };
        let manifest = convert::synth_plan(&options).unwrap().manifest();
        let check = |mib: u64, ctx, n_parallel, expected: (Option<usize>, u64)| {
            let work = Work::serving_in(Size(mib * MIB), ctx, KvFormat::F16, &manifest, n_parallel);
            assert_eq!((work.n_ctx, work.n_session), expected, "{mib} MiB");
        };
        check(1 << 20, None, None, (Some(32_768), 4));
        check(400, None, None, (None, 1));
        check(400, None, Some(3), (None, 3));
        check(400, Some(65_536), Some(2), (Some(65_536), 2));
        check(1 << 20, Some(4096), None, (Some(4096), 4));
    }

    /// Prefixes would take memory that experts need, none where they are wanted, or more than the budget has.
    #[test]
    fn prefixes_get_their_share() {
        let Err(CliError::Memory(least)) = plan(100 * MIB, CacheMode::Slots, 64) else {
            panic!("it cannot fit")
        };
        let keeping = |keeps_prefixes, budget: u64, n_session| {
            let mut plan = plan(1 << 50, CacheMode::Slots, 64).unwrap();
            (plan.keeps_prefixes, plan.n_session, plan.budget) =
                (keeps_prefixes, n_session, Size(budget * MIB));
            plan.divide(64).unwrap();
            assert!(plan.planned() <= plan.budget, "{plan:?}");
            plan
        };
        let memory = |budget, n_session| keeping(true, budget, n_session).prefix_memory().unwrap();
        assert_eq!(keeping(false, 60_000, 1).prefix_memory(), None);
        let state_bytes = 191 * MIB;
        // The least: a state for each session, and one under way.
        assert_eq!(memory(7_000, 1), PrefixMemory { cache_bytes: state_bytes, n_way: 1 });
        assert_eq!(memory(9_000, 4), PrefixMemory { cache_bytes: 4 * state_bytes, n_way: 1 });
        // A share of what experts could have.
        let plan = keeping(true, 60_000, 1);
        let without = keeping(false, 60_000, 1);
        let n_less = without.stream.n_slot - plan.stream.n_slot;
        assert!((without.stream.n_slot / 17..=without.stream.n_slot / 15).contains(&n_less), "{n_less}");
        // The most: all contexts, and 16 states.
        let most = memory(1 << 20, 1);
        let kv_bytes = footprint().kv_bytes(KvFormat::F16, 4096);
        assert_eq!(most, PrefixMemory { cache_bytes: kv_bytes + 12 * state_bytes, n_way: 4 });
        // Where there is no room at all, the model runs without.
        let tight = |extra_bytes| {
            let mut plan = keeping(true, 60_000, 1);
            plan.budget = Size(least.needed().0 + extra_bytes);
            plan.divide(64).map(|()| plan.prefix_memory())
        };
        assert!(matches!(tight(2 * state_bytes), Ok(Some(_))));
        assert!(matches!(tight(2 * state_bytes - 1), Ok(None)));
        // Also where a GPU has all else in memory of its own.
        let mut plan = keeping(true, 20_000, 1);
        plan.vram = Some(Vram { budget: Size(16_000 * MIB), is_given: true });
        plan.divide(64).unwrap();
        assert!(plan.parts().iter().any(|(name, _)| *name == "prefix cache"), "{plan:?}");
        assert!(
            plan.planned() <= plan.budget
                && plan.vram_parts().iter().all(|(name, _)| *name != "prefix cache")
        );
    }

    /// A user could not tell what the memory is good for.
    #[test]
    fn the_plan_says_what_prefixes_fit() {
        let mut plan = plan(1 << 50, CacheMode::Slots, 64).unwrap();
        plan.keeps_prefixes = true;
        let mut said = |budget: u64, n_ctx| {
            (plan.budget, plan.n_ctx) = (Size(budget * MIB), n_ctx);
            plan.divide(64).unwrap();
            let text = plan.describe();
            text.lines()
                .find(|line| line.contains("prefix cache"))
                .unwrap()
                .split_once("   ")
                .unwrap()
                .1
                .to_owned()
        };
        let line = said(7_000, 4096);
        assert!(
            line.ends_with("a checkpoint of 4096 tokens takes 310.0 MiB, 190.0 MiB without keys and values"),
            "{line}"
        );
        let line = said(60_000, 32_768);
        assert!(line.ends_with("3 checkpoints of 20000 tokens, 775.9 MiB each"), "{line}");
    }

    /// A model would be loaded that cannot fit, or refused although it does.
    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let Err(CliError::Memory(room)) = plan(100 * MIB, CacheMode::Slots, 64) else {
            panic!("it cannot fit")
        };
        let needed = room.needed();
        let text = CliError::Memory(room).to_string();
        assert!(text.contains("dense weights 5.47 GiB") && text.contains("--memory is 100.0 MiB"), "{text}");
        assert!(plan(needed.0, CacheMode::Slots, 64).is_ok());
        assert!(plan(needed.0 - 1, CacheMode::Slots, 64).is_err());
    }
}

//! `inspect`: what a store is and what it needs.

use std::io::Write;

use serde_json::{Map, Value, json};
use store::{FORMAT_VERSION, LayerKind, Store};

use crate::bytes::Census;
use crate::cachedir::CacheDir;
use crate::drive::{Drive, method_name};
use crate::flags::{Cache, InspectFlags, Prefetch};
use crate::plan::{Plan, Wishes, Work};
use crate::size::Size;
use crate::{report, target};

pub(crate) fn inspect(flags: &InspectFlags) -> anyhow::Result<()> {
    let store = target::open(flags.model.as_deref())?;
    let census = Census::of(&store, store.config().n_expert_used);
    let wishes = Wishes {
        memory: flags.memory.0,
        cache: Cache::Auto,
        ctx: flags.ctx,
        threads: None,
        readers: None,
        experts: None,
        prefetch: Prefetch::Auto,
        kv: flags.kv,
        vram: None,
    };
    let drive = Drive::known(&store, &CacheDir::open(false));
    let work = Work { n_ctx: None, n_feed: None, keeps_prefixes: false, n_session: 1 };
    let plan = Plan::new(&wishes, store.manifest(), work, &drive);
    if flags.json {
        return report::print(&to_json(&store, &census, plan.as_ref().ok()));
    }
    let mut text = to_text(&store, &census);
    // A model that does not fit can still be looked at.
    text += &match plan {
        Ok(plan) => plan.describe(),
        Err(error) => format!("memory plan: none: {error}"),
    };
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}

fn to_text(store: &Store, census: &Census) -> String {
    let (config, manifest) = (store.config(), store.manifest());
    let n_full = config.n_layer_of(LayerKind::FullAttention);
    let mut text = format!(
        "{}\n  name           {}\n  architecture   {}\n  layers         {}: {} linear attention, {n_full} full attention\n",
        store.location(),
        manifest.name,
        config.architecture.name(),
        config.n_layer(),
        config.n_layer() - n_full,
    );
    let shared = if config.d_ff_shared > 0 { " and a shared one" } else { "" };
    text += &format!("  experts        {} a layer, {} used{shared}\n", config.n_expert, config.n_expert_used);
    text += &format!(
        "  width          {}, vocabulary {}, context {}\n",
        config.d_model, config.n_vocab, config.n_ctx_train
    );
    text += &format!(
        "  parameters     {}: {} dense, {} in experts; {} active a token\n",
        count(census.dense_params + census.expert_params),
        count(census.dense_params),
        count(census.expert_params),
        count(census.active_params),
    );
    text += &format!(
        "  bytes          {} dense, {} experts\n",
        Size(store.dense_bytes()),
        Size(census.expert_bytes),
    );
    text += &format!(
        "  bytes a token  {} dense, {} experts\n",
        Size(census.dense_bytes_per_token),
        Size(census.expert_bytes_per_token),
    );
    for skipped in &manifest.source.skipped {
        text += &format!("  left out       {skipped}\n");
    }
    text += "bytes by role\n";
    for ((role, format), bytes) in &census.roles {
        text += &format!("  {role:<20} {format:<12} {:>12}\n", Size(*bytes).to_string());
    }
    text
}

/// A number of parameters.
fn count(n: u64) -> String {
    match n {
        0..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

fn to_json(store: &Store, census: &Census, plan: Option<&Plan>) -> Value {
    let (config, manifest) = (store.config(), store.manifest());
    let roles: Vec<Value> = census
        .roles
        .iter()
        .map(|((role, format), bytes)| json!({"role": role, "format": format, "bytes": bytes}))
        .collect();
    let n_full = config.n_layer_of(LayerKind::FullAttention);
    json!({
        "model": store.location(),
        "name": manifest.name,
        "store_version": FORMAT_VERSION,
        "architecture": config.architecture.name(),
        "source": manifest.source,
        "n_layer": config.n_layer(),
        "n_layer_full_attention": n_full,
        "n_layer_linear_attention": config.n_layer() - n_full,
        "d_model": config.d_model,
        "n_vocab": config.n_vocab,
        "n_ctx_train": config.n_ctx_train,
        "n_expert": config.n_expert,
        "n_expert_used": config.n_expert_used,
        "parameters": {
            "total": census.dense_params + census.expert_params,
            "dense": census.dense_params,
            "experts": census.expert_params,
            "active": census.active_params,
        },
        "bytes": {"dense": store.dense_bytes(), "experts": census.expert_bytes, "roles": roles},
        "bytes_per_token": {
            "dense": census.dense_bytes_per_token,
            "experts": census.expert_bytes_per_token,
        },
        "memory_plan": plan.map(plan_json),
    })
}

fn plan_json(plan: &Plan) -> Value {
    let parts: Map<String, Value> = plan
        .parts()
        .into_iter()
        .map(|(name, size)| (name.replace(' ', "_") + "_bytes", size.0.into()))
        .collect();
    json!({
        "budget_bytes": plan.budget.0,
        "planned_bytes": plan.planned().0,
        "n_ctx": plan.n_ctx,
        "kv_format": plan.kv_format.name(),
        "kv_bytes_per_token": plan.kv_bytes_per_token(),
        "n_batch": plan.n_batch,
        "n_slot": plan.stream.n_slot,
        "n_expert_record": plan.n_record(),
        "cache": plan.cache_name(),
        "prefetch": plan.prefetch_name(),
        "reads": {
            "method": method_name(plan.stream.tuning.method),
            "request_bytes": plan.stream.tuning.request_bytes,
            "depth": plan.stream.tuning.depth,
            "origin": plan.drive_origin,
        },
        "parts": parts,
    })
}

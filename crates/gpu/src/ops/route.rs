//! Which experts a token uses.

use crate::context::{Bind, Context};
use crate::kernel::Access::{Read, Write};
use crate::kernel::Kernel;

static CHOOSE: Kernel = Kernel {
    name: "choose",
    wgsl: &[
        include_str!("../wgsl/reduce.wgsl"),
        include_str!("../wgsl/route.wgsl"),
        include_str!("../wgsl/choose.wgsl"),
    ],
    access: &[Read, Read, Write],
};

static ROUTE_STEP: Kernel = Kernel {
    name: "route_step",
    wgsl: &[
        include_str!("../wgsl/reduce.wgsl"),
        include_str!("../wgsl/route.wgsl"),
        include_str!("../wgsl/route_step.wgsl"),
    ],
    access: &[Read, Read, Read, Write, Write, Write],
};

/// Most experts of a layer.
pub(crate) const N_EXPERT_MAX: usize = 1024;
/// In a table of records: the expert is not there.
pub(crate) const MISSING: u32 = u32::MAX;
/// Words of a token's choice for the kernels that follow: record, row of the input, row of the output, weight.
pub(crate) const PAIR_WORDS: usize = 4;
/// Which of them is the weight.
pub(crate) const WEIGHT_WORD: u32 = 3;
/// Of `forced_at`: none.
const NOT_FORCED: u32 = u32::MAX;

/// How a router chooses.
#[derive(Clone, Copy)]
pub(crate) struct Router<'a> {
    /// `[n_token, n_expert]`
    pub(crate) logits: Bind<'a>,
    pub(crate) n_expert: usize,
    pub(crate) k: usize,
    /// Whether the weights are a softmax over the chosen experts only.
    pub(crate) renormalise: bool,
    /// Experts to take instead of the best, `[n_token · k]`.
    pub(crate) forced: Option<&'a [u32]>,
}

/// What [`Context::route_step`] reads and writes beside the control word.
#[derive(Clone, Copy)]
pub(crate) struct RouteStep<'a> {
    pub(crate) layer: usize,
    /// Words: for each expert of the layer where its record is, or [`MISSING`]; the first one's word.
    pub(crate) table: (Bind<'a>, u32),
    /// `[k]` times [`PAIR_WORDS`] from a word on.
    pub(crate) pairs: (Bind<'a>, u32),
    /// The experts, `[k]`, from a word on.
    pub(crate) chosen: (Bind<'a>, u32),
}

/// Words that [`Context::choose`] writes.
pub(crate) fn routes_words(n_token: usize, k: usize) -> usize {
    2 * n_token * k + n_token
}

impl Context {
    /// What each of `n_token` tokens chooses, to `routes`: bits of the weights and experts, `[n_token, k]` each, the
    /// best first, ties to the lowest index; then for each token 1 if a logit is not finite, or else 0.
    pub(crate) fn choose(&self, router: &Router<'_>, routes: Bind<'_>, n_token: usize) {
        let params = [
            n_token as u32,
            router.n_expert as u32,
            router.k as u32,
            u32::from(router.renormalise),
            self.forced_at(router),
        ];
        let buffers = [router.logits, self.args_bind(), routes];
        self.run(&CHOOSE, &[], &buffers, &params, self.grid(n_token));
    }

    /// What one token chooses, with the bits of [`Self::choose`], for the kernels that follow. Where an expert is
    /// missing or a logit is not finite, the control word becomes the layer's number plus 1. Where it is set already,
    /// nothing is written.
    pub(crate) fn route_step(&self, router: &Router<'_>, step: &RouteStep<'_>) {
        let params = [
            router.n_expert as u32,
            router.k as u32,
            u32::from(router.renormalise),
            self.forced_at(router),
            step.layer as u32,
            step.table.1,
            step.pairs.1,
            step.chosen.1,
        ];
        let buffers =
            [router.logits, self.args_bind(), step.table.0, self.control(), step.pairs.0, step.chosen.0];
        self.run(&ROUTE_STEP, &[], &buffers, &params, [1, 1, 1]);
    }

    fn forced_at(&self, router: &Router<'_>) -> u32 {
        let Router { n_expert, k, .. } = *router;
        assert!(n_expert <= N_EXPERT_MAX && k <= n_expert, "{k} of {n_expert} experts");
        router.forced.map_or(NOT_FORCED, |experts| self.args(experts))
    }
}

/// All kernels of this file.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<&'static Kernel> {
    vec![&CHOOSE, &ROUTE_STEP]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rig::{Rig, assert_close, random, rig};

    /// The rule in f64: experts and weights.
    fn exact(row: &[f32], k: usize, renormalise: bool, forced: Option<&[u32]>) -> (Vec<u32>, Vec<f32>) {
        let mut order: Vec<u32> = (0..row.len() as u32).collect();
        order.sort_by(|&a, &b| row[b as usize].partial_cmp(&row[a as usize]).unwrap().then(a.cmp(&b)));
        let chosen = forced.map_or(order[..k].to_vec(), <[u32]>::to_vec);
        let all = if renormalise { &chosen } else { &order };
        let largest = all.iter().map(|&e| f64::from(row[e as usize])).fold(f64::MIN, f64::max);
        let exp = |e: u32| (f64::from(row[e as usize]) - largest).exp();
        let sum: f64 = all.iter().map(|&e| exp(e)).sum();
        let weights = chosen.iter().map(|&e| (exp(e) / sum) as f32).collect();
        (chosen, weights)
    }

    fn words(rig: &Rig, buf: &crate::context::Buf, n: usize) -> Vec<u32> {
        rig.read(buf, n).iter().map(|x| x.to_bits()).collect()
    }

    fn word_buffer(rig: &Rig, words: &[u32]) -> crate::context::Buf {
        rig.tensor(&words.iter().map(|&w| f32::from_bits(w)).collect::<Vec<_>>())
    }

    /// Every kind of row: random, with ties, all equal, zeros of both signs, far apart.
    fn rows(n_token: usize, n_expert: usize) -> Vec<f32> {
        let mut logits = random(n_expert as u64, n_token * n_expert);
        for (t, row) in logits.chunks_exact_mut(n_expert).enumerate() {
            match t % 5 {
                1 => row.iter_mut().for_each(|x| *x = (*x * 2.0).round()),
                2 => row.fill(-1.5),
                3 => row.iter_mut().enumerate().for_each(|(i, x)| *x = if i % 2 == 0 { -0.0 } else { 0.0 }),
                4 => row.iter_mut().for_each(|x| *x *= 1e4),
                _ => {}
            }
        }
        logits
    }

    #[test]
    fn the_best_are_chosen_and_weighted() {
        // Breaks if a tie goes to another index, an expert is chosen twice, a sum misses experts, tokens are mixed up,
        // or the two ways to route differ in a bit.
        let Some(rig) = rig() else { return };
        for (n_expert, k, n_token) in
            [(1, 1, 2), (8, 2, 7), (60, 4, 5), (256, 8, 6), (512, 10, 30), (1000, 33, 5), (1024, 1, 5)]
        {
            let logits = rows(n_token, n_expert);
            let forced: Vec<u32> =
                (0..n_token * k).map(|i| ((i % k * 5 + i / k) % n_expert.max(1)) as u32).collect();
            let table: Vec<u32> = (0..n_expert as u32).map(|e| 1000 + 16 * e).collect();
            let table = word_buffer(&rig, &[&[MISSING; 3], &table[..]].concat());
            let (pairs, chosen) = (rig.zeros(5 + PAIR_WORDS * k), rig.zeros(2 + k));
            for (renormalise, is_forced) in [(true, false), (false, false), (true, true), (false, true)] {
                let buf = rig.tensor(&logits);
                let forced = is_forced.then_some(&forced[..]);
                let router = Router { logits: buf.bind(), n_expert, k, renormalise, forced };
                let n_word = routes_words(n_token, k);
                let routes = rig.zeros(n_word);
                rig.context.choose(&router, routes.bind(), n_token);
                let routes = words(&rig, &routes, n_word);
                for t in 0..n_token {
                    let what =
                        format!("{k} of {n_expert}, token {t}, renormalise {renormalise}, {is_forced}");
                    let row = &logits[t * n_expert..][..n_expert];
                    let forced = forced.map(|forced| &forced[t * k..][..k]);
                    let (experts, weights) = exact(row, k, renormalise, forced);
                    let bits = &routes[t * k..][..k];
                    assert_eq!(routes[(n_token + t) * k..][..k], experts, "{what}");
                    let got: Vec<f32> = bits.iter().map(|&w| f32::from_bits(w)).collect();
                    assert_close(&what, &got, &weights, 5e-6);
                    assert_eq!(routes[2 * n_token * k + t], 0, "{what}");

                    let one = rig.tensor(row);
                    let router = Router { logits: one.bind(), forced, ..router };
                    let (table, pairs_at, chosen_at) =
                        ((table.bind(), 3), (pairs.bind(), 5), (chosen.bind(), 2));
                    let step = RouteStep { layer: 3, table, pairs: pairs_at, chosen: chosen_at };
                    rig.context.route_step(&router, &step);
                    assert_eq!(words(&rig, &chosen, 2 + k)[2..], experts, "{what}");
                    let want: Vec<u32> =
                        (0..k).flat_map(|j| [1000 + 16 * experts[j], 0, j as u32, bits[j]]).collect();
                    assert_eq!(words(&rig, &pairs, 5 + PAIR_WORDS * k)[5..], want, "{what}");
                    assert_eq!(rig.context.control_word(), 0, "{what}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_told() {
        // Breaks if a router that overflowed goes on with some expert.
        let Some(rig) = rig() else { return };
        let (n_expert, k, n_token) = (300, 3, 4);
        let table = word_buffer(&rig, &vec![0; n_expert]);
        let (pairs, chosen) = (rig.zeros(PAIR_WORDS * k), rig.zeros(k));
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut logits = random(1, n_token * n_expert);
            logits[2 * n_expert + 299] = bad;
            let (buf, routes) = (rig.tensor(&logits), rig.zeros(routes_words(n_token, k)));
            let router = Router { logits: buf.bind(), n_expert, k, renormalise: true, forced: None };
            rig.context.choose(&router, routes.bind(), n_token);
            let routes = words(&rig, &routes, routes_words(n_token, k));
            assert_eq!(routes[2 * n_token * k..], [0, 0, 1, 0], "{bad}");
            let row = rig.tensor(&logits[2 * n_expert..][..n_expert]);
            let router = Router { logits: row.bind(), ..router };
            let (table, pairs, chosen) = ((table.bind(), 0), (pairs.bind(), 0), (chosen.bind(), 0));
            rig.context.route_step(&router, &RouteStep { layer: 8, table, pairs, chosen });
            assert_eq!(rig.context.control_word(), 9, "{bad}");
            rig.context.control_set(0);
        }
    }

    #[test]
    fn the_first_layer_that_misses_an_expert_stops_what_follows() {
        // Breaks if a missing expert is not noticed, or a later layer overwrites what the host needs to know.
        let Some(rig) = rig() else { return };
        let (n_expert, k) = (64, 4);
        let mut logits = random(5, n_expert);
        logits[17] = 50.0;
        let mut table = vec![5; 2 * n_expert];
        table[n_expert + 17] = MISSING;
        let (logits, table) = (rig.tensor(&logits), word_buffer(&rig, &table));
        let (pairs, chosen) = (rig.zeros(PAIR_WORDS * k), rig.zeros(3 * k));
        let router = Router { logits: logits.bind(), n_expert, k, renormalise: true, forced: None };
        for layer in 0..3 {
            let table = (table.bind(), [0, n_expert, 0][layer] as u32);
            let chosen = (chosen.bind(), (layer * k) as u32);
            rig.context.route_step(&router, &RouteStep { layer, table, pairs: (pairs.bind(), 0), chosen });
        }
        assert_eq!(rig.context.control_word(), 2);
        let chosen = words(&rig, &chosen, 3 * k);
        assert_eq!(chosen[..k], chosen[k..2 * k], "the layer that misses tells what it chose");
        assert_eq!(chosen[0], 17);
        assert_eq!(chosen[2 * k..], [0; 4], "the layer behind it");
        assert_eq!(words(&rig, &pairs, 4)[0], MISSING);
    }
}

//! What an observer is shown is what the matrices are multiplied with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use convert::Bits;
use quant::Matrix;
use store::{Input, Role};

use super::rig::*;

/// All rows of each input.
type Shown = BTreeMap<(Option<usize>, Input), Vec<f32>>;

fn rows(matrix: &Matrix) -> Vec<Vec<f64>> {
    let view = matrix.view();
    let mut row = vec![0.0; view.cols];
    let decode = |i| {
        view.decode_row(i, &mut row);
        row.iter().map(|&w| f64::from(w)).collect()
    };
    (0..view.rows).map(decode).collect()
}

fn product(w: &[Vec<f64>], x: &[f32]) -> Vec<f64> {
    w.iter().map(|w| w.iter().zip(x).map(|(w, &x)| w * f64::from(x)).sum()).collect()
}

fn close(got: f32, expected: f64) -> bool {
    (f64::from(got) - expected).abs() <= 1e-4 * expected.abs().max(1.0)
}

/// Rows of another layer or of before a norm, an expert's rows given to another, a hidden row without its gate; and
/// logits that change because somebody looks.
#[test]
fn observers_see_the_inputs() {
    let packed = pack("qwen3_5_moe", Bits::Source);
    let ids = golden::<Golden>("qwen3_5_moe", "golden.json").ids;
    let expected = logits_in_calls(&mut Setup::plain().engine(&packed.store), &ids, &[ids.len()]);
    let mut engine = Setup::plain().engine(&packed.store);
    let shown = Arc::new(Mutex::new(Shown::new()));
    let sink = Arc::clone(&shown);
    engine.set_observer(move |layer, input, rows| {
        sink.lock().unwrap().entry((layer, input)).or_default().extend_from_slice(rows);
    });
    let logits = logits_in_calls(&mut engine, &ids, &[ids.len()]);
    assert!(logits == expected, "logits change when they are observed");

    let (shown, config) = (shown.lock().unwrap(), packed.store.config());
    let (d, d_ff) = (config.d_model, config.d_ff_shared);
    let dense = packed.store.load_dense(&mut |_| {}).unwrap();
    let head = rows(&dense.matrix(Role::LmHead, None));
    for (x, logits) in shown[&(None, Input::Head)].chunks_exact(d).zip(&expected) {
        assert!(product(&head, x).iter().zip(logits).all(|(&p, &l)| close(l, p)), "the head's input");
    }
    for layer in 0..config.n_layer() {
        let of = |input| &shown[&(Some(layer), input)];
        let all = of(Input::Experts);
        assert_eq!(all.len(), ids.len() * d);
        assert_eq!(of(Input::Mixer).len(), ids.len() * d);
        assert_eq!(of(Input::MixerOut).len(), ids.len() * Input::MixerOut.width(config, Some(layer)));
        let [gate, up] =
            [Role::SharedGate, Role::SharedUp].map(|role| rows(&dense.matrix(role, Some(layer))));
        for (x, hidden) in all.chunks_exact(d).zip(of(Input::SharedDown).chunks_exact(d_ff)) {
            let (g, u) = (product(&gate, x), product(&up, x));
            let silu = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u);
            assert!(silu.zip(hidden).all(|(s, &h)| close(h, s)), "the shared expert's hidden rows");
        }
        // Each token's row goes to those experts that the router prefers.
        let router = rows(&dense.matrix(Role::Router, Some(layer)));
        let mut n_row = 0;
        for expert in 0..config.n_expert {
            let Some(rows) = shown.get(&(Some(layer), Input::Expert(expert))) else { continue };
            n_row += rows.len() / d;
            let hidden = of(Input::ExpertDown(expert)).len() / config.d_ff_expert;
            assert_eq!(hidden, rows.len() / d);
            for row in rows.chunks_exact(d) {
                let scores = product(&router, row);
                let better = scores.iter().filter(|&&s| s > scores[expert] + 1e-4).count();
                assert!(better < config.n_expert_used, "expert {expert} is shown a row of others");
                assert!(all.chunks_exact(d).any(|x| x == row), "a row that no token has");
            }
        }
        assert_eq!(n_row, ids.len() * config.n_expert_used);
    }
}

//! Which token is chosen.

use generate::{GenerateError, GenerationConfig, Sampler, SamplingOverrides, SamplingParams};
use proptest::prelude::*;

fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..SamplingParams::default() }
}

/// Everything off: temperature 1, no limits.
fn open() -> SamplingParams {
    SamplingParams { top_k: 0, top_p: 1.0, ..SamplingParams::default() }
}

fn sample(params: SamplingParams, logits: &[f32]) -> u32 {
    Sampler::new(params, logits.len(), &[]).unwrap().sample(logits, 0).unwrap()
}

/// How often each token is chosen with 4000 seeds.
fn counts(params: &SamplingParams, logits: &[f32]) -> Vec<usize> {
    let mut counts = vec![0; logits.len()];
    for seed in 0..4000 {
        counts[sample(SamplingParams { seed, ..params.clone() }, logits) as usize] += 1;
    }
    counts
}

#[test]
fn greedy_takes_the_largest_and_the_first_of_equals() {
    // Greedy answers would differ from machine to machine.
    let cases: [(&[f32], u32); 5] = [
        (&[1.0, 3.0, 2.0], 1),
        (&[2.0, 5.0, 5.0, 5.0], 1),
        (&[0.0, -0.0], 0),
        (&[-3.0, -2.0, -2.0], 1),
        (&[f32::MIN, f32::MAX], 1),
    ];
    for (logits, expected) in cases {
        assert_eq!(sample(greedy(), logits), expected, "{logits:?}");
        assert_eq!(sample(SamplingParams { top_k: 1, ..open() }, logits), expected, "top-k 1, {logits:?}");
        assert_eq!(sample(SamplingParams { top_p: 0.0, ..open() }, logits), expected, "top-p 0, {logits:?}");
        assert_eq!(
            sample(SamplingParams { min_p: 1.0, top_k: 1, ..open() }, logits),
            expected,
            "min-p 1, {logits:?}"
        );
    }
}

#[test]
fn draws_follow_the_probabilities() {
    // Sampling would be biased. Probabilities 0.5, 0.3, 0.2 as logits; 4000 draws, 5 standard deviations.
    let probabilities = [0.5f64, 0.3, 0.2];
    let logits = probabilities.map(|p| p.ln() as f32 + 3.0);
    let check = |params: SamplingParams, expected: [f64; 3]| {
        for (n, p) in counts(&params, &logits).into_iter().zip(expected) {
            let (mean, sd) = (4000.0 * p, (4000.0 * p * (1.0 - p)).sqrt());
            assert!((n as f64 - mean).abs() <= 5.0 * sd, "{params:?}: {n} draws, {mean} expected");
        }
    };
    check(open(), probabilities);
    check(SamplingParams { top_k: 2, ..open() }, [0.625, 0.375, 0.0]);
    check(SamplingParams { top_p: 0.5, ..open() }, [1.0, 0.0, 0.0]);
    check(SamplingParams { top_p: 0.51, ..open() }, [0.625, 0.375, 0.0]);
    check(SamplingParams { top_p: 0.81, ..open() }, probabilities);
    check(SamplingParams { min_p: 0.5, ..open() }, [0.625, 0.375, 0.0]);
    check(SamplingParams { min_p: 0.7, ..open() }, [1.0, 0.0, 0.0]);
    // top-p counts within top-k: 0.5 of 0.8 is 0.625.
    check(SamplingParams { top_k: 2, top_p: 0.6, ..open() }, [1.0, 0.0, 0.0]);
    let squares = probabilities.map(|p| p * p / 0.38);
    check(SamplingParams { temperature: 0.5, ..open() }, squares);
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    // Answers could not be reproduced. They may never change.
    let logits: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
    let draw = |seed| {
        let mut sampler =
            Sampler::new(SamplingParams { seed, ..SamplingParams::default() }, 50, &[]).unwrap();
        (0..8).map(|pos| sampler.sample(&logits, pos).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    assert_eq!(draw(42), EXPECTED_SEED_42);
}

/// By a separate implementation in Python of the documented rules.
const EXPECTED_SEED_42: [u32; 8] = [39, 38, 20, 11, 47, 37, 29, 48];

#[test]
fn penalties_count_what_they_say() {
    // T31: loops would go on, or words of the question would be avoided in the answer.
    let run = |params: SamplingParams, prompt: &[u32], logits: &[f32], n: usize| {
        let mut sampler = Sampler::new(params, logits.len(), prompt).unwrap();
        (0..n).map(|pos| sampler.sample(logits, pos).unwrap()).collect::<Vec<_>>()
    };
    let logits = [5.0, 4.0, 3.0, -1.0];
    assert_eq!(run(greedy(), &[0], &logits, 3), [0, 0, 0]);
    // Presence: once for generated tokens, whatever the prompt has.
    let presence = SamplingParams { presence_penalty: 1.5, ..greedy() };
    assert_eq!(run(presence, &[0, 0], &logits, 5), [0, 1, 0, 0, 0]);
    // Frequency: again for each time.
    let frequency = SamplingParams { frequency_penalty: 0.6, ..greedy() };
    assert_eq!(run(frequency, &[0, 0], &logits, 7), [0, 0, 1, 0, 1, 0, 2]);
    // Repetition: prompt and answer, once; positive logits shrink, negative ones sink.
    let repetition = SamplingParams { repetition_penalty: 1.5, ..greedy() };
    assert_eq!(run(repetition.clone(), &[0], &logits, 3), [1, 0, 0]);
    assert_eq!(run(repetition, &[0], &[-1.0, -1.2], 1), [1]);
    // Tokens of the prompt outside the vocabulary are nothing to penalise.
    let wild = SamplingParams { repetition_penalty: 2.0, ..greedy() };
    assert_eq!(run(wild.clone(), &[99, u32::MAX], &logits, 1), [0]);
    assert_eq!(run(wild, &[0, 1], &[f32::MIN, f32::MIN], 1), [0]);
}

#[test]
fn logits_that_are_no_numbers_are_errors() {
    // N13: an overflow would be answered with "!!!!" for ever.
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for params in [greedy(), open(), SamplingParams::default()] {
            let mut sampler = Sampler::new(params, 3, &[]).unwrap();
            let error = sampler.sample(&[0.0, 1.0, value, 0.0], 17).unwrap_err();
            assert!(matches!(error, GenerateError::NonFinite { id: 2, pos: 17, .. }), "{error}");
            // Rows without a token are not looked at.
            assert!(sampler.sample(&[0.0, 1.0, 0.0, value], 17).is_ok());
        }
    }
    let mut sampler = Sampler::new(greedy(), 3, &[]).unwrap();
    assert!(matches!(sampler.sample(&[0.0; 2], 0), Err(GenerateError::LogitCount { got: 2, n_vocab: 3 })));
    assert!(Sampler::new(greedy(), 0, &[]).unwrap().sample(&[0.0], 0).is_err());
}

#[test]
fn parameters_have_ranges() {
    // A typing error would silently give nonsense.
    type Edit = fn(&mut SamplingOverrides, f32);
    let set = |edit: Edit, value| {
        let mut user = SamplingOverrides::default();
        edit(&mut user, value);
        SamplingParams::resolve(None, &user)
    };
    let cases: [(&str, Edit, [f32; 2], [f32; 2]); 6] = [
        ("temperature", |u, v| u.temperature = Some(v), [0.0, 2.0], [-0.1, 101.0]),
        ("top_p", |u, v| u.top_p = Some(v), [0.0, 1.0], [-0.1, 1.1]),
        ("min_p", |u, v| u.min_p = Some(v), [0.0, 1.0], [-0.1, 1.1]),
        ("presence_penalty", |u, v| u.presence_penalty = Some(v), [-2.0, 2.0], [-2.1, 2.1]),
        ("frequency_penalty", |u, v| u.frequency_penalty = Some(v), [-2.0, 2.0], [-2.1, 2.1]),
        ("repetition_penalty", |u, v| u.repetition_penalty = Some(v), [0.5, 2.0], [0.0, 11.0]),
    ];
    for (name, edit, good, bad) in cases {
        for value in good {
            assert!(set(edit, value).is_ok(), "{name} {value}");
        }
        for value in bad.into_iter().chain([f32::NAN, f32::INFINITY]) {
            let error = set(edit, value).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name} is ")), "{error}");
        }
    }
}

#[test]
fn the_checkpoint_sets_defaults_and_the_user_wins() {
    // Answers would be sampled differently from what the model's makers advise.
    let config = |json: &str| GenerationConfig::from_bytes(json.as_bytes());
    let demo = config(r#"{"do_sample":true,"temperature":0.7,"top_p":0.9,"top_k":30,"eos_token_id":[5,3],"pad_token_id":3}"#).unwrap();
    let resolved = SamplingParams::resolve(Some(&demo), &SamplingOverrides::default()).unwrap();
    assert_eq!(
        resolved,
        SamplingParams { temperature: 0.7, top_p: 0.9, top_k: 30, ..SamplingParams::default() }
    );
    assert_eq!(demo.eos_ids(), [5, 3]);
    let user = SamplingOverrides { temperature: Some(0.0), seed: Some(3), ..SamplingOverrides::default() };
    let resolved = SamplingParams::resolve(Some(&demo), &user).unwrap();
    assert_eq!((resolved.temperature, resolved.seed, resolved.top_k), (0.0, 3, 30));
    assert_eq!(config(r#"{"do_sample":false,"temperature":0.7}"#).unwrap().sampling().temperature, 0.0);
    assert_eq!(config(r#"{"eos_token_id":7}"#).unwrap().eos_ids(), [7]);
    assert_eq!(config("{}").unwrap().sampling(), SamplingParams::default());
    for bad in [
        "",
        "[]",
        "7",
        r#"{"top_k":-1}"#,
        r#"{"temperature":"hot"}"#,
        r#"{"eos_token_id":"x"}"#,
        r#"{"top_p":7}"#,
    ] {
        assert!(config(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn limits_hold(
        logits in prop::collection::vec(prop_oneof![-8f32..8.0, Just(1.5f32)], 1..400),
        n_masked in 0usize..5,
        temperature in 0.05f32..3.0,
        top_k in 0usize..40,
        top_p in 0f32..=1.0,
        min_p in prop_oneof![Just(0f32), 0f32..=1.0],
        seed: u64,
    ) {
        // A token outside top-k, top-p or min-p, or without a meaning, would be chosen. The check sorts
        // everything.
        let n_vocab = logits.len();
        let mut padded = logits.clone();
        padded.extend(vec![1e30; n_masked]);
        let params = SamplingParams { temperature, top_k, top_p, min_p, seed, ..SamplingParams::default() };
        let chosen = Sampler::new(params, n_vocab, &[]).unwrap().sample(&padded, 0).unwrap() as usize;
        prop_assert!(chosen < n_vocab);

        let mut order: Vec<usize> = (0..n_vocab).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        let rank = order.iter().position(|&id| id == chosen).unwrap();
        let n_top_k = if top_k == 0 { n_vocab } else { top_k.min(n_vocab) };
        prop_assert!(rank < n_top_k);
        let weight = |id: usize| (f64::from(logits[id] - logits[order[0]]) / f64::from(temperature)).exp();
        let total: f64 = order[..n_top_k].iter().map(|&id| weight(id)).sum();
        let before: f64 = order[..rank].iter().map(|&id| weight(id)).sum();
        prop_assert!(rank == 0 || before < f64::from(top_p) * total * (1.0 + 1e-9));
        prop_assert!(rank == 0 || weight(chosen) >= f64::from(min_p) * (1.0 - 1e-6));
    }
}

//! Text to ids and back, against Hugging Face's `tokenizers`.

mod common;

use common::{ADDED, FIRST_ADDED, id};
use generate::{TextStream, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn from(json: &Value) -> Result<Tokenizer, generate::GenerateError> {
    Tokenizer::from_bytes(json.to_string().as_bytes(), None)
}

#[test]
fn golden_encodings_of_the_full_tokenizer() {
    // The real vocabulary (no-merge tokens, NFC, all scripts) would be split differently from the training
    // data.
    let Some(golden) = common::optional(&["../../../shared/tokenizer/golden_encodings.json"]) else { return };
    let Some(json) = common::optional(&["../../../shared/tokenizer/tokenizer.json"]) else { return };
    let tokenizer = Tokenizer::from_bytes(&json, None).unwrap();
    let cases: Vec<Value> = serde_json::from_slice(&golden).unwrap();
    assert_eq!(cases.len(), 627);
    let mut n_bad = 0;
    for case in &cases {
        let expected: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        let got = tokenizer.encode(case["text"].as_str().unwrap()).unwrap();
        if got != expected {
            eprintln!("{}: {got:?} instead of {expected:?}", case["text"]);
            n_bad += 1;
        }
    }
    assert_eq!(n_bad, 0);
    assert_eq!(tokenizer.vocab_size(), 248_077);
    assert_eq!(tokenizer.token_id("<|im_end|>"), Some(248_046));
    assert_eq!(tokenizer.token_bytes(248_300), b"");
}

#[test]
fn committed_encodings_of_the_demo_tokenizer() {
    // The demo model would be fed ids that it was not trained on.
    let json = common::demo_tokenizer_json();
    let tokenizer = Tokenizer::from_bytes(&json, None).unwrap();
    let vectors = String::from_utf8(common::data("demo_encodings.jsonl")).unwrap();
    let mut lines = vectors.lines();
    let header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(
        header["tokenizer_sha256"],
        sha256(&json),
        "stale: run tools/golden/text/make_tokenizer_vectors.py"
    );
    let mut n_case = 0;
    for line in lines {
        let (text, ids, plain): (String, Vec<u32>, Option<Vec<u32>>) = serde_json::from_str(line).unwrap();
        assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.encode_text(&text).unwrap(), plain.unwrap_or(ids), "plain {text:?}");
        n_case += 1;
    }
    assert!(n_case > 400);
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn added_tokens_match_only_where_asked() {
    // Quoted control tokens would become control tokens, or real ones text.
    let tokenizer = common::small();
    let text = "hello<|im_end|>";
    assert_eq!(tokenizer.encode(text).unwrap(), [259, id("<|im_end|>")]);
    let plain = tokenizer.encode_text(text).unwrap();
    assert!(plain.iter().all(|&id| id < FIRST_ADDED), "{plain:?}");
    assert_eq!(tokenizer.decode(&plain, true), text);
}

#[test]
fn added_tokens_of_both_files_are_known() {
    // A token declared only in tokenizer_config.json would be text, and shown.
    let tokenizer = common::small();
    assert_eq!(tokenizer.added_tokens().len(), ADDED.len());
    for ((content, special), id) in ADDED.iter().zip(FIRST_ADDED..) {
        assert_eq!(tokenizer.encode(content).unwrap(), [id]);
        assert_eq!(tokenizer.token_id(content), Some(id));
        assert_eq!(tokenizer.is_special(id), *special);
        assert_eq!(tokenizer.token_bytes(id), content.as_bytes());
    }
    let contradiction = json!({ "added_tokens_decoder": { "262": { "content": "<other>" } } });
    let json = common::small_json().to_string();
    let result = Tokenizer::from_bytes(json.as_bytes(), Some(contradiction.to_string().as_bytes()));
    assert!(result.is_err());
}

#[test]
fn bytes_of_tokens_are_real_bytes() {
    // T34: byte-level glyphs (Ġ, Ċ) would appear in the output.
    let tokenizer = common::small();
    for b in 0..=255u8 {
        assert_eq!(tokenizer.token_bytes(b.into()), [b]);
    }
    let ids = tokenizer.encode("hello\n\n w").unwrap();
    assert_eq!(ids, [259, 261, 260]);
    let mut stream = TextStream::new(&tokenizer);
    assert_eq!(ids.iter().map(|&id| stream.push(id)).collect::<Vec<_>>(), ["hello", "\n\n", " w"]);
}

#[test]
fn padding_rows_and_special_tokens_show_nothing() {
    // Ids without a token would end the answer with an error, control tokens would be shown.
    let tokenizer = common::small();
    let padding = tokenizer.vocab_size() as u32;
    assert_eq!(
        tokenizer.decode(&[259, padding, u32::MAX, id("<|im_end|>"), id("<think>")], true),
        "hello<think>"
    );
    assert_eq!(tokenizer.decode(&[id("<|im_end|>")], false), "<|im_end|>");
    let mut stream = TextStream::new(&tokenizer);
    for id in [padding, u32::MAX, id("<|im_end|>")] {
        assert_eq!(stream.push(id), "");
    }
    assert_eq!(stream.push(id("<tool_call>")), "<tool_call>");
}

#[test]
fn long_text_is_not_cut() {
    // The file's truncation setting (4 tokens here) would silently shorten prompts.
    let ids = common::small().encode(&"xyz".repeat(100)).unwrap();
    assert_eq!(ids.len(), 300);
}

#[test]
fn characters_over_several_tokens_come_whole() {
    // T24: half a character would be shown as U+FFFD.
    let tokenizer = common::small();
    let text = "日本 👩‍👩‍👧 é";
    let mut stream = TextStream::new(&tokenizer);
    let chunks: Vec<String> = text.bytes().map(|b| stream.push(b.into())).collect();
    assert_eq!(chunks.concat(), text);
    assert!(chunks.iter().all(|chunk| chunk.chars().count() <= 1));
    assert_eq!(stream.finish(), "");
    let cut: Vec<String> = text.bytes().take(4).map(|b| stream.push(b.into())).collect();
    assert_eq!(cut.concat() + &stream.finish(), "日\u{FFFD}");
}

#[test]
fn hostile_files_are_errors() {
    // A downloaded tokenizer.json would crash the program or take all memory.
    let edit = |pointer: &str, value: Value| {
        let mut json = common::small_json();
        *json.pointer_mut(pointer).unwrap() = value;
        json
    };
    let mut gap = common::small_json();
    gap["model"]["vocab"]["far"] = 4000.into();
    let mut twice = common::small_json();
    twice["added_tokens"][1]["id"] = FIRST_ADDED.into();
    let mut missing_byte = common::small_json();
    missing_byte["model"]["vocab"].as_object_mut().unwrap().remove("Ġ");
    let bad = [
        json!({}),
        json!([]),
        json!(null),
        gap,
        twice,
        missing_byte,
        edit("/model/vocab", json!({})),
        edit("/model/vocab", json!(7)),
        edit("/model/vocab/h", json!(u32::MAX)),
        edit("/model/vocab/h", json!(-1)),
        edit("/model/vocab/h", json!("x")),
        edit("/model/type", json!("Unigram")),
        edit("/model/merges", json!([["h", "z"]])),
        edit("/model/merges", json!([7])),
        edit("/model/merges", json!("x")),
        edit("/decoder", json!(null)),
        edit("/decoder/type", json!("Metaspace")),
        edit("/pre_tokenizer/pretokenizers/0/pattern/Regex", json!("(((")),
        edit("/added_tokens/0/id", json!(u32::MAX)),
        edit("/added_tokens/0/id", json!(1e99)),
        edit("/added_tokens/0/content", json!("")),
        edit("/added_tokens/0/content", json!("<|im_end|>")),
        edit("/added_tokens", json!({ "a": 1 })),
    ];
    for (i, json) in bad.iter().enumerate() {
        assert!(from(json).is_err(), "case {i} was accepted");
    }
    for bytes in [&b""[..], b"{", b"\xff\xfe", "[".repeat(100_000).as_bytes()] {
        assert!(Tokenizer::from_bytes(bytes, None).is_err());
        assert!(Tokenizer::from_bytes(common::small_json().to_string().as_bytes(), Some(bytes)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn streaming_equals_decoding_at_once(ids in prop::collection::vec(0u32..300, 0..60)) {
        // Text would be lost, repeated or damaged depending on where tokens end.
        let tokenizer = small_once();
        let mut stream = TextStream::new(tokenizer);
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text += &stream.finish();
        prop_assert_eq!(text, tokenizer.decode(&ids, true));
    }

    #[test]
    fn decoding_inverts_encoding_up_to_nfc(text in ".*|[a-e\u{300}-\u{304}\u{1100}-\u{1175} \n<|>]{0,30}") {
        // Prompts would lose characters.
        let tokenizer = small_once();
        let nfc = fastokens::Normalizer::from_config(fastokens::NormalizerConfig::Nfc).unwrap();
        let ids = tokenizer.encode_text(&text).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids, false), nfc.normalize(&text).into_owned());
    }

    #[test]
    fn damaged_files_do_not_panic(
        at in 0usize..9000,
        bytes in prop::collection::vec(any::<u8>(), 0..4),
        cut in any::<bool>(),
    ) {
        // A half-written or hostile file would crash the program.
        let mut json = common::small_json().to_string().into_bytes();
        let at = at % json.len();
        let end = if cut { json.len() } else { (at + bytes.len()).min(json.len()) };
        json.splice(at..end, bytes);
        if let Ok(tokenizer) = Tokenizer::from_bytes(&json, None) {
            let ids = tokenizer.encode("hello <|im_end|> wörld\n").unwrap_or_default();
            tokenizer.decode(&ids, true);
        }
    }
}

fn small_once() -> &'static Tokenizer {
    static SMALL: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    SMALL.get_or_init(common::small)
}

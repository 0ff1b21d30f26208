//! What is written comes back: from a folder, and from inside the program.

mod common;

use store::{Blob, ExpertLayer, Role, Store, StoreError, StoreFiles, StoreWriter};

/// Reads a store in every way and compares with what the plan's weights are.
fn check(store: &Store) {
    let plan = common::plan();
    assert_eq!(store.config(), &plan.config);
    let mut progress = Vec::new();
    let dense = store.load_dense(&mut |bytes| progress.push(bytes)).unwrap();
    assert!(progress.is_sorted());
    assert_eq!(progress.last(), Some(&store.dense_bytes()));
    for (idx, tensor) in plan.dense.iter().enumerate() {
        let matrix = dense.matrix(tensor.role, tensor.layer);
        let expected = common::dense(&plan, idx);
        let planes = tensor.format.planes(tensor.rows, tensor.cols);
        let view = matrix.view();
        for (plane, found) in planes.into_iter().zip([view.codes, view.scales, view.biases]) {
            assert_eq!(&expected[plane], found, "{} {:?}", tensor.role, tensor.layer);
        }
    }
    let norm = dense.vector(Role::LinearConv, Some(0));
    let idx = plan.dense.iter().position(|t| t.role == Role::LinearConv).unwrap();
    assert_eq!(norm, common::numbers(idx, norm.len()));
    for layer in 0..plan.experts.len() {
        let bytes = match store.expert_blob(layer) {
            Blob::File(path) => std::fs::read(path).unwrap(),
            Blob::Memory { bytes, .. } => bytes.to_vec(),
            Blob::Pieces(_) => panic!("a packed store has whole files"),
        };
        let expected: Vec<u8> =
            (0..plan.config.n_expert).flat_map(|e| common::record(&plan, layer, e)).collect();
        assert_eq!(bytes, expected, "layer {layer}");
        let [gate, _, down] = ExpertLayer::parts(&plan.experts[layer].formats, &plan.config, &bytes);
        assert_eq!((gate.rows, gate.cols, down.rows, down.cols), (32, 64, 64, 32));
    }
    assert_eq!(store.sidecar("tokenizer.json").unwrap().as_deref(), Some(&b"{}\n"[..]));
    assert_eq!(store.sidecar("config.json").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(store.sidecar("dense.bin").unwrap(), None);
    let report = store.verify(&mut |_| ()).unwrap();
    assert_eq!(report.problems.len(), 0, "{:?}", report.problems);
    assert_eq!((report.n_dense, report.n_expert), (plan.dense.len(), 4));
    let experts_bytes: usize = (0..2).map(|l| common::record(&plan, l, 0).len() * 2).sum();
    assert_eq!(report.read_bytes, store.dense_bytes() + experts_bytes as u64 + 3);
}

#[test]
fn a_folder_gives_back_what_was_written() {
    // Would break: writer and reader disagree on where something lies, or leave files behind.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new folder/größer");
    common::write(&path, &common::plan());
    let store = Store::open(&path).unwrap();
    check(&store);
    let files = common::files(dir.path());
    let names: Vec<&str> = files.keys().map(|n| n.strip_prefix("new folder/größer/").unwrap()).collect();
    let expected = [
        "config.json",
        "dense.bin",
        "experts/layer-000.bin",
        "experts/layer-001.bin",
        "manifest.json",
        "tokenizer.json",
    ];
    assert_eq!(names, expected);
    let total: usize = files.values().map(Vec::len).sum();
    assert_eq!(common::plan().total_bytes(), total as u64);
}

#[test]
fn the_program_can_hold_a_store() {
    // Would break: the embedded demo model is read by another path than a folder.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    common::write(&path, &common::plan());
    let leak = |(name, bytes): (String, Vec<u8>)| (&*name.leak(), &*bytes.leak());
    let files: Vec<(&'static str, &'static [u8])> = common::files(&path).into_iter().map(leak).collect();
    let files: &'static _ = files.leak();
    let embedded = Store::open_files(StoreFiles::Embedded { name: "demo", files }).unwrap();
    check(&embedded);
    assert_eq!(embedded.location(), "demo");
    assert_eq!(embedded.fingerprint(), Store::open(&path).unwrap().fingerprint());
    let error = Store::open_files(StoreFiles::Embedded { name: "demo", files: &files[2..] }).unwrap_err();
    assert_eq!(error.to_string(), "demo/dense.bin: is missing");
}

#[test]
fn the_same_plan_gives_the_same_bytes() {
    // Would break: a time, a path or an order from a hash map gets into the files.
    let dir = tempfile::tempdir().unwrap();
    common::write(&dir.path().join("a"), &common::plan());
    common::write(&dir.path().join("b"), &common::plan());
    assert_eq!(common::files(&dir.path().join("a")), common::files(&dir.path().join("b")));
}

#[test]
fn an_existing_output_is_left_alone() {
    // Would break: `pack` onto a finished store, a file or someone's folder destroys it.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    std::fs::write(&path, "precious").unwrap();
    let error = StoreWriter::create(&path, common::plan()).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
    let partial = dir.path().join("s.partial");
    std::fs::create_dir(&partial).unwrap();
    std::fs::write(partial.join("thesis.txt"), "precious").unwrap();
    let error = StoreWriter::create(&path, common::plan()).unwrap_err();
    assert!(error.to_string().contains("is in the way"), "{error}");
    assert_eq!(std::fs::read(partial.join("thesis.txt")).unwrap(), b"precious");
}

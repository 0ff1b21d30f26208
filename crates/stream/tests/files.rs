//! Real files, memory, and the bandwidth that is measured on them.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use store::Blob;
use stream::{
    Backing, CacheMode, ExpertStream, ReadAt, Reader, RecordFile, StreamError, StreamOptions, Tuning,
    measure_read_bandwidth,
};
use xxhash_rust::xxh3::xxh3_64;

const STRIDE: usize = 16 * 1024;

fn open(path: &Path, backing: Backing) -> Box<dyn ReadAt> {
    Reader::open(&Blob::File(path.into()), backing).unwrap()
}

fn depth(depth: usize) -> Tuning {
    Tuning { depth, ..Tuning::default() }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn stream_of(source: Box<dyn ReadAt>, xxh3: Vec<u64>, mode: CacheMode) -> ExpertStream {
    let file = RecordFile { source, stride_bytes: STRIDE, xxh3 };
    ExpertStream::new(vec![file], StreamOptions { mode, n_slot: 4, tuning: depth(2) }).unwrap()
}

/// The records of the experts, in order of expert.
fn take(stream: &mut ExpertStream, experts: &[usize]) -> Result<Vec<Vec<u8>>, StreamError> {
    let mut lease = stream.lease(0, 1, experts, |_| std::iter::once(0));
    let mut records = vec![Vec::new(); experts.len()];
    let result = loop {
        match stream.next(&mut lease, 8) {
            Ok(true) => {}
            Ok(false) => break Ok(records),
            Err(error) => break Err(error),
        }
        for &place in lease.ready() {
            records[place] = stream.record(&lease, place).to_vec();
        }
    };
    stream.release(lease);
    result
}

/// Reads `wanted` bytes as a caller does that loops on short reads.
fn read(source: &dyn ReadAt, offset: u64, wanted: usize) -> Vec<u8> {
    let mut buffer = quant::Buffer::zeroed(wanted).unwrap();
    let mut got = 0;
    while got < wanted {
        match source.read_at(offset + got as u64, &mut buffer[got..]).unwrap() {
            0 => break,
            n => got += n,
        }
    }
    buffer[..got].to_vec()
}

/// Direct reads have rules (aligned offset, length and memory) that callers must not notice: same bytes everywhere,
/// at the file's ragged end too, on disk and on a memory file system that may refuse direct reads.
#[test]
fn every_backing_gives_the_same_bytes() {
    let bytes: &'static [u8] = pattern(5 * STRIDE + 4097).leak();
    let memory = Blob::Memory { name: "demo".into(), bytes };
    let mut sources = vec![Reader::open(&memory, Backing::Direct).unwrap()];
    let folders = [std::env::temp_dir(), "/dev/shm".into(), ".".into()];
    let files: Vec<_> =
        folders.iter().filter(|dir| dir.is_dir()).flat_map(tempfile::NamedTempFile::new_in).collect();
    for mut file in &files {
        file.write_all(bytes).unwrap();
        for backing in [Backing::Direct, Backing::Buffered] {
            let source = open(file.path(), backing);
            assert_eq!(source.name(), file.path().display().to_string());
            assert!(backing == Backing::Direct || !source.is_direct());
            eprintln!("{}: {backing:?}, direct: {}", source.name(), source.is_direct());
            sources.push(source);
        }
    }
    let stride = STRIDE as u64;
    for offset in
        [0, 1, 511, 4096, stride - 1, stride, 3 * stride, 5 * stride, 5 * stride + 4097, 9 * stride, 1 << 40]
    {
        for wanted in [0, 1, 100, 4096, STRIDE, STRIDE + 1, 2 * STRIDE, 7 * STRIDE] {
            let start = bytes.len().min(offset as usize);
            let right = &bytes[start..bytes.len().min(start + wanted)];
            for source in &sources {
                assert!(read(&**source, offset, wanted) == right, "{} {offset} {wanted}", source.name());
            }
        }
    }
}

/// Offsets beyond 2 and 4 GiB must not wrap.
#[test]
fn records_far_out_in_a_sparse_file() {
    let far: Vec<usize> = [1 << 31, (1_u64 << 31) + STRIDE as u64, 1 << 32, (1 << 32) + 3 * STRIDE as u64]
        .map(|offset| (offset / STRIDE as u64) as usize)
        .into();
    let n_expert = far[3] + 1;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(n_expert as u64 * STRIDE as u64).unwrap();
    let mut xxh3 = vec![xxh3_64(&[0; STRIDE]); n_expert];
    for &expert in &far {
        let record: Vec<u8> = pattern(STRIDE).iter().map(|b| b ^ expert as u8).collect();
        file.seek(SeekFrom::Start(expert as u64 * STRIDE as u64)).unwrap();
        file.write_all(&record).unwrap();
        xxh3[expert] = xxh3_64(&record);
    }
    for mode in [CacheMode::Slots, CacheMode::Page] {
        let mut stream = stream_of(open(file.path(), ExpertStream::backing(mode)), xxh3.clone(), mode);
        let records = take(&mut stream, &far).unwrap();
        for (record, &expert) in records.iter().zip(&far) {
            assert_eq!(xxh3_64(record), xxh3[expert]);
        }
        take(&mut stream, &[0, far[0] - 1]).unwrap();
    }
}

/// A file that was cut must be an error that says where and how much is there, direct or not.
#[test]
fn cut_files() {
    let bytes = pattern(3 * STRIDE);
    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    for left in [STRIDE - 1, 4096, 100, 0] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes[..2 * STRIDE + left]).unwrap();
        for mode in [CacheMode::Slots, CacheMode::Page] {
            let mut stream = stream_of(open(file.path(), ExpertStream::backing(mode)), xxh3.clone(), mode);
            let error = take(&mut stream, &[2]).unwrap_err().to_string();
            let wanted = format!(
                "expert 2 (16384 bytes at offset 32768) failed after 3 attempts: the file ends early: wanted 16384 bytes, got {left}"
            );
            assert!(error.contains(&wanted), "{error}");
            assert!(take(&mut stream, &[1]).unwrap()[0] == bytes[STRIDE..2 * STRIDE]);
        }
    }
}

/// A flipped bit on the disk must not become a wrong token.
#[test]
fn flipped_bits() {
    let mut bytes = pattern(2 * STRIDE);
    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    bytes[2 * STRIDE - 1] ^= 1;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    for mode in [CacheMode::Slots, CacheMode::Page] {
        let mut stream = stream_of(open(file.path(), ExpertStream::backing(mode)), xxh3.clone(), mode);
        let error = take(&mut stream, &[0, 1]).unwrap_err();
        assert!(matches!(error, StreamError::Checksum { layer: 0, expert: 1, offset: 16384, .. }), "{error}");
        assert_eq!(stream.stats().n_retry, 2);
    }
}

/// What cannot be opened must be an error.
#[test]
fn missing_file() {
    let dir = tempfile::tempdir().unwrap();
    for backing in [Backing::Direct, Backing::Buffered] {
        let opened = Reader::open(&Blob::File(dir.path().join("no such file")), backing);
        assert_eq!(opened.err().map(|e| e.kind()), Some(std::io::ErrorKind::NotFound));
    }
}

/// More layers than the usual soft limit of open files allows.
#[cfg(unix)]
#[test]
fn many_files() {
    use rustix::process::{Resource, getrlimit};

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&pattern(STRIDE)).unwrap();
    let first = open(file.path(), Backing::Direct);
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    assert!(soft >= limit.maximum.unwrap_or(u64::MAX).min(10_240), "raised: {limit:?}");
    let sources: Vec<_> =
        (0..soft.saturating_sub(200).min(1200) / 2).map(|_| open(file.path(), Backing::Direct)).collect();
    assert!(sources.iter().all(|source| source.is_direct() == first.is_direct()));
}

/// The measured bandwidth is what everything is judged by: it must be finite, and must not be made up.
#[test]
fn bandwidth() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&pattern(40 * STRIDE)).unwrap();
    let small = tempfile::NamedTempFile::new().unwrap();
    let paths = [file.path(), small.path()];
    for (request_bytes, n_reader) in [(1, 1), (3 * STRIDE - 5, 3), (40 * STRIDE, 2)] {
        let bytes_s =
            measure_read_bandwidth(&paths, request_bytes, depth(n_reader), Duration::from_millis(20))
                .unwrap();
        assert!(bytes_s.is_finite() && bytes_s > 0.0 && bytes_s < 1e13, "{bytes_s}");
    }
    let none = measure_read_bandwidth(&paths, 41 * STRIDE, depth(1), Duration::ZERO).unwrap_err().to_string();
    assert!(none.contains("no file is as long as one request of 671744 bytes"), "{none}");
    assert!(measure_read_bandwidth(&[], 1, depth(1), Duration::ZERO).is_err());
    let missing = small.path().with_extension("missing");
    assert!(measure_read_bandwidth(&[&missing], 1, depth(1), Duration::ZERO).is_err());
}

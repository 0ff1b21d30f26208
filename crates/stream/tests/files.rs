//! Real files, memory, and the bandwidth that is measured on them.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::{Blob, Piece, PieceFile};
use stream::{
    Backing, CacheMode, ExpertStream, Method, ReadAt, Reader, RecordFile, StreamError, StreamOptions, Tuning,
    measure_read_bandwidth,
};
use xxhash_rust::xxh3::xxh3_64;

const STRIDE: usize = 48 * 1024;

/// Whole records and parts, one and several at a time, with either method: the readers must behave alike.
fn tunings() -> impl Iterator<Item = Tuning> {
    let methods = [Method::Pool, Method::Uring].into_iter();
    let shapes = [(16 * 1024, 1), (16 * 1024, 4), (32 * 1024, 3), (1 << 30, 2)];
    methods
        .flat_map(move |method| shapes.map(|(request_bytes, depth)| Tuning { method, request_bytes, depth }))
}

fn open(path: &Path, backing: Backing) -> Box<dyn ReadAt> {
    Reader::open(&Blob::File(path.into()), backing).unwrap()
}

fn depth(depth: usize) -> Tuning {
    Tuning { depth, ..Tuning::default() }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A file of records of `STRIDE` bytes, opened as the mode wants it.
fn stream_of(path: &Path, xxh3: &[u64], mode: CacheMode, tuning: Tuning) -> ExpertStream {
    let source = open(path, ExpertStream::backing(mode));
    let is_direct = source.is_direct();
    let file = RecordFile { source, stride_bytes: STRIDE, n_expert: xxh3.len(), xxh3: Some(xxh3.into()) };
    let stream = ExpertStream::new(vec![file], StreamOptions { mode, n_slot: 4, tuning }).unwrap();
    assert!(stream.method() == Method::Pool || (tuning.method == Method::Uring && is_direct));
    stream
}

/// All readers on a file, direct and buffered.
fn streams_of(path: &Path, xxh3: &[u64]) -> impl Iterator<Item = ExpertStream> {
    tunings().flat_map(move |tuning| {
        [CacheMode::Slots, CacheMode::Page].map(|mode| stream_of(path, xxh3, mode, tuning))
    })
}

/// The records of the experts, in order of expert.
fn take(stream: &mut ExpertStream, layer: usize, experts: &[usize]) -> Result<Vec<Vec<u8>>, StreamError> {
    let mut lease = stream.lease(layer, 1, experts, |_| std::iter::once(0));
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

/// Every expert in turn, and its bytes.
#[track_caller]
fn check_all(stream: &mut ExpertStream, bytes: &[u8]) {
    for (expert, record) in bytes.chunks(STRIDE).enumerate() {
        assert!(take(stream, 0, &[expert]).unwrap()[0] == record, "expert {expert}");
    }
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
    for mut stream in streams_of(file.path(), &xxh3) {
        for (record, &expert) in take(&mut stream, 0, &far).unwrap().iter().zip(&far) {
            assert_eq!(xxh3_64(record), xxh3[expert]);
        }
        take(&mut stream, 0, &[0, far[0] - 1]).unwrap();
    }
}

/// A file that was cut must be an error that says where and how much is there, direct or not.
#[test]
fn cut_files() {
    let bytes = pattern(3 * STRIDE);
    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    for left in [STRIDE - 1, 32 * 1024 + 512, 32 * 1024, 20_000, 4096, 100, 0] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes[..2 * STRIDE + left]).unwrap();
        for mut stream in streams_of(file.path(), &xxh3) {
            let error = take(&mut stream, 0, &[2]).unwrap_err().to_string();
            let wanted = format!(
                "expert 2 (49152 bytes at offset 98304) failed after 3 attempts: the file ends early: wanted 49152 bytes, got {left}"
            );
            assert!(error.contains(&wanted), "{error}");
            assert!(take(&mut stream, 0, &[1]).unwrap()[0] == bytes[STRIDE..2 * STRIDE]);
        }
    }
}

/// Somebody replaces a file while it is in use: what is gone must be an error, and what is there must stay readable.
#[test]
fn a_file_that_shrinks_and_grows_back() {
    let bytes = pattern(3 * STRIDE);
    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for (mode, tuning) in tunings().flat_map(|t| [(CacheMode::Slots, t), (CacheMode::Page, t)]) {
        file.rewind().unwrap();
        file.write_all(&bytes).unwrap();
        let mut stream = stream_of(file.path(), &xxh3, mode, tuning);
        file.as_file().set_len(2 * STRIDE as u64 - 1).unwrap();
        take(&mut stream, 0, &[2]).unwrap_err();
        let error = take(&mut stream, 0, &[1]).unwrap_err();
        let source = match &error {
            StreamError::Read { layer: 0, expert: 1, attempts: 3, source, .. } => source,
            _ => panic!("{error}"),
        };
        assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof);
        assert!(take(&mut stream, 0, &[0]).unwrap()[0] == bytes[..STRIDE]);
        file.rewind().unwrap();
        file.write_all(&bytes).unwrap();
        check_all(&mut stream, &bytes);
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
    for mut stream in streams_of(file.path(), &xxh3) {
        let error = take(&mut stream, 0, &[1]).unwrap_err();
        assert!(matches!(error, StreamError::Checksum { layer: 0, expert: 1, offset: 49152, .. }), "{error}");
        assert_eq!(stream.stats().n_retry, 2);
        assert_eq!(stream.stats().read_bytes, 3 * STRIDE as u64);
    }
}

/// Where the system has rings and the file system allows direct reads, a ring must be used and not only be asked for;
/// on a memory file system that refuses them, in memory and in page mode the threads must take over.
#[test]
fn rings_where_there_are_some() {
    let bytes: &'static [u8] = pattern(4 * STRIDE).leak();
    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    let tuning = Tuning { method: Method::Uring, request_bytes: 16 * 1024, depth: 5 };
    for dir in [std::env::temp_dir(), "/dev/shm".into()].iter().filter(|dir| dir.is_dir()) {
        let mut file = tempfile::NamedTempFile::new_in(dir).unwrap();
        file.write_all(bytes).unwrap();
        for mode in [CacheMode::Slots, CacheMode::Page] {
            let mut stream = stream_of(file.path(), &xxh3, mode, tuning);
            eprintln!("{}, {mode:?}: {:?}", dir.display(), stream.method());
            check_all(&mut stream, bytes);
        }
    }
    // Layers of both kinds in one stream.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let memory = Blob::Memory { name: "demo".into(), bytes };
    let sources = [open(file.path(), Backing::Direct), Reader::open(&memory, Backing::Direct).unwrap()];
    let layer =
        |source| RecordFile { source, stride_bytes: STRIDE, n_expert: xxh3.len(), xxh3: Some(xxh3.clone()) };
    let layers = sources.into_iter().map(layer).collect();
    let options = StreamOptions { mode: CacheMode::Slots, n_slot: 8, tuning };
    let mut stream = ExpertStream::new(layers, options).unwrap();
    for layer in 0..2 {
        let records = take(&mut stream, layer, &[0, 1, 2, 3]).unwrap();
        assert!(records.concat() == bytes);
    }
}

/// Quitting while the kernel still writes to the slots must wait for it.
#[test]
fn drop_with_reads_under_way() {
    let bytes = pattern(4 * STRIDE);
    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    for _ in 0..20 {
        for mut stream in streams_of(file.path(), &xxh3) {
            let lease = stream.lease(0, 1, &[0, 1, 2, 3], |_| std::iter::once(0));
            drop((stream, lease));
        }
    }
}

/// Records that are not aligned cannot be read directly: the kernel refuses, and the bytes must come all the same.
#[test]
fn odd_strides() {
    const STRIDE: usize = 50_001;
    let bytes = pattern(5 * STRIDE);
    let xxh3: Vec<u64> = bytes.chunks(STRIDE).map(xxh3_64).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    for tuning in tunings() {
        let source = open(file.path(), Backing::Direct);
        let layer =
            RecordFile { source, stride_bytes: STRIDE, n_expert: xxh3.len(), xxh3: Some(xxh3.clone()) };
        let options = StreamOptions { mode: CacheMode::Slots, n_slot: 5, tuning };
        let mut stream = ExpertStream::new(vec![layer], options).unwrap();
        assert!(take(&mut stream, 0, &[0, 1, 2, 3, 4]).unwrap().concat() == bytes);
        assert_eq!((stream.stats().n_retry, stream.stats().read_bytes), (0, bytes.len() as u64));
    }
}

/// A file whose direct descriptor is of no use.
#[cfg(target_os = "linux")]
struct Broken(std::fs::File);

#[cfg(target_os = "linux")]
impl ReadAt for Broken {
    fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::from_raw_os_error(5))
    }

    fn name(&self) -> String {
        "broken.bin".into()
    }

    fn direct_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        Some(self.0.as_fd())
    }
}

/// What the kernel says of a read through a ring must be told as it is, after the same number of attempts.
#[cfg(target_os = "linux")]
#[test]
fn errors_from_the_ring() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for tuning in tunings() {
        let only_write = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
        let layer = RecordFile {
            source: Box::new(Broken(only_write)),
            stride_bytes: STRIDE,
            n_expert: 8,
            xxh3: None,
        };
        let options = StreamOptions { mode: CacheMode::Slots, n_slot: 8, tuning };
        let mut stream = ExpertStream::new(vec![layer], options).unwrap();
        let code = match stream.method() {
            Method::Uring => rustix::io::Errno::BADF,
            Method::Pool => rustix::io::Errno::IO,
        };
        match take(&mut stream, 0, &[6]).unwrap_err() {
            StreamError::Read { attempts: 3, layer: 0, file, source, .. } => {
                assert_eq!((&*file, source.raw_os_error()), ("broken.bin", Some(code.raw_os_error())));
            }
            other => panic!("{other}"),
        }
        assert_eq!((stream.stats().n_retry, stream.stats().read_bytes), (2, 0));
    }
}

/// A file system without direct reads must be read through the page cache, and must not be an error.
#[cfg(target_os = "linux")]
#[test]
fn refused_direct_reads() {
    let path = Path::new("/proc/version");
    let source = open(path, Backing::Direct);
    assert!(!source.is_direct() && source.direct_fd().is_none());
    assert_eq!(read(&*source, 0, 16 * 1024), std::fs::read(path).unwrap());
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

/// The tuning must be one of the candidates that were measured, with a method that works here, in bounded time.
#[test]
fn tuning() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&pattern(200 * STRIDE)).unwrap();
    for (record_bytes, limit) in [(STRIDE, 60), (40 * STRIDE, 60), (3 * STRIDE, 0)] {
        let tuned = stream::tune(&[file.path()], record_bytes, Duration::from_millis(limit)).unwrap();
        let best = tuned.table.iter().map(|row| row.1).fold(0.0, f64::max);
        let chosen = tuned.table.iter().find(|row| row.0 == tuned.tuning).unwrap();
        assert!(best.is_finite() && chosen.1 > 0.0, "{tuned:?}");
        assert!(tuned.table.iter().all(|(tuning, _)| tuning.depth > 0 && tuning.request_bytes % 4096 == 0));
        // With no time at all there is one slice.
        assert!(limit > 0 || tuned.table.len() == 1, "{tuned:?}");
    }
    assert!(stream::tune(&[], STRIDE, Duration::ZERO).is_err());
    assert!(stream::tune(&[file.path()], 201 * STRIDE, Duration::ZERO).is_err());
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
        let cold = stream::measure_buffered_bandwidth(&paths, request_bytes, depth(n_reader), Duration::ZERO);
        for bytes_s in [bytes_s, cold.unwrap()] {
            assert!(bytes_s.is_finite() && bytes_s > 0.0 && bytes_s < 1e13, "{bytes_s}");
        }
    }
    let none = measure_read_bandwidth(&paths, 41 * STRIDE, depth(1), Duration::ZERO).unwrap_err().to_string();
    assert!(none.contains("no file is as long as one request of 2015232 bytes"), "{none}");
    assert!(measure_read_bandwidth(&[], 1, depth(1), Duration::ZERO).is_err());
    let missing = small.path().with_extension("missing");
    assert!(measure_read_bandwidth(&[&missing], 1, depth(1), Duration::ZERO).is_err());
}

/// A checkpoint used in place would compute with other bytes than its own: pieces of records lie at any offset of
/// several files, in any order, and reads past the page cache must be aligned.
#[test]
fn records_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let contents = [pattern(300_001), pattern(200_000).into_iter().rev().collect()];
    let paths: Arc<[PathBuf]> = ["a", "b"].map(|name| dir.path().join(name)).into();
    for (path, bytes) in paths.iter().zip(&contents) {
        std::fs::write(path, bytes).unwrap();
    }
    // Start in the record, file, offset, length: gaps between and behind, the last byte of a file among them.
    let parts =
        [(0, 0, 7, 20_000), (20_000, 1, 1, 4096), (24_128, 0, 299_000, 1001), (30_000, 1, 4095, 17_000)];
    let at = |expert: usize, (start, file, offset, bytes): (u64, usize, u64, u64)| Piece {
        start: start + (expert * STRIDE) as u64,
        file,
        offset: if offset == 299_000 { offset } else { offset + 1000 * expert as u64 },
        bytes,
    };
    let pieces: Vec<Piece> = (0..3).flat_map(|expert| parts.map(|part| at(expert, part))).collect();
    let mut records = vec![0; 3 * STRIDE];
    for piece in &pieces {
        let from = piece.offset as usize..(piece.offset + piece.bytes) as usize;
        let to = piece.start as usize..(piece.start + piece.bytes) as usize;
        records[to].copy_from_slice(&contents[piece.file][from]);
    }
    let map = PieceFile::new("experts".into(), paths, pieces, records.len() as u64).unwrap();
    let blob = Blob::Pieces(Arc::new(map));
    for (mode, tuning) in
        [CacheMode::Slots, CacheMode::Page].into_iter().flat_map(|m| tunings().map(move |t| (m, t)))
    {
        let source = Reader::open(&blob, ExpertStream::backing(mode)).unwrap();
        let layer = RecordFile { source, stride_bytes: STRIDE, n_expert: 3, xxh3: None };
        let options = StreamOptions { mode, n_slot: 4, tuning };
        let mut stream = ExpertStream::new(vec![layer], options).unwrap();
        assert!(take(&mut stream, 0, &[0, 1, 2]).unwrap().concat() == records, "{mode:?} {tuning:?}");
    }
    std::fs::OpenOptions::new().write(true).open(dir.path().join("a")).unwrap().set_len(299_500).unwrap();
    let source = Reader::open(&blob, Backing::Direct).unwrap();
    let layer = RecordFile { source, stride_bytes: STRIDE, n_expert: 3, xxh3: None };
    let options = StreamOptions { mode: CacheMode::Slots, n_slot: 4, tuning: depth(2) };
    let mut stream = ExpertStream::new(vec![layer], options).unwrap();
    let error = take(&mut stream, 0, &[0]).unwrap_err();
    assert!(error.to_string().contains("ends early"), "{error}");
}

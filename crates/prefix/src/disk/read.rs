//! Reads files past the page cache as one stream: several threads have a block under way each, and blocks are handed
//! over in order.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use quant::Buffer;
use store::Blob;
use stream::{Backing, ReadAt, Reader};
use xxhash_rust::xxh3::xxh3_64;

use super::header::{ALIGN, Block, Header};
use super::{Consume, Part, place};
use crate::{Key, Shape};

/// Blocks under way at a time, of at most [`super::header::BLOCK_BYTES_MAX`] each.
const N_THREAD: usize = 6;
/// Blocks that are there before their turn, besides those under way.
const N_SPARE_BUFFER: usize = 2;
/// Files that are open at a time. They are opened before their blocks are read: a header would wait behind those.
const N_OPEN_MAX: usize = 64;
/// Interrupted calls in a row before a device counts as broken: no real signal arrives so often.
const N_INTERRUPT_MAX: u32 = 10_000;

/// A file that is to be read.
pub(super) struct Wanted {
    pub(super) path: PathBuf,
    pub(super) name: (Key, Part),
}

/// What a thread reads into: grows to the longest block. Large pages, where the system has them, halve the time that a
/// drive takes.
#[derive(Default)]
struct Landing {
    memory: Option<Buffer>,
    len: usize,
}

/// An open file and what its header says.
struct PartFile {
    source: Box<dyn ReadAt>,
    header: Header,
}

/// A block of one of the files.
struct Job<'a> {
    file: &'a PartFile,
    offset: u64,
    block: Block,
}

/// What a thread made of the place in the order that it took.
struct Done {
    seq: u64,
    file_idx: usize,
    result: Result<Landing, String>,
}

/// What is to be read next: threads take it in turns.
struct Cursor<'a> {
    files: &'a [Result<PartFile, String>],
    seq: u64,
    file_idx: usize,
    block_idx: usize,
    /// Of the block from the first block on.
    offset: u64,
    is_over: bool,
}

impl Landing {
    /// Makes it so long; what was in it is lost.
    fn resize(&mut self, len: usize) -> io::Result<&mut [u8]> {
        if self.memory.as_ref().is_none_or(|memory| memory.len() < len) {
            self.memory = Some(Buffer::zeroed(len)?);
        }
        self.len = len;
        Ok(&mut self.memory.as_mut().expect("made above")[..len])
    }

    fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }
}

impl PartFile {
    /// Opens a file and reads its header, which must be what its name and the identity say.
    fn open(wanted: &Wanted, (root, shape): (Key, Shape)) -> Result<Self, String> {
        let file_bytes = place::file_bytes(&wanted.path).map_err(|e| e.to_string())?;
        let source = open_direct(&wanted.path).map_err(|e| format!("cannot open it: {e}"))?;
        let mut bytes = Landing::default();
        let mut read = |n: u64| {
            let read = bytes.resize(n as usize).and_then(|buf| read_exact(&*source, 0, buf));
            read.map_err(|e| format!("cannot read its header: {e}"))?;
            Header::length(bytes.bytes(), file_bytes)
        };
        let length = read(ALIGN)?;
        if length > ALIGN {
            read(length)?;
        }
        let header = Header::decode(bytes.bytes(), file_bytes)?;
        header.check(wanted.name, root, shape)?;
        Ok(Self { source, header })
    }
}

fn open_direct(path: &Path) -> io::Result<Box<dyn ReadAt>> {
    Reader::open(&Blob::File(path.to_owned()), Backing::Direct)
}

impl<'a> Cursor<'a> {
    /// The next block, its place in the order and its file; `None`: there is none.
    fn next(&mut self) -> Option<(u64, usize, Result<Job<'a>, String>)> {
        loop {
            let file = match self.files.get(self.file_idx).filter(|_| !self.is_over)? {
                Ok(file) => file,
                Err(why) => {
                    self.is_over = true;
                    return Some((self.take_seq(), self.file_idx, Err(why.clone())));
                }
            };
            if let Some(&block) = file.header.blocks.get(self.block_idx) {
                let job = Job { file, offset: file.header.encoded_bytes() + self.offset, block };
                self.block_idx += 1;
                self.offset += (block.bytes as u64).next_multiple_of(ALIGN);
                return Some((self.take_seq(), self.file_idx, Ok(job)));
            }
            self.file_idx += 1;
            (self.block_idx, self.offset) = (0, 0);
        }
    }

    fn take_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq - 1
    }
}

impl Job<'_> {
    fn read(&self, mut buffer: Landing) -> Result<Landing, String> {
        let Self { file, offset, block } = self;
        let padded = buffer.resize(block.bytes.next_multiple_of(ALIGN as usize));
        let read = padded.and_then(|buf| read_exact(&*file.source, *offset, buf));
        read.map_err(|e| format!("cannot read at offset {offset}: {e}"))?;
        buffer.len = block.bytes;
        if xxh3_64(buffer.bytes()) != block.xxh3 {
            return Err(format!("the block at offset {offset} is damaged"));
        }
        Ok(buffer)
    }
}

/// Hands all blocks of `wanted` over in order, with the index of the file. Bytes of all of them.
///
/// # Errors
/// A file or a block cannot be read or is not what was written; or what `consume` says. With the index of the file.
pub(super) fn read(
    wanted: &[Wanted],
    identity: (Key, Shape),
    consume: &mut Consume<'_>,
) -> Result<u64, (usize, String)> {
    let mut bytes = 0;
    for (n, some) in wanted.chunks(N_OPEN_MAX).enumerate() {
        let first_idx = n * N_OPEN_MAX;
        let files: Vec<_> = some.iter().map(|wanted| PartFile::open(wanted, identity)).collect();
        let read = read_open(&files, &mut |idx, block| consume(first_idx + idx, block));
        bytes += read.map_err(|(idx, why)| (first_idx + idx, why))?;
    }
    Ok(bytes)
}

fn read_open(files: &[Result<PartFile, String>], consume: &mut Consume<'_>) -> Result<u64, (usize, String)> {
    let cursor = Cursor { files, seq: 0, file_idx: 0, block_idx: 0, offset: 0, is_over: false };
    let cursor = Mutex::new(cursor);
    let (give_back, empty) = channel();
    let empty = Mutex::new(empty);
    let (done, from_threads) = channel();
    for _ in 0..N_THREAD + N_SPARE_BUFFER {
        give_back.send(Landing::default()).expect("the other end is below");
    }
    thread::scope(|scope| {
        for n in 0..N_THREAD {
            let (cursor, empty, done) = (&cursor, &empty, done.clone());
            let thread = thread::Builder::new().name("prefix-read".into());
            match thread.spawn_scoped(scope, move || fill(cursor, empty, &done)) {
                // Fewer threads are slower, none is an error.
                Err(e) if n == 0 => return Err((0, format!("cannot start a thread to read it: {e}"))),
                _ => {}
            }
        }
        drop(done);
        // Dropped at the end of this block, so that no thread waits for a buffer for ever.
        let give_back = give_back;
        let result = hand_over(&from_threads, &give_back, consume);
        cursor.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        result
    })
}

/// Puts what the threads read in order.
fn hand_over(
    from_threads: &Receiver<Done>,
    give_back: &Sender<Landing>,
    consume: &mut Consume<'_>,
) -> Result<u64, (usize, String)> {
    let mut early: VecDeque<Option<Done>> = VecDeque::new();
    let (mut seq, mut bytes) = (0, 0);
    for done in from_threads {
        // At most one for each buffer.
        let place = (done.seq - seq) as usize;
        early.resize_with(early.len().max(place + 1), || None);
        early[place] = Some(done);
        while let Some(Done { file_idx, result, .. }) = early.front_mut().and_then(Option::take) {
            early.pop_front();
            seq += 1;
            let buffer = result.map_err(|why| (file_idx, why))?;
            bytes += buffer.len as u64;
            consume(file_idx, buffer.bytes()).map_err(|why| (file_idx, why))?;
            // The threads may be at their end.
            let _ = give_back.send(buffer);
        }
    }
    Ok(bytes)
}

/// Reads blocks until there are no more, or nobody wants them. A thread has a buffer before it takes a place in the
/// order, so the block whose turn it is always comes.
fn fill(cursor: &Mutex<Cursor<'_>>, empty: &Mutex<Receiver<Landing>>, done: &Sender<Done>) {
    loop {
        let Ok(buffer) = empty.lock().unwrap_or_else(PoisonError::into_inner).recv() else { return };
        let next = cursor.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((seq, file_idx, job)) = next else { return };
        let result = job.and_then(|job| job.read(buffer));
        if done.send(Done { seq, file_idx, result }).is_err() {
            return;
        }
    }
}

/// Fills `buf` from `offset` on.
fn read_exact(source: &dyn ReadAt, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let (mut done, mut n_interrupt) = (0, 0);
    while done < buf.len() {
        match source.read_at(offset + done as u64, &mut buf[done..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => (done, n_interrupt) = (done + n, 0),
            Err(e) if e.kind() == ErrorKind::Interrupted && n_interrupt < N_INTERRUPT_MAX => n_interrupt += 1,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

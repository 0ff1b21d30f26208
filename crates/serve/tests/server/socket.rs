//! Over real sockets: heads that come at once, clients that go away, many of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::scripted::{Gate, Script};
use crate::support::{Listening, Setup};

/// Nothing here takes that long: a test that would hang fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

fn body(text: &str, is_stream: bool) -> String {
    let messages = json!([{ "role": "user", "content": text }]);
    json!({ "messages": messages, "stream": is_stream, "enable_thinking": false }).to_string()
}

fn send(address: SocketAddr, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body).as_bytes()).unwrap();
    socket
}

fn read_all(mut socket: TcpStream) -> String {
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

/// The answer's text, whichever way it came; `None` if it is not complete.
fn content(response: &str, is_stream: bool) -> Option<String> {
    if !response.starts_with("HTTP/1.1 200") {
        return None;
    }
    if !is_stream {
        let (_, body) = response.split_once("\r\n\r\n")?;
        let body: Value = serde_json::from_str(body).ok()?;
        return body["choices"][0]["message"]["content"].as_str().map(str::to_owned);
    }
    response.contains("data: [DONE]").then(|| {
        let data = response.lines().filter_map(|line| line.strip_prefix("data: {"));
        let chunks = data.filter_map(|data| serde_json::from_str::<Value>(&format!("{{{data}")).ok());
        chunks
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect()
    })
}

/// A02: clients and proxies would give up on a prompt that takes long.
#[test]
fn heads_and_heartbeats_come_while_a_prompt_is_fed() {
    let gate = Arc::new(Gate::default());
    let mut setup = Setup::new(&[("hello", Script::Text("Hi".into()))]);
    setup.options.heartbeat = Duration::from_millis(20);
    setup.stage.gate = Some(("hello".into(), gate.clone()));
    let server = setup.listen();
    let mut lines = BufReader::new(send(server.address, &body("hello", true))).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"));
    let heartbeats = lines.by_ref().filter(|line| line.starts_with(':')).take(3);
    assert_eq!(heartbeats.count(), 3, "comments come although the model is silent");
    gate.open();
    assert!(lines.any(|line| line == "data: [DONE]"));
    server.stop();
}

/// Waits for a session that was dropped or reused: the next request is answered.
fn next_is_served(server: &Listening) {
    let response = read_all(send(server.address, &body("hello", false)));
    assert_eq!(content(&response, false).as_deref(), Some("Hi"), "{response}");
}

/// A04: the model would go on working for clients that are gone.
#[test]
fn clients_that_leave_stop_their_work() {
    for (text, is_stream) in [("noise", true), ("noise", false), ("words", true), ("words", false)] {
        let mut setup =
            Setup::new(&[("hello", Script::Text("Hi".into())), ("noise", Script::Noise(1_000_000))]);
        setup = setup.n_ctx(200_000);
        setup.scheduling.n_parallel = 1;
        setup.stage.decode_time = Duration::from_millis(1);
        setup.stage.prefill_time = Duration::from_millis(1);
        let server = setup.listen();
        // A prompt, or an answer, of minutes.
        let text = if text == "words" { "word ".repeat(100_000) } else { text.to_owned() };
        let socket = send(server.address, &body(&text, is_stream));
        while server.log.lock().unwrap().n_fed == 0 {
            std::thread::yield_now();
        }
        socket.shutdown(Shutdown::Both).unwrap();
        drop(socket);
        next_is_served(&server);
        let n_fed = server.log.lock().unwrap().n_fed;
        assert!(n_fed < 90_000, "the prompt was fed to its end");
        server.stop();
    }
}

/// A04: a client that stops reading would keep its session, its place in the queue and its connection for ever.
#[test]
fn a_client_that_stops_reading_is_let_go() {
    let mut setup = Setup::new(&[("hello", Script::Text("Hi".into())), ("noise", Script::Noise(1_000_000))]);
    setup = setup.n_ctx(1_000_000);
    setup.options.limits.write_time = Duration::from_millis(500);
    setup.options.limits.n_connection = 1;
    setup.scheduling.n_parallel = 1;
    // The engine would notice, too, but not within this test.
    setup.scheduling.stall_time = 100 * PATIENCE;
    let server = setup.listen();
    let deaf = send(server.address, &body("noise", true));
    // There is one connection and one session: both are free again.
    next_is_served(&server);
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address);
    socket.write_all(head.as_bytes()).unwrap();
    let metrics = read_all(socket);
    assert!(metrics.contains("answers_cancelled_total 1\n"), "{metrics}");
    drop(deaf);
    server.stop();
}

/// A small random sequence; its seed is printed when a test fails.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Under load answers would be lost, mixed up, or left running for clients that are gone.
#[test]
fn many_clients_come_and_go() {
    const N_CLIENT: usize = 16;
    const N_REQUEST: usize = 10;
    let seed = 20_261_130;
    println!("seed {seed}");
    let texts: Vec<String> =
        (0..N_CLIENT).map(|i| format!("This is the answer for client {i}.").repeat(1 + i % 4)).collect();
    let keys: Vec<String> = (0..N_CLIENT).map(|i| format!("[client {i}]")).collect();
    let scripts: Vec<(&str, Script)> =
        keys.iter().zip(&texts).map(|(key, text)| (key.as_str(), Script::Text(text.clone()))).collect();
    let mut setup = Setup::new(&scripts);
    (setup.scheduling.n_parallel, setup.n_queue) = (4, N_CLIENT);
    let server = setup.listen();
    std::thread::scope(|scope| {
        for (i, text) in texts.iter().enumerate() {
            let (address, key) = (server.address, &keys[i]);
            let mut random = Random(seed + i as u64);
            scope.spawn(move || {
                for _ in 0..N_REQUEST {
                    let is_stream = random.below(2) == 0;
                    let prompt = format!("{}{key}", "word ".repeat(random.below(200) as usize));
                    let mut socket = send(address, &body(&prompt, is_stream));
                    match random.below(4) {
                        0 => drop(socket),
                        1 => {
                            let mut some = vec![0; 1 + random.below(400) as usize];
                            let _ = socket.read(&mut some);
                        }
                        _ => {
                            let response = read_all(socket);
                            assert_eq!(content(&response, is_stream).as_ref(), Some(text), "{response}");
                        }
                    }
                }
            });
        }
    });
    let log = server.log.clone();
    server.stop();
    let log = log.lock().unwrap();
    assert_eq!(log.n_session, 0, "sessions are left");
    assert_eq!(log.n_session_max, 4, "as many sessions as slots");
}

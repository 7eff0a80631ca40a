//! As much of gRPC as one call over a Unix socket needs: HTTP/2 frames (RFC 9113) around protocol buffers.
//!
//! A connection for each call, and nothing asynchronous: libraries for this bring a runtime along.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use httlib_hpack::Decoder;
use prost::Message;

use crate::world::command::LIMIT;

// RFC 9113, 6: the types of frames, and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED_OR_PRIORITY: u8 = 0x28;

/// What the server may send before we say that it may send more, on each stream.
const WINDOW: u32 = 1 << 30;

/// The only stream of a connection.
const STREAM: u32 = 1;

/// Calls a method and waits for its answer. `Err` is the server's message.
#[track_caller]
pub(crate) fn call<Answer: Message + Default>(
    socket: &Path,
    method: &str,
    request: &impl Message,
) -> Result<Answer, String> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(&opening(method, request)).unwrap();

    let (mut block, mut body) = (Vec::new(), Vec::new());
    let mut headers = Vec::new();
    let mut decoder = Decoder::default();
    loop {
        let Frame { kind, flags, payload } = Frame::read(&mut stream);
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[])).unwrap(),
            PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &payload)).unwrap(),
            HEADERS | CONTINUATION => {
                assert_eq!(flags & PADDED_OR_PRIORITY, 0, "{method}: headers in a form that gRPC servers do not use");
                block.extend(payload);
                if flags & END_HEADERS != 0 {
                    decoder.decode(&mut block, &mut headers).unwrap();
                    block.clear();
                }
            }
            DATA => body.extend(payload),
            RST_STREAM | GOAWAY => panic!("{method}: the server ended the connection: {payload:?}"),
            _ => {}
        }
        // The trailing headers, which have the outcome, come last.
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            break;
        }
    }
    let header = |name: &str| {
        let found = headers.iter().rev().find(|(key, _, _)| key == name.as_bytes());
        found.map(|(_, value, _)| String::from_utf8(value.clone()).unwrap())
    };
    match header("grpc-status").as_deref() {
        Some("0") => Ok(Answer::decode(&body[5..]).unwrap()),
        Some(_) => Err(unescape(&header("grpc-message").unwrap_or_default())),
        None => panic!("{method}: no outcome in {headers:?}"),
    }
}

/// Everything that the client says, but for acknowledgements.
fn opening(method: &str, request: &impl Message) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // RFC 7541, 6.2.2: a literal that is not indexed, with a new name; lengths below 127 are one byte.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            block.extend(text.bytes());
        }
    }
    let message = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    // The largest frame that a server must take.
    assert!(body.len() <= 16384, "{method}: a request of {} bytes", body.len());
    // SETTINGS_INITIAL_WINDOW_SIZE is the fourth.
    let window = [&[0, 4], &WINDOW.to_be_bytes()[..]].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &window),
        frame(HEADERS, END_HEADERS, STREAM, &block),
        frame(DATA, END_STREAM, STREAM, &body),
    ]
    .concat()
}

/// A frame as it was read.
struct Frame {
    kind: u8,
    flags: u8,
    payload: Vec<u8>,
}

impl Frame {
    #[track_caller]
    fn read(stream: &mut UnixStream) -> Frame {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).unwrap();
        Frame { kind: head[3], flags: head[4], payload }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// gRPC's status message has what is not printable ASCII, line ends among it, as `%` and two digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = &tail[if byte.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(bytes).unwrap()
}

//! One question to an engine's socket: an HTTP GET, with limits on the time and on the length of the answer.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Docker's answers about one container or image stay far below a megabyte.
const LIMIT: usize = 16 << 20;

/// A busy daemon answers within a second or two.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stands between the head of an answer and its body.
const BLANK_LINE: &[u8] = b"\r\n\r\n";

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status, such as 200 or 404.
    pub(super) status: u16,
    /// The body.
    pub(super) body: Vec<u8>,
}

/// Asks for `target`, which must be a path of visible ASCII.
pub(super) fn get(socket: &Path, target: &str) -> io::Result<Answer> {
    get_within(socket, target, PATIENCE)
}

fn get_within(socket: &Path, target: &str, patience: Duration) -> io::Result<Answer> {
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the question holds blanks or control characters"));
    }
    let deadline = Instant::now() + patience;
    let mut stream = open(socket, patience)?;
    // HTTP/1.0: the answer comes whole and ends with the connection.
    let question = format!("GET {target} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
    stream.write_all(question.as_bytes()).map_err(in_words)?;
    parse(&read(&mut stream, deadline)?)
}

/// A full queue of the listener's would hold up a plain `connect` for ever.
fn open(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&descriptor, Timeout::Send, Some(patience))?;
    connect(&descriptor, &SocketAddrUnix::new(socket)?).map_err(|errno| in_words(errno.into()))?;
    Ok(UnixStream::from(descriptor))
}

/// The process that made a socket of one that answers.
// unix(7), SO_PEERCRED.
pub(super) fn listener(socket: &Path) -> Option<u32> {
    let stream = open(socket, PATIENCE).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

fn read(stream: &mut UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(no_answer());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(text),
            Ok(count) => text.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(in_words(error)),
        }
        if text.len() > LIMIT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is longer than 16 MiB"));
        }
    }
}

/// A socket's time limit shows as "resource temporarily unavailable".
fn in_words(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { no_answer() } else { error }
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

fn parse(text: &[u8]) -> io::Result<Answer> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let end = text.windows(BLANK_LINE.len()).position(|window| window == BLANK_LINE);
    let end = end.ok_or_else(|| bad("the answer is not HTTP, or is cut off"))?;
    let head = std::str::from_utf8(&text[..end]).map_err(|_| bad("the answer is not HTTP"))?;
    let body = text[end + BLANK_LINE.len()..].to_vec();
    let mut lines = head.split("\r\n");
    let status = lines.next().filter(|line| line.starts_with("HTTP/1.")).and_then(|line| line.split(' ').nth(1));
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(|| bad("the answer is not HTTP"))?;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(bad("the answer comes in pieces, which HTTP/1.0 has not"));
        }
        if name.eq_ignore_ascii_case("content-length") && value.trim().parse() != Ok(body.len()) {
            return Err(bad("the answer is cut off"));
        }
    }
    Ok(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<(u16, &str)>) {
        let answer = parse(text.as_bytes()).ok();
        let expect = expect.map(|(status, body)| Answer { status, body: body.as_bytes().to_vec() });
        assert_eq!(answer, expect, "{text:?}");
    }

    #[test]
    fn answers() {
        check("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", Some((200, "{}")));
        check("HTTP/1.0 404 Not Found\r\n\r\n", Some((404, "")));
        check("HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\n{}", None);
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", None);
        check("HTTP/1.0 two OK\r\n\r\n", None);
        check("SSH-2.0\r\n\r\n", None);
        check("HTTP/1.0 200 OK\r\n", None);
        check("", None);
    }

    /// A listener that answers one connection with this, and holds it open for a while.
    fn once(answer: &'static [u8], hold: Duration) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        thread::spawn(move || {
            if let Ok((mut stream, _)) = listener.accept() {
                let mut question = [0; 1024];
                let _read = stream.read(&mut question);
                let _written = stream.write_all(answer);
                thread::sleep(hold);
            }
        });
        (folder, path)
    }

    #[test]
    fn a_question_and_its_limits() {
        let soon = Duration::from_millis(200);
        let (_folder, path) = once(b"HTTP/1.0 200 OK\r\n\r\n[]", Duration::ZERO);
        assert_eq!(get(&path, "/x").expect("an answer"), Answer { status: 200, body: b"[]".to_vec() });
        let (_folder, path) = once(b"HTTP/1.0 200 OK\r\n\r\n[", Duration::from_secs(3));
        let error = get_within(&path, "/x", soon).expect_err("it does not end");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(get(&path, "/x y").expect_err("a blank").kind(), io::ErrorKind::InvalidInput);
        let absent = get(Path::new("/no/such/socket"), "/x").expect_err("nobody listens");
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_listener_that_takes_nobody_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).expect("a socket");
        let soon = Duration::from_millis(200);
        assert_eq!(get_within(&path, "/x", soon).expect_err("no answer").kind(), io::ErrorKind::TimedOut);
    }
}

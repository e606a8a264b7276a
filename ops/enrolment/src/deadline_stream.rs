//! A TCP connection with a deadline for all that is read and written, however slowly the peer sends.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Reads and writes until `deadline`.
#[derive(Debug)]
pub(crate) struct DeadlineStream {
    stream: TcpStream,
    deadline: Instant,
}

impl DeadlineStream {
    pub(crate) fn new(stream: TcpStream, deadline: Instant) -> Self {
        Self { stream, deadline }
    }

    fn within_deadline<T>(
        &mut self,
        operation: impl FnOnce(&mut TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // A time-out of zero would be none.
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))?;
        let done = operation(&mut self.stream);
        done.map_err(|error| match error.kind() {
            // A blocking call that timed out.
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.within_deadline(|stream| stream.read(buffer))
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.within_deadline(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn slow_peer_does_not_extend_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let deadline = Instant::now() + Duration::from_millis(200);
        let mut stream = DeadlineStream::new(stream, deadline);
        let sender = std::thread::spawn(move || {
            while peer.write_all(b"x").is_ok() && Instant::now() < deadline + Duration::from_secs(5)
            {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut buffer = [0; 1];
        let error = loop {
            if let Err(error) = stream.read(&mut buffer) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(Instant::now() < deadline + Duration::from_secs(2));
        drop(stream);
        sender.join().unwrap();
    }
}

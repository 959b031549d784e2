//! The output of a command, of which only the beginning is kept.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::call_permit::MAX_SHORT_TEXT;

/// The most that a command may print to both streams together, in bytes.
const MAX_PRINTED: usize = 1 << 20;
/// The most that is kept of stderr, in bytes: enough for the reason of a failure.
const MAX_STDERR: usize = 2 << 10;
/// How many bytes are read at once.
const CHUNK: usize = 4 << 10;

/// The beginning of an output stream.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Printed {
    bytes: Vec<u8>,
    /// Whether the stream was longer than the part that is kept.
    pub is_cut: bool,
}

impl Printed {
    /// The kept part as text, without the line breaks at its end.
    pub(super) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        text.trim_end_matches(['\r', '\n']).to_owned()
    }
}

/// What a command has printed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CommandOutput {
    pub stdout: Printed,
    pub stderr: Printed,
}

impl CommandOutput {
    /// Reads both streams to their ends. Fails if together they are longer than [`MAX_PRINTED`].
    pub(super) async fn read(
        stdout: impl AsyncRead + Unpin,
        stderr: impl AsyncRead + Unpin,
    ) -> Result<Self, String> {
        let printed = AtomicUsize::new(0);
        let (stdout, stderr) = tokio::try_join!(
            read_beginning(stdout, MAX_SHORT_TEXT, &printed),
            read_beginning(stderr, MAX_STDERR, &printed),
        )?;
        Ok(CommandOutput { stdout, stderr })
    }
}

/// Reads a stream to its end, and keeps its beginning.
async fn read_beginning(
    mut stream: impl AsyncRead + Unpin,
    max: usize,
    printed: &AtomicUsize,
) -> Result<Printed, String> {
    let mut kept = Printed::default();
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = stream.read(&mut chunk).await;
        let read = read.map_err(|error| format!("the command's output cannot be read: {error}"))?;
        if read == 0 {
            return Ok(kept);
        }
        if printed.fetch_add(read, Ordering::Relaxed) + read > MAX_PRINTED {
            let max = MAX_PRINTED >> 20;
            return Err(format!("the command printed more than {max} MiB"));
        }
        let fit = read.min(max - kept.bytes.len());
        kept.bytes.extend_from_slice(&chunk[..fit]);
        kept.is_cut |= fit < read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(stdout: &[u8], stderr: &[u8]) -> Result<CommandOutput, String> {
        CommandOutput::read(stdout, stderr).await
    }

    #[tokio::test]
    async fn the_beginning_of_the_output_is_kept() {
        let output = read(b" 3 players \r\n\n", b"").await.expect("output");
        assert_eq!(output.stdout.text(), " 3 players ");
        assert_eq!(output.stderr, Printed::default());
        for (length, is_cut) in [(MAX_SHORT_TEXT, false), (MAX_SHORT_TEXT + 1, true)] {
            let output = read(&vec![b'x'; length], b"").await.expect("output");
            assert_eq!(output.stdout.text().len(), MAX_SHORT_TEXT);
            assert_eq!(output.stdout.is_cut, is_cut);
        }
    }

    #[tokio::test]
    async fn output_above_the_limit_is_an_error() {
        let half = vec![b'x'; MAX_PRINTED / 2];
        let all = read(&half, &half).await.expect("output");
        assert_eq!(all.stderr.text().len(), MAX_STDERR);
        let error = read(&half, &[&half[..], b"x"].concat()).await;
        assert_eq!(error, Err("the command printed more than 1 MiB".into()));
        let endless = tokio::io::repeat(b'x');
        let error = CommandOutput::read(endless, &b""[..]).await;
        assert_eq!(error, Err("the command printed more than 1 MiB".into()));
    }

    #[tokio::test]
    async fn invalid_utf8_is_replaced() {
        let output = read(b"\xff3", b"").await.expect("output");
        assert_eq!(output.stdout.text(), "\u{fffd}3");
    }
}

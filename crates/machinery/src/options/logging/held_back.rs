//! Lines that are held back before standard output: until there are so many bytes of them, or somebody flushes.
//!
//! Never errors: they go to standard error, at once. What is held back when the process is killed is lost, which is why
//! nothing is held back unless a flag asks for it.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing_subscriber::fmt::writer::MakeWriter;

/// Where lines are written to be held back.
pub struct HeldBack<W: Write = io::Stdout>(Arc<Mutex<BufWriter<W>>>);

impl<W: Write> Clone for HeldBack<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Write> HeldBack<W> {
    /// So many bytes at most, before `inner`. A line is never cut in two.
    pub(super) fn new(bytes: usize, inner: W) -> Self {
        Self(Arc::new(Mutex::new(BufWriter::with_capacity(bytes, inner))))
    }

    /// Writes what is held back.
    ///
    /// # Errors
    /// The stream takes nothing, as when its reader has gone.
    pub fn write_out(&self) -> io::Result<()> {
        self.0.lock().flush()
    }

    /// Writes it again and again, `--log-flush-frequency` apart.
    pub async fn write_out_every(self, frequency: Duration) {
        loop {
            tokio::time::sleep(frequency).await;
            // There is nowhere left to say that the stream is closed.
            let _closed = self.write_out();
        }
    }
}

impl<W: Write> Write for HeldBack<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // The layer flushes after each line, and is not heard.
        Ok(())
    }
}

impl<'a, W: Write + 'static> MakeWriter<'a> for HeldBack<W> {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

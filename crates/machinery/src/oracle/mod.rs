//! Readings of Go's and Kubernetes' libraries, for tests. `tests/oracle` answers them; [`Comparison`] compares Coxswain's readings
//! with them.
#![expect(clippy::expect_used, reason = "for tests")]

mod comparison;
mod mutate;
mod random;

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

pub use comparison::{BATCH, Comparison, KnownDifference, KnownRefusal, Translation, batches};
pub use random::Random;

/// Separates the parts of a text.
pub const SEPARATOR: char = '\u{1f}';

/// The bit of a batch's count that announces the name of a question.
const QUESTION_FOLLOWS: u32 = 1 << 31;

/// A running oracle. It ends with its input.
#[derive(Debug)]
pub struct Oracle {
    /// Empty for certificate requests and certificates.
    question: &'static str,
    process: Child,
    questions: Option<BufWriter<ChildStdin>>,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts an oracle for certificate requests and certificates.
    ///
    /// # Panics
    /// The oracle cannot be built or started.
    pub fn start() -> Self {
        Self::of("")
    }

    /// Starts an oracle for a question of `tests/oracle/questions.go`.
    ///
    /// # Panics
    /// The oracle cannot be built or started.
    pub fn of(question: &'static str) -> Self {
        let mut process = Command::new(program(question))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts");
        let questions = process.stdin.take().map(BufWriter::new);
        let answers = BufReader::new(process.stdout.take().expect("its output"));
        Self { question, process, questions, answers }
    }

    /// Returns Go's reading of each text.
    ///
    /// # Panics
    /// The oracle has ended.
    pub fn read<T: AsRef<[u8]>>(&mut self, texts: &[T]) -> Vec<Value> {
        self.ask(texts);
        self.answers(texts.len())
    }

    /// Sends texts. The caller reads the answers before it sends more.
    ///
    /// # Panics
    /// The oracle has ended.
    pub fn ask<T: AsRef<[u8]>>(&mut self, texts: &[T]) {
        let to = self.questions.as_mut().expect("it runs");
        let mut send = |bytes: &[u8]| to.write_all(bytes).expect("the oracle reads");
        let question = (!self.question.is_empty()).then_some(self.question.as_bytes());
        let mark = if question.is_some() { QUESTION_FOLLOWS } else { 0 };
        send(&(texts.len() as u32 | mark).to_be_bytes());
        for text in question.into_iter().chain(texts.iter().map(AsRef::as_ref)) {
            send(&(text.len() as u32).to_be_bytes());
            send(text);
        }
        to.flush().expect("the oracle reads");
    }

    /// Returns the answers to texts that were sent.
    ///
    /// # Panics
    /// The oracle has ended.
    pub fn answers(&mut self, count: usize) -> Vec<Value> {
        let mut line = String::new();
        let answer = |_| {
            line.clear();
            self.answers.read_line(&mut line).expect("the oracle answers");
            serde_json::from_str(&line).expect("an answer")
        };
        (0..count).map(answer).collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.questions.take());
        let ended = self.process.wait();
        assert!(std::thread::panicking() || ended.is_ok_and(|status| status.success()), "the oracle failed");
    }
}

/// Returns the path of the program that answers this question, which is built first if it is not there. Certificate requests and certificates
/// have a program without Go modules, so that their tests need no module proxy.
fn program(question: &str) -> &'static Path {
    static STANDARD: OnceLock<PathBuf> = OnceLock::new();
    static WITH_LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    if question.is_empty() {
        STANDARD.get_or_init(|| build(&["standard"]))
    } else {
        WITH_LIBRARIES.get_or_init(|| build(&[]))
    }
}

fn build(arguments: &[&str]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/build.sh");
    let output =
        Command::new(script).args(arguments).stderr(Stdio::inherit()).output().expect("build.sh runs");
    assert!(output.status.success(), "tests/oracle/build.sh failed; its output says why: {}", output.status);
    String::from_utf8(output.stdout).expect("a path").trim_end().into()
}

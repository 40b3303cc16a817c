//! Requests to step down, on their way from whoever asks to the term that they end.
//!
//! A request that was taken is carried to its end by the manager, whether somebody still waits for the answer or not.

use tokio::sync::{mpsc, oneshot};

use crate::admin::manager::StepDownError;

/// Requests that may wait. One is enough to end a term; the others are told that it is over.
const WAITING: usize = 8;

/// Asks the manager to give up leadership. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StepDown(mpsc::Sender<Request>);

impl StepDown {
    /// Stops the controllers, lets reconciles in flight end, releases all Leases that this replica holds, and stands for
    /// election again, behind the others. Returns when the Leases are released, or why they are not. `successor`, an
    /// identity, is to be next: other candidates of this kind hold back.
    ///
    /// Dropped before it returns, it is carried out all the same.
    pub async fn step_down(&self, successor: Option<&str>) -> Result<(), StepDownError> {
        let (done, answer) = oneshot::channel();
        let request = Request { successor: successor.map(str::to_owned), done };
        // No receiver, no answer: the manager ends, and its leadership with it.
        self.0.send(request).await.map_err(|_| StepDownError::NotLeader)?;
        answer.await.unwrap_or(Err(StepDownError::NotLeader))
    }
}

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) successor: Option<String>,
    done: oneshot::Sender<Result<(), StepDownError>>,
}

impl Request {
    /// Says what came of it.
    pub(super) fn answer(self, result: Result<(), StepDownError>) {
        if self.done.send(result).is_err() {
            tracing::debug!("The step-down caller disconnected before the result");
        }
    }
}

/// Where requests arrive.
#[derive(Debug)]
pub(super) struct Requests {
    arriving: mpsc::Receiver<Request>,
    refusal: StepDownError,
}

/// A way for requests; `elects`: whether there is an election, without which there is nothing to give up.
pub(super) fn channel(elects: bool) -> (StepDown, Requests) {
    let (asking, arriving) = mpsc::channel(WAITING);
    let off = || StepDownError::Unavailable("leader election is off".to_owned());
    let refusal = if elects { StepDownError::NotLeader } else { off() };
    (StepDown(asking), Requests { arriving, refusal })
}

impl Requests {
    /// The next request; never returns when nobody can ask any more.
    pub(super) async fn next(&mut self) -> Request {
        match self.arriving.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// Refuses all requests until `work` is done: those of a time in which this replica does not lead.
    pub(super) async fn refuse_while<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                request = self.next() => {
                    let refusal = self.refusal.clone();
                    request.answer(Err(refusal));
                }
            }
        }
    }

    /// Refuses what waits and whatever comes later.
    pub(super) fn close(&mut self) {
        self.arriving.close();
        while let Ok(request) = self.arriving.try_recv() {
            let refusal = self.refusal.clone();
            request.answer(Err(refusal));
        }
    }
}

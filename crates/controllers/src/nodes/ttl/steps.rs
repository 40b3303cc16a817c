//! How large the cluster is, in steps that overlap: one that is left upwards is not taken up again before there are clearly fewer
//! nodes, so that a cluster at a bound is not rewritten again and again.

use parking_lot::Mutex;

/// A step: below how many nodes it is left downwards, above how many upwards, and for how many seconds kubelets may cache.
#[derive(Clone, Copy, Debug)]
struct SizeStep {
    from: usize,
    to: usize,
    seconds: u32,
}

const STEPS: [SizeStep; 5] = [
    SizeStep { from: 0, to: 100, seconds: 0 },
    SizeStep { from: 90, to: 500, seconds: 15 },
    SizeStep { from: 450, to: 1000, seconds: 30 },
    SizeStep { from: 900, to: 2000, seconds: 60 },
    SizeStep { from: 1800, to: usize::MAX, seconds: 300 },
];

/// How many nodes there are, and the step that is due to that.
#[derive(Debug, Default)]
pub(super) struct Size(Mutex<(usize, usize)>);

impl Size {
    /// A node has come.
    pub(super) fn grow(&self) {
        let (count, step) = &mut *self.0.lock();
        *count += 1;
        if *count > STEPS[*step].to {
            *step += 1;
        }
    }

    /// A node has gone.
    pub(super) fn shrink(&self) {
        let (count, step) = &mut *self.0.lock();
        *count = count.saturating_sub(1);
        if *count < STEPS[*step].from {
            *step -= 1;
        }
    }

    /// How many nodes there are, and for how many seconds kubelets may cache.
    pub(super) fn now(&self) -> (usize, u32) {
        let (count, step) = *self.0.lock();
        (count, STEPS[step].seconds)
    }
}
